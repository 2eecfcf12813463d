"""Masks what must not reach the audit log: argument values that a tool's schema marks `writeOnly`, and names from the
configuration, at any depth. A redactor is compiled once per tool; a tool that has nothing to hide gets None, and its
calls pay nothing. In doubt, where several subschemas may apply to a value or looking would take too long, it is masked; so
is a bare text or number in the place of an object or a list that has a secret in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handrail.contract.errors import SchemaError
from handrail.contract.provenance import REDACTED
from handrail.schema.explain import Steps, compile_matcher
from handrail.schema.pattern_cost import pattern_cost, pattern_work
from handrail.schema.secrets import SecretHolders, is_bare
from handrail.schema.subschemas import Json, LocalRefs, in_place, is_trivial, walk

MAX_DEPTH = 64
# Arguments of 64 KiB have at most 32,768 values, and none of them is masked only because they are many. At less than half a
# microsecond each, that is 20 ms.
MAX_STEPS = 40_000
# In the units of `pattern_work`: what a step stands for, and what a call of a matcher takes that the processor does not hold.
_WORK_PER_STEP, _MATCHER_CALL = 25, 100
_MAX_KEPT = 1_000
_BARE = (str, int, float, type(None))
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
    return Redactor(schema if marked or (schema is not None and SecretHolders(schema, folded)) else None, folded)


class Redactor:
    """Masks arguments. Where a schema decides, the work is counted, and what is left when it is used up is masked."""

    __slots__ = ("_names", "_places", "_root")

    def __init__(self, schema: Mapping[str, Any] | None, names: frozenset[str]) -> None:
        self._names = names
        self._places = _RedactionPlaces(schema, names) if schema is not None else None
        self._root = self._places.of([schema], Steps(MAX_STEPS)) if self._places is not None else None

    def __call__(self, args: Any) -> Any:
        return self.redact(args, Steps(MAX_STEPS))

    def redact(self, args: Any, steps: Steps) -> Any:
        """The arguments with secrets masked; `steps` says afterwards how much work it was."""
        return REDACTED if isinstance(args, (str, bytes)) else self._masked(args, self._root, steps, 0)

    def _masked(self, value: Any, place: _RedactionPlace | None, steps: Steps, depth: int) -> Any:
        if depth > MAX_DEPTH or (place is not None and place.secret):
            return REDACTED
        if isinstance(value, _BARE):
            return REDACTED if place is not None and place.holds_secret and is_bare(value) else value
        if isinstance(value, Mapping):
            if place is not None and not steps.spare(1 + len(value)):
                return REDACTED
            return self._masked_members(value, place, steps, depth + 1)
        if isinstance(value, (list, tuple)):
            if place is None:
                return [self._masked(item, None, steps, depth + 1) for item in value]
            if not steps.spare(1 + len(value)):
                return REDACTED
            return [self._masked(item, place.item(index, steps), steps, depth + 1) for index, item in enumerate(value)]
        return REDACTED if place is not None and place.holds_secret and is_bare(value) else value

    def _masked_members(self, value: Mapping[Any, Any], place: _RedactionPlace | None, steps: Steps, depth: int) -> Any:
        names = self._names
        return {
            key: REDACTED
            if names and isinstance(key, str) and key.casefold() in names
            else self._masked(item, place.key(key, steps) if place is not None else None, steps, depth)
            for key, item in value.items()
        }


class _RedactionPlaces:
    """The kinds of places in the arguments, each found when first met."""

    __slots__ = ("_known", "_matching_steps", "_refs", "holders", "matchers")

    def __init__(self, schema: Mapping[str, Any], names: frozenset[str]) -> None:
        self._refs = LocalRefs(schema)
        self._known: dict[frozenset[int], _RedactionPlace] = {}
        self.holders = SecretHolders(schema, names)
        # Compiling and judging a pattern takes a hundred times as long as matching a name, so it is not left to the calls.
        self.matchers = {pattern: compile_matcher(pattern) for pattern in _patterns_of_names(schema)}
        for pattern in self.matchers:
            pattern_cost(pattern)
        self._matching_steps: dict[tuple[int, int], int] = {}

    def of(self, schemas: list[Json], steps: Steps) -> _RedactionPlace | None:
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
            self._known[key] = _RedactionPlace(found, self)
        return self._known[key]

    def matching_steps(self, schema: Mapping[str, Json], length: int) -> int:
        """How many steps it takes to match a name of this length with all patterns of a schema."""
        key = id(schema), length
        steps = self._matching_steps.get(key)
        if steps is None:
            if len(self._matching_steps) >= _MAX_KEPT:
                self._matching_steps.clear()
            patterns = schema["patternProperties"]
            known = self.matchers.keys() >= patterns.keys()
            work = sum(_MATCHER_CALL + pattern_work(pattern, length) for pattern in patterns) // _WORK_PER_STEP
            steps = self._matching_steps[key] = work if known else MAX_STEPS + 1
        return steps


class _RedactionPlace:
    """A place in the arguments: the subschemas that may apply there, and which of them apply below."""

    __slots__ = (
        *("_by_pattern", "_items", "_keys", "_longest", "_names", "_of_foreign_names", "_places", "_schemas"),
        *("holds_secret", "secret"),
    )

    def __init__(self, schemas: list[Mapping[str, Json]], places: _RedactionPlaces | None) -> None:
        self._schemas = schemas
        self._keys: dict[str | None, _RedactionPlace | None] = {}
        self._names = frozenset(name for schema in schemas for name in schema.get("properties", ()))
        self._by_pattern = [schema for schema in schemas if "patternProperties" in schema]
        others = [schema for schema in schemas if "patternProperties" not in schema]
        self._of_foreign_names = [schema[keyword] for schema in others for keyword in _OF_OBJECTS if keyword in schema]
        """What schemas without patterns say of every name that none of them has: the same for all."""
        self._items: dict[int, _RedactionPlace | None] = {}
        self._places = places
        self._longest = max((len(schema.get("prefixItems", ())) for schema in schemas), default=0)
        self.secret = places is None or any(schema.get("writeOnly") is True for schema in schemas)
        self.holds_secret = places is None or any(schema in places.holders for schema in schemas)

    def key(self, name: str, steps: Steps) -> _RedactionPlace | None:
        declared = name in self._names
        # Names that no schema has are all alike, unless a pattern tells them apart.
        kept = name if declared else None
        if (declared or not self._by_pattern) and kept in self._keys:
            return self._keys[kept]
        if self._places is None or not steps.spare(len(self._schemas)):
            return _SECRET
        found: list[Json] = [] if declared else list(self._of_foreign_names)
        for schema in self._schemas if declared else self._by_pattern:
            if not self._find_at_key(schema, name, steps, found):
                return _SECRET
        below = self._places.of(found, steps)
        # Only names that the schema has: foreign ones could fill the memory.
        if below is not _SECRET and (declared or not self._by_pattern):
            self._keys[kept] = below
        return below

    def _find_at_key(self, schema: Mapping[str, Json], name: str, steps: Steps, found: list[Json]) -> bool:
        """Add what a schema says of a member; False if that cannot be found out with the steps that are left."""
        assert self._places is not None
        known = False
        if name in schema.get("properties", {}):
            known = True
            found.append(schema["properties"][name])
        if patterns := schema.get("patternProperties"):
            if not steps.spare(self._places.matching_steps(schema, len(name))):
                return False
            matchers = self._places.matchers
            matching = [subschema for pattern, subschema in patterns.items() if matchers[pattern](name)]
            known = known or bool(matching)
            found.extend(matching)
        if not known:
            found.extend(schema[keyword] for keyword in _OF_OBJECTS if keyword in schema)
        return True

    def item(self, index: int, steps: Steps) -> _RedactionPlace | None:
        # Beyond the longest prefix all items are alike.
        index = min(index, self._longest)
        if index in self._items:
            return self._items[index]
        if self._places is None or not steps.spare(len(self._schemas)):
            return _SECRET
        below = self._places.of([one for schema in self._schemas for one in _at_item(schema, index)], steps)
        if below is not _SECRET:
            self._items[index] = below
        return below


_SECRET = _RedactionPlace([], None)


def _at_item(schema: Mapping[str, Json], index: int) -> Iterator[Json]:
    prefix = schema.get("prefixItems", ())
    if index < len(prefix):
        yield prefix[index]
    yield from (schema[keyword] for keyword in _OF_ARRAYS if keyword in schema)


def _patterns_of_names(schema: Mapping[str, Json]) -> set[str]:
    try:
        parts = [part for _, part in walk(schema) if isinstance(part, dict)]
    except SchemaError:
        return set()  # names that may match one are then taken for secret
    return {pattern for part in parts for pattern in part.get("patternProperties", ())}


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
