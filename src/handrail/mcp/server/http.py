"""The server over streamable HTTP, as an ASGI application behind the guard of `handrail serve`.

The guard has checked host, origin, key and rate before a request comes here. Requests of 2026-07-28 stand alone; those of the
handshake era belong to a session that only the credential which opened it may use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Message, Receive, Scope, Send

from handrail.contract.keys import Key
from handrail.identity.tokens import TokenChecker
from handrail.mcp.server.governed_calls import CallKey
from handrail.mcp.server.live_calls import RequestContext
from handrail.mcp.server.options import McpOptions, Principal
from handrail.mcp.server.protocol import McpEndpoint
from handrail.mcp.server.tool_calls import McpToolCalls
from handrail.runtime.core import RuntimeCore

PATH = "/mcp"
OAUTH = "oauth:"
"""Begins the name under which a client of the authorization server asks."""
_PRINCIPAL, _WRITTEN = "handrail.principal", "handrail.written"
_DRAIN_SECONDS = 20.0
_TOO_LARGE = 413
_MAX_UNREAD_BYTES = 64 * 1024 * 1024
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

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        who = self._who(scope)
        scope[_PRINCIPAL], scope[_WRITTEN] = who, []
        # The SDK lets a session be used by the credential alone that opened it.
        token = AccessToken(token="", client_id=who.client, scopes=[], subject=who.user)  # never looked at
        scope["user"] = AuthenticatedUser(token)

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == _TOO_LARGE:
                await _drained(receive)
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False) and scope[_WRITTEN]:
                await self._delivered(scope)

        await self._manager.handle_request(scope, receive, watched)

    def _who(self, scope: Scope) -> Principal:
        key: Key = scope["state"]["key"]
        # Tokens end and keys do not: a key that is called so passes for no client of the authorization server.
        client = key.name if key.expires and key.name.startswith(OAUTH) else f"key:{key.name}"
        trusted = key.name in self.options.trusted_clients
        return Principal(key.user, client, tenant=key.tenant, is_trusted=trusted, roles=key.roles)

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
        """What a client without a right token is told."""
        if self.tokens is None:
            return 'Bearer realm="handrail"'
        parts = urlsplit(self.options.resource)
        where = f"{parts.scheme}://{parts.netloc}{self.metadata_path}"
        lacks = f', error="insufficient_scope", scope="{scope}"' if scope else ""
        return f'Bearer realm="handrail", resource_metadata="{where}"{lacks}'


async def _drained(receive: Receive) -> None:
    """Take the rest of a body that is refused: a client that still sends sees no answer, but a connection that is reset."""
    size, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while more and size < _MAX_UNREAD_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                more = message["type"] == "http.request" and message.get("more_body", False)


def _scope(ctx: RequestContext) -> MutableMapping[str, Any]:
    assert ctx.request is not None
    scope: MutableMapping[str, Any] = ctx.request.scope
    return scope
