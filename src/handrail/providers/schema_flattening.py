"""A schema without `$ref`, `allOf` and keywords beside alternatives: formats with fewer keywords are written from this.

Several *parts* that all apply to one value (a schema, what it refers to, the members of its `allOf`) are merged into
one `FlatSchema`. Where one of them offers alternatives, every branch carries the keywords that stood beside it. Each keyword
keeps its path in the schema that the author wrote, so that a loss can name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from handrail.schema.subschemas import Json, LocalRefs, Path

ANNOTATIONS = frozenset(
    {
        "$anchor", "$comment", "$defs", "$dynamicAnchor", "$schema", "contentEncoding", "contentMediaType",
        "contentSchema", "default", "definitions", "deprecated", "description", "examples", "readOnly", "title",
        "writeOnly",
    }
)  # fmt: skip
"""Keywords that make no value valid or invalid."""

_COMBINING = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_GATHERED = frozenset({"properties", "required", "items"})
_AT_LEAST = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_UPPER_BOUNDS = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})

_MAX_LEAVES = 200


class SchemaConflict(Exception):
    """The parts cannot be made into one schema: `keyword` at `path` is in the way, and `why` ends a sentence."""

    def __init__(self, keyword: str, path: Path, why: str) -> None:
        super().__init__(why)
        self.keyword = keyword
        self.path = path
        self.why = why


@dataclass(frozen=True, slots=True)
class SchemaPart:
    """A schema and its path from the root."""

    schema: Json
    path: Path


SchemaParts = tuple[SchemaPart, ...]
"""Schemas that all apply to the same value."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    keyword: str
    path: Path
    branches: tuple[SchemaParts, ...]


@dataclass(frozen=True, slots=True)
class FlatSchema:
    """What the parts say together. With `alternatives`, `keywords` are those beside them, which the branches repeat."""

    path: Path
    keywords: Mapping[str, tuple[Json, Path]]
    properties: Mapping[str, SchemaParts] | None
    required: tuple[str, ...]
    items: SchemaParts
    alternatives: Alternatives | None
    inlined: frozenset[str]
    """The references that were followed."""

    def value(self, keyword: str) -> Json:
        """The keyword's value; None where it is not there."""
        return self.keywords.get(keyword, (None, ()))[0]


def flatten(parts: SchemaParts, refs: LocalRefs) -> FlatSchema:
    """The parts as one; `SchemaConflict` if they contradict each other or cannot be read off."""
    if len(parts) == 1 and isinstance(parts[0].schema, dict) and not _COMBINING & parts[0].schema.keys():
        return _alone(parts[0])
    plain: list[SchemaPart] = []
    alternatives: list[tuple[str, SchemaPart]] = []
    inlined: set[str] = set()
    try:
        for part in parts:
            _expand(part, refs, plain, alternatives, inlined)
    except RecursionError:  # a schema from elsewhere may be a chain of thousands of references
        raise SchemaConflict("$ref", parts[0].path, "it leads through too many others") from None
    # Two sets for one value would have to be multiplied out.
    if len(alternatives) > 1:
        keyword, part = alternatives[1]
        raise SchemaConflict(keyword, (*part.path, keyword), "it meets other alternatives for the same value")
    return FlatSchema(
        path=parts[0].path,
        keywords=_keywords(plain),
        properties=_properties(plain),
        required=tuple(dict.fromkeys(name for part in plain for name in part.schema.get("required", ()))),
        items=_items(plain),
        alternatives=_distributed(*alternatives[0], plain) if alternatives else None,
        inlined=frozenset(inlined),
    )


def _alone(part: SchemaPart) -> FlatSchema:
    """A schema with nothing to merge, as nearly all are."""
    schema, path = part.schema, part.path
    listed = schema.get("properties")
    return FlatSchema(
        path=path,
        keywords={key: (value, (*path, key)) for key, value in schema.items() if key not in _GATHERED},
        properties=None
        if listed is None
        else {name: (SchemaPart(one, (*path, "properties", name)),) for name, one in listed.items()},
        required=tuple(dict.fromkeys(schema.get("required", ()))),
        items=(SchemaPart(schema["items"], (*path, "items")),) if "items" in schema else (),
        alternatives=None,
        inlined=frozenset(),
    )


def leaves(parts: SchemaParts, refs: LocalRefs) -> list[FlatSchema]:
    """Every way to be valid for the parts, alternatives within alternatives unfolded; `SchemaConflict` as `flatten`."""
    found: list[FlatSchema] = []
    todo, seen = [parts], set[tuple[Path, ...]]()
    while todo:
        here = todo.pop(0)
        # By their places: alternatives that name themselves come back to the same ones for ever.
        key = tuple(part.path for part in here)
        if key in seen:
            continue
        seen.add(key)
        flat = flatten(here, refs)
        if flat.alternatives is None:
            found.append(flat)
        elif len(seen) > _MAX_LEAVES:
            raise SchemaConflict(flat.alternatives.keyword, flat.alternatives.path, "there are too many alternatives")
        else:
            # In front, so that the ways come in the order in which the author wrote them.
            todo[:0] = flat.alternatives.branches
    return found


def allows_null(parts: SchemaParts, refs: LocalRefs) -> bool:
    """Whether null is valid for the parts, as far as types, `enum` and `const` tell."""
    return any(fits_type(leaf, None) and is_listed(leaf, None) for leaf in leaves(parts, refs))


def fits_type(flat: FlatSchema, value: Json) -> bool:
    wanted = types_of(flat.value("type"))
    return not wanted or any(_is_type(value, name) for name in wanted)


def is_listed(flat: FlatSchema, value: Json) -> bool:
    """Whether `enum` and `const`, where they are given, name the value."""
    listed = flat.value("enum")
    if listed is not None and not any(equal(value, item) for item in listed):
        return False
    return "const" not in flat.keywords or equal(value, flat.value("const"))


def types_of(value: Json) -> tuple[str, ...]:
    """The value of a `type` keyword as a tuple; empty where there is none."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def equal(one: Json, other: Json) -> bool:
    """Equality of JSON values; in Python True would be 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


def _is_type(value: Json, name: str) -> bool:
    match value:
        case None:
            return name == "null"
        case bool():
            return name == "boolean"
        case int():
            return name in ("integer", "number")
        case float():
            return name == "number" or (name == "integer" and value.is_integer())
        case str():
            return name == "string"
        case Mapping():
            return name == "object"
        case _:
            return name == "array"


def _expand(
    part: SchemaPart,
    refs: LocalRefs,
    plain: list[SchemaPart],
    alternatives: list[tuple[str, SchemaPart]],
    inlined: set[str],
) -> None:
    """Sort the part, and all that it draws in, into plain schemas and those with alternatives."""
    schema, path = part.schema, part.path
    if schema is True:
        return
    if schema is False:
        raise SchemaConflict("false", path, "nothing is valid there")
    plain.append(SchemaPart({key: value for key, value in schema.items() if key not in _COMBINING}, path))
    alternatives.extend((keyword, part) for keyword in ("anyOf", "oneOf") if keyword in schema)
    if "$ref" in schema:
        _expand_ref(part, refs, plain, alternatives, inlined)
    for index, member in enumerate(schema.get("allOf", ())):
        _expand(SchemaPart(member, (*path, "allOf", index)), refs, plain, alternatives, inlined)


def _expand_ref(
    part: SchemaPart,
    refs: LocalRefs,
    plain: list[SchemaPart],
    alternatives: list[tuple[str, SchemaPart]],
    inlined: set[str],
) -> None:
    ref = part.schema["$ref"]
    if ref in inlined:  # said once, it says no more the second time; this also ends a circle
        return
    try:
        target = SchemaPart(refs.resolve(ref), refs.path(ref))
    except LookupError:
        raise SchemaConflict("$ref", (*part.path, "$ref"), "it does not lead to a place in the schema") from None
    inlined.add(ref)
    _expand(target, refs, plain, alternatives, inlined)


def _distributed(keyword: str, part: SchemaPart, plain: Iterable[SchemaPart]) -> Alternatives:
    """The branches, each together with the keywords that stand beside them. Annotations stay outside."""
    beside = [
        SchemaPart({key: value for key, value in other.schema.items() if key not in ANNOTATIONS}, other.path)
        for other in plain
    ]
    kept = tuple(other for other in beside if other.schema)
    path = (*part.path, keyword)
    branches = ((*kept, SchemaPart(branch, (*path, index))) for index, branch in enumerate(part.schema[keyword]))
    return Alternatives(keyword, path, tuple(branches))


def _properties(plain: Sequence[SchemaPart]) -> dict[str, SchemaParts] | None:
    found: dict[str, SchemaParts] = {}
    for part in plain:
        for name, schema in part.schema.get("properties", {}).items():
            found[name] = (*found.get(name, ()), SchemaPart(schema, (*part.path, "properties", name)))
    for part in plain:
        others = found.keys() - part.schema.get("properties", {})
        if others and part.schema.get("additionalProperties", True) is not True:
            path = (*part.path, "additionalProperties")
            raise SchemaConflict(
                "additionalProperties", path, "it speaks of properties that another schema for this object lists"
            )
    return found if any("properties" in part.schema for part in plain) else None


def _items(plain: Sequence[SchemaPart]) -> SchemaParts:
    found = tuple(SchemaPart(part.schema["items"], (*part.path, "items")) for part in plain if "items" in part.schema)
    for part in plain:
        # `items` speaks of what follows the prefix of its own schema, so the two cannot be gathered from several.
        if "prefixItems" in part.schema and any(item.path[:-1] != part.path for item in found):
            raise SchemaConflict(
                "prefixItems", (*part.path, "prefixItems"), "it meets items that are described elsewhere"
            )
    return found


def _keywords(plain: Sequence[SchemaPart]) -> dict[str, tuple[Json, Path]]:
    merged: dict[str, tuple[Json, Path]] = {}
    for part, keyword, value in _each(plain):
        path = (*part.path, keyword)
        if keyword not in merged:
            merged[keyword] = (value, path)
        elif keyword not in ANNOTATIONS:  # the outermost annotation is the most particular one
            merged[keyword] = (_both(keyword, merged[keyword][0], value, path), merged[keyword][1])
    return merged


def _each(plain: Sequence[SchemaPart]) -> Iterator[tuple[SchemaPart, str, Json]]:
    for part in plain:
        for keyword, value in part.schema.items():
            if keyword not in _GATHERED:
                yield part, keyword, value


def _both(keyword: str, one: Json, other: Json, path: Path) -> Json:
    """A value of the keyword that asks for what both values ask."""
    if equal(one, other):
        return one
    if keyword in _AT_LEAST:
        return max(one, other)
    if keyword in _UPPER_BOUNDS:
        return min(one, other)
    shared: Json = None
    if keyword == "type":
        shared = _shared_types(types_of(one), types_of(other))
    elif keyword == "enum":
        shared = [value for value in one if any(equal(value, item) for item in other)]
    if not shared:
        raise SchemaConflict(keyword, path, "it does not go together with another one for the same value")
    return shared


def _shared_types(one: Sequence[str], other: Sequence[str]) -> str | list[str]:
    shared = [name for name in one if name in other or (name == "integer" and "number" in other)]
    shared += [name for name in other if name == "integer" and "number" in one and name not in shared]
    return shared[0] if len(shared) == 1 else shared
