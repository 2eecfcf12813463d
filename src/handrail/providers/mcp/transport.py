"""MCP, where a client holds the model and we are its server: requests → calls; envelopes → results. Pure; no SDK.

Both eras are spoken: with a handshake (up to 2025-11-25), and with the version in every request (2026-07-28). A request's id
is the client's and names one call for as long as its connection lasts. The full envelope goes back, as text and as data,
with `isError` where a call failed. A cancelled request is not answered any more. There is no message for a late envelope:
a held call answers `CONFIRMATION_REQUIRED`, and a client that makes it again, once a person has said yes, is given its outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import orjson

from handrail.contract.call import Call
from handrail.contract.frozen import thaw
from handrail.providers.event_stream import StreamCounters, as_text, bounded_args, id_in, object_in, text_in
from handrail.providers.mcp import MCP
from handrail.providers.mcp.json_rpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    McpFault,
    McpMalformed,
    McpNotice,
    McpRequest,
    MessageId,
    read_message,
)

PROVIDER = MCP.name
WHO = MCP.vendor
ID_SCOPE = MCP.id_scope
MODERN = "2026-07-28"
HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The newest first: it is offered to a client that names one which is not known."""
TURN = "handrail/turn"
"""The key in `_meta` under which a client may say to which of its turns a call belongs."""
_VERSION = "io.modelcontextprotocol/protocolVersion"
_SERVER = "io.modelcontextprotocol/serverInfo"
_KNOWN_NOTICES = frozenset({"notifications/initialized", "notifications/progress", "notifications/roots/list_changed"})
_TOOLS: Mapping[str, Any] = {"tools": {"listChanged": True}}


@dataclass(frozen=True, slots=True)
class McpOpening:
    """The client asks who is there: `initialize`, or `server/discover`."""

    id: MessageId
    version: str


@dataclass(frozen=True, slots=True)
class McpListing:
    """The client asks for the tools."""

    id: MessageId
    version: str
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class McpCall:
    """The client's model makes a call. `progress` is the token under which the client wants to hear of it."""

    id: MessageId
    version: str
    call: Call
    turn: str | None = None
    progress: MessageId | None = None


@dataclass(frozen=True, slots=True)
class McpCancellation:
    """The client does not wait for this request any more: it is stopped where it can be, and not answered."""

    id: MessageId
    call_id: str


@dataclass(frozen=True, slots=True)
class McpAnswer:
    """What is to be sent back at once: nothing of it concerns a tool."""

    message: dict[str, Any]


Event: TypeAlias = McpOpening | McpListing | McpCall | McpCancellation | McpAnswer


class McpReader:
    """Reads what one client sends on one connection."""

    def __init__(self, counters: StreamCounters) -> None:
        self._counters = counters
        self._agreed: str | None = None
        """The version of the handshake."""

    def feed(self, data: bytes | Mapping[str, Any]) -> Event | None:
        """What a message means; None for one that asks for nothing."""
        try:
            message = read_message(data, self._counters)
        except McpMalformed as error:
            return McpAnswer(error.fault.to_dict())
        if isinstance(message, McpRequest):
            return self._request(message)
        if isinstance(message, McpNotice):
            return self._notice(message)
        self._counters.unknown("reply")  # nothing is asked of a client here
        return None

    def _notice(self, notice: McpNotice) -> McpCancellation | None:
        if notice.method == "notifications/cancelled":
            named = notice.params.get("requestId")
            if _is_id(named):
                return McpCancellation(named, call_id(named))
            self._counters.malformed_events += 1
        elif notice.method not in _KNOWN_NOTICES:
            self._counters.unknown(notice.method)
        return None

    def _request(self, request: McpRequest) -> Event:
        if request.method == "initialize":
            wanted = text_in(request.params.get("protocolVersion"))
            self._agreed = wanted if wanted in HANDSHAKES else HANDSHAKES[0]
            return McpOpening(request.id, self._agreed)
        meta = object_in(request.params.get("_meta"))
        version = meta.get(_VERSION, self._agreed)
        if version is None:
            message = f'Say "{_VERSION}" in "_meta", or begin with "initialize".'
            return McpAnswer(McpFault(request.id, INVALID_PARAMS, message).to_dict())
        if version != self._agreed and version != MODERN:
            data = {"supported": [MODERN], "requested": version}
            return McpAnswer(McpFault(request.id, UNSUPPORTED_VERSION, "Unsupported protocol version", data).to_dict())
        if request.method == "server/discover":
            return McpOpening(request.id, version)
        if request.method == "tools/list":
            return McpListing(request.id, version, id_in(request.params.get("cursor")))
        if request.method == "tools/call":
            return self._called(request, version, meta)
        if request.method == "ping":
            return McpAnswer(_reply(request.id, {}, version))
        self._counters.unknown(request.method)
        return McpAnswer(McpFault(request.id, METHOD_NOT_FOUND, f"Method not found: {request.method[:80]}").to_dict())

    def _called(self, request: McpRequest, version: str, meta: Mapping[str, Any]) -> McpCall:
        """A call as it came. A missing name or wrong arguments are the pipeline's to refuse, in an envelope."""
        given = request.params.get("arguments")
        args = {} if given is None else bounded_args(given)
        made = Call(text_in(request.params.get("name")), args, call_id(request.id), PROVIDER, ID_SCOPE)
        token = meta.get("progressToken")
        return McpCall(request.id, version, made, id_in(meta.get(TURN)), token if _is_id(token) else None)


def call_id(named: MessageId) -> str:
    """The request's id as text; 2 and "2" are two ids."""
    return orjson.dumps(named).decode() if isinstance(named, str) or abs(named) < 2**63 else str(named)


def opened(asked: McpOpening, *, name: str, version: str) -> dict[str, Any]:
    """The answer to `McpOpening`: what we are, and that there are tools."""
    server = {"name": name, "version": version}
    if asked.version != MODERN:
        result = {"protocolVersion": asked.version, "capabilities": thaw(_TOOLS), "serverInfo": server}
        return _reply(asked.id, result, asked.version)
    facts = {"supportedVersions": [MODERN], "capabilities": thaw(_TOOLS), "_meta": {_SERVER: server}}
    return _reply(asked.id, {**facts, **_fresh()}, asked.version)


def listed(asked: McpListing, tools: Sequence[Mapping[str, Any]], *, cursor: str | None = None) -> dict[str, Any]:
    """The answer to `McpListing`: declarations as the adapter writes them, and where the next page begins."""
    result: dict[str, Any] = {"tools": [thaw(tool) for tool in tools]}
    if cursor is not None:
        result["nextCursor"] = cursor
    return _reply(asked.id, {**result, **_fresh()} if asked.version == MODERN else result, asked.version)


def answered(asked: McpCall, envelope: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `McpCall`: the full envelope, as text for old clients and as data."""
    failed = envelope.get("ok") is False or "error" in envelope
    content = [{"type": "text", "text": as_text(envelope)}]
    result = {"content": content, "structuredContent": thaw(envelope), "isError": failed}
    return _reply(asked.id, result, asked.version)


def progressed(asked: McpCall, number: int, text: str) -> dict[str, Any] | None:
    """How a call is getting on, for a client that asked to hear; the number must grow."""
    if asked.progress is None:
        return None
    params = {"progressToken": asked.progress, "progress": number, "message": text}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def tools_changed() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}


def _reply(named: MessageId, result: dict[str, Any], version: str) -> dict[str, Any]:
    complete = {"resultType": "complete", **result} if version == MODERN else result
    return {"jsonrpc": "2.0", "id": named, "result": complete}


def _fresh() -> dict[str, Any]:
    """What a user is offered depends on who asks, and may change with the next session."""
    return {"ttlMs": 0, "cacheScope": "private"}


def _is_id(value: object) -> TypeGuard[MessageId]:
    return isinstance(value, (str, int)) and not isinstance(value, bool)
