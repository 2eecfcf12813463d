"""What would take too long is refused unchecked; what is ordinary is not; and finding out which it is, is cheap."""

from __future__ import annotations

from typing import Any

import pytest
from tests.schema.work import calls_of

from handrail.contract.errors import SchemaError
from handrail.schema.pattern_cost import pattern_cost, pattern_work
from handrail.schema.validator import compile_schema

RECORDS: dict[str, Any] = {
    "type": "object",
    "required": ["results"],
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id"],
                "properties": {
                    "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,8}$"},
                    "price": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                    "unit": {"enum": ["EUR", "USD", None]},
                    "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}},
                    "ref": {
                        "oneOf": [
                            {"type": "object", "required": ["order"], "properties": {"order": {"type": "string"}}},
                            {"type": "object", "required": ["invoice"], "properties": {"invoice": {"type": "string"}}},
                            {"type": "null"},
                        ]
                    },
                },
            },
        }
    },
}


def in_list(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "array", "items": schema}}}


def of_text(pattern: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"t": {"type": "string", "pattern": pattern}}}


def keywords(schema: dict[str, Any], instance: Any) -> list[str]:
    return [violation.keyword for violation in compile_schema(schema).validate(instance)[2]]


@pytest.mark.parametrize(
    ("schema", "number", "times"),
    [
        ({"multipleOf": 0.01}, 1e300, 10_000),
        ({"multipleOf": 0.01}, 2**53 - 1, 30_000),
        ({"allOf": [{"multipleOf": 10.0**-k} for k in range(1, 21)]}, 1e300, 1_000),
        ({"allOf": [{"multipleOf": 10.0**-k} for k in range(1, 21)]}, 19.99, 2_000),
        ({"allOf": [{"multipleOf": k} for k in range(1, 40)]}, 1e300, 10_000),
        ({"multipleOf": 1e-300}, 1e308, 9_000),
    ],
)
def test_numbers_that_take_long_to_divide_are_refused_unchecked(
    schema: dict[str, Any], number: float, times: int
) -> None:
    assert keywords(in_list(schema), {"a": [number] * times}) == ["size"]


@pytest.mark.parametrize(
    ("schema", "numbers"),
    [
        ({"type": "number", "multipleOf": 0.01}, [19.99] * 8_000),
        ({"type": "number", "multipleOf": 0.01}, [round(i * 0.37, 2) for i in range(8_000)]),
        ({"type": "integer", "multipleOf": 5}, [5] * 30_000),
        ({"type": "number", "multipleOf": 0.01}, [1e300] * 100),
    ],
)
def test_prices_and_quantities_are_checked(schema: dict[str, Any], numbers: list[float]) -> None:
    assert keywords(in_list(schema), {"a": numbers}) == []


@pytest.mark.parametrize("number", [2_000, 5_000, 11_000])
def test_results_of_thousands_of_records_are_checked(number: int) -> None:
    one = {"price": 1.5, "unit": "EUR", "tags": ["a", "b"], "ref": {"order": "x"}}
    result = {"results": [{"id": f"AB-{i}", **one} for i in range(number)]}
    compiled = compile_schema(RECORDS).for_results()
    assert compiled.validate(result)[2] == []
    assert calls_of(lambda: compiled.validate(result)) < 100, "no look at each value"
    assert compiled.validate({"results": [{"id": "?"}]})[2] != []


def test_results_may_take_more_work_than_arguments() -> None:
    schema = in_list({"type": "number", "multipleOf": 0.01})
    numbers = {"a": [1e300] * 5_000}
    assert [one.keyword for one in compile_schema(schema).violations(numbers)] == ["size"]
    assert compile_schema(schema).for_results().violations(numbers) == []
    (refused,) = compile_schema(schema).for_results().violations({"a": [1e300] * 50_000})
    assert refused.message.startswith("The result would take too long")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^(\w{1,30} ){0,30}\w{1,30}$", " ".join(["hello"] * 20)),
        (r"^(?:\w{1,40}[ .]+){0,50}\w*$", "hello world. " * 20),
        (r"^(\+[0-9]{1,3}[ -]?)?[0-9 -]{6,20}(,(\+[0-9]{1,3}[ -]?)?[0-9 -]{6,20}){0,50}$", ",".join(["+49 170 12345"] * 40)),
        (r"^[^,@\s]{1,64}@[^,@\s]{1,255}$", "ann@example.com"),
        (r"^\s*(\w+\s*,\s*){0,20}\w+\s*$", "abc, def , " * 9 + "ghi"),
        (r"^(?:[A-Za-z0-9_-]{1,64}/){0,8}[a-z]{1,20}$", "ab/cd/e"),
    ],
)  # fmt: skip
def test_large_patterns_whose_parts_cannot_be_confused_are_cheap(pattern: str, text: str) -> None:
    assert keywords(of_text(pattern), {"t": text}) == []
    assert pattern_work(pattern, 1_000) < 50_000


@pytest.mark.parametrize(
    ("pattern", "at_least"),
    [
        ("((a{1,20}){1,20}){1,4}b", 1_600),
        ("^(a{1,20}){1,20}$", 400),
        ("(?:a?){200}a{200}b", 400),
        ("[01]*1[01]{300}$", 300),
        ("[01]*1" + "[01]" * 100 + "$", 100),
        ("^(é|e){1,50}e{1,50}$", 50),
        ("(?i)(a{1,20}){1,20}", 400),  # not understood
        ("([[:alpha:]]{1,20}){1,20}", 400),
    ],
)
def test_patterns_whose_repetitions_overlap_are_as_costly_as_they_have_states(pattern: str, at_least: int) -> None:
    assert pattern_cost(pattern).active >= at_least


@pytest.mark.parametrize("pattern", ["(", "a)", "[", "[a", "\\", "a{3", "*a", "(?=a)b", "a{999999999}" * 9, "(" * 99])
def test_a_pattern_that_is_none_is_taken_for_a_costly_one(pattern: str) -> None:
    assert pattern_cost(pattern).size <= 1_000_000
    assert pattern_work(pattern, 10) >= 1


def test_a_schema_that_could_not_even_check_short_texts_does_not_build() -> None:
    costly = {"properties": {"t": {"allOf": [{"pattern": f"((a{{1,25}}){{1,25}}){{1,4}}{i}"} for i in range(6)]}}}
    with pytest.raises(SchemaError, match=r"text of 100 characters .* smaller repetition counts"):
        compile_schema(costly)


def test_refusing_takes_little_work() -> None:
    patterns = {f"^[a-z]{{0,60}}{i}$": {"type": "string"} for i in range(900)}
    compiled = compile_schema({"type": "object", "patternProperties": patterns, "additionalProperties": False})
    arguments = {"a" * 50 + str(i): "1" for i in range(900)}

    def refuse() -> None:
        assert [one.keyword for one in compiled.validate(arguments)[2]] == ["size"]

    compiled.validate({})
    assert calls_of(refuse) < 50_000
    assert calls_of(refuse) < 5_000, "what is known of the schema is kept"


def test_a_look_at_the_values_ends_at_the_limit() -> None:
    compiled = compile_schema(in_list({"type": "number", "multipleOf": 0.01}))
    arguments = {"a": [1e300] * 30_000}
    assert calls_of(lambda: compiled.is_valid(arguments)) < 20_000
    assert not compiled.is_valid(arguments)
