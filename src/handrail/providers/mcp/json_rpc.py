"""JSON-RPC as MCP uses it: bytes → one message of four kinds, or the error for its sender. Pure.

Both sides read with this: a server what a client asks, a client what a server answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from handrail.providers.event_stream import MAX_EVENT_BYTES, StreamCounters, object_in, text_in

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
UNSUPPORTED_VERSION = -32022

MessageId: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class McpRequest:
    """Something that is to be answered under its id."""

    id: MessageId
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class McpNotice:
    """A notification, which is not answered."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class McpReply:
    """The result of a request. `kind`: `complete`, `input_required` (asked again with more), or `task` (to be looked up)."""

    id: MessageId
    result: Mapping[str, Any]

    @property
    def kind(self) -> str:
        if isinstance(self.result.get("task"), dict):  # as it was said up to 2025-11-25
            return "task"
        return text_in(self.result.get("resultType")) or "complete"

    @property
    def is_error(self) -> bool:
        return self.result.get("isError") is True


@dataclass(frozen=True, slots=True)
class McpFault:
    """The error that a request ended in; None for one whose id could not be read."""

    id: MessageId | None
    code: int
    message: str
    data: Any = None

    def to_dict(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return {"jsonrpc": "2.0", "id": self.id, "error": error}


Message: TypeAlias = McpRequest | McpNotice | McpReply | McpFault


class McpMalformed(Exception):
    """No message. `fault` is the error for its sender, where it may have been a request."""

    def __init__(self, fault: McpFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def read_message(data: bytes | Mapping[str, Any], counters: StreamCounters) -> Message:
    """The message in these bytes, or in their JSON; `McpMalformed`, counted, if there is none."""
    if isinstance(data, bytes) and len(data) > MAX_EVENT_BYTES:
        counters.oversized_events += 1
        raise McpMalformed(McpFault(None, INVALID_REQUEST, "The message is too large."))
    try:
        found = orjson.loads(data) if isinstance(data, bytes) else data
    except orjson.JSONDecodeError:
        raise _malformed(counters, None, "The message is no JSON.", PARSE_ERROR) from None
    if not isinstance(found, Mapping):
        raise _malformed(counters, None, "A message is one JSON object; batches are not taken.")
    own = found.get("id")
    has_id = isinstance(own, (str, int)) and not isinstance(own, bool)
    named: MessageId | None = own if has_id else None
    if found.get("jsonrpc") != "2.0":
        raise _malformed(counters, named, 'A message says "jsonrpc": "2.0".')
    if "method" in found:
        return _asked(found, named, counters)
    if "error" in found:
        error = object_in(found["error"])
        code = error.get("code")
        return McpFault(named, code if isinstance(code, int) else 0, text_in(error.get("message")), error.get("data"))
    if named is None or not isinstance(found.get("result"), dict):
        raise _malformed(counters, named, 'A message has a "method", a "result" or an "error".')
    return McpReply(named, found["result"])


def _asked(found: Mapping[str, Any], named: MessageId | None, counters: StreamCounters) -> McpRequest | McpNotice:
    method, params = found["method"], found.get("params", {})
    if not isinstance(method, str):
        raise _malformed(counters, named, '"method" is text.')
    if not isinstance(params, dict):
        raise _malformed(counters, named, '"params" is an object.', INVALID_PARAMS)
    if "id" not in found:
        return McpNotice(method, params)
    if named is None:
        raise _malformed(counters, None, '"id" is text or a whole number.')
    return McpRequest(named, method, params)


def _malformed(
    counters: StreamCounters, named: MessageId | None, message: str, code: int = INVALID_REQUEST
) -> McpMalformed:
    counters.malformed_events += 1
    return McpMalformed(McpFault(named, code, message))
