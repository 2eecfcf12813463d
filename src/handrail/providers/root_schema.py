"""The root of the parameters: a plain object, without the combinators that providers refuse beside its `type`.

They are put in words, in the tool's description, and reported. `allOf` is merged where that can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from handrail.contract.frozen import thaw
from handrail.providers.adapted import Loss
from handrail.providers.keyword_notes import conditional, phrase, with_phrases
from handrail.providers.schema_flattening import FlatSchema, SchemaConflict, SchemaPart, SchemaParts, flatten
from handrail.schema.subschemas import Json, LocalRefs, unconditional

_REFUSED = ("anyOf", "oneOf", "not", "enum", "if")
"""As is `allOf`, which can mostly be merged into the root."""


class RootSchema:
    """The parameters of a tool, and what of them cannot stay at the root."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema = schema
        self.refused = [keyword for keyword in _REFUSED if keyword in schema]

    @cached_property
    def rest(self) -> Mapping[str, Json]:
        """The root without what is refused; `allOf` is still there."""
        return _without(self.schema, self.refused) if self.refused else self.schema

    @cached_property
    def flat(self) -> FlatSchema | None:
        """The root with `allOf` and its reference worked in; None if that cannot be, or brings in what is refused."""
        try:
            flat = flatten((SchemaPart(self.rest, ()),), LocalRefs(self.schema))
        except SchemaConflict:
            return None
        return None if flat.alternatives is not None or flat.keywords.keys() & set(_REFUSED) else flat

    @cached_property
    def taken(self) -> list[str]:
        """What is put in words instead."""
        unmerged = "allOf" in self.schema and self.flat is None
        return [*self.refused, "allOf"] if unmerged else self.refused

    @cached_property
    def only_in_branches(self) -> dict[str, Json]:
        """The properties that only the schemas put in words describe: a model must still see their names."""
        if not self.taken or self.schema.get("additionalProperties", True) is not True:
            return {}
        listed = self.schema.get("properties", {})
        found: dict[str, list[Json]] = {}
        for schema in unconditional(_branches(self.schema, self.taken), LocalRefs(self.schema)):
            for name, described in schema.get("properties", {}).items():
                if name not in listed and described not in found.setdefault(name, []):
                    found[name].append(described)
        return {name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in found.items()}

    def without_alternatives(self) -> Mapping[str, Json]:
        """What is left, with the properties that only the branches have."""
        left = _without(self.rest, ["allOf"]) if "allOf" in self.taken else self.rest
        if not self.only_in_branches:
            return left
        return {**left, "properties": {**left.get("properties", {}), **self.only_in_branches}}

    def parameters(self) -> dict[str, Json]:
        """What is left as plain data, `allOf` merged."""
        left = self.without_alternatives()
        if "allOf" in left and self.flat is not None:
            left = _merged(self.flat)
        written: dict[str, Json] = thaw(left)
        return written

    def losses(self) -> tuple[Loss, ...]:
        done = "refused at the root, so put into the description"
        return tuple(Loss(keyword, f"/{keyword}", done) for keyword in self.taken)

    def sentences(self) -> list[str]:
        """What was taken away from the root, in words."""
        root = self.schema
        return [(conditional(root) if key == "if" else phrase(key, root[key])) + "." for key in self.taken]

    def with_words(self, text: str) -> str:
        return with_phrases(text, self.sentences())

    def described(self, description: str, limit: int) -> tuple[str, bool]:
        """The tool's description with the words, unless that is too long: then without them, and True."""
        if not self.taken:
            return description, False
        noted = self.with_words(description)
        return (noted, False) if len(noted) <= limit else (description, True)


def _without(root: Mapping[str, Json], taken: Sequence[str]) -> dict[str, Json]:
    gone = {*taken, "then", "else"} if "if" in taken else set(taken)
    return {keyword: value for keyword, value in root.items() if keyword not in gone}


def _merged(flat: FlatSchema) -> dict[str, Json]:
    merged = {keyword: value for keyword, (value, _) in flat.keywords.items()}
    if flat.properties is not None:
        merged["properties"] = {name: _one(parts) for name, parts in flat.properties.items()}
    return {**merged, "required": list(flat.required)} if flat.required else merged


def _one(parts: SchemaParts) -> Json:
    return parts[0].schema if len(parts) == 1 else {"allOf": [part.schema for part in parts]}


def _branches(root: Mapping[str, Json], taken: Sequence[str]) -> Iterator[Json]:
    for keyword in taken:
        if keyword in ("anyOf", "oneOf", "allOf"):
            yield from root[keyword]
        elif keyword == "if":
            yield from (root[branch] for branch in ("then", "else") if branch in root)
