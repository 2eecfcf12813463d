"""Whether a value is one that a schema takes, and how the schema wants a time to be written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

from handrail.contract.errors import SchemaError
from handrail.schema.validator import CompiledSchema, compile_schema

_LOCAL = ("%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")
"""Forms of a date and time without an offset: the time where the person is."""
_SAMPLE = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
_SHOWN = re.compile(
    r"\b(?:\d{4}-\d\d-\d\d|YYYY-MM-DD)(?P<sign>[T ])(?:\d\d:\d\d|HH:MM)(?P<seconds>:\d\d|:SS)?(?P<offset>Z|[+-]\d\d)?"
)


def local_form(schema: Mapping[str, Any]) -> str | None:
    """How a date and time without an offset is written here; None if the schema does not ask for one."""
    if "format" in schema:
        return None
    if "pattern" in schema:
        plain = any(
            fits(schema, value) for value in ("word", "Two Words", "12345", "A-1001", "2026-01-31T09:30:00+01:00")
        )
        return None if plain else next((form for form in _LOCAL if fits(schema, _SAMPLE.strftime(form))), None)
    shown = _SHOWN.search(str(schema.get("description", "")))
    if shown is None or shown["offset"]:
        return None
    return f"%Y-%m-%d{shown['sign']}%H:%M{':%S' if shown['seconds'] else ''}"


def fits(schema: Mapping[str, Any], value: Any) -> bool:
    validator = _compiled(orjson.dumps(schema, default=dict))
    return validator is None or validator.is_valid(value)


@lru_cache(maxsize=2_048)
def _compiled(schema: bytes) -> CompiledSchema | None:
    try:
        return compile_schema(orjson.loads(schema))
    except SchemaError:
        return None  # refers to a part of the whole, which is checked at the end
