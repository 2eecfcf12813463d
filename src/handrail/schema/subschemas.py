"""Where the subschemas of a JSON Schema are: which keywords hold them, what a local reference means, which ones may
apply at a place in an instance. The problem finder, the defaults plan and the sentences all look at schemas
through this. Nothing here recurses, so a hostile schema costs time in proportion to its limits and never the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from handrail.contract.errors import SchemaError
from handrail.schema.pointer import pointer

Json: TypeAlias = Any
"""A JSON value, or a schema that may still turn out to be none."""
Path: TypeAlias = tuple[str | int, ...]

MAX_SUBSCHEMAS = 5_000
MAX_DEPTH = 32

ONE_SCHEMA = frozenset(
    {
        "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
        "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
# `definitions` and `dependencies` left the standard, but its meta-schema still knows them and the engine obeys them.
SCHEMA_MAPS = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
HOLDERS = ONE_SCHEMA | SCHEMA_LISTS | SCHEMA_MAPS

# Keywords whose subschemas look at the same value as the schema they stand in, but need not hold for it.
_MAYBE = frozenset({"anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})


def children(schema: Mapping[str, Json]) -> Iterator[tuple[Path, Json]]:
    """The subschemas directly inside `schema`, each with its path from there. Ill-formed keywords are passed over."""
    for keyword in schema.keys() & HOLDERS:
        value = schema[keyword]
        if keyword in ONE_SCHEMA:
            if isinstance(value, (dict, bool)):
                yield (keyword,), value
        elif keyword in SCHEMA_LISTS:
            if isinstance(value, (list, tuple)):
                for index, item in enumerate(value):
                    yield (keyword, index), item
        elif isinstance(value, dict):
            for name, item in value.items():
                if isinstance(item, (dict, bool)):  # `dependencies` may hold lists of names as well
                    yield (keyword, name), item


def walk(schema: Json) -> Iterator[tuple[Path, Json]]:
    """Every subschema, the root first, with its path; `SchemaError` beyond the limits on number and depth."""
    level: list[tuple[Path, Json]] = [((), schema)]
    seen = 0
    depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise SchemaError(
                f"The schema nests more than {MAX_DEPTH} subschemas; flatten it, or take parts out into $defs.",
                pointer=pointer(level[0][0]),
            )
        below: list[tuple[Path, Json]] = []
        for path, subschema in level:
            seen += 1
            if seen > MAX_SUBSCHEMAS:
                raise SchemaError(f"The schema has more than {MAX_SUBSCHEMAS:,} subschemas; make it smaller.")
            yield path, subschema
            if isinstance(subschema, dict):
                below.extend(((*path, *step), child) for step, child in children(subschema))
        level = below
        depth += 1


class LocalRefs:
    """What the `#…` references of one schema point to."""

    __slots__ = ("_anchors", "_root", "_targets")

    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._anchors: dict[str, Path] | None = None
        self._targets: dict[str, Json] = {}

    def path(self, ref: str) -> Path:
        """The path that `ref` names in the schema; `LookupError` if there is nothing."""
        fragment = unquote(ref[1:])
        if ref[:1] != "#":
            raise LookupError(ref)
        if fragment[:1] not in ("", "/"):
            return self._anchored(fragment)
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in fragment.split("/")[1:]]
        path: list[str | int] = []
        place: Json = self._root
        for token in tokens:
            step: str | int = token
            if isinstance(place, (list, tuple)) and token.isdecimal():
                step = int(token)
            elif not isinstance(place, dict):
                raise LookupError(ref)
            place = place[step]
            path.append(step)
        return tuple(path)

    def resolve(self, ref: str) -> Json:
        """The schema that `ref` names; `LookupError` if there is none."""
        return at(self._root, self.path(ref))

    def target(self, schema: Mapping[str, Json]) -> Json:
        """What the `$ref` of `schema` points to; None if it has none, or one that leads nowhere."""
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return None
        if ref not in self._targets:
            try:
                self._targets[ref] = self.resolve(ref)
            except LookupError:
                self._targets[ref] = None
        return self._targets[ref]

    def _anchored(self, name: str) -> Path:
        if self._anchors is None:
            self._anchors = {
                subschema[keyword]: path
                for path, subschema in walk(self._root)
                if isinstance(subschema, dict)
                for keyword in ("$anchor", "$dynamicAnchor")
                if isinstance(subschema.get(keyword), str)
            }
        return self._anchors[name]


def applied_below(schema: Mapping[str, Json], refs: LocalRefs) -> list[Json]:
    """The subschemas that `schema` leads to: those inside it that it applies, and the targets of its references."""
    found = [child for path, child in children(schema) if path[0] not in ("$defs", "definitions")]
    return found + [refs.target({"$ref": schema[keyword]}) for keyword in ("$ref", "$dynamicRef") if keyword in schema]


def leads_back(schema: Mapping[str, Json], refs: LocalRefs) -> bool:
    """Whether a schema is reached again from itself."""
    seen: set[int] = set()
    todo = applied_below(schema, refs)
    while todo:
        one = todo.pop()
        if one is schema:
            return True
        if isinstance(one, dict) and id(one) not in seen:
            seen.add(id(one))
            todo.extend(applied_below(one, refs))
    return False


def at(value: Json, path: Iterable[str | int]) -> Json:
    """The value at `path`; `LookupError` if there is none."""
    for token in path:
        value = value[token]
    return value


def in_place_steps(schema: Json, refs: LocalRefs) -> Iterator[Json]:
    """The subschemas that may be applied to the same value as `schema`: its reference's target and its combinators'."""
    if not isinstance(schema, dict):
        return
    yield from always_steps(schema, refs)
    for keyword in schema.keys() & _MAYBE:
        value = schema[keyword]
        if keyword in SCHEMA_LISTS:
            yield from value
        elif keyword in SCHEMA_MAPS:
            yield from value.values()
        else:
            yield value


def always_steps(schema: Mapping[str, Json], refs: LocalRefs) -> Iterator[Json]:
    """The subschemas that are always applied to the same value as `schema`."""
    if "$ref" in schema:
        yield refs.target(schema)
    if "allOf" in schema:
        yield from schema["allOf"]


def in_place(
    schemas: Iterable[Json],
    refs: LocalRefs,
    max_found: int = MAX_SUBSCHEMAS,
    count: Callable[[int], None] | None = None,
) -> list[Mapping[str, Json]]:
    """`schemas`, and all that may be applied to the same value because of them; the search ends when it has `max_found`.

    `count` learns of each how many parts it has, and may end the search by an exception.
    """
    return _closure(schemas, refs, in_place_steps, max_found, count)


def unconditional(schemas: Iterable[Json], refs: LocalRefs) -> list[Mapping[str, Json]]:
    """`schemas`, and all that are always applied to the same value because of them."""
    return _closure(schemas, refs, always_steps)


def _closure(
    schemas: Iterable[Json],
    refs: LocalRefs,
    steps: Callable[[Mapping[str, Json], LocalRefs], Iterator[Json]],
    max_found: int = MAX_SUBSCHEMAS,
    count: Callable[[int], None] | None = None,
) -> list[Mapping[str, Json]]:
    found: dict[int, Mapping[str, Json]] = {}
    todo = list(schemas)[::-1]
    while todo and len(found) < max_found:
        schema = todo.pop()
        if isinstance(schema, dict) and id(schema) not in found:
            found[id(schema)] = schema
            parts = list(steps(schema, refs))
            if count is not None:
                count(len(parts))
            todo.extend(parts[::-1])
    return list(found.values())


def descend(schema: Mapping[str, Json], token: str | int) -> Iterator[Json]:
    """The subschemas that may apply to the member `token` of a value that `schema` applies to."""
    others: tuple[str, ...] = ("items", "contains", "unevaluatedItems")
    if isinstance(token, str):
        properties = schema.get("properties", {})
        if token in properties:
            yield properties[token]
        yield from schema.get("patternProperties", {}).values()
        others = ("additionalProperties", "unevaluatedProperties")
    else:
        prefix = schema.get("prefixItems", ())
        if token < len(prefix):
            yield prefix[token]
    yield from (schema[keyword] for keyword in others if keyword in schema)


def is_trivial(schema: Json) -> bool:
    """Whether the subschema takes everything and says nothing: `true` or `{}`."""
    return schema is True or schema == {}
