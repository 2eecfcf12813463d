"""Confirmations over HTTP: held, shown, approved or declined by the person, and what the model says when it hears of it."""

import asyncio

from tests.server.kit import OPERATOR, USER, in_process, over_socket, text_of

from handrail.contract.store import Block


async def test_a_held_call_is_announced_with_its_secret_and_approved(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post('call pay {"q": "10"}')
            events = await stream.until("done")
            request = next(event.data for event in events if event.type == "confirmation")
            assert request["tool"] == "pay"
            assert request["args"] == {"q": "10"}
            assert "Pay 10" in request["preview"]
            card = next(event.data for event in events if event.type == "tool_finished")
            assert card["held"] is True
            assert "token" not in card["error"]["confirmation_request"]
            answer = await ana.decide(request)
            assert answer.status_code == 200
            assert answer.json()["data"]["paid"] == "10"
            late = await stream.until("done")
            closed = next(event.data for event in late if event.type == "confirmation_closed")
            assert closed == {**closed, "id": request["id"], "outcome": "carried_out"}
            assert text_of(late).startswith("Told: ")
            assert late[-1].data["late"] is True
        texts = [one["text"] for one in (await ana.show())["messages"]]
        assert len(texts) == 3
        assert texts[2].startswith("Told: ")


async def test_an_approval_is_audited_with_the_person_and_the_key(tmp_path):
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db", audited=True) as server:
        for key, more, told in ((USER, {}, '"ana" (key '), (OPERATOR, {"user": "leo"}, " (key ")):
            api = await server.open(key, **more)
            await api.say('call pay {"q": "10"}')
            request = (await api.show())["confirmations"][0]
            assert (await api.decide(request)).json()["ok"]
            (line,) = (await server.get(f"/api/audit?session={api.id}&call={request['id']}")).json()["events"][-2:-1]
            assert line["event"] == "confirmation_approved"
            assert line["approvedVia"].startswith("key ")
            why = (await server.get(f"/api/audit/why/{request['id']}")).json()["sentence"]
            assert "then was approved by " in why
            assert told in why


async def test_a_declined_call_does_not_run_and_the_model_hears_of_it(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        request = (await ana.show())["confirmations"][0]
        async with ana.listening() as stream:
            answer = await ana.decide(request, "decline")
            assert answer.json()["error"]["type"] == "DECLINED"
            late = await stream.until("done")
            assert next(e.data for e in late if e.type == "confirmation_closed")["outcome"] == "declined"
        assert server.tools.started() == []
        assert (await ana.show())["confirmations"] == []


async def test_each_look_gives_a_fresh_token_and_any_of_them_approves_once(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        events = await ana.say('call pay {"q": "10"}')
        first = next(event.data for event in events if event.type == "confirmation")
        second = (await ana.show())["confirmations"][0]
        third = (await ana.show())["confirmations"][0]
        assert len({first["token"], second["token"], third["token"]}) == 3
        outcomes = [(await ana.decide(one)).json() for one in (second, first, third)]
        assert outcomes[0]["data"] == outcomes[1]["data"] == outcomes[2]["data"]
        assert server.tools.started() == [{"q": "10"}]


async def test_an_approval_of_an_idle_session_is_carried_out_at_once(tmp_path):
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        request = (await ana.show())["confirmations"][0]
        await server.sessions._let_go(server.sessions._hosted[ana.id])
        assert (await ana.decide(request)).json()["ok"] is True
        assert server.tools.started() == [{"q": "10"}]


async def test_a_late_result_is_told_once_also_after_the_session_was_let_go(tmp_path):
    async with over_socket(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        async with ana.listening() as stream:
            await ana.decide((await ana.show())["confirmations"][0])
            await stream.until("done")
        before = (await ana.show())["messages"]
        for _ in range(2):
            await server.sessions._let_go(server.sessions._hosted[ana.id])
            await ana.show()
            for session in list(server.runtime.sessions.values()):
                await server.runtime.approvals.carry_out_granted(session)
        assert [one["text"] for one in (await ana.show())["messages"]] == [one["text"] for one in before]


async def test_what_happens_while_a_session_is_read_is_told_by_its_stream(tmp_path):
    """The page takes what is shown and listens from the number that came with it: nothing may be between the two."""
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        request = (await ana.show())["confirmations"][0]
        read = server.runtime.store.holds

        async def approved_meanwhile(*asked):
            server.runtime.store.holds = read
            async with ana.listening() as stream:
                await ana.decide(request)
                await stream.until("done")
            return await read(*asked)

        server.runtime.store.holds = approved_meanwhile
        shown = await ana.show()
        assert server.tools.started() == [{"q": "10"}]
        (card,) = shown["messages"][1]["toolCards"]
        assert card["error"]["type"] == "CONFIRMATION_REQUIRED"
        async with ana.listening(shown["lastEventId"]) as stream:
            async with asyncio.timeout(20):
                told = await stream.until("done")
        assert [event.data["ok"] for event in told if event.type == "tool_finished"] == [True]
        assert text_of(told).startswith("Told: ")


async def test_a_session_that_is_read_while_a_late_result_is_told_shows_what_was_said_so_far(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        agent, may_end = server.sessions._agent, asyncio.Event()
        late = agent.late

        async def slowly(*given):
            async for event in late(*given):
                if event.type == "done":
                    await may_end.wait()
                yield event

        agent.late = slowly
        async with ana.listening() as stream, asyncio.timeout(20):
            await ana.decide((await ana.show())["confirmations"][0])
            await stream.until("text")
            shown = await ana.show()
        *_, told = shown["messages"]
        assert (told["state"], told["toolCards"][0]["ok"], told["text"][:6]) == ("running", True, "Told: ")
        async with ana.listening(shown["lastEventId"]) as stream, asyncio.timeout(20):
            may_end.set()
            rest = await stream.until("done")
        assert "tool_finished" not in [event.type for event in rest]
        assert told["text"] + text_of(rest) == (await ana.show())["messages"][-1]["text"]


async def test_an_approval_after_the_request_has_expired_runs_nothing(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        request = (await ana.show())["confirmations"][0]
        server.runtime.store._clock = lambda: request["expires_at"] + 1
        refused = await ana.decide(request)
        assert refused.status_code == 200
        assert refused.json()["error"]["type"] == "CONFLICT"
        assert "expired" in refused.json()["error"]["message"]
        assert (await ana.show())["confirmations"] == []
        assert server.tools.started() == []


async def test_an_approval_while_the_user_is_blocked_runs_nothing(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        request = (await ana.show())["confirmations"][0]
        await server.runtime.store.block(Block(tenant="", user="ana", until=await server.runtime.store.now() + 60_000))
        await server.runtime.housekeeper.learn()
        refused = await ana.decide(request)
        assert refused.status_code == 200
        assert refused.json()["ok"] is False
        assert refused.json()["error"]["type"] == "AUTH"
        assert server.tools.started() == []


async def test_a_switched_off_tool_is_refused_at_approval_and_the_request_stays_open(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        request = (await ana.show())["confirmations"][0]
        await server.post("/api/tools/pay/switch", {"off": "maintenance"})
        refused = await ana.decide(request)
        assert refused.status_code == 200
        assert refused.json()["error"]["type"] == "UNAVAILABLE"
        await server.post("/api/tools/pay/switch", {"off": None})
        assert (await ana.decide(request)).json()["ok"] is True
        assert server.tools.started() == [{"q": "10"}]


async def test_a_price_that_has_changed_is_shown_anew_and_the_old_yes_rents_nothing(tmp_path):
    async with over_socket(tmp_path) as server:
        (server.tools.root / "price").write_text("It costs 5.")
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post('call rent {"q": "a"}')
            seen = next(event.data for event in await stream.until("done") if event.type == "confirmation")
            (server.tools.root / "price").write_text("It costs 500.")
            answer = (await ana.decide(seen)).json()
            assert answer["error"]["type"] == "CONFIRMATION_REQUIRED"
            assert answer["error"]["confirmation_request"]["preview"] == "Rent a\nIt costs 500."
            assert "token" not in answer["error"]["confirmation_request"]
            anew = (await stream.until("confirmation"))[-1].data
        assert (anew["id"], anew["preview"]) == (seen["id"], "Rent a\nIt costs 500.")
        assert server.tools.started() == []
        path = f"/api/confirmations/{seen['id']}"
        shown = (await server.client.get(path, headers=ana.headers)).json()
        assert (shown["preview"], shown["replacedBy"]) == ("Rent a\nIt costs 500.", None)
        assert (await ana.decide(shown)).json()["ok"] is True
        assert server.tools.started() == [{"q": "a"}]
        assert (await server.client.get(path, headers=ana.headers)).status_code == 410


async def test_a_request_is_shown_to_nobody_else(tmp_path):
    async with in_process(tmp_path) as server:
        ana, ben = await server.open(), await server.open()
        await ana.say('call pay {"q": "10"}')
        [request] = (await ana.show())["confirmations"]
        for path in (
            f"/api/confirmations/{request['id']}",
            "/api/confirmations/conf_none",
            "/api/confirmations/%C3%A4",
        ):
            assert (await server.client.get(path, headers=ben.headers)).status_code == 404


async def test_a_newer_request_marks_the_older_one_in_the_list_and_the_audit_names_the_approver(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open(user="ana")
        await ana.say('call pay {"q": "1"}')
        await ana.say('call pay {"q": "2"}')
        old, new = (await ana.show())["confirmations"]
        assert (old["replacedBy"], new["replacedBy"]) == (new["id"], None)
        assert (await ana.decide(new)).json()["ok"] is True
        lines = (await server.get("/api/audit")).json()["events"]
        [line] = [line for line in lines if line["event"] == "confirmation_approved"]
        assert (line["approver"], line["confirmationId"]) == ("ana", new["id"])
