"""The arguments in the body of a `tools/call`, as they were written: which an ordinary reader of JSON may drop.

The SDK's reader keeps the last of two members of one name, and takes hundreds of milliseconds for a body of many small values.
So arguments that the exact reader refuses reach the pipeline as text, which it refuses with a message of its own; the SDK gets
the request without them.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from handrail.contract.errors import JsonError
from handrail.schema.strict_json import MAX_ARGUMENT_BYTES, parse_arguments

WRITTEN_ARGUMENTS = "handrail.arguments"
"""Where a request's scope has them."""
MAX_TOKENS = 60_000
"""Before its arguments, no request has more names and values."""
# A string that does not end is a token to the end of the body: searched on from its every quote, it would take minutes.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}:,]', re.DOTALL)
_CALL = "tools/call"


class TooManyValues(Exception):
    """A body that is a work of minutes for whoever reads it further."""


class RequestBody(NamedTuple):
    """What the SDK reads, and the arguments that it must not."""

    body: bytes
    arguments: str | None = None


def read_request(raw: bytes) -> RequestBody:
    """The body of a request, its arguments taken out if they are not acceptable."""
    if _has_each_name_once(raw):
        return RequestBody(raw)
    found = _span_of_arguments(raw)
    if found is None:
        return RequestBody(raw)
    text = raw[found[0] : found[1]].decode("utf-8", "replace")
    try:
        parse_arguments(text)
    except JsonError:
        pass
    else:
        return RequestBody(raw)
    try:
        request: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        request = None
    params = request.get("params") if isinstance(request, dict) else None
    if not isinstance(params, dict) or request.get("method") != _CALL:
        return RequestBody(raw)  # for the SDK to refuse
    params["arguments"] = {}
    return RequestBody(orjson.dumps(request), text)


def _has_each_name_once(raw: bytes) -> bool:
    """Whether a small body surely says nothing twice: an ordinary reader has dropped none of its quotes. What else is wrong with
    arguments the pipeline sees in what was read."""
    if len(raw) > MAX_ARGUMENT_BYTES or b"\\" in raw:
        return False
    try:
        return orjson.dumps(orjson.loads(raw)).count(b'"') == raw.count(b'"')
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return False


def _span_of_arguments(raw: bytes) -> tuple[int, int] | None:
    """Where the object `params.arguments` begins and ends; or its beginning, if it is too long anyway."""
    depth, key, begun, found = 0, b"", -1, None
    path: list[bytes] = [b"", b""]
    expects_key = False
    for number, token in enumerate(_TOKEN.finditer(raw)):
        if begun >= 0 and token.end() - begun > MAX_ARGUMENT_BYTES:
            return begun, begun + MAX_ARGUMENT_BYTES + 1
        if number > MAX_TOKENS and begun < 0:
            raise TooManyValues
        kind = raw[token.start() : token.start() + 1]
        if kind in b"{[":
            if kind == b"{" and depth == 2 and path == [b"params", b"arguments"]:
                begun = token.start()
            depth += 1
            expects_key = kind == b"{"
        elif kind in b"}]":
            depth -= 1
            if depth == 2 and begun >= 0:
                found, begun = (begun, token.end()), -1
            expects_key = False
        elif kind == b",":
            expects_key = True
        elif kind == b":":
            expects_key = False
            if 1 <= depth <= 2 and begun < 0:
                path[depth - 1] = key
        elif expects_key and depth <= 2:
            key = _name_in(token[0])
    return found


def _name_in(token: bytes) -> bytes:
    if b"\\" not in token:
        return token[1:-1]
    try:
        return str(orjson.loads(token)).encode()
    except orjson.JSONDecodeError:
        return b""
