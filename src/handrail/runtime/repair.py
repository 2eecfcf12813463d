"""The one repair attempt: plain type slips such as `"3"` where 3 is wanted. Off by default; what it changes is untrusted.

Malformed JSON is mended by `schema.strict_json.repair`; this module mends values that parsed but have the wrong type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from handrail.schema.strict_json import MAX_SAFE_INTEGER
from handrail.schema.validator import Violation

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,15})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?")
_TRUTH = {"true": True, "false": False}


def mend_type_slips(
    value: dict[str, Any], violations: Iterable[Violation], schema: Mapping[str, Any]
) -> dict[str, Any] | None:
    """A copy in which numbers and truth values sent as text are what they should be; None if nothing could be mended."""
    mended: dict[str, Any] = _copy(value)
    changed = False
    for violation in violations:
        if violation.keyword == "type":
            changed |= _mend_at(mended, violation.pointer, schema)
    return mended if changed else None


def _mend_at(root: Any, pointer: str, schema: Mapping[str, Any]) -> bool:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    holder: Any = root
    wanted: Any = schema
    for position, step in enumerate(steps):
        wanted = _below(wanted, step)
        key: Any = int(step) if isinstance(holder, list) else step
        if position < len(steps) - 1:
            holder = holder[key]
            continue
        better = _convert(holder[key], wanted.get("type") if isinstance(wanted, Mapping) else None)
        if better is not None:
            holder[key] = better
            return True
    return False


def _below(schema: Any, step: str) -> Any:
    if not isinstance(schema, Mapping):
        return None
    if step.isdecimal() and "items" in schema:
        return schema["items"]
    return (schema.get("properties") or {}).get(step)


def _convert(value: Any, wanted: Any) -> Any:
    if not isinstance(value, str):
        return None
    text = value.strip()
    types = wanted if isinstance(wanted, (list, tuple)) else (wanted,)
    if "boolean" in types and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    if ("integer" in types or "number" in types) and _INTEGER.fullmatch(text):
        number = int(text)
        return number if abs(number) <= MAX_SAFE_INTEGER else None
    if "number" in types and _NUMBER.fullmatch(text):
        return float(text)
    return None


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
