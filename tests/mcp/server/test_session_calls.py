"""A call in a session of the handshake era that is answered without the session's queues is answered as the SDK answers it."""

import asyncio
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.mcp.server.test_plain_calls import TOOLS, comparable
from tests.runtime.kit import FOUND, reading, until
from tests.server.kit import KEYS, OTHER, USER, ServerUnderTest, bearer, in_process, over_socket

from handrail.contract.keys import Key
from handrail.mcp.server.options import McpOptions
from handrail.mcp.server.session_calls import SessionCalls
from handrail.server.key_ring import hash_of

VERSIONS = ["2025-11-25", "2025-06-18", "2024-11-05"]
HELLO = {"capabilities": {"elicitation": {}}, "clientInfo": {"name": "x", "version": "1"}}
NAPS = """
async def execute(args, ctx):
    mark(args)
    await asyncio.sleep(60)
"""


def message(method: str, params: Any = None, number: Any = 7) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return {name: value for name, value in body.items() if value is not None}


def asked(name: str = "show", args: Any = None, **more: Any) -> dict[str, Any]:
    return message("tools/call", {"name": name, "arguments": {"q": "ü \u2028"} if args is None else args, **more})


def events_in(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.split("\r\n") if line.startswith("data: ")]


class Session:
    """A client's session, whose requests are answered as it is served, and by the SDK alone."""

    def __init__(self, server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server, self._patch = server, monkeypatch
        self.headers: dict[str, str] = {}
        self.events: list[Any] = []

    async def open(self, version: str = VERSIONS[0], key: str = USER) -> None:
        accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        hello = message("initialize", {"protocolVersion": version, **HELLO})
        made = await self._server.client.post("/mcp", json=hello, headers={**bearer(key), **accept})
        session = {"Mcp-Session-Id": made.headers["mcp-session-id"], "MCP-Protocol-Version": version}
        self.headers = {**bearer(key), **accept, **session}
        await self.post(message("notifications/initialized", number=None))
        (routes,) = (one.app._serve.__self__ for one in self._server.made.app.routes if one.path == "/mcp")
        await until(lambda: made.headers["mcp-session-id"].encode() in routes.mcp._sessions._sessions)

    async def post(self, body: Any, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self._server.client.post("/mcp", content=content, headers={**self.headers, **headers})

    async def same(self, body: Any, **headers: str) -> bool:
        """Whether the two answers are the same, and the first was given without the SDK."""
        read, took = SessionCalls.read, []

        def noting(calls: SessionCalls, *request: Any) -> Any:
            took.append(read(calls, *request))
            return took[-1]

        answers = []
        for way in (noting, lambda *_: None):
            with self._patch.context() as patch:
                patch.setattr(SessionCalls, "read", way)
                answer = await self.post(body, **headers)
            kind = answer.headers.get("content-type", "").partition(";")[0]
            told: Any = comparable(answer.text)
            if kind == "text/event-stream":
                told = self.events = events_in(told)
            answers.append((answer.status_code, kind, answer.headers.get("mcp-session-id"), told))
        assert answers[0] == answers[1], body
        return bool(took) and took[0] is not None


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_plain_call_is_answered_as_the_sdk_answers_it(tmp_path, monkeypatch, version):
    options = McpOptions(max_result_bytes=4_096)
    async with over_socket(tmp_path, tools=TOOLS, mcp=options) as server:
        session = Session(server, monkeypatch)
        await session.open(version)
        for name, args in (("show", {"q": "x" * 5_000}), ("show", {"p": 1}), ("show", {"q": 2**53}), ("fail", {})):
            for number in (7, "seven", 0):
                assert await session.same({**asked(name, args), "id": number}), (name, args)
        for token in (1, 0, "t", "", "ü \u2028"):
            assert await session.same(asked("tell", {"q": "x"}, _meta={"progressToken": token}))
            assert [one.get("method") for one in session.events] == ["notifications/progress", None]
        assert await session.same(
            asked(_meta={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
        )
        turn = [events_in((await session.post(asked(_meta={"handrail/turn": "t1"}))).text) for _ in range(2)]
        envelopes = [json.loads(event["result"]["content"][0]["text"]) for (event,) in turn]
        assert [one["meta"]["budget"]["retrieval"] for one in envelopes] == [4, 3]
        for name in ("pay", "slow", "chat", "nothing"):
            assert not await session.same(asked(name, {"q": "5"})), "it may ask, or take long"


def strange_bodies() -> Iterator[bytes]:
    for path in ((), ("params",), ("params", "_meta")):
        holder: Any = asked(_meta={"tracestate": "a=b"})
        for key in path:
            holder = holder[key]
        for member in (*holder, "strange", "_meta", "progressToken", "traceparent", "requestState"):
            for value in (..., None, 1, 1.5, "x", True, [], {}, 2**70, "\ud800"):
                made = copy.deepcopy(asked(_meta={"tracestate": "a=b"}))
                place: Any = made
                for key in path:
                    place = place[key]
                place.pop(member, None) if value is ... else place.update({member: value})
                if "id" in made:  # without one it is answered before it is looked at
                    yield json.dumps(made).encode()
    yield from (b"", b"[]", b"null", b"{", b"[" * 100_000, b"[%s]" % json.dumps(asked()).encode(), b"\xff")
    yield json.dumps(asked()).replace('"q": ', '"q": "a", "q": ').encode()
    yield json.dumps(asked()).encode("utf-16")


async def test_no_strange_body_is_answered_otherwise_than_the_sdk_answers_it(tmp_path, monkeypatch):
    async with in_process(tmp_path, tools=TOOLS, mcp=McpOptions()) as server:
        session = Session(server, monkeypatch)
        await session.open()
        taken = [await session.same(body) for body in strange_bodies()]
        assert 0 < sum(taken) < len(taken) / 5


async def test_no_strange_header_is_answered_otherwise_than_the_sdk_answers_it(tmp_path, monkeypatch):
    keys = (
        *KEYS[:1],
        Key(name="ana", hash=hash_of(USER), user="ana"),
        Key(name="ana", hash=hash_of(OTHER), user="bob"),
    )
    async with in_process(tmp_path, tools=TOOLS, mcp=McpOptions(), keys=keys) as server:
        session = Session(server, monkeypatch)
        await session.open()
        assert await session.same(asked())
        for name in ("Accept", "Content-Type", "Mcp-Session-Id", "MCP-Protocol-Version"):
            for value in ("", "x", f"{session.headers[name]} ", session.headers[name].upper(), "application/json"):
                await session.same(asked(), **{name: value})
        for version in VERSIONS[1:]:
            assert not await session.same(asked(), **{"MCP-Protocol-Version": version})
        assert not await session.same(asked(), **bearer(OTHER)), "of another user it is not found"
        await server.client.delete("/mcp", headers=session.headers)
        assert not await session.same(asked()), "it has ended"


async def test_a_cancelled_call_of_a_session_stops_and_one_whose_client_has_gone_does_not(tmp_path, monkeypatch):
    tools = {"nap": (reading(), NAPS), "look": (reading(), FOUND)}
    async with over_socket(tmp_path, tools=tools, mcp=McpOptions()) as server:
        session, other = Session(server, monkeypatch), Session(server, monkeypatch)
        await session.open()
        await other.open()
        told = []
        for way in (SessionCalls.read, lambda *_: None):
            monkeypatch.setattr(SessionCalls, "read", way)
            started = len(server.tools.started())
            waiting = asyncio.create_task(session.post({**asked("nap", {}), "id": 5}))
            await until(lambda started=started: len(server.tools.started()) > started)
            for stranger, number in ((other, 5), (session, "5x"), (session, True), (session, None)):
                answer = await stranger.post(message("notifications/cancelled", {"requestId": number}, None))
                assert answer.status_code == 202
            assert not waiting.done()
            await session.post(message("notifications/cancelled", {"requestId": 5}, None))
            told.append((await waiting).text)
        assert told[0] == told[1]
        assert "-32800" in told[0]
        assert (await session.post(asked("look", {"q": "x"}))).status_code == 200
