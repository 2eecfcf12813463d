"""Access tokens are taken from one issuer, for this server, while they hold; and from nobody else."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from handrail.mcp.server.options import McpOptions, TokenRefused
from handrail.mcp.server.tokens import AccessTokens

RESOURCE = "https://tools.example.com/mcp"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    shown = {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())), "kid": "k1", "alg": "RS256"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = f"http://127.0.0.1:{self.server.server_address[1]}"
            pages: dict[str, Any] = {
                "/.well-known/oauth-authorization-server": {"issuer": address, "jwks_uri": f"{address}/jwks"},
                "/jwks": {"keys": [shown]},
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


def token(issuer: str, key: Any = KEY, algorithm: str = "RS256", **changes: Any) -> str:
    claims = {"iss": issuer, "aud": RESOURCE, "sub": "ana", "client_id": "desk", "scope": "tools other"}
    whole = {**claims, "exp": int(time.time()) + 60, **changes}
    return jwt.encode(
        {name: value for name, value in whole.items() if value is not None}, key, algorithm, {"kid": "k1"}
    )


async def test_a_token_of_the_issuer_speaks_for_its_user(issuer: str) -> None:
    tokens = AccessTokens(
        McpOptions(issuer=issuer, resource=RESOURCE, scopes=("tools",), trusted_clients=("oauth:desk",))
    )
    who = await tokens.principal(token(issuer))
    assert (who.user, who.client, who.is_trusted) == ("ana", "oauth:desk", True)


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
    tokens = AccessTokens(McpOptions(issuer=issuer, resource=RESOURCE, scopes=("tools",)))
    with pytest.raises(TokenRefused):
        await tokens.principal(token(issuer, **changes))


async def test_what_is_no_token_is_refused(issuer: str) -> None:
    tokens = AccessTokens(McpOptions(issuer=issuer, resource=RESOURCE))
    for text in ("", "a.b.c", "x" * 20_000):
        with pytest.raises(TokenRefused):
            await tokens.principal(text)
