"""Defaults: what is filled in and what is not, and the proof that filling in never makes a valid instance invalid.

The promise is tested with random schemas: where `find_unsafe_defaults` finds nothing, every valid instance stays valid
when it is filled in, and filling it in again changes nothing.
"""

import copy
import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from handrail.contract.errors import SchemaError
from handrail.contract.frozen import freeze
from handrail.schema.defaults import find_unsafe_defaults
from handrail.schema.validator import compile_schema, find_schema_problems

ONE: dict[str, Any] = {"properties": {"a": {"default": 1}}}


def filled(schema: dict[str, Any], instance: Any) -> Any:
    return compile_schema(schema).with_defaults(instance)[0]


def places(schema: dict[str, Any], instance: Any) -> list[str]:
    return list(compile_schema(schema).with_defaults(instance)[1])


# ------------------------------------------------------------------------------------------------- what is filled in


@pytest.mark.parametrize(
    ("schema", "instance", "value", "pointers"),
    [
        (ONE, {}, {"a": 1}, ["/a"]),
        (ONE, {"a": 2}, {"a": 2}, []),
        (ONE, {"a": None}, {"a": None}, []),
        (ONE, [], [], []),
        ({"properties": {"a": {"default": None}}}, {}, {"a": None}, ["/a"]),
        ({"properties": {"o": ONE}}, {"o": {}}, {"o": {"a": 1}}, ["/o/a"]),
        ({"properties": {"o": ONE}}, {}, {}, []),
        ({"properties": {"o": {**ONE, "default": {}}}}, {}, {"o": {"a": 1}}, ["/o", "/o/a"]),
        ({"properties": {"o": {**ONE, "default": {"a": 5}}}}, {}, {"o": {"a": 5}}, ["/o"]),
        ({"properties": {"l": {"items": ONE}}}, {"l": [{}, {"a": 2}]}, {"l": [{"a": 1}, {"a": 2}]}, ["/l/0/a"]),
        ({"properties": {"l": {"items": ONE, "default": [{}]}}}, {}, {"l": [{"a": 1}]}, ["/l", "/l/0/a"]),
        ({"prefixItems": [True, ONE], "items": ONE}, [{}, {}, {}], [{}, {"a": 1}, {"a": 1}], ["/1/a", "/2/a"]),
        ({"prefixItems": [ONE]}, [{}, {}], [{"a": 1}, {}], ["/0/a"]),
        ({"$ref": "#/$defs/o", "$defs": {"o": ONE}}, {}, {"a": 1}, ["/a"]),
        ({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"default": 3}}}, {}, {"a": 3}, ["/a"]),
        ({"properties": {"a": {"$ref": "#n"}}, "$defs": {"n": {"$anchor": "n", "default": 3}}}, {}, {"a": 3}, ["/a"]),
        ({"allOf": [ONE, {"properties": {"b": {"default": 2}}}]}, {}, {"a": 1, "b": 2}, ["/a", "/b"]),
        ({"properties": {"a/b~": {"default": 1}}}, {}, {"a/b~": 1}, ["/a~1b~0"]),
        ({"properties": {"a": {"default": 1}}, "required": ["a"]}, {}, {}, []),
        ({"anyOf": [ONE], "oneOf": [ONE], "if": ONE, "then": ONE, "else": ONE, "not": {"not": ONE}}, {}, {}, []),
        ({"additionalProperties": ONE, "patternProperties": {"b": ONE}}, {"b": {}, "c": {}}, {"b": {}, "c": {}}, []),
        ({"dependentSchemas": {"b": ONE}}, {"b": 1}, {"b": 1}, []),
        ({"default": {"a": 1}}, {}, {}, []),
    ],
)
def test_defaults_are_filled_in_where_they_always_apply(
    schema: dict[str, Any], instance: Any, value: Any, pointers: list[str]
) -> None:
    before = copy.deepcopy(instance)
    assert compile_schema(schema).with_defaults(instance) == (value, tuple(pointers))
    assert instance == before


def test_a_default_beside_a_reference_wins_over_the_one_behind_it() -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/n", "default": 1}}, "$defs": {"n": {"default": 2}}}
    assert filled(schema, {}) == {"a": 1}
    assert find_unsafe_defaults(schema) == []


def test_an_object_that_one_branch_brings_gets_the_defaults_of_the_others() -> None:
    inside = {"properties": {"o": {"properties": {"x": {"default": 1}}}}}
    for branches in (
        [inside, {"properties": {"o": {"default": {}}}}],
        [{"properties": {"o": {"default": {}}}}, inside],
    ):
        assert filled({"allOf": branches}, {}) == {"o": {"x": 1}}


def test_a_recursive_schema_is_filled_in_as_deep_as_the_instance_goes() -> None:
    tree = {"properties": {"size": {"default": 1}, "left": {"$ref": "#"}, "all": {"items": {"$ref": "#"}}}}
    assert filled(tree, {"left": {"left": {}}, "all": [{}]}) == {
        "size": 1,
        "left": {"size": 1, "left": {"size": 1}},
        "all": [{"size": 1}],
    }
    assert find_unsafe_defaults(tree) == []


def test_a_default_that_would_contain_itself_is_filled_in_once_and_called_unsafe() -> None:
    schema = {"properties": {"next": {"$ref": "#", "default": {}}}}
    assert filled(schema, {}) == {"next": {}}
    assert [problem.pointer for problem in find_unsafe_defaults(schema)] == ["/properties/next/default"]


def test_defaults_that_multiply_are_stopped_and_called_unsafe() -> None:
    levels = {
        f"d{level}": {"properties": {name: {"$ref": f"#/$defs/d{level + 1}", "default": {}} for name in "pq"}}
        for level in range(25)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**levels, "d25": ONE}}
    assert len(places(schema, {})) < 5_000
    assert find_unsafe_defaults(schema)


def test_a_long_chain_of_nested_defaults_does_not_exhaust_the_stack() -> None:
    levels = {
        f"d{level}": {"properties": {"n": {"$ref": f"#/$defs/d{level + 1}", "default": {}}}} for level in range(900)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**levels, "d900": ONE}}
    assert places(schema, {})[0] == "/n"
    assert find_unsafe_defaults(schema)


# --------------------------------------------------------------------------------------------------------- on a copy


def test_what_a_handler_does_to_its_arguments_reaches_neither_schema_nor_caller() -> None:
    schema = {
        "properties": {
            "tags": {"default": ["x"]},
            "deep": {"default": {"list": [1], "o": {"k": [2]}}},
            "o": {"properties": {"l": {"default": []}}, "default": {}},
        }
    }
    original = copy.deepcopy(schema)
    compiled = compile_schema(schema)
    given_instance: dict[str, Any] = {}
    first = compiled.validate(given_instance)[0]
    first["tags"].append("y")
    first["deep"]["list"].append(2)
    first["deep"]["o"]["k"].clear()
    first["o"]["l"].append(1)
    assert given_instance == {}
    assert schema == original
    assert compiled.validate({})[0] == {"tags": ["x"], "deep": {"list": [1], "o": {"k": [2]}}, "o": {"l": []}}


def test_defaults_of_a_frozen_schema_are_plain_and_can_be_changed() -> None:
    value, _ = compile_schema(freeze({"properties": {"a": {"default": {"b": [1]}}}})).with_defaults({})
    value["a"]["b"].append(2)
    assert value == {"a": {"b": [1, 2]}}


def test_an_instance_with_nothing_to_fill_in_is_given_back_itself() -> None:
    instance = {"a": 1, "l": [{}]}
    assert compile_schema(ONE).validate(instance)[0] is instance
    assert compile_schema({"properties": {"a": {}}}).validate(instance) == (instance, (), [])


def test_an_invalid_instance_is_not_filled_in() -> None:
    schema = {"properties": {"a": {"default": 1}, "b": {"type": "string"}}}
    value, pointers, violations = compile_schema(schema).validate({"b": 1})
    assert (value, pointers, len(violations)) == ({"b": 1}, (), 1)


def test_without_a_proof_the_filled_instance_is_checked_again() -> None:
    schema = {"properties": {"a": {"default": 1}, "b": {}}, "dependentRequired": {"a": ["b"]}}
    compiled = compile_schema(schema)
    assert not compiled.defaults_safe
    assert compiled.validate({"b": 1}) == ({"b": 1, "a": 1}, ("/a",), [])
    value, pointers, violations = compiled.validate({})
    assert (value, pointers) == ({}, ())
    assert [violation.message for violation in violations] == ['"b" is required when "a" is given.']


# --------------------------------------------------------------------------------------------------------- the proof


def doubts(schema: dict[str, Any]) -> list[tuple[str, str]]:
    assert find_schema_problems(schema) == []
    return [(problem.pointer, problem.message) for problem in find_unsafe_defaults(schema)]


A: dict[str, Any] = {"properties": {"a": {"default": 1}, "b": {}}}
INSIDE: dict[str, Any] = {"properties": {"o": ONE}}
ITEMS: dict[str, Any] = {"items": ONE}


@pytest.mark.parametrize(
    "schema",
    [
        A,
        {**A, "additionalProperties": False, "required": ["b"]},
        {**A, "additionalProperties": False, "maxProperties": 2},
        {**A, "minProperties": 1},
        {**A, "dependentRequired": {"b": ["a"]}},
        {**A, "dependentRequired": {"a": ["b"]}, "required": ["b"]},
        {"properties": {"a": {"default": 1}, "b": {"default": 1}}, "dependentRequired": {"a": ["b"], "b": ["a"]}},
        {**A, "dependentSchemas": {"b": {"required": ["c"]}, "a": True}},
        {**A, "propertyNames": {"pattern": "^[a-z]$"}},
        {**A, "patternProperties": {"^x-": {"type": "string"}}},
        {**A, "unevaluatedProperties": False},
        {"allOf": [A], "unevaluatedProperties": False},
        {"allOf": [{"properties": {"a": True}, "additionalProperties": False}, ONE]},
        {**A, "anyOf": [{"required": ["b"]}, {"properties": {"c": {"type": "string"}}}]},
        {**A, "not": {"required": ["b", "c"]}},
        {**A, "if": {"required": ["b"]}, "then": {"properties": {"b": {"type": "string"}}}, "else": {"minLength": 3}},
        {**A, "oneOf": [{"enum": ["x"]}, {"type": "object"}]},
        {**A, "enum": ["x", 1]},
        {**INSIDE, "anyOf": [{"required": ["o"]}, {"minProperties": 2}]},
        {**INSIDE, "maxProperties": 1, "propertyNames": {"maxLength": 1}},
        {**ITEMS, "maxItems": 3, "uniqueItems": False, "contains": True, "unevaluatedItems": False},
        {**ITEMS, "not": {"items": True, "uniqueItems": False, "maxItems": 0}},
        {"properties": {"a": {"default": "x", "type": "integer"}}, "required": ["a"]},
        {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}},
        {"properties": {"a": {"anyOf": [{"type": "object", "properties": {"x": {"default": "y", "type": "null"}}}]}}},
        {"properties": {"a": {"$ref": "#/$defs/n", "default": 2}}, "$defs": {"n": {"type": "integer", "minimum": 2}}},
        {"properties": {"o": {"default": {}, "required": ["x"], "properties": {"x": {}}}}, "required": ["o"]},
        {"properties": {"o": {"default": {}, "minProperties": 1, **ONE}}},
    ],
)
def test_a_harmless_keyword_is_not_reported(schema: dict[str, Any]) -> None:
    assert doubts(schema) == []
    assert compile_schema(schema).defaults_safe


@pytest.mark.parametrize(
    ("schema", "pointer", "words"),
    [
        ({"properties": {"a": {"type": "string", "default": 1}}}, "/properties/a/default", "its own schema"),
        ({"properties": {"a": {"minimum": 3, "default": 1}}}, "/properties/a/default", "its own schema"),
        (
            {"properties": {"a": {"$ref": "#/$defs/n", "default": 1}}, "$defs": {"n": {"minimum": 2}}},
            "/properties/a/default",
            "its own schema",
        ),
        ({"properties": {"o": {"default": {}, "required": ["x"]}}}, "/properties/o/default", "its own schema"),
        ({"items": {"properties": {"a": {"type": "string", "default": 1}}}}, "/items/properties/a/default", "its own"),
        ({**A, "maxProperties": 1}, "/maxProperties", "number of properties"),
        ({**A, "maxProperties": 1, "additionalProperties": False}, "/maxProperties", "number of properties"),
        ({**A, "maxProperties": 2}, "/maxProperties", "additionalProperties: false"),
        ({**A, "dependentRequired": {"a": ["b"]}}, "/dependentRequired", '"b"'),
        ({**A, "dependencies": {"a": ["b"]}}, "/dependencies", '"b"'),
        ({**A, "dependentSchemas": {"a": {"required": ["b"]}}}, "/dependentSchemas", 'default of "a"'),
        ({**A, "dependentSchemas": {"b": {"maxProperties": 1}}}, "/dependentSchemas", '"maxProperties" in it'),
        ({**A, "dependencies": {"a": {"required": ["b"]}}}, "/dependencies", 'default of "a"'),
        ({**A, "propertyNames": {"enum": ["b"]}}, "/propertyNames", 'the name "a"'),
        ({**A, "patternProperties": {"^a": {"type": "string"}}}, "/patternProperties", '"^a"'),
        ({**A, "not": {"required": ["a"]}}, "/not", '"required" in it'),
        ({**A, "if": {"required": ["a"]}, "then": {"required": ["b"]}}, "/if", '"required" in it'),
        ({**A, "anyOf": [{"maxProperties": 0}, {"required": ["b"]}]}, "/anyOf", '"maxProperties" in it'),
        ({**A, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "/oneOf", '"required" in it'),
        ({**A, "oneOf": [{"properties": {"a": {"const": 1}}}, {}]}, "/oneOf", '"properties" in it'),
        ({**A, "anyOf": [{"additionalProperties": False}]}, "/anyOf", '"additionalProperties" in it'),
        (
            {**A, "anyOf": [{"allOf": [{"$ref": "#/$defs/x"}]}], "$defs": {"x": {"const": {}}}},
            "/anyOf",
            '"const" in it',
        ),
        ({**A, "enum": [{}, {"b": 1}]}, "/enum", "whole values"),
        ({**A, "const": {}}, "/const", "whole values"),
        ({"properties": {"l": {**ITEMS, "uniqueItems": True}}}, "/properties/l/uniqueItems", "items"),
        ({**ITEMS, "contains": {"maxProperties": 0}}, "/contains", "items"),
        ({"allOf": [ITEMS, {"unevaluatedItems": {"maxProperties": 0}}]}, "/allOf/1/unevaluatedItems", "items"),
        ({**ITEMS, "not": {"items": {"required": ["a"]}}}, "/not", '"items" in it'),
        ({**INSIDE, "not": {"properties": {"o": {"required": ["a"]}}}}, "/not", 'the defaults inside "o"'),
        ({**INSIDE, "const": {"o": {}}}, "/const", "whole values"),
        ({**INSIDE, "patternProperties": {"o": {"maxProperties": 0}}}, "/patternProperties", '"o"'),
        (
            {"allOf": [INSIDE, {"additionalProperties": {"maxProperties": 0}}]},
            "/allOf/1/additionalProperties",
            '"o"',
        ),
        (
            {"allOf": [ONE, {"properties": {"b": {}}, "additionalProperties": False}]},
            "/allOf/1/additionalProperties",
            '"a": true',
        ),
        ({"allOf": [ONE, {"unevaluatedProperties": False}]}, "/allOf/1/unevaluatedProperties", '"a"'),
        (
            {"allOf": [ONE, {"properties": {"a": {"default": 2}}}]},
            "/allOf/0/properties/a/default",
            "different defaults",
        ),
        (
            {"properties": {"a": {"allOf": [{"default": 1}, {"default": True}]}}},
            "/properties/a/allOf/0/default",
            "different defaults",
        ),
        (
            {"allOf": [ONE, {"properties": {"a": {"type": "string"}}}]},
            "/allOf/0/properties/a/default",
            "/allOf/1/properties/a; make the two agree",
        ),
        (
            {
                "allOf": [
                    ONE,
                    {"anyOf": [{"properties": {"a": True}, "required": ["z"]}], "unevaluatedProperties": False},
                ]
            },
            "/allOf/1/unevaluatedProperties",
            '"a"',
        ),
        ({**A, "$dynamicRef": "#m", "$defs": {"m": {"$dynamicAnchor": "m"}}}, "/$dynamicRef", "use $ref"),
    ],
)
def test_an_unsafe_default_is_reported_with_the_keyword_and_a_way_out(
    schema: dict[str, Any], pointer: str, words: str
) -> None:
    found = doubts(schema)
    assert any(at == pointer and words in message for at, message in found), found
    assert not compile_schema(schema).defaults_safe


@pytest.mark.parametrize("keyword", ["not", "if", "then", "else", "anyOf", "oneOf", "dependentSchemas"])
@pytest.mark.parametrize(
    ("schema", "noticing"),
    [
        (A, {"properties": {"a": {"const": 1}}}),
        (A, {"required": ["a"]}),
        (A, {"dependentRequired": {"c": ["a"]}}),
        (A, {"dependentRequired": {"a": ["c"]}}),
        (A, {"dependentSchemas": {"a": {"required": ["c"]}}}),
        (A, {"dependencies": {"a": {"required": ["c"]}}}),
        (A, {"dependencies": {"a": ["c"]}}),
        (A, {"minProperties": 1}),
        (A, {"maxProperties": 1}),
        (A, {"propertyNames": {"enum": ["b"]}}),
        (A, {"patternProperties": {"a": {"type": "string"}}}),
        (A, {"additionalProperties": False}),
        (A, {"unevaluatedProperties": False}),
        (A, {"enum": [{}]}),
        (A, {"const": {}}),
        (INSIDE, {"properties": {"o": {"required": ["a"]}}}),
        (INSIDE, {"patternProperties": {"o": {"required": ["a"]}}}),
        (INSIDE, {"additionalProperties": {"required": ["a"]}}),
        (INSIDE, {"unevaluatedProperties": {"required": ["a"]}}),
        (ITEMS, {"items": {"required": ["a"]}}),
        (ITEMS, {"prefixItems": [{"required": ["a"]}]}),
        (ITEMS, {"contains": {"required": ["a"]}}),
        (ITEMS, {"uniqueItems": True}),
        (ITEMS, {"unevaluatedItems": {"required": ["a"]}}),
        (ITEMS, {"const": [{}]}),
    ],
)
def test_a_schema_that_may_apply_is_reported_if_it_may_notice(
    keyword: str, schema: dict[str, Any], noticing: dict[str, Any]
) -> None:
    for part in (noticing, {"allOf": [noticing]}, {"$ref": "#/$defs/part"}):
        whole = {"anyOf": [part], "oneOf": [True, part], "dependentSchemas": {"b": part}}.get(keyword, part)
        assert f"/{keyword}" in [at for at, _ in doubts({**schema, keyword: whole, "$defs": {"part": noticing}})]


def test_problems_are_schema_errors_in_the_order_of_their_places() -> None:
    schema = {**A, "not": {"required": ["a"]}, "maxProperties": 1, "const": {}}
    problems = find_unsafe_defaults(schema)
    assert all(isinstance(problem, SchemaError) for problem in problems)
    assert [problem.pointer for problem in problems] == ["/const", "/maxProperties", "/not"]


# ------------------------------------------------------------------------------------------------ the promise, at large

NAMES = "abcd"
PLAIN = [0, 1, 2, 1.5, "", "x", "ab", True, None]
LEAVES: list[Any] = [
    {"type": "integer"},
    {"type": "integer", "minimum": 1},
    {"maximum": 2},
    {"type": "string", "maxLength": 1},
    {"enum": [0, 1, "x"]},
    {"const": 1},
    {"type": ["integer", "null"]},
    {"type": "object"},
    {"type": "array"},
    {},
    True,
    False,
]


class Maker:
    """Makes schemas, and instances that go along with them far enough to be valid often.

    It draws from a plain `Random` that hypothesis seeds: a hundred times faster than drawing each choice, so that rare
    combinations are met in the time that a test may take.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rare = random.choice([0, 0.03, 0.08, 0.15, 0.3])
        self.defaults = random.choice([0.2, 0.4, 0.6])
        self.in_definitions = False

    def maybe(self, probability: float) -> bool:
        return self.random.random() < probability

    def names(self, most: int = 2) -> list[str]:
        return self.random.sample(NAMES, self.random.randint(1, most))

    def some(self, make: Callable[[], Any], most: int = 2) -> list[Any]:
        return [make() for _ in range(self.random.randint(1, most))]

    def tool(self) -> dict[str, Any]:
        schema = self.object(2)
        self.in_definitions = True  # where a reference beside other keywords would mostly make a loop
        return {**schema, "$defs": {"x": self.object(1) if self.maybe(0.7) else self.array(1), "y": self.schema(1)}}

    def schema(self, depth: int) -> Any:
        if depth <= 0 or self.maybe(0.25):
            schema = self.random.choice(LEAVES)
        elif self.maybe(0.1):
            schema = {"$ref": self.random.choice(["#", "#/$defs/x", "#/$defs/y"])}
        else:
            schema = self.object(depth) if self.maybe(0.75) else self.array(depth)
        if not isinstance(schema, dict) or not self.maybe(self.defaults):
            return schema
        fitting = self.instance(schema, {"$defs": {"x": {}, "y": {}}}, 2)
        return {**schema, "default": fitting if self.maybe(0.9) else self.value(2)}

    def object(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object"} if self.maybe(0.7) else {}
        below = partial(self.schema, depth - 1)
        part = partial(self.part, depth)
        if self.maybe(0.9):
            schema["properties"] = {name: below() for name in self.names(3)}
        if self.maybe(0.35):
            schema["additionalProperties"] = self.random.choice([False, False, True, self.schema(0)])
        keywords: dict[str, Callable[[], Any]] = {
            "required": self.names,
            "maxProperties": lambda: self.random.randint(0, 4),
            "minProperties": lambda: self.random.randint(0, 2),
            "dependentRequired": lambda: {name: self.names() for name in self.names()},
            "dependencies": lambda: {name: self.names() if self.maybe(0.5) else part() for name in self.names()},
            "dependentSchemas": lambda: {name: part() for name in self.names()},
            "propertyNames": lambda: self.random.choice(
                [{"enum": ["a", "b"]}, {"pattern": "^[a-c]$"}, {"maxLength": 3}]
            ),
            "patternProperties": lambda: {self.random.choice(["^a", "[cd]", "z"]): below()},
            "unevaluatedProperties": lambda: self.random.choice([False, False, True, {"type": "integer"}]),
            "enum": lambda: self.some(lambda: self.value(2), 3),
            "const": lambda: self.value(2),
        }
        return schema | self.few(keywords) | self.combined(part)

    def array(self, depth: int) -> dict[str, Any]:
        below = partial(self.schema, depth - 1)
        schema: dict[str, Any] = {"type": "array"} | ({"items": below()} if self.maybe(0.7) else {})
        keywords: dict[str, Callable[[], Any]] = {
            "prefixItems": lambda: self.some(below),
            "uniqueItems": lambda: True,
            "contains": below,
            "unevaluatedItems": lambda: self.random.choice([False, self.schema(0)]),
            "maxItems": lambda: 2,
        }
        return schema | self.few(keywords) | self.combined(below)

    def combined(self, part: Callable[[], Any]) -> dict[str, Any]:
        keywords: dict[str, Callable[[], Any]] = dict.fromkeys(("allOf", "anyOf", "oneOf"), lambda: self.some(part))
        return self.few(keywords | dict.fromkeys(("not", "if", "then", "else"), part))

    def few(self, keywords: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        return {keyword: make() for keyword, make in keywords.items() if self.maybe(self.rare)}

    def part(self, depth: int) -> Any:
        if self.maybe(0.3):
            return {"required": self.names()}
        if self.maybe(0.15) and not self.in_definitions:
            return {"$ref": self.random.choice(["#/$defs/x", "#/$defs/y"])}
        return self.object(depth - 1) if depth > 0 else self.schema(0)

    def value(self, depth: int) -> Any:
        if depth == 0 or self.maybe(0.5):
            return self.random.choice(PLAIN)
        if self.maybe(0.6):
            return {name: self.value(depth - 1) for name in self.names()}
        return self.some(lambda: self.value(depth - 1))

    def instance(self, schema: Any, root: dict[str, Any], depth: int = 3) -> Any:
        if not isinstance(schema, dict) or depth < 0 or self.maybe(0.1):
            return self.value(2)
        if "$ref" in schema:
            target = root if schema["$ref"] == "#" else root["$defs"][schema["$ref"][-1]]
            return self.instance(target, root, depth - 1)
        if "enum" in schema or "const" in schema:
            return copy.deepcopy(self.random.choice(schema.get("enum") or [schema["const"]]))
        if schema.get("type") == "array":
            return [self.instance(schema.get("items"), root, depth - 1) for _ in range(self.random.randint(0, 3))]
        if schema.get("type") == "object" or "properties" in schema:
            declared: dict[str, Any] = {}
            for part in [*schema.get("allOf", ()), *schema.get("anyOf", ())[:1], schema]:
                declared |= part.get("properties", {}) if isinstance(part, dict) else {}
            wanted = {*schema.get("required", ()), *(name for name in declared if self.maybe(0.45))}
            return {name: self.instance(declared.get(name), root, depth - 1) for name in sorted(wanted)}
        kinds: dict[str, list[Any]] = {"integer": [0, 1, 2, 3], "string": ["", "x"]}
        return self.random.choice(kinds.get(str(schema.get("type")), PLAIN))


@st.composite
def schemas_with_instances(draw: st.DrawFn) -> tuple[dict[str, Any], list[Any]]:
    maker = Maker(draw(st.randoms(use_true_random=True)))
    schema = maker.tool()
    return schema, [maker.instance(schema, schema) for _ in range(8)]


MANY = settings(max_examples=5 * settings().max_examples)


@MANY
@given(schemas_with_instances())
def test_where_no_default_is_unsafe_a_valid_instance_stays_valid_and_is_filled_in_once(
    drawn: tuple[dict[str, Any], list[Any]],
) -> None:
    schema, instances = drawn
    assume(not find_schema_problems(schema) and not find_unsafe_defaults(schema))
    compiled = compile_schema(schema)
    assert compiled.defaults_safe
    for instance in filter(compiled.is_valid, instances):
        value, pointers = compiled.with_defaults(instance)
        event("filled in" if pointers else "nothing to fill in")
        assert compiled.is_valid(value)
        assert compiled.with_defaults(value) == (value, ())
        assert compiled.validate(instance) == (value, pointers, [])


@given(schemas_with_instances())
def test_without_the_proof_too_what_comes_out_is_valid_or_explained(drawn: tuple[dict[str, Any], list[Any]]) -> None:
    schema, instances = drawn
    assume(not find_schema_problems(schema))
    compiled = compile_schema(schema)
    for instance in instances:
        before = json.dumps(instance)
        violations = compiled.violations(instance)
        assert compiled.is_valid(instance) == (violations == [])
        value, pointers, remaining = compiled.validate(instance)
        compiled.with_defaults(instance)
        assert json.dumps(instance) == before
        if remaining:
            assert (value, pointers) == (instance, ())
            assert violations in ([], remaining)
        else:
            assert compiled.is_valid(value)
