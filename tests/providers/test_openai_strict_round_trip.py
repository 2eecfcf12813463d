"""Chat Completions, strict mode, for schemas that nobody thought of: what is valid stays valid, there and back."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from tests.providers.made_schemas import a_definition, cases, resolve

from handrail.contract.frozen import thaw
from handrail.providers import adapt
from handrail.providers.openai.function_schema import FORMATS, to_strict
from handrail.providers.optional_nulls import strip_nulls

STRICT_KEYWORDS = {
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "description", "title",
    "$ref", "$defs", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minItems", "maxItems",
}  # fmt: skip
REFUSED_AT_ROOT: list[dict[str, Any]] = [
    {"oneOf": [{"required": ["p0"]}, {"required": ["p1"]}]},
    {"anyOf": [{"properties": {"p0": {"type": "string"}}}]},
    {"not": {"required": ["p0"]}},
    {"if": {"required": ["p0"]}, "then": {"required": ["p1"]}},
    {"enum": [{}]},
]


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("$defs", {}).values()]
    for child in [*inside, *([schema["items"]] if "items" in schema else [])]:
        yield from subschemas(child)


def assert_is_strict(schema: dict[str, Any]) -> None:
    assert schema["type"] == "object"
    assert "anyOf" not in schema
    for one in subschemas(schema):
        assert one.keys() <= STRICT_KEYWORDS
        assert one.keys() & {"type", "anyOf", "$ref"}
        assert "$ref" not in one or one.keys() == {"$ref"}
        assert one.get("format", "date") in FORMATS
        if "object" in one.get("type", ()):
            assert one["additionalProperties"] is False
            assert one["required"] == list(one["properties"])
        if "array" in one.get("type", ()):
            assert "items" in one


@given(cases())
def test_what_is_valid_stays_valid_in_strict_mode_and_comes_back_valid(case: tuple[dict[str, Any], Any, Any, Any]):
    schema, valid, sent, back = case
    original = Draft202012Validator(schema)
    assert original.is_valid(valid)
    converted = to_strict(schema)
    assert converted.schema is not None, converted.losses
    assert_is_strict(converted.schema)
    strict = Draft202012Validator(converted.schema)
    assert [problem.message for problem in strict.iter_errors(sent)] == []
    assert strip_nulls(schema, sent) == back
    assert original.is_valid(back)


@given(cases())
def test_arguments_without_nulls_to_strip_come_back_as_they_are(case: tuple[dict[str, Any], Any, Any, Any]):
    schema, _, _, back = case
    assert strip_nulls(schema, back) == back


@given(cases(), st.sampled_from([{}, *REFUSED_AT_ROOT]), st.booleans())
def test_every_loss_points_at_a_place_in_the_parameters(
    case: tuple[dict[str, Any], Any, Any, Any], refused: dict[str, Any], strict: bool
):
    parameters = {**case[0], **refused}
    for loss in adapt(a_definition(parameters, strict=strict), "openai-chat").losses:
        resolve(parameters, loss.pointer)
        assert loss.keyword
        assert loss.done
        assert not loss.done.endswith(".")


def spoil(value: Any) -> None:
    """Change everything that can be changed."""
    if isinstance(value, dict):
        for inside in value.values():
            spoil(inside)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inside in value:
            spoil(inside)
        value.append("spoilt")


@given(cases(), st.booleans())
def test_the_definition_is_not_changed_and_shares_nothing_with_what_is_sent(
    case: tuple[dict[str, Any], Any, Any, Any], strict: bool
):
    before = copy.deepcopy(case[0])
    definition = a_definition(case[0], strict=strict)
    first = adapt(definition, "openai-chat")
    sent = json.dumps(first.schema)
    spoil(first.schema)
    assert thaw(definition.parameters) == before == case[0]
    assert json.dumps(adapt(definition, "openai-chat").schema) == sent
    to_strict(case[0])
    assert case[0] == before
