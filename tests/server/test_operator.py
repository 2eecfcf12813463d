"""The catalogue and the operator's part: tools, trying one, switches, audit, ledger, policy, metrics, health."""

import asyncio

import pytest
from tests.runtime.kit import reading
from tests.server.kit import OPERATOR, TOOLS, USER, Listening, bearer, in_process, over_socket, text_of

from handrail.contract.store import LedgerState

UNTIL_THERE = """
from pathlib import Path

async def execute(args, ctx):
    mark(args)
    while not Path(args["q"]).exists():
        await asyncio.sleep(0.01)
    return {"ok": True, "data": {"results": []}}
"""


async def test_the_catalogue_shows_what_each_tool_does(tmp_path):
    async with in_process(tmp_path) as server:
        listed = (await server.get("/api/tools", USER)).json()
        by_id = {tool["id"]: tool for tool in listed["tools"]}
        assert by_id["pay"]["requiresConfirmation"] is True
        assert by_id["look"]["sideEffects"] == "read_only"
        assert by_id["look"]["switchedOff"] is None
        one = (await server.get("/api/tools/look", USER)).json()
        assert one["guide"].startswith("# look")
        assert one["parameters"]["properties"]["q"]["type"] == "string"
        missing = await server.get("/api/tools/lok", USER)
        assert missing.status_code == 404
        assert '"look"' in missing.json()["error"]["message"]


async def test_trying_a_tool_goes_through_the_pipeline(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()

        async def attempt(tool: str, args: object) -> dict:
            body = {"args": args, "sessionId": ana.id}
            answer = await server.client.post(f"/api/tools/{tool}/try", json=body, headers=ana.headers)
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert (await attempt("look", {"q": "tea"}))["data"] == {"results": ["tea"]}
        wrong = await attempt("look", {"q": 3})
        assert wrong["error"]["type"] == "VALIDATION"
        assert wrong["error"]["details"][0]["pointer"] == "/q"
        assert (await attempt("nothing", {}))["error"]["type"] == "NOT_FOUND"
        held = await attempt("pay", {"q": "5"})
        assert held["error"]["type"] == "CONFIRMATION_REQUIRED"
        assert server.tools.started() == [{"q": "tea"}]
        assert (await ana.decide((await ana.show())["confirmations"][0])).json()["ok"] is True


async def test_a_tool_cannot_be_tried_while_the_session_answers(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        await ana.post("slow 50 x")
        body = {"args": {}, "sessionId": ana.id}
        answer = await server.client.post("/api/tools/look/try", json=body, headers=ana.headers)
        assert answer.status_code == 409


async def test_no_message_is_answered_and_no_second_tool_tried_beside_one_that_is_tried(tmp_path):
    over = tmp_path / "over"
    tools = {**TOOLS, "wait": (reading(timeoutMs=20_000), UNTIL_THERE)}
    async with over_socket(tmp_path, tools=tools) as server:
        ana = await server.open()
        body = {"args": {"q": str(over)}, "sessionId": ana.id}
        trying = asyncio.create_task(server.client.post("/api/tools/wait/try", json=body, headers=ana.headers))
        while not server.tools.started():
            await asyncio.sleep(0.01)
        named = {**ana.headers, "X-Handrail-Session": ana.id}
        asked = {"messages": [{"role": "user", "content": "hello"}]}
        refused = (
            await ana.post("hello"),
            await server.client.post("/v1/chat/completions", json=asked, headers=named),
            await server.client.post("/api/tools/look/try", json=body, headers=ana.headers),
        )
        for answer in refused:
            assert answer.status_code == 409
            assert "being tried" in answer.json()["error"]["message"]
            assert "retry-after" in answer.headers
        over.touch()
        assert (await trying).json()["ok"] is True


async def test_a_message_is_answered_after_a_tool_was_tried(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        body = {"args": {"q": "tea"}, "sessionId": ana.id}
        await server.client.post("/api/tools/look/try", json=body, headers=ana.headers)
        assert text_of(await ana.say("hello")).strip() == "You said: hello"


async def test_a_switch_holds_at_once_and_is_audited(tmp_path):
    async with in_process(tmp_path) as server:
        off = await server.post("/api/tools/look/switch", {"off": "the shop is down"})
        assert off.json() == {"id": "look", "switchedOff": "the shop is down"}
        ana = await server.open()
        await ana.say('call look {"q": "tea"}')
        card = (await ana.show())["messages"][-1]["toolCards"][0]
        assert card["type"] == "tool_refused"
        assert card["gate"] == "availability"
        assert card["error"]["message"] == '"look" is switched off for now: the shop is down.'
        assert (await server.post("/api/tools/look/switch", {"off": None})).json()["switchedOff"] is None
        events = (await server.get("/api/audit?limit=1000")).json()["events"]
        assert [event["off"] for event in events if event["event"] == "switch"] == ["the shop is down", None]
        for body in ({}, {"off": ""}, {"off": 1}, {"on": True}):
            assert (await server.post("/api/tools/look/switch", body)).status_code == 400
        assert (await server.post("/api/tools/nothing/switch", {"off": "x"})).status_code == 404


async def test_the_reason_of_a_switch_in_another_process_is_told_by_the_claim_too(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await server.runtime.store.switch(
            "note", "stock\ntaking"
        )  # as another process would; nobody here has heard of it yet
        await ana.say('call note {"q": "tea"}')
        card = (await ana.show())["messages"][-1]["toolCards"][0]
        assert card["error"]["message"] == '"note" is switched off for now: stock taking.'
        assert server.tools.started() == []


@pytest.mark.parametrize("audited", [True, False], ids=["on disk", "in memory"])
async def test_the_audit_is_filtered_and_says_why(tmp_path, audited):
    async with in_process(tmp_path, audited=audited) as server:
        ana, bob = await server.open(), await server.open()
        await ana.say('call look {"q": 3}')
        await bob.say('call look {"q": "tea"}')
        mine = (await server.get(f"/api/audit?session={ana.id}")).json()["events"]
        assert mine
        assert {event["sessionId"] for event in mine} == {ana.id}
        refusal = next(event for event in mine if event["event"] == "refusal")
        why = (await server.get(f"/api/audit/why/{refusal['callId']}")).json()
        assert why["found"] is True
        assert "refused" in why["sentence"]
        one = (await server.get(f"/api/audit?call={refusal['callId']}")).json()["events"]
        assert [event["event"] for event in one] == ["refusal"]
        assert len((await server.get("/api/audit?limit=2")).json()["events"]) == 2
        assert (await server.get("/api/audit/why/call_nothing")).status_code == 404
        for wrong in ("0", "-1", "x", "1001", "٣", "0000000000010000", "000000000001" + "0" * 5_000):
            assert (await server.get(f"/api/audit?limit={wrong}")).status_code == 400
            assert (await server.get(f"/api/ledger?limit={wrong}")).status_code == 400
        assert (await server.get("/api/ledger?limit=000000000001")).status_code == 200


@pytest.mark.parametrize("audited", [True, False], ids=["on disk", "in memory"])
async def test_audit_lines_are_streamed_as_they_are_written(tmp_path, audited):
    async with (
        over_socket(tmp_path, audited=audited) as server,
        server.client.stream("GET", "/api/audit/stream", headers=bearer(OPERATOR)) as answer,
    ):
        stream = Listening(answer)
        first, opened = asyncio.create_task(stream.until("audit")), []
        while not first.done():  # what is written before the stream has begun is not in it
            opened.append((await server.open()).id)
            await asyncio.sleep(0.1)
        (event,) = await first
        assert event.data["event"] == "session_start"
        assert event.data["sessionId"] in opened


async def test_an_unknown_outcome_is_listed_and_settled_once(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call note {"q": "a"}')
        rows = (await server.get("/api/ledger")).json()["rows"]
        assert [row["tool"] for row in rows] == ["note"]
        key = rows[0]["key"]
        known = await server.post(f"/api/ledger/{key}/settle", {"state": "failed"})
        assert known.status_code == 409
        server.runtime.store._db.execute("UPDATE ledger SET state = 'unknown', envelope = NULL")
        assert [row["key"] for row in (await server.get("/api/ledger?state=unknown")).json()["rows"]] == [key]
        for body in ({}, {"state": "unknown"}, {"state": "running"}, {"state": "failed", "note": 3}):
            assert (await server.post(f"/api/ledger/{key}/settle", body)).status_code == 400
        settled = await server.post(f"/api/ledger/{key}/settle", {"state": "succeeded", "note": "seen in the book"})
        assert settled.json()["state"] == LedgerState.SUCCEEDED
        assert (await server.post(f"/api/ledger/{key}/settle", {"state": "failed"})).status_code == 409
        assert (await server.post("/api/ledger/nothing/settle", {"state": "failed"})).status_code == 404
        assert (await server.get("/api/ledger?state=lost")).status_code == 400
        assert "settled" in (await server.get(f"/api/audit/why/{key}")).json()["sentence"]


async def test_metrics_come_in_both_shapes(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call look {"q": "tea"}')
        text = await server.get("/metrics")
        assert text.headers["content-type"].startswith("text/plain")
        assert 'handrail_tool_calls_total{tool="look"} 1' in text.text
        plain = (await server.get("/metrics", headers={"Accept": "application/json"})).json()
        assert plain["tools"]["look"]["calls"] == 1


async def test_the_policy_is_shown(tmp_path):
    async with in_process(tmp_path, policy={"text": {"retrieval_calls": 7}}) as server:
        assert (await server.get("/api/policy")).json()["text"]["retrieval_calls"] == 7


async def test_health_and_readiness(tmp_path):
    async with in_process(tmp_path) as server:
        server.made.app.state.context.readiness.kept_seconds = 0
        assert (await server.client.get("/healthz")).json() == {"ok": True}
        assert (await server.client.get("/readyz")).json()["ok"] is True
        server.sessions.draining = True
        not_ready = await server.client.get("/readyz")
        assert not_ready.status_code == 503
        assert not_ready.json()["checks"]["serving"] is False
        assert (await server.post("/api/sessions", {})).status_code == 503
        server.sessions.draining = False
        await server.runtime.store.close()
        assert (await server.client.get("/readyz")).json()["checks"]["store"] is False
        assert (await server.post("/api/sessions", {})).status_code == 503
        await server.runtime.store.open()


async def test_wrong_methods_are_told_which_are_right(tmp_path):
    async with in_process(tmp_path) as server:
        answer = await server.client.put("/api/sessions", headers=bearer(USER))
        assert answer.status_code == 405
        assert "POST" in answer.headers["allow"]
        assert answer.json()["error"]["type"] == "METHOD_NOT_ALLOWED"


async def test_a_failure_of_the_server_is_told_without_what_it_was(tmp_path, monkeypatch, caplog):
    async with in_process(tmp_path) as server:

        async def broken(*args: object, **named: object) -> None:
            raise RuntimeError("the secret of the house")

        monkeypatch.setattr(server.sessions, "open", broken)
        answer = await server.post("/api/sessions", {})
        assert answer.status_code == 500
        assert "secret of the house" not in answer.text
        assert "secret of the house" in caplog.text


async def test_an_operator_reads_how_tools_were_used_and_a_user_does_not(tmp_path):
    async with in_process(tmp_path) as server:
        assert (await server.get("/api/stats", USER)).status_code == 403
        assert (await server.get("/api/stats", None)).status_code == 401
        session = await server.runtime.open_session(tenant="acme")
        await session.begin_turn("m1")
        await session.call("look", {"q": "a"}, call_id="c1")
        told = (await server.get("/api/stats")).json()
        assert [(row["tool"], row["calls"], row["ok"]) for row in told["rows"]] == [("look", 1, 1)]
        told = (await server.get("/api/stats?by=tenant&since=2026-01-01")).json()
        assert (told["since"], [(row["tenant"], row["calls"]) for row in told["rows"]]) == ("2026-01-01", [("acme", 1)])
        assert (await server.get("/api/stats?tool=other")).json()["rows"] == []
        for wrong in ("by=user", "by=", "since=soon", "since=2026-99-99"):
            answer = await server.get(f"/api/stats?{wrong}")
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BAD_REQUEST")
