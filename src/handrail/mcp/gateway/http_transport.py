"""A server behind a URL: the SDK's streamable HTTP, over a client that trusts nothing around it.

No proxies or credentials of the environment, no request beyond the server's origin, a largest size for every answer. A request
that could not be sent, or whose answer was lost, is answered here with an error of our own: the SDK would end the whole
connection, and with it every other call that waits on it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import orjson
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.exceptions import MCPError

from handrail.contract.bearer_challenge import scopes_in
from handrail.mcp.gateway.limits import UpstreamFault

NOT_SENT, LOST, UNAUTHORIZED, SESSION_GONE, FORBIDDEN = -32_091, -32_092, -32_093, -32_094, -32_095
"""Codes of our own errors: it was not reached; its answer was lost; it wants other credentials; it forgot the session; it wants
the person to allow more."""
_OURS = secrets.token_hex(16)
"""Marks errors that were made here, so that no server can claim in our name that a call was not sent."""
WRONG_CREDENTIALS = "it does not accept our credentials"
MORE_SCOPES = "it wants the person to allow more"
_MARK = "handrail"
_MESSAGES_PER_STREAM = 16
"""How many of the largest messages a stream of events may hold."""


def own_code(error: MCPError) -> int | None:
    """The code of an error that was made here; None for one that a server or the SDK made, whatever its code is."""
    return error.code if isinstance(error.data, dict) and error.data.get(_MARK) == _OURS else None


def wanted_scopes(error: BaseException) -> tuple[str, ...]:
    """What the person would have to allow, if that is why a request was refused."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if not isinstance(error, MCPError) or own_code(error) != FORBIDDEN:
        return ()
    return tuple(error.data["scopes"])


class BearerToken(httpx2.Auth):
    """The token of one user. A connection has its own, and is nobody else's."""

    def __init__(self, value: str) -> None:
        self.value = value

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self.value}"
        yield request


class BoundedBody(httpx2.AsyncByteStream):
    """The body of a stream of events, cut off with an error beyond a size."""

    def __init__(self, inner: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._inner = inner
        self._left = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.ReadError("The server's answer is too large.")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class BoundedHTTP(httpx2.AsyncHTTPTransport):
    """Requests stay at the server's origin, and answers within their size."""

    def __init__(self, origin: httpx2.URL, max_bytes: int) -> None:
        # No proxy and no `.netrc` of the environment: they are meant for this process, not for its tools. And no second
        # sending: a call may have run.
        super().__init__(trust_env=False, retries=0)
        self._origin = _origin(origin)
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if _origin(request.url) != self._origin:
            return _failed(request, NOT_SENT, "it led us to another host, where we do not follow")
        try:
            response = await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol):
            return _failed(request, NOT_SENT, "it cannot be reached")
        except httpx2.TransportError as error:
            return _failed(request, LOST, f"its answer was lost ({type(error).__name__})")
        if response.status_code == 401:
            await response.aclose()
            return _failed(request, UNAUTHORIZED, WRONG_CREDENTIALS)
        if response.status_code == 403 and (scopes := scopes_in(response.headers.get("www-authenticate", ""))):
            await response.aclose()
            return _failed(request, FORBIDDEN, MORE_SCOPES, scopes)
        if response.status_code == 404 and MCP_SESSION_ID in request.headers:
            # The protocol's word for a session that the server has ended: it has looked at nothing else of the request.
            await response.aclose()
            return _failed(request, SESSION_GONE, "it has ended the session")
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = BoundedBody(stream, self._max_bytes * _MESSAGES_PER_STREAM)
            return response
        return await self._whole(request, response, stream)

    async def _whole(
        self, request: httpx2.Request, response: httpx2.Response, stream: httpx2.AsyncByteStream
    ) -> httpx2.Response:
        body = bytearray()
        try:
            async for chunk in stream:
                body += chunk
                if len(body) > self._max_bytes:
                    return _failed(request, LOST, f"it sent an answer of more than {self._max_bytes:,} bytes")
        except httpx2.TransportError as error:
            return _failed(request, LOST, f"its answer was lost ({type(error).__name__})")
        finally:
            await response.aclose()
        # The body is as it was sent, so what says how it was packed stays; only its length may be new.
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=httpx2.ByteStream(bytes(body)), request=request
        )


def _failed(request: httpx2.Request, code: int, message: str, scopes: Sequence[str] = ()) -> httpx2.Response:
    """An answer in the server's place."""
    try:
        named = orjson.loads(request.content).get("id")
    except (httpx2.RequestNotRead, orjson.JSONDecodeError, AttributeError):
        named = None
    error = {"code": code, "message": message, "data": {_MARK: _OURS, "scopes": list(scopes)}}
    body = {"jsonrpc": "2.0", "id": named if named is not None else 0, "error": error}
    return httpx2.Response(503, json=body, request=request)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


@asynccontextmanager
async def http_streams(
    url: str, *, headers: Mapping[str, str], max_bytes: int, seconds: float, auth: httpx2.Auth | None = None
) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of the SDK's transport."""
    try:
        transport = BoundedHTTP(httpx2.URL(url), max_bytes)
    except httpx2.InvalidURL as error:
        raise UpstreamFault(f"its address cannot be used ({error})") from None
    # A host that is not there is found out within ten seconds, however long a call may take.
    timeout = httpx2.Timeout(seconds, connect=min(seconds, 10.0))
    async with (
        httpx2.AsyncClient(
            transport=transport,
            headers=dict(headers),
            timeout=timeout,
            # A redirect would send the call once more, and its credentials along.
            follow_redirects=False,
            trust_env=False,
            auth=auth,
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=max_bytes) as streams,
    ):
        yield streams
