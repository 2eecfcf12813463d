"""get_tool_guide: a guide through the pipeline, no wider than the session, and free of the retrieval budget."""

import pytest
from tests.tools.reference import fits, kind, reference, shown


@pytest.fixture(scope="module")
def tools():
    with reference("get_tool_guide", "validate_email", "rank_results") as kit:
        yield kit


def test_a_guide_is_the_one_of_the_registry(tools):
    answer = tools.call("get_tool_guide", {"tool_id": "validate_email"})
    assert answer.data["guide"] == tools.registry.documentation("validate_email")
    assert answer.data["summary"] == tools.snapshot.tool("validate_email").summary


def test_a_tool_that_is_not_there_is_told_with_the_nearest_name(tools):
    answer = tools.call("get_tool_guide", {"tool_id": "validate_mail"})
    assert kind(answer) == "NOT_FOUND"
    assert answer.error.suggestion == 'Did you mean "validate_email"?'


def test_a_tool_of_the_other_mode_does_not_exist_here(tools):
    assert kind(tools.call("get_tool_guide", {"tool_id": "rank_results"}, mode="voice")) == "NOT_FOUND"
    assert tools.call("get_tool_guide", {"tool_id": "rank_results"}).ok


async def test_it_costs_no_retrieval_call(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        await session.begin_turn()
        for name in ("validate_email", "rank_results", "get_tool_guide"):
            assert (await session.call("get_tool_guide", {"tool_id": name})).ok
        assert session.turn.retrieval_used == 0


async def test_it_is_audited_as_any_call(tools):
    async with tools.runtime() as runtime:
        session = await runtime.open_session()
        await session.begin_turn()
        await session.call("get_tool_guide", {"tool_id": "validate_email"}, call_id="c1")
        runtime.audit.flush()
        [line] = [event for event in runtime.audit.events if event["event"] == "execution"]
        assert line["toolId"] == "get_tool_guide"


async def test_a_user_who_may_not_use_a_tool_does_not_get_its_guide(tools):
    async with tools.runtime(policy={"user_tools": ["get_tool_guide"]}) as runtime:
        session = await runtime.open_session(user="u1")
        await session.begin_turn()
        assert kind(await session.call("get_tool_guide", {"tool_id": "validate_email"})) == "NOT_FOUND"


def test_the_failing_example_of_the_guide_is_what_happens(tools):
    args, response = shown(tools, "get_tool_guide")[1]
    answer = tools.call("get_tool_guide", args)
    assert kind(answer) == response["error"]["type"]
    assert fits(answer, {"ok": False, "error": {"type": "NOT_FOUND", "message": response["error"]["message"]}})
