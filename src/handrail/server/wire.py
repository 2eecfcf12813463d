"""Values to bytes: JSON for bodies, frames for event streams. Whatever a tool or a model wrote, a frame stays one frame."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

from handrail.contract.frozen import for_json

_NAME = re.compile(r"[a-z][a-z_]{0,39}")
_LINE_ENDS = tuple((mark.encode(), f"\\u{ord(mark):04x}".encode()) for mark in "\x85\u2028\u2029")
HEARTBEAT = b": alive\n\n"


def to_json(value: Any) -> bytes:
    """JSON on one line, without anything that any reader of lines might take for its end, Unicode's own line ends included.

    What only the slower encoder takes (large integers, lone surrogates) is taken as well.
    """
    try:
        line = orjson.dumps(value, default=for_json)
    except TypeError:
        line = json.dumps(value, default=for_json, separators=(",", ":")).encode()
    for mark, escape in _LINE_ENDS:
        if mark in line:
            line = line.replace(mark, escape)
    return line


def frame(number: int, type: str, data: Any) -> bytes:
    """One event of a stream. JSON text has no raw line breaks, so no data can begin a field or an event of its own."""
    if not _NAME.fullmatch(type):
        raise ValueError(f"{type!r} cannot name an event.")
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, type.encode(), to_json(data))


def notice(type: str, data: Any) -> bytes:
    """An event without a number: it belongs to the connection, not to the session, and does not move its reader on."""
    return b"event: %b\ndata: %b\n\n" % (type.encode(), to_json(data))


def without_detail(type: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """An event as those may read it who do not run the server; the same object where there is nothing to leave out."""
    if type != "error" or "detail" not in data:
        return data
    return {name: value for name, value in data.items() if name != "detail"}
