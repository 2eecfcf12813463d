"""Servers behind a URL: each user's own token, and none of it for anybody else."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from tests.identity.authorization_server import AuthorizationServer
from tests.identity.kit import connected, connections
from tests.mcp.gateway.conftest import LOOK, NOTE, build_project

from handrail import Runtime
from handrail.authoring.mcp.lock import LockFile, write_lock
from handrail.authoring.mcp.server_config import upstream_configs
from handrail.mcp.gateway.gateway import Gateway
from handrail.mcp.gateway.http_transport import BearerToken
from handrail.mcp.gateway.pinning import offer_of, review
from handrail.mcp.gateway.upstream import Upstream
from handrail.standard_runtime import SystemClock
from handrail.stores import MemoryStore


class HttpServer:
    """A server of the handshake era over HTTP, whose steps a test decides. It keeps every request that it was sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], dict[str, Any]]] = []
        self.accepts: Callable[[str], bool] = lambda header: True
        self.sessions: set[str] | None = None
        """The ids of the sessions that it knows; None: it has none."""
        self.call: Callable[[Any, Any], bool] | None = None
        """What it does with a call in place of an answer; whether it has answered."""
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                owner.seen.append(("GET", self.path, dict(self.headers), {}))
                self.reply(405, {})

            do_DELETE = do_GET  # noqa: N815

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                owner.seen.append(("POST", self.path, dict(self.headers), body))
                if not owner.accepts(self.headers.get("authorization", "")):
                    self.reply(401, {}, **{"www-authenticate": 'Bearer resource_metadata="https://evil.example/x"'})
                elif owner.forgot(self.headers.get("mcp-session-id"), body):
                    self.reply(
                        404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}
                    )
                elif body.get("method") == "tools/call" and owner.call is not None and owner.call(self, body):
                    pass
                else:
                    owner.answer(self, body)

            def reply(self, status: int, content: Any, **headers: str) -> None:
                data = json.dumps(content).encode()
                if owner.sessions is not None and "serverInfo" in json.dumps(content):
                    named = f"session-{len(owner.seen)}"
                    owner.sessions.add(named)
                    headers["mcp-session-id"] = named
                self.send_response(status)
                for name, value in {
                    "content-type": "application/json",
                    "content-length": str(len(data)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def forgot(self, session: str | None, body: dict[str, Any]) -> bool:
        return self.sessions is not None and body.get("method") != "initialize" and session not in self.sessions

    def answer(self, handler: Any, body: dict[str, Any]) -> None:
        method = body.get("method")
        if method == "initialize":
            result: Any = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "h", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": [NOTE, LOOK]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": handler.headers.get("authorization", "none")}]}
        elif "id" not in body:
            handler.reply(202, {})
            return
        else:
            handler.reply(200, {"jsonrpc": "2.0", "id": body["id"], "error": {"code": -32601, "message": "no"}})
            return
        handler.reply(200, {"jsonrpc": "2.0", "id": body["id"], "result": result})

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        made = [(headers.get("Authorization", ""), body) for _, _, headers, body in self.seen]
        return [(header, body) for header, body in made if body.get("method") == "tools/call"]

    @contextmanager
    def running(self) -> Iterator["HttpServer"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


@pytest.fixture
def http() -> Iterator[HttpServer]:
    with HttpServer().running() as server:
        yield server


@pytest.fixture
def other() -> Iterator[HttpServer]:
    with HttpServer().running() as server:
        yield server


class Box:
    def __init__(self, runtime: Runtime, gateway: Gateway) -> None:
        self.runtime, self.gateway = runtime, gateway

    async def call(self, name: str, user: str = "ana", **args: Any) -> dict[str, Any]:
        session = await self.runtime.open_session(user=user)
        try:
            made: dict[str, Any] = (await session.call(name, args)).to_dict()
            return made
        finally:
            await session.close()

    async def close(self) -> None:
        await self.runtime.close()
        await self.gateway.aclose()


async def opened(project: Path, http: HttpServer, *, store: Any = None, ways: Any = None, **more: Any) -> Box:
    tools = {"note": {"confirm": False}, "look": {"side_effects": "read_only"}}
    configs = upstream_configs({"box": {"url": http.url, "call_seconds": 2, "tools": tools, **more}})
    offer = await offer_of(
        configs["box"], project=project, environment={}, clock=SystemClock(), auth=BearerToken("listing")
    )
    write_lock(project, LockFile(servers={"box": review(configs["box"], None, offer).pinned}))
    gateway = Gateway(configs, environment={}, project=project, clock=SystemClock())
    registry = build_project(project, configs)
    made = Runtime(registry, store=store or "memory:", capabilities={"mcp_servers": gateway}, connections=ways)
    return Box(made, gateway)


async def test_each_user_is_sent_with_their_own_token_and_nobody_with_anothers(
    tmp_path: Path, http: HttpServer
) -> None:
    store = MemoryStore()
    with AuthorizationServer() as issuer:
        ways = connections(issuer, store)
        box = await opened(tmp_path, http, store=store, ways=ways, connection="example", call_seconds=30)
        await box.runtime.open()
        try:
            for user in ("ana", "ben", "cleo"):
                issuer.account = user
                await connected(ways, user)
            users = ["ana", "ben", "cleo"] * 10
            answers = await asyncio.gather(*(box.call("box_look", user, text=str(at)) for at, user in enumerate(users)))
            assert all(answer["ok"] for answer in answers)
            assert len(http.calls()) == 30
            for header, body in http.calls():
                user = users[int(body["params"]["arguments"]["text"])]
                assert f"-{user}-" in header
            refused = await box.call("box_look", "dora", text="x")
            assert refused["error"]["type"] == "AUTH"
            assert len(http.calls()) == 30, "without a token of her own nothing was sent for Dora"
        finally:
            await box.close()


async def test_of_too_many_users_the_one_who_was_idle_longest_makes_room(
    tmp_path: Path, http: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handrail.mcp.gateway.gateway._MAX_CONNECTIONS", 2)
    store = MemoryStore()
    with AuthorizationServer() as issuer:
        ways = connections(issuer, store)
        box = await opened(tmp_path, http, store=store, ways=ways, connection="example")
        await box.runtime.open()
        try:
            first = {}
            for user in ("ana", "ben", "ana", "cleo", "ben"):
                issuer.account = user
                await connected(ways, user)
                assert (await box.call("box_look", user, text=user))["ok"]
                first.setdefault(user, box.gateway.upstream("box", "", user))
            await asyncio.gather(*box.gateway._ending)
            assert {key[2] for key in box.gateway._open} == {"ben", "cleo"}
            assert box.gateway.upstream("box", "", "ben") is not first["ben"], "hers was ended for Cleo's"
            assert first["ben"].state == first["ana"].state == "stopped"
        finally:
            await box.close()


async def test_a_token_that_is_refused_is_renewed_and_the_call_made_once_more(tmp_path: Path, http: HttpServer) -> None:
    store = MemoryStore()
    with AuthorizationServer() as issuer:
        ways = connections(issuer, store)
        box = await opened(tmp_path, http, store=store, ways=ways, connection="example")
        await box.runtime.open()
        try:
            await connected(ways, "ana")
            assert (await box.call("box_note", text="1"))["ok"]
            old = http.calls()[0][0]
            http.accepts = lambda header: header != old
            assert (await box.call("box_note", text="2"))["ok"]
            carried = [body["params"]["arguments"]["text"] for header, body in http.calls() if header != old]
            assert carried == ["2"]
        finally:
            await box.close()


def redirect(target: str, status: int) -> Callable[[Any, Any], bool]:
    def act(handler: Any, body: Any) -> bool:
        handler.reply(status, {}, location=target)
        return True

    return act


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_host_is_not_followed(
    tmp_path: Path, http: HttpServer, other: HttpServer, status: int
) -> None:
    box = await opened(tmp_path, http, headers={})
    try:
        http.call = redirect(other.url, status)
        answer = await box.call("box_look", text="x")
        assert answer["ok"] is False
        assert other.seen == []
    finally:
        await box.close()


def huge(handler: Any, body: Any) -> bool:
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    try:
        for _ in range(20_000):
            handler.wfile.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
    except OSError:
        pass
    handler.close_connection = True
    return True


def endless_events(handler: Any, body: Any) -> bool:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    event = (
        b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"'
        + b"x" * 900
        + b'"}}\n\n'
    )
    try:
        while True:
            handler.wfile.write(event)
    except OSError:
        pass
    handler.close_connection = True
    return True


def cut(handler: Any, body: Any) -> bool:
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"jsonrpc"')
    handler.close_connection = True
    return True


def slow_headers(handler: Any, body: Any) -> bool:
    time.sleep(5)
    handler.close_connection = True
    return True


def not_json(handler: Any, body: Any) -> bool:
    handler.reply(200, {"hello": "there"})
    return True


def wrong_type(handler: Any, body: Any) -> bool:
    handler.reply(200, {}, **{"content-type": "text/html"})
    return True


def accepted(handler: Any, body: Any) -> bool:
    handler.reply(202, {})
    return True


def cookies(handler: Any, body: Any) -> bool:
    handler.reply(500, {}, **{"set-cookie": "a=b", "mcp-session-id": "stolen"})
    return True


@pytest.mark.parametrize(
    "behaviour",
    [huge, endless_events, cut, slow_headers, not_json, wrong_type, accepted, cookies],
    ids=lambda one: one.__name__,
)
async def test_an_answer_that_breaks_the_protocol_ends_its_own_call(
    tmp_path: Path, http: HttpServer, behaviour: Callable[[Any, Any], bool]
) -> None:
    box = await opened(tmp_path, http, max_message_bytes=200_000)
    try:
        http.call = behaviour
        answer = await box.call("box_note", text="x")
        assert answer["ok"] is False
        assert len(http.calls()) == 1, "a call is sent once"
        http.call = None
        for _ in range(50):
            answer = await box.call("box_look", text="afterwards")
            if answer["ok"]:
                break
            await asyncio.sleep(0.1)
        assert answer["ok"], answer
    finally:
        await box.close()


async def test_a_session_that_the_server_forgot_is_begun_anew_and_its_calls_are_sent_again(
    tmp_path: Path, http: HttpServer
) -> None:
    http.sessions = set()
    box = await opened(tmp_path, http)
    try:
        going_on = threading.Event()

        def hold(handler: Any, body: Any) -> bool:
            if body["params"]["arguments"]["text"] == "held":
                going_on.wait(10)
            return False

        http.call = hold
        assert (await box.call("box_note", text="1"))["ok"]
        held = asyncio.create_task(box.call("box_note", text="held"))
        while len(http.calls()) < 2:
            await asyncio.sleep(0.01)
        http.sessions.clear()
        answers = await asyncio.gather(*(box.call("box_note", text=str(at)) for at in range(2, 6)))
        assert all(answer["ok"] for answer in answers), answers
        going_on.set()
        assert (await held)["ok"], "a call of the old session is not ended with it"
        sent = [body["params"]["arguments"]["text"] for _, body in http.calls()]
        assert sent.count("held") == 1
        server = box.gateway.upstream("box")
        assert server.state == "ready"
        assert server.starts == 2
        http.forgot = lambda session, body: body.get("method") == "tools/call"  # type: ignore[method-assign]
        answer = await box.call("box_note", text="6")
        assert answer["error"]["type"] == "TRANSIENT"
        assert answer["error"]["partialSideEffects"] is False
    finally:
        await box.close()


def answers(status: int, content: Any = None, **headers: str) -> Callable[[Any, Any], bool]:
    """What is answered after the effect."""

    def act(handler: Any, body: Any) -> bool:
        handler.reply(status, {"jsonrpc": "2.0", "id": body["id"], **content} if content else {}, **headers)
        return True

    return act


def errs(code: int) -> Callable[[Any, Any], bool]:
    return answers(200, {"error": {"code": code, "message": "no"}})


AFTER_THE_EFFECT = [
    answers(303, location="/done"),
    answers(307, location="http://127.0.0.1:1/"),
    answers(202),
    answers(200, **{"content-type": "text/html"}),
    answers(404),
    answers(403),
    answers(504, **{"content-type": "text/html"}),
    answers(503, {"error": {"code": -32_091, "message": "it cannot be reached"}}),
    *map(errs, (-32_600, -32_601, -32_602, -32_603, -32_020, -32_091, -32_092, -32_093, -32_094)),
]


async def test_what_a_server_says_after_a_write_began_leaves_its_outcome_unknown(
    tmp_path: Path, http: HttpServer
) -> None:
    box = await opened(tmp_path, http)
    session = await box.runtime.open_session(user="ana")
    await session.begin_turn(input_id="1")
    try:
        for at, http.call in enumerate(AFTER_THE_EFFECT):
            first = (await session.call("box_note", {"text": str(at)})).to_dict()
            again = (await session.call("box_note", {"text": str(at)})).to_dict()
            assert first["error"]["partialSideEffects"] is True, (at, first)
            assert again["error"]["type"] == "CONFLICT", (at, again)
            assert len(http.calls()) == at + 1
    finally:
        await session.close()
        await box.close()


async def test_over_http_a_question_reaches_the_person_of_its_own_call(tmp_path: Path, http: HttpServer) -> None:
    both = threading.Barrier(2, timeout=10)

    def asks(handler: Any, body: Any) -> bool:
        name = body["params"]["arguments"]["text"]
        form = {"message": name, "requestedSchema": {"type": "object", "properties": {"x": {"type": "string"}}}}
        question = {"jsonrpc": "2.0", "id": f"q-{name}", "method": "elicitation/create", "params": form}
        result = {"jsonrpc": "2.0", "id": body["id"], "result": {"content": [{"type": "text", "text": name}]}}
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        both.wait()
        handler.wfile.write(f"data: {json.dumps(question)}\n\n".encode())
        handler.wfile.flush()
        while not any(body.get("id") == f"q-{name}" for _, _, _, body in http.seen):
            time.sleep(0.01)
        handler.wfile.write(f"data: {json.dumps(result)}\n\n".encode())
        handler.close_connection = True
        return True

    asked: list[tuple[str, str]] = []
    http.call = asks
    config = upstream_configs({"box": {"url": http.url}})["box"]
    server = Upstream(config, environment={}, project=tmp_path, clock=SystemClock(), ask=True)
    try:
        live = await server.connection()

        async def call(name: str) -> None:
            async def person(params: Any) -> types.ElicitResult:
                asked.append((name, params.message))
                return types.ElicitResult(action="decline")

            params = types.CallToolRequestParams(name="look", arguments={"text": name})
            await server.request(live, types.CallToolRequest(params=params), seconds=10, ask=person)

        await asyncio.gather(call("ana"), call("ben"))
    finally:
        await server.stop()
    assert sorted(asked) == [("ana", "ana"), ("ben", "ben")]
