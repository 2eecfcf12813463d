"""Masks what must not reach the audit log: argument values that a tool's schema marks `writeOnly`, and names from the
configuration, at any depth. A redactor is compiled once per tool; a tool that has nothing to hide gets None, and its
calls pay nothing. In doubt, where several subschemas may apply to a value, it is masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from handrail.contract.errors import SchemaError
from handrail.schema.subschemas import Json, LocalRefs, in_place, is_trivial, walk

REDACTED = "[redacted]"
MAX_DEPTH = 64
_OF_OBJECTS = ("additionalProperties", "unevaluatedProperties")
_OF_ARRAYS = ("items", "contains", "unevaluatedItems")

Redactor: TypeAlias = Callable[[Any], Any]


def compile_redactor(
    schema: Mapping[str, Any] | None, names: Sequence[str], *, validated: bool = False
) -> Redactor | None:
    """What masks the arguments of a tool; None if there is nothing to mask.

    `validated` promises that the arguments fit the schema: names that it does not let in then need no look. Text that
    should have been JSON cannot be looked into, so a redactor masks it whole.
    """
    folded = frozenset(name.casefold() for name in names)
    marked = schema is not None and _has_mark(schema)
    if not marked and (not folded or (validated and schema is not None and not _admits(schema, folded))):
        return None
    root = _Place([schema], LocalRefs(schema)) if marked and schema is not None else None

    def redact(args: Any) -> Any:
        return REDACTED if isinstance(args, (str, bytes)) else _masked(args, root, folded, 0)

    return redact


class _Place:
    """A place in the arguments: the subschemas that may apply there, and the places below, found when first met."""

    __slots__ = ("_items", "_keys", "_refs", "_schemas", "secret")

    def __init__(self, schemas: Iterable[Json], refs: LocalRefs) -> None:
        self._refs = refs
        self._schemas = in_place(schemas, refs)
        self._keys: dict[str, _Place | None] = {}
        self._items: dict[int, _Place | None] = {}
        self.secret = any(schema.get("writeOnly") is True for schema in self._schemas)

    def key(self, name: str) -> _Place | None:
        if name in self._keys:
            return self._keys[name]
        below = self._below(_at_key(schema, name) for schema in self._schemas)
        # Only names that the schema has: foreign ones could fill the memory.
        if any(name in schema.get("properties", ()) for schema in self._schemas):
            self._keys[name] = below
        return below

    def item(self, index: int) -> _Place | None:
        # Beyond the longest prefix all items are alike.
        index = min(index, max((len(schema.get("prefixItems", ())) for schema in self._schemas), default=0))
        if index not in self._items:
            self._items[index] = self._below(_at_item(schema, index) for schema in self._schemas)
        return self._items[index]

    def _below(self, found: Iterable[Iterator[Json]]) -> _Place | None:
        schemas = [schema for some in found for schema in some]
        return _Place(schemas, self._refs) if schemas else None


def _at_key(schema: Mapping[str, Json], name: str) -> Iterator[Json]:
    known = False
    if name in schema.get("properties", {}):
        known = True
        yield schema["properties"][name]
    for pattern, subschema in schema.get("patternProperties", {}).items():
        if _matches(pattern, name):
            known = True
            yield subschema
    if not known:
        yield from (schema[keyword] for keyword in _OF_OBJECTS if keyword in schema)


def _at_item(schema: Mapping[str, Json], index: int) -> Iterator[Json]:
    prefix = schema.get("prefixItems", ())
    if index < len(prefix):
        yield prefix[index]
    yield from (schema[keyword] for keyword in _OF_ARRAYS if keyword in schema)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True  # a pattern in another dialect: it may match


def _masked(value: Any, place: _Place | None, names: frozenset[str], depth: int) -> Any:
    if (place is not None and place.secret) or depth > MAX_DEPTH:
        return REDACTED
    if isinstance(value, Mapping):
        return {
            key: REDACTED
            if names and isinstance(key, str) and key.casefold() in names
            else _masked(item, place.key(key) if place is not None else None, names, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _masked(item, place.item(index) if place is not None else None, names, depth + 1)
            for index, item in enumerate(value)
        ]
    return value


def _has_mark(schema: Mapping[str, Any]) -> bool:
    try:
        return any(isinstance(found, dict) and found.get("writeOnly") is True for _, found in walk(schema))
    except SchemaError:
        return True  # too large to look through: the walk over the arguments will tell


def _admits(schema: Mapping[str, Any], names: frozenset[str]) -> bool:
    """Whether arguments that fit the schema may hold one of the names, as far as a look at each subschema can tell."""
    try:
        return any(_admits_here(path, found, names) for path, found in walk(schema))
    except SchemaError:
        return True


def _admits_here(path: tuple[str | int, ...], schema: Json, names: frozenset[str]) -> bool:
    if schema is False:
        return False
    if is_trivial(schema) or not isinstance(schema, dict):
        return True
    if any(name.casefold() in names for name in schema.get("properties", {})):
        return True
    if {"$ref", "enum", "const"} & schema.keys():
        # The target of a reference is looked at where it stands; listed values are the author's, not a caller's.
        return False
    kinds = schema.get("type")
    listed = [kinds] if isinstance(kinds, str) else kinds or ["object", "array"]
    open_object = "object" in listed and schema.get("additionalProperties") is not False
    open_array = "array" in listed and not is_closed_array(schema)
    return open_object or open_array


def is_closed_array(schema: Mapping[str, Json]) -> bool:
    """Whether every item of an array is described by a subschema, which is then looked at itself."""
    return "items" in schema and not is_trivial(schema["items"])
