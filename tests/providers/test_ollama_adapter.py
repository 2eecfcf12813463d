"""Ollama: a handful of keywords, and the rest in words."""

from typing import Any

import pytest
from tests.providers.made_schemas import TEXT, a_definition, an_object
from tests.providers.wire_examples import example

from handrail.providers import adapt


def function(parameters: Any) -> dict[str, Any]:
    return adapt(a_definition(parameters), "ollama").schema["function"]


def one(schema: Any, **root: Any) -> tuple[Any, list[tuple[str, str, bool]]]:
    adapted = adapt(a_definition({"type": "object", "properties": {"a": schema}, **root}), "ollama")
    written = adapted.schema["function"]["parameters"]["properties"]["a"]
    return written, [(loss.keyword, loss.pointer, loss.minor) for loss in adapted.losses]


def test_a_tool_is_sent_as_the_server_reads_it():
    (sent,) = example("ollama.request.json")["tools"]
    parameters = {
        "type": "object",
        "properties": {
            "room": {"type": "string", "description": "Room name"},
            "level": {"type": "integer", "description": "Brightness in percent, 0 to 100"},
        },
        "required": ["room", "level"],
    }
    adapted = adapt(a_definition(parameters, description="Set the brightness of one lamp."), "ollama")
    adapted.schema["function"]["name"] = "set_lamp"
    assert adapted.schema == sent
    assert adapted.losses == ()


WRITTEN: list[tuple[Any, Any, list[str]]] = [
    ({"type": ["string", "null"]}, {"type": ["string", "null"]}, []),
    ({"const": "x"}, {"enum": ["x"]}, []),
    ({"type": "integer", "minimum": 1, "maximum": 9, "default": 5, "description": "How many."},
     {"type": "integer", "description": "How many. At least 1. At most 9. Default: 5"}, ["minimum", "maximum", "default"]),
    ({"oneOf": [TEXT, {"type": "integer"}]},
     {"anyOf": [TEXT, {"type": "integer"}], "description": "Exactly one of the alternatives fits"}, ["oneOf"]),
    ({"allOf": [TEXT, {"pattern": "^x"}]},
     {"type": "string", "description": "Must match the regular expression ^x"}, ["pattern"]),
    ({"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
     {"type": "array", "items": {"type": "string", "maxLength": 3}, "description": "At most 2 items"}, ["maxItems"]),
    ({"type": "string", "title": "Name", "examples": ["a"], "x-note": 1},
     {"type": "string", "description": 'Title: Name. Examples: "a"'}, ["title", "x-note"]),
    ({"type": "string", "readOnly": True, "$comment": "no", "deprecated": False}, {"type": "string"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "written", "reported"), WRITTEN, ids=[str(row[0]) for row in WRITTEN])
def test_what_the_server_drops_is_told_in_words(schema: Any, written: Any, reported: list[str]):
    sent, losses = one(schema)
    assert sent == written
    assert [keyword for keyword, _, _ in losses] == reported
    assert all(minor for _, _, minor in losses)


@pytest.mark.parametrize(
    ("schema", "keyword", "words"),
    [
        ({"type": "string", "not": {"const": "x"}}, "not", "The value must not fit this JSON Schema"),
        ({"type": "string", "if": {"const": "x"}, "then": {"minLength": 1}}, "if", "they must fit"),
        ({"type": "object", "additionalProperties": TEXT}, "additionalProperties", "Other keys are allowed"),
        ({"type": "object", "patternProperties": {"^x": TEXT}}, "patternProperties", "Keys that match"),
    ],
)
def test_what_is_hard_to_follow_in_words_is_no_minor_loss(schema: Any, keyword: str, words: str):
    sent, losses = one(schema)
    assert words in sent["description"]
    assert (keyword, f"/properties/a/{keyword}", False) in losses


def test_references_are_written_out_and_circles_are_cut():
    node = {"type": "object", "properties": {"label": TEXT, "next": {"$ref": "#/$defs/node"}}}
    sent, losses = one({"$ref": "#/$defs/node", "description": "A node"}, **{"$defs": {"node": node}})
    assert sent == {
        "type": "object",
        "properties": {"label": TEXT, "next": {"type": "object", "description": "Same shape as the enclosing object"}},
        "description": "A node",
    }
    assert losses == [("$ref", "/$defs/node/properties/next", False)]
    listed, _ = one({"type": "array", "items": {"$ref": "#/$defs/word"}}, **{"$defs": {"word": TEXT}})
    assert listed == {"type": "array", "items": TEXT}


def test_what_the_root_says_is_told_in_the_tools_description():
    parameters = {
        **an_object([], a=TEXT, b=TEXT),
        "description": "Who it is for",
        "minProperties": 1,
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    sent = function(parameters)
    assert sent["description"] == (
        "Look up one order. Who it is for. At least 1 property given. Give exactly one of: a, b."
    )
    assert sent["parameters"] == {"type": "object", "properties": {"a": TEXT, "b": TEXT}}


def test_a_root_whose_reference_leads_to_alternatives_lists_the_properties_of_all():
    kinds = {"anyOf": [{"properties": {"a": TEXT}}, {"properties": {"b": TEXT}}]}
    parameters = {"type": "object", "$ref": "#/$defs/kinds", "$defs": {"kinds": kinds}}
    assert function(parameters)["parameters"] == {"type": "object", "properties": {"a": TEXT, "b": TEXT}}
    assert [loss.keyword for loss in adapt(a_definition(parameters), "ollama").losses] == ["$ref"]


def test_properties_that_only_the_branches_of_the_root_have_stay_in_sight():
    parameters = {"type": "object", "anyOf": [{"properties": {"a": {"type": "string", "minLength": 2}}}]}
    adapted = adapt(a_definition(parameters), "ollama")
    assert adapted.schema["function"]["parameters"]["properties"]["a"]["description"] == "At least 2 characters"
    assert {loss.pointer for loss in adapted.losses} == {"/anyOf"}
