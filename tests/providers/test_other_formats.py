"""Responses, Realtime and MCP: the same function in other wrappings. And what all formats do with hostile schemas."""

from typing import Any

import pytest
from tests.providers.made_schemas import TEXT, a_definition, an_object
from tests.providers.test_openai_chat_adapter import HOSTILE
from tests.providers.wire_examples import LAMP, ORDER, example

from handrail.contract.definition import ToolDefinition
from handrail.contract.frozen import thaw
from handrail.providers import adapt, as_meant, provider_names


def lamp(**fields: Any) -> ToolDefinition:
    return ToolDefinition.from_dict(
        {
            "toolId": "set_lamp",
            "version": "1.0.0",
            "description": "Set the brightness of one lamp.",
            "category": "action",
            "sideEffects": "writes",
            "idempotent": True,
            "requiresConfirmation": False,
            "allowedModes": ["text", "voice"],
            "latencyBudgetMs": 500,
            "parameters": LAMP,
            **fields,
        }
    )


def test_responses_takes_a_function_flat_and_with_its_strictness():
    strict_lamp, order = example("openai-responses.request.json")["tools"]
    assert adapt(lamp(strict=True), "openai-responses").schema == strict_lamp
    sent = adapt(a_definition(ORDER, strict=True), "openai-responses")
    assert sent.schema == {key: value for key, value in order.items() if key != "output_schema"}
    assert sent.losses == ()
    assert adapt(lamp(), "openai-responses").schema == {**strict_lamp, "strict": False}


def test_realtime_takes_a_function_flat_and_knows_no_strict_mode():
    event, *_ = example("openai-realtime.client-events.json")
    for strict in (False, True):
        adapted = adapt(lamp(strict=strict), "openai-realtime")
        assert [adapted.schema] == event["session"]["tools"]
        assert adapted.losses == ()


def test_responses_and_chat_differ_in_the_wrapping_only():
    parameters = {**an_object([], a=TEXT, b={"type": "integer", "default": 1}), "oneOf": [{"required": ["a"]}, {}]}
    for strict in (False, True):
        chat = adapt(a_definition(parameters, strict=strict), "openai-chat")
        responses = adapt(a_definition(parameters, strict=strict), "openai-responses")
        assert responses.schema == {"type": "function", "strict": False, **chat.schema["function"]}
        assert responses.losses == chat.losses


def test_mcp_takes_every_schema_as_it_is_and_hints_from_the_policy():
    listed = example("mcp-2026-07-28.server-to-client.json")
    (tool,) = next(message["result"]["tools"] for message in listed if "tools" in message.get("result", {}))
    adapted = adapt(lamp(), "mcp")
    assert {key: adapted.schema[key] for key in ("name", "description", "inputSchema")} == {
        key: tool[key] for key in ("name", "description", "inputSchema")
    }
    assert adapted.schema["annotations"] == {
        "readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": True,
    }  # fmt: skip
    odd = {**an_object([], a=TEXT), "oneOf": [{"required": ["a"]}, {}], "not": {"required": ["z"]}}
    sent = adapt(lamp(parameters=odd, sideEffects="none", idempotent=False, category="utility"), "mcp")
    assert sent.schema["inputSchema"] == odd
    assert sent.losses == ()
    assert sent.schema["annotations"] == {
        "readOnlyHint": True, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False,
    }  # fmt: skip


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses"])
def test_a_null_that_strict_mode_asked_for_goes_and_any_other_stays(provider: str):
    parameters = an_object(["a"], a={"type": ["string", "null"]}, b=TEXT)
    args = {"a": None, "b": None}
    assert as_meant(a_definition(parameters, strict=True), provider, args) == {"a": None}
    assert as_meant(a_definition(parameters), provider, args) == args
    assert as_meant(a_definition(parameters, strict=True), provider, '{"a": null, "b": null}') == {"a": None}
    for text in ('{"a": "x", "b": "y"}', '{"a": null, "b"', "", "7"):
        assert as_meant(a_definition(parameters, strict=True), provider, text) == text
    unsayable = {**parameters, "properties": {**parameters["properties"], "c": {}}}
    assert as_meant(a_definition(unsayable, strict=True), provider, args) == args


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "ollama", "mcp", "openai-realtime"])
def test_where_strict_mode_has_optional_arguments_or_does_not_exist_nothing_is_undone(provider: str):
    args = {"a": None}
    assert as_meant(a_definition(an_object([], a=TEXT), strict=True), provider, args) is args


@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
@pytest.mark.parametrize("provider", provider_names())
@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_schema_made_to_overwhelm_is_given_up_and_not_followed(parameters: Any, provider: str, strict: bool):
    definition = a_definition(parameters, strict=strict)
    adapted = adapt(definition, provider)
    assert adapted.schema
    assert len(adapted.losses) < 20_000
    assert thaw(definition.parameters) == parameters


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses", "anthropic"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_a_strict_mode_that_closes_an_object_says_so(provider: str, closed: bool):
    inner = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    parameters = {
        "type": "object",
        "properties": {"a": {**inner, **({"additionalProperties": False} if closed else {})}},
        "required": ["a"],
        "additionalProperties": False,
    }
    adapted = adapt(a_definition(parameters, strict=True), provider)
    told = [(loss.keyword, loss.pointer, loss.minor) for loss in adapted.losses]
    assert told == ([] if closed else [("additionalProperties", "/properties/a", False)])
