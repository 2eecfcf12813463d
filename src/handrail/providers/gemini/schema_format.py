"""Gemini's own schema format (`parameters`): one type at a time, `nullable` for null, listed values as text."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.contract.frozen import thaw
from handrail.providers.keyword_notes import as_json
from handrail.providers.schema_flattening import (
    Alternatives,
    FlatSchema,
    SchemaConflict,
    SchemaPart,
    SchemaParts,
    flatten,
    types_of,
)
from handrail.providers.schema_reduction import IN_DESCRIPTION, TYPE_OF, SchemaReduction
from handrail.schema.subschemas import Json, Path

_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_ABOUT = ("title", "default")
"""Kept keywords that stand beside alternatives, not in each of them."""


class GeminiReduction(SchemaReduction):
    """What both of Gemini's formats ask of an object."""

    def object(self, flat: FlatSchema) -> dict[str, Json]:
        written = super().object(flat)
        required = written.pop("required", [])
        if unlisted := [name for name in required if name not in written.get("properties", {})]:
            self.lose("required", flat.path, f'left out for "{unlisted[0]}", which is not described', minor=False)
        listed = [name for name in required if name not in unlisted]
        return {**written, "required": listed} if listed else written


class NativeReduction(GeminiReduction):
    """One run over one tool's parameters."""

    kept = frozenset(
        {
            "default", "format", "maximum", "maxItems", "maxLength", "maxProperties", "minimum", "minItems",
            "minLength", "minProperties", "pattern", "title",
        }
    )  # fmt: skip

    def typed(self, types: tuple[str, ...]) -> dict[str, Json]:
        named = [name.upper() for name in types if name != "null"]
        nullable = {"nullable": True} if "null" in types and named else {}
        if len(named) > 1:
            return {"anyOf": [{"type": name} for name in named], **nullable}
        return {"type": named[0], **nullable} if named else {"type": "NULL"} if types else {}

    def without_alternatives(self, flat: FlatSchema) -> dict[str, Json]:
        values = _values(flat)
        types = self._types(flat, values)
        named = [name for name in types if name != "null" and (values is None or _of(name, values, types))]
        nullable = {"nullable": True} if "null" in types and (values is None or None in values) else {}
        words: list[str] = []
        branches = [self._of_type(flat, name, _of(name, values, types), words) for name in named]
        if not types:
            written: dict[str, Json] = {}
        elif not branches:
            written, nullable = {"type": "NULL"}, {}
        else:
            written = branches[0] if len(branches) == 1 else {"anyOf": branches}
        return self.described({**written, **nullable, **self._about(flat)}, flat, types, words)

    def union(self, flat: FlatSchema, offered: Alternatives) -> dict[str, Json]:
        """A branch that is null alone makes the others nullable."""
        others = [branch for branch in offered.branches if not self._is_null(branch)]
        nullable = {"nullable": True} if len(others) < len(offered.branches) else {}
        outside = self.outside(flat, offered)
        written: dict[str, Json]
        if not others:
            written = {"type": "NULL"}
        elif len(others) == 1 and nullable:
            written = {**self.schema(others[0]), **nullable}
        else:
            written = {"anyOf": [self.schema(branch) for branch in others], **nullable}
        inner = written.pop("description", "")
        return self.described({**written, **self._about(outside)}, outside, (), [inner] if inner else [])

    def prefixed(self, prefix: list[SchemaPart], flat: FlatSchema, ends: bool) -> dict[str, Json]:
        written = super().prefixed(prefix, flat, ends)
        if not ends:
            return written
        min_items, max_items = flat.value("minItems"), flat.value("maxItems")
        count = len(prefix)
        return {
            **written,
            "minItems": count if min_items is None else min_items,
            "maxItems": min(max_items or count, count),
        }

    def array(self, flat: FlatSchema) -> dict[str, Json]:
        return {"items": {}, **super().array(flat)}  # a list must say what is in it, be it anything

    def note(self, keyword: str, value: Json, path: Path, flat: FlatSchema) -> str | None:
        if keyword == "examples":
            if len(value) > 1:
                self.lose(keyword, path, "only the first is sent")
            return None
        return super().note(keyword, value, path, flat)

    # ------------------------------------------------------------------------------------------------ parts of a schema

    def _types(self, flat: FlatSchema, values: Sequence[Json] | None) -> tuple[str, ...]:
        declared = types_of(flat.value("type"))
        if declared:
            return declared
        found = dict.fromkeys(_type(value) for value in values or ())
        if found:
            return tuple(found)
        spoken = {TYPE_OF[keyword] for keyword in flat.keywords if keyword in TYPE_OF}
        spoken |= {"object"} if flat.properties is not None or flat.required else set()
        spoken |= {"array"} if flat.items else set()
        if len(spoken) != 1:
            self.lose("type", flat.path, "left out, since the format has no way to say that anything is allowed")
            return ()
        (only,) = spoken
        self.lose("type", flat.path, f"sent as {only}, the one type that its keywords speak of")
        return (only,)

    def _of_type(self, flat: FlatSchema, name: str, values: Sequence[Json] | None, words: list[str]) -> dict[str, Json]:
        written: dict[str, Json] = {"type": name.upper()}
        written |= {key: value for key, value in self.values(flat, (name,)).items() if key not in _ABOUT}
        if values is not None:
            written |= self._listed(flat, name, values, words)
        if name == "object":
            written |= self.object(flat)
        if name == "array":
            written |= self.array(flat)
        return written

    def _listed(self, flat: FlatSchema, name: str, values: Sequence[Json], words: list[str]) -> dict[str, Json]:
        keyword = "const" if "const" in flat.keywords else "enum"
        path = flat.keywords[keyword][1]
        if name == "string":
            if "format" in flat.keywords:
                self.lose("format", flat.keywords["format"][1], IN_DESCRIPTION)
                words.append(f"Format: {flat.value('format')}")
            return {"format": "enum", "enum": list(values)}
        if name in ("integer", "number"):
            if len(values) == 1:
                return {"minimum": values[0], "maximum": values[0]}
            self.lose(keyword, path, "listed as text, which is how the format lists numbers")
            return {"format": "enum", "enum": [as_json(value) for value in values]}
        if name == "boolean" and {True, False} <= set(values):
            return {}
        self.lose(keyword, path, IN_DESCRIPTION)
        words.append(f"One of: {', '.join(map(as_json, values))}")
        return {}

    def _about(self, flat: FlatSchema) -> dict[str, Json]:
        about = {key: thaw(flat.value(key)) for key in _ABOUT if key in flat.keywords}
        return {**about, "example": thaw(flat.value("examples")[0])} if flat.value("examples") else about

    def _is_null(self, branch: SchemaParts) -> bool:
        try:
            flat = flatten(branch, self.references.local)
        except SchemaConflict:
            return False
        return flat.alternatives is None and types_of(flat.value("type")) == ("null",)


def _values(flat: FlatSchema) -> Sequence[Json] | None:
    """The values that are listed, be it one."""
    if "const" in flat.keywords:
        return [thaw(flat.value("const"))]
    listed = flat.value("enum")
    return None if listed is None else [thaw(value) for value in listed]


def _type(value: Json) -> str:
    return _JSON_TYPES.get(type(value), "object" if isinstance(value, dict) else "array")


def _of(name: str, values: Sequence[Json] | None, types: tuple[str, ...]) -> list[Json] | None:
    """Those of the values that are of the type. A whole number counts as an integer where there is that type."""
    if values is None:
        return None
    return [value for value in values if _counts_as(_type(value), value, types) == name]


def _counts_as(kind: str, value: Json, types: tuple[str, ...]) -> str:
    if kind == "integer" and "integer" not in types:
        return "number"
    if kind == "number" and "number" not in types and float(value).is_integer():
        return "integer"
    return kind
