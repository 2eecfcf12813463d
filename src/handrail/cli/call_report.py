"""A call as its audit lines tell it: what was sent, what became of it on its way, which validator judged, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from handrail.cli.output import printable


def block_of(event: Mapping[str, Any]) -> str:
    """One event of a call, a fact on each line."""
    return "\n".join([printable(_head(event)), *(f"  {name:<10} {printable(text)}" for name, text in _facts(event))])


def _head(event: Mapping[str, Any]) -> str:
    version = event.get("toolVersion")
    tool = f"  {event.get('toolId') or ''}{f' {version}' if version else ''}".rstrip()
    return f"{event.get('ts')}  {event.get('event')}{tool}"


def _facts(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if event.get("erased"):
        yield "erased", "the user was forgotten; what was said is gone"
    origin = [event.get("provider") or "the host", f"id {event['callId']}" if event.get("callId") else "without an id"]
    yield "sent by", ", ".join(map(str, origin))
    sent, validated = event.get("input"), event.get("args")
    if sent is not None:
        yield "sent", _text(sent) + _cut(event)
    parsed = event.get("parsed", validated)
    if parsed is not None:
        yield "parsed", _text(parsed)
    if validated is not None:
        yield "validated", _text(validated)
    for name in ("defaulted", "clamped"):
        if event.get(name):
            yield name, ", ".join(event[name])
    if event.get("repaired"):
        yield "repaired", "yes"
    validator = event.get("validator")
    if validator:
        took = f", took {event['validatorMs']} ms" if event.get("validatorMs") is not None else ""
        name = f"{validator.get('name')} {validator.get('version')}"
        yield "validator", f"{name}, compiled {validator.get('compiledAt') or 'at first use'}{took}"
    yield "ended", _end(event)


def _end(event: Mapping[str, Any]) -> str:
    duration = f" after {event['duration']} ms" if event.get("duration") is not None else ""
    if event.get("ok"):
        return f"ok{duration}"
    gate = f", refused by {event['gate']}" if event.get("gate") else ""
    message = f": {event['message']}" if event.get("message") else ""
    return f"{event.get('errorType') or 'not ok'}{gate}{duration}{message}"


def _cut(event: Mapping[str, Any]) -> str:
    return f" … ({event['inputBytes']:,} bytes in all)" if event.get("inputBytes") else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
