"""A real authorization server on loopback: authlib's grants, consent page, refresh with rotation, revocation, device flow, and a
resource that only a valid token opens. `mishaps` makes a path answer as a broken service does."""

from __future__ import annotations

import os
import threading
import time
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import dumps
from secrets import token_urlsafe
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

os.environ.setdefault("AUTHLIB_INSECURE_TRANSPORT", "1")

from authlib.oauth2 import AuthorizationServer as Base
from authlib.oauth2.rfc6749 import ClientMixin, OAuth2Request, TokenMixin, grants
from authlib.oauth2.rfc6749.errors import OAuth2Error
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8628 import DeviceAuthorizationEndpoint, DeviceCodeGrant, DeviceCredentialDict

CLIENT, SECRET, SCOPES = "handrail-test", "the secret of the client", ("calendar", "calendar.write")


class Client(ClientMixin):
    redirects: set[str]

    def __init__(self) -> None:
        self.redirects = set()

    def get_client_id(self) -> str:
        return CLIENT

    def get_default_redirect_uri(self) -> str:
        return next(iter(self.redirects))

    def get_allowed_scope(self, scope: str) -> str:
        return " ".join(one for one in (scope or "").split() if one in SCOPES)

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        # A loopback address may have any port (RFC 8252).
        parts = urlsplit(redirect_uri)
        return redirect_uri in self.redirects or (parts.hostname == "127.0.0.1" and parts.path == "/callback")

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in ("client_secret_basic", "client_secret_post")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return True


class Token(TokenMixin):
    def __init__(self, found: dict[str, Any], user: Any) -> None:
        self.access = found["access_token"]
        self.refresh = found.get("refresh_token")
        self.scope = found.get("scope", "")
        self.expires_at = time.time() + found["expires_in"]
        self.user = user
        self.revoked = False

    def check_client(self, client: Any) -> bool:
        return True

    def get_scope(self) -> str:
        return self.scope

    def get_expires_in(self) -> int:
        return int(self.expires_at - time.time())

    def is_expired(self) -> bool:
        return time.time() >= self.expires_at

    def is_revoked(self) -> bool:
        return self.revoked

    def get_user(self) -> Any:
        return self.user


class AuthorizationServer(Base):
    """`with AuthorizationServer() as server`: its `issuer` is its address. `account` is who sits before its consent page."""

    def __init__(self) -> None:
        super().__init__(scopes_supported=SCOPES)
        self.client = Client()
        self.codes: dict[str, Any] = {}
        self.tokens: list[Token] = []
        self.devices: dict[str, DeviceCredentialDict] = {}
        self.device_answers: dict[str, tuple[Any, bool]] = {}
        self.mishaps: dict[str, str] = {}
        self.requests: list[tuple[str, str]] = []
        self.forms: list[tuple[str, dict[str, str]]] = []
        """What was sent to each path."""
        self.life = 3600
        self.account = "ana@calendar.example"
        self.granted: str | None = None
        """What the person ticks; None: everything that was asked for."""
        self.ends_accounts = False
        """Revoking one token ends every token of its account, as at Google."""
        self.answered, self.released = threading.Event(), threading.Event()
        self.dripped = 0
        """How many answers came to their end byte by byte."""
        self.prefix = "canary"
        self.lock = threading.RLock()
        self.register_token_generator("default", self._generator())
        self._register()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.issuer = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> AuthorizationServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)

    def count(self, path: str) -> int:
        return sum(one == path for _, one in self.requests)

    # ------------------------------------------------------------------------------------- what authlib asks for
    def query_client(self, client_id: str) -> Client | None:
        return self.client if client_id == CLIENT else None

    def save_token(self, token: dict[str, Any], request: OAuth2Request) -> None:
        with self.lock:
            if self.granted is not None:
                token["scope"] = self.granted
            self.tokens.append(Token(token, request.user))

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass

    def create_oauth2_request(self, request: Any) -> OAuth2Request:
        if isinstance(request, OAuth2Request):
            return request
        made = _Request(request.method, request.uri, headers=request.headers)
        made.form_data = dict(request.form)
        made.payload = BasicOAuth2Payload({**dict(request.query), **dict(request.form)})
        return made

    def handle_response(self, status: int, body: Any, headers: Any) -> SimpleNamespace:
        location = dict(headers).get("Location", "")
        return SimpleNamespace(status=status, body=body, headers=dict(headers), location=location)

    def token(self, access: str) -> Token | None:
        return next((one for one in self.tokens if access in (one.access, one.refresh)), None)

    def _generator(self) -> BearerTokenGenerator:
        def word(kind: str) -> Any:
            return lambda client, grant_type, user, scope: f"{self.prefix}-{kind}-{user}-{token_urlsafe(24)}"

        return BearerTokenGenerator(word("access"), word("refresh"), lambda client, grant_type: self.life)

    def _register(self) -> None:
        host = self

        class Code(grants.AuthorizationCodeGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

            def save_authorization_code(self, code: str, request: Any) -> None:
                data = request.payload.data
                host.codes[code] = SimpleNamespace(
                    code=code,
                    redirect_uri=data.get("redirect_uri"),
                    scope=host.granted if host.granted is not None else data.get("scope", ""),
                    user=request.user,
                    code_challenge=data.get("code_challenge"),
                    code_challenge_method=data.get("code_challenge_method"),
                    get_redirect_uri=lambda: data.get("redirect_uri"),
                    get_scope=lambda: host.granted if host.granted is not None else data.get("scope", ""),
                )

            def query_authorization_code(self, code: str, client: Any) -> Any:
                return host.codes.get(code)

            def delete_authorization_code(self, authorization_code: Any) -> None:
                host.codes.pop(authorization_code.code, None)

            def authenticate_user(self, authorization_code: Any) -> Any:
                return authorization_code.user

        class Refresh(grants.RefreshTokenGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")
            INCLUDE_NEW_REFRESH_TOKEN = True

            def authenticate_refresh_token(self, refresh_token: str) -> Token | None:
                found = host.token(refresh_token)
                return None if found is None or found.revoked or found.refresh != refresh_token else found

            def authenticate_user(self, refresh_token: Token) -> Any:
                return refresh_token.user

            def revoke_old_credential(self, refresh_token: Token) -> None:
                refresh_token.revoked = True

        class Revoke(RevocationEndpoint):
            CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

            def query_token(self, token_string: str, token_type_hint: str) -> Token | None:
                return host.token(token_string)

            def revoke_token(self, token: Token, request: Any) -> None:
                for one in host.tokens:
                    if one is token or (host.ends_accounts and one.user == token.user):
                        one.revoked = True

        class DeviceEndpoint(DeviceAuthorizationEndpoint):
            CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")
            INTERVAL = 1

            def get_verification_uri(self) -> str:
                return f"{host.issuer}/device"

            def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
                host.devices[data["device_code"]] = DeviceCredentialDict(
                    {**data, "client_id": client_id, "scope": scope, "expires_at": time.time() + data["expires_in"]}
                )

        class DeviceCode(DeviceCodeGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

            def query_device_credential(self, device_code: str) -> Any:
                return host.devices.get(device_code)

            def query_user_grant(self, user_code: str) -> Any:
                return host.device_answers.get(user_code)

            def should_slow_down(self, credential: Any) -> bool:
                return False

        self.register_grant(Code, [CodeChallenge(required=True)])
        self.register_grant(Refresh)
        self.register_grant(DeviceCode)
        self.register_endpoint(Revoke)
        self.register_endpoint(DeviceEndpoint)

    # ----------------------------------------------------------------------------------------------------- the paths
    def answer(self, request: SimpleNamespace) -> SimpleNamespace:
        path = urlsplit(request.uri).path
        if path == "/.well-known/oauth-authorization-server":
            return self._json(200, self.metadata())
        if path == "/authorize":
            return self._authorize(request)
        if path == "/token":
            with self.lock:
                return self.create_token_response(request)
        if path == "/revoke":
            return self.create_endpoint_response("revocation", request)
        if path == "/device_authorization":
            return self.create_endpoint_response("device_authorization", request)
        if path == "/resource":
            return self._resource(request)
        return self._json(404, {})

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "device_authorization_endpoint": f"{self.issuer}/device_authorization",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _authorize(self, request: SimpleNamespace) -> SimpleNamespace:
        made = self.create_oauth2_request(request)
        try:
            grant = self.get_consent_grant(made, self.account)
        except OAuth2Error as error:
            return self._json(400, {"error": error.error})
        if request.method == "GET":
            fields = "".join(
                f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in request.query
            )
            page = (
                "<!doctype html><html lang=en><title>Calendar Example</title><h1>Allow Handrail to use your calendar?</h1>"
                f'<p>{escape(self.account)}<form method="post" action="/authorize">{fields}'
                '<button name="answer" value="allow">Allow</button> <button name="answer" value="deny">Deny</button></form>'
            )
            return SimpleNamespace(status=200, body=page, headers={"Content-Type": "text/html"}, location="")
        allowed = dict(request.form).get("answer") == "allow"
        response = self.create_authorization_response(made, grant_user=self.account if allowed else None, grant=grant)
        location = response.headers["Location"]
        joiner = "&" if "?" in location else "?"
        response.headers["Location"] = f"{location}{joiner}iss={self.issuer}"
        return response

    def _resource(self, request: SimpleNamespace) -> SimpleNamespace:
        kind, _, access = request.headers.get("Authorization", "").partition(" ")
        found = self.token(access) if kind == "Bearer" else None
        if found is None or found.revoked or found.is_expired() or found.access != access:
            return self._json(401, {"error": "invalid_token"})
        return self._json(200, {"account": found.user})

    def _json(self, status: int, body: Any) -> SimpleNamespace:
        return SimpleNamespace(status=status, body=body, headers={"Content-Type": "application/json"}, location="")


class _Request(OAuth2Request):
    form_data: dict[str, str]

    @property
    def args(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.uri).query))

    @property
    def form(self) -> dict[str, str]:
        return self.form_data


def _handler(server: AuthorizationServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve([])

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            self._serve(parse_qsl(body))

        def _serve(self, form: list[tuple[str, str]]) -> None:
            path = urlsplit(self.path).path
            server.requests.append((self.command, path))
            server.forms.append((path, dict(form)))
            mishap = server.mishaps.get(path, "")
            if mishap == "close":
                self.close_connection = True
                self.connection.close()
                return
            if mishap == "html":
                self._send(200, b"<html>Please sign in to the guest network</html>", {"Content-Type": "text/html"})
                return
            if mishap == "drip":
                self._drip()
                return
            if mishap.isdecimal():
                self._send(int(mishap), b'{"error":"server_error"}', {"Content-Type": "application/json"})
                return
            request = SimpleNamespace(
                method=self.command,
                uri=f"{server.issuer}{self.path}",
                headers=self.headers,
                query=parse_qsl(urlsplit(self.path).query),
                form=form,
            )
            found = server.answer(request)
            body = found.body if isinstance(found.body, str) else dumps(found.body if found.body != "" else {})
            if mishap == "held" and server.mishaps.pop(path, ""):
                server.answered.set()
                server.released.wait(30)
            self._send(found.status, body.encode(), found.headers)

        def _drip(self) -> None:
            """A byte now and then: each comes within any time-out for one read."""
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n")
                for left in reversed(range(60)):
                    server.dripped += not left
                    self.wfile.write(b" ")
                    if server.released.wait(0.05):
                        return
            except OSError:
                pass
            finally:
                self.close_connection = True

        def _send(self, status: int, body: bytes, headers: Any) -> None:
            self.send_response(status)
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
