"""LangChain, with the real package: its tools governed, and governed tools as its own."""

import asyncio
import json

import pytest
from tests.adopt.kit import SHOP, adopted

from handrail.adopt import from_langchain, to_langchain
from handrail.contract.errors import DefinitionError, ErrorType, UsageError

TAKEN = """
    from typing import Annotated
    from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException, tool
    from pydantic import BaseModel, Field, field_validator
    from handrail.adopt import from_langchain

    SEEN = []

    @tool
    def multiply(first: int, second: int = 2) -> int:
        "Multiply two numbers."
        return first * second

    class Where(BaseModel):
        city: str = Field(description="The city.", min_length=2)

        @field_validator("city")
        @classmethod
        def known(cls, city):
            if city == "Atlantis":
                raise ValueError("no such city")
            return city

    class Weather(BaseTool):
        name: str = "Weather-Report"
        description: str = "The weather of a city. " + "It is measured every hour. " * 20
        args_schema: type = Where

        def _run(self, city):
            SEEN.append(city)
            return {"city": city, "sky": "blue"}

    async def aecho(text: str) -> str:
        return text

    def fails(reason: str) -> str:
        "Fails."
        if reason == "crash":
            raise RuntimeError("a secret of the host")
        raise ToolException(f"cannot: {reason}")

    adopted_multiply = from_langchain(multiply, category="utility", side_effects="none")
    weather = from_langchain(Weather(), category="retrieval", side_effects="read_only")
    echo = from_langchain(StructuredTool.from_function(coroutine=aecho, name="echo", description="Says it again."),
                          side_effects="none")
    shout = from_langchain(Tool(name="shout", description="Shouts.", func=str.upper), side_effects="none")
    fail = from_langchain(StructuredTool.from_function(fails, handle_tool_error=True), side_effects="read_only")
    write = from_langchain(StructuredTool.from_function(fails, name="write"), side_effects="writes",
                           waivers={"action-unconfirmed": "a test"})
"""


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    with adopted(tmp_path_factory.mktemp("langchain"), TAKEN) as tools:
        yield tools


def test_langchain_tools_become_definitions_with_their_schema_closed(taken):
    multiply = taken.snapshot.tool("multiply").definition
    assert multiply.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {"first": {"type": "integer"}, "second": {"type": "integer", "default": 2}},
        "required": ("first",),
    }
    weather = taken.snapshot.tool("Weather_Report")
    assert weather.definition.parameters["properties"]["city"]["minLength"] == 2
    assert len(weather.summary) <= 250
    assert weather.documentation.count("It is measured every hour.") >= 20
    assert not taken.snapshot.tool("multiply").handler.is_async
    assert taken.snapshot.tool("echo").handler.is_async


@pytest.mark.parametrize(
    ("name", "args", "data"),
    [
        ("multiply", {"first": 3}, 6),
        ("Weather_Report", {"city": "Oslo"}, {"city": "Oslo", "sky": "blue"}),
        ("echo", {"text": "hm"}, "hm"),
    ],
)
def test_langchain_tools_are_called_through_the_pipeline(taken, name, args, data):
    assert taken.call(name, args).data == data


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("multiply", {"first": "3"}),
        ("multiply", {"first": 3, "third": 1}),
        ("Weather_Report", {"city": "Atlantis"}),
    ],
    ids=["type", "made-up", "own-check"],
)
def test_arguments_that_a_langchain_tool_would_refuse_are_refused_before_it_runs(taken, name, args):
    response = taken.call(name, args)
    assert response.error.type is ErrorType.VALIDATION
    assert response.error.partial_side_effects is False


def test_a_tool_exception_is_told_and_any_other_is_not(taken):
    told = taken.call("fails", {"reason": "no paper"}).error
    assert (told.type, told.message) == (ErrorType.PERMANENT, "cannot: no paper")
    hidden = taken.call("fails", {"reason": "crash"}).error
    assert hidden.type is ErrorType.INTERNAL
    assert "secret" not in hidden.message
    assert taken.call("write", {"reason": "no paper"}).error.partial_side_effects is True


def test_a_tool_that_needs_what_only_a_graph_injects_is_refused():
    from typing import Annotated

    from langchain_core.tools import InjectedToolArg, tool

    @tool
    def whose(item: str, owner: Annotated[str, InjectedToolArg]) -> str:
        "Whose it is."
        return item + owner

    with pytest.raises(DefinitionError, match='wants "owner"'):
        from_langchain(whose)


def test_what_is_no_langchain_tool_is_refused():
    with pytest.raises(DefinitionError, match="not a LangChain tool"):
        from_langchain(print)


def test_a_tool_of_a_single_text_has_a_schema_too(taken):
    assert taken.snapshot.tool("shout").definition.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {"tool_input": {"type": "string"}},
        "required": ("tool_input",),
    }
    assert taken.call("shout", {"tool_input": "hm"}).data == "HM"


async def test_governed_tools_are_langchain_tools_whose_calls_are_answered_with_the_envelope(tmp_path):
    from langchain_core.utils.function_calling import convert_to_openai_tool

    with adopted(tmp_path, SHOP) as tools:
        async with tools.runtime() as runtime:
            session = await runtime.open_session()
            given = {tool.name: tool for tool in to_langchain(session, id_scope="session")}
            assert sorted(given) == ["burn_book", "find_book", "order_book"]
            told = convert_to_openai_tool(given["find_book"])["function"]
            assert told["parameters"]["properties"]["title"] == {
                "type": "string",
                "description": "A part of the title.",
            }
            call = {"type": "tool_call", "name": "order_book", "args": {"title": "Emma"}, "id": "call_1"}
            message = await given["order_book"].ainvoke(call)
            assert (message.tool_call_id, message.status, message.name) == ("call_1", "success", "order_book")
            assert json.loads(message.content) == message.artifact
            assert message.artifact["data"] == {"ordered": "Emma"}
            again = await given["order_book"].ainvoke(call)
            assert again.artifact["meta"]["replayed"] is True
            clash = await given["order_book"].ainvoke({**call, "args": {"title": "Ulysses"}})
            assert clash.artifact["error"]["type"] == "CONFLICT"
            refused = await given["find_book"].ainvoke(
                {**call, "name": "find_book", "args": {"tite": 3}, "id": "call_2"}
            )
            assert refused.status == "error"
            assert refused.artifact["error"]["type"] == "VALIDATION"
            held = await given["burn_book"].ainvoke({**call, "name": "burn_book", "id": "call_3"})
            assert held.artifact["error"]["type"] == "CONFIRMATION_REQUIRED"
            assert "token" not in held.content
            assert json.loads(await given["find_book"].ainvoke({"title": "Emma"}))["data"]["books"] == ["Emma"] * 3


async def test_governed_tools_can_be_invoked_from_a_thread_and_not_in_the_way_of_their_loop(tmp_path):
    with adopted(tmp_path, SHOP) as tools:
        async with tools.runtime() as runtime:
            (find,) = to_langchain(await runtime.open_session(), only=["find_book"])
            call = {"type": "tool_call", "name": "find_book", "args": {"title": "Emma", "limit": 1}, "id": "call_1"}
            message = await asyncio.to_thread(find.invoke, call)
            assert message.artifact["data"] == {"books": ["Emma"]}
            with pytest.raises(UsageError, match="ainvoke"):
                find.invoke(call)
