"""Gemini: two ways to give parameters, which of them a tool takes, and what each cannot say."""

from typing import Any

import pytest
from tests.providers.made_schemas import TEXT, a_definition, an_object
from tests.providers.wire_examples import LAMP, ORDER, cases, example

from handrail.providers import adapt
from handrail.providers.gemini.schema_format import NativeReduction
from handrail.providers.root_schema import RootSchema


def in_schema_form(schema: Any, **root: Any) -> tuple[dict[str, Any], list[str]]:
    """What becomes of one property in Gemini's own format, and the keywords that were reported."""
    reduction = NativeReduction(RootSchema({"type": "object", "properties": {"a": schema}, **root}))
    return reduction.parameters()["properties"]["a"], [loss.keyword for loss in reduction.losses()]


def losses(parameters: Any) -> list[tuple[str, str, bool]]:
    return [(loss.keyword, loss.pointer, loss.minor) for loss in adapt(a_definition(parameters), "gemini").losses]


@pytest.mark.parametrize("case", cases("schema-gemini.json"))
def test_a_schema_is_converted_as_in_the_reference(case: dict[str, Any]):
    schema = {key: value for key, value in case["json_schema"].items() if key != "$defs"}
    definitions = {"$defs": case["json_schema"]["$defs"]} if "$defs" in case["json_schema"] else {}
    written, reported = in_schema_form(schema, **definitions)
    wanted = case["gemini_schema"]
    assert bool(written.get("description")) >= bool(wanted.get("description"))  # the words are our own
    assert {**written, "description": ""} == {**wanted, "description": ""}
    assert reported == case["report"]


@pytest.mark.parametrize("provider", ["gemini", "gemini-live"])
def test_a_tool_without_loss_is_sent_as_json_schema_as_the_sdk_sends_it(provider: str):
    (tool,) = example("gemini-rest.request-jsonschema.json")["tools"]
    for sent, parameters in zip(tool["functionDeclarations"], (LAMP, ORDER), strict=True):
        adapted = adapt(a_definition(parameters, description=sent["description"]), provider)
        assert {**adapted.schema, "name": sent["name"]} == sent | (
            {"behavior": "BLOCKING"} if provider == "gemini-live" else {}
        )
        assert adapted.losses == ()


def test_a_tool_whose_keywords_would_be_ignored_goes_the_other_way():
    parameters = an_object(a={"type": "string", "pattern": "^x", "maxLength": 3, "default": "x"})
    sent = adapt(a_definition(parameters), "gemini")
    assert "parametersJsonSchema" not in sent.schema
    assert sent.schema["parameters"] == {
        "type": "OBJECT",
        "properties": {"a": {"type": "STRING", "pattern": "^x", "maxLength": 3, "default": "x"}},
        "required": ["a"],
    }
    assert losses(parameters) == [("additionalProperties", "/additionalProperties", True)]


def test_a_tool_that_the_other_way_would_cost_more_is_told_in_words():
    parameters = an_object(
        a={"type": "string", "minLength": 2, "description": "A name"},
        b={"type": "object", "additionalProperties": {"type": "integer"}},
    )
    sent = adapt(a_definition(parameters), "gemini").schema["parametersJsonSchema"]
    assert sent["properties"]["a"] == {"type": "string", "description": "A name. At least 2 characters"}
    assert sent["properties"]["b"] == parameters["properties"]["b"]
    assert sent["additionalProperties"] is False
    assert losses(parameters) == [("minLength", "/properties/a/minLength", True)]


def test_a_tool_without_arguments_has_no_parameters():
    for parameters in (an_object(), {"type": "object", "additionalProperties": False}):
        schema = adapt(a_definition({key: value for key, value in parameters.items() if key != "required"}), "gemini")
        assert schema.schema == {"name": "lookup_order", "description": "Look up one order."}
        assert schema.losses == ()
    assert "parametersJsonSchema" in adapt(a_definition({"type": "object"}), "gemini").schema


def test_references_and_recursion_stay_where_they_may():
    node = an_object(["label"], label=TEXT, next={"$ref": "#/$defs/node"})
    parameters = {**an_object(["a"], a={"$ref": "#/$defs/node"}, b={"$ref": "#/$defs/node"}), "$defs": {"node": node}}
    sent = adapt(a_definition(parameters), "gemini")
    schema = sent.schema["parametersJsonSchema"]
    assert schema["$defs"] == {"node": node}
    assert schema["properties"]["b"] == {"$ref": "#/$defs/node"}
    # Gemini follows a circle from an optional property only; here the first level is written out.
    assert schema["properties"]["a"]["properties"]["next"] == {"$ref": "#/$defs/node"}
    assert sent.losses == ()
    tight = {**parameters, "$defs": {"node": {**node, "required": ["label", "next"]}}}
    assert ("$ref", "/$defs/node/properties/next", False) in losses(tight)


def test_what_an_object_may_hold_is_said_with_names_that_gemini_takes():
    parameters = an_object(**{"x-y": TEXT, "ok": TEXT})
    assert losses(parameters) == [("properties", "/properties/x-y", True)]
    assert set(adapt(a_definition(parameters), "gemini").schema["parametersJsonSchema"]["properties"]) == {"x_y", "ok"}
    unlisted = {**an_object(a=TEXT), "required": ["a", "b"]}
    assert losses(unlisted) == [("required", "", False)]
    assert adapt(a_definition(unlisted), "gemini").schema["parametersJsonSchema"]["required"] == ["a"]


SCHEMA_FORM: list[tuple[Any, Any, list[str]]] = [
    ({"type": ["string", "integer", "null"]}, {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}], "nullable": True}, []),
    ({"enum": ["a", 1]}, {"anyOf": [{"type": "STRING", "format": "enum", "enum": ["a"]},
                                    {"type": "INTEGER", "minimum": 1, "maximum": 1}]}, []),
    ({"type": "boolean", "enum": [True, False]}, {"type": "BOOLEAN"}, []),
    ({"type": "boolean", "const": True}, {"type": "BOOLEAN", "description": "One of: true"}, ["const"]),
    ({"type": "null"}, {"type": "NULL"}, []),
    ({"anyOf": [{"type": "null"}, {"type": "null"}]}, {"type": "NULL"}, []),
    ({}, {}, ["type"]),
    ({"properties": {"b": TEXT}}, {"type": "OBJECT", "properties": {"b": {"type": "STRING"}}}, ["type"]),
    ({"type": "array"}, {"type": "ARRAY", "items": {}}, []),
    ({"type": "string", "format": "date", "enum": ["x"]},
     {"type": "STRING", "format": "enum", "enum": ["x"], "description": "Format: date"}, ["format"]),
    ({"anyOf": [{"type": "string", "description": "A name"}, {"type": "null"}], "description": "Who"},
     {"type": "STRING", "nullable": True, "description": "Who. A name"}, []),
    ({"anyOf": [TEXT, {"type": "integer"}, {"type": "null"}]},
     {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}], "nullable": True}, []),
    ({"type": "number", "exclusiveMaximum": 2, "maximum": 5},
     {"type": "NUMBER", "maximum": 2, "description": "Must be less than 2"}, ["exclusiveMaximum"]),
    ({"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "b"}]},
     {"type": "STRING", "description": 'It must fit the JSON Schema '
      '{"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "b"}]}'}, ["pattern"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "written", "reported"), SCHEMA_FORM, ids=[str(row[0]) for row in SCHEMA_FORM])
def test_the_other_way_says_what_it_can(schema: Any, written: Any, reported: list[str]):
    assert in_schema_form(schema) == (written, reported)


def test_an_object_with_keys_by_pattern_is_not_closed_since_gemini_would_shut_them_out():
    parameters = an_object(a={"type": "object", "patternProperties": {"^x-": TEXT}, "additionalProperties": False})
    written = adapt(a_definition(parameters), "gemini").schema["parametersJsonSchema"]["properties"]["a"]
    assert "additionalProperties" not in written
    assert "^x-" in written["description"]
    assert losses(parameters) == [
        ("additionalProperties", "/properties/a/additionalProperties", True),
        ("patternProperties", "/properties/a/patternProperties", False),
    ]
