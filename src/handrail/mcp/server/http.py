"""The server over streamable HTTP, as an ASGI application behind the guard of `handrail serve`.

The guard has checked host, origin, key and rate before a request comes here. Requests of 2026-07-28 stand alone; those of the
handshake era belong to a session that only the credential which opened it may use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import NotificationParams
from starlette.types import Message, Receive, Scope, Send

from handrail.contract.keys import Key
from handrail.identity.tokens import TokenChecker
from handrail.mcp.server.governed_calls import CallKey
from handrail.mcp.server.live_calls import RequestContext
from handrail.mcp.server.options import McpOptions, Principal
from handrail.mcp.server.plain_calls import PlainCalls
from handrail.mcp.server.protocol import McpEndpoint
from handrail.mcp.server.session_calls import SESSION, SessionCalls
from handrail.mcp.server.tool_calls import McpToolCalls
from handrail.runtime.core import RuntimeCore

PATH = "/mcp"
OAUTH = "oauth:"
"""Begins the name under which a client of the authorization server asks."""
_PRINCIPAL, _WRITTEN, _ANSWERING = "handrail.principal", "handrail.written", "handrail.answering"
_DRAIN_SECONDS = 20.0
_WATCH_AFTER_SECONDS = 0.1
_LOG = logging.getLogger("handrail.mcp")


class McpHttp:
    """See the module's docstring. `run` is entered while the application lives."""

    def __init__(
        self, runtime: RuntimeCore, options: McpOptions, *, version: str = "", max_body_bytes: int = 4 * 1024 * 1024
    ) -> None:
        self.options = options
        self.tokens = TokenChecker(options.token_rules()) if options.issuer else None
        self._endpoint = McpEndpoint(runtime, options, self)
        self._server = self._endpoint.server(version=version)
        # Stated here, because the session manager asks for them without saying what changes.
        opening = McpEndpoint.opening(self._server)
        self._server.create_initialization_options = lambda *_, **__: opening  # type: ignore[method-assign]
        self._manager = StreamableHTTPSessionManager(self._server, max_request_body_size=max_body_bytes)
        self._plain = PlainCalls(self._endpoint.tool, self._endpoint.call_tool, self._server.server_info_stamp)
        self._sessions = SessionCalls(self._endpoint.tool, self._endpoint.call_tool)
        self._server.add_notification_handler("notifications/initialized", NotificationParams, self._opened)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        who = self._who(scope)
        scope[_PRINCIPAL], scope[_WRITTEN], scope[_ANSWERING] = who, [], False

        async def watched(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
            scope[_ANSWERING] = is_last
            await send(message)
            if is_last and scope[_WRITTEN]:
                await self._delivered(scope)

        if scope["method"] == "POST":
            first = await receive()
            if not first.get("more_body", False) and await self._answered(
                scope, first.get("body", b""), receive, watched
            ):
                return
            receive = _from_first(first, receive)
        elif scope["method"] == "DELETE":
            self._sessions.ended(dict(scope["headers"]).get(SESSION, b""))
        # The SDK lets a session be used by the credential alone that opened it.
        token = AccessToken(token="", client_id=who.client, scopes=[], subject=who.user)  # never looked at
        scope["user"] = AuthenticatedUser(token)
        await self._manager.handle_request(scope, receive, watched)

    async def _answered(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> bool:
        """Answer a plain call; whether it is one."""
        plain = self._plain.read(scope, body)
        if plain is not None:
            with _cancelled_when_gone(scope, receive):
                await self._plain.answer(plain, send)
            return True
        call = self._sessions.read(scope, scope[_PRINCIPAL], body)
        if call is not None:
            # A client of this era that goes away has cancelled nothing.
            await self._sessions.answer(call, send)
            return True
        self._sessions.cancel(scope, scope[_PRINCIPAL], body)
        return False

    async def _opened(self, ctx: RequestContext, params: NotificationParams) -> None:
        await self._endpoint.connected(ctx, params)
        scope = _scope(ctx)
        self._sessions.opened(dict(scope["headers"]).get(SESSION, b""), scope[_PRINCIPAL], ctx.session)

    def _who(self, scope: Scope) -> Principal:
        key: Key = scope["state"]["key"]
        # Tokens end and keys do not: a key that is called so passes for no client of the authorization server.
        client = key.name if key.expires and key.name.startswith(OAUTH) else f"key:{key.name}"
        trusted = key.name in self.options.trusted_clients
        named = f"key {key.traceless_name}"
        return Principal(key.user, client, tenant=key.tenant, is_trusted=trusted, roles=key.roles, named=named)

    # The transport of the endpoint

    def principal(self, ctx: RequestContext) -> Principal:
        who = _scope(ctx)[_PRINCIPAL]
        assert isinstance(who, Principal)
        return who

    def when_written(self, ctx: RequestContext, key: CallKey, calls: McpToolCalls) -> None:
        _scope(ctx)[_WRITTEN].append((key, calls))

    async def _delivered(self, scope: Scope) -> None:
        """The answer was sent: it has arrived as far as one can know once the socket has taken all of it."""
        transport = (scope.get("state") or {}).get("transport")
        if isinstance(transport, asyncio.WriteTransport):
            try:
                async with asyncio.timeout(_DRAIN_SECONDS):
                    # The transport tells of its buffer's water marks only, never that it is empty.
                    while transport.get_write_buffer_size() and not transport.is_closing():  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            except TimeoutError:
                return
            if transport.is_closing():
                _LOG.info("A client went away before it had the answer to a writing call; the same call will find it.")
                return
        for key, calls in scope[_WRITTEN]:
            await calls.governed.delivered(key)

    # Who gives out tokens

    @property
    def metadata_path(self) -> str:
        return f"/.well-known/oauth-protected-resource{urlsplit(self.options.resource).path.rstrip('/')}"

    def metadata(self) -> dict[str, Any]:
        """Who gives out tokens for this server (RFC 9728)."""
        options = self.options
        told: dict[str, Any] = {
            "resource": options.resource,
            "authorization_servers": [options.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Handrail",
        }
        return {**told, "scopes_supported": list(options.scopes)} if options.scopes else told

    def challenge(self, scope: str = "") -> str:
        """What a client without a right token gets."""
        if self.tokens is None:
            return 'Bearer realm="handrail"'
        parts = urlsplit(self.options.resource)
        where = f"{parts.scheme}://{parts.netloc}{self.metadata_path}"
        lacks = f', error="insufficient_scope", scope="{scope}"' if scope else ""
        return f'Bearer realm="handrail", resource_metadata="{where}"{lacks}'


def _from_first(message: Message, receive: Receive) -> Receive:
    """Receives a message that was received already, then what follows it."""
    messages = [message]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


@contextmanager
def _cancelled_when_gone(scope: Scope, receive: Receive) -> Iterator[None]:
    """Cancel the work for a client that goes away. Most have their answer before one has to look."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    watching: list[asyncio.Task[None]] = []
    is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        # Whoever has the answer is gone as well, by the same message.
        if task is not None and not scope[_ANSWERING]:
            is_gone = True
            task.cancel()

    timer = loop.call_later(_WATCH_AFTER_SECONDS, lambda: watching.append(loop.create_task(watch())))
    try:
        yield
    except asyncio.CancelledError:
        if not is_gone:
            raise
        if task is not None:
            task.uncancel()
    finally:
        timer.cancel()
        for one in watching:
            one.cancel()


def _scope(ctx: RequestContext) -> MutableMapping[str, Any]:
    assert ctx.request is not None
    scope: MutableMapping[str, Any] = ctx.request.scope
    return scope
