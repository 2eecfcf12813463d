"""What the server promises holds for clients of MCP too: what the audit names, what a person is asked, what a key may use."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.runtime.kit import FOUND, PAID, confirmed, reading, until
from tests.server.kit import KEYS, OTHER, USER, bearer, in_process, mcp_headers, mcp_meta, over_socket

from handrail.contract.keys import Key
from handrail.identity.tokens import TokenUser
from handrail.mcp.server.client_notes import ClientNote, ClientNotes
from handrail.mcp.server.governed_calls import CallKey
from handrail.mcp.server.options import McpOptions, Principal
from handrail.mcp.server.tasks import Tasks
from handrail.observe.verify import read_events
from handrail.server.key_ring import hash_of, key_of_token
from handrail.server.options import Options
from handrail.stores import MemoryStore

ELICITS = {"elicitation": {}}
PAY = {"pay": (confirmed(preview="Pay {q}"), PAID)}


def yes(asked: Any) -> dict[str, Any]:
    answer = {"confirmation": {"action": "accept", "content": {"approve": True}}}
    return {"inputResponses": answer, "requestState": asked["result"]["requestState"]}


def question(asked: Any) -> str:
    return str(asked["result"]["inputRequests"]["confirmation"]["params"]["message"])


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (Key(name="zoe", hash=hash_of(USER), user="zoe"), f"mcp key {hash_of(USER)[:12]}…"),
        (Key(name="zoe", hash=hash_of(USER), user="zoe", role="operator"), f"mcp key {hash_of(USER)[:12]}…"),
        (Key(name="desk", hash=hash_of(USER)), "mcp key desk"),
    ],
    ids=["personal", "personal-operator", "shared"],
)
async def test_the_audit_names_the_client_of_an_approval_but_never_its_user(tmp_path, key, told):
    options = McpOptions(trusted_clients=(key.name,))
    async with in_process(tmp_path, keys=(*KEYS[:1], key), tools=PAY, mcp=options, audited=True) as server:
        asked = await server.mcp("pay", {"q": "5"}, can=ELICITS)
        done = await server.mcp("pay", {"q": "5"}, can=ELICITS, **yes(asked))
        assert done["result"]["structuredContent"]["ok"]
        (row,) = server.runtime.store._db.execute("SELECT approved_via FROM hold").fetchall()
        assert row == (told,)
    lines = [*read_events(tmp_path / "audit", event="confirmation_approved")]
    assert [line["approvedVia"] for line in lines] == [told]


async def test_a_replaced_request_says_so_first_and_an_old_yes_does_not_pay(tmp_path):
    async with in_process(tmp_path, tools=PAY, mcp=McpOptions(trusted_clients=("ana",))) as server:
        first = await server.mcp("pay", {"q": "5"}, can=ELICITS)
        assert question(first) == "Pay 5"
        await server.mcp("pay", {"q": "6"}, can=ELICITS)
        again = await server.mcp("pay", {"q": "5"}, can=ELICITS, **yes(first))
        assert server.tools.started() == []
        assert question(again).splitlines()[0] == (
            "A newer request has replaced this one. Approve it only if you want both."
        )
        assert question(again).splitlines()[1] == "Pay 5"
        assert (await server.mcp("pay", {"q": "5"}, can=ELICITS, **yes(again)))["result"]["structuredContent"]["ok"]
        assert len(server.tools.started()) == 1


HANDSHAKE = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


async def shaken(server, key=USER) -> str:
    """A session of the handshake era."""
    told = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": told}
    made = await server.post("/mcp", body, key, headers=HANDSHAKE)
    assert made.status_code == 200, made.text
    return str(made.headers["mcp-session-id"])


def listening(server, session, key=USER):
    headers = {**bearer(key), **HANDSHAKE, "mcp-session-id": session}
    return server.client.stream("GET", "/mcp", headers=headers)


async def test_a_key_has_no_more_streams_and_sessions_over_mcp_than_it_may_have(tmp_path):
    limits = Options(port=0, max_streams=3)
    async with (
        over_socket(tmp_path, tools=PAY, mcp=McpOptions(), options=limits) as server,
        AsyncExitStack() as open_streams,
    ):
        sessions = [await shaken(server) for _ in range(3)]
        for session in sessions:
            stream = await open_streams.enter_async_context(listening(server, session))
            assert stream.status_code == 200
        async with listening(server, sessions[0]) as one_more:
            assert one_more.status_code == 429
        api = await server.open()
        assert (await server.get(f"/api/sessions/{api.id}/events", USER, headers=api.headers)).status_code == 429
        refused = await server.post("/mcp", {}, USER, headers=HANDSHAKE)
        assert refused.status_code == 429, "all of them are in use"
        assert (await server.mcp("pay", {"q": 1}))["result"]["isError"], "calls are answered all the same"
        await shaken(server, OTHER)  # nobody else is held up
        await open_streams.aclose()
        await until(lambda: not server.made.app.state.context.streams)
        assert (await server.post("/mcp", {}, USER, headers=HANDSHAKE)).status_code == 400
        async with listening(server, sessions[1]) as kept:  # what opens no session ends none
            assert kept.status_code == 200
        await until(lambda: not server.made.app.state.context.streams)
        newest = await shaken(server)
        async with listening(server, sessions[2]) as ended:  # the one that was unused for the longest time
            assert ended.status_code == 404
        async with listening(server, newest) as stream:
            assert stream.status_code == 200


@pytest.mark.parametrize("how", ["revoked", "old", "stopped"])
async def test_a_stream_over_mcp_ends_as_every_other_does(tmp_path, how):
    options = Options(port=0, stream_seconds=1 if how == "old" else 60)
    async with over_socket(tmp_path, tools=PAY, mcp=McpOptions(), options=options) as server:
        async with listening(server, await shaken(server)) as stream:
            assert stream.status_code == 200
            if how == "revoked":
                server.keys.replace(KEYS[:1])
            elif how == "stopped":
                await server.sessions.drain()
            assert [part async for part in stream.aiter_raw() if not part.startswith(b":")] == []
        await until(lambda: not server.made.app.state.context.streams)


async def test_a_subscription_over_mcp_takes_a_place_for_streams(tmp_path):
    options = Options(port=0, max_streams=1)
    async with over_socket(tmp_path, tools=PAY, mcp=McpOptions(), options=options) as server:
        body = {
            "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
            "params": {"notifications": {"toolsListChanged": True}, "_meta": mcp_meta()},
        }  # fmt: skip
        headers = {**bearer(USER), **mcp_headers("subscriptions/listen", "")}
        async with server.client.stream("POST", "/mcp", json=body, headers=headers) as stream:
            assert stream.status_code == 200
            assert (await server.client.post("/mcp", json=body, headers=headers)).status_code == 429
        await until(lambda: not server.made.app.state.context.streams)


NOISY = """
def execute(args, ctx):
    mark(args)
    number = 0
    while not (MARKS.parent / "go").exists():
        number += 1
        ctx.client.progress(number, None, "x" * 1000)
        ctx.client.log("info", f"{number} " + "y" * 1000)
    return {"ok": True, "data": number}
"""


async def followed(server, tool: str) -> list[Any]:
    """The messages of a call whose progress is wanted."""
    params = {"name": tool, "arguments": {}, "_meta": {**mcp_meta(), "progressToken": "p"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await server.post("/mcp", body, USER, headers=mcp_headers("tools/call", tool))
    frames = (line for line in answer.text.splitlines() if line.startswith("data: "))
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


async def test_a_handler_that_never_stops_talking_is_ended_at_its_deadline(tmp_path):
    tools = {"noisy": (reading(timeoutMs=300, capabilities=["client"]), NOISY)}
    async with over_socket(tmp_path, tools=tools, mcp=McpOptions()) as server:
        try:
            told = await followed(server, "noisy")
        finally:
            server.tools.go()
        assert told[-1]["result"]["structuredContent"]["error"]["type"] == "TIMEOUT"
        numbers = [one["params"]["progress"] for one in told if one.get("method") == "notifications/progress"]
        assert numbers == sorted(numbers), "in the order in which it was said"
        assert len(told) < 100, "the newest wins"


async def test_what_was_said_last_is_told_before_the_answer(tmp_path):
    counts = """
async def execute(args, ctx):
    for number in range(1, 501):
        ctx.client.progress(number, 500)
        if number % 2:
            await asyncio.sleep(0)
    return {"ok": True, "data": 1}
"""
    tools = {"count": (reading(capabilities=["client"]), counts)}
    async with over_socket(tmp_path, tools=tools, mcp=McpOptions()) as server:
        told = await followed(server, "count")
        assert told[-2]["params"]["progress"] == 500
        assert told[-1]["result"]["structuredContent"]["ok"]


async def test_a_call_that_has_told_its_progress_and_ended_is_not_kept(tmp_path):
    says = """
def execute(args, ctx):
    ctx.progress("half done")
    return {"ok": True, "data": 1}
"""
    async with over_socket(tmp_path, tools={"say": (reading(), says)}, mcp=McpOptions()) as server:
        (routes,) = (one.app._serve.__self__ for one in server.made.app.routes if getattr(one, "path", "") == "/mcp")
        for _ in range(3):
            progress, answer = await followed(server, "say")
            assert progress["params"]["message"] == "half done"
            assert answer["result"]["structuredContent"]["ok"]
        assert routes.mcp._endpoint.calls._live == {}


DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]
TAKES_ALL = {
    "take": (reading(parameters={"type": "object", "additionalProperties": False, "properties": {"any": {}}}), FOUND)
}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"any": 1, "any": 2}', "twice"),
        ('{"any": {"a": 1, "\\u0061": 2}}', "twice"),
        (json.dumps({"any": DEEP}), "nested deep"),
        (json.dumps({"any": [{"a": 1}] * 20_000}), "larger than"),
        ('{"any": 123456789012345678901234567890}', "2^53"),
    ],
    ids=["duplicate", "escaped-duplicate", "deep", "large", "big-integer"],
)
@pytest.mark.parametrize("state", ["", ', "requestState": "x"'], ids=["first", "retry"])
async def test_arguments_over_mcp_are_refused_with_their_own_message_and_audited(tmp_path, arguments, told, state):
    async with in_process(tmp_path, tools=TAKES_ALL, mcp=McpOptions(), audited=True) as server:
        body = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": %s, "name": "take", "_meta": %s%s}}'
        headers = {**bearer(USER), **mcp_headers("tools/call", "take"), "Content-Type": "application/json"}
        content = body % (arguments, json.dumps(mcp_meta()), state)
        answer = (await server.client.post("/mcp", content=content.encode(), headers=headers)).json()
        if state:
            assert answer["error"]["code"] == -32602
        else:
            error = answer["result"]["structuredContent"]["error"]
            assert (error["type"], told in error["message"]) == ("VALIDATION", True), error["message"]
        assert server.tools.started() == []
        lines = await asyncio.to_thread(
            lambda: (server.runtime.audit.flush(), [*read_events(tmp_path / "audit", event="refusal")])[1]
        )
        assert len(lines) == (0 if state else 1)


async def test_a_request_of_many_small_values_is_refused_before_it_is_read_and_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("handrail.server.api.mcp_access._DRAIN_SECONDS", 3_600.0)  # all of the body is here already
    async with in_process(tmp_path, tools=TAKES_ALL, mcp=McpOptions()) as server:
        answers = {"confirmation": [{"a": 1}] * 28_000}
        params = {"inputResponses": answers, "name": "take", "arguments": {}, "_meta": mcp_meta()}
        answer = await server.post(
            "/mcp", {"method": "tools/call", "params": params}, USER, headers=mcp_headers("tools/call", "take")
        )
        assert answer.status_code == 413


async def signed(token: str) -> Key:
    facts = {"roles": (), "tenant": "", "organisation": "", "expires": time.time() + 60}
    return key_of_token("https://issuer.example", TokenUser(user="ana", client=token.rpartition(".")[2], **facts))


async def test_a_held_call_of_a_token_is_answered_by_one_for_another_program_only(tmp_path):
    async with in_process(tmp_path, tools=PAY, mcp=McpOptions(), tokens=signed) as server:
        held = await server.mcp("pay", {"q": "5"}, "eyJ.for.desk")
        path = f"/api/confirmations/{held['result']['structuredContent']['error']['confirmation_request']['id']}"
        assert (await server.get(path, "eyJ.for.desk")).status_code == 403
        shown = await server.get(path, "eyJ.for.console")
        assert shown.status_code == 200
        yes = {"token": shown.json()["token"]}
        assert (await server.post(f"{path}/approve", yes, "eyJ.for.desk")).status_code == 403
        assert (await server.post(f"{path}/approve", yes, "eyJ.for.console")).json()["ok"]


@pytest.mark.parametrize("name", ["desk", "key:desk", "key:key:desk", "oauth:desk", "token", "stdio"])
async def test_no_key_answers_for_the_person_behind_it_whatever_it_is_called(tmp_path, name):
    keys = (Key(name=name, hash=hash_of(USER), user="ana"), Key(name="console", hash=hash_of(OTHER), user="ana"))
    async with in_process(tmp_path, tools=PAY, mcp=McpOptions(), keys=keys) as server:
        held = await server.mcp("pay", {"q": "5"})
        path = f"/api/confirmations/{held['result']['structuredContent']['error']['confirmation_request']['id']}"
        assert (await server.get(path, USER)).status_code == 403
        assert (await server.get(path, OTHER)).status_code == 200


async def test_a_session_is_counted_for_the_program_whose_token_opened_it(tmp_path):
    options = Options(port=0, max_streams=1)
    async with over_socket(tmp_path, tools=PAY, mcp=McpOptions(), options=options, tokens=signed) as server:
        first = await shaken(server, "eyJ.for.desk")
        other = await shaken(server, "eyJ.for.console")
        for session, program in ((first, "desk"), (other, "console")):
            async with listening(server, session, f"eyJ.for.{program}") as stream:
                assert stream.status_code == 200
            await until(lambda: not server.made.app.state.context.streams)
        await shaken(server, "eyJ.for.desk")
        async with listening(server, first, "eyJ.for.desk") as ended:
            assert ended.status_code == 404


async def test_a_session_is_counted_although_another_request_of_its_key_ended_first(tmp_path):
    async with over_socket(tmp_path, tools=PAY, mcp=McpOptions(), options=Options(port=0, max_streams=1)) as server:
        (routes,) = (one.app._serve.__self__ for one in server.made.app.routes if getattr(one, "path", "") == "/mcp")
        serve, opening, go = routes.mcp, asyncio.Event(), asyncio.Event()

        async def slow(scope, receive, send):
            opening.set()
            await go.wait()
            await serve(scope, receive, send)

        routes.mcp = slow
        first = asyncio.create_task(shaken(server))
        await opening.wait()
        routes.mcp = serve
        assert "result" in await server.mcp("pay", {"q": "5"})
        go.set()
        session = await first
        await shaken(server)
        async with listening(server, session) as ended:
            assert ended.status_code == 404


async def test_notes_are_sent_after_a_client_that_took_none_has_come_back():
    notes, sent = ClientNotes(asyncio.get_running_loop()), asyncio.Event()

    async def stuck() -> None:
        await asyncio.Event().wait()

    async def send() -> None:
        sent.set()

    notes.say(ClientNote(stuck, is_progress=True))
    leaving = asyncio.create_task(notes.flush())
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    notes.resume()
    notes.say(ClientNote(send, is_progress=True))
    async with asyncio.timeout(5):
        await sent.wait()
    assert len(asyncio.all_tasks()) <= 2


async def test_values_are_completed_for_tools_that_there_are_for_this_user_only(tmp_path):
    parameters = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"plan": {"type": "string", "enum": ["merge the two teams", "move house"]}},
    }
    tools = {"decide": (reading(parameters=parameters, availability={"condition": 'user.id == "bob"'}), FOUND)}
    async with in_process(tmp_path, tools=tools, mcp=McpOptions()) as server:
        asked = {"ref": {"type": "ref/prompt", "name": "decide"}, "argument": {"name": "plan", "value": "m"}}
        found = [
            (await server.ask_mcp("completion/complete", "decide", key, **asked))["result"]["completion"]["values"]
            for key in (USER, OTHER)
        ]
        assert found == [[], ["merge the two teams", "move house"]]


async def test_guides_are_resources_for_those_who_may_use_their_tools(tmp_path):
    tools = {"look": (reading(), FOUND), "decide": (reading(availability={"condition": 'user.id == "bob"'}), FOUND)}
    async with in_process(tmp_path, tools=tools, mcp=McpOptions()) as server:
        for key, mine in ((USER, {"look"}), (OTHER, {"look", "decide"})):
            listed = (await server.ask_mcp("resources/list", "", key))["result"]["resources"]
            assert {one["uri"] for one in listed} == {f"handrail://guide/{name}" for name in mine}
            for name in tools:
                uri = f"handrail://guide/{name}"
                answer = await server.ask_mcp("resources/read", uri, key, uri=uri)
                if name not in mine:
                    assert answer["error"]["code"] == -32602
                    continue
                (content,) = answer["result"]["contents"]
                assert (content["uri"], content["mimeType"]) == (uri, "text/markdown")
                assert content["text"] == server.runtime.registry.documentation(name)


async def test_answers_that_cannot_be_kept_are_refused_in_words(tmp_path):
    async with in_process(tmp_path, tools=PAY, mcp=McpOptions()) as server:
        answers = {"confirmation": {"action": "accept", "content": {"number": 2**70}}}
        params = {"inputResponses": answers, "name": "pay", "arguments": {"q": "5"}, "_meta": mcp_meta()}
        content = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {**bearer(USER), **mcp_headers("tools/call", "pay"), "Content-Type": "application/json"}
        answer = (await server.client.post("/mcp", content=content.encode(), headers=headers)).json()
        assert "64 bits" in answer["error"]["message"]


async def test_what_is_left_for_a_task_while_its_process_looks_is_not_erased():
    store = MemoryStore()
    await store.open()
    tasks, who = Tasks(store, McpOptions(), "one"), Principal(user="ana", client="desk")
    made = await tasks.create(who, CallKey("input", "session"), "pay", {}, "call")
    assert await tasks.send_to_owner(made, answers={"confirm": {"action": "accept"}}, cancel=True)
    assert not await tasks.publish_questions(made, {})
    stored = await tasks.read(made.id)
    assert stored is not None
    assert stored.body["cancel"]
    assert "confirm" in stored.body["answers"]
    assert await tasks.publish_questions(stored, {})
    await store.close()
