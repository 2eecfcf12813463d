"""What we send, checked by the providers' own SDKs: their types take it, and give it back as it was.

The SDKs come with the extra `dev`; without them nothing is proven here, which CI does not accept.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.providers.bfcl import DATA, functions
from tests.providers.made_schemas import DEFS, LOOSE_SCALARS, NULLABLE_SCALARS, SCALARS, a_definition, an_object
from tests.providers.wire_examples import LAMP, ORDER

from handrail.providers import adapt

MADE: list[dict[str, Any]] = [
    {**an_object(required, a=schema), "$defs": DEFS}
    for schema, _ in (*SCALARS, *NULLABLE_SCALARS, *LOOSE_SCALARS)
    for required in ([], ["a"])
]
REAL = [function.parameters for function in functions()[::10]] if DATA.is_file() else []
EVERY = [LAMP, ORDER, an_object(), {"type": "object"}, *MADE, *REAL]


def sdk(name: str) -> Any:
    """The module of an SDK; skipped, and on CI failed, where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        said = f'"{name}" is not installed (it comes with the extra `dev`): what we send was NOT CHECKED by the SDK\'s types'
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)


def each(provider: str, check: Callable[[dict[str, Any]], Any]) -> None:
    """`check` gives back what the SDK makes of a tool; that must be the tool."""
    for strict in (False, True):
        for parameters in EVERY:
            sent = adapt(a_definition(parameters, strict=strict), provider).schema
            assert check(sent) == sent


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def typed(annotation: Any) -> Callable[[dict[str, Any]], Any]:
    """A check by the type of a request's part, which is a dictionary."""
    adapter = sdk("pydantic").TypeAdapter(annotation, config=None)
    return lambda sent: adapter.dump_python(adapter.validate_python(sent, extra="forbid"), mode="json")


def test_chat_completions_takes_what_we_send():
    each("openai-chat", typed(sdk("openai.types.chat").ChatCompletionToolUnionParam))


def test_responses_takes_what_we_send():
    model = sdk("openai.types.responses").FunctionTool
    each("openai-responses", lambda sent: dumped(model.model_validate(sent, strict=True)))
    each("openai-responses", typed(sdk("openai.types.responses").FunctionToolParam))


def test_realtime_takes_what_we_send():
    model = sdk("openai.types.realtime").RealtimeFunctionTool
    each("openai-realtime", lambda sent: dumped(model.model_validate(sent, strict=True)))


def test_anthropic_takes_what_we_send():
    each("anthropic", typed(sdk("anthropic.types").ToolParam))


@pytest.mark.parametrize("provider", ["gemini", "gemini-live"])
def test_gemini_takes_what_we_send(provider: str):
    model = sdk("google.genai.types").FunctionDeclaration
    each(provider, lambda sent: dumped(model.model_validate(sent)))


def test_gemini_takes_our_declarations_as_the_tool_of_a_request():
    types = sdk("google.genai.types")
    declared = [adapt(a_definition(parameters), "gemini").schema for parameters in (LAMP, ORDER)]
    tool = types.Tool.model_validate({"functionDeclarations": declared})
    assert [one.name for one in types.GenerateContentConfig(tools=[tool]).tools[0].function_declarations] == [
        "lookup_order",
        "lookup_order",
    ]


def test_mcp_takes_what_we_list():
    model = sdk("mcp_types").Tool
    each("mcp", lambda sent: dumped(model.model_validate(sent)))


def test_the_types_do_refuse_what_is_wrong():
    chat = typed(sdk("openai.types.chat").ChatCompletionToolUnionParam)
    anthropic = typed(sdk("anthropic.types").ToolParam)
    gemini = sdk("google.genai.types").FunctionDeclaration.model_validate
    for check, wrong in (
        (chat, {"type": "function", "name": "flat", "parameters": {}}),
        (anthropic, {"name": "x", "input_schema": {"type": "object"}, "parameters": {}}),
        (gemini, {"name": "x", "parameters": {"type": "OBJECT", "uniqueItems": True}}),
    ):
        with pytest.raises(ValueError, match="validation error"):
            check(wrong)
