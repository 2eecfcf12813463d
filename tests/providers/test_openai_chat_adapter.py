"""Chat Completions: what a tool looks like there, with strict mode and without, and what is said about every loss."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.providers.made_schemas import TEXT, a_definition, an_object
from tests.providers.wire_examples import cases, example

from handrail.providers import adapt
from handrail.providers.openai.function_schema import FORMATS, to_strict
from handrail.providers.openai.strict_limits import MAX_ENUM_VALUES, MAX_LEVELS
from handrail.providers.optional_nulls import strip_nulls


def function(parameters: Any, *, strict: bool = False) -> dict[str, Any]:
    return adapt(a_definition(parameters, strict=strict), "openai-chat").schema["function"]


def losses(parameters: Any, *, strict: bool = False) -> list[tuple[str, str]]:
    found = adapt(a_definition(parameters, strict=strict), "openai-chat").losses
    return [(loss.keyword, loss.pointer) for loss in found]


def strict_property(schema: Any, *, required: bool = True, **root: Any) -> Any:
    """What becomes of one property."""
    converted = to_strict({**an_object(["a"] if required else [], a=schema), **root}).schema
    assert converted is not None
    return converted["properties"]["a"]


# ---------------------------------------------------------------------------------------------- as the reference has it


@pytest.mark.parametrize("case", cases("schema-openai-strict.json"))
def test_a_schema_is_converted_as_in_the_reference(case: dict[str, Any]):
    converted = to_strict(case["json_schema"])
    assert converted.schema == case["strict_schema"]
    assert [loss.keyword for loss in converted.losses] == case["report"]
    sent = function(case["json_schema"], strict=True)
    assert sent.get("strict", False) is (case["strict_schema"] is not None)
    assert sent["parameters"] == (case["strict_schema"] or case["json_schema"])


def test_a_tool_is_sent_as_the_sdk_sends_it():
    fields = {"type": "array", "items": {"type": "string", "enum": ["status", "eta", "items"]}}
    parameters = an_object(
        ["order_id"],
        order_id={"type": "string", "description": "Order number, e.g. A-17"},
        fields={**fields, "description": "Null means all fields"},
    )
    adapted = adapt(a_definition(parameters, strict=True), "openai-chat")
    assert adapted.schema == example("openai-chat.request.json")["tools"][1]
    assert adapted.losses == ()


# ------------------------------------------------------------------------------------------------------- without strict


RICH = {
    **an_object(
        ["a"],
        a={"oneOf": [TEXT, {"type": "integer"}], "default": "x"},
        b={"type": "object", "additionalProperties": {"type": "string"}, "not": {"required": ["z"]}},
        c={"$ref": "#/$defs/c", "description": "A c"},
        d={"type": "array", "prefixItems": [TEXT], "uniqueItems": True},
        e={"type": "string", "minLength": 2, "format": "uri"},
    ),
    "$defs": {"c": {"type": "string"}},
    "title": "Rich",
    "dependentRequired": {"b": ["c"]},
}


def test_without_strict_the_parameters_pass_as_they_are():
    assert function(RICH) == {"name": "lookup_order", "description": "Look up one order.", "parameters": RICH}
    assert losses(RICH) == []


def test_the_envelope_of_a_tool_says_that_it_is_a_function():
    assert adapt(a_definition(RICH), "openai-chat").schema.keys() == {"type", "function"}
    assert adapt(a_definition(RICH), "openai-chat").schema["type"] == "function"


ROOT = an_object([], name=TEXT, id=TEXT)
AT_ROOT: list[tuple[dict[str, Any], str]] = [
    ({"oneOf": [{"required": ["name"]}, {"required": ["id"]}]}, "Give exactly one of: name, id."),
    ({"anyOf": [{"required": ["name", "id"]}, {"required": ["id"]}]}, "Give at least one of: name and id, id."),
    ({"not": {"required": ["name", "id"]}}, "Do not give name and id together."),
    ({"not": {"required": ["name"]}}, "Do not give name."),
    ({"enum": [{"name": "x"}]}, 'The arguments must be one of: {"name": "x"}.'),
    (
        {"anyOf": [{"properties": {"id": {"const": "ü"}}}, {"required": ["name"]}]},
        "The arguments must fit at least one of these JSON Schemas: "
        '[{"properties": {"id": {"const": "ü"}}}, {"required": ["name"]}].',
    ),
    (
        {"if": {"required": ["id"]}, "then": {"required": ["name"]}},
        'If the arguments fit the JSON Schema {"required": ["id"]}, they must fit {"required": ["name"]}.',
    ),
    (
        {"if": {"required": ["id"]}, "then": {"minProperties": 2}, "else": {"required": ["name"]}},
        'If the arguments fit the JSON Schema {"required": ["id"]}, they must fit {"minProperties": 2}, '
        'and if not, they must fit {"required": ["name"]}.',
    ),
]


@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
@pytest.mark.parametrize(("refused", "words"), AT_ROOT, ids=[words[:30] for _, words in AT_ROOT])
def test_what_is_refused_at_the_root_is_put_in_words_and_reported(refused: dict[str, Any], words: str, strict: bool):
    keyword = next(iter(refused))
    sent = function({**ROOT, **refused}, strict=strict)
    assert sent["description"] == f"Look up one order. {words}"
    assert sent["parameters"] == (to_strict(ROOT).schema if strict else ROOT)
    assert sent.get("strict", False) is strict
    assert losses({**ROOT, **refused}, strict=strict) == [(keyword, f"/{keyword}")]


def test_words_that_make_the_tools_description_too_long_go_to_that_of_the_parameters():
    parameters = {**ROOT, **AT_ROOT[0][0], "description": "Name or id"}
    adapted = adapt(a_definition(parameters, description="x" * 1020), "openai-chat")
    assert adapted.schema["function"]["description"] == "x" * 1020
    assert adapted.schema["function"]["parameters"]["description"] == "Name or id. Give exactly one of: name, id."


def test_an_all_of_at_the_root_is_merged_into_it_without_loss():
    parameters = {
        "type": "object",
        "$defs": {"paged": {"properties": {"page": {"type": "integer"}}, "required": ["page"]}},
        "properties": {"name": TEXT},
        "allOf": [{"$ref": "#/$defs/paged"}, {"properties": {"name": {"minLength": 2}}, "required": ["name"]}],
    }
    assert losses(parameters) == []
    sent = function(parameters)["parameters"]
    assert sent == {
        "type": "object",
        "$defs": parameters["$defs"],
        "properties": {"name": {"allOf": [TEXT, {"minLength": 2}]}, "page": {"type": "integer"}},
        "required": ["page", "name"],
    }


@pytest.mark.parametrize(
    "members",
    [[{"properties": {"other": TEXT}}], [{"oneOf": [{"required": ["name"]}]}], [{"not": {"required": ["name"]}}]],
    ids=["closed root", "alternatives", "not"],
)
def test_an_all_of_at_the_root_that_cannot_be_merged_is_put_in_words(members: list[Any]):
    sent = function({**ROOT, "allOf": members})
    assert sent["parameters"] == ROOT
    assert json.dumps(members) in sent["description"]
    assert losses({**ROOT, "allOf": members}) == [("allOf", "/allOf")]


BY_KIND = {
    "type": "object",
    "oneOf": [
        {"properties": {"kind": {"const": "a"}, "x": TEXT}, "required": ["kind"]},
        {"$ref": "#/$defs/b"},
    ],
    "$defs": {"b": {"properties": {"kind": {"const": "b"}, "x": TEXT}, "required": ["kind"]}},
}


@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
def test_properties_that_only_the_branches_of_the_root_have_stay_in_sight(strict: bool):
    sent = function(BY_KIND, strict=strict)
    assert sent["parameters"]["properties"] == {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "x": TEXT}
    assert "strict" not in sent
    assert losses(BY_KIND, strict=strict) == [("oneOf", "/oneOf")] * (1 + strict)


# ---------------------------------------------------------------------------------------------------------- strict mode


NODE = an_object(["label"], label=TEXT, next={"$ref": "#/$defs/node"})
COLOUR = {"type": "string", "enum": ["red", "blue"], "description": "A colour"}
DEFS = {"node": NODE, "colour": COLOUR, "maybe": {"type": ["string", "null"]}, "linked": {"$ref": "#/$defs/colour"}}
CIRCLE = {"circle": {"$ref": "#/$defs/back"}, "back": {"$ref": "#/$defs/circle"}}

KEPT: list[Any] = [
    TEXT,
    {"type": ["string", "null"]},
    {"type": "string", "pattern": "^x", "title": "X", "description": "An x"},
    {"type": "integer", "minimum": 0, "maximum": 9, "multipleOf": 3},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 3},
    {"type": "string", "const": "x"},
    {"anyOf": [TEXT, {"type": "null"}], "description": "Or nothing"},
    an_object(inner=TEXT),
    *({"type": "string", "format": name} for name in sorted(FORMATS)),
]


@pytest.mark.parametrize("schema", KEPT, ids=json.dumps)
def test_what_strict_mode_knows_is_kept(schema: Any):
    assert strict_property(schema) == schema
    assert function(an_object(a=schema), strict=True)["parameters"] == an_object(a=schema)
    assert losses(an_object(a=schema), strict=True) == []


OPTIONAL: list[tuple[Any, Any]] = [
    (TEXT, {"type": ["string", "null"]}),
    ({"type": ["string", "integer"]}, {"type": ["string", "integer", "null"]}),
    ({"enum": ["a", 1]}, {"type": ["string", "integer", "null"], "enum": ["a", 1, None]}),
    ({"const": "a"}, {"type": ["string", "null"], "enum": ["a", None]}),
    ({"type": ["string", "null"], "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
    ({"anyOf": [TEXT, {"type": "integer"}]}, {"anyOf": [TEXT, {"type": "integer"}, {"type": "null"}]}),
    ({"$ref": "#/$defs/node"}, {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}),
    ({"$ref": "#/$defs/colour"}, {"anyOf": [{"$ref": "#/$defs/colour"}, {"type": "null"}]}),
    ({"allOf": [TEXT, {"pattern": "x"}]}, {"type": ["string", "null"], "pattern": "x"}),
    ({"type": "array", "items": TEXT}, {"type": ["array", "null"], "items": TEXT}),
]


@pytest.mark.parametrize(("schema", "wide"), OPTIONAL, ids=[json.dumps(schema) for schema, _ in OPTIONAL])
def test_an_optional_property_may_be_null(schema: Any, wide: Any):
    assert strict_property(schema, required=False, **{"$defs": DEFS}) == wide
    assert function({**an_object([], a=schema), "$defs": DEFS}, strict=True)["parameters"]["properties"] == {"a": wide}
    assert losses({**an_object([], a=schema), "$defs": DEFS}, strict=True) == []


NULLABLE: list[Any] = [
    {"type": ["string", "null"]},
    {"anyOf": [TEXT, {"type": "null"}]},
    {"$ref": "#/$defs/maybe"},
    {"type": ["string", "null"], "enum": ["a", None]},
]


@pytest.mark.parametrize("schema", NULLABLE, ids=json.dumps)
def test_that_null_and_absent_can_no_longer_be_told_apart_is_reported(schema: Any):
    assert strict_property(schema, required=False, **{"$defs": DEFS}) == schema
    parameters = {**an_object([], a=schema), "$defs": DEFS}
    assert losses(parameters, strict=True) == [("required", "/properties/a")]
    assert strip_nulls(parameters, {"a": None}) == {"a": None}


DEFAULTS: list[tuple[Any, bool, str, bool]] = [
    ({"type": "integer", "default": 50}, False, "Default: 50 (send null)", True),
    ({"type": "integer", "default": 50}, True, "Default: 50", True),
    ({"type": ["integer", "null"], "default": 50}, False, "Default: 50", True),
    ({"type": ["integer", "null"], "default": None}, False, "Default: null", False),
    ({"type": "string", "default": "ü", "description": "A name."}, False, 'A name. Default: "ü" (send null)', True),
    ({"$ref": "#/$defs/node", "default": {"label": "x"}}, False, 'Default: {"label": "x"} (send null)', True),
]


@pytest.mark.parametrize(("schema", "required", "told", "lost"), DEFAULTS, ids=[told for _, _, told, _ in DEFAULTS])
def test_a_default_is_told_in_the_description(schema: Any, required: bool, told: str, lost: bool):
    root = {"$defs": DEFS}
    assert strict_property(schema, required=required, **root)["description"] == told
    parameters = {**an_object(["a"] if required else [], a=schema), **root}
    assert losses(parameters, strict=True) == [("default", "/properties/a/default")] * lost


TOLD: list[tuple[Any, str, str]] = [
    ({"type": "string", "minLength": 2}, "minLength", "At least 2 characters"),
    ({"type": "string", "maxLength": 1, "description": "A letter"}, "maxLength", "A letter. At most 1 character"),
    ({"type": "string", "format": "uri"}, "format", "Format: uri"),
    ({"type": "array", "items": TEXT, "uniqueItems": True}, "uniqueItems", "No item twice"),
    (
        {"type": "array", "items": TEXT, "contains": {"const": "x"}},
        "contains",
        'Among the items: one that fits {"const": "x"}',
    ),
    ({**an_object([], b=TEXT), "minProperties": 1}, "minProperties", "At least 1 property given"),
    ({**an_object([], b=TEXT, c=TEXT), "dependentRequired": {"b": ["c"]}}, "dependentRequired", "With b also give c"),
    ({"type": "array", "items": TEXT, "unevaluatedItems": False}, "unevaluatedItems", "unevaluatedItems: false"),
]


@pytest.mark.parametrize(("schema", "keyword", "told"), TOLD, ids=[keyword for _, keyword, _ in TOLD])
def test_a_constraint_that_strict_mode_lacks_is_told_in_the_description(schema: Any, keyword: str, told: str):
    converted = strict_property(schema)
    assert converted["description"] == told
    assert keyword not in converted
    assert (keyword, f"/properties/a/{keyword}") in losses(an_object(a=schema), strict=True)


def test_an_annotation_is_told_without_loss_and_a_keyword_that_nobody_knows_is_reported():
    schema = {
        "type": "string",
        "examples": ["a", "b"],
        "deprecated": True,
        "writeOnly": True,
        "$comment": "no",
        "x-u": 1,
    }
    assert strict_property(schema) == {"type": "string", "description": 'Examples: "a", "b". Deprecated'}
    assert losses(an_object(a=schema), strict=True) == [("x-u", "/properties/a/x-u")]
    assert strict_property({"type": "array", "items": TEXT, "uniqueItems": False}) == {"type": "array", "items": TEXT}


def test_a_list_with_a_prefix_may_hold_each_of_its_kinds():
    pair = {"type": "array", "prefixItems": [TEXT, {"type": "integer"}], "items": False, "minItems": 2}
    assert strict_property(pair) == {
        "type": "array",
        "items": {"anyOf": [TEXT, {"type": "integer"}]},
        "minItems": 2,
        "maxItems": 2,
        "description": 'The items, in this order, fit {"type": "string"}, {"type": "integer"}',
    }
    assert losses(an_object(a=pair), strict=True) == [("prefixItems", "/properties/a/prefixItems")]


def test_keywords_beside_alternatives_are_repeated_in_each():
    choice = {
        **an_object([], b=TEXT, c=TEXT),
        "anyOf": [{"required": ["b"]}, {"required": ["c"]}],
        "description": "One",
    }
    maybe = {"type": ["string", "null"]}
    assert strict_property(choice) == {
        "description": "One",
        "anyOf": [an_object(b=TEXT, c=maybe), an_object(b=maybe, c=TEXT)],
    }
    assert losses(an_object(a=choice), strict=True) == []


def test_a_keyword_that_is_repeated_is_reported_once():
    choice = {"type": "string", "minLength": 2, "anyOf": [{"pattern": "a"}, {"pattern": "b"}]}
    assert losses(an_object(a=choice), strict=True) == [("minLength", "/properties/a/minLength")]
    assert losses(an_object(a={**choice, "not": {}}), strict=True) == [("not", "/properties/a/not")]


def test_what_stands_beside_a_reference_is_merged_with_what_it_means():
    root = {"$defs": DEFS}
    described = {"$ref": "#/$defs/colour", "description": "Of the lamp", "pattern": "^."}
    merged = {"type": "string", "enum": ["red", "blue"], "description": "Of the lamp", "pattern": "^."}
    assert strict_property(described, **root) == merged
    assert strict_property({"allOf": [described]}, **root) == merged
    assert strict_property({"$ref": "#/$defs/colour", "title": "Of the lamp"}, **root) == {
        **COLOUR,
        "title": "Of the lamp",
    }
    assert strict_property({"$ref": "#/properties/a/$defs/x", "$defs": {"x": TEXT}}) == TEXT


def test_a_reference_alone_is_kept_with_only_those_definitions_that_are_used():
    converted = to_strict({**an_object(a={"$ref": "#/$defs/linked"}), "$defs": DEFS}).schema
    assert converted == {
        **an_object(a={"$ref": "#/$defs/linked"}),
        "$defs": {"linked": {"$ref": "#/$defs/colour"}, "colour": COLOUR},
    }


def test_recursion_is_kept_and_a_description_beside_it_is_wrapped_around_it():
    root = {"$defs": {"node": an_object(label=TEXT, next={"$ref": "#/$defs/node", "description": "The next"})}}
    converted = to_strict({**an_object(a={"$ref": "#/$defs/node"}, again={"$ref": "#", "title": "All"}), **root}).schema
    assert converted is not None
    assert converted["properties"]["again"] == {"title": "All", "anyOf": [{"$ref": "#"}]}
    assert converted["$defs"]["node"]["properties"]["next"] == {
        "description": "The next",
        "anyOf": [{"$ref": "#/$defs/node"}],
    }


IMPOSSIBLE: list[tuple[Any, str, str]] = [
    ({"type": "object"}, "additionalProperties", ""),
    ({"type": "object", "additionalProperties": TEXT}, "additionalProperties", "/additionalProperties"),
    ({**an_object(b=TEXT), "additionalProperties": True}, "additionalProperties", "/additionalProperties"),
    (
        {"type": "object", "properties": {}, "unevaluatedProperties": TEXT},
        "unevaluatedProperties",
        "/unevaluatedProperties",
    ),
    ({"type": "object", "patternProperties": {"x": TEXT}, "properties": {}}, "patternProperties", "/patternProperties"),
    ({"type": "object", "propertyNames": {"pattern": "x"}, "properties": {}}, "propertyNames", "/propertyNames"),
    ({"type": "string", "not": {"const": "x"}}, "not", "/not"),
    ({"type": "string", "if": {"const": "x"}, "then": {"minLength": 1}}, "if", "/if"),
    ({**an_object(b=TEXT), "dependentSchemas": {"b": {"required": ["c"]}}}, "dependentSchemas", "/dependentSchemas"),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}], "type": "string"}, "pattern", "/allOf/1/pattern"),
    ({"allOf": [TEXT, {"type": "integer"}]}, "type", "/allOf/1/type"),
    ({"allOf": [an_object(b=TEXT), an_object(c=TEXT)]}, "additionalProperties", "/allOf/0/additionalProperties"),
    ({"anyOf": [TEXT], "oneOf": [TEXT]}, "oneOf", "/oneOf"),
    ({}, "type", ""),
    (True, "type", ""),
    (False, "false", ""),
    ({"enum": [{"b": 1}]}, "type", ""),
    ({"type": "array"}, "items", ""),
    ({"type": "array", "prefixItems": [TEXT]}, "items", ""),
    ({"type": "array", "items": {}}, "type", "/items"),
    ({"type": "object", "properties": {}, "required": ["b"]}, "required", ""),
    ({"$ref": "https://example.com/x.json"}, "$ref", "/$ref"),
    ({"$ref": "#/$defs/node", "minProperties": 1}, "$ref", ""),
    ({"$ref": "#/$defs/circle"}, "type", ""),
    ({"type": "string", "$dynamicRef": "#x"}, "$dynamicRef", "/$dynamicRef"),
    ({"type": "string", "$id": "urn:x"}, "$id", "/$id"),
]


@pytest.mark.parametrize(
    ("schema", "keyword", "below"), IMPOSSIBLE, ids=[json.dumps(schema) for schema, _, _ in IMPOSSIBLE]
)
def test_what_strict_mode_cannot_say_is_sent_non_strict_and_reported(schema: Any, keyword: str, below: str):
    parameters = {**an_object(a=schema, b={"type": "integer", "default": 1}), "$defs": {**DEFS, **CIRCLE}}
    adapted = adapt(a_definition(parameters, strict=True), "openai-chat")
    assert "strict" not in adapted.schema["function"]
    assert adapted.schema["function"]["parameters"] == parameters
    assert [(loss.keyword, loss.pointer) for loss in adapted.losses] == [(keyword, f"/properties/a{below}")]
    assert adapted.losses[0].done.endswith("so the tool is sent non-strict")


def test_everything_that_stands_in_the_way_is_reported_at_once():
    parameters = an_object(a={"type": "object"}, b={"type": "string", "not": {}}, c={"type": "array"})
    assert losses(parameters, strict=True) == [
        ("additionalProperties", "/properties/a"),
        ("not", "/properties/b/not"),
        ("items", "/properties/c"),
    ]


def test_alternatives_that_come_to_the_root_through_an_all_of_are_not_strict():
    parameters = {**an_object(a=TEXT), "allOf": [{"oneOf": [{"required": ["a"]}]}]}
    assert "strict" not in function(parameters, strict=True)
    assert losses(parameters, strict=True) == [("allOf", "/allOf"), ("anyOf", "")]


def test_what_a_root_says_about_itself_does_not_matter_to_a_model():
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:x", "$comment": "Mine"}
    assert to_strict({**an_object(a=TEXT), **named}) == to_strict(an_object(a=TEXT))


def test_a_tool_without_arguments_can_be_strict():
    assert to_strict(an_object()).schema == an_object()
    assert to_strict({"type": "object", "additionalProperties": False}).schema == an_object()


def nested(levels: int, kind: Callable[[Any], Any]) -> Any:
    schema: Any = TEXT
    for _ in range(levels):
        schema = kind(schema)
    return schema


def of(count: int) -> dict[str, Any]:
    return {f"p{index}": TEXT for index in range(count)}


LIMITS: dict[str, tuple[Any, Any]] = {
    "levels": (an_object(a=nested(MAX_LEVELS - 1, lambda inner: an_object(a=inner))),
               an_object(a=nested(MAX_LEVELS, lambda inner: an_object(a=inner)))),
    "levels of lists": (an_object(a=nested(MAX_LEVELS - 1, lambda inner: {"type": "array", "items": inner})),
                        an_object(a=nested(MAX_LEVELS, lambda inner: {"type": "array", "items": inner}))),
    "properties": (an_object(**of(5_000)), an_object(**of(5_001))),
    "listed values": (an_object(a={"enum": list(range(MAX_ENUM_VALUES))}),
                      an_object(a={"enum": list(range(MAX_ENUM_VALUES + 1))})),
    "characters": (an_object(a={"type": "string", "const": "x" * 119_999}),
                   an_object(a={"type": "string", "const": "x" * 120_000})),
    "characters of a list": (an_object(a={"enum": [f"{index:061}" for index in range(250)]}),
                             an_object(a={"enum": [f"{index:061}" for index in range(251)]})),
}  # fmt: skip


@pytest.mark.parametrize(("within", "beyond"), LIMITS.values(), ids=LIMITS.keys())
def test_a_schema_beyond_the_limits_of_strict_mode_is_sent_non_strict(within: Any, beyond: Any):
    assert to_strict(within).schema is not None
    converted = to_strict(beyond)
    assert converted.schema is None
    assert [loss.pointer for loss in converted.losses] == [""]


def chain(length: int, link: Callable[[str], Any]) -> dict[str, Any]:
    links = {f"d{index}": link(f"#/$defs/d{index + 1}") for index in range(length)}
    return {**an_object(a={"$ref": "#/$defs/d0"}), "$defs": {**links, f"d{length}": TEXT}}


HOSTILE = {
    "references that multiply": chain(
        40, lambda ref: an_object(a={"$ref": ref, "title": "A"}, b={"$ref": ref, "title": "B"})
    ),
    "alternatives that multiply": chain(40, lambda ref: {"anyOf": [{"$ref": ref}, {"$ref": ref}], "title": "A"}),
    "different alternatives that multiply": chain(
        40, lambda ref: {"allOf": [{"anyOf": [{"$ref": ref, "pattern": "a"}, {"$ref": ref}]}], "title": "A"}
    ),
    "a long chain": chain(2_000, lambda ref: {"$ref": ref}),
    "a long chain of titles": chain(2_000, lambda ref: {"$ref": ref, "title": "A"}),
    "a long chain of objects written out": chain(2_000, lambda ref: an_object(a={"$ref": ref, "title": "A"})),
    "a long chain of objects": chain(2_000, lambda ref: an_object(a={"$ref": ref})),
    "a circle of alternatives": {
        **an_object([], a={"$ref": "#/$defs/a", "title": "A"}),
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"allOf": [{"$ref": "#/$defs/a"}]}]}},
    },
}


@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_schema_made_to_overwhelm_is_given_up_and_not_followed(parameters: Any):
    adapted = adapt(a_definition(parameters, strict=True), "openai-chat")
    assert "strict" in adapted.schema["function"] or adapted.losses
    assert strip_nulls(parameters, {"a": {"a": None}}) is not None


def test_alternatives_that_multiply_are_counted_before_they_are_written():
    (loss,) = to_strict(HOSTILE["different alternatives that multiply"]).losses
    assert loss.done.startswith("there are too many alternatives")


# --------------------------------------------------------------------------------------------------------- the way back


def test_a_null_for_an_optional_property_means_absent():
    schema = an_object(["a"], a=TEXT, b=TEXT, c={"type": ["string", "null"]}, d=an_object([], e=TEXT))
    args = {"a": "x", "b": None, "c": None, "d": {"e": None}}
    assert strip_nulls(schema, args) == {"a": "x", "c": None, "d": {}}
    assert args == {"a": "x", "b": None, "c": None, "d": {"e": None}}


def test_a_null_is_left_for_the_validator_where_it_is_wrong():
    schema = an_object(["a"], a=TEXT, b={"type": "array", "items": TEXT})
    assert strip_nulls(schema, {"a": None, "b": [None], "unknown": None}) == {"a": None, "b": [None], "unknown": None}


@pytest.mark.parametrize("args", [None, "text", 5, [], {}])
def test_what_is_no_arguments_at_all_comes_back_as_it_is(args: Any):
    assert strip_nulls(an_object([], a=TEXT), args) == args


def test_nulls_are_judged_by_the_alternative_that_the_model_took():
    schema = an_object(
        a={
            "anyOf": [
                an_object(["kind"], kind={"const": "cash"}, note=TEXT),
                an_object(["kind"], kind={"const": "card"}, note={"type": ["string", "null"]}),
            ]
        }
    )
    assert strip_nulls(schema, {"a": {"kind": "cash", "note": None}}) == {"a": {"kind": "cash"}}
    assert strip_nulls(schema, {"a": {"kind": "card", "note": None}}) == {"a": {"kind": "card", "note": None}}


def test_alternatives_are_told_apart_by_what_they_require():
    nullable = {"type": ["string", "null"]}
    schema = an_object(a={"anyOf": [an_object(["b"], b=TEXT, c=nullable), an_object(["c"], b=TEXT, c=TEXT)]})
    assert strip_nulls(schema, {"a": {"b": "x", "c": None}}) == {"a": {"b": "x", "c": None}}
    assert strip_nulls(schema, {"a": {"b": None, "c": "x"}}) == {"a": {"c": "x"}}
    schema = an_object(a={"anyOf": [an_object(["b"], b=TEXT, c=TEXT), an_object(["c"], b=TEXT, c=nullable)]})
    assert strip_nulls(schema, {"a": {"c": None}}) == {"a": {"c": None}}


def test_nulls_of_no_known_alternative_are_judged_by_what_stands_beside_them():
    schema = {**an_object([], b=TEXT, c=TEXT), "oneOf": [{"required": ["b"]}, {"required": ["c"]}]}
    assert strip_nulls(schema, {"b": None, "c": None}) == {}


def test_nulls_are_found_through_references_lists_and_prefixes():
    schema = {
        **an_object(
            a={"$ref": "#/$defs/node"}, b={"type": "array", "prefixItems": [an_object([], c=TEXT)], "items": NODE}
        ),
        "$defs": DEFS,
    }
    args = {"a": {"label": "x", "next": {"label": "y", "next": None}}, "b": [{"c": None}, {"label": "z", "next": None}]}
    assert strip_nulls(schema, args) == {"a": {"label": "x", "next": {"label": "y"}}, "b": [{}, {"label": "z"}]}


def test_arguments_that_nest_alternatives_deeply_do_not_take_forever():
    branch = {"$ref": "#/$defs/tree"}
    tree = {"anyOf": [an_object([name], **{name: TEXT}, left=branch, right=branch) for name in ("a", "b", "c", "d")]}
    args: Any = {"d": "x", "left": None, "right": None}
    for _ in range(28):
        args = {"d": "x", "left": args, "right": None}
    stripped = strip_nulls({**an_object(root=branch), "$defs": {"tree": tree}}, {"root": args})
    assert "null" not in json.dumps(stripped)
