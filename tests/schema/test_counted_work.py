"""The steps that an explanation counts, and the units that the guard before it counts, stand for the work that is done.

The interpreter counts the calls, so that a loop that counts nothing is found, whatever our own counters say.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest
from tests.schema.test_hostile import MAX_CALLS, MAX_GUARD_CALLS
from tests.schema.work import calls_of

from handrail.contract.errors import JsonError
from handrail.schema.explain import KEYWORD_CHECKS, Explainer, Steps
from handrail.schema.strict_json import MAX_ARGUMENT_BYTES, read_arguments
from handrail.schema.subschemas import LocalRefs
from handrail.schema.validator import compile_schema

NULL: dict[str, Any] = {"type": "null"}
NAMES: dict[str, Any] = {f"n{i}": 1 for i in range(9)}
# A keyword: what it may say, and values for that.
CASES: dict[str, list[tuple[Any, list[Any]]]] = {
    "type": [("string", [1, "a"]), (["string", "null", "array", "object", "boolean", "integer"], [1.5])],
    "enum": [([1], [2, 1, [2], {"a": [1]}]), (list(range(50)), [99]), ([[i] for i in range(50)], [99])],
    "const": [(1, [2, "x", True, 1]), ([1, 2, 3], [[1, 2, 4]]), ({"a": 1}, [{"a": 2}])],
    "minimum": [(5, [1, 9])],
    "maximum": [(5, [1, 9])],
    "exclusiveMinimum": [(5, [1, 9])],
    "exclusiveMaximum": [(5, [1, 9])],
    "multipleOf": [(3, [4, 3, 1e15]), (0.01, [0.005])],
    "minLength": [(5, ["a"])],
    "maxLength": [(5, ["a" * 9])],
    "pattern": [("^a", ["b", "a"]), ("^[a-z]{1,30}$", ["B"])],
    "format": [("email", ["b"]), ("date-time", ["2026"]), ("uri", ["x"])],
    "minItems": [(5, [[]])],
    "maxItems": [(0, [[1]])],
    "uniqueItems": [(True, [[1, 1], [[1], [1]], []])],
    "contains": [(NULL, [[1], [1] * 20]), (False, [[1] * 20]), (True, [[1] * 20])],
    "minProperties": [(5, [{}])],
    "maxProperties": [(0, [{"a": 1}])],
    "required": [(["a"], [{}]), ([f"n{i}" for i in range(20)], [{}, NAMES])],
    "dependentRequired": [({"a": ["b"]}, [{"a": 1}]), ({"a": [f"n{i}" for i in range(9)]}, [{"a": 1}, NAMES])],
    "dependentSchemas": [({"a": False}, [{"a": 1}]), (dict.fromkeys(NAMES, False), [NAMES])],
    "dependencies": [({"a": ["b"]}, [{"a": 1}]), ({"a": False}, [{"a": 1}])],
    "propertyNames": [({"maxLength": 0}, [{"a": 1}, NAMES]), (False, [{"a": 1}])],
    "properties": [({"a": NULL}, [{"a": 1}]), ({"a": False}, [{"a": 1}]), ({name: {} for name in NAMES}, [NAMES])],
    "patternProperties": [({"^a": False}, [{"a": 1}]), ({f"^{c}": False for c in "abcdef"}, [{"a": 1}, NAMES])],
    "additionalProperties": [(False, [{"a": 1}, NAMES]), (NULL, [{"a": 1}, NAMES]), (True, [NAMES])],
    "unevaluatedProperties": [(False, [{"a": 1}, NAMES]), (NULL, [{"a": 1}])],
    "items": [(NULL, [[1], [1] * 9]), (False, [[1] * 9])],
    "prefixItems": [([NULL], [[1]]), ([False] * 9, [[1] * 9]), ([True] * 9, [[1] * 9])],
    "unevaluatedItems": [(False, [[1], [1] * 9]), (NULL, [[1]])],
    "$ref": [("#/$defs/null", [1, None])],
    "$dynamicRef": [("#/$defs/null", [1])],
    "allOf": [([NULL], [1]), ([True] * 9, [1]), ([False] * 9, [1])],
    "anyOf": [([NULL], [1]), ([False] * 9, [1]), ([{"const": i} for i in range(9)], [-1]), ([False, True], [1])],
    "oneOf": [([NULL], [1]), ([True] * 9, [1]), ([False] * 9, [1]), ([{}] * 9, [1])],
    "not": [({}, [1]), (True, [1]), (NULL, [1])],
    "if": [({}, [1]), (NULL, [1])],
}
MANY = 300
# Where a subschema may stand, and an instance of such a schema that has a value many times.
PLACES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "items": lambda one, value: ({"items": one}, [value] * MANY),
    "members": lambda one, value: ({"additionalProperties": one}, {f"m{i}": value for i in range(MANY)}),
    "an alternative": lambda one, value: ({"items": {"anyOf": [one]}}, [value] * MANY),
    "nine alternatives": lambda one, value: ({"items": {"anyOf": [dict(one) for _ in range(9)]}}, [value] * MANY),
    "nine demands": lambda one, value: ({"items": {"allOf": [dict(one) for _ in range(9)]}}, [value] * MANY),
    "contains": lambda one, value: ({"contains": one}, [value] * MANY),
    "excluded": lambda one, value: ({"items": {"not": {"not": one}}}, [value] * MANY),
    "left over items": lambda one, value: ({"unevaluatedItems": one}, [value] * MANY),
    "left over members": lambda one, value: ({"unevaluatedProperties": one}, {f"m{i}": value for i in range(MANY)}),
}
CALLS_PER_STEP = 5.7


def test_every_keyword_that_is_checked_has_a_case() -> None:
    assert CASES.keys() == KEYWORD_CHECKS.keys()


@pytest.mark.parametrize("keyword", CASES)
@pytest.mark.parametrize("place", PLACES)
def test_a_step_of_explaining_is_a_few_calls(place: str, keyword: str) -> None:
    for wanted, values in CASES[keyword]:
        for value in values:
            one = {keyword: wanted, **({"then": False} if keyword == "if" else {})}
            schema, instance = PLACES[place](one, value)
            schema["$defs"] = {"null": NULL}
            steps = Steps(1_000_000)
            explainer = Explainer(LocalRefs(schema), steps)
            calls = calls_of(lambda: explainer.explain(schema, instance))  # noqa: B023 - called at once
            assert calls <= CALLS_PER_STEP * steps.taken + 100, (wanted, value)


SMALL = {"type": "string"}
WIDE: dict[str, Any] = {
    "alternatives that are single values": ({"a": {"items": {"anyOf": [{"const": i} for i in range(100)]}}}, [1e300] * 300),
    "lists of types": ({"a": {"items": {"anyOf": [{"type": ["null", "object", "array"]}] * 500}}}, [1] * 30),
    "missing names in alternatives": ({"a": {"contains": {"required": [f"n{i}" for i in range(20)]}}}, [{}] * 3_000),
    "missing names that a name demands": (
        {"a": {"contains": {"dependentRequired": {"a": [f"n{i}" for i in range(20)]}}}}, [{"a": 1}] * 3_000,
    ),
    "a large number to be divided": ({"a": {"contains": {"multipleOf": 3}}}, [1e22] * 900),
    "more divisors than are kept": ({"a": {"items": {"anyOf": [{"multipleOf": i + 2} for i in range(300)]}}}, [1] * 100),
    "more patterns than are kept": ({"a": {"items": {"anyOf": [{"pattern": f"^{i}"} for i in range(300)]}}}, ["b"] * 100),
    "first items": ({"a": {"items": {"prefixItems": [False] * 9}}}, [[1] * 9] * 3_000),
    "names that alternatives cover": (
        {"a": {"items": {"anyOf": [{"properties": {f"p{i}": True}} for i in range(300)], "unevaluatedProperties": False}}},
        [{"p1": 1, "y": 2}] * 50,
    ),
    "alternatives in alternatives": ({"a": {"items": {"anyOf": [{"anyOf": [NULL, {"required": ["a"]}]}] * 100}}}, [{}] * 50),
    "items that are looked at no more": ({"a": {"items": {"items": SMALL}}}, [["b"] * 9] * 1_500 + [[1]]),
    "items that several demand": (
        {"a": {"allOf": [*({"items": {"minLength": i % 3}} for i in range(15)), {"items": {"maxLength": 3}}]}},
        ["a" * 25] * 2_000,
    ),
    "subschemas that would be compiled again": (
        {"a": {"properties": {"l": {"items": SMALL}, "b": {"allOf": [{"properties": {
            f"p{i}": {"pattern": f"^[a-z]{{1,200}}{i}x"} for i in range(300)}}]}}}},
        {"l": ["a"] * 12_000, "b": {f"p{i}": "aa" for i in range(300)}},
    ),
    "a demand for each of many names": (
        {"a": {"dependentRequired": {f"n{i}": [f"m{j}" for j in range(100)] for i in range(300)}}},
        {f"n{i}": 1 for i in range(300)},
    ),
    "long enumerations beside a secret": (
        {"pin": {"writeOnly": True}, "a": {"properties": {f"e{i}": {"enum": [str(j) for j in range(2_000)]} for i in range(50)}}},
        {f"e{i}": 1 for i in range(50)},
    ),
    "secrets in many alternatives": (
        {"a": {"additionalProperties": {"anyOf": [{"properties": {"b": {"writeOnly": True, "type": "null"}}}] * 100}}},
        {f"k{i}": {"b": 1} for i in range(300)},
    ),
    "names that many parts declare": (
        {"a": {"properties": {f"q{i}": {"additionalProperties": False, "allOf": [
            {"properties": {f"p{i}{j}": {}}} for j in range(40)]} for i in range(50)}}},
        {f"q{i}": {"x": 1} for i in range(50)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", WIDE)
def test_explaining_any_arguments_is_bounded_work(shape: str) -> None:
    properties, value = WIDE[shape]
    compiled = compile_schema({"type": "object", "properties": properties})
    compiled.is_valid({})  # what is known of the schema is worked out once
    arguments = {"a": value}
    assert len(orjson.dumps(arguments)) <= MAX_ARGUMENT_BYTES
    guarding = calls_of(lambda: compiled.is_valid(arguments))
    assert guarding <= MAX_GUARD_CALLS
    explanation = compiled.explain(arguments)
    assert explanation.violations[0].keyword != "size", "it is checked, and explained"
    assert calls_of(lambda: compiled.explain(arguments)) - guarding <= MAX_CALLS


def test_what_is_refused_first_is_named_whatever_stands_before_it() -> None:
    schema = {"items": {"items": {"type": "string"}}}
    explanation = compile_schema(schema).explain([["a"] * 9] * 1_800 + [["a", 1]] + [[2]])
    assert (explanation.violations[0].pointer, explanation.complete) == ("/1800/1", False)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


LARGE = {
    "empty lists": [[]] * 20_000,
    "lists in lists": [nested(25)] * 1_150,
    "numbers": [1] * 32_000,
    "texts": ["a"] * 16_000,
    "empty objects": [{}] * 20_000,
    "objects": [{"a": 1}] * 7_500,
    "objects in objects": [{"a": {"a": {}}}] * 3_700,
    "names": {f"{i:x}": 1 for i in range(6_500)},
    "names of lists": {f"{i:x}": [] for i in range(6_500)},
}


@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("number", [5, 20, 40, 100])
@pytest.mark.parametrize("costly", ["multipleOf", "pattern", "title"])
def test_the_guard_before_the_check_is_bounded_work(costly: str, number: int, shape: str) -> None:
    words = {"multipleOf": lambda i: i / 10 + 0.1, "pattern": lambda i: f"^[a-z]{{0,{i + 1}}}x", "title": str}
    parts = [{costly: words[costly](i)} for i in range(number)]
    node = {"allOf": parts, "additionalProperties": {"$ref": "#/$defs/n"}, "items": {"$ref": "#/$defs/n"}}
    compiled = compile_schema({"$ref": "#/$defs/n", "$defs": {"n": node}})
    compiled.is_valid({})
    arguments = {"a": LARGE[shape]}
    assert len(orjson.dumps(arguments)) <= MAX_ARGUMENT_BYTES
    assert calls_of(lambda: compiled.is_valid(arguments)) <= MAX_GUARD_CALLS


MAX_READING_CALLS = 140_000
"""The most that were seen are 130,106, for numbers whose exponent RFC 8785 writes out."""
LISTS = {
    "large numbers": (["1e22"] * 13_000, "]"),
    "numbers that are written out": (["1e17"] * 13_000, "]"),
    "small numbers": (["1.5e-7"] * 9_000, "]"),
    "numbers of many digits": (["1e22", "-1.5E+300", "123456789.125e10"] * 2_000, "]"),
    "whole numbers with a point": (["1.0"] * 16_000, "]"),
    "texts with colons": (['":"'] * 16_000, "]"),
    "integers before one that is refused": (["1"] * 32_000, ",9007199254740992]"),
    "integers in a list that is not closed": (["1"] * 32_000, ""),
}


@pytest.mark.parametrize("shape", LISTS)
def test_reading_long_lists_is_bounded_work(shape: str) -> None:
    items, end = LISTS[shape]
    text = f'{{"a":[{",".join(items)}{end}}}'
    assert len(text) <= MAX_ARGUMENT_BYTES

    def read() -> None:
        with suppress(JsonError):
            read_arguments(text)

    assert calls_of(read) <= MAX_READING_CALLS


ITEMS = [
    *("[]", "{}", '{"a":1}', '{"":""}', '{"a":1,"b":2}', "[1]", "[{}]", "[[[]]]", "[" * 29 + "]" * 29, "[1,[2,[3]]]", " [ ] "),
    *("1", "1e100", "9007199254740991", '""', '":"', '"\\u003a"', '"\\ud83d\\ude00"', '{"\\u0061":1}'),
]  # fmt: skip
ENDS = {
    "not closed": "",
    "a closing bracket too many": "]]}",
    "the wrong closing bracket": "}",
    "text behind it": "]}x",
    "a comma at the end": ",]}",
    "a key twice around the list": '],"a":1}',
    "a key twice at the end": ',{"b":1,"b":2}]}',
    "an unsafe integer": ",9007199254740992]}",
    "a number that is too large": ",1e999]}",
    "no number": ",NaN]}",
    "half of a surrogate pair": ',"\\ud800"]}',
    "half of a surrogate pair that is not escaped": ',"\ud800"]}',
    "a control character": ',"\n"]}',
    "an unknown escape": ',"\\x"]}',
    "a string that is not closed": ',"a',
    "a string in single quotes": ",'a']}",
    "no comma": " 1]}",
    "a key without quotes": "],b:1}",
    "too many levels": f",{'[' * 40}{']' * 40}]}}",
}


def refusing_calls(text: str) -> int:
    assert len(text.encode(errors="surrogatepass")) <= MAX_ARGUMENT_BYTES

    def read() -> None:
        with pytest.raises(JsonError):
            read_arguments(text)

    return calls_of(read)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("item", ITEMS)
def test_refusing_a_long_list_is_bounded_work(item: str, end: str) -> None:
    number = (MAX_ARGUMENT_BYTES - 200) // len(f"{item},")
    text = f'{{"a":[{",".join([item] * number)}{ENDS[end]}'
    assert refusing_calls(text) <= MAX_READING_CALLS


@pytest.mark.parametrize("end", ["", ',"0":1}', ',"x":NaN}', ',"\\ud800":1}', "}}", ",1}", ',"x":9007199254740992}'])
@pytest.mark.parametrize("member", ['"%x":1', '"%x":[]', '"%x" : {}', '":%x":""', '"\\u003a%x":1', '"%x":{"a":1}'])
def test_refusing_many_keys_is_bounded_work(member: str, end: str) -> None:
    members = [member % i for i in range((MAX_ARGUMENT_BYTES - 100) // len(member + "xxx"))]
    if end == ',"0":1}':
        end = f",{members[0]}}}"
    assert refusing_calls(f"{{{','.join(members)}{end}") <= MAX_READING_CALLS


DEEP = {
    "lists": "[" * 30,
    "objects": '{"a":' * 30 + "[",
    "objects with long keys": "".join(f'{{"{"k" * 1_000}{i}":' for i in range(30)) + "[",
}


@pytest.mark.parametrize("around", DEEP)
@pytest.mark.parametrize("item", ["[]", "1", '{"a":1}'])
def test_refusing_what_stands_deep_inside_is_bounded_work(item: str, around: str) -> None:
    number = (MAX_ARGUMENT_BYTES - len(DEEP[around])) // len(f"{item},")
    assert refusing_calls(DEEP[around] + f"{item}," * number) <= MAX_READING_CALLS
