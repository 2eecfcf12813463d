"""Reading requests: bodies within their limit and in time, as strict JSON, field by field; numbers from queries and headers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request

from handrail.contract.errors import JsonError
from handrail.contract.fields import shown
from handrail.schema.strict_json import parse
from handrail.server.api.problems import HttpProblem
from handrail.server.host.hosted_session import OWN_IDS
from handrail.server.options import Options

_DEPTH = 40
_MAX_DIGITS = 12
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


async def read_object(request: Request, options: Options, known: Collection[str] | None) -> dict[str, Any]:
    """The JSON object in the body. A field that is not `known` is named; None lets every field pass."""
    raw = await _read(request, options)
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if raw and kind != "application/json":
        raise HttpProblem(415, "The body must be JSON, with the content type application/json.")
    try:
        value = parse(raw, max_bytes=options.max_body_bytes, max_depth=_DEPTH) if raw.strip() else {}
    except JsonError as error:
        raise HttpProblem(400, f"The body is not right: {error}") from None
    if not isinstance(value, dict):
        raise HttpProblem(400, "The body must be a JSON object.")
    strange = next((name for name in value if known is not None and name not in known), None)
    if strange is not None:
        has = f"it has {', '.join(sorted(known))}" if known else "it is empty"
        raise HttpProblem(400, f"The body has no field {shown(strange)}; {has}.")
    return value


async def _read(request: Request, options: Options) -> bytes:
    limit = options.max_body_bytes
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise HttpProblem(413, f"The body is larger than the {limit} bytes that are allowed.")
    context: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(options.slow_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise HttpProblem(413, f"The body is larger than the {limit} bytes that are allowed.")
                context.append(part)
    except TimeoutError:
        raise HttpProblem(408, "The body took too long to arrive.") from None
    except ClientDisconnect:
        raise HttpProblem(400, "The body ended before it was whole.") from None
    return b"".join(context)


def text_of(body: Mapping[str, Any], name: str, *, maximum: int, required: bool = False) -> str:
    """A text field; blank if it is not there and need not be."""
    value = body.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value.strip()):
        raise HttpProblem(400, f'"{name}" must be text{" that is not blank" if required else ""}.')
    if len(value) > maximum:
        raise HttpProblem(400, f'"{name}" has {len(value)} characters; at most {maximum} are allowed.')
    return value


def id_of(value: object, what: str) -> str:
    """An id that a client chose: short, and of plain characters."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise HttpProblem(400, f"{what} must be 1 to 128 letters, digits or any of _ . : -")
    if value.startswith(OWN_IDS):
        raise HttpProblem(400, f'{what} must not begin with "{OWN_IDS}": such ids are the server\'s own.')
    return value


def number_in(request: Request, name: str, default: int, *, maximum: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    number = int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdecimal() else 0
    if not 0 < number <= maximum:
        raise HttpProblem(400, f'"{name}" must be a whole number from 1 to {maximum}.')
    return number


def last_event_id(request: Request) -> int | None:
    """The last event that the client has seen, by header or query; None if it says nothing."""
    text = request.headers.get("last-event-id") or request.query_params.get("after")
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 16:
        raise HttpProblem(400, "Last-Event-ID (or `after`) must be the number of an event.")
    return int(text)
