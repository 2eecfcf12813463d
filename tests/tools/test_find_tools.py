"""find_tools: tools by what they do, no wider than the session, and free of the retrieval budget."""

import pytest
from tests.tools.reference import kind, reference


@pytest.fixture(scope="module")
def tools():
    with reference("find_tools", "get_tool_guide", "validate_email", "rank_results", "format_datetime") as kit:
        yield kit


def found(answer):
    return [tool["tool_id"] for tool in answer.data["tools"]]


def test_a_tool_is_found_by_what_it_does_with_what_is_needed_to_call_it(tools):
    answer = tools.call("find_tools", {"task": "Is this e-mail address well formed?"})
    assert found(answer)[0] == "validate_email"
    definition = tools.snapshot.tool("validate_email").definition
    assert answer.data["tools"][0]["parameters"]["required"] == list(definition.parameters["required"])
    assert "find_tools" not in found(answer)


def test_a_tool_is_found_by_its_name_before_all_others(tools):
    assert found(tools.call("find_tools", {"task": "rank_results", "limit": 1})) == ["rank_results"]


def test_nothing_that_fits_is_said_with_what_to_do(tools):
    answer = tools.call("find_tools", {"task": "zzz qqq"})
    assert answer.data["tools"] == []
    assert "other words" in answer.data["suggestion"]


def test_a_tool_of_the_other_mode_is_not_found(tools):
    assert "rank_results" not in found(tools.call("find_tools", {"task": "rank results"}, mode="voice"))
    assert "rank_results" in found(tools.call("find_tools", {"task": "rank results"}))


@pytest.mark.parametrize("args", [{}, {"task": ""}, {"task": "x" * 501}, {"task": "x", "limit": 9}, {"tasks": "x"}])
def test_arguments_that_make_no_sense_are_refused(tools, args):
    assert kind(tools.call("find_tools", args)) == "VALIDATION"


async def test_what_a_user_may_not_use_or_is_switched_off_is_not_found(tools):
    async with tools.runtime(policy={"user_tools": ["find_tools", "rank_results"]}) as runtime:
        session = await runtime.open_session(user="u1")
        await session.begin_turn()
        assert found(await session.call("find_tools", {"task": "validate email"})) == []
        runtime.switches = {"rank_results": "being mended"}
        assert found(await session.call("find_tools", {"task": "rank results"})) == []
        assert session.turn.retrieval_used == 0
