"""OpenAI's strict mode: a schema in its dialect, and the way back for what a model then sends.

Strict mode knows few keywords and no optional properties. So an optional property becomes one that may be null
(`strip_nulls` undoes that in the arguments), what has no keyword is told in the description and reported, and a schema
that cannot be said at all is not sent strict. Every OpenAI format has the same dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from handrail.contract.frozen import thaw
from handrail.providers.adapted import Loss
from handrail.providers.flatten import (
    ANNOTATIONS,
    Alternatives,
    Clash,
    Flat,
    Part,
    Parts,
    allows_null,
    fits_type,
    flatten,
    is_listed,
    leaves,
    types_of,
)
from handrail.providers.openai_chat.limits import exceeded
from handrail.providers.words import phrase, with_phrases
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import Json, LocalRefs, Path

FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

_KEPT = frozenset(
    {
        "type", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minItems", "maxItems",
    }
)  # fmt: skip
_TOLD = frozenset(
    {
        "minLength", "maxLength", "uniqueItems", "contains", "minContains", "maxContains", "minProperties",
        "maxProperties", "dependentRequired", "unevaluatedItems",
    }
)  # fmt: skip
_IMPOSSIBLE = frozenset(
    {
        "not", "if", "patternProperties", "propertyNames", "dependentSchemas", "dependencies", "$dynamicRef", "$id",
    }
)  # fmt: skip
_PLAIN_WORDS = frozenset({"examples", "deprecated", "contentEncoding", "contentMediaType", "contentSchema"})
# Written from more than their own value, or nothing to anybody who sends arguments.
_ELSEWHERE = frozenset({"additionalProperties", "unevaluatedProperties", "prefixItems", "then", "else"}) | ANNOTATIONS

# What stops references that multiply when written out, and chains of them. Far beyond what strict mode takes.
_MAX_WRITTEN = 12_000
_MAX_DEPTH = 64
_UNTYPED = "strict mode takes no value without a type"
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


@dataclass(frozen=True, slots=True)
class Strict:
    """The schema in the strict dialect; None if there is none, and then the losses say why."""

    schema: dict[str, Json] | None
    losses: tuple[Loss, ...]


def to_strict(parameters: Mapping[str, Json]) -> Strict:
    """The parameters (a valid JSON Schema of an object) in the strict dialect. They are not changed."""
    conversion = _Conversion(parameters)
    try:
        schema = conversion.root()
        for keyword, why in () if conversion.obstacles else exceeded(schema):
            conversion.block(keyword, (), why)
    except _TooLarge:
        schema = {}
        conversion.block("$ref", (), "with references written out it is larger than strict mode takes")
    if conversion.obstacles:
        return Strict(None, tuple(dict.fromkeys(conversion.obstacles)))
    return Strict(schema, tuple(dict.fromkeys(conversion.losses)))


def strip_nulls(schema: Mapping[str, Json], args: Json) -> Json:
    """The arguments without the nulls that stand for "absent", for a tool that was sent strict.

    `schema` is the original one. A null goes where the property is optional and may not be null; one that the schema
    allows is meant, and one for a required property is left for the validator to refuse. `args` are not changed.
    """
    try:
        return _Stripping(LocalRefs(schema)).value((Part(schema, ()),), args)[0]
    except Clash:
        return args  # such a schema is never sent strict


class _TooLarge(Exception):
    """References written out in full multiply; it is given up before memory is."""


class _Conversion:
    """One run over one schema: collects what is lost, and what makes strict mode impossible, while it writes."""

    def __init__(self, parameters: Mapping[str, Json]) -> None:
        self.losses: list[Loss] = []
        self.obstacles: list[Loss] = []
        self._parameters = parameters
        self._refs = LocalRefs(parameters)
        self._wanted: list[str] = []
        self._recursive: dict[str, bool] = {}
        self._written = 0
        self._depth = 0

    def root(self) -> dict[str, Json]:
        """The whole schema, with those `$defs` that are referred to."""
        written = self._schema((Part(self._parameters, ()),))
        if "anyOf" in written:
            self.block("anyOf", (), "strict mode has no alternatives at the root")
        definitions: dict[str, Json] = {}
        for name in self._wanted:  # grows while definitions refer to further ones
            definitions[name] = self._schema((Part(self._parameters["$defs"][name], ("$defs", name)),))
        return {**written, "$defs": definitions} if definitions else written

    def block(self, keyword: str, path: Path, why: str) -> None:
        self.obstacles.append(Loss(keyword, pointer(path), f"{why}, so the tool is sent non-strict"))

    def _lose(self, keyword: str, path: Path, done: str) -> None:
        self.losses.append(Loss(keyword, pointer(path), done))

    def _schema(self, parts: Parts, *, optional: bool = False) -> dict[str, Json]:
        self._written += 1
        self._depth += 1
        if self._written > _MAX_WRITTEN or self._depth > _MAX_DEPTH:
            raise _TooLarge
        try:
            return self._one(parts, optional)
        except Clash as clash:
            self.block(clash.keyword, clash.path, clash.why)
            return {}
        finally:
            self._depth -= 1

    def _one(self, parts: Parts, optional: bool) -> dict[str, Json]:
        flat = flatten(parts, self._refs)
        widen = optional and not allows_null(parts, self._refs)
        if optional and not widen and "default" not in flat.keywords:
            self._lose("required", flat.path, "the model must send it, and its null is taken as null, not as absent")
        ref = self._kept_ref(parts)
        if ref is not None:
            if flat.alternatives is None and not flat.keywords.keys() & {"type", "enum", "const"}:
                raise Clash("type", flat.path, _UNTYPED)
            return self._ref(ref, parts[0], widen)
        for ref in filter(self._is_recursive, flat.inlined):
            raise Clash("$ref", flat.path, f'"{ref}" contains itself and cannot be written out here')
        if flat.alternatives is None:
            return self._plain(flat, widen)
        leaves(parts, self._refs)  # a clash, if there are too many to write
        return self._union(flat, flat.alternatives, widen)

    # ------------------------------------------------------------------------------------------------ references

    def _kept_ref(self, parts: Parts) -> str | None:
        """The reference that may stay one. Strict mode takes nothing beside it, so a recursive one is wrapped."""
        schema = parts[0].schema
        if len(parts) > 1 or not isinstance(schema, Mapping) or "$ref" not in schema:
            return None
        ref: str = schema["$ref"]
        beside = schema.keys() - {"$ref", "$comment"}
        movable = ref == "#" or (ref.startswith("#/$defs/") and len(self._refs.path(ref)) == 2)
        if not movable or beside - ANNOTATIONS or (beside and not self._is_recursive(ref)):
            return None
        return ref

    def _ref(self, ref: str, part: Part, widen: bool) -> dict[str, Json]:
        target = self._refs.path(ref)
        if target and target[1] not in self._wanted:
            self._wanted.append(str(target[1]))
        told = self._described({key: (value, (*part.path, key)) for key, value in part.schema.items()}, widen)
        kept = {"$ref": ref}
        return {**told, "anyOf": [kept, *_null(widen)]} if told or widen else kept

    def _is_recursive(self, ref: str) -> bool:
        if ref not in self._recursive:
            reached, todo = set[str](), [ref]
            while todo:
                new = set(_refs_in(self._refs.target({"$ref": todo.pop()}))) - reached
                reached |= new
                todo.extend(new)
            self._recursive[ref] = ref in reached
        return self._recursive[ref]

    # ------------------------------------------------------------------------------------------------ one schema

    def _union(self, flat: Flat, offered: Alternatives, widen: bool) -> dict[str, Json]:
        if offered.keyword == "oneOf":
            self._lose("oneOf", offered.path, "sent as anyOf, which does not say that only one may fit")
        annotations = {key: told for key, told in flat.keywords.items() if key in ANNOTATIONS}
        branches = [self._schema(branch) for branch in offered.branches]
        return {**self._described(annotations, widen), "anyOf": [*branches, *_null(widen)]}

    def _plain(self, flat: Flat, widen: bool) -> dict[str, Json]:
        for keyword, (_, path) in flat.keywords.items():
            if keyword in _IMPOSSIBLE and path != ("$id",):
                self.block(keyword, path, "strict mode has no such keyword")
        types = self._types(flat)
        written = {key: thaw(value) for key, (value, _) in flat.keywords.items() if key in _KEPT}
        written.setdefault("type", types[0] if len(types) == 1 else types)
        if flat.value("format") in FORMATS:
            written["format"] = flat.value("format")
        written |= self._described(flat.keywords, widen)
        if "object" in types:
            written |= self._object(flat)
        if "array" in types:
            written |= self._array(flat, written)
        return _widened(written) if widen else written

    def _types(self, flat: Flat) -> list[str]:
        types = list(types_of(flat.value("type")))
        if types:
            return types
        values = [flat.value("const")] if "const" in flat.keywords else flat.value("enum") or []
        inferred = dict.fromkeys(_JSON_TYPES.get(type(value)) for value in values)
        if not inferred or None in inferred:
            self.block("type", flat.path, _UNTYPED)
        return [name for name in inferred if name is not None]

    def _object(self, flat: Flat) -> dict[str, Json]:
        properties = flat.properties or {}
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if flat.value(keyword) not in (None, False):
                self.block(keyword, flat.keywords[keyword][1], "strict mode has no open maps")
        if flat.properties is None and not flat.keywords.keys() & {"additionalProperties", "unevaluatedProperties"}:
            self.block("additionalProperties", flat.path, "strict mode has no open maps, and no properties are listed")
        if unlisted := [name for name in flat.required if name not in properties]:
            self.block("required", flat.path, f'"{unlisted[0]}" is required but not described')
        return {
            "properties": {
                name: self._schema(parts, optional=name not in flat.required) for name, parts in properties.items()
            },
            "required": list(properties),
            "additionalProperties": False,
        }

    def _array(self, flat: Flat, written: Mapping[str, Json]) -> dict[str, Json]:
        prefix, path = flat.keywords.get("prefixItems", ((), ()))
        closed = any(part.schema is False for part in flat.items)
        if not flat.items and (not prefix or written.get("maxItems", len(prefix) + 1) > len(prefix)):
            self.block("items", flat.path, "strict mode takes no list of just anything")
            return {}
        kinds = [self._schema((Part(schema, (*path, index)),)) for index, schema in enumerate(prefix)]
        if flat.items and not (closed and prefix):
            kinds.append(self._schema(flat.items))
        distinct = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
        if prefix:
            self._lose("prefixItems", path, "every item may be of each of its kinds; the order is in the description")
        most = {"maxItems": min(written.get("maxItems", len(prefix)), len(prefix))} if closed and prefix else {}
        return {"items": distinct[0] if len(distinct) == 1 else {"anyOf": distinct}, **most}

    # ------------------------------------------------------------------------------------------------ descriptions

    def _described(self, keywords: Mapping[str, tuple[Json, Path]], widen: bool) -> dict[str, Json]:
        """Title and description, the latter with what strict mode has no keyword for."""
        phrases = [self._told(keyword, value, path, widen) for keyword, (value, path) in keywords.items()]
        description = with_phrases(keywords.get("description", ("", ()))[0], filter(None, phrases))
        title = {"title": keywords["title"][0]} if "title" in keywords else {}
        return {**title, "description": description} if description else title

    def _told(self, keyword: str, value: Json, path: Path, widen: bool) -> str | None:
        if keyword == "default":
            if value is not None or widen:
                self._lose(keyword, path, "put into the description")
            return phrase(keyword, value) + (" (send null)" if widen else "")
        if keyword in _PLAIN_WORDS:
            return phrase(keyword, value) if value is not False else None
        if keyword in _TOLD or keyword == "prefixItems" or (keyword == "format" and value not in FORMATS):
            if value is False and keyword == "uniqueItems":
                return None
            if keyword != "prefixItems":
                self._lose(keyword, path, "put into the description, which strict mode does not enforce")
            return phrase(keyword, value)
        if keyword not in _KEPT | _ELSEWHERE | _IMPOSSIBLE | {"format", "$ref"}:
            self._lose(keyword, path, "left out")
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


def _refs_in(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for held in value.values():
            yield from _refs_in(held)
    elif isinstance(value, (list, tuple)):
        for held in value:
            yield from _refs_in(held)


# ------------------------------------------------------------------------------------------------------- the way back


class _Stripping:
    """One run over one set of arguments. What was found for a value under some parts is kept: a recursive schema with
    alternatives would be tried over and over, and the arguments are a model's to nest.
    """

    def __init__(self, refs: LocalRefs) -> None:
        self._refs = refs
        self._known: dict[tuple[int, tuple[Path, ...]], tuple[Json, bool]] = {}

    def value(self, parts: Parts, value: Json) -> tuple[Json, bool]:
        """The value without nulls that stand for "absent", and whether it then has the shape that the parts ask for."""
        key = (id(value), tuple(part.path for part in parts))
        if key not in self._known:
            self._known[key] = self._found(parts, value)
        return self._known[key]

    def _found(self, parts: Parts, value: Json) -> tuple[Json, bool]:
        for leaf in leaves(parts, self._refs):
            stripped, fits = self._by(leaf, value)
            if fits:  # the alternative that the model took
                return stripped, True
        return self._by(flatten(parts, self._refs), value)[0], False

    def _by(self, flat: Flat, value: Json) -> tuple[Json, bool]:
        fits = fits_type(flat, value) and is_listed(flat, value)
        if isinstance(value, Mapping):
            return self._object(flat, value, fits)
        if isinstance(value, (list, tuple)):
            items = [self.value(_item(flat, index), item) for index, item in enumerate(value)]
            return [item for item, _ in items], fits and all(right for _, right in items)
        return value, fits

    def _object(self, flat: Flat, value: Mapping[str, Json], fits: bool) -> tuple[Json, bool]:
        properties = flat.properties or {}
        kept: dict[str, Json] = {}
        for name, item in value.items():
            if name not in properties:
                kept[name], right = item, False
            elif item is None and name not in flat.required and not allows_null(properties[name], self._refs):
                continue
            else:
                kept[name], right = self.value(properties[name], item)
            fits = fits and right
        return kept, fits and kept.keys() >= set(flat.required)


def _item(flat: Flat, index: int) -> Parts:
    prefix, path = flat.keywords.get("prefixItems", ((), ()))
    return (
        (Part(prefix[index], (*path, index)),)
        if index < len(prefix)
        else flat.items or (Part(True, (*flat.path, "items")),)
    )
