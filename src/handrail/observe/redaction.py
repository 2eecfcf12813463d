"""Masks what must not reach the audit log: argument values that a tool's schema marks `writeOnly`, and names from the
configuration, at any depth. A redactor is compiled once per tool; a tool that has nothing to hide gets None, and its
calls pay nothing. In doubt, where several subschemas may apply to a value or looking would take too long, it is masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from handrail.contract.errors import SchemaError
from handrail.schema.effort import pattern_size, pattern_work
from handrail.schema.explain import Steps, matcher
from handrail.schema.subschemas import Json, LocalRefs, in_place, is_trivial, walk

REDACTED = "[redacted]"
MAX_DEPTH = 64
# More than the values of 64 KiB of arguments, at less than half a microsecond each.
MAX_STEPS = 40_000
_MAX_KEPT = 1_000
_OF_OBJECTS = ("additionalProperties", "unevaluatedProperties")
_OF_ARRAYS = ("items", "contains", "unevaluatedItems")


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
    return Redactor(schema if marked else None, folded)


class Redactor:
    """Masks arguments. Where a schema decides, the work is counted, and what is left when it is used up is masked."""

    __slots__ = ("_names", "_places", "_root")

    def __init__(self, schema: Mapping[str, Any] | None, names: frozenset[str]) -> None:
        self._names = names
        self._places = _Places(schema) if schema is not None else None
        self._root = self._places.of([schema], Steps(MAX_STEPS)) if self._places is not None else None

    def __call__(self, args: Any) -> Any:
        return self.redact(args, Steps(MAX_STEPS))

    def redact(self, args: Any, steps: Steps) -> Any:
        """The arguments with secrets masked; `steps` says afterwards how much work it was."""
        return REDACTED if isinstance(args, (str, bytes)) else self._masked(args, self._root, steps, 0)

    def _masked(self, value: Any, place: _Place | None, steps: Steps, depth: int) -> Any:
        if depth > MAX_DEPTH or (place is not None and (place.secret or not steps.spare(1))):
            return REDACTED
        if isinstance(value, Mapping):
            names, below = self._names, depth + 1
            return {
                key: REDACTED
                if names and isinstance(key, str) and key.casefold() in names
                else self._masked(item, place.key(key, steps) if place is not None else None, steps, below)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [
                self._masked(item, place.item(index, steps) if place is not None else None, steps, depth + 1)
                for index, item in enumerate(value)
            ]
        return value


class _Places:
    """The kinds of places in the arguments, each found when first met."""

    __slots__ = ("_known", "_refs")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._refs = LocalRefs(schema)
        self._known: dict[frozenset[int], _Place] = {}

    def of(self, schemas: list[Json], steps: Steps) -> _Place | None:
        """The place where the schemas may apply; None if there are none, a secret one if they are too many to look at."""
        if not schemas:
            return None
        if not steps.spare(len(schemas)):
            return _SECRET
        # Schemas are never collected while the redactor lives, so their ids stay theirs.
        key = frozenset(map(id, schemas))
        if key not in self._known:
            found = in_place(schemas, self._refs)
            if not steps.spare(2 * len(found)):
                return _SECRET
            if len(self._known) >= _MAX_KEPT:  # names from outside must not fill the memory
                self._known.clear()
            self._known[key] = _Place(found, self)
        return self._known[key]


class _Place:
    """A place in the arguments: the subschemas that may apply there, and which of them apply below."""

    __slots__ = ("_items", "_keys", "_longest", "_places", "_schemas", "secret")

    def __init__(self, schemas: list[Mapping[str, Json]], places: _Places | None) -> None:
        self._schemas = schemas
        self._keys: dict[str, _Place | None] = {}
        self._items: dict[int, _Place | None] = {}
        self._places = places
        self._longest = max((len(schema.get("prefixItems", ())) for schema in schemas), default=0)
        self.secret = places is None or any(schema.get("writeOnly") is True for schema in schemas)

    def key(self, name: str, steps: Steps) -> _Place | None:
        if name in self._keys:
            return self._keys[name]
        below = self._below((_at_key(schema, name, steps) for schema in self._schemas), steps)
        # Only names that the schema has: foreign ones could fill the memory.
        if below is not _SECRET and any(name in schema.get("properties", ()) for schema in self._schemas):
            self._keys[name] = below
        return below

    def item(self, index: int, steps: Steps) -> _Place | None:
        # Beyond the longest prefix all items are alike.
        index = min(index, self._longest)
        if index in self._items:
            return self._items[index]
        below = self._below((_at_item(schema, index) for schema in self._schemas), steps)
        if below is not _SECRET:
            self._items[index] = below
        return below

    def _below(self, found: Iterable[Iterator[Json]], steps: Steps) -> _Place | None:
        if self._places is None or not steps.spare(len(self._schemas)):
            return _SECRET
        return self._places.of([schema for some in found for schema in some], steps)


_SECRET = _Place([], None)


def _at_key(schema: Mapping[str, Json], name: str, steps: Steps) -> Iterator[Json]:
    known = False
    if name in schema.get("properties", {}):
        known = True
        yield schema["properties"][name]
    for pattern, subschema in schema.get("patternProperties", {}).items():
        # In doubt, a pattern matches and leaves the others in force.
        sure = steps.spare(1 + pattern_size(pattern) // 50 + pattern_work(pattern, len(name)) // 25)
        if not sure or matcher(pattern)(name):
            known = known or sure
            yield subschema
    if not known:
        yield from (schema[keyword] for keyword in _OF_OBJECTS if keyword in schema)


def _at_item(schema: Mapping[str, Json], index: int) -> Iterator[Json]:
    prefix = schema.get("prefixItems", ())
    if index < len(prefix):
        yield prefix[index]
    yield from (schema[keyword] for keyword in _OF_ARRAYS if keyword in schema)


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
