"""What each kind of change of a tool means for those who call it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from handrail.build import schema_diff
from handrail.build.diff import Change, diff_definitions, diff_registries, paired_entries, unbumped
from handrail.contract.definition import ToolDefinition

OPTIONAL = {"type": "string"}


def tool(parameters: dict[str, Any] | None = None, **changes: Any) -> ToolDefinition:
    return ToolDefinition.from_dict(
        {
            "toolId": "look_up",
            "version": "1.0.0",
            "description": "Looks something up.",
            "category": "utility",
            "sideEffects": "none",
            "idempotent": True,
            "requiresConfirmation": False,
            "allowedModes": ["text", "voice"],
            "latencyBudgetMs": 100,
            "parameters": parameters or closed(x={"type": "string"}),
            **changes,
        }
    )


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {})


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    return diff_definitions(tool(old), tool(new))


def kinds(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.kind, change.place) for change in changes]


def verdict(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The worst thing that is said of a change of one argument, "x"."""
    found = {change.kind for change in compare(closed(x=old), closed(x=new))}
    return next((kind for kind in ("breaking", "widening", "neutral") if kind in found), "none")


def result(old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[tuple[str, str]]:
    return kinds(
        diff_definitions(tool(**({"outputSchema": old} if old else {})), tool(**({"outputSchema": new} if new else {})))
    )


# ------------------------------------------------------------------------------------------------- whole arguments
def test_a_new_required_argument_is_breaking_and_told_once() -> None:
    changes = compare(closed(x=OPTIONAL), closed("y", x=OPTIONAL, y=OPTIONAL))
    assert kinds(changes) == [("breaking", "/parameters/required")]
    assert changes[0].message == 'The argument "y" is new and required.'


def test_a_new_optional_argument_is_widening() -> None:
    changes = compare(closed(x=OPTIONAL), closed(x=OPTIONAL, y=OPTIONAL))
    assert kinds(changes) == [("widening", "/parameters/properties/y")]
    assert changes[0].message == 'The argument "y" is new and optional.'


def test_a_new_argument_with_a_default_is_widening_and_nothing_else() -> None:
    assert kinds(compare(closed(x=OPTIONAL), closed(x=OPTIONAL, y={"type": "integer", "default": 3}))) == [
        ("widening", "/parameters/properties/y")
    ]


def test_a_removed_argument_is_breaking_because_the_object_is_closed() -> None:
    changes = compare(closed(x=OPTIONAL, y=OPTIONAL), closed(x=OPTIONAL))
    assert kinds(changes) == [("breaking", "/parameters/properties/y")]
    assert changes[0].message == 'The argument "y" was removed.'


def test_an_argument_that_becomes_required_is_breaking_even_with_a_default() -> None:
    schema = {"type": "integer", "default": 3}
    assert kinds(compare(closed(x=schema), closed("x", x=schema))) == [("breaking", "/parameters/required")]


def test_an_argument_that_is_no_longer_required_is_widening() -> None:
    assert kinds(compare(closed("x", x=OPTIONAL), closed(x=OPTIONAL))) == [("widening", "/parameters/required")]


def test_an_argument_listed_in_an_open_object_is_breaking_because_its_name_was_free() -> None:
    old, new = {"type": "object"}, {"type": "object", "properties": {"y": {"type": "integer"}}}
    assert verdict(old, new) == "breaking"
    assert verdict(new, old) == "widening"


def test_an_argument_listed_in_an_open_object_without_conditions_is_neutral() -> None:
    assert (
        verdict({"type": "object"}, {"type": "object", "properties": {"y": {"description": "Anything."}}}) == "neutral"
    )


def test_an_argument_listed_beside_patterns_is_not_proven_to_be_harmless() -> None:
    old = {"type": "object", "patternProperties": {"^y": {"type": "string"}}, "additionalProperties": False}
    assert verdict(old, old | {"properties": {"y": {"type": "integer"}}}) == "breaking"


def test_opening_an_object_is_widening_and_closing_it_is_breaking() -> None:
    old, new = {"type": "object", "additionalProperties": False}, {"type": "object"}
    assert kinds(compare(closed(x=old), closed(x=new))) == [
        ("widening", "/parameters/properties/x/additionalProperties")
    ]
    assert verdict(new, old) == "breaking"


# ------------------------------------------------------------------------------------------------- single keywords
TIGHTER = {
    "a narrowed enum": ("enum", {"enum": ["a", "b"]}, {"enum": ["a"]}),
    "an enum where there was none": ("enum", {}, {"enum": ["a"]}),
    "a const where there was none": ("const", {}, {"const": "a"}),
    "an enum narrowed to a const": ("enum", {"enum": ["a", "b"]}, {"const": "a"}),
    "a raised minimum": ("minimum", {"minimum": 1}, {"minimum": 2}),
    "a new minimum": ("minimum", {"type": "integer"}, {"type": "integer", "minimum": 0}),
    "a lowered maximum": ("maximum", {"maximum": 2}, {"maximum": 1}),
    "an exclusive minimum in place of the same minimum": ("minimum", {"minimum": 1}, {"exclusiveMinimum": 1}),
    "a raised exclusive minimum": ("exclusiveMinimum", {"exclusiveMinimum": 1}, {"exclusiveMinimum": 1.5}),
    "a lowered exclusive maximum": ("exclusiveMaximum", {"exclusiveMaximum": 1}, {"exclusiveMaximum": 0}),
    "a new multipleOf": ("multipleOf", {}, {"multipleOf": 2}),
    "a multiple of the multipleOf": ("multipleOf", {"multipleOf": 2}, {"multipleOf": 6}),
    "a raised minLength": ("minLength", {"minLength": 1}, {"minLength": 2}),
    "a lowered maxLength": ("maxLength", {"maxLength": 2}, {"maxLength": 1}),
    "a new pattern": ("pattern", {}, {"pattern": "^a"}),
    "a new format": ("format", {}, {"format": "email"}),
    "a raised minItems": ("minItems", {"minItems": 1}, {"minItems": 2}),
    "a lowered maxItems": ("maxItems", {"maxItems": 2}, {"maxItems": 1}),
    "unique items": ("uniqueItems", {"uniqueItems": False}, {"uniqueItems": True}),
    "new items": ("items/type", {"type": "array"}, {"type": "array", "items": {"type": "string"}}),
    "new prefixItems": ("prefixItems/0/type", {"type": "array"}, {"type": "array", "prefixItems": [{"type": "null"}]}),
    "a raised minProperties": ("minProperties", {"minProperties": 1}, {"minProperties": 2}),
    "a lowered maxProperties": ("maxProperties", {"maxProperties": 2}, {"maxProperties": 1}),
    "a number that becomes an integer": ("type", {"type": "number"}, {"type": "integer"}),
    "a type taken out of a list": ("type", {"type": ["string", "null"]}, {"type": ["string"]}),
    "a type where there was none": ("type", {}, {"type": "string"}),
    "a narrowed propertyNames": ("propertyNames/maxLength", {}, {"propertyNames": {"maxLength": 3}}),
    "a new dependentRequired": ("dependentRequired", {}, {"dependentRequired": {"a": ["b"]}}),
    "a new contains": ("contains", {}, {"contains": {"const": 1}}),
    "a new not": ("not", {}, {"not": {"const": 1}}),
    "a new allOf": ("allOf", {}, {"allOf": [{"type": "string"}, {"minLength": 1}]}),
    "a new oneOf": ("oneOf", {}, {"oneOf": [{"type": "string"}, {"type": "null"}]}),
    "a new if": ("if", {}, {"if": {"type": "string"}, "then": {"minLength": 1}}),
    "an alternative less": ("anyOf", {"anyOf": [{"const": 1}, {"const": 2}, {"const": 3}]}, {"anyOf": [{"const": 1}]}),
    "a narrowed alternative": ("anyOf/1/type", {"anyOf": [{"const": "a"}, {"type": "number"}]},
                               {"anyOf": [{"const": "a"}, {"type": "integer"}]}),
}  # fmt: skip


@pytest.mark.parametrize(("keyword", "old", "new"), TIGHTER.values(), ids=TIGHTER.keys())
def test_it_is_breaking_to_ask_more_of_a_value_with(keyword: str, old: Any, new: Any) -> None:
    assert ("breaking", f"/parameters/properties/x/{keyword}") in kinds(compare(closed(x=old), closed(x=new)))


@pytest.mark.parametrize(("keyword", "old", "new"), TIGHTER.values(), ids=TIGHTER.keys())
def test_it_is_widening_to_take_back(keyword: str, old: Any, new: Any) -> None:
    assert verdict(new, old) == "widening"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"pattern": "^a"}, {"pattern": "^[ab]"}),
        ({"format": "date"}, {"format": "date-time"}),
        ({"multipleOf": 2}, {"multipleOf": 3}),
        ({"minimum": 1, "maximum": 2}, {"minimum": 0, "maximum": 1}),
        ({"const": 1}, {"const": 2}),
        ({"type": "string"}, {"type": "integer"}),
        ({"enum": ["a", "b"]}, {"enum": ["a", "c"]}),
        ({"contains": {"const": 1}}, {"contains": {"const": 2}}),
        ({"not": {"const": 1}}, {"not": {"const": 2}}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"dependentSchemas": {"a": {"required": ["c"]}}}),
        ({"patternProperties": {"^a": {"type": "string"}}}, {"patternProperties": {"^b": {"type": "string"}}}),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, {"oneOf": [{"type": "number"}, {"minimum": 2}]}),
    ],
)
def test_it_is_breaking_either_way_to_ask_for_something_else(old: Any, new: Any) -> None:
    assert verdict(old, new) == verdict(new, old) == "breaking"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}),
        ({"enum": [1, "a"]}, {"enum": [1.0, "a"]}),
        ({"const": "a"}, {"enum": ["a"]}),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"], "type": "string"}),
        ({"enum": [1, 2], "type": "integer"}, {"enum": [1, 2], "type": "integer", "minimum": 1}),
        ({"enum": ["a", 1], "type": "string"}, {"enum": ["a"], "type": "string"}),
        ({"type": "string"}, {"type": ["string"]}),
        ({"type": "string"}, {"type": "string", "minLength": 0}),
        ({"type": "string"}, {"type": "string", "minimum": 3}),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": ["integer", "null"]}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        ({"type": "string"}, {"allOf": [{"type": "string"}]}),
        ({"type": "array"}, {"type": "array", "uniqueItems": False}),
        ({"type": "object"}, {"type": "object", "additionalProperties": True}),
        ({"type": "object", "required": ["a", "b"]}, {"type": "object", "required": ["b", "a"]}),
    ],
)
def test_it_is_neutral_to_say_the_same_in_other_words(old: Any, new: Any) -> None:
    assert verdict(old, new) in ("neutral", "none")
    assert verdict(new, old) in ("neutral", "none")


def test_an_integer_that_becomes_a_number_is_widening() -> None:
    assert verdict({"type": "integer"}, {"type": "number"}) == "widening"


def test_an_argument_that_may_also_be_null_is_widening_however_it_is_written() -> None:
    assert verdict({"type": "string"}, {"type": ["string", "null"]}) == "widening"
    assert verdict({"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}) == "widening"
    assert verdict({"type": "string"}, {"oneOf": [{"type": "string"}, {"type": "null"}]}) == "widening"


def test_true_is_not_one() -> None:
    assert verdict({"enum": [1, 2]}, {"enum": [True, 2]}) == "breaking"


def test_what_could_not_be_proven_says_so() -> None:
    (change,) = compare(closed(x={"pattern": "^a"}), closed(x={"pattern": "^[ab]"}))
    assert change.message == (
        'For "x", "pattern" went from "^a" to "^[ab]"; it could not be proven that everything valid before still is.'
    )


def test_lost_and_gained_values_are_named() -> None:
    (change,) = compare(closed(x={"enum": ["fast", "slow"]}), closed(x={"enum": ["fast", "safe"]}))
    assert change.message == 'The values of "x" no longer include "slow" and now include "safe".'
    assert change.place == "/parameters/properties/x/enum"


def test_an_optional_argument_that_needs_another_new_one_is_widening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_diff, "canonicalize", None)
    new = closed(x=OPTIONAL, a=OPTIONAL, b=OPTIONAL) | {"dependentRequired": {"a": ["b"]}}
    assert {kind for kind, _ in kinds(compare(closed(x=OPTIONAL), new))} <= {"widening", "neutral"}


@pytest.mark.parametrize("value", [1, {"deep": True}, None])
def test_a_keyword_that_is_not_known_is_not_proven_to_be_harmless(value: Any) -> None:
    assert verdict({"x-limits": "few"}, {"x-limits": value}) == "breaking"
    assert verdict({}, {"x-limits": value}) == verdict({"x-limits": value}, {}) == "breaking"


@pytest.mark.parametrize(
    "keyword", ["title", "description", "examples", "deprecated", "readOnly", "writeOnly", "$comment"]
)
def test_an_annotation_is_neutral(keyword: str) -> None:
    value = ["a"] if keyword == "examples" else keyword in ("deprecated", "readOnly", "writeOnly") or "Text."
    changes = compare(closed(x={"type": "string"}), closed(x={"type": "string", keyword: value}))
    assert kinds(changes) == [("neutral", f"/parameters/properties/x/{keyword}")]


def test_an_argument_called_like_an_annotation_is_an_argument() -> None:
    old = {"oneOf": [closed(title={"type": "string"}), {"type": "null"}]}
    assert verdict(old, {"oneOf": [closed(title={"type": "integer"}), {"type": "null"}]}) == "breaking"
    assert kinds(compare(closed(title=OPTIONAL), closed())) == [("breaking", "/parameters/properties/title")]


def test_another_dialect_is_not_compared() -> None:
    old = closed(x=OPTIONAL) | {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert kinds(compare(old, closed(x=OPTIONAL))) == [("breaking", "/parameters/$schema")]
    named = closed(x=OPTIONAL) | {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert kinds(compare(named, closed(x=OPTIONAL))) == [("neutral", "/parameters")]


# ------------------------------------------------------------------------------------------------------- defaults
@pytest.mark.parametrize(("old", "new"), [({"default": 1}, {"default": 2}), ({"default": 1}, {}), ({}, {"default": 1})])
def test_a_default_that_changes_comes_or_goes_is_breaking_for_those_who_leave_it_out(old: Any, new: Any) -> None:
    assert kinds(compare(closed(x=old), closed(x=new))) == [("breaking", "/parameters/properties/x/default")]


def test_the_default_of_an_argument_that_was_required_never_mattered() -> None:
    changes = compare(closed("x", x={"default": 1}), closed("x", x={"default": 2}))
    assert kinds(changes) == [("neutral", "/parameters/properties/x/default")]


def test_a_default_below_an_argument_that_is_required_does_matter() -> None:
    old, new = (closed("x", x=closed(y={"default": default})) for default in (1, 2))
    assert kinds(compare(old, new)) == [("breaking", "/parameters/properties/x/properties/y/default")]


def test_a_default_of_an_item_or_of_all_arguments_is_never_filled_in() -> None:
    old, new = (closed(x={"items": {"default": default}}) | {"default": {"x": [default]}} for default in (1, 2))
    assert {change.kind for change in compare(old, new)} == {"neutral"}


def test_a_default_that_goes_with_its_argument_is_breaking_in_an_open_object_too() -> None:
    assert verdict({"type": "object", "properties": {"y": {"default": 1}}}, {"type": "object"}) == "breaking"


def test_a_default_is_told_in_nested_objects_items_and_definitions() -> None:
    def nested(default: int) -> dict[str, Any]:
        return closed(x={"type": "array", "items": closed(deep={"$ref": "#/$defs/D"})}) | {
            "$defs": {"D": {"default": default}}
        }

    (change,) = compare(nested(1), nested(2))
    assert change.kind == "breaking"
    assert change.message == 'For "x[].deep", "default" went from 1 to 2.'


def test_a_default_in_an_alternative_is_not_filled_in_and_so_neutral() -> None:
    old, new = ({"anyOf": [closed(a={"default": default}), {"type": "null"}]} for default in (1, 2))
    assert verdict(old, new) == "neutral"


# --------------------------------------------------------------------------------------- nesting and references
def test_a_change_deep_inside_is_told_at_its_place() -> None:
    old, new = (closed(filters=closed(tags={"type": "array", "items": {"enum": ["a", *more]}})) for more in ("b", ""))
    new["properties"]["filters"]["properties"]["tags"]["items"]["enum"] = ["a"]
    (change,) = compare(old, new)
    assert change.kind == "breaking"
    assert change.place == "/parameters/properties/filters/properties/tags/items/enum"
    assert change.message == 'The values of "filters.tags[]" no longer include "b".'


def test_a_nested_field_that_becomes_required_is_breaking() -> None:
    (change,) = compare(closed(x=closed(y=OPTIONAL)), closed(x=closed("y", y=OPTIONAL)))
    assert (change.kind, change.message) == ("breaking", 'The field "x.y" is required now.')


def test_names_with_slashes_are_escaped_in_the_place() -> None:
    (change,) = compare(closed(**{"a/b~c": {"type": "number"}}), closed(**{"a/b~c": {"type": "integer"}}))
    assert change.place == "/parameters/properties/a~1b~0c/type"


def with_definition(definition: Any, **properties: Any) -> dict[str, Any]:
    return closed(**(properties or {"x": {"$ref": "#/$defs/D"}})) | {"$defs": {"D": definition}}


def test_a_change_behind_a_reference_is_told_where_it_was_made() -> None:
    changes = compare(with_definition({"type": "number"}), with_definition({"type": "integer"}))
    assert kinds(changes) == [("breaking", "/parameters/$defs/D/type")]
    assert compare(with_definition({"type": "integer"}), with_definition({"type": "number"}))[0].kind == "widening"


def test_a_definition_that_is_used_twice_is_told_once() -> None:
    uses = {"x": {"$ref": "#/$defs/D"}, "y": {"$ref": "#/$defs/D"}}
    changes = compare(with_definition({"type": "number"}, **uses), with_definition({"type": "integer"}, **uses))
    assert len(changes) == 1


def test_a_definition_that_does_no_harm_in_one_place_is_still_told_in_another() -> None:
    # Seven is still valid for "x", whatever the definition says; "y" may be three.
    uses = {"x": {"enum": [7], "allOf": [{"$ref": "#/$defs/D"}, {}]}, "y": {"$ref": "#/$defs/D"}}
    changes = compare(with_definition({"minimum": 1}, **uses), with_definition({"minimum": 5}, **uses))
    assert "breaking" in {change.kind for change in changes}


def test_each_use_of_a_definition_is_judged_by_what_it_is_compared_with() -> None:
    def free(**properties: Any) -> dict[str, Any]:
        rest = {"additionalProperties": {"$ref": "#/$defs/Rest"}, "properties": properties}
        return closed(x={"type": "object"} | rest) | {"$defs": {"Rest": {"type": "number"}, "D": {"type": "integer"}}}

    listed = {"a": {"$ref": "#/$defs/D"}, "b": {"$ref": "#/$defs/D"}}
    assert [change.kind for change in compare(free(), free(**listed))] == ["breaking", "breaking"]


def test_a_default_beside_a_second_use_of_a_definition_is_told() -> None:
    old, new = (
        with_definition({"type": "integer"}, x={"$ref": "#/$defs/D"}, y={"$ref": "#/$defs/D", "default": default})
        for default in (1, 2)
    )
    assert kinds(compare(old, new)) == [("breaking", "/parameters/properties/y/default")]


def test_a_default_that_is_filled_in_by_one_use_of_a_definition_only_is_told() -> None:
    maybe, always = {"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}]}, {"$ref": "#/$defs/D"}
    old, new = (with_definition(closed(a={"default": default}), x=maybe, y=always) for default in (1, 2))
    assert ("breaking", "/parameters/$defs/D/properties/a/default") in kinds(compare(old, new))


def test_a_reference_with_keywords_beside_it_is_one_condition_more() -> None:
    beside = {"$ref": "#/$defs/D", "minimum": 1}
    assert (
        compare(with_definition({"multipleOf": 2}, x=beside), with_definition({"multipleOf": 6}, x=beside))[0].kind
        == "breaking"
    )
    assert (
        verdict({"minimum": 1}, {"minimum": 1, "$ref": "#/properties/x/$defs/D", "$defs": {"D": {"maximum": 2}}})
        == "breaking"
    )


@pytest.mark.parametrize("keyword", ["oneOf", "not", "contains", "patternProperties", "dependentSchemas"])
def test_a_change_behind_a_reference_shows_through_every_keyword(keyword: str) -> None:
    ref = {"$ref": "#/$defs/D"}
    value = {"oneOf": [ref, {"type": "null"}], "not": ref, "contains": ref}.get(keyword, {"a": ref})
    old, new = (with_definition({"type": kind}, x={keyword: value}) for kind in ("object", "array"))
    assert "breaking" in {change.kind for change in compare(old, new)}


def test_the_branches_of_a_condition_are_compared() -> None:
    old = {"if": {"type": "string"}, "then": {"minLength": 1}}
    assert verdict(old, old | {"then": {"minLength": 2}}) == verdict(old, old | {"else": {"minimum": 1}}) == "breaking"
    assert verdict(old | {"then": {"minLength": 2}}, old) == "widening"


def test_how_often_an_item_is_contained_counts() -> None:
    old = {"contains": {"const": 1}}
    assert verdict(old, old | {"minContains": 2}) == verdict(old, old | {"maxContains": 2}) == "breaking"
    assert verdict(old, old | {"minContains": 0}) == "widening"


def test_a_tuple_that_loses_its_description_falls_under_items() -> None:
    old = {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}
    assert verdict(old, {"type": "array", "items": {"type": "integer"}}) == "breaking"
    assert verdict(old, {"type": "array", "items": {"type": ["integer", "string"]}}) == "widening"


def test_moving_a_schema_into_a_definition_is_neutral() -> None:
    old = closed(x=closed(y={"type": "string", "minLength": 1}))
    assert {kind for kind, _ in kinds(compare(old, with_definition(old["properties"]["x"])))} <= {"neutral"}
    lone = with_definition(old["properties"]["x"], x={"allOf": [{"$ref": "#/$defs/D"}]})
    assert {kind for kind, _ in kinds(compare(lone, old))} <= {"neutral"}


def tree(**value: Any) -> dict[str, Any]:
    node = closed(value=value, children={"type": "array", "items": {"$ref": "#/$defs/D"}})
    return with_definition(node)


def test_a_recursive_definition_can_be_widened_and_narrowed() -> None:
    assert kinds(compare(tree(type="integer"), tree(type="number"))) == [
        ("widening", "/parameters/$defs/D/properties/value/type")
    ]
    assert compare(tree(type="number"), tree(type="integer"))[0].kind == "breaking"


def test_a_recursion_of_the_whole_schema_is_followed() -> None:
    old, new = (closed(x={"type": kind}, more={"$ref": "#"}) for kind in ("integer", "number"))
    assert {change.kind for change in compare(old, new)} == {"widening"}


def test_mutual_recursion_does_not_take_forever() -> None:
    def web(kind: str) -> dict[str, Any]:
        names = [f"N{number}" for number in range(12)]
        links = {name: {"$ref": f"#/$defs/{name}"} for name in names}
        return closed(x={"oneOf": list(links.values())}, y=links["N0"]) | {
            "$defs": {name: {"type": "object", "properties": {"v": {"type": kind}, **links}} for name in names}
        }

    assert "breaking" in {change.kind for change in compare(web("number"), web("integer"))}


@pytest.mark.parametrize("ref", ["#/$defs/Missing", "https://example.org/schema.json", "#anchor"])
def test_a_reference_that_cannot_be_followed_is_not_proven_to_be_harmless(ref: str) -> None:
    old = with_definition({"type": "string"}, x={"$ref": ref}, y=OPTIONAL)
    changes = compare(old, with_definition({}, x={"$ref": ref}, y=OPTIONAL))
    assert kinds(changes) == [("breaking", "/parameters/properties/x/$ref")]
    assert "could not be proven" in changes[0].message


def test_a_reference_below_an_id_of_its_own_is_not_followed() -> None:
    def within(kind: str) -> dict[str, Any]:
        inner = {"$id": "urn:inner", "$defs": {"D": {"type": kind}}, "properties": {"v": {"$ref": "#/$defs/D"}}}
        return with_definition({"type": "string"}, x=inner)

    assert compare(within("number"), within("integer"))[0].kind == "breaking"


def test_what_a_keyword_hides_is_not_taken_for_unchanged() -> None:
    old, new = (
        with_definition({"type": kind}, x={"dependencies": {"a": {"$ref": "#/$defs/D"}}})
        for kind in ("object", "array")
    )
    assert "breaking" in {change.kind for change in compare(old, new)}


def test_a_schema_with_unevaluated_properties_is_compared_as_a_whole() -> None:
    old = {"allOf": [{"properties": {"a": True}}, {}], "unevaluatedProperties": False}
    wider = {"allOf": [{"properties": {"a": True, "b": True}}, {}], "unevaluatedProperties": False}
    assert verdict(wider, old) == "breaking"
    assert verdict(old, wider) == "widening"


# -------------------------------------------------------------------------------------------------------- results
RESULT = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}


def result_with(**changes: Any) -> dict[str, Any]:
    return RESULT | changes


def test_a_result_field_that_is_removed_is_breaking_in_an_open_and_in_a_closed_result() -> None:
    fewer = {"a": {"type": "integer"}}
    assert result(RESULT, result_with(properties=fewer)) == [("breaking", "/outputSchema/properties/b")]
    shut = result_with(additionalProperties=False)
    assert result(shut, shut | {"properties": fewer}) == [("breaking", "/outputSchema/properties/b")]


def test_a_result_field_that_is_added_is_widening() -> None:
    more = RESULT["properties"] | {"c": {"type": "string"}}
    assert result(RESULT, result_with(properties=more)) == [("widening", "/outputSchema/properties/c")]
    shut = result_with(additionalProperties=False)
    assert result(shut, shut | {"properties": more, "required": ["a", "c"]}) == [("widening", "/outputSchema/required")]
    assert result(shut, RESULT) == [("widening", "/outputSchema/additionalProperties")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "integer"}, {"type": "number"}),
        ({"type": "integer"}, {"type": ["integer", "null"]}),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 9}),
        ({"type": "integer"}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    ],
)
def test_a_result_that_may_be_more_is_breaking_and_one_that_is_less_is_neutral(old: Any, new: Any) -> None:
    before, after = result_with(properties={"a": old}), result_with(properties={"a": new})
    assert "breaking" in {kind for kind, _ in result(before, after)}
    assert {kind for kind, _ in result(after, before)} == {"neutral"}


def test_a_result_field_that_may_now_be_missing_is_breaking() -> None:
    assert result(RESULT, result_with(required=[])) == [("breaking", "/outputSchema/required")]
    assert result(result_with(required=[]), RESULT) == [("neutral", "/outputSchema/required")]


def test_a_result_that_is_no_longer_described_is_breaking() -> None:
    assert result(RESULT, None) == [("breaking", "/outputSchema")]
    assert result(None, RESULT) == [("neutral", "/outputSchema")]


def test_a_default_in_a_result_is_only_a_note() -> None:
    old, new = (result_with(properties={"a": {"default": default}}) for default in (1, 2))
    assert result(old, new) == [("neutral", "/outputSchema/properties/a/default")]


# --------------------------------------------------------------------------------------------------------- policy
TWO = closed(n={"type": "integer"}, kind={"enum": ["a", "b"]})
WRITES = {"category": "action", "sideEffects": "writes"}
STRICTER: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a mode removed": ("/allowedModes", {}, {"allowedModes": ["text"]}),
    "confirmation added": ("/requiresConfirmation", {}, {"requiresConfirmation": True}),
    "a condition for confirmation": ("/confirmation/when", {}, {"confirmation": {"when": "args.n > 3"}}),
    "approval on a screen only": ("/confirmation/channel", {}, {"confirmation": {"channel": "screen"}}),
    "retrieval": ("/category", {}, {"category": "retrieval"}),
    "effects where there were none": ("/sideEffects", {}, {"sideEffects": "writes"}),
    "reading where there was nothing": ("/sideEffects", {}, {"sideEffects": "read_only"}),
    "not idempotent any more": ("/idempotent", {}, {"idempotent": False}),
    "a rate limit": ("/rateLimit", {}, {"rateLimit": {"calls": 5, "windowMs": 1000, "scope": "session"}}),
    "fewer calls": ("/rateLimit", {"rateLimit": {"calls": 5, "windowMs": 1000, "scope": "session"}},
                    {"rateLimit": {"calls": 4, "windowMs": 1000, "scope": "session"}}),
    "a longer window": ("/rateLimit", {"rateLimit": {"calls": 5, "windowMs": 1000, "scope": "user"}},
                        {"rateLimit": {"calls": 5, "windowMs": 1001, "scope": "user"}}),
    "a limit per user": ("/rateLimit", {"rateLimit": {"calls": 5, "windowMs": 1000, "scope": "session"}},
                         {"rateLimit": {"calls": 5, "windowMs": 1000, "scope": "user"}}),
    "a timeout": ("/timeoutMs", {}, {"timeoutMs": 1000}),
    "a shorter timeout": ("/timeoutMs", {"timeoutMs": 1000}, {"timeoutMs": 999}),
    "smaller results": ("/maxOutputBytes", {"maxOutputBytes": 1000}, {"maxOutputBytes": 999}),
    "a clamp": ("/clamp/voice/n", {}, {"clamp": {"voice": {"n": 3}}}),
    "a lower clamp": ("/clamp/voice/n", {"clamp": {"voice": {"n": 3}}}, {"clamp": {"voice": {"n": 2}}}),
    "a smaller clamp": ("/clamp/text/kind", {"clamp": {"text": {"kind": ["a", "b"]}}},
                        {"clamp": {"text": {"kind": ["a"]}}}),
    "a capability": ("/capabilities", {"capabilities": ["kb"]}, {"capabilities": ["kb", "calendar"]}),
    "signing in": ("/permissions/requiresAuth", {}, {"permissions": {"requiresAuth": True}}),
    "an availability condition": ("/availability/condition", {}, {"availability": {"condition": "mode == 'text'"}}),
    "cancelling when interrupted": ("/onInterrupt", {"onInterrupt": "finish"}, {"onInterrupt": "cancel"}),
    "no schema any more": ("/noSchemaMode", {}, {"noSchemaMode": "confirm"}),
    "no schema and no calls": ("/noSchemaMode", {"noSchemaMode": "confirm"}, {"noSchemaMode": "refuse"}),
}  # fmt: skip


@pytest.mark.parametrize(("place", "old", "new"), STRICTER.values(), ids=STRICTER.keys())
def test_a_stricter_policy_is_breaking(place: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    assert kinds(diff_definitions(tool(TWO, **old), tool(TWO, **new))) == [("breaking", place)]


@pytest.mark.parametrize(("place", "old", "new"), STRICTER.values(), ids=STRICTER.keys())
def test_a_laxer_policy_is_widening(place: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    assert kinds(diff_definitions(tool(TWO, **new), tool(TWO, **old))) == [("widening", place)]


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        ("/confirmation/when", {"confirmation": {"when": "args.n > 3"}}, {"confirmation": {"when": "args.n > 4"}}),
        ("/availability/condition", {"availability": {"condition": "true"}}, {"availability": {"condition": "false"}}),
    ],
)
def test_which_of_two_conditions_is_stricter_cannot_be_proven(place: str, old: Any, new: Any) -> None:
    (change,) = diff_definitions(tool(**old), tool(**new))
    assert (change.kind, change.place) == ("breaking", place)
    assert "could not be proven" in change.message


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        ("/version", {}, {"version": "1.0.1"}),
        ("/description", {}, {"description": "Looks it up."}),
        ("/category", {"category": "utility"}, {"category": "action"}),
        ("/latencyBudgetMs", {}, {"latencyBudgetMs": 50}),
        ("/tags", {}, {"tags": ["words"]}),
        ("/preview", {}, {"preview": "Look up {x}"}),
        ("/strict", {}, {"strict": True}),
        ("/waivers", {}, {"waivers": {"clamp": "On purpose."}}),
        ("/allowedModes", {}, {"allowedModes": ["voice", "text"]}),
        ("/dedupeFields", {}, {"dedupeFields": ["x"]}),
        ("/clamp/voice/x", {"allowedModes": ["text"]}, {"allowedModes": ["text"], "clamp": {"voice": {"x": ["a"]}}}),
        ("/clamp/voice/new", {}, {"clamp": {"voice": {"new": ["a"]}}}),
        ("/clamp/voice/x", {"clamp": {"voice": {"x": ["a", "b"]}}}, {"clamp": {"voice": {"x": ["b", "a"]}}}),
        (
            "/confirmation/when",
            {"requiresConfirmation": True},
            {"requiresConfirmation": True, "confirmation": {"when": "true"}},
        ),
    ],
)
def test_what_callers_cannot_feel_is_neutral(place: str, old: Any, new: Any) -> None:
    assert kinds(diff_definitions(tool(**old), tool(**new))) == [("neutral", place)]


def test_a_limit_that_lets_every_old_pace_through_is_widening() -> None:
    old = {"rateLimit": {"calls": 10, "windowMs": 1000, "scope": "user"}}
    new = {"rateLimit": {"calls": 100, "windowMs": 10000, "scope": "session"}}
    assert kinds(diff_definitions(tool(**old), tool(**new))) == [("widening", "/rateLimit")]


def test_asking_always_instead_of_sometimes_is_breaking_and_the_reverse_widening() -> None:
    sometimes, always = tool(confirmation={"when": "true"}), tool(requiresConfirmation=True)
    assert kinds(diff_definitions(sometimes, always))[0] == ("breaking", "/requiresConfirmation")
    assert {change.kind for change in diff_definitions(always, sometimes)} == {"widening", "neutral"}


def test_other_fields_that_make_two_writes_the_same_are_breaking_either_way() -> None:
    one, two = tool(**WRITES, dedupeFields=["x"]), tool(**WRITES)
    assert kinds(diff_definitions(one, two)) == kinds(diff_definitions(two, one)) == [("breaking", "/dedupeFields")]


def test_another_name_is_breaking() -> None:
    assert kinds(diff_definitions(tool(), tool(toolId="find"))) == [("breaking", "/toolId")]


OTHER_VALUES: dict[str, dict[str, Any]] = {
    "tool_id": {"toolId": "other"}, "version": {"version": "2.0.0"}, "description": {"description": "Other."},
    "category": {"category": "action"}, "side_effects": {"sideEffects": "writes"}, "idempotent": {"idempotent": False},
    "requires_confirmation": {"requiresConfirmation": True}, "allowed_modes": {"allowedModes": ["text"]},
    "latency_budget_ms": {"latencyBudgetMs": 7}, "parameters": {"parameters": closed(x={"type": "null"})},
    "timeout_ms": {"timeoutMs": 7}, "output_schema": {"outputSchema": {"type": "object"}},
    "max_output_bytes": {"maxOutputBytes": 7}, "capabilities": {"capabilities": ["kb"]}, "tags": {"tags": ["a"]},
    "always_offer": {"alwaysOffer": True},
    "rate_limit": {"rateLimit": {"calls": 1, "windowMs": 1, "scope": "user"}},
    "requires_auth": {"permissions": {"requiresAuth": True}},
    "roles": {"permissions": {"roles": ["manager"]}},
    "availability_condition": {"availability": {"condition": "true"}},
    "confirmation_when": {"confirmation": {"when": "true"}},
    "confirmation_channel": {"confirmation": {"channel": "screen"}}, "clamp": {"clamp": {"text": {"x": ["a"]}}},
    "dedupe_fields": {"dedupeFields": ["x"]}, "preview": {"preview": "P"}, "on_interrupt": {"onInterrupt": "finish"},
    "strict": {"strict": True}, "waivers": {"waivers": {"clamp": "So."}}, "no_schema_mode": {"noSchemaMode": "confirm"},
}  # fmt: skip


def entry(version: str, **changes: object) -> dict[str, object]:
    return {"toolId": "refund", "version": version, **changes}


@pytest.mark.parametrize(
    ("old", "new", "pairs", "added"),
    [
        (["1.0.0"], ["1.1.0"], {"refund": ("1.0.0", "1.1.0")}, []),
        (["1.0.0"], ["1.0.0", "2.0.0"], {"refund@1.0.0": ("1.0.0", "1.0.0")}, ["refund@2.0.0"]),
        (
            ["1.0.0", "2.0.0"],
            ["2.0.0"],
            {"refund@1.0.0": ("1.0.0", "2.0.0"), "refund@2.0.0": ("2.0.0", "2.0.0")},
            [],
        ),
        (["1.0.0"], [], {}, []),
    ],
)
def test_versions_of_one_tool_are_compared_with_their_like(old, new, pairs, added):
    before, after = paired_entries([entry(one) for one in old], [entry(one) for one in new])
    found = {name: (before[name]["version"], after[name]["version"]) for name in before.keys() & after.keys()}
    assert found == pairs
    assert sorted(after.keys() - before.keys()) == added


@pytest.mark.parametrize("field", [field.name for field in fields(ToolDefinition)])
def test_no_field_of_a_definition_changes_in_silence(field: str) -> None:
    changed = tool(**OTHER_VALUES[field])
    assert getattr(changed, field) != getattr(tool(), field)
    assert diff_definitions(tool(), changed)
    assert diff_definitions(changed, tool())


def test_equal_definitions_have_no_differences() -> None:
    assert diff_definitions(tool(TWO), tool(TWO)) == []


# ----------------------------------------------------------------------------------------------------- registries
def registry(**tools: ToolDefinition) -> dict[str, ToolDefinition]:
    return tools


NARROW, WIDE = closed(x={"type": "integer"}), closed(x={"type": "number"})


def test_added_removed_and_changed_tools_are_told_apart() -> None:
    diff = diff_registries(registry(a=tool(), b=tool(WIDE), c=tool()), registry(b=tool(NARROW), c=tool(), d=tool()))
    assert (diff.added, diff.removed, [each.tool for each in diff.tools]) == (("d",), ("a",), ["b"])
    assert [change.place for change in diff.breaking] == ["", "/parameters/properties/x/type"]
    assert [change.kind for change in diff.changed] == ["breaking"]


def test_a_difference_is_plain_json() -> None:
    diff = diff_registries(registry(a=tool(), b=tool(WIDE)), registry(b=tool(NARROW), d=tool()))
    told = diff.to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["added"] == ["d"]
    assert told["removed"] == ["a"]
    assert told["breaking"] == 2
    assert told["changed"][0]["changes"][0] == {
        "tool": "look_up",
        "kind": "breaking",
        "place": "/parameters/properties/x/type",
        "message": 'For "x", "type" went from "number" to "integer".',
    }


def test_people_read_a_paragraph_per_tool() -> None:
    diff = diff_registries(registry(a=tool(), b=tool(WIDE)), registry(b=tool(NARROW, version="2.0.0"), d=tool()))
    assert diff.render().splitlines() == [
        "a",
        "  breaking",
        "            This tool was removed.",
        "",
        "d",
        "  widening",
        "            This tool is new.",
        "",
        "b (1.0.0 → 2.0.0)",
        "  breaking  /parameters/properties/x/type",
        '            For "x", "type" went from "number" to "integer".',
        "  neutral   /version",
        '            "version" went from "1.0.0" to "2.0.0".',
        "",
        "1 added, 1 removed, 1 changed; 2 breaking changes.",
    ]


def test_no_differences_are_said_in_two_words() -> None:
    assert diff_registries(registry(a=tool()), registry(a=tool())).render() == "No differences."


@pytest.mark.parametrize(
    ("before", "after", "announced"),
    [
        ("1.0.0", "2.0.0", True),
        ("1.0.0", "2.0.0-rc.1", True),
        ("1.9.9", "10.0.0+build", True),
        ("0.3.1", "0.4.0", True),
        ("0.9.0", "1.0.0", True),
        ("1.0.0", "1.1.0", False),
        ("1.0.0", "1.0.0", False),
        ("0.3.1", "0.3.2", False),
        ("2.0.0", "1.5.0", False),
        ("1.0.0", "0.9.0", False),
    ],
)
def test_a_breaking_change_needs_a_major_version(before: str, after: str, announced: bool) -> None:
    old, new = registry(a=tool(WIDE, version=before)), registry(a=tool(NARROW, version=after))
    assert [change.kind for change in unbumped(diff_registries(old, new), old, new)] == (
        [] if announced else ["breaking"]
    )


def test_what_only_widens_needs_no_version() -> None:
    old, new = registry(a=tool(NARROW)), registry(a=tool(WIDE), b=tool())
    assert unbumped(diff_registries(old, new), old, new) == []


def test_a_tool_is_removed_without_complaint_only_if_it_was_called_deprecated_before() -> None:
    old = registry(gone=tool(), announced=tool(tags=["deprecated"]))
    assert [change.tool for change in unbumped(diff_registries(old, {}), old, {})] == ["gone"]
    assert len(diff_registries(old, {}).breaking) == 2


def alternatives(number: int, least: int) -> dict[str, Any]:
    """A recursive schema, and a conjunction of alternatives: multiplied out, both are far too many to compare."""
    return {
        "$ref": "#/$defs/f",
        "$defs": {
            "f": {
                "anyOf": [
                    {"type": "object", "properties": {f"p{i + least}": {"$ref": "#/$defs/f"}, "v": {"minimum": least}}}
                    for i in range(number)
                ],
                "allOf": [
                    {"anyOf": [{"properties": {f"a{i}": {"minimum": least}}}, {"required": [f"b{i}"]}]}
                    for i in range(number)
                ],
            }
        },
    }


def test_comparing_schemas_is_bounded_work_and_what_is_not_compared_is_not_called_harmless() -> None:
    effort = schema_diff.DiffEffort()
    found = schema_diff.compare_schemas(alternatives(20, 0), alternatives(20, 1), effort=effort)
    assert effort.steps <= schema_diff.MAX_STEPS
    assert effort.proof_steps <= schema_diff.MAX_PROOF_STEPS
    assert not all(item.old_in_new for item in found)


def test_a_long_chain_of_references_is_compared_without_exhausting_the_stack() -> None:
    def chain(last: int) -> dict[str, Any]:
        defs: dict[str, Any] = {str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}]} for i in range(900)}
        return {"$ref": "#/$defs/0", "$defs": {**defs, "900": {"minimum": last}}}

    assert schema_diff.compare_schemas(chain(0), chain(1))
