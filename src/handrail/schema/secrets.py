"""Which subschemas have something secret in them: a `writeOnly` value, or a property that the configuration names.

Where a caller sends a bare text in the place of an object with a secret in it, the text is likely to be that secret. So a
bare value is neither repeated nor written down wherever a subschema that applies to it has a secret at or below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from handrail.contract.errors import SchemaError
from handrail.schema.subschemas import Json, LocalRefs, applied_below, walk


class SecretHolders:
    """The subschemas of one schema at or below which something is secret. `names` are casefolded."""

    __slots__ = ("_ids",)

    def __init__(self, schema: Mapping[str, Json], names: frozenset[str] = frozenset()) -> None:
        self._ids = _holders(schema, names)

    def __bool__(self) -> bool:
        return self._ids is None or bool(self._ids)

    def __contains__(self, schema: Mapping[str, Json]) -> bool:
        return self._ids is None or id(schema) in self._ids


def is_bare(value: Json) -> TypeGuard[str | int | float]:
    """Whether a value can be a secret by itself: a text or a number."""
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _holders(schema: Mapping[str, Json], names: frozenset[str]) -> frozenset[int] | None:
    """The ids of the subschemas; None for all of them, where there are too many to look at."""
    try:
        parts = [part for _, part in walk(schema) if isinstance(part, dict)]
    except SchemaError:
        return None
    refs = LocalRefs(schema)
    above: dict[int, list[int]] = {}
    found: set[int] = set()
    for part in parts:
        if part.get("writeOnly") is True or _declares(part, names):
            found.add(id(part))
        for child in applied_below(part, refs):
            above.setdefault(id(child), []).append(id(part))
    todo = list(found)
    while todo:
        for one in above.get(todo.pop(), ()):
            if one not in found:
                found.add(one)
                todo.append(one)
    return frozenset(found)


def _declares(schema: Mapping[str, Json], names: frozenset[str]) -> bool:
    properties = schema.get("properties")
    return bool(names) and isinstance(properties, dict) and any(name.casefold() in names for name in properties)
