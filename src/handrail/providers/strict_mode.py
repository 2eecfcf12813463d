"""Strict mode: a schema in the dialect of a provider that makes a model keep to it.

Such a dialect knows few keywords. What it has no keyword for is put into the description and reported, and a schema that
cannot be said at all is not sent strict. A dialect without optional properties gets them as ones that may be null;
`optional_nulls.py` undoes that in the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from handrail.contract.frozen import thaw
from handrail.providers.adapted import Loss
from handrail.providers.keyword_notes import phrase, with_phrases
from handrail.providers.root_schema import RootSchema
from handrail.providers.schema_flattening import (
    ANNOTATIONS,
    Alternatives,
    FlatSchema,
    SchemaConflict,
    SchemaPart,
    SchemaParts,
    allows_null,
    flatten,
    leaves,
    types_of,
)
from handrail.providers.schema_references import SchemaReferences
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import Json, Path, children

Excess = Iterable[tuple[str, str]]
"""Limits that a schema exceeds: the keyword that does so, and how, as the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictDialect:
    """How one provider's strict mode differs from another's."""

    kept: frozenset[str]
    """Keywords about one value that are written as they are."""
    formats: frozenset[str]
    exceeded: Callable[[Mapping[str, Json]], Excess]
    max_min_items: int | None = None
    """The largest `minItems` that is kept; None if there is no limit."""
    optional: bool = False
    """Whether a property may be optional; where not, it may be null instead."""
    type_lists: bool = True
    recursion: bool = True

    def keeps(self, keyword: str, value: Json) -> bool:
        if keyword == "format":
            return value in self.formats
        if keyword == "minItems" and self.max_min_items is not None:
            return bool(value <= self.max_min_items)
        return keyword in self.kept


_CONSTRAINTS = frozenset(
    {
        "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
        "minLength", "maxLength", "uniqueItems", "contains", "minContains", "maxContains", "minProperties",
        "maxProperties", "dependentRequired", "unevaluatedItems", "format",
    }
)  # fmt: skip
_IMPOSSIBLE = frozenset(
    {
        "not", "if", "patternProperties", "propertyNames", "dependentSchemas", "dependencies", "$dynamicRef", "$id",
    }
)  # fmt: skip
_PLAIN_WORDS = frozenset({"examples", "deprecated", "contentEncoding", "contentMediaType", "contentSchema"})
# Written from more than their own value, or nothing to anybody who sends arguments.
_ELSEWHERE = ANNOTATIONS | {
    "$ref", "additionalProperties", "const", "else", "enum", "then", "type", "unevaluatedProperties",
}  # fmt: skip

# What stops references that multiply when written out, and chains of them. Far beyond what strict mode takes.
_MAX_WRITTEN = 12_000
_MAX_DEPTH = 64
_UNTYPED = "strict mode takes no value without a type"
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


@dataclass(frozen=True, slots=True)
class StrictSchema:
    """The schema in the strict dialect; None if there is none, and then the losses say why."""

    schema: dict[str, Json] | None
    losses: tuple[Loss, ...]


def to_strict(parameters: Mapping[str, Json], dialect: StrictDialect) -> StrictSchema:
    """The parameters (a valid JSON Schema of an object) in the strict dialect. They are not changed."""
    conversion = _Conversion(parameters, dialect)
    try:
        schema = conversion.root()
        for keyword, why in () if conversion.obstacles else dialect.exceeded(schema):
            conversion.block(keyword, (), why)
    except _TooLarge:
        schema = {}
        conversion.block("$ref", (), "with references written out it is larger than strict mode takes")
    if conversion.obstacles:
        return StrictSchema(None, tuple(dict.fromkeys(conversion.obstacles)))
    return StrictSchema(schema, tuple(dict.fromkeys(conversion.losses)))


def attempt(root: RootSchema, dialect: StrictDialect) -> StrictSchema:
    """A tool's parameters in the strict dialect, without what its root may not have."""
    if root.only_in_branches:
        done = "its properties cannot be listed at the root in strict mode, so the tool is sent non-strict"
        return StrictSchema(None, tuple(Loss(keyword, f"/{keyword}", done) for keyword in root.refused))
    return to_strict(root.rest, dialect)


def every_schema(schema: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """The schema and every one inside it; for measuring what was written."""
    yield schema
    for _, child in children(schema):
        if isinstance(child, Mapping):
            yield from every_schema(child)


class _TooLarge(Exception):
    """References written out in full multiply; it is given up before memory is."""


class _Conversion:
    """One run over one schema: collects what is lost, and what makes strict mode impossible, while it writes."""

    def __init__(self, parameters: Mapping[str, Json], dialect: StrictDialect) -> None:
        self.losses: list[Loss] = []
        self.obstacles: list[Loss] = []
        self._dialect = dialect
        self._parameters = parameters
        self._references = SchemaReferences(parameters)
        self._refs = self._references.local
        self._written = 0
        self._depth = 0

    def root(self) -> dict[str, Json]:
        """The whole schema, with those `$defs` that are referred to."""
        written = self._schema((SchemaPart(self._parameters, ()),))
        if "anyOf" in written:
            self.block("anyOf", (), "strict mode has no alternatives at the root")
        definitions: dict[str, Json] = {}
        for name in self._references.wanted:
            definitions[name] = self._schema((SchemaPart(self._parameters["$defs"][name], ("$defs", name)),))
        return {**written, "$defs": definitions} if definitions else written

    def block(self, keyword: str, path: Path, why: str) -> None:
        self.obstacles.append(Loss(keyword, pointer(path), f"{why}, so the tool is sent non-strict"))

    def _lose(self, keyword: str, path: Path, done: str, *, minor: bool = False) -> None:
        self.losses.append(Loss(keyword, pointer(path), done, minor))

    def _schema(self, parts: SchemaParts, *, optional: bool = False) -> dict[str, Json]:
        self._written += 1
        self._depth += 1
        if self._written > _MAX_WRITTEN or self._depth > _MAX_DEPTH:
            raise _TooLarge
        try:
            return self._one(parts, optional)
        except SchemaConflict as conflict:
            self.block(conflict.keyword, conflict.path, conflict.why)
            return {}
        finally:
            self._depth -= 1

    def _one(self, parts: SchemaParts, optional: bool) -> dict[str, Json]:
        flat = flatten(parts, self._refs)
        optional = optional and not self._dialect.optional
        widen = optional and not allows_null(parts, self._refs)
        if optional and not widen and "default" not in flat.keywords:
            self._lose("required", flat.path, "the model must send it, and its null is taken as null, not as absent")
        ref = self._kept_ref(parts)
        if ref is not None:
            if flat.alternatives is None and not flat.keywords.keys() & {"type", "enum", "const"}:
                raise SchemaConflict("type", flat.path, _UNTYPED)
            return self._ref(ref, parts[0], widen)
        for ref in filter(self._references.is_recursive, flat.inlined):
            raise SchemaConflict("$ref", flat.path, f'"{ref}" contains itself and cannot be written out here')
        if flat.alternatives is None:
            return self._without_alternatives(flat, widen)
        leaves(parts, self._refs)  # a conflict, if there are too many to write
        return self._union(flat, flat.alternatives, widen)

    # ------------------------------------------------------------------------------------------------ references

    def _kept_ref(self, parts: SchemaParts) -> str | None:
        """The reference that may stay one. Strict mode takes nothing beside it, so a recursive one is wrapped."""
        ref = self._references.movable(parts)
        if ref is None:
            return None
        recursive = self._references.is_recursive(ref)
        beside = parts[0].schema.keys() - {"$ref", "$comment"}
        if beside - ANNOTATIONS or (beside and not recursive) or (recursive and not self._dialect.recursion):
            return None
        return ref

    def _ref(self, ref: str, part: SchemaPart, widen: bool) -> dict[str, Json]:
        notes = self._described({key: (value, (*part.path, key)) for key, value in part.schema.items()}, widen)
        kept = self._references.keep(ref)
        return {**notes, "anyOf": [kept, *_null(widen)]} if notes or widen else kept

    # ------------------------------------------------------------------------------------------------ one schema

    def _union(self, flat: FlatSchema, offered: Alternatives, widen: bool) -> dict[str, Json]:
        if offered.keyword == "oneOf":
            self._lose("oneOf", offered.path, "sent as anyOf, which does not say that only one may fit")
        annotations = {key: notes for key, notes in flat.keywords.items() if key in ANNOTATIONS}
        branches = [self._schema(branch) for branch in offered.branches]
        return {**self._described(annotations, widen), "anyOf": [*branches, *_null(widen)]}

    def _without_alternatives(self, flat: FlatSchema, widen: bool) -> dict[str, Json]:
        for keyword, (_, path) in flat.keywords.items():
            if keyword in _IMPOSSIBLE and path != ("$id",):
                self.block(keyword, path, "strict mode has no such keyword")
        types = self._types(flat)
        written = {key: thaw(value) for key, (value, _) in flat.keywords.items() if self._dialect.keeps(key, value)}
        written |= {key: thaw(flat.value(key)) for key in ("type", "enum", "const") if key in flat.keywords}
        written.setdefault("type", types[0] if len(types) == 1 else types)
        written |= self._described(flat.keywords, widen)
        if "object" in types:
            written |= self._object(flat)
        if "array" in types:
            written |= self._array(flat, written)
        if len(types) > 1 and not self._dialect.type_lists:
            return _one_type_each(written, types)
        return _widened(written) if widen else written

    def _types(self, flat: FlatSchema) -> list[str]:
        types = list(types_of(flat.value("type")))
        if types:
            return types
        values = [flat.value("const")] if "const" in flat.keywords else flat.value("enum") or []
        inferred = dict.fromkeys(_JSON_TYPES.get(type(value)) for value in values)
        if not inferred or None in inferred:
            self.block("type", flat.path, _UNTYPED)
        return [name for name in inferred if name is not None]

    def _object(self, flat: FlatSchema) -> dict[str, Json]:
        properties = flat.properties or {}
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if flat.value(keyword) not in (None, False):
                self.block(keyword, flat.keywords[keyword][1], "strict mode has no open maps")
        if flat.properties is None and not flat.keywords.keys() & {"additionalProperties", "unevaluatedProperties"}:
            self.block("additionalProperties", flat.path, "strict mode has no open maps, and no properties are listed")
        elif flat.path and not flat.keywords.keys() & {"additionalProperties", "unevaluatedProperties"}:
            # Open because nobody closed it: not what most authors mean, but what the schema says. The root is always closed.
            self._lose("additionalProperties", flat.path, "properties that are not listed cannot be sent")
        if unlisted := [name for name in flat.required if name not in properties]:
            self.block("required", flat.path, f'"{unlisted[0]}" is required but not described')
        written = {name: self._schema(parts, optional=name not in flat.required) for name, parts in properties.items()}
        required = list(flat.required if self._dialect.optional else properties)
        return {"properties": written, "required": required, "additionalProperties": False}

    def _array(self, flat: FlatSchema, written: Mapping[str, Json]) -> dict[str, Json]:
        prefix, path = flat.keywords.get("prefixItems", ((), ()))
        closed = any(part.schema is False for part in flat.items)
        if not flat.items and (not prefix or written.get("maxItems", len(prefix) + 1) > len(prefix)):
            self.block("items", flat.path, "strict mode takes no list of just anything")
            return {}
        kinds = [self._schema((SchemaPart(schema, (*path, index)),)) for index, schema in enumerate(prefix)]
        if flat.items and not (closed and prefix):
            kinds.append(self._schema(flat.items))
        distinct = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
        if prefix:
            self._lose("prefixItems", path, "every item may be of each of its kinds; the order is in the description")
        ends = closed and bool(prefix) and "maxItems" in self._dialect.kept
        max_items = {"maxItems": min(written.get("maxItems", len(prefix)), len(prefix))} if ends else {}
        return {"items": distinct[0] if len(distinct) == 1 else {"anyOf": distinct}, **max_items}

    # ------------------------------------------------------------------------------------------------ descriptions

    def _described(self, keywords: Mapping[str, tuple[Json, Path]], widen: bool) -> dict[str, Json]:
        """Title and description, the latter with what strict mode has no keyword for."""
        phrases = [self._note(keyword, value, path, widen) for keyword, (value, path) in keywords.items()]
        description = with_phrases(keywords.get("description", ("", ()))[0], filter(None, phrases))
        title = {"title": keywords["title"][0]} if "title" in keywords else {}
        return {**title, "description": description} if description else title

    def _note(self, keyword: str, value: Json, path: Path, widen: bool) -> str | None:
        if keyword == "default":
            if value is not None or widen:
                self._lose(keyword, path, "put into the description", minor=True)
            return phrase(keyword, value) + (" (send null)" if widen else "")
        if keyword in _PLAIN_WORDS:
            return phrase(keyword, value) if value is not False else None
        if keyword == "prefixItems":
            return phrase(keyword, value)
        if keyword in _CONSTRAINTS:
            if self._dialect.keeps(keyword, value) or (keyword == "uniqueItems" and value is False):
                return None
            self._lose(keyword, path, "put into the description, which strict mode does not enforce", minor=True)
            return phrase(keyword, value)
        if keyword not in _ELSEWHERE | _IMPOSSIBLE:
            self._lose(keyword, path, "left out", minor=True)
        return None


def _null(widen: bool) -> list[dict[str, Json]]:
    return [{"type": "null"}] if widen else []


def _widened(written: dict[str, Json]) -> dict[str, Json]:
    """The schema, with null allowed as well."""
    types = types_of(written["type"])
    wider = {**written, "type": list(types) if "null" in types else [*types, "null"]}
    if "const" in wider:
        wider["enum"] = [wider.pop("const")]
    if "enum" in wider:
        wider["enum"] = [*wider["enum"], None]
    return wider


_FOR_TYPE = {"properties": "object", "required": "object", "additionalProperties": "object", "items": "array"}
_FOR_TYPE |= {"minItems": "array", "maxItems": "array", "format": "string"}


def _one_type_each(written: Mapping[str, Json], types: Iterable[str]) -> dict[str, Json]:
    """A schema with several types, for a dialect that takes one at a time. Listed values need no type beside them."""
    if "enum" in written or "const" in written:
        return {key: value for key, value in written.items() if key != "type"}
    notes = {key: value for key, value in written.items() if key in ("title", "description")}
    asked = {key: value for key, value in written.items() if key not in notes}
    branches = [
        {key: name if key == "type" else value for key, value in asked.items() if _FOR_TYPE.get(key, name) == name}
        for name in types
    ]
    return {**notes, "anyOf": branches}
