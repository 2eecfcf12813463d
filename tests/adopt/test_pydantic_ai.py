"""Pydantic AI, with the real package: its tools governed, and governed tools in a run of its agent."""

import pytest
from tests.adopt.kit import SHOP, adopted

from handrail.adopt import from_pydantic_ai, to_pydantic_ai
from handrail.authoring.decorator import definition_of
from handrail.contract.errors import DefinitionError, ErrorType

TAKEN = """
    from typing import Annotated
    from pydantic import AfterValidator, BaseModel
    from pydantic_ai import ApprovalRequired, ModelRetry, RunContext, Tool
    from pydantic_ai.toolsets import FunctionToolset
    from handrail.adopt import from_pydantic_ai

    class Point(BaseModel):
        x: int
        y: int = 0

    def no_odd(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    async def move(ctx: RunContext[str], to: Point, steps: Annotated[int, AfterValidator(no_odd)] = 2) -> Point:
        '''Move a piece.

        Args:
            to: Where to.
            steps: In how many steps.
        '''
        assert isinstance(to, Point) and ctx.tool_call_id != "adopted"
        if to.x > 100:
            raise ModelRetry("that is off the board")
        if to.x < -100:
            raise RuntimeError("a secret of the host")
        return Point(x=to.x + len(ctx.deps), y=steps)

    def plain(text: str) -> str:
        "Says it."
        return text

    def picky(ctx: RunContext[None], text: str) -> str:
        "Wants an approval in the middle of it."
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return text

    free = from_pydantic_ai(Tool(picky, name="free"), side_effects="none")
    bound = from_pydantic_ai(Tool(picky, name="bound"), side_effects="none", requires_confirmation=True)
    board = FunctionToolset([Tool(move), Tool(plain, name="say")])
    piece = from_pydantic_ai(board, "move", deps=lambda ctx: ctx.user or "", side_effects="read_only")
    say = from_pydantic_ai(board.prefixed("x"), "x_say", side_effects="none")
    alone = from_pydantic_ai(Tool(plain), side_effects="none")
    asked = from_pydantic_ai(Tool(plain, name="asked", requires_approval=True), side_effects="none")
"""


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    with adopted(tmp_path_factory.mktemp("pydantic_ai"), TAKEN) as tools:
        yield tools


def test_tools_of_a_toolset_become_definitions(taken):
    move = taken.snapshot.tool("move").definition
    assert move.parameters["additionalProperties"] is False
    assert move.parameters["required"] == ("to",)
    assert "ctx" not in move.parameters["properties"]
    assert taken.snapshot.tool("move").handler.is_async
    assert not taken.snapshot.tool("plain").handler.is_async
    assert taken.snapshot.tool("asked").definition.requires_confirmation is True


def test_tools_of_a_toolset_are_called_with_their_own_types_and_a_run_context(taken):
    assert taken.call("move", {"to": {"x": 1}}, user="ana").data == {"x": 4, "y": 2}
    assert taken.call("x_say", {"text": "hm"}).data == "hm"
    assert taken.call("plain", {"text": "hm"}).data == "hm"
    assert taken.call("asked", {"text": "hm"}).error.type is ErrorType.CONFIRMATION_REQUIRED
    assert taken.call("asked", {"text": "hm"}, approved=True).data == "hm"


@pytest.mark.parametrize(
    ("args", "kind", "words"),
    [
        ({"to": {"x": "1"}}, ErrorType.VALIDATION, ""),
        ({"to": {"x": 1}, "steps": 3}, ErrorType.VALIDATION, "must be even"),
        ({"to": {"x": 101}}, ErrorType.VALIDATION, "off the board"),
        ({"to": {"x": -101}}, ErrorType.INTERNAL, "unexpectedly"),
    ],
    ids=["schema", "own-check", "model-retry", "crash"],
)
def test_a_refusal_of_a_tool_is_told_and_a_crash_is_not(taken, args, kind, words):
    error = taken.call("move", args).error
    assert error.type is kind
    assert words in error.message
    assert "secret" not in error.message


def test_an_approval_is_claimed_only_where_a_person_gave_it(taken):
    refused = taken.call("free", {"text": "hm"}).error
    assert refused.type is ErrorType.PERMANENT
    assert "requires_confirmation" in refused.message
    assert taken.call("bound", {"text": "hm"}, approved=True).data == "hm"


def test_a_toolset_of_several_tools_wants_a_name():
    from pydantic_ai.toolsets import FunctionToolset

    def one() -> str:
        "One."
        return "1"

    def two() -> str:
        "Two."
        return "2"

    with pytest.raises(DefinitionError, match="Name one: one, two"):
        from_pydantic_ai(FunctionToolset([one, two]))
    with pytest.raises(DefinitionError, match='no tool "three"'):
        from_pydantic_ai(FunctionToolset([one, two]), "three")
    with pytest.raises(DefinitionError, match="not a tool of Pydantic AI"):
        from_pydantic_ai(one)
    assert definition_of(from_pydantic_ai(FunctionToolset([one]))).tool_id == "one"


async def test_adopting_works_where_a_loop_runs():
    from pydantic_ai import Tool

    def one() -> str:
        "One."
        return "1"

    assert definition_of(from_pydantic_ai(Tool(one))).writes


async def test_an_agent_of_pydantic_ai_runs_on_governed_tools(tmp_path):
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    answers = []

    def model(messages, info):
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if returned:
            answers.extend(returned)
            return ModelResponse(parts=[TextPart("done")])
        assert {tool.name for tool in info.function_tools} == {"find_book", "order_book", "burn_book"}
        return ModelResponse(
            parts=[
                ToolCallPart("find_book", {"title": "Emma", "limit": 1}, tool_call_id="call_1"),
                ToolCallPart("order_book", '{"title": "Emma"}', tool_call_id="call_2"),
                ToolCallPart("find_book", {"titel": "Emma"}, tool_call_id="call_3"),
                ToolCallPart("burn_book", {"title": "Emma"}, tool_call_id="call_4"),
            ]
        )

    with adopted(tmp_path, SHOP) as tools:
        async with tools.runtime() as runtime:
            session = await runtime.open_session()
            await session.begin_turn()
            agent = Agent(FunctionModel(model), toolsets=[to_pydantic_ai(session, id_scope="session")])
            result = await agent.run("Order Emma.")
            assert result.output == "done"
            found, ordered, wrong, held = (part.content for part in answers)
            assert found["data"] == {"books": ["Emma"]}
            assert ordered["data"] == {"ordered": "Emma"}
            assert wrong["error"]["type"] == "VALIDATION"
            assert held["error"]["type"] == "CONFIRMATION_REQUIRED"
            assert "token" not in str(held)
            # The framework's id reached the pipeline, which knows it with other arguments.
            clash = await session.call("order_book", {"title": "Ulysses"}, call_id="call_2", provider="pydantic-ai")
            assert clash.error.type is ErrorType.CONFLICT
