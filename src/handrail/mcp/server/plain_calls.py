"""A `tools/call` of 2026-07-28 over HTTP of which everything is plain: read once, and answered at once.

The SDK reads each request several times over, into models and out of them, which takes longer than the governed call. What is
taken here is what it would accept as well, word for word; whatever is missing, repeated, unusual or more than a call goes the
SDK's way, which has the last word about it. As there, an answer is a stream of events once its handler has said how it goes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

import orjson
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, X_MCP_HEADER_KEY
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    ErrorData,
    RequestParamsMeta,
)
from mcp_types.methods import serialize_server_result, validate_client_request
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Scope, Send

from handrail.contract.definition import ToolDefinition
from handrail.contract.frozen import thaw
from handrail.mcp.server.live_calls import TASKS, RequestContext
from handrail.mcp.server.options import TRACE_CONTEXT
from handrail.providers.mcp.transport import TURN

CALL = "tools/call"
_SOON_MS = 5_000
_MAX_CLIENTS, _MAX_CLIENT_BYTES = 1_000, 4_096
_VERSIONS = frozenset(MODERN_PROTOCOL_VERSIONS)
_REQUEST = {"jsonrpc", "id", "method", "params"}
_PARAMS = {"name", "arguments", "_meta"}
_ABOUT_CLIENT = {PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY}
PROGRESS_TOKEN = "progressToken"
_META = frozenset({*_ABOUT_CLIENT, TURN, PROGRESS_TOKEN, *TRACE_CONTEXT})
_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_LOG = logging.getLogger("handrail.mcp")


class ProgressEvents:
    """What a handler says of its progress, as events of its call's answer; the first makes a stream of the answer.

    It has the part of the SDK's `DispatchContext` that a session reports progress by.
    """

    def __init__(self, token: str | int, session_id: bytes | None = None) -> None:
        # `TypeError` for a number or text that only the SDK's writer knows.
        self._token = orjson.Fragment(orjson.dumps(token))
        self._headers = event_headers(session_id)
        self._send: Send | None = None
        self.has_begun = False

    def open(self, send: Send) -> None:
        self._send = send

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Called by the session."""
        params: dict[str, Any] = {PROGRESS_TOKEN: self._token, "progress": progress}
        params |= {name: value for name, value in (("total", total), ("message", message)) if value is not None}
        assert self._send is not None
        if not self.has_begun:
            self.has_begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
        body = orjson.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        await self._send({"type": "http.response.body", "body": as_event(body), "more_body": True})


class PlainCall(NamedTuple):
    """A call that is ready to be made, and the id of its request as JSON."""

    ctx: RequestContext
    name: str
    args: dict[str, Any]
    request_id: bytes
    events: ProgressEvents | None


class CallsTools(Protocol):
    """What makes a call, whoever has read it."""

    def __call__(self, ctx: RequestContext, name: str, args: Any) -> Awaitable[dict[str, Any]]: ...


class PlainCalls:
    """Reads and answers plain calls. `find` gives the definition of a tool, `server_info` is what each result says of us."""

    def __init__(
        self, find: Callable[[str], ToolDefinition | None], call: CallsTools, server_info: Mapping[str, Any]
    ) -> None:
        self._find = find
        self._call = call
        self._stamp = orjson.Fragment(orjson.dumps({SERVER_INFO_META_KEY: server_info}))
        self._soon: dict[str, tuple[ToolDefinition, bool]] = {}
        self._clients: dict[bytes, Connection | None] = {}

    def read(self, scope: Scope, body: bytes) -> PlainCall | None:
        """The call in a request; None if it is not plain."""
        headers = dict(scope["headers"])
        # A header that comes twice is for the SDK to judge.
        if len(headers) != len(scope["headers"]) or not self._are_plain(headers):
            return None
        try:
            request = json.loads(body)
            if not (type(request) is dict and request.keys() == _REQUEST and request["jsonrpc"] == "2.0"):
                return None
            number, params = request["id"], request["params"]
            # `type` and not `isinstance`: true and false are whole numbers to Python.
            if request["method"] != CALL or type(number) not in (int, str) or type(params) is not dict:
                return None
            if params.keys() != _PARAMS or type(params["arguments"]) is not dict or type(params["_meta"]) is not dict:
                return None
            connection = self._client(headers[b"mcp-protocol-version"].decode("latin-1"), params)
            # The protocol wants header and body to agree: whoever looks at headers alone, such as a proxy, judges by the
            # header.
            if connection is None or params["name"] != headers[b"mcp-name"].decode("latin-1"):
                return None
            events = progress_events(params["_meta"])
            session = ServerSession(events or connection.outbound, connection)  # type: ignore[arg-type]
            ctx: RequestContext = RequestContext(
                session=session,
                lifespan_context=None,
                protocol_version=session.protocol_version,
                method=CALL,
                params=params,
                request_id=number,
                meta=cast("RequestParamsMeta", params["_meta"]),
                request=Request(scope),
            )
            return PlainCall(ctx, params["name"], params["arguments"], orjson.dumps(number), events)
        except (ValueError, TypeError, RecursionError):  # no JSON, or a number or text that only the SDK's writer knows
            return None

    def _are_plain(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether they are those of a call of a tool that soon has its answer, before which nothing can be said."""
        if headers.get(b"mcp-method") != b"tools/call" or b"mcp-protocol-version" not in headers:
            return False
        kind = headers.get(b"content-type", b"").decode("latin-1").lower()
        if not (kind.startswith("application/json") and takes_answers(headers.get(b"accept", b"").decode("latin-1"))):
            return False
        name = headers.get(b"mcp-name", b"").decode("latin-1")
        tool = self._find(name)
        if tool is None:
            return False
        known = self._soon.get(name)
        # By identity: a reload makes another definition under the same name.
        if known is None or known[0] is not tool:
            known = self._soon[name] = (tool, is_soon(tool))
        return known[1]

    def _client(self, version: str, params: Mapping[str, Any]) -> Connection | None:
        """What is known of a client by its own words: looked at once, because each of its requests repeats them."""
        meta = params["_meta"]
        if not (meta.keys() <= _META and meta.get(PROTOCOL_VERSION_META_KEY) == version and version in _VERSIONS):
            return None
        words = orjson.dumps({name: meta[name] for name in _ABOUT_CLIENT if name in meta})
        if words in self._clients:
            return self._clients[words]
        if len(words) > _MAX_CLIENT_BYTES:
            return None
        if len(self._clients) >= _MAX_CLIENTS:
            # All at once: clients that still come are looked at once more, which costs less than keeping count of their
            # use.
            self._clients.clear()
        known = self._clients[words] = _connection(version, params)
        return known

    async def answer(self, call: PlainCall, send: Send) -> None:
        """Make the call, and send what comes of it."""
        status = 200
        if call.events is not None:
            call.events.open(send)
        try:
            result = await self._call(call.ctx, call.name, call.args)
            if "resultType" in result:  # the call has not ended: it asks its client for something
                result = serialize_server_result(CALL, call.ctx.protocol_version, result)
            told: dict[str, Any] = {"result": {"resultType": "complete", **result, "_meta": self._stamp}}
        except Exception as error:  # noqa: BLE001  # the client gets it, as an error of the protocol
            data = error_data(error, call.name)
            status = ERROR_CODE_HTTP_STATUS.get(data.code, 200)
            told = {"error": data.model_dump(by_alias=True, mode="json", exclude_none=True)}
        body = orjson.dumps({"jsonrpc": "2.0", "id": orjson.Fragment(call.request_id), **told})
        if call.events is not None and call.events.has_begun:
            await send({"type": "http.response.body", "body": as_event(body)})
            return
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def event_headers(session_id: bytes | None) -> list[tuple[bytes, bytes]]:
    """Those of an answer that is a stream of events, in a session of the handshake era or outside of one."""
    return _EVENT_HEADERS if session_id is None else [*_EVENT_HEADERS, (b"mcp-session-id", session_id)]


def progress_events(meta: Mapping[str, Any], session_id: bytes | None = None) -> ProgressEvents | None:
    """Where the progress of a call is sent; None where nobody asked for it, `TypeError` for a token that is none."""
    if PROGRESS_TOKEN not in meta:
        return None
    if type(meta[PROGRESS_TOKEN]) not in (int, str):
        raise TypeError("A progress token is text or a whole number.")
    return ProgressEvents(meta[PROGRESS_TOKEN], session_id)


def error_data(error: Exception, name: str) -> ErrorData:
    """An error as the client of its call gets it, as from the SDK: what went wrong is for the log."""
    if isinstance(error, MCPError):
        return error.error
    _LOG.error("A call of %s could not be answered", name, exc_info=error)
    return ErrorData(code=INTERNAL_ERROR, message="Internal server error")


def as_event(body: bytes) -> bytes:
    """An event of an answer's stream."""
    # In ASCII, as the SDK writes it: there are readers of events for whom more characters end a line than do.
    data = json.dumps(orjson.loads(body), separators=(",", ":"))
    return f"event: message\r\ndata: {data}\r\n\r\n".encode()


def _connection(version: str, params: Mapping[str, Any]) -> Connection | None:
    meta = params["_meta"]
    if CLIENT_CAPABILITIES_META_KEY not in meta:
        return None
    try:
        validate_client_request(CALL, version, params)
    except ValidationError:
        return None
    connection = Connection.from_envelope(version, meta.get(CLIENT_INFO_META_KEY), meta[CLIENT_CAPABILITIES_META_KEY])
    can = connection.client_capabilities
    # A client that takes tasks may be given one in place of a result, which is decided on the long way.
    if can is None or TASKS in (can.extensions or {}):
        return None
    return connection


@lru_cache(maxsize=256)
def takes_answers(accept: str) -> bool:
    """Whether a client takes both forms of an answer, as the SDK wants it."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return "*/*" in kinds or not (
        kinds.isdisjoint(("application/json", "application/*")) or kinds.isdisjoint(("text/event-stream", "text/*"))
    )


def is_soon(tool: ToolDefinition) -> bool:
    if "client" in tool.capabilities or tool.latency_budget_ms > _SOON_MS:
        return False
    # An argument may have to be in a header as well.
    return X_MCP_HEADER_KEY not in json.dumps(thaw(tool.parameters))
