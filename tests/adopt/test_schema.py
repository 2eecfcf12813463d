"""A framework's schema is closed where that changes nothing else, and refused with a sentence where it would."""

import pytest

from handrail.adopt.importing.results import json_form
from handrail.adopt.importing.schema import closed_schema
from handrail.contract.errors import DefinitionError


def test_an_open_root_is_closed_and_nested_objects_stay_as_they_are():
    given = {
        "title": "Args",
        "description": "The tool.",
        "type": "object",
        "properties": {"title": {"title": "Title", "type": "string"}, "where": {"type": "object"}},
        "required": ["title"],
    }
    assert closed_schema("Tool 'x'", given) == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "where": {"type": "object"}},
        "required": ["title"],
        "additionalProperties": False,
    }
    assert given["title"] == "Args"


def test_a_tool_without_arguments_gets_an_empty_closed_schema():
    assert closed_schema("Tool 'x'", {}) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_root_that_refers_to_its_own_definition_stands_on_its_own():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    closed = closed_schema("Tool 'x'", {"$defs": {"Node": node}, "$ref": "#/$defs/Node"})
    assert closed["properties"] == {"next": {"$ref": "#/$defs/Node"}}
    assert closed["additionalProperties"] is False
    assert "$ref" not in closed


def test_a_format_that_is_not_asserted_is_told_in_words():
    given = {
        "type": "object",
        "properties": {"wait": {"type": "string", "format": "duration", "description": "How long"}},
    }
    assert closed_schema("Tool 'x'", given)["properties"]["wait"] == {
        "type": "string",
        "description": "How long (format: duration)",
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "no parameter schema"),
        ({"type": "object", "additionalProperties": True}, "does not name"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "does not name"),
        ({"type": "object", "anyOf": [{"properties": {"a": {}}}]}, '"anyOf"'),
        ({"type": "object", "patternProperties": {"^x": {}}}, '"patternProperties"'),
        ({"type": "object", "properties": {"a": {"default": object()}}}, "cannot be used"),
    ],
    ids=["none", "open", "open-typed", "any-of", "patterns", "no-json"],
)
def test_a_schema_that_cannot_be_closed_is_refused_with_what_to_do(given, words):
    with pytest.raises(DefinitionError, match=words) as caught:
        closed_schema("Tool 'x'", given)
    assert "Give `parameters=`" in str(caught.value)


def test_a_result_that_holds_itself_does_not_run_for_ever():
    ring: list[object] = []
    ring.append(ring)
    assert isinstance(json_form(ring), list)
