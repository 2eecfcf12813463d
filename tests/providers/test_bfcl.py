"""Real functions and right calls of them: every format takes them, and the calls reach a handler as they were sent."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator
from tests.providers.bfcl import Function, functions
from tests.providers.dialects import read
from tests.providers.test_names import renamed, sent_as
from tests.providers.test_round_trip import FORM_IDS, FORMS, assert_places, is_strict
from tests.runtime.kit import Tools, World, utility

from handrail.contract.call import Call
from handrail.contract.definition import ToolDefinition
from handrail.providers import adapt, as_meant, provider_names
from handrail.runtime.hydrate import hydrate
from handrail.schema.validator import compile_schema
from handrail.stores import MemoryStore

EVERY = functions()
TEXT_FORMS = ("openai-chat", "openai-responses", "openai-realtime")
ECHO = """
async def execute(args, ctx):
    return {"ok": True, "data": {"args": args}}
"""


def definition(function: Function, *, strict: bool = False) -> ToolDefinition:
    return ToolDefinition.from_dict(
        {
            "toolId": function.tool_id,
            "version": "1.0.0",
            "description": function.description,
            "requiresConfirmation": False,
            "allowedModes": ["text"],
            "latencyBudgetMs": 500,
            "parameters": function.parameters,
            "strict": strict,
            **utility(),
        }
    )


def test_the_catalogue_is_all_there():
    assert len(EVERY) > 700
    assert len({function.tool_id for function in EVERY}) == len(EVERY)
    assert sum(bool(function.gold) for function in EVERY) > 250


@pytest.mark.parametrize(("provider", "strict"), FORMS, ids=FORM_IDS)
def test_every_function_converts_and_its_losses_are_listed(provider: str, strict: bool):
    for function in EVERY:
        adapted = adapt(definition(function, strict=strict), provider)
        assert_places(function.parameters, adapted.losses)
        Draft202012Validator(read(provider, adapted.schema))


def test_every_right_call_is_valid_for_our_definition():
    for function in EVERY:
        validator = compile_schema(function.parameters)
        for args in function.gold:
            value, _, violations = validator.validate(args)
            assert violations == [], (function.tool_id, args)
            assert value == filled(args, function.parameters)


def filled(value: Any, schema: dict[str, Any]) -> Any:
    """The arguments with defaults where something was left out: the only thing that may be added to them."""
    schema = schema.get("anyOf", [schema])[0]
    if isinstance(value, list):
        return [filled(one, schema.get("items", {})) for one in value]
    if not isinstance(value, dict):
        return value
    listed = schema.get("properties", {})
    defaults = {name: one["default"] for name, one in listed.items() if "default" in one}
    return {**defaults, **{name: filled(one, listed.get(name, {})) for name, one in value.items()}}


@pytest.mark.parametrize(("provider", "strict"), FORMS, ids=FORM_IDS)
def test_every_right_call_can_be_said_to_the_provider_and_means_the_same(provider: str, strict: bool):
    for function in (function for function in EVERY if function.gold):
        made = definition(function, strict=strict)
        adapted = adapt(made, provider)
        if any(not loss.minor or loss.keyword == "type" for loss in adapted.losses):
            continue
        theirs = Draft202012Validator(read(provider, adapted.schema))
        for args in function.gold:
            sent = sent_as(args, renamed(made, provider))
            if is_strict(adapted) and provider in TEXT_FORMS:
                sent = with_nulls(args, function.parameters)
            assert theirs.is_valid(sent), (function.tool_id, sent, adapted)
            # A null that the schema allows cannot be told from one that means "absent"; here it is the default as well.
            assert without_nulls(as_meant(made, provider, sent)) == without_nulls(args)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def with_nulls(value: Any, schema: dict[str, Any]) -> Any:
    """The arguments as a model must send them where nothing may be left out."""
    schema = schema.get("anyOf", [schema])[0]
    if isinstance(value, dict):
        listed = schema.get("properties", {})
        return {
            **dict.fromkeys(listed),
            **{name: with_nulls(one, listed.get(name, {})) for name, one in value.items()},
        }
    return [with_nulls(one, schema.get("items", {})) for one in value] if isinstance(value, list) else value


async def arrive(chosen: list[Function], folder: Path) -> int:
    """Build the functions as tools and play every right call in each provider's form; how many were played."""
    kit = Tools(folder)
    kit.write({one.tool_id: (utility(description=one.description, parameters=one.parameters), ECHO) for one in chosen})
    played = 0
    async with World(kit, kit.build(), MemoryStore()) as world:
        for function in chosen:
            played += await play(function, world)
    return played


async def play(function: Function, world: World) -> int:
    runtime = world.runtime()
    made = definition(function)
    names = {provider: renamed(made, provider) for provider in provider_names()}
    for args in function.gold:
        wanted = json.dumps(filled(args, function.parameters), sort_keys=True)
        for provider in provider_names():
            sent = sent_as(args, names[provider])
            raw: Any = json.dumps(sent) if provider in TEXT_FORMS else sent
            meant = as_meant(made, provider, raw)
            assert hydrate(
                Call(name=function.tool_id, args=meant, provider=provider), world.registry.snapshot()
            ).success
            session = await runtime.open_session(mode="text", user="u1")
            response = await session.call(function.tool_id, raw, call_id="c1", provider=provider)
            assert response.ok, response.to_dict()
            assert isinstance(response.data, dict)
            assert json.dumps(response.data["args"], sort_keys=True) == wanted
            await session.close()
    return len(names) * len(function.gold)


async def test_every_right_call_arrives_at_a_handler_as_it_was_sent(tmp_path: Path):
    gold = [function for function in EVERY if function.gold]
    assert await arrive(gold, tmp_path) == len(provider_names()) * sum(len(function.gold) for function in gold) > 3_900


def test_a_real_name_that_gemini_refuses_is_listed_and_undone():
    found = [function for function in EVERY if "Content-Type" in json.dumps(function.parameters)]
    assert found
    for function in found:
        made = definition(function)
        assert renamed(made, "gemini") == {"Content-Type": "Content_Type"}
        assert renamed(made, "anthropic") == {}
