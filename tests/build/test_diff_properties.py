"""The promise behind `handrail diff`: what is not called breaking leaves every argument object valid.

Schemas are made at random and changed at random; values are built to fit the old schema, or picked blindly, and the
validator that judges real calls is the judge of the claims. The set arithmetic that the comparison borrows from the
validator is switched off for half of the examples, so that neither proof hides a mistake of the other.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from handrail.build import schema_diff
from handrail.build.diff import diff_definitions
from handrail.build.schema_diff import compare_schemas
from handrail.contract.definition import ToolDefinition

NAMES = ["a", "b", "c"]
SCALARS = [
    None,
    True,
    False,
    0,
    1,
    1.0,
    2,
    3,
    -1,
    1.5,
    0.5,
    0.1,
    0.3,
    "",
    "a",
    "b",
    "ab",
    "abc",
    "2024-01-01",
    "x@y.org",
]
TYPES = ["null", "boolean", "object", "array", "number", "string", "integer"]
BOUNDS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
COUNTS = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
]
LEAVES = ["type", "enum", "const", "multipleOf", "pattern", "format", "uniqueItems", "required", "dependentRequired",
          "title", "default", "x-note", *BOUNDS, *COUNTS]  # fmt: skip
PLAIN = ["properties", "properties", "properties", "additionalProperties", "additionalProperties", "items", "items"]
NESTED = [*PLAIN, "prefixItems", "contains", "anyOf", "anyOf", "oneOf", "allOf", "not", "if", "then", "else",
          "patternProperties", "propertyNames", "dependentSchemas", "$ref", "$ref", "unevaluatedProperties",
          "unevaluatedItems"]  # fmt: skip
MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
ONES = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else",
        "unevaluatedProperties", "unevaluatedItems")  # fmt: skip
# Below these a reference looks at a smaller value, so that it may lead back to where it stands.
INTO = ("properties", "additionalProperties", "items", "prefixItems", "contains", "patternProperties")

# Drawing every choice from hypothesis would let it shrink a failure, and take twenty times as long to find one.
chance = st.integers(0, 2**40).map(Random)


# --------------------------------------------------------------------------------------------------- random schemas
def make_schema(random: Random, depth: int, *, refs: bool, keywords: list[str] = NESTED) -> Any:
    if random.random() < 0.06:
        return random.choice([True, True, False])
    schema: dict[str, Any] = {}
    if random.random() < 0.5:
        schema["type"] = make_value("type", random, depth, refs, keywords)
    for _ in range(random.randint(0, 3)):
        keyword = random.choice(LEAVES + (keywords * 2 if depth else []))
        if keyword != "$ref" or refs:
            schema[keyword] = make_value(keyword, random, depth, refs, keywords)
    return schema


def make_value(keyword: str, random: Random, depth: int, refs: bool, keywords: list[str]) -> Any:
    def below() -> Any:
        return make_schema(random, max(depth - 1, 0), refs=refs or keyword in INTO, keywords=keywords)

    if keyword in LEAVES:
        return make_leaf(keyword, random)
    if keyword == "$ref":
        return random.choice(["#/$defs/A", "#/$defs/B"])
    if keyword == "patternProperties":
        return {random.choice(["^a", "[bc]", "."]): below()}
    if keyword in MAPS:
        return {name: below() for name in random.sample(NAMES, random.randint(0, 2))}
    if keyword in LISTS:
        return [below() for _ in range(random.randint(1, 3))]
    closing = keyword.endswith("Properties") and random.random() < 0.6
    return random.choice([False, False, True]) if closing else below()


def make_leaf(keyword: str, random: Random) -> Any:
    if keyword in BOUNDS:
        return random.choice([-1, 0, 0.5, 1, 1.5, 2])
    if keyword in COUNTS:
        return random.randint(0, 3)
    if keyword == "type":
        return random.choice(TYPES) if random.random() < 0.7 else random.sample(TYPES, random.randint(1, 3))
    if keyword == "enum":
        return [pick(random, 1) for _ in range(random.randint(1, 3))]
    if keyword == "required":
        return random.sample(NAMES, random.randint(0, 2))
    if keyword == "dependentRequired":
        return {random.choice(NAMES): random.sample(NAMES, random.randint(0, 2))}
    if keyword == "uniqueItems":
        return random.random() < 0.7
    choices = {
        "multipleOf": [0.1, 0.2, 0.3, 0.5, 1, 1.5, 2, 3, 6],
        "pattern": ["^a", "b$", "^[a-c]*$", "."],
        "format": ["date", "email"],
        "title": ["T", "U"],
    }
    return random.choice(choices[keyword]) if keyword in choices else pick(random, 1)


def make_document(random: Random, keywords: list[str] = NESTED) -> dict[str, Any]:
    schema = make_schema(random, 3, refs="$ref" in keywords, keywords=keywords)
    root = schema if isinstance(schema, dict) else {}
    root["$defs"] = {name: make_schema(random, 2, refs=False, keywords=keywords) for name in "AB"}
    return root


# -------------------------------------------------------------------------------------------------- random changes
def subschemas(schema: Any, refs: bool = True) -> Iterator[tuple[dict[str, Any], bool]]:
    """Every subschema that is an object, and whether a reference there cannot make a circle."""
    if not isinstance(schema, dict):
        return
    yield schema, refs
    for keyword, value in schema.items():
        below = (refs or keyword in INTO) and keyword != "$defs"
        if keyword in MAPS:
            for each in value.values():
                yield from subschemas(each, below)
        elif keyword in LISTS:
            for each in value:
                yield from subschemas(each, below)
        elif keyword in ONES:
            yield from subschemas(value, below)


def change(document: dict[str, Any], random: Random) -> dict[str, Any]:
    """The document with one to three keywords dropped, added, replaced or nudged, somewhere."""
    changed = copy.deepcopy(document)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        schema, refs = random.choice(list(subschemas(changed)))
        present = [keyword for keyword in schema if keyword != "$defs"]
        action = random.random()
        if action < 0.35 and present:
            del schema[random.choice(present)]
        elif action < 0.6 or not present:
            keyword = random.choice([keyword for keyword in LEAVES + NESTED if refs or keyword != "$ref"])
            schema[keyword] = make_value(keyword, random, 1, refs, NESTED)
        else:
            nudge(schema, random.choice(present), random, refs)
    return changed


def nudge(schema: dict[str, Any], keyword: str, random: Random, refs: bool) -> None:
    value = schema[keyword]
    if keyword in BOUNDS + COUNTS:
        schema[keyword] = max(0, value + random.choice([-1, 1]))
    elif keyword in ("enum", *LISTS) and len(value) > 1 and random.random() < 0.5:
        value.pop(random.randrange(len(value)))
    elif keyword == "enum":
        value.append(pick(random, 1))
    elif keyword in LISTS:
        value.append(make_schema(random, 1, refs=refs))
    elif keyword == "properties" and random.random() < 0.7:
        name = random.choice(NAMES)
        if name in value:
            del value[name]
        else:
            value[name] = make_schema(random, 1, refs=True)
    else:
        schema[keyword] = make_value(keyword, random, 1, refs, NESTED)


LOOSER = {"minimum": -1, "exclusiveMinimum": -1, "minLength": -1, "minItems": -1, "minProperties": -1,
          "maximum": 1, "exclusiveMaximum": 1, "maxLength": 1, "maxItems": 1, "maxProperties": 1}  # fmt: skip
DROPPABLE = {*LEAVES, "items"} - {"x-note", "default"}


def loosen(document: dict[str, Any], random: Random) -> dict[str, Any]:
    """The document with one thing in it made laxer; of plain keywords only, where laxer below is laxer above."""
    changed = copy.deepcopy(document)
    schema = random.choice([schema for schema, _ in subschemas(changed)])
    keyword = random.choice([keyword for keyword in schema if keyword in DROPPABLE | {"properties"}] or [""])
    if keyword in LOOSER and random.random() < 0.7:
        schema[keyword] = schema[keyword] + LOOSER[keyword] if keyword[:3] != "min" else schema[keyword] / 2 - 1
        if keyword in COUNTS:
            schema[keyword] = max(0, int(schema[keyword]))
    elif keyword == "enum" and random.random() < 0.7:
        schema[keyword].append(pick(random, 1))
    elif keyword == "properties" and schema.get("additionalProperties") is False:
        schema[keyword].setdefault("fresh", make_schema(random, 1, refs=False, keywords=PLAIN))
    elif keyword in DROPPABLE:
        del schema[keyword]
    return changed


# --------------------------------------------------------------------------------------------------- random values
def pick(random: Random, depth: int) -> Any:
    """A value that knows of no schema."""
    kind = random.random()
    if depth and kind < 0.25:
        return {name: pick(random, depth - 1) for name in random.sample(NAMES, random.randint(0, 3))}
    if depth and kind < 0.45:
        return [pick(random, depth - 1) for _ in range(random.randint(0, 3))]
    return random.choice(SCALARS)


def fit(schema: Any, document: dict[str, Any], random: Random, depth: int = 4) -> Any:
    """A value built to fit the schema; it often does, and the validator has the last word."""
    if not isinstance(schema, dict) or depth == 0 or random.random() < 0.05:
        return pick(random, 1)
    schema = flat(schema, document, random)
    if "const" in schema or "enum" in schema:
        return copy.deepcopy(schema["const"] if "const" in schema else random.choice(schema["enum"]))
    named = schema.get("type", random.choice(TYPES))
    kind = named if isinstance(named, str) else random.choice(named)
    if kind == "object":
        return fit_object(schema, document, random, depth)
    if kind == "array":
        least = schema.get("minItems", 0)
        size = random.randint(least, max(least, min(schema.get("maxItems", 3), 3)))
        prefix = schema.get("prefixItems", [])
        parts = [prefix[index] if index < len(prefix) else schema.get("items", True) for index in range(size)]
        return [fit(part, document, random, depth - 1) for part in parts]
    return fit_scalar(schema, kind, random)


def flat(schema: dict[str, Any], document: dict[str, Any], random: Random) -> dict[str, Any]:
    """The schema with its references and one of its alternatives written into it, as far as that goes."""
    parts = [*schema.get("allOf", []), *(random.choices(schema[key])[0] for key in ("anyOf", "oneOf") if key in schema)]
    parts += [document["$defs"][schema["$ref"][-1]]] if "$ref" in schema else []
    whole = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
    for part in parts:
        if isinstance(part, dict):
            part = flat(part, document, random)
            properties = part.get("properties", {}) | whole.get("properties", {})
            whole = part | whole | ({"properties": properties} if properties else {})
    return whole


def fit_object(schema: dict[str, Any], document: dict[str, Any], random: Random, depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    names = set(schema.get("required", [])) | {name for name in properties if random.random() < 0.6}
    if rest is not False:
        names |= {name for name in NAMES if random.random() < 0.3}
    return {name: fit(properties.get(name, rest), document, random, depth - 1) for name in sorted(names)}


def fit_scalar(schema: dict[str, Any], kind: str, random: Random) -> Any:
    if kind in ("number", "integer"):
        edges = [schema[key] + step for key in BOUNDS if key in schema for step in (0, 0.5, 1, -0.5, -1)] or [0, 1, 2.5]
        step = schema.get("multipleOf", 1)
        number = random.choice(edges) if random.random() < 0.6 else step * random.randint(-3, 6)
        return int(number) if kind == "integer" else number
    if kind == "string":
        known = {"date": "2024-01-01", "email": "x@y.org"}.get(schema.get("format", ""))
        return known or random.choice(["", "a", "b", "ab", "abc", "ba", "cab"])
    return {"null": None, "boolean": random.random() < 0.5}[kind]


# --------------------------------------------------------------------------------------------------- the promises
def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(schema, validate_formats=True)


def values_for(document: dict[str, Any], random: Random) -> Iterator[Any]:
    for _ in range(12):
        yield fit(document, document, random)
        yield pick(random, 3)


def tool(parameters: dict[str, Any], output: dict[str, Any] | None = None) -> ToolDefinition:
    wire = {
        "toolId": "t", "version": "1.0.0", "description": "Does it.", "category": "utility", "sideEffects": "none",
        "idempotent": True, "requiresConfirmation": False, "allowedModes": ["text"], "latencyBudgetMs": 1,
        "parameters": parameters,
    }  # fmt: skip
    return ToolDefinition.from_dict(wire | ({"outputSchema": output} if output is not None else {}))


def kinds(old: dict[str, Any], new: dict[str, Any], *, borrowed: bool = True) -> set[str]:
    """The kinds of all changes, with or without the validator's set arithmetic."""
    with patch.object(schema_diff, "canonicalize", schema_diff.canonicalize if borrowed else None):
        return {change.kind for change in diff_definitions(tool(old), tool(new))}


@given(chance, st.booleans())
@settings(max_examples=settings().max_examples * 6)
def test_whatever_is_not_breaking_leaves_every_valid_argument_object_valid(random: Random, borrowed: bool) -> None:
    old = make_document(random)
    new = change(old, random)
    if "breaking" in kinds(old, new, borrowed=borrowed):
        return
    before, after = validator(old), validator(new)
    for value in values_for(old, random):
        assert not before.is_valid(value) or after.is_valid(value), (old, new, value)


@given(chance, st.booleans())
@settings(max_examples=settings().max_examples * 3)
def test_whatever_is_not_breaking_in_a_result_leaves_no_surprise_but_new_fields(random: Random, borrowed: bool) -> None:
    old = make_document(random)
    new = change(old, random)
    with patch.object(schema_diff, "canonicalize", schema_diff.canonicalize if borrowed else None):
        found = diff_definitions(tool({}, old), tool({}, new))
    if {change.kind for change in found} & {"breaking", "widening"}:
        return
    before, after = validator(old), validator(new)
    for value in values_for(new, random):
        assert not after.is_valid(value) or before.is_valid(value), (old, new, value)


@given(chance)
def test_a_schema_does_not_differ_from_itself(random: Random) -> None:
    document = make_document(random)
    assert diff_definitions(tool(document), tool(copy.deepcopy(document))) == []


@given(chance)
def test_a_schema_that_differs_is_never_passed_over_in_silence(random: Random) -> None:
    old = make_document(random)
    new = change(old, random)
    assert schema_diff.token(old) == schema_diff.token(new) or compare_schemas(old, new)


@given(chance, st.booleans())
@settings(max_examples=settings().max_examples * 3)
def test_a_pure_widening_the_other_way_round_is_breaking_or_neutral(random: Random, borrowed: bool) -> None:
    old = make_document(random)
    new = change(old, random)
    if "breaking" in (there := kinds(old, new, borrowed=borrowed)):
        return
    back = kinds(new, old, borrowed=borrowed)
    assert "breaking" in back or "widening" not in there | back, (old, new)


@given(chance)
@settings(max_examples=settings().max_examples * 3)
def test_to_loosen_a_plain_schema_is_never_called_breaking(random: Random) -> None:
    old = make_document(random, PLAIN)
    for schema, _ in subschemas(old):
        # To drop these is more than to loosen: what they mean to callers is not for the validator to say.
        schema.pop("default", None), schema.pop("x-note", None)
    new = loosen(old, random)
    assert "breaking" not in kinds(old, new), (old, new)


# --------------------------------------------------------------------------------------- all pairs of a few schemas
FEW: list[dict[str, Any]] = [
    {}, {"type": "integer"}, {"type": "number"}, {"type": ["integer", "null"]}, {"type": "string"}, {"type": "object"},
    {"enum": [1, "a"]}, {"enum": [1.0]}, {"const": True}, {"enum": ["a", "b"], "type": "string"},
    {"enum": [1, "a"], "const": 1}, {"minimum": 0, "exclusiveMinimum": 1}, {"minimum": 1, "exclusiveMinimum": 0},
    {"minimum": 1}, {"exclusiveMinimum": 1}, {"type": "integer", "minimum": 2}, {"maximum": 2}, {"multipleOf": 2},
    {"multipleOf": 4},
    {"minLength": 1}, {"maxLength": 1, "type": "string"}, {"pattern": "^a"}, {"pattern": "b$"}, {"format": "date"},
    {"minItems": 1}, {"uniqueItems": True}, {"items": {"type": "integer"}}, {"prefixItems": [{"type": "string"}]},
    {"prefixItems": [{"type": "string"}], "items": False}, {"contains": {"const": 1}},
    {"contains": {"const": 1}, "minContains": 0}, {"contains": {"const": 1}, "maxContains": 1},
    {"required": ["a"]}, {"properties": {"a": {"type": "integer"}}}, {"additionalProperties": False},
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"properties": {"a": {"type": "number"}, "b": True}, "additionalProperties": False},
    {"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": {"type": "string"}},
    {"patternProperties": {"^a": {"type": "integer"}}},
    {"patternProperties": {"^a": True}, "additionalProperties": False},
    {"patternProperties": {"^a": {"type": "integer"}}, "properties": {"a": {"type": "string"}}},
    {"patternProperties": {"^a": True}, "additionalProperties": False, "dependentRequired": {"a": ["b"]}},
    {"properties": {"a": {"type": "integer"}}, "patternProperties": {"^a": True}, "additionalProperties": False},
    {"propertyNames": {"enum": ["a"]}}, {"dependentRequired": {"a": ["b"]}}, {"maxProperties": 1},
    {"not": {"type": "string"}},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
    {"allOf": [{"type": "integer"}, {"minimum": 2}]}, {"if": {"type": "integer"}, "then": {"minimum": 2}},
    {"if": {"type": "integer"}, "else": {"minLength": 1}},
    {"unevaluatedProperties": False, "properties": {"a": True}},
]  # fmt: skip
VALUES: list[Any] = [
    *SCALARS, {}, {"a": 1}, {"a": 1.5}, {"a": "a"}, {"b": "b"}, {"a": 1, "b": 2}, {"a": "a", "b": "b"}, {"c": None},
    [], [1], ["a"], [1, 1.0], ["a", 1], ["a", "b", "c"], [None],
]  # fmt: skip


@pytest.mark.parametrize("borrowed", [True, False], ids=["with set arithmetic", "by keywords alone"])
def test_every_claim_about_every_pair_of_a_few_schemas_is_true(borrowed: bool) -> None:
    takes = [{index for index, value in enumerate(VALUES) if validator(schema).is_valid(value)} for schema in FEW]
    with patch.object(schema_diff, "canonicalize", schema_diff.canonicalize if borrowed else None):
        for i, old in enumerate(FEW):
            for j, new in enumerate(FEW):
                found = compare_schemas(old, new)
                assert not all(item.old_in_new for item in found) or takes[i] <= takes[j], (old, new)
                assert not all(item.new_in_old for item in found) or takes[j] <= takes[i], (old, new)
