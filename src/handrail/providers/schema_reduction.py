"""Formats that take fewer keywords than JSON Schema, as hints: a schema is rewritten, and nothing makes that impossible.

What a format has no keyword for is put into the description of the value and reported. A subclass says which keywords its
format has and how types, listed values and objects are written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import ceil, floor

from handrail.contract.frozen import thaw
from handrail.providers.adapted import Loss
from handrail.providers.keyword_notes import as_json, conditional, phrase, with_phrases
from handrail.providers.root_schema import RootSchema
from handrail.providers.schema_flattening import (
    ANNOTATIONS,
    Alternatives,
    FlatSchema,
    SchemaConflict,
    SchemaPart,
    SchemaParts,
    flatten,
    leaves,
    types_of,
)
from handrail.providers.schema_references import SchemaReferences
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import Json, Path, is_trivial

# What stops references that multiply when written out. What is written without them is bounded by its author's schema.
_MAX_WRITTEN_OUT = 1_000
_MAX_DEPTH = 48

_OF_TYPE = {
    "string": {"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType", "contentSchema"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "array": {
        "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems",
        "prefixItems",
    },
    "object": {
        "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties",
        "propertyNames", "additionalProperties", "unevaluatedProperties",
    },
}  # fmt: skip
TYPE_OF = {keyword: name for name, keywords in _OF_TYPE.items() for keyword in keywords}
"""Keyword → the only type that it says something about; an integer is a number."""

_SAYS_NOTHING = {"uniqueItems": False, "minItems": 0, "minLength": 0, "minProperties": 0, "deprecated": False}
_UNSENT = frozenset(
    {
        "$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$schema", "definitions", "description", "readOnly",
        "writeOnly",
    }
)  # fmt: skip
_PLAIN_WORDS = frozenset({"deprecated", "examples", "contentEncoding", "contentMediaType", "contentSchema"})
_INTRICATE = frozenset(
    {
        "$dynamicRef", "dependencies", "dependentSchemas", "if", "not", "patternProperties", "propertyNames",
        "unevaluatedItems",
    }
)  # fmt: skip
"""What is hard to follow in words, so that a build warns of it."""
_KNOWN = TYPE_OF.keys() | _INTRICATE | {"default", "title"}
_WRITTEN_ELSEWHERE = frozenset(
    {"additionalProperties", "const", "else", "enum", "prefixItems", "then", "type", "unevaluatedProperties"}
)

_INCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}

IN_DESCRIPTION = "put into the description"
_LEFT_OPEN = "left out, since only listed properties are offered; others are refused when the tool is called"


class SchemaReduction:
    """One run over one tool's parameters: collects what is lost while it writes."""

    kept: frozenset[str]
    """Keywords about one value that are written as they are."""
    keeps_references = False

    def __init__(self, root: RootSchema) -> None:
        self._root = root
        self._losses: list[Loss] = []
        self.references = SchemaReferences(root.schema)
        self._open: frozenset[Path] = frozenset({()})
        self._optional = False
        self._written_out = 0
        self._depth = 0

    # ------------------------------------------------------------------------------------------------ the whole

    def parameters(self) -> dict[str, Json]:
        """The parameters in the format, with the definitions that they refer to."""
        self._optional = False
        schema = self.schema((SchemaPart(self._root.without_alternatives(), ()),))
        if "anyOf" in schema:
            schema = self._as_object(schema["anyOf"])
        definitions: dict[str, Json] = {}
        for name in self.references.wanted:
            self._open, self._optional = frozenset({()}), True
            definitions[name] = self.schema((SchemaPart(self._root.schema["$defs"][name], ("$defs", name)),))
        return {**schema, "$defs": definitions} if definitions else schema

    def _as_object(self, branches: list[dict[str, Json]]) -> dict[str, Json]:
        """The root where its reference leads to alternatives: one object with the properties of all, the rest in words."""
        target = self.references.local.target(self._root.schema)
        self.lose(
            "$ref",
            ("$ref",),
            f"it leads to alternatives, which are refused at the root, so {IN_DESCRIPTION}",
            minor=False,
        )
        properties = {name: one for branch in branches for name, one in branch.get("properties", {}).items()}
        words = f"The arguments must fit the JSON Schema {as_json(target)}"
        return {**self.typed(("object",)), "properties": properties, "description": words}

    def losses(self) -> tuple[Loss, ...]:
        """What was lost, each once, and placed where the author wrote it."""
        shown = {f"/properties/{pointer((name,))[1:]}" for name in self._root.only_in_branches}
        found = (
            Loss(loss.keyword, f"/{self._root.taken[0]}", loss.done, loss.minor)
            if shown and any(loss.pointer == place or loss.pointer.startswith(f"{place}/") for place in shown)
            else loss
            for loss in self._losses
        )
        return tuple(dict.fromkeys((*self._root.losses(), *found)))

    def lose(self, keyword: str, path: Path, done: str, *, minor: bool = True) -> None:
        self._losses.append(Loss(keyword, pointer(path), done, minor))

    # ------------------------------------------------------------------------------------------------ one schema

    def schema(self, parts: SchemaParts) -> dict[str, Json]:
        """What the parts ask for together."""
        self._depth += 1
        before = self._open
        try:
            return self._one(parts)
        except SchemaConflict as conflict:
            self.lose(conflict.keyword, conflict.path, f"{conflict.why}, so {IN_DESCRIPTION}", minor=False)
            return self._in_words(parts)
        finally:
            self._open = before
            self._depth -= 1

    def _one(self, parts: SchemaParts) -> dict[str, Json]:
        ref = self.references.movable(parts) if self.keeps_references else None
        alone = ref is not None and parts[0].schema.keys() <= {"$ref", "$comment"}
        if ref is not None and alone and (self._optional or not self.references.is_recursive(ref)):
            return self.references.keep(ref)
        self._written_out += len(self._open) > 1
        if self._written_out > _MAX_WRITTEN_OUT or self._depth > _MAX_DEPTH:
            raise SchemaConflict("$ref", parts[0].path, "with references written out it is too large")
        flat = flatten(parts, self.references.local)
        if flat.inlined:
            followed = {self.references.local.path(ref) for ref in flat.inlined}
            if followed & self._open:
                return self._cut(flat)
            self._open |= followed
        if flat.alternatives is None:
            return self.without_alternatives(flat)
        leaves(parts, self.references.local)  # a conflict, if there are too many to write
        return self.union(flat, flat.alternatives)

    def _cut(self, flat: FlatSchema) -> dict[str, Json]:
        """An end to what contains itself."""
        self.lose("$ref", flat.path, "it contains itself, so only one level is written out", minor=False)
        types = types_of(flat.value("type"))
        words = f"Same shape as the enclosing {types[0] if len(types) == 1 else 'value'}"
        return {**self.typed(types), "description": with_phrases(flat.value("description") or "", [words])}

    def _in_words(self, parts: SchemaParts) -> dict[str, Json]:
        schemas = [part.schema for part in parts]
        first = schemas[0] if isinstance(schemas[0], Mapping) else {}
        types = types_of(first.get("type"))
        words = f"It must fit the JSON Schema {' and '.join(map(as_json, schemas))}"
        return {**self.typed(types), "description": with_phrases(first.get("description", ""), [words])}

    # ------------------------------------------------------------------------------------- what a format does its own way

    def typed(self, types: tuple[str, ...]) -> dict[str, Json]:
        """`type`, where there is one."""
        return {"type": types[0] if len(types) == 1 else list(types)} if types else {}

    def without_alternatives(self, flat: FlatSchema) -> dict[str, Json]:
        """A schema without alternatives."""
        types = types_of(flat.value("type"))
        written = {**self.typed(types), **self.listed(flat), **self.values(flat, types)}
        if _may_be("object", types):
            written |= self.object(flat)
        if _may_be("array", types):
            written |= self.array(flat)
        return self.described(written, flat, types)

    def union(self, flat: FlatSchema, offered: Alternatives) -> dict[str, Json]:
        """A schema with alternatives; what stands beside them is in each branch, annotations excepted."""
        branches = [self.schema(branch) for branch in offered.branches]
        return self.described({"anyOf": branches}, self.outside(flat, offered), ())

    def listed(self, flat: FlatSchema) -> dict[str, Json]:
        """`enum` and `const`: a constant is a list of one."""
        if "const" in flat.keywords:
            return {"enum": [thaw(flat.value("const"))]}
        return {"enum": thaw(flat.value("enum"))} if "enum" in flat.keywords else {}

    def closed(self, flat: FlatSchema, path: Path) -> dict[str, Json]:
        """An object that takes no other properties; `path` is that of the keyword that says so."""
        self.lose(str(path[-1]), path, _LEFT_OPEN)
        return {}

    def open(self, schema: Json, path: Path) -> dict[str, Json]:
        """An object whose other properties have a schema."""
        self.lose(str(path[-1]), path, IN_DESCRIPTION, minor=False)
        return {}

    # ------------------------------------------------------------------------------------------------ shared by formats

    def outside(self, flat: FlatSchema, offered: Alternatives) -> FlatSchema:
        """The annotations beside alternatives, and what `oneOf` says more than `anyOf`."""
        kept = {key: note for key, note in flat.keywords.items() if key in ANNOTATIONS}
        if offered.keyword == "oneOf":
            self.lose("oneOf", offered.path, "sent as anyOf; the description says that only one may fit")
            text, path = kept.get("description", ("", flat.path))
            kept["description"] = (with_phrases(text, ["Exactly one of the alternatives fits"]), path)
        return FlatSchema(flat.path, kept, None, (), (), None, frozenset())

    def values(self, flat: FlatSchema, types: tuple[str, ...]) -> dict[str, Json]:
        """The keywords that are kept, exclusive bounds of integers among them as inclusive ones."""
        own = self.kept - _WRITTEN_ELSEWHERE
        written = {key: thaw(value) for key, value, _ in self.said(flat, types) if key in own}
        if "minimum" in self.kept:
            written |= _inclusive(flat, types)
        return written

    def said(self, flat: FlatSchema, types: tuple[str, ...]) -> Iterator[tuple[str, Json, Path]]:
        """The keywords that say something about a value of these types."""
        for keyword, (value, path) in flat.keywords.items():
            applies = keyword not in TYPE_OF or _may_be(TYPE_OF[keyword], types)
            if applies and not (keyword in _SAYS_NOTHING and value == _SAYS_NOTHING[keyword]):
                yield keyword, value, path

    def object(self, flat: FlatSchema) -> dict[str, Json]:
        written: dict[str, Json] = {}
        before = self._optional
        if flat.properties is not None:
            offered: dict[str, Json] = {}
            for name, parts in flat.properties.items():
                self._optional = name not in flat.required
                if any(part.schema is False for part in parts):
                    self._unoffered(flat, parts)
                else:
                    offered[name] = self.schema(parts)
            written["properties"] = offered
        self._optional = before
        if flat.required:
            written["required"] = list(flat.required)
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if keyword in flat.keywords:
                value, path = flat.keywords[keyword]
                if value is False:
                    written |= self.closed(flat, path)
                elif not is_trivial(value):
                    written |= self.open(value, path)
        return written

    def _unoffered(self, flat: FlatSchema, parts: SchemaParts) -> None:
        if flat.value("additionalProperties") is not False:
            self.lose("false", parts[0].path, "left out, so that it is not offered")

    def array(self, flat: FlatSchema) -> dict[str, Json]:
        prefix, path = flat.keywords.get("prefixItems", ((), ()))
        ends = any(part.schema is False for part in flat.items)
        if not prefix:
            return {"maxItems": 0} if ends else {"items": self.schema(flat.items)} if flat.items else {}
        return self.prefixed([SchemaPart(schema, (*path, index)) for index, schema in enumerate(prefix)], flat, ends)

    def prefixed(self, prefix: list[SchemaPart], flat: FlatSchema, ends: bool) -> dict[str, Json]:
        """A list whose first items have schemas of their own: every item may be of each kind."""
        self.lose(
            "prefixItems",
            flat.keywords["prefixItems"][1],
            f"each item may be of every kind; the order is {IN_DESCRIPTION}",
        )
        kinds = [self.schema((part,)) for part in prefix]
        if not ends:
            kinds.append(self.schema(flat.items) if flat.items else {})
        distinct = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
        return {"items": distinct[0] if len(distinct) == 1 else {} if {} in distinct else {"anyOf": distinct}}

    def described(
        self, written: dict[str, Json], flat: FlatSchema, types: tuple[str, ...], words: Iterable[str] = ()
    ) -> dict[str, Json]:
        """The schema with its description, in which stands what the format has no keyword for, `words` first."""
        phrases = [note for key, value, path in self.said(flat, types) if (note := self.note(key, value, path, flat))]
        text = with_phrases(flat.value("description") or "", [*words, *phrases])
        return {**written, "description": text} if text else written

    def note(self, keyword: str, value: Json, path: Path, flat: FlatSchema) -> str | None:
        """The words for a keyword that is not written, reported; None if there is nothing to tell."""
        if keyword in self.kept or keyword in _UNSENT:
            return None
        if keyword in _WRITTEN_ELSEWHERE:
            return _beside(keyword, value)
        if keyword in _INCLUSIVE and "minimum" in self.kept:
            if _is_exact(flat):
                return None
            self.lose(
                keyword, path, f"sent as {_INCLUSIVE[keyword]}; that the bound itself is too far is {IN_DESCRIPTION}"
            )
            return phrase(keyword, value)
        if keyword in _PLAIN_WORDS:
            return phrase(keyword, value)
        if keyword not in _KNOWN:
            self.lose(keyword, path, "left out")
            return None
        self.lose(keyword, path, IN_DESCRIPTION, minor=keyword not in _INTRICATE)
        if keyword == "if":
            return conditional({key: flat.value(key) for key in ("if", "then", "else") if key in flat.keywords})
        return phrase(keyword, value).replace("The arguments", "The value", 1)


def _beside(keyword: str, value: Json) -> str | None:
    """The note about a keyword for which something was written, and reported, as well."""
    if keyword == "prefixItems":
        return phrase(keyword, value)
    open_map = keyword in ("additionalProperties", "unevaluatedProperties") and value is not False
    return phrase("additionalProperties", value) if open_map and not is_trivial(value) else None


def _may_be(name: str, types: tuple[str, ...]) -> bool:
    return not types or name in types or (name == "number" and "integer" in types)


def _is_exact(flat: FlatSchema) -> bool:
    """Whether a number is a whole one, so that an exclusive bound has an inclusive one beside it."""
    types = types_of(flat.value("type"))
    return "integer" in types and "number" not in types


def _inclusive(flat: FlatSchema, types: tuple[str, ...]) -> dict[str, Json]:
    if not _may_be("number", types):
        return {}
    whole = _is_exact(flat)
    bounds: dict[str, Json] = {}
    above, below = flat.value("exclusiveMinimum"), flat.value("exclusiveMaximum")
    if above is not None:
        least = floor(above) + 1 if whole else above
        bounds["minimum"] = max(least, flat.value("minimum")) if "minimum" in flat.keywords else least
    if below is not None:
        maximum = ceil(below) - 1 if whole else below
        bounds["maximum"] = min(maximum, flat.value("maximum")) if "maximum" in flat.keywords else maximum
    return bounds
