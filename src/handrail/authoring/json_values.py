"""From the values that a decorated tool returns, or has as defaults, to plain JSON data.

Dataclasses and Pydantic models become objects, sets and tuples lists, dates ISO 8601 text, members of an Enum their values.
What JSON has already is left as it is, and so is what nobody knows: the check of the result names it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from handrail.contract.envelope import ToolResponse

_AS_IS = frozenset({str, int, float, bool, type(None)})


def to_json(value: Any) -> Any:
    """The value as JSON data; an envelope keeps its form, and its data is converted."""
    if type(value) in _AS_IS:
        return value
    if isinstance(value, ToolResponse):
        return value._replace(data=to_json(value.data))
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    if hasattr(value, "__pydantic_serializer__") and "pydantic" in sys.modules:
        return _from_pydantic(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _from_mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {to_json(key): to_json(item) for key, item in value.items()}


def _from_set(value: set[Any] | frozenset[Any]) -> list[Any]:
    items = [to_json(item) for item in value]
    try:
        return sorted(items)  # a set has no order, and the same result should be the same bytes
    except TypeError:
        return items


def _from_pydantic(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    return sys.modules["pydantic"].TypeAdapter(type(value)).dump_python(value, mode="json", by_alias=True)


_CONVERSIONS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, lambda value: to_json(value.value)),
    (dict, _from_mapping),
    ((list, tuple), lambda value: [to_json(item) for item in value]),
    ((datetime, date, time), lambda value: value.isoformat()),
    (UUID, str),
    (Decimal, lambda value: format(value, "f")),
    ((set, frozenset), _from_set),
    (Mapping, _from_mapping),
)
"""In the order in which they are tried: an Enum may be a text as well."""
