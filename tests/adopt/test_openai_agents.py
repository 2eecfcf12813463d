"""The OpenAI Agents SDK, with the real package: its tools governed, and governed tools in a run of its agent."""

import json

import pytest
from tests.adopt.kit import SHOP, adopted

from handrail.adopt import from_openai_agents, to_openai_agents
from handrail.authoring.decorator import definition_of
from handrail.contract.errors import DefinitionError, ErrorType

TAKEN = """
    from agents import FunctionTool, RunContextWrapper, function_tool
    from handrail.adopt import from_openai_agents

    @function_tool
    def area(width: int, height: int = 2) -> dict:
        '''The area of a field.

        Args:
            width: How wide.
            height: How high.
        '''
        if width > 100:
            raise RuntimeError("a secret of the host")
        return {"area": width * height}

    @function_tool
    async def whoami(run: RunContextWrapper[str]) -> str:
        "Who calls."
        return run.context

    def words(run, error):
        return f"in words: {error}"

    @function_tool(failure_error_function=words)
    def worded(text: str) -> str:
        "Fails in words."
        raise ValueError(text)

    @function_tool(needs_approval=True)
    def careful(text: str) -> str:
        "Carefully."
        return text

    async def by_hand(run, text):
        return text

    field = from_openai_agents(area, category="utility", side_effects="none")
    who = from_openai_agents(whoami, context=lambda ctx: ctx.user, side_effects="read_only")
    failing = from_openai_agents(worded, side_effects="read_only")
    care = from_openai_agents(careful, side_effects="none")
    hand = from_openai_agents(
        FunctionTool(name="by_hand", description="By hand.", on_invoke_tool=by_hand, strict_json_schema=False,
                     params_json_schema={"type": "object", "properties": {"n": {"type": "integer"}}}),
        side_effects="none",
    )
"""


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    with adopted(tmp_path_factory.mktemp("openai_agents"), TAKEN) as tools:
        yield tools


def test_function_tools_become_definitions_and_what_has_a_default_may_be_left_out(taken):
    area = taken.snapshot.tool("area").definition
    assert area.parameters["additionalProperties"] is False
    assert area.parameters["required"] == ("width",)
    assert area.parameters["properties"]["width"]["description"] == "How wide."
    assert not taken.snapshot.tool("area").handler.is_async
    assert taken.snapshot.tool("whoami").handler.is_async
    assert taken.snapshot.tool("careful").definition.requires_confirmation is True
    assert taken.snapshot.tool("by_hand").definition.parameters["additionalProperties"] is False


def test_function_tools_are_called_through_the_pipeline(taken):
    assert taken.call("area", {"width": 3}).data == {"area": 6}
    assert taken.call("whoami", {}, user="ana").data == "ana"
    assert taken.call("by_hand", {"n": 1}).data == '{"n":1}'
    assert taken.call("area", {"width": 3, "depth": 1}).error.type is ErrorType.VALIDATION


def test_a_failure_is_a_failure_and_not_a_text(taken):
    crash = taken.call("area", {"width": 101}).error
    assert crash.type is ErrorType.INTERNAL
    assert "secret" not in crash.message
    told = taken.call("worded", {"text": "no paper"}).error
    assert (told.type, told.message) == (ErrorType.PERMANENT, "in words: no paper")


def test_what_only_an_agent_would_obey_is_refused():
    from agents import function_tool, tool_input_guardrail

    @tool_input_guardrail
    def guard(data):
        raise AssertionError

    @function_tool(tool_input_guardrails=[guard])
    def guarded(text: str) -> str:
        "Guarded."
        return text

    with pytest.raises(DefinitionError, match="tool_input_guardrails"):
        from_openai_agents(guarded)
    with pytest.raises(DefinitionError, match="not a function tool"):
        from_openai_agents(print)


def test_unknown_effects_count_as_writing():
    from agents import function_tool

    @function_tool
    def erase(name: str) -> str:
        "Erase it."
        return name

    definition = definition_of(from_openai_agents(erase))
    assert definition.writes
    assert definition.requires_confirmation


async def test_an_agent_of_the_sdk_runs_on_governed_tools(tmp_path):
    from agents import Agent, ModelResponse, RunConfig, Runner, Usage
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    outputs = []

    def asked(number, name, arguments):
        return ResponseFunctionToolCall(
            call_id=f"call_{number}", name=name, arguments=arguments, type="function_call", id=f"item_{number}"
        )

    class Scripted(Model):
        async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):
            returned = [item for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
            if returned:
                outputs.extend(returned)
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                said = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
                return ModelResponse(output=[said], usage=Usage(), response_id=None)
            calls = [
                asked(1, "find_book", '{"title": "Emma", "limit": 1}'),
                asked(2, "order_book", '{"title": "Emma"}'),
                asked(3, "find_book", '{"title": "Emma", "title": "Ulysses"}'),
                asked(4, "burn_book", '{"title": "Emma"}'),
            ]
            return ModelResponse(output=calls, usage=Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):
            raise NotImplementedError

    with adopted(tmp_path, SHOP) as tools:
        async with tools.runtime() as runtime:
            session = await runtime.open_session()
            await session.begin_turn()
            agent = Agent(name="shop", model=Scripted(), tools=to_openai_agents(session, id_scope="session"))
            result = await Runner.run(agent, "Order Emma.", run_config=RunConfig(tracing_disabled=True))
            assert result.final_output == "done"
            found, ordered, doubled, held = (json.loads(item["output"]) for item in outputs)
            assert found["data"] == {"books": ["Emma"]}
            assert ordered["data"] == {"ordered": "Emma"}
            assert doubled["error"]["type"] == "VALIDATION"
            assert held["error"]["type"] == "CONFIRMATION_REQUIRED"
            assert "token" not in str(held)
            # The framework's id reached the pipeline, which knows it with other arguments.
            clash = await session.call("order_book", {"title": "Ulysses"}, call_id="call_2", provider="openai-agents")
            assert clash.error.type is ErrorType.CONFLICT
