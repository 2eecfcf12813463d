"""Explaining a refusal is bounded work: whatever the schema and the arguments, the steps are counted and end."""

import tracemalloc
from typing import Any

import pytest
from tests.schema.work import calls_of

from handrail.contract.errors import SchemaError
from handrail.schema.validator import MAX_EXPLANATION, Explanation, compile_schema

FILTER: dict[str, Any] = {"$ref": "#/$defs/filter"}


def form(name: str, inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": [name], "properties": {name: inner}}


FILTERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"filter": FILTER},
    "$defs": {
        "filter": {
            "anyOf": [
                form("and", {"type": "array", "items": FILTER}),
                form("or", {"type": "array", "items": FILTER}),
                form("not", FILTER),
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["field", "op"],
                    "properties": {"field": {"type": "string"}, "op": {"enum": ["eq", "lt"]}},
                },
            ]
        }
    },
}


def tree(depth: int, leaf: Any) -> dict[str, Any]:
    for level in range(depth):
        leaf = {"and": [leaf]} if level % 2 else {"or": [leaf, {"field": "a", "op": "eq"}]}
    return {"filter": leaf}


def explained(schema: dict[str, Any], instance: Any) -> Explanation:
    found = compile_schema(schema).explain(instance)
    assert found.steps <= MAX_EXPLANATION
    assert found.violations
    return found


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize("depth", [2, 14])
def test_one_wrong_leaf_deep_in_a_filter_tree_is_explained_in_few_steps(keyword: str, depth: int) -> None:
    schema = {**FILTERS, "$defs": {"filter": {keyword: FILTERS["$defs"]["filter"]["anyOf"]}}}
    found = explained(schema, tree(depth, {"field": "a", "op": "zz"}))
    assert found.complete
    assert found.steps < 1_000 * depth
    (violation,) = found.violations
    assert violation.pointer == "/filter"
    assert violation.message.startswith('"filter" must fit one of 4 forms; for the nearest one: "filter.and[0].or[0]')
    assert 'must be one of "eq", "lt"; "zz" was given.' in violation.message


def test_an_explanation_that_would_take_too_long_says_where_it_ends() -> None:
    kinds: list[dict[str, Any]] = [
        {"type": "object", "properties": {"c": FILTER, "k": {"const": k}}} for k in range(60)
    ]
    schema = {**FILTERS, "$defs": {"filter": {"anyOf": [*kinds, {"type": "integer"}]}}}
    value: Any = "bad"
    for _ in range(28):
        value = {"c": value, "k": 59}
    found = explained(schema, {"filter": value})
    assert found.violations[0].pointer.startswith("/filter")
    assert "must fit one of 61 forms and fits none; the explanation ends here" in found.violations[0].message


def test_the_one_wrong_item_behind_very_many_good_ones_is_still_named() -> None:
    found = explained({"items": {"type": "string"}}, ["a"] * 15_000 + [1])
    assert (found.violations[0].pointer, found.violations[0].message) == (
        "/15000",
        '"[15000]" must be a string, but 1 was given.',
    )
    assert not found.complete


def test_what_stands_near_the_root_is_told_although_the_rest_is_too_much() -> None:
    schema = {
        "properties": {"list": {"items": {"type": "string"}}, "top": {"type": "integer"}},
        "required": ["must"],
    }
    found = explained(schema, {"list": ["a"] * 30_000, "top": "x"})
    assert [violation.pointer for violation in found.violations] == ["/must", "/top", ""]
    assert found.violations[-1].keyword == "more"


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({"items": {"type": "string"}}, list(range(30_000))),
        ({"uniqueItems": True}, [*range(30_000), 1]),
        ({"uniqueItems": True}, [[i] for i in range(10_000)] + [[1]]),
        ({"items": {"enum": [f"x{i}" for i in range(20_000)]}}, ["y"] * 10_000),
        ({"const": {"a": list(range(100_000))}}, {"a": []}),
        ({"required": [f"n{i}" for i in range(20_000)]}, {}),
        ({"propertyNames": {"pattern": "^[a-z]{1,3}$"}}, {f"N{i}": 1 for i in range(5_000)}),
        ({"allOf": [{"pattern": f"^[a-z]{{1,40}}{i}$"} for i in range(200)]}, "a" * 60_000),
        ({"items": {"allOf": [{"minimum": i} for i in range(4_000)]}}, [-5] * 1_000),
        ({"additionalProperties": {"items": {"type": "string"}}}, {"k" * 60_000: list(range(1_500))}),
        (
            {"additionalProperties": False, "properties": {f"property_{i}": {} for i in range(4_000)}},
            {f"propertx_{i}": 1 for i in range(1_500)},
        ),
        (
            {"properties": {"a": {"anyOf": [{"properties": {"b": {"writeOnly": True, "type": "null"}}}] * 2_000}}},
            {"a": {"b": 1}},
        ),
        ({"$ref": "#/$defs/0", "$defs": {str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}]} for i in range(900)}
          | {"900": {"type": "null"}}}, 1),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_no_schema_and_no_arguments_take_more_than_the_bound(schema: dict[str, Any], instance: Any) -> None:
    found = explained(schema, instance)
    assert sum(len(violation.message) + len(violation.pointer) for violation in found.violations) < 50_000


# --------------------------------------------------------------------------------------------- the verdict itself


def doubling(length: int, keyword: str) -> dict[str, Any]:
    defs: dict[str, Any] = {str(i): {keyword: [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(length)}
    return {"$ref": "#/$defs/0", "$defs": {**defs, str(length): {"type": "integer"}}}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_multiply_without_end_are_refused(keyword: str) -> None:
    with pytest.raises(SchemaError, match="more than 100,000 checks of a single value"):
        compile_schema(doubling(40, keyword))
    assert compile_schema(doubling(8, keyword)).is_valid("x") is False


def test_references_that_multiply_on_the_way_down_are_refused() -> None:
    defs: dict[str, Any] = {
        str(i): {"anyOf": [{"properties": {"c": {"$ref": f"#/$defs/{i + 1}"}}}] * 2} for i in range(30)
    }
    with pytest.raises(SchemaError, match="more than 100,000 checks"):
        compile_schema({"$ref": "#/$defs/0", "$defs": {**defs, "30": {"type": "integer"}}})


def test_patterns_that_are_too_large_together_are_refused() -> None:
    with pytest.raises(SchemaError, match="patterns together"):
        compile_schema({"allOf": [{"pattern": f"((a{{1,50}}){{1,40}}){{1,4}}{i}"} for i in range(50)]})


@pytest.mark.parametrize(
    ("schema", "many", "few"),
    [
        ({"items": {"enum": [{"a": i} for i in range(2_000)]}}, [{"a": 5}] * 5_000, [{"a": 5}]),
        ({"contains": {"anyOf": [{"const": i} for i in range(500)]}}, [-1] * 29_999 + [5], [-1, 5]),
        ({"items": {"pattern": "((a{1,50}){1,40}){1,4}b"}}, ["ab" * 10_000] * 3, ["ab"]),
        ({"items": {"pattern": "a[ab]{200}c|b"}}, ["ab" * 3_000] * 3, ["ab"]),
        ({"propertyNames": {"pattern": "(x{1,20}){1,20}|a"}}, {"a" * 60_000: 1}, {"a": 1}),
    ],
)
def test_an_instance_that_would_take_too_long_to_check_is_refused_unchecked(
    schema: dict[str, Any], many: Any, few: Any
) -> None:
    compiled = compile_schema(schema)
    assert compiled.validate(few)[2] == []
    assert not compiled.is_valid(many)
    ((violation,), steps) = compiled.validate(many)[2], compiled.explain(many).steps
    assert (violation.pointer, violation.keyword, steps) == ("", "size", 0)
    assert "too long to check against this schema; send fewer or shorter values" in violation.message


def test_usual_schemas_take_arguments_of_every_allowed_size() -> None:
    note = {
        "properties": {
            "slug": {"pattern": r"^[\w-]{1,80}$"},
            "short": {"pattern": "[a-z0-9-]{3,63}"},
            "long": {"pattern": r"^[\s\S]{1,500}$"},
            "body": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}},
        }
    }
    texts = {"slug": "a", "short": "abc", "long": "x" * 500, "body": "x" * 30_000}
    assert compile_schema(note).is_valid({**texts, "tags": ["t"] * 8_000})
    assert compile_schema(FILTERS).is_valid({"filter": {"or": [{"field": "a", "op": "eq"}] * 2_000}})


def test_a_property_without_a_name_has_its_own_pointer() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"properties": {"": {"type": "integer"}}}},
        "additionalProperties": False,
    }
    found = explained(schema, {"": 1, "a": {"": "x"}})
    assert [violation.pointer for violation in found.violations] == ["/", "/a/"]


def test_problems_that_are_only_counted_take_little_work():
    """What may be told of a place is found out for those that are told."""
    secret = {"type": "object", "properties": {"token": {"writeOnly": True}}}
    schema = compile_schema({"properties": {"pin": secret}, "additionalProperties": {"allOf": [secret] * 3}})
    args = {f"name{i:03}": i for i in range(200)}
    explanation = schema.explain(args)
    assert [violation.pointer for violation in explanation.violations[:50]] == [f"/name{i:03}" for i in range(50)]
    assert explanation.violations[50].message == "There are 150 more problems."
    assert calls_of(lambda: schema.explain(args)) < 3 * explanation.steps


def test_a_long_key_that_many_problems_share_is_not_copied_for_each():
    key = "k" * 50_000
    schema = compile_schema({"properties": {key: {"items": {"type": "string"}}}})
    tracemalloc.start()
    try:
        explanation = schema.explain({key: list(range(800))})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [violation.pointer for violation in explanation.violations] == [""]
    assert peak < 5_000_000


def test_a_long_list_of_values_is_looked_through_once_however_many_sentences_tell_of_it():
    values = {"enum": [f"option {i}" for i in range(2_000)]}
    schema = compile_schema({"properties": {"a": {"items": values}, "pin": {"writeOnly": True}}})
    args = {"a": list(range(50))}
    assert len(schema.violations(args)) == 50
    assert calls_of(lambda: schema.explain(args)) < 20 * len(values["enum"])
