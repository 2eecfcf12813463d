"""Keywords in words: what an adapter writes into a description when a format has no place for the keyword itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from handrail.schema.subschemas import Json


def with_phrases(text: str, phrases: Iterable[str]) -> str:
    """`text` followed by the phrases, each set off by a full stop."""
    phrase_for = text.strip()
    for phrase in phrases:
        gap = "" if not phrase_for else " " if phrase_for[-1] in ".!?:;…" else ". "
        phrase_for += gap + phrase
    return phrase_for


def phrase(keyword: str, value: Json) -> str:
    """What the keyword asks for, in English where that is short, as JSON otherwise. Without a full stop."""
    return _PHRASES[keyword](value) if keyword in _PHRASES else f"{keyword}: {as_json(value)}"


def conditional(schema: Mapping[str, Json]) -> str:
    """The `if`, `then` and `else` of a schema, as `phrase` says other keywords."""
    then, other = schema.get("then", True), schema.get("else", True)
    phrase_for = f"If the arguments fit the JSON Schema {as_json(schema['if'])}"
    phrase_for += "" if then is True else f", they must fit {as_json(then)}"
    return (
        phrase_for
        if other is True
        else f"{phrase_for}{', and' if then is not True else ','} if not, they must fit {as_json(other)}"
    )


def as_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _several(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _listed(values: Sequence[Json]) -> str:
    return ", ".join(map(as_json, values))


def _listed_by_key(schemas: Mapping[str, Json]) -> str:
    return ", ".join(f"{expression} (its value fits {as_json(schema)})" for expression, schema in schemas.items())


def _together(dependent: Mapping[str, Sequence[str]]) -> str:
    return ". ".join(f"With {name} also give {' and '.join(others)}" for name, others in dependent.items() if others)


def _alternatives(how_many: str) -> Callable[[Sequence[Json]], str]:
    def phrase_for(branches: Sequence[Json]) -> str:
        if all(_only_requires(branch) for branch in branches):
            return f"Give {how_many} of: " + ", ".join(" and ".join(branch["required"]) for branch in branches)
        return f"The arguments must fit {how_many} of these JSON Schemas: {as_json(branches)}"

    return phrase_for


def _refused(schema: Json) -> str:
    if _only_requires(schema):
        names = schema["required"]
        return f"Do not give {names[0]}" if len(names) == 1 else f"Do not give {' and '.join(names)} together"
    return f"The arguments must not fit this JSON Schema: {as_json(schema)}"


def _only_requires(schema: Json) -> bool:
    return isinstance(schema, Mapping) and schema.keys() == {"required"} and bool(schema["required"])


_PHRASES: Mapping[str, Callable[[Json], str]] = {
    "minimum": lambda least: f"At least {as_json(least)}",
    "maximum": lambda greatest: f"At most {as_json(greatest)}",
    "exclusiveMinimum": lambda least: f"Must be greater than {as_json(least)}",
    "exclusiveMaximum": lambda greatest: f"Must be less than {as_json(greatest)}",
    "multipleOf": lambda step: f"Multiple of {as_json(step)}",
    "minItems": lambda least: f"At least {_several(least, 'item', 'items')}",
    "maxItems": lambda greatest: f"At most {_several(greatest, 'item', 'items')}",
    "pattern": lambda expression: f"Must match the regular expression {expression}",
    "title": lambda name: f"Title: {name}",
    "minLength": lambda least: f"At least {_several(least, 'character', 'characters')}",
    "maxLength": lambda greatest: f"At most {_several(greatest, 'character', 'characters')}",
    "minProperties": lambda least: f"At least {_several(least, 'property', 'properties')} given",
    "maxProperties": lambda greatest: f"At most {_several(greatest, 'property', 'properties')} given",
    "uniqueItems": lambda _: "No item twice",
    "contains": lambda schema: f"Among the items: one that fits {as_json(schema)}",
    "prefixItems": lambda schemas: f"The items, in this order, fit {_listed(schemas)}",
    "format": lambda name: f"Format: {name}",
    "default": lambda value: f"Default: {as_json(value)}",
    "examples": lambda values: f"Examples: {_listed(values)}",
    "deprecated": lambda _: "Deprecated",
    "dependentRequired": _together,
    "additionalProperties": lambda schema: f"Other keys are allowed; each value fits {as_json(schema)}",
    "patternProperties": lambda schemas: "Keys that match a regular expression: " + _listed_by_key(schemas),
    "propertyNames": lambda schema: f"Each key fits {as_json(schema)}",
    "oneOf": _alternatives("exactly one"),
    "anyOf": _alternatives("at least one"),
    "allOf": lambda schemas: f"The arguments must fit all of these JSON Schemas: {as_json(schemas)}",
    "not": _refused,
    "enum": lambda values: f"The arguments must be one of: {_listed(values)}",
}
