"""Signing in to a server that says itself where: what is believed of it, and where a person's token never goes."""

import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from tests.identity.kit import BACK, KEYS

from handrail.contract.bearer_challenge import challenge_in, scopes_in
from handrail.contract.credentials import AuthorizationRefused, ConnectionNeeded
from handrail.contract.errors import ConfigError, ToolError
from handrail.identity.config import ConnectionConfig, connection_configs
from handrail.identity.connections import Connections
from handrail.identity.discovery import _Discovery
from handrail.identity.vault import Vault
from handrail.settings import load_settings
from handrail.stores import MemoryStore

PRM = "/.well-known/oauth-protected-resource"
ASM = "/.well-known/oauth-authorization-server"
CHALLENGE = 'Bearer scope="read", resource_metadata="{0}/where"'


class ProtectedServer:
    """A protected server and its authorization server in one, whose documents a test changes."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], str]] = []
        self.tokens: list[dict[str, str]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                owner.seen.append((self.command, self.path, dict(self.headers), body))
                status, content, headers = owner.answer(self.path, body)
                data = json.dumps(content).encode()
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.challenge = CHALLENGE.format(self.url)
        about = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url], "scopes_supported": ["all"]}
        self.documents: dict[str, Any] = {
            "/where": about,
            f"{PRM}/mcp": about,
            ASM: {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
                "authorization_response_iss_parameter_supported": True,
            },
            "/register": {"client_id": "made-here", "client_secret": "made-secret"},
        }

    def answer(self, path: str, body: str) -> tuple[int, Any, dict[str, str]]:
        if path == "/mcp":
            return 401, {}, {"www-authenticate": self.challenge} if self.challenge else {}
        if path == "/token":
            self.tokens.append(dict(parse_qsl(body)))
            token = {"access_token": f"token-{len(self.tokens)}", "refresh_token": "again", "token_type": "Bearer"}
            return 200, token, {}
        if path in self.documents:
            return 200, self.documents[path], {}
        return 404, {}, {}

    def asked(self) -> list[str]:
        return [path for _, path, _, _ in self.seen]

    @contextmanager
    def running(self) -> Iterator["ProtectedServer"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


@pytest.fixture
def server() -> Iterator[ProtectedServer]:
    with ProtectedServer().running() as made:
        yield made


def config(server: str, **more: Any) -> dict[str, ConnectionConfig]:
    return dict(connection_configs({"box": {"server": server, **more}}, {"SECRET": "s3cret"}))


@asynccontextmanager
async def opened(server: ProtectedServer, **more: Any) -> AsyncIterator[Connections]:
    store = MemoryStore()
    await store.open()
    configs = config(f"{server.url}/mcp", **more)
    yield Connections(configs, store.credentials, Vault(KEYS), now=lambda: 1_000_000.0)
    await store.close()


async def sign_in(ways: Connections, server: ProtectedServer) -> dict[str, list[str]]:
    """The person agrees; what they were asked."""
    begun = await ways.begin("", "ana", "box", redirect_uri=BACK, browser="b")
    answer = {"state": begun.state, "code": "c", "iss": server.url}
    await ways.complete(answer, redirect_uri=BACK, browser="b")
    return parse_qs(urlsplit(begun.url).query)


async def test_a_client_is_found_registered_and_kept_with_what_it_was_given(server: ProtectedServer) -> None:
    async with opened(server) as ways:
        asked = await sign_in(ways, server)
        assert asked["client_id"] == ["made-here"]
        assert asked["scope"] == ["read"]
        assert asked["resource"] == [f"{server.url}/mcp"]
        assert asked["code_challenge_method"] == ["S256"]
        assert (await ways.token("", "ana", "box")).value == "token-1"
        (sent,) = server.tokens
        assert (sent["client_id"], sent["client_secret"]) == ("made-here", "made-secret")
        assert sent["resource"] == f"{server.url}/mcp"
        # Another process, which has found nothing itself, refreshes with the same client.
        await ways.refused("", "ana", "box", "token-1")
        before = len(server.seen)
        assert (await ways.token("", "ana", "box")).value == "token-2"
        assert server.asked()[before:] == ["/token"]
        assert server.tokens[1]["client_secret"] == "made-secret"
        assert server.tokens[1]["grant_type"] == "refresh_token"


async def test_more_is_asked_of_the_person_once_and_beside_what_they_allowed(server: ProtectedServer) -> None:
    async with opened(server) as ways:
        await sign_in(ways, server)
        for scope in ("write", "share"):
            with pytest.raises(ConnectionNeeded, match="does not allow this"):
                await ways.refused("", "ana", "box", "token-1", (scope,))
        assert (await ways.token("", "ana", "box")).value == "token-1", "other tools do not need more"
        await ways.refused("", "ana", "box", "token-1")
        assert (await ways.token("", "ana", "box")).value == "token-2"
        assert (await sign_in(ways, server))["scope"] == ["read write share"], "also after a refresh"
        assert (await ways.token("", "ana", "box")).value == "token-3"
        with pytest.raises(ToolError, match="although they were asked"):
            await ways.refused("", "ana", "box", "token-3", ("write",))
        assert (await ways.token("", "ana", "box")).value == "token-3"


def described(**changed: Any) -> Any:
    return lambda server: server.documents[ASM].update(changed)


def says(**changed: Any) -> Any:
    def act(server: ProtectedServer) -> None:
        about = {**server.documents["/where"], **changed}
        server.documents |= {"/where": about, f"{PRM}/mcp": about}

    return act


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (says(resource="https://evil.example/mcp"), "another server"),
        (says(resource="http://127.0.0.1:1/mcp"), "another server"),
        (lambda server: says(resource=f"{server.url}/mc")(server), "another server"),
        (says(resource=None), "another server"),
        (says(authorization_servers=[]), "where people sign in"),
        (says(authorization_servers=[7]), "where people sign in"),
        (says(authorization_servers=["http://evil.example"]), "cannot be used"),
        (says(authorization_servers=["file:///etc/passwd"]), "cannot be used"),
        (described(issuer="https://evil.example"), "another issuer"),
        (described(code_challenge_methods_supported=["plain"]), "PKCE"),
        (described(code_challenge_methods_supported=None), "PKCE"),
        (described(token_endpoint="http://evil.example/token"), "token_endpoint"),
        (described(authorization_endpoint="javascript:alert(1)"), "authorization_endpoint"),
        (described(registration_endpoint=None), "registers no clients"),
        (described(token_endpoint_auth_methods_supported=["private_key_jwt"]), "not known here"),
        (lambda server: server.documents.update({"/register": {"client_id": "a b"}}), "did not register"),
        (lambda server: server.documents.update({"/register": {}}), "did not register"),
        (lambda server: [server.documents.pop(one) for one in ("/where", f"{PRM}/mcp")], "where people sign in"),
    ],
)
async def test_a_server_that_lies_about_itself_is_signed_in_to_by_nobody(
    server: ProtectedServer, lie: Any, why: str
) -> None:
    async with opened(server) as ways:
        lie(server)
        with pytest.raises(AuthorizationRefused, match=why):
            await ways.begin("", "ana", "box", redirect_uri=BACK, browser="b")
        assert server.tokens == []


async def test_a_description_at_another_host_is_not_fetched(server: ProtectedServer) -> None:
    with ProtectedServer().running() as other:
        server.challenge = CHALLENGE.format(other.url)
        async with opened(server) as ways:
            await sign_in(ways, server)
        assert other.seen == []
        assert f"{PRM}/mcp" in server.asked()


def test_a_server_elsewhere_leads_to_no_service_of_this_machine() -> None:
    far = _Discovery(config("https://mcp.example/mcp")["box"])
    far.check("https://sign-in.example")
    for address in (
        "http://127.0.0.1:8484/token",
        "https://localhost/token",
        "http://[::1]/",
        "http://sign-in.example",
    ):
        with pytest.raises(AuthorizationRefused):
            far.check(address)


@pytest.mark.parametrize(
    ("given", "supported", "expected"),
    [
        ({"client_id": "https://desk.example/client.json"}, True, "https://desk.example/client.json"),
        ({"client_id": "https://desk.example/client.json"}, False, "made-here"),
        ({"client_id": "own", "client_secret_env": "SECRET"}, True, "own"),
    ],
)
async def test_the_hosts_own_client_goes_before_one_that_is_registered(
    server: ProtectedServer, given: dict[str, Any], supported: bool, expected: str
) -> None:
    server.documents[ASM]["client_id_metadata_document_supported"] = supported
    async with opened(server, **given) as ways:
        assert (await sign_in(ways, server))["client_id"] == [expected]
    assert ("/register" in server.asked()) == (expected == "made-here")


async def test_only_the_issuer_that_the_host_names_gets_the_hosts_client(server: ProtectedServer) -> None:
    async with opened(server, client_id="own", issuer="https://sign-in.example") as ways:
        with pytest.raises(AuthorizationRefused, match="elsewhere"):
            await ways.begin("", "ana", "box", redirect_uri=BACK, browser="b")


async def test_a_person_of_a_moved_server_signs_in_anew_with_another_client(server: ProtectedServer) -> None:
    async with opened(server) as ways:
        await sign_in(ways, server)
        with ProtectedServer().running() as moved:
            moved.documents["/register"] = {"client_id": "made-there"}
            says(authorization_servers=[moved.url])(server)
            asked = await sign_in(ways, moved)
            assert asked["client_id"] == ["made-there"]
            (sent,) = moved.tokens
            assert "made-secret" not in json.dumps(moved.seen)
            assert sent["client_id"] == "made-there"


def test_challenges_are_read_as_they_are_written() -> None:
    header = 'Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x/y", realm="a \\"b\\", c=d"'
    assert challenge_in(header) == {
        "error": "insufficient_scope",
        "scope": "a b",
        "resource_metadata": "https://x/y",
        "realm": 'a "b", c=d',
    }
    assert scopes_in(header) == ("a", "b")
    for other in (
        "",
        "Basic x",
        "Bearer",
        'Bearer scope="a"',
        "Bearer error=insufficient_scope",
        "Bearer " + "x" * 9_000,
    ):
        assert scopes_in(other) == ()


@pytest.mark.parametrize("words", ["a" * 8_000, 'a="b ' * 1_600, "a" + " " * 8_000])
def test_a_challenge_that_is_long_to_read_by_trying_is_read_at_once(words: str) -> None:
    started = time.process_time()
    for _ in range(20):
        assert "scope" not in challenge_in(f"Bearer {words}")
    assert time.process_time() - started < 1  # it took six seconds


def test_a_token_for_one_server_is_sent_to_no_other(tmp_path: Path) -> None:
    tables = (
        '[connections.box]\nserver = "https://one.example/mcp"\n[mcp.servers.box]\nconnection = "box"\nurl = "{}"\n'
    )
    (tmp_path / "handrail.toml").write_text(tables.format("https://one.example/mcp"), encoding="utf-8")
    assert load_settings(tmp_path, {}).connections["box"].server
    (tmp_path / "handrail.toml").write_text(tables.format("https://two.example/mcp"), encoding="utf-8")
    with pytest.raises(ConfigError, match="the same address"):
        load_settings(tmp_path, {})


@pytest.mark.parametrize(
    "address",
    ["https://127.0.0.2/x", "https://localhost./x", "https://a.localhost/x", "https://[::ffff:127.0.0.1]/x",
     "https://10.1.2.3/x", "https://169.254.169.254/x", "https://[fd00::1]/x", "http://login.example.com/x",
     "https://127.1/x", "https://0x7f000001/x", "https://2130706433/x", "https://0300.0250.0.1/x",
     "https://127.0.0.1\\.example.com/x", "https://login.example.com/\x1b[2Jx", "https://login.example.com/\tx"],
)  # fmt: skip
def test_a_server_elsewhere_cannot_have_us_ask_a_machine_of_ours(address: str) -> None:
    found = _Discovery(ConnectionConfig(name="notes", server="https://mcp.example.com/mcp"))
    found.check("https://login.example.com/x")
    with pytest.raises(AuthorizationRefused):
        found.check(address)
