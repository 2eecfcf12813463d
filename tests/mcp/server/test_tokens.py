"""Access tokens are taken from one issuer, for this server, while they hold; and from nobody else."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from handrail.identity.tokens import TokenChecker, TokenNotBelieved
from handrail.mcp.server.options import McpOptions

RESOURCE = "https://tools.example.com/mcp"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


SHOWN = {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())), "kid": "k1", "alg": "RS256"}
CHANGED: dict[str, Any] = {}
"""Pages of the issuer that a test has replaced."""


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = f"http://127.0.0.1:{self.server.server_address[1]}"
            pages: dict[str, Any] = {
                "/.well-known/oauth-authorization-server": {"issuer": address, "jwks_uri": f"{address}/jwks"},
                "/jwks": {"keys": [SHOWN]},
                **CHANGED,
            }
            body = json.dumps(pages.get(self.path, {})).encode()
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def checker(issuer: str, **options: Any) -> TokenChecker:
    return TokenChecker(McpOptions(issuer=issuer, resource=RESOURCE, **options).token_rules())


def token(issuer: str, key: Any = KEY, algorithm: str = "RS256", **changes: Any) -> str:
    claims = {"iss": issuer, "aud": RESOURCE, "sub": "ana", "client_id": "desk", "scope": "tools other"}
    whole = {**claims, "exp": int(time.time()) + 60, **changes}
    return jwt.encode(
        {name: value for name, value in whole.items() if value is not None}, key, algorithm, {"kid": "k1"}
    )


async def test_a_token_of_the_issuer_speaks_for_its_user(issuer: str) -> None:
    check = checker(issuer, scopes=("tools",), roles_claim="groups", tenant_claim="tid")
    text = token(issuer, groups=["clerk"], tid="acme")
    assert check.names_issuer(text)
    assert not check.names_issuer(token("https://elsewhere.example.com"))
    who = await check.check(text)
    assert (who.user, who.client, who.roles, who.tenant) == ("ana", "desk", ("clerk",), "acme")


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "https://elsewhere.example.com/mcp"},
        {"iss": "https://elsewhere.example.com"},
        {"exp": 1},
        {"exp": None},
        {"sub": None},
        {"scope": "other"},
        {"key": OTHER},
        {"key": "a shared secret that is long enough to sign", "algorithm": "HS256"},
    ],
    ids=["audience", "issuer", "expired", "endless", "nobody", "scope", "signature", "shared secret"],
)
async def test_any_other_token_is_refused(issuer: str, changes: dict[str, Any]) -> None:
    with pytest.raises(TokenNotBelieved) as refused:
        await checker(issuer, scopes=("tools",)).check(token(issuer, **changes))
    assert refused.value.scope == ("tools" if "scope" in changes else "")


async def test_what_is_no_token_is_refused(issuer: str) -> None:
    check = checker(issuer)
    nested = base64.urlsafe_b64encode(b"[" * 5_000).decode()  # deeper than a reader that recurses goes
    for text in ("", "a.b.c", "x" * 20_000, f"{nested}.e30.x", f"e30.{nested}.x"):
        assert not check.names_issuer(text)
        with pytest.raises(TokenNotBelieved):
            await check.check(text)


PLACE = "/.well-known/oauth-authorization-server"


@pytest.mark.parametrize(
    "pages",
    [
        {"/jwks": {"keys": [{**SHOWN, "exp": 1}]}},
        {"/jwks": {"keys": [SHOWN], "padding": "x" * 2_000_000}},
        {"/jwks": [SHOWN]},
        {PLACE: {"issuer": "https://elsewhere.example.com"}},
        {PLACE: {"issuer": "ISSUER", "jwks_uri": "http://elsewhere.example.com/jwks"}},
        {PLACE: {"issuer": "ISSUER"}},
        {PLACE: []},
    ],
    ids=["key expired", "too long", "no object", "another issuer", "open address", "no address", "no description"],
)
async def test_keys_that_cannot_be_trusted_are_not_used(
    issuer: str, pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, page in json.loads(json.dumps(pages).replace("ISSUER", issuer)).items():
        monkeypatch.setitem(CHANGED, path, page)
    with pytest.raises(TokenNotBelieved, match=r"key|keys"):
        await checker(issuer).check(token(issuer))
