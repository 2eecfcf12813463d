"""Several schemas for one value become one, or a clash that names what is in the way."""

from typing import Any

import pytest

from handrail.providers.schema_flattening import (
    FlatSchema,
    SchemaConflict,
    SchemaPart,
    allows_null,
    fits_type,
    flatten,
    leaves,
)
from handrail.schema.subschemas import LocalRefs


def flat(schema: dict[str, Any]) -> FlatSchema:
    return flatten((SchemaPart(schema, ()),), LocalRefs(schema))


BOTH: list[tuple[str, Any, Any, Any]] = [
    ("minimum", 1, 3, 3),
    ("exclusiveMinimum", 5, 3, 5),
    ("minLength", 2, 1, 2),
    ("maximum", 1, 3, 1),
    ("maxItems", 5, 3, 3),
    ("type", ["string", "null"], "string", "string"),
    ("type", "number", ["integer", "string"], "integer"),
    ("type", ["integer", "string"], ["number", "string"], ["integer", "string"]),
    ("enum", [1, 2, 3], [3, 2, 9], [2, 3]),
    ("pattern", "a", "a", "a"),
    ("description", "outer", "inner", "outer"),
    ("default", 1, 2, 1),
]


@pytest.mark.parametrize(("keyword", "one", "other", "merged"), BOTH, ids=[f"{row[0]}-{row[3]}" for row in BOTH])
def test_what_two_schemas_ask_for_is_asked_for_by_one(keyword: str, one: Any, other: Any, merged: Any):
    assert flat({keyword: one, "allOf": [{keyword: other}]}).keywords == {keyword: (merged, (keyword,))}


CLASHES: dict[str, tuple[str, dict[str, Any]]] = {
    "types": ("type", {"type": "string", "allOf": [{"type": "integer"}]}),
    "true is not 1": ("enum", {"enum": [1, 0], "allOf": [{"enum": [True, False]}]}),
    "constants": ("const", {"const": 1, "allOf": [{"const": True}]}),
    "patterns": ("pattern", {"pattern": "a", "allOf": [{"pattern": "b"}]}),
    "two sets of alternatives": ("anyOf", {"anyOf": [{}], "allOf": [{"anyOf": [{}]}]}),
    "a prefix and items from elsewhere": ("prefixItems", {"prefixItems": [{}], "allOf": [{"items": {}}]}),
    "closed here, listed there": (
        "additionalProperties",
        {"additionalProperties": False, "allOf": [{"properties": {"a": {}}}]},
    ),
    "nothing at all": ("false", {"allOf": [False]}),
    "a reference to nowhere": ("$ref", {"$ref": "#/$defs/none"}),
}


@pytest.mark.parametrize(("keyword", "schema"), CLASHES.values(), ids=CLASHES.keys())
def test_what_cannot_be_one_is_a_clash_that_names_the_keyword(keyword: str, schema: dict[str, Any]):
    with pytest.raises(SchemaConflict) as clash:
        flat(schema)
    assert clash.value.keyword == keyword


def test_properties_and_required_are_gathered_with_their_places():
    together = flat(
        {
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "$ref": "#/$defs/x",
            "$defs": {"x": {"properties": {"a": {"minLength": 1}, "b": {}}, "required": ["b", "a"]}},
        }
    )
    assert together.required == ("a", "b")
    assert together.inlined == {"#/$defs/x"}
    assert together.properties == {
        "a": (
            SchemaPart({"type": "string"}, ("properties", "a")),
            SchemaPart({"minLength": 1}, ("$defs", "x", "properties", "a")),
        ),
        "b": (SchemaPart({}, ("$defs", "x", "properties", "b")),),
    }


def test_alternatives_within_alternatives_are_unfolded_with_what_stands_beside_them():
    schema = {
        "title": "T",
        "minLength": 1,
        "anyOf": [{"pattern": "a"}, {"oneOf": [{"pattern": "b"}, {"pattern": "c"}]}],
    }
    found = leaves((SchemaPart(schema, ()),), LocalRefs(schema))
    assert [leaf.value("pattern") for leaf in found] == ["a", "b", "c"]
    assert [leaf.keywords.keys() for leaf in found] == [{"minLength", "pattern"}] * 3


def test_a_reference_that_is_met_twice_is_no_circle():
    schema = {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"type": "null"}]}}}
    assert flat(schema).alternatives is not None
    assert allows_null((SchemaPart(schema, ()),), LocalRefs(schema))


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, {"null"}),
        (True, {"boolean"}),
        (1, {"integer", "number"}),
        (1.0, {"integer", "number"}),
        (1.5, {"number"}),
        ("", {"string"}),
        ({}, {"object"}),
        ([], {"array"}),
    ],
)
def test_a_value_is_of_the_types_that_json_schema_gives_it(value: Any, names: set[str]):
    every = {"null", "boolean", "integer", "number", "string", "object", "array"}
    assert {name for name in every if fits_type(flat({"type": name}), value)} == names
    assert fits_type(flat({}), value)
