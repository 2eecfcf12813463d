"""Sessions over HTTP: what a client says and hears, what it finds after a reload, and what a message sent twice does."""

import asyncio
import time

import pytest
from tests.runtime.kit import reading, until
from tests.server.kit import OPERATOR, OTHER, USER, SessionClient, in_process, over_socket, text_of

from handrail.contract.store import StoreUnavailable
from handrail.testing import settle


async def test_a_message_is_answered_as_a_stream(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        events = await ana.say("good morning")
        assert events[0].type == "turn"
        assert events[-1].type == "done"
        assert text_of(events).strip() == "You said: good morning"
        assert events[-1].data["text"].strip() == "You said: good morning"
        assert all(event.data["turn"] == 1 for event in events)
        numbers = [event.id for event in events]
        assert numbers == sorted(numbers)


async def test_a_session_says_its_tools_and_registry(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        assert {"look", "pay"} <= set(ana.opened["tools"])
        assert ana.opened["registryVersion"] == server.runtime.registry.version
        assert ana.opened["mode"] == "text"
        assert ana.opened["user"] == "ana"


async def test_a_reloaded_page_finds_messages_cards_and_budget(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call look {"q": "tea"}')
        page = await ana.show()
        user, assistant = page["messages"]
        assert user["text"] == 'call look {"q": "tea"}'
        assert assistant["text"].strip() == "look: ok"
        (card,) = assistant["toolCards"]
        assert card["toolId"] == "look"
        assert card["type"] == "tool_finished"
        assert card["args"] == {"q": "tea"}
        assert page["budget"]["retrieval"] == {"used": 1, "limit": 5}
        assert page["turn"] == 1
        assert page["active"] is True
        assert page["answering"] is None


async def test_a_message_sent_again_keeps_its_turn_and_runs_nothing_twice(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        first = await ana.say('call note {"q": "once"}', "m1")
        again = await ana.say('call note {"q": "once"}', "m1")
        assert text_of(again) == text_of(first)
        assert [event.data["toolId"] for event in again if event.type == "tool_finished"] == ["note"]
        assert again[-1].data["replayed"] is True
        assert again[-1].data["turn"] == 1
        answer = await ana.post('call note {"q": "once"}', "m1")
        assert answer.status_code == 202
        assert answer.json()["turn"] == 1
        assert server.tools.started() == [{"q": "once"}]
        assert len((await ana.show())["messages"]) == 2


async def test_a_message_id_stands_for_one_text(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say("one", "m1")
        assert (await ana.post("two", "m1")).status_code == 409


async def test_one_message_at_a_time_and_the_running_one_may_be_sent_again(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        first = await ana.post("slow 40 done", "m1")
        assert first.status_code == 202
        assert (await ana.post("other", "m2")).status_code == 409
        again = await ana.post("slow 40 done", "m1")
        assert again.json() == first.json()
        events = await ana.say("slow 40 done", "m1")
        assert text_of(events).strip().endswith("done")


async def test_a_turn_can_be_cancelled_and_the_session_goes_on(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post("slow 500 never")
            await stream.until("text")
            answer = await server.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
            assert answer.json() == {"cancelled": True}
            done = (await stream.until("done"))[-1]
            assert done.data["state"] == "cancelled"
        assert server.model.cancelled == 1
        again = await server.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
        assert again.json() == {"cancelled": False}
        assert text_of(await ana.say("and now?")).strip() == "You said: and now?"
        assert [one["state"] for one in (await ana.show())["messages"]] == ["cancelled", "cancelled", "done", "done"]


async def test_a_cancelled_turn_lets_a_writing_call_finish_and_stops_a_reading_one(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post('call post {"q": "0.3"}')
            await until(server.tools.started)
            await server.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
            await stream.until("done")
            await ana.post('call nap {"q": "15"}')
            await stream.until("tool_started")
            await server.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
            await stream.until("done")
        await until(lambda: {"ended": {"q": "0.3"}} in server.tools.started())
        assert [next(iter(mark)) for mark in server.tools.started() if "begun" in mark or "ended" in mark] == [
            "begun",
            "ended",
        ]


async def test_a_writing_call_that_outlives_its_cancelled_turn_tells_its_outcome_when_it_has_ended(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("handrail.agents.text_agent._GRACE_SECONDS", 0.01)
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post('call post {"q": "15"}', "m1")
            await stream.until("tool_started")
            await until(server.tools.started)
            await server.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
            assert (await stream.until("done"))[-1].data["state"] == "cancelled"
            (card,) = (await ana.show())["messages"][1]["toolCards"]
            assert card["type"] == "tool_started"
            server.tools.go()
            told = (await stream.until("tool_finished"))[-1].data
            assert (told["late"], told["ok"], told["toolId"], told["turn"]) == (True, True, "post", 1)
        again = await ana.say('call post {"q": "15"}', "m1")
        assert [event.type for event in again if event.type.startswith("tool")] == ["tool_finished"]
        talk = server.sessions._hosted[ana.id]
        async with talk.busy:
            stored = await server.sessions.conversations.load(ana.id)
        assert stored is not None
        (card,) = stored.turns[0].answer["toolCards"]
        assert (card["type"], card["ok"], card["late"], card["args"]) == ("tool_finished", True, True, {"q": "15"})
        assert '"post"' in stored.document["later"][0]
        assert (await ana.show())["messages"][1]["state"] == "cancelled"
        assert text_of(await ana.say("and?", "m2")).strip().startswith("You said: and?")
        assert any("was finished after the interruption" in str(one) for one in server.model.asked[-1].messages)


async def test_a_call_that_ends_within_the_grace_of_a_cancel_leaves_no_open_card(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        talk = server.sessions._hosted[ana.id]
        async with ana.listening() as stream:
            for number, (words, ok) in enumerate([('call nap {"q": "15"}', False), ('call post {"q": "15"}', True)], 1):
                await ana.post(words)
                await stream.until("tool_started")
                await until(lambda: len(server.tools.started()) == number)  # noqa: B023  # it is waited for here
                run = talk.current
                cancelling = asyncio.create_task(
                    server.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
                )
                await until(lambda: run.cancelled)  # noqa: B023
                if ok:
                    server.tools.go()
                await cancelling
                await stream.until("done")
                told = (await stream.until("tool_finished"))[-1].data
                assert (told["turn"], told["ok"], told["late"]) == (number, ok, True)
        cards = [card for one in (await ana.show())["messages"] for card in one.get("toolCards", ())]
        assert [card["type"] for card in cards] == ["tool_finished", "tool_finished"]
        assert cards[0]["error"]["type"] == "CANCELLED"


async def test_what_was_said_so_far_is_on_a_page_that_is_loaded_meanwhile(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post("slow 500 never")
            await stream.until("text")
            await stream.until("text")
            assert (await ana.show())["messages"][1]["text"].startswith("0 1")
            await server.client.post(f"/api/sessions/{ana.id}/cancel", headers=ana.headers)
            done = (await stream.until("done"))[-1]
        assert done.data["text"].startswith("0 1 ")
        assert (await ana.show())["messages"][1]["text"] == done.data["text"]


async def test_an_error_of_the_model_is_told_and_the_message_may_be_sent_again(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        events = await ana.say("break", "m1")
        assert "error" in [event.type for event in events]
        assert events[-1].data["state"] == "failed"
        again = await ana.say("break", "m1")
        assert again[0].data["turn"] == events[0].data["turn"]


async def test_where_the_model_is_reaches_operators_and_nobody_else(tmp_path):
    inside = "10.0.0.7"
    async with in_process(tmp_path) as server:
        ana = await server.open()
        told = await ana.say("break", "m1")
        (error,) = [event.data for event in told if event.type == "error"]
        assert error["message"] == "The model is away."
        page = await ana.show()
        assert page["messages"][1]["error"]["message"] == "The model is away."
        assert inside not in f"{told} {page}"

        operator = SessionClient(server, OPERATOR, ana.opened)
        seen = await operator.show()
        assert inside in seen["messages"][1]["error"]["detail"]
        again = await operator.say("break", "m1")
        assert inside in next(event.data["detail"] for event in again if event.type == "error")


async def test_where_the_model_is_stays_inside_when_a_turn_is_told_again(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        await ana.say("break", "m1")
        for key, expected in ((USER, False), (OPERATOR, True)):
            async with SessionClient(server, key, ana.opened).listening(after=0) as stream:
                heard = await stream.until("done")
            (error,) = [event.data for event in heard if event.type == "error"]
            assert ("detail" in error) is expected
            assert ("10.0.0.7" in str(heard)) is expected


async def test_an_ended_session_is_gone_with_what_was_said(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say("hello")
        answer = await server.client.delete(f"/api/sessions/{ana.id}", headers=ana.headers)
        assert answer.json() == {"sessionId": ana.id, "active": False}
        after = await server.client.get(f"/api/sessions/{ana.id}", headers=ana.headers)
        assert after.status_code == 410
        assert await server.sessions.conversations.load(ana.id) is None


async def test_a_users_key_speaks_for_its_user_alone_and_an_operators_for_anyone(tmp_path):
    async with in_process(tmp_path) as server:
        refused = await server.post("/api/sessions", {"user": "bob"}, USER)
        assert refused.status_code == 403
        opened = await server.post("/api/sessions", {"user": "bob"}, OPERATOR)
        assert opened.json()["user"] == "bob"
        assert (await server.post("/api/sessions", {}, OPERATOR)).json()["user"] == "local"
        assert (await server.post("/api/sessions", {}, OTHER)).json()["user"] == "bob"


async def test_wrong_wishes_are_told_in_a_sentence(tmp_path):
    async with in_process(tmp_path) as server:
        for body in (
            {"mode": "smell"},
            {"timeZone": "Mars/Olympus"},
            {"timeZone": "../../etc/passwd"},
            {"user": 3},
            {"user": "a\nb"},
            {"user": "  "},
            {"unknown": 1},
            [],
            "x",
            {"user": "x" * 1000},
        ):
            answer = await server.post("/api/sessions", body)
            assert answer.status_code == 400, body
            assert answer.json()["error"]["message"].endswith((".", "-"))
        assert len(server.sessions) == 0


WHERE = """
async def execute(args, ctx):
    mark(str(ctx.local_time.zone))
    return {"ok": True, "data": {"results": []}}
"""


async def test_tools_know_the_time_zone_of_the_person_and_remember_it(tmp_path):
    store = f"sqlite:////{tmp_path}/store.db"
    async with in_process(tmp_path, store=store, tools={"where": (reading(), WHERE)}) as server:
        ana, bob = await server.open(timeZone="Asia/Tokyo"), await server.open(OTHER)
        await ana.say("call where {}")
        await bob.say("call where {}")
    async with in_process(tmp_path, store=store, tools={"where": (reading(), WHERE)}) as server:
        ana.server = server
        await ana.say("call where {}")
        assert server.tools.marks.read_text().split() == ['"Asia/Tokyo"', '"None"', '"Asia/Tokyo"']


async def test_a_session_that_was_idle_comes_back_from_the_store(tmp_path):
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        ana = await server.open()
        await ana.say('call look {"q": "tea"}')
        last = (await ana.show())["lastEventId"]
        talk = server.sessions._hosted[ana.id]
        talk.last_used -= 10_000
        await server.sessions._make_room(1_800)
        assert len(server.sessions) == 0
        assert ana.id not in server.runtime.sessions
        page = await ana.show()
        assert [one["role"] for one in page["messages"]] == ["user", "assistant"]
        assert page["lastEventId"] > last
        assert text_of(await ana.say("still there?")).strip() == "You said: still there?"
        assert server.model.asked[-1].messages[0].text == 'call look {"q": "tea"}'


@pytest.mark.parametrize("is_here", [True, False])
async def test_a_session_whose_conversation_was_deleted_because_it_is_old_has_ended(tmp_path, is_here):
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        old, new = await server.open(), await server.open()
        for api in (old, new):
            await api.say('call note {"q": "tea"}')
        if not is_here:
            server.sessions._hosted[old.id].last_used -= 10_000
            await server.sessions._make_room(1_800)
        server.runtime.store._clock = lambda: int((time.time() + 91 * 86_400) * 1_000)
        await new.say("I am still here")
        await server.sessions._forget_unused()
        kept = {api.id: (await server.runtime.store.load_session(api.id)).active for api in (old, new)}
        assert kept == {old.id: False, new.id: True}
        assert (await old.post("Hello?")).status_code == 410
        assert text_of(await new.say("and now?")).strip() == "You said: and now?"


async def forget_while_away(server, monkeypatch):
    """What is too old is let go, and the store does not hear of it."""

    async def away(*_):
        raise StoreUnavailable("The store is away.")

    with monkeypatch.context() as patched:
        patched.setattr(server.runtime.store, "save_sessions", away)
        with pytest.raises(StoreUnavailable):
            await server.sessions._forget_unused()


@pytest.mark.parametrize("is_here", [True, False])
async def test_a_store_that_is_away_when_conversations_are_deleted_hears_of_it_later(tmp_path, monkeypatch, is_here):
    async with in_process(tmp_path) as server:
        old = await server.open()
        if not is_here:
            server.sessions._hosted[old.id].last_used -= 10_000
            await server.sessions._make_room(1_800)
        server.runtime.store._clock = lambda: int((time.time() + 91 * 86_400) * 1_000)
        await forget_while_away(server, monkeypatch)
        await server.sessions._forget_unused()
        assert not (await server.runtime.store.load_session(old.id)).active
        assert server.sessions._unused == []


async def unused(server):
    """A session that is not in memory, and whose conversation is old."""
    old = await server.open()
    server.sessions._hosted[old.id].last_used -= 10_000
    await server.sessions._make_room(1_800)
    server.runtime.store._clock = lambda: int((time.time() + 91 * 86_400) * 1_000)
    return old


async def test_a_session_that_somebody_came_back_to_before_its_end_was_stored_goes_on(tmp_path, monkeypatch):
    async with in_process(tmp_path) as server:
        old = await unused(server)
        await forget_while_away(server, monkeypatch)
        assert text_of(await old.say("I am back")).strip() == "You said: I am back"
        await server.sessions._forget_unused()
        assert (await server.runtime.store.load_session(old.id)).active
        assert text_of(await old.say("and now?")).strip() == "You said: and now?"


async def test_whoever_comes_back_while_a_session_is_ended_is_told_so(tmp_path, monkeypatch):
    async with in_process(tmp_path) as server:
        old = await unused(server)
        coming, load = [], server.sessions.conversations.load

        async def come_back(session_id):
            found = await load(session_id)
            if not coming:
                coming.append(asyncio.create_task(old.post("I am back")))
                await settle()
            return found

        monkeypatch.setattr(server.sessions.conversations, "load", come_back)
        await server.sessions._forget_unused()
        assert not (await server.runtime.store.load_session(old.id)).active
        assert (await coming[0]).status_code == 410


async def test_a_session_that_another_process_takes_up_while_it_is_ended_goes_on_there(tmp_path, monkeypatch):
    async with in_process(tmp_path) as server:
        old = await unused(server)
        load = server.sessions.conversations.load

        async def taken_up(session_id):
            found = await load(session_id)
            await server.runtime.resume_session(old.id, token=old.token)
            return found

        monkeypatch.setattr(server.sessions.conversations, "load", taken_up)
        await server.sessions._forget_unused()
        assert (await server.runtime.store.load_session(old.id)).active


async def test_too_many_sessions_are_refused_until_there_is_room(tmp_path):
    from handrail.server.options import Options

    async with in_process(tmp_path, options=Options(max_sessions=2)) as server:
        first = await server.open()
        await server.open()
        assert (await server.post("/api/sessions", {}, USER)).status_code == 503
        server.sessions._hosted[first.id].last_used -= 120
        assert (await server.post("/api/sessions", {}, USER)).status_code == 201
        assert (await first.show())["active"] is True


async def test_a_turn_cancelled_before_its_first_step_leaves_the_session_free(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        talk = server.sessions._hosted[ana.id]
        saying = asyncio.create_task(server.sessions.say(talk, "m1", "hello"))
        while talk.current is None or talk.current.task is None:
            await asyncio.sleep(0)
        talk.current.cancelled = True
        talk.current.task.cancel()
        await asyncio.wait_for(saying, 30)
        assert talk.current is None
        assert text_of(await ana.say("again", "m2")).strip() == "You said: again"


async def test_cancelling_twice_is_cancelling_once(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        talk = server.sessions._hosted[ana.id]
        await server.sessions.say(talk, "m1", "slow 500 x")
        outcomes = await asyncio.gather(*(server.sessions.cancel(talk) for _ in range(3)))
        assert outcomes == [True, True, True]
        assert talk.current is None
        assert talk.turns["m1"].state == "cancelled"


async def test_a_user_that_cannot_be_one_is_refused_in_a_sentence(tmp_path):
    async with in_process(tmp_path) as server:
        answer = await server.client.delete("/api/users/" + "x" * 300, headers={"Authorization": f"Bearer {OPERATOR}"})
        assert answer.status_code == 400


async def test_looking_at_the_head_of_a_stream_opens_none(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        answer = await server.client.head(f"/api/sessions/{ana.id}/events", headers=ana.headers)
        assert answer.status_code == 200
        assert not server.made.app.state.context.streams
        assert server.sessions._hosted[ana.id].log.readers == set()
