"""Anthropic: as it is without strict, and in its own strict dialect, in which optional stays optional."""

from typing import Any

import pytest
from tests.providers.made_schemas import TEXT, a_definition, an_object
from tests.providers.wire_examples import ORDER, cases, example

from handrail.providers import adapt


def strict(parameters: Any) -> Any:
    return adapt(a_definition(parameters, strict=True), "anthropic")


def strict_property(schema: Any, **root: Any) -> Any:
    sent = strict({**an_object([], a=schema), **root}).schema
    assert sent["strict"] is True
    return sent["input_schema"]["properties"]["a"]


def reported(schema: Any, **root: Any) -> list[str]:
    return [loss.keyword for loss in strict({**an_object([], a=schema), **root}).losses]


def test_tools_are_sent_as_the_sdk_sends_them():
    lamp, order, *_ = example("anthropic.request.json")["tools"]
    adapted = adapt(a_definition(ORDER), "anthropic")
    assert adapted.losses == ()
    assert adapted.schema == {key: value for key, value in order.items() if key != "input_examples"}
    bright = {"type": "integer", "description": "0 to 100"}
    sent = strict(an_object(room=TEXT, level=bright))
    assert sent.losses == ()
    assert {**sent.schema, "name": "set_lamp", "description": lamp["description"]} == lamp


@pytest.mark.parametrize("case", cases("schema-anthropic-strict.json"))
def test_the_strict_dialect_is_that_of_the_sdks_own_helper_where_that_is_right(case: dict[str, Any]):
    sent = strict(case["json_schema"])
    helper = case["anthropic_2_8_0_transform_schema"]
    if case["json_schema"].get("properties") is None:  # an open map, which the helper closes without a word
        assert "strict" not in sent.schema
        assert [loss.keyword for loss in sent.losses] == ["additionalProperties"]
        return
    assert bare(sent.schema["input_schema"]) == bare(helper)


def bare(schema: Any) -> Any:
    """Without what the helper and we put differently: words, an empty `required`, the type beside listed values."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "description" and value != []}
    if "enum" in kept:
        kept.pop("type", None)
    inner = {name: bare(one) for name, one in kept.get("properties", {}).items()}
    return {**kept, **({"properties": inner} if "properties" in kept else {})}


def test_without_strict_the_parameters_pass_as_they_are():
    parameters = an_object([], a={"oneOf": [TEXT], "default": "x"}, b={"type": "object", "additionalProperties": TEXT})
    assert adapt(a_definition(parameters), "anthropic").schema["input_schema"] == parameters
    assert adapt(a_definition(parameters), "anthropic").losses == ()


def test_what_is_refused_at_the_root_is_put_in_words():
    parameters = {**an_object([], a=TEXT, b=TEXT), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    adapted = adapt(a_definition(parameters), "anthropic")
    assert adapted.schema["description"] == "Look up one order. Give at least one of: a, b."
    assert adapted.schema["input_schema"] == an_object([], a=TEXT, b=TEXT)
    assert [(loss.keyword, loss.pointer) for loss in adapted.losses] == [("anyOf", "/anyOf")]


def test_an_optional_property_stays_optional_in_strict_mode():
    sent = strict(an_object(["a"], a=TEXT, b=TEXT)).schema
    assert sent["strict"] is True
    assert sent["input_schema"] == an_object(["a"], a=TEXT, b=TEXT)


KEPT: list[tuple[Any, Any, list[str]]] = [
    ({"type": "string", "format": "uri"}, {"type": "string", "format": "uri"}, []),
    ({"type": ["string", "null"], "description": "Or not"},
     {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Or not"}, []),
    ({"type": ["string", "null"], "enum": ["a", None]}, {"enum": ["a", None]}, []),
    ({"type": "array", "items": TEXT, "minItems": 1}, {"type": "array", "items": TEXT, "minItems": 1}, []),
    ({"type": "array", "items": TEXT, "minItems": 2},
     {"type": "array", "items": TEXT, "description": "At least 2 items"}, ["minItems"]),
    ({"type": "integer", "minimum": 1, "default": 3},
     {"type": "integer", "description": "At least 1. Default: 3"}, ["minimum", "default"]),
    ({"type": "string", "pattern": "^x"}, {"type": "string", "description": "Must match the regular expression ^x"},
     ["pattern"]),
    ({"oneOf": [TEXT, {"type": "integer"}]}, {"anyOf": [TEXT, {"type": "integer"}]}, ["oneOf"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "written", "lost"), KEPT, ids=[str(row[0]) for row in KEPT])
def test_what_strict_mode_has_no_keyword_for_is_told_and_reported(schema: Any, written: Any, lost: list[str]):
    assert strict_property(schema) == written
    assert reported(schema) == lost


def many(count: int, schema: Any) -> dict[str, Any]:
    return {f"p{index}": schema for index in range(count)}


NODE = {"node": an_object([], next={"$ref": "#/$defs/node"})}
IMPOSSIBLE: list[tuple[str, Any, str]] = [
    ("an open map", an_object(a={"type": "object", "additionalProperties": TEXT}), "additionalProperties"),
    ("keys by pattern", an_object(a={"type": "object", "properties": {}, "patternProperties": {"x": TEXT}}), "patternProperties"),
    ("recursion", {**an_object(a={"$ref": "#/$defs/node"}), "$defs": NODE}, "$ref"),
    ("anything", an_object(a={}), "type"),
    ("objects listed", an_object(a={"type": "object", "properties": {}, "enum": [{}]}), "enum"),
    ("many optional", an_object([], **many(25, TEXT)), "required"),
    ("many alternatives", an_object(**many(17, {"anyOf": [TEXT, {"type": "null"}]})), "anyOf"),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "keyword"), [row[1:] for row in IMPOSSIBLE], ids=[row[0] for row in IMPOSSIBLE])
def test_what_strict_mode_cannot_say_is_sent_without_it(parameters: Any, keyword: str):
    sent = strict(parameters)
    assert "strict" not in sent.schema
    assert sent.schema["input_schema"] == parameters
    assert [loss.keyword for loss in sent.losses] == [keyword]
    assert sent.losses[0].done.endswith("so the tool is sent non-strict")
    assert not sent.losses[0].minor


def test_just_as_many_as_strict_mode_allows_are_sent_strict():
    assert strict(an_object([], **many(24, TEXT))).schema["strict"] is True
    assert strict(an_object(**many(16, {"anyOf": [TEXT, {"type": "null"}]}))).schema["strict"] is True
