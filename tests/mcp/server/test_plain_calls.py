"""A call that is read and answered without the SDK is answered word for word as the SDK would have it."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.runtime.kit import PAID, confirmed, reading
from tests.server.kit import USER, ServerUnderTest, bearer, in_process, mcp_headers, mcp_meta

from handrail.mcp.server.options import McpOptions
from handrail.mcp.server.plain_calls import PlainCalls

SHOWS = """
def execute(args, ctx):
    return {"ok": True, "data": {"none": None, "parts": [1.5, None, {"a": None}], "text": args["q"]}}
"""
FAILS = """
def execute(args, ctx):
    raise ToolError("PERMANENT", "It is gone.")
"""
TELLS = """
def execute(args, ctx):
    ctx.progress(f"half of {args['q']}")
    if args["q"] == "broken":
        raise ToolError("PERMANENT", "It is gone.")
    return {"ok": True, "data": args["q"]}
"""
TOOLS = {
    "tell": (reading(), TELLS),
    "show": (reading(), SHOWS),
    "fail": (reading(), FAILS),
    "slow": (reading(latencyBudgetMs=6_000, timeoutMs=10_000), SHOWS),
    "chat": (reading(capabilities=["client"]), SHOWS),
    "pay": (confirmed(preview="Pay {q}"), PAID),
}
META = {**mcp_meta({"elicitation": {}}), "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"}}
Pairs = list[tuple[str, str]]


def asked(name: str = "show", args: Any = None, **more: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": {"q": "ü \u2028"} if args is None else args, "_meta": META, **more}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def headers(name: str = "show", key: str = USER, **changes: str) -> Pairs:
    plain = {**bearer(key), **mcp_headers("tools/call", name), "Content-Type": "application/json", **changes}
    return list(plain.items())


_VARIES = re.compile(r"(duration\W+)[\d.e-]+|(handrail://result/)[\w-]+|(requestState\W+)[\w.-]+|(has |size\W+)\d+")
_SLOW = re.compile(r',\s*\\*"slow\\*":\s*\{[^}]*\}')


def comparable(text: str) -> str:
    """Without what differs from one call to the next: times, what is made of them, and what is sealed anew."""
    return _VARIES.sub(r"\1\2\3\g<4>0", _SLOW.sub("", text))


class BothWays:
    """Asks twice: as it is served, and by the SDK alone."""

    def __init__(self, server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server, self._patch = server, monkeypatch
        self.events: list[Any] = []

    async def same(self, content: bytes, given: Pairs) -> bool:
        """Whether the two answers are the same, and the first was given without the SDK."""
        read, took = PlainCalls.read, []

        def noting(calls: PlainCalls, *request: Any) -> Any:
            took.append(read(calls, *request))
            return took[-1]

        answers = []
        for way in (noting, lambda *_: None):
            with self._patch.context() as patch:
                patch.setattr(PlainCalls, "read", way)
                answer = await self._server.client.post("/mcp", content=content, headers=given)
            kind = answer.headers.get("content-type", "")
            told = comparable(answer.text)
            if kind == "text/event-stream":
                self.events = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
                answers.append((answer.status_code, kind, self.events))
            else:
                answers.append((answer.status_code, kind, json.loads(told) if kind == "application/json" else told))
        assert answers[0] == answers[1], content
        return bool(took) and took[0] is not None


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("show", {"q": "ü \u2028"}),
        ("show", {"q": "x" * 5_000}),
        ("show", {"p": 1}),
        ("show", {"q": 2**53}),
        ("fail", {}),
        ("pay", {"q": "5"}),
    ],
    ids=["done", "linked", "refused", "large number", "failed", "held"],
)
@pytest.mark.parametrize("trusted", [(), ("ana",)], ids=["untrusted", "trusted"])
async def test_a_plain_call_is_answered_as_the_sdk_answers_it(tmp_path, monkeypatch, name, args, trusted):
    options = McpOptions(trusted_clients=trusted, max_result_bytes=4_096)
    async with in_process(tmp_path, tools=TOOLS, mcp=options) as server:
        both = BothWays(server, monkeypatch)
        for number in (7, "seven", 0):
            assert await both.same(json.dumps({**asked(name, args), "id": number}).encode(), headers(name))


@pytest.mark.parametrize("token", [1, 0, "t", "", "ü \u2028"])
@pytest.mark.parametrize("said", ["ü \u2028", "broken"])
async def test_progress_is_told_as_the_sdk_tells_it(tmp_path, monkeypatch, token, said):
    async with in_process(tmp_path, tools=TOOLS, mcp=McpOptions()) as server:
        both = BothWays(server, monkeypatch)
        body = asked("tell", {"q": said}, _meta={**META, "progressToken": token})
        assert await both.same(json.dumps(body).encode(), headers("tell"))
        told, answer = both.events
        assert (told["method"], told["params"]["progressToken"]) == ("notifications/progress", token)
        assert told["params"]["message"] == f"half of {said}"
        assert answer["result"]["structuredContent"]["ok"] is (said != "broken")
        quiet = asked("show", _meta={**META, "progressToken": token})
        assert await both.same(json.dumps(quiet).encode(), headers()), "who says nothing needs no stream"


def strange_bodies() -> Iterator[bytes]:
    for path in ((), ("params",), ("params", "_meta")):
        holder: Any = asked()
        for key in path:
            holder = holder[key]
        for member in (*holder, "strange", "_meta", "progressToken", "inputResponses", "requestState"):
            for value in (..., None, 1, 1.5, "x", True, [], {}, 2**70, "\ud800"):
                made = copy.deepcopy(asked())
                place: Any = made
                for key in path:
                    place = place[key]
                place.pop(member, None) if value is ... else place.update({member: value})
                yield json.dumps(made).encode()
    yield from (b"", b"[]", b"null", b"{", b"[" * 100_000, b"[%s]" % json.dumps(asked()).encode(), b"\xff")
    yield json.dumps(asked()).replace('"q": ', '"q": "a", "q": ').encode()
    yield json.dumps(asked()).encode("utf-16")


async def test_no_strange_body_is_answered_otherwise_than_the_sdk_answers_it(tmp_path, monkeypatch):
    async with in_process(tmp_path, tools=TOOLS, mcp=McpOptions()) as server:
        both = BothWays(server, monkeypatch)
        taken = [await both.same(body, headers()) for body in strange_bodies()]
        assert 0 < sum(taken) < len(taken) / 5


async def test_no_strange_header_is_answered_otherwise_than_the_sdk_answers_it(tmp_path, monkeypatch):
    async with in_process(tmp_path, tools=TOOLS, mcp=McpOptions()) as server:
        both, body = BothWays(server, monkeypatch), json.dumps(asked()).encode()
        plain = headers()
        for at, (name, value) in enumerate(plain):
            if name in ("Authorization", "Host"):
                continue
            for changed in ([], [(name, "x")], [(name, f"{value} ")], [(name, value)] * 2, [(name, value.upper())]):
                await both.same(body, plain[:at] + changed + plain[at + 1 :])
        assert not await both.same(body, headers(**{"Mcp-Name": "=?base64?c2hvdw==?="}))
        for name in ("slow", "chat", "nothing"):
            assert not await both.same(json.dumps(asked(name)).encode(), headers(name))
        for kinds in ("application/json;q=0.5, text/event-stream", "*/*", "text/*, application/*"):
            assert await both.same(body, headers(Accept=kinds))
        for kinds in ("application/json", "text/event-stream", "application/*"):
            assert not await both.same(body, headers(Accept=kinds))


async def test_what_a_client_says_of_itself_is_remembered_within_bounds(tmp_path):
    calls = PlainCalls(lambda _: None, None, {})  # type: ignore[arg-type]
    for number in range(1_500):
        told = {**META, "io.modelcontextprotocol/clientInfo": {"name": f"{number}", "version": "1"}}
        assert calls._client("2026-07-28", {"name": "show", "arguments": {}, "_meta": told}) is not None
    assert len(calls._clients) <= 1_000
    told = {**META, "io.modelcontextprotocol/clientInfo": {"name": "x" * 5_000, "version": "1"}}
    assert calls._client("2026-07-28", {"name": "show", "arguments": {}, "_meta": told}) is None
