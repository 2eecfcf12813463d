"""The guard stands before every route: host, origin, key, rate, and the headers that every answer carries.

It is plain ASGI, because it must neither buffer a stream nor wrap it in tasks. What it lets through has a `Key` in the scope's
state, and whether that is enough is the route's to say. Which paths need no key is said here and nowhere else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handrail.identity.tokens import TokenNotBelieved, looks_like_token
from handrail.server.api.http import HttpProblem, refusal
from handrail.server.connection_table import ConnectionCounts
from handrail.server.key_ring import Key, KeyRing, TokenBuckets
from handrail.server.options import Options

CheckToken: TypeAlias = Callable[[str], Awaitable[Key]]
"""The key that a signed token stands for; `TokenNotBelieved` with one sentence if it is not believed."""
_log = logging.getLogger("handrail.server")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
MCP_PATH = "/mcp"
OPEN_PATHS = re.compile(
    r"/(?:healthz|readyz|openapi\.json|asyncapi\.json|favicon\.ico|console/.*|\.well-known/oauth-protected-resource(?:/.*)?)?",
    re.DOTALL,
)
"""Those that need no key."""
_PROBES = ("/healthz", "/readyz")
_WRONG_KEYS_PER_MINUTE = 60
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]{0,5})?")

# In nobody's frame: under an invisible frame a click that is meant for another page would approve a call.
CONSOLE_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_SECURITY = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(self)",
}
_PAGE_HEADERS = {**_SECURITY, "content-security-policy": CONSOLE_POLICY, "cache-control": "no-cache"}
# Never kept by a browser or a proxy: answers hold secrets of sessions and what people said.
_API_HEADERS = {**_SECURITY, "content-security-policy": API_POLICY, "cache-control": "no-store"}
_ALLOWED_HEADERS = "authorization, content-type, last-event-id, x-session-token, x-handrail-session, idempotency-key"


class McpAccess(Protocol):
    """What the guard asks about clients of MCP."""

    def challenge(self, scope: str = "") -> str:
        """What a client gets whose token is not enough, or lacks this scope."""
        ...

    def takes(self, token: str) -> bool:
        """Whether a token may be one of the authorization server's."""
        ...

    async def key_of(self, token: str) -> Key:
        """The key that such a token stands for; `TokenNotBelieved` with one sentence if it is not believed."""
        ...


class Guard:
    """See the module's docstring."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: KeyRing,
        options: Options,
        buckets: TokenBuckets | None = None,
        mcp: McpAccess | None = None,
        tokens: CheckToken | None = None,
    ) -> None:
        self._app = app
        self._mcp = mcp
        self._keys = keys
        self._tokens = tokens
        self._origins = frozenset(origin.rstrip("/").lower() for origin in options.origins)
        own = (urlsplit(origin).hostname or "" for origin in options.origins)
        self._hosts = frozenset(name.lower() for name in (*_LOOPBACK, options.host, *options.hosts, *own) if name)
        self._rates = buckets or TokenBuckets(options.requests_per_minute)
        self._max_header_bytes = options.max_header_bytes
        self._wrong = TokenBuckets(_WRONG_KEYS_PER_MINUTE)
        self._summary = ConnectionCounts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._pass_on(scope, receive, send)
            return
        headers = Headers(scope=scope)
        path = str(scope["path"])
        origin = headers.get("origin")
        answering = _GuardedResponse(
            send,
            receive,
            page=path == "/" or path.startswith("/console/"),
            origin=origin if origin and self._may(origin, headers) else None,
            unread=headers.get("content-length", "0") != "0" or "transfer-encoding" in headers,
        )
        try:
            self._check(scope, path, headers)
            # Before the key is looked at, because browsers send none with a preflight. Its origin has been checked.
            if scope["method"] == "OPTIONS" and origin is not None:
                await _preflight()(scope, answering.receive, answering.send)
                return
            if OPEN_PATHS.fullmatch(path) is None:
                await self._authenticate(scope, path, headers)
        except HttpProblem as problem:
            await refusal(problem)(scope, answering.receive, answering.send)
            return
        try:
            await self._app(scope, answering.receive, answering.send)
        except Exception:
            # The client learns that it was not its fault, and nothing about what it was.
            _log.exception("A request to %s failed", path)
            # Too late for another status. Raised, it ends the connection, so that nobody takes what was sent for the
            # whole.
            if answering.started:
                raise
            message = "Something went wrong in the server; its log says what."
            await refusal(HttpProblem(500, message))(scope, answering.receive, answering.send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket carries no key: its first message shows a ticket. Host and origin are checked as everywhere."""
        if scope["type"] == "websocket":
            headers = Headers(scope=scope)
            try:
                self._check(scope, str(scope["path"]), headers)
            except HttpProblem as problem:
                await refusal(problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope, path: str, headers: Headers) -> None:
        """The size of what comes before the body, the server's name, and the page that asks."""
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size + len(scope.get("raw_path") or b"") + len(scope["query_string"]) > self._max_header_bytes:
            raise HttpProblem(
                431, f"The address and the headers are larger than the {self._max_header_bytes} bytes that are allowed."
            )
        # Probes of a balancer use addresses; they learn nothing but that the server lives.
        host = _HOST.fullmatch(headers.get("host", "")) if path not in _PROBES else None
        name = (host["address"] or host["name"]).lower().rstrip(".") if host is not None else ""
        # A page whose own name is made to point here (DNS rebinding) has its origin's name in `Host`, and would pass as
        # the same origin below.
        if path not in _PROBES and name not in self._hosts:
            raise HttpProblem(
                421, "This server is not reached under that name; `hosts` in [server] lists those that it has."
            )
        origin = headers.get("origin")
        if origin is not None and not self._may(origin, headers):
            raise HttpProblem(
                403, "Pages of that origin may not use this server; `origins` in [server] lists those that may."
            )

    def _may(self, origin: str, headers: Headers) -> bool:
        # Compared as a whole: an origin with a path, a user or broken brackets is none that a browser sends.
        given, host = origin.lower(), headers.get("host", "").lower()
        return given in self._origins or (host != "" and given in (f"http://{host}", f"https://{host}"))

    async def _authenticate(self, scope: Scope, path: str, headers: Headers) -> None:
        """Put who asks into the scope's state. MCP clients may come with a token of the authorization server as well."""
        mcp = self._mcp if path == MCP_PATH else None
        try:
            key = await self._authenticated(scope, headers, mcp)
        except HttpProblem as problem:
            if mcp is not None and problem.status == 401:
                raise HttpProblem(401, problem.message, challenge=mcp.challenge()) from None
            raise
        scope.setdefault("state", {})["key"] = key

    async def _authenticated(self, scope: Scope, headers: Headers, mcp: McpAccess | None) -> Key:
        kind, _, secret = headers.get("authorization", "").partition(" ")
        secret = secret.strip()
        await self._keys.catch_up()
        key = self._keys.find(secret) if kind.lower() == "bearer" else None
        wrong, lacks = "This server does not know that key; `handrail keys add NAME` makes one.", ""
        if key is None and kind.lower() == "bearer" and looks_like_token(secret):
            check = mcp.key_of if mcp is not None and mcp.takes(secret) else self._tokens
            try:
                key = await check(secret) if check is not None else None
            except TokenNotBelieved as refused:
                wrong, lacks = str(refused), refused.scope
        if key is None:
            client = scope.get("client")
            # By address, and only without a right key: whoever tries keys cannot lock out those who have one, even behind
            # the same address.
            wait = self._wrong.take(str(client[0]) if client else "")
            if wait:
                self._summary.note(
                    f"Too many requests without a right key come from {client[0] if client else 'nowhere'}"
                )
                raise HttpProblem(429, "Too many requests without a right key came from there.", retry_after=wait)
            if mcp is not None and lacks:
                raise HttpProblem(403, wrong, challenge=mcp.challenge(lacks))
            if kind.lower() == "bearer" and secret:
                raise HttpProblem(401, wrong)
            raise HttpProblem(401, "A key is needed: send the header `Authorization: Bearer KEY`.")
        wait = self._rates.take(key.hash)
        if wait:
            raise HttpProblem(429, "This key has asked too often; wait a little.", retry_after=wait)
        return key


@dataclass(slots=True)
class _GuardedResponse:
    """Adds what every answer carries, and closes a connection whose request body nobody wanted to read."""

    _send: Send
    _receive: Receive
    page: bool = field(kw_only=True)
    """Whether it is a file of the console."""
    origin: str | None = field(kw_only=True)
    """Of a page that may read the answer."""
    unread: bool = field(kw_only=True)
    started: bool = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.unread = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in (_PAGE_HEADERS if self.page else _API_HEADERS).items():
                headers.setdefault(name, value)
            if self.origin is not None:
                headers["access-control-allow-origin"] = self.origin
                headers["access-control-expose-headers"] = "x-handrail-session, x-handrail-session-token, retry-after"
                # Else the browser would hide the answer from the page that may read it.
                headers["cross-origin-resource-policy"] = "cross-origin"
                headers.add_vary_header("Origin")
            if self.unread:
                headers["connection"] = "close"
            message = {**message, "headers": headers.raw}
        await self._send(message)


def _preflight() -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": "GET, POST, DELETE",
            "Access-Control-Allow-Headers": _ALLOWED_HEADERS,
            "Access-Control-Max-Age": "600",
        },
    )
