"""Attacks on the server: no or wrong key, foreign ids, wrong origin and host, replayed approvals, oversize and slow requests,
path tricks, event-stream injection, many connections."""

import asyncio
import contextlib
import json

import pytest
from tests.runtime.kit import until
from tests.server.kit import KEYS, OPERATOR, OTHER, USER, bearer, in_process, over_socket, text_of

from handrail.server.api.application import ROUTES
from handrail.server.api.guard import OPEN_PATHS
from handrail.server.options import Options

FOREIGN = "ses_000000000000000000000000"


def filled(path: str) -> str:
    for name in ("session", "confirmation", "tool", "call", "key", "user:path", "image", "event", "name:path"):
        path = path.replace("{" + name + "}", "x")
    return path


@pytest.mark.parametrize(("method", "path"), [(method, filled(path)) for method, path, _ in ROUTES])
async def test_every_path_that_is_not_open_needs_a_key(tmp_path, method, path):
    async with in_process(tmp_path) as server:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {USER}"},
            {"Authorization": "Bearer "},
            {"Authorization": f"Bearer {USER}x"},
            {"Authorization": USER},
        ):
            answer = await server.client.request(method, path, headers=headers)
            if OPEN_PATHS.fullmatch(path):
                assert answer.status_code != 401
            else:
                assert answer.status_code == 401
                assert answer.json()["error"]["type"] == "UNAUTHENTICATED"
                assert "bearer" in answer.headers["www-authenticate"].lower()


async def test_a_key_that_is_not_known_is_told_so_and_a_missing_one_is_asked_for(tmp_path):
    async with in_process(tmp_path) as server:
        wrong = await server.client.get("/api/tools", headers={"Authorization": "Bearer wrong"})
        assert "does not know that key" in wrong.json()["error"]["message"]
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Basic {USER}"}):
            missing = await server.client.get("/api/tools", headers=headers)
            assert "A key is needed" in missing.json()["error"]["message"]


async def test_a_key_in_the_query_is_no_key(tmp_path):
    async with in_process(tmp_path) as server:
        assert (await server.client.get(f"/api/tools?key={USER}&api_key={USER}")).status_code == 401


async def test_guessing_keys_is_slowed_down_and_a_right_key_still_works(tmp_path):
    async with in_process(tmp_path) as server:
        answers = [(await server.get("/api/tools", f"hr_guess_{number}")).status_code for number in range(70)]
        assert answers[0] == 401
        assert answers[-1] == 429
        assert (await server.get("/api/tools")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/audit"),
        ("GET", "/api/audit/stream"),
        ("GET", "/api/audit/why/x"),
        ("GET", "/api/ledger"),
        ("POST", "/api/ledger/x/settle"),
        ("POST", "/api/tools/look/switch"),
        ("GET", "/api/policy"),
        ("GET", "/api/mcp/servers"),
        ("DELETE", "/api/users/ana"),
        ("GET", "/metrics"),
    ],
)
async def test_the_operators_part_is_closed_to_users(tmp_path, method, path):
    async with in_process(tmp_path) as server:
        answer = await server.client.request(method, path, headers=bearer(USER), json={} if method == "POST" else None)
        assert answer.status_code == 403


async def test_foreign_sessions_are_not_found_whatever_is_asked_of_them(tmp_path):
    async with in_process(tmp_path) as server:
        ana, bob = await server.open(USER), await server.open(OTHER)
        held = await ana.say('call pay {"q": "10"}')
        confirmation = next(event.data for event in held if event.type == "confirmation")
        foreign = (
            {**bearer(OTHER), "X-Session-Token": bob.token},
            {**bearer(OTHER), "X-Session-Token": ana.token},
            {**bearer(OTHER)},
            {**bearer(USER), "X-Session-Token": bob.token},
            {**bearer(USER), "X-Session-Token": ""},
            {**bearer(USER), "X-Session-Token": ana.token[:-1]},
        )
        for headers in foreign:
            for method, path, body in (
                ("GET", f"/api/sessions/{ana.id}", None),
                ("DELETE", f"/api/sessions/{ana.id}", None),
                ("POST", f"/api/sessions/{ana.id}/messages", {"id": "m9", "text": "hi"}),
                ("GET", f"/api/sessions/{ana.id}/events", None),
                ("POST", f"/api/sessions/{ana.id}/cancel", None),
                ("POST", "/api/tools/look/try", {"args": {}, "sessionId": ana.id}),
                ("POST", f"/api/confirmations/{confirmation['id']}/approve", {"token": confirmation["token"]}),
                ("POST", f"/api/confirmations/{confirmation['id']}/decline", {"token": confirmation["token"]}),
            ):
                answer = await server.client.request(method, path, headers=headers, json=body)
                missing = await server.client.request(
                    method, path.replace(ana.id, FOREIGN).replace(confirmation["id"], "conf_0"), headers=headers,
                    json=json.loads(json.dumps(body).replace(ana.id, FOREIGN)),
                )  # fmt: skip
                assert answer.status_code == 404, (method, path)
                assert answer.json() == missing.json(), "who is asked for must not be told apart from who is not there"
        assert server.tools.started() == []
        assert (await ana.show())["confirmations"][0]["id"] == confirmation["id"]


async def test_a_session_resumed_from_the_store_is_as_closed_to_others(tmp_path):
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        ana = await server.open(USER)
        await server.sessions._let_go(server.sessions._hosted[ana.id])
        for headers in ({**bearer(OTHER), "X-Session-Token": ana.token}, {**bearer(USER), "X-Session-Token": "x"}):
            assert (await server.client.get(f"/api/sessions/{ana.id}", headers=headers)).status_code == 404
        assert (await ana.show())["active"] is True


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://localhost:1",
        "x",
        "http://[",
        "http://[::1",
        "http://localhost/x",
        "http://a@localhost",
        "http://",
    ],
    ids=repr,
)
async def test_pages_of_other_origins_are_refused(tmp_path, origin):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        confirmation = (await ana.show())["confirmations"][0]
        answer = await ana.decide(confirmation, Origin=origin)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
        assert server.tools.started() == []
        simple = await server.client.post("/api/sessions", headers={**bearer(USER), "Origin": origin}, content="{}")
        assert simple.status_code == 403
        assert len(server.sessions) == 1


async def test_the_own_origin_and_a_listed_one_may(tmp_path):
    async with in_process(tmp_path, options=Options(origins=("https://desk.example.com",))) as server:
        own = await server.get("/api/tools", headers={"Origin": "http://localhost"})
        assert own.status_code == 200
        listed = await server.get("/api/tools", headers={"Origin": "https://desk.example.com"})
        assert listed.headers["access-control-allow-origin"] == "https://desk.example.com"
        asked = await server.client.options("/api/tools", headers={"Origin": "https://desk.example.com"})
        assert asked.status_code == 204
        assert "authorization" in asked.headers["access-control-allow-headers"]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8484",
        "",
        "[::2]",
        "[::1]evil.example",
        "[::1",
        "localhost:x",
        "x@localhost",
    ],
)
async def test_other_hosts_names_are_refused(tmp_path, host):
    async with in_process(tmp_path) as server:
        assert (await server.get("/api/tools", headers={"Host": host})).status_code == 421
        assert (await server.client.get("/", headers={"Host": host})).status_code == 421
        assert (await server.client.get("/healthz", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1:8484", "[::1]:8484", "LOCALHOST"])
async def test_the_loopbacks_names_are_taken(tmp_path, host):
    async with in_process(tmp_path) as server:
        assert (await server.get("/api/tools", headers={"Host": host})).status_code == 200


async def test_an_approval_counts_once_however_often_it_comes(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        confirmation = (await ana.show())["confirmations"][0]
        answers = await asyncio.gather(*(ana.decide(confirmation) for _ in range(5)))
        outcomes = {json.dumps(answer.json()["data"], sort_keys=True) for answer in answers}
        assert {answer.status_code for answer in answers} == {200}
        assert len(outcomes) == 1
        assert server.tools.started() == [{"q": "10"}]
        declined = await ana.decide(confirmation, "decline")
        assert declined.json()["ok"] is False
        assert server.tools.started() == [{"q": "10"}]
        assert (await ana.show())["confirmations"] == []


async def test_a_forged_or_foreign_token_approves_nothing(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "10"}')
        await ana.say('call pay {"q": "20"}')
        one, two = (await ana.show())["confirmations"]
        for wrong in ("x", ana.token, two["token"], USER, one["token"][:-1]):
            assert (await ana.decide({**one, "token": wrong})).status_code == 404
        for body in ({}, {"token": ""}, {"token": None}, {"token": 1}, {"token": "x", "more": 1}, []):
            path = f"/api/confirmations/{one['id']}/approve"
            assert (await server.client.post(path, json=body, headers=ana.headers)).status_code == 400
        assert server.tools.started() == []


async def test_the_model_never_sees_a_token(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        events = await ana.say('call pay {"q": "10"}')
        token = next(event.data["token"] for event in events if event.type == "confirmation")
        fresh = (await ana.show())["confirmations"][0]["token"]
        await ana.say("what now?")
        seen = repr([(request.system, request.messages) for request in server.model.asked])
        kept = json.dumps((await server.sessions.conversations.load(ana.id)).document)
        assert token not in seen + kept
        assert fresh not in seen + kept
        assert ana.token not in seen + kept


async def test_oversize_bodies_are_refused_before_they_are_read(tmp_path):
    async with in_process(tmp_path, options=Options(max_body_bytes=10_000)) as server:
        big = b'{"mode": "' + b"x" * 20_000 + b'"}'
        answer = await server.client.post("/api/sessions", content=big, headers=bearer(USER))
        assert answer.status_code == 413

        async def chunks():
            for _ in range(100):
                yield b" " * 1_000

        streamed = await server.client.post("/api/sessions", content=chunks(), headers=bearer(USER))
        assert streamed.status_code == 413
        lied = await server.client.post(
            "/api/sessions", content=b"{}", headers={**bearer(USER), "Content-Length": "999999999999999999999"}
        )
        assert lied.status_code == 413
        assert len(server.sessions) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"a": NaN}',
        b'{"mode": "text", "mode": "voice"}',
        b"[" * 5_000,
        b"\xff\xfe",
        b'{"user": "\\ud800"}',
        b"null",
    ],
)
async def test_malformed_bodies_are_told_and_change_nothing(tmp_path, content):
    async with in_process(tmp_path) as server:
        answer = await server.client.post("/api/sessions", content=content, headers=bearer(USER))
        assert answer.status_code == 400
        assert len(server.sessions) == 0


async def test_other_content_types_are_refused(tmp_path):
    async with in_process(tmp_path) as server:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            answer = await server.client.post(
                "/api/sessions", content="{}", headers={**bearer(USER), "Content-Type": kind}
            )
            assert answer.status_code == 415


@pytest.mark.parametrize(
    "path",
    [
        "/console/../../pyproject.toml",
        "/console/..%2f..%2fsettings.py",
        "/console/%2e%2e/%2e%2e/settings.py",
        "/console//etc/passwd",
        "/console/index.html%00.js",
        "/console/....//....//etc/passwd",
        "/console/..\\..\\settings.py",
        "/console/__init__.py",
        "/images/..%2f..%2fhandrail.db.png",
        "/images/%2e%2e.png",
        "/images/img_0.png",
        "//api/tools",
        "/api/tools/",
        "/API/tools",
        "/api/../api/tools",
    ],
)
async def test_path_tricks_reach_nothing(tmp_path, path):
    async with over_socket(tmp_path) as server:
        answer = await raw(
            server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR}\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 404 "), answer[:200]
        assert b"[project]" not in answer


async def raw(server, request: str, *, seconds: float = 30) -> bytes:
    """What the server answers to these very bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    try:
        writer.write(request.encode("latin-1"))
        await writer.drain()
        async with asyncio.timeout(seconds):
            return await reader.read(4_000)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_huge_heads_and_broken_requests_are_refused(tmp_path):
    async with over_socket(tmp_path) as server:
        big = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + "y" * 40_000 + "\r\n\r\n"
        assert (await raw(server, big)).startswith(b"HTTP/1.1 4")
        assert (await raw(server, "BLAH\r\n\r\n")).startswith(b"HTTP/1.1 400")
        smuggled = (
            "POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"
            f"Authorization: Bearer {USER}\r\n\r\n0\r\n\r\nGET /api/tools HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        answer = await raw(server, smuggled)
        assert answer.count(b"HTTP/1.1 2") <= 1
        assert (await server.client.get("/healthz")).status_code == 200


async def test_tool_output_cannot_break_out_of_its_event(tmp_path):
    async with over_socket(tmp_path) as server:
        ana = await server.open()
        async with ana.listening() as stream:
            await ana.post("call hostile {}")
            events = await stream.until("done")
        types = [event.type for event in events]
        assert types.count("done") == 1
        assert "confirmation" not in types
        assert all(set(event.fields) == {"id", "event", "data"} for event in events)
        message = next(event for event in events if event.type == "message")
        assert message.data["url"] == "data: x\n\nevent: done\ndata: {}"
        progress = next(event for event in events if event.type == "progress")
        assert "event: confirmation" in progress.data["text"]
        finished = next(event for event in events if event.type == "tool_finished")
        assert "</script>" in finished.data["citations"][0]["title"]


async def test_text_of_users_and_models_cannot_break_out_of_its_event(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        events = await ana.say("a\n\nevent: done\ndata: {}\n\nid: 999\r\rb\u2028c\u0085d")
        assert [event.type for event in events].count("done") == 1
        assert "event: done" in text_of(events)


async def test_answers_carry_the_headers_that_browsers_need(tmp_path):
    async with in_process(tmp_path) as server:
        page = await server.client.get("/")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
        for answer in (
            page,
            await server.get("/api/tools"),
            await server.get("/api/tools", None),
            await server.get("/nothing"),
        ):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert "server" not in answer.headers
        assert (await server.get("/api/tools")).headers["cache-control"] == "no-store"


async def test_a_key_that_asks_too_often_waits(tmp_path):
    async with in_process(tmp_path, options=Options(requests_per_minute=5)) as server:
        answers = [await server.get("/api/tools", USER) for _ in range(8)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await server.get("/api/tools", OTHER)).status_code == 200


async def test_streams_of_one_key_are_counted(tmp_path):
    async with over_socket(tmp_path, options=Options(max_streams=2)) as server:
        ana = await server.open()
        async with ana.listening(), ana.listening():
            third = await server.client.get(f"/api/sessions/{ana.id}/events", headers=ana.headers)
            assert third.status_code == 429
        await until(lambda: not server.made.app.state.context.streams)
        async with ana.listening():
            assert server.made.app.state.context.streams[KEYS[1].hash] == 1


async def test_who_is_slow_to_ask_is_cut_off(tmp_path):
    async with over_socket(tmp_path, options=Options(slow_seconds=1)) as server:
        port = int(server.url.rpartition(":")[2])
        silent, quiet = await asyncio.open_connection("127.0.0.1", port)
        half, writer = await asyncio.open_connection("127.0.0.1", port)
        body, sender = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: local")
        sender.write(
            b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
            b"Authorization: Bearer " + USER.encode() + b"\r\n\r\n{"
        )
        async with asyncio.timeout(60):
            for reader in (silent, half):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            assert (await body.read()).startswith(b"HTTP/1.1 408")
        for one in (quiet, writer, sender):
            one.close()
        assert (await server.client.get("/healthz")).status_code == 200


async def test_who_does_not_take_what_is_sent_is_cut_off(tmp_path):
    async with over_socket(tmp_path, options=Options(slow_seconds=1)) as server:
        ana = await server.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), limit=1_024)
        writer.write(
            f"GET /api/sessions/{ana.id}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {USER}\r\n"
            f"X-Session-Token: {ana.token}\r\n\r\n".encode()
        )
        await reader.readline()
        log = server.sessions._hosted[ana.id].log
        await until(lambda: log.readers)
        reader._transport.pause_reading()
        async with asyncio.timeout(60):
            while log.readers:
                log.add("text", {"text": "x" * 60_000}, 1)
                await asyncio.sleep(0.01)
        writer.close()
        assert (await ana.show())["active"] is True


async def test_thousands_of_connections_do_not_keep_others_out_for_good(tmp_path):
    async with over_socket(tmp_path, options=Options(max_connections=300, slow_seconds=2)) as server:
        port = int(server.url.rpartition(":")[2])
        held = []
        for _ in range(10):
            tried = await asyncio.gather(
                *(asyncio.open_connection("127.0.0.1", port) for _ in range(150)), return_exceptions=True
            )
            held += [one for one in tried if not isinstance(one, BaseException)]
        assert len(server.uvicorn.server_state.connections) <= 300
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(Exception):
                    if (await server.client.get("/healthz")).status_code == 200:
                        break
                await asyncio.sleep(0.1)
        for _, writer in held:
            writer.close()
