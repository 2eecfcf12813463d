"""A user has the tools that the policy gives them; the others do not exist for them. A session keeps the policy that it was
opened with, in whichever process it continues, and a connection that another process replaced is refused within a second."""

import pytest
from tests.runtime.kit import FOUND, PAID, reading, writing

from handrail import Policy
from handrail.contract.errors import ErrorType

TOOLS = {"kb_look": (reading(), FOUND), "kb_list": (reading(), FOUND), "pay": (writing(), PAID)}


@pytest.mark.parametrize(
    ("user", "tool", "found"),
    [
        ("u1", "kb_look", True),
        ("u1", "pay", True),
        (None, "kb_look", True),
        (None, "pay", False),
        (None, "pay2", False),
    ],
)
async def test_only_tools_that_this_user_may_use_are_found(make_tools, user, tool, found):
    world = make_tools(TOOLS)
    async with world.runtime(policy={"anonymous_tools": ["kb_*"]}) as runtime:
        session = await runtime.open_session(user=user)
        response = await session.call(tool, {"q": "a"})
        assert response.ok is found
        if not found:
            assert response.error.type is ErrorType.NOT_FOUND
            assert "did you mean" not in response.error.message, "names that the user may not use are not given away"
        assert world.starts == int(found)


async def test_no_pattern_means_no_tool(make_tools):
    world = make_tools(TOOLS)
    async with world.runtime(policy={"user_tools": []}) as runtime:
        session = await runtime.open_session(user="u1")
        assert not session.plans.allowed
        assert (await session.call("kb_look", {})).error.type is ErrorType.NOT_FOUND


async def test_the_nearest_name_is_one_of_those_that_may_be_used(make_tools):
    world = make_tools(TOOLS)
    async with world.runtime(policy={"anonymous_tools": ["kb_list", "pay"]}) as runtime:
        response = await (await runtime.open_session()).call("kb_lo", {})
        assert 'did you mean "kb_list"?' in response.error.message


async def test_a_session_keeps_its_own_policy_in_another_process(make_tools):
    world = make_tools(TOOLS, store="sqlite")
    here, there = world.runtime(), world.runtime(policy={"text": {"retrieval_calls": 4}})
    async with here, there:
        limits = {"text": {"retrieval_calls": 1}, "user_tools": ["kb_*"], "observe": ["loop"]}
        first = await here.open_session(user="u1", policy=limits)
        session = await there.resume_session(first.id, token=first.token)
        assert (session.policy.text.retrieval_calls, session.policy.observe) == (1, {"loop"})
        assert (await session.call("kb_look", {"q": "1"}, call_id="c1")).ok
        assert (await session.call("kb_look", {"q": "2"}, call_id="c2")).error.type is ErrorType.BUDGET_EXCEEDED
        assert (await session.call("pay", {"q": "2"}, call_id="c3")).error.type is ErrorType.NOT_FOUND


async def test_a_session_without_a_policy_of_its_own_follows_its_host(make_tools):
    world = make_tools(TOOLS, store="sqlite")
    async with world.runtime() as here, world.runtime(policy={"text": {"retrieval_calls": 4}}) as there:
        first = await here.open_session(user="u1")
        session = await there.resume_session(first.id, token=first.token)
        assert session.policy.text.retrieval_calls == 4


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"text": {"retrieval_calls": 0, "retries": 0}},
        {"voice": {"total_calls": 9}, "repair": True, "redact": ["password"], "user_tools": ["a", "b_*"]},
        {"observe": ["rate", "loop"], "timeout_ms": 5},
    ],
    ids=lambda changes: "+".join(changes) or "nothing",
)
def test_what_a_policy_changes_makes_it_again(changes):
    base = Policy.from_dict({"text": {"retrieval_calls": 3}, "refusals": 9})
    policy = Policy.from_dict(changes, base)
    assert Policy.from_dict(policy.changes_from(base), base) == policy


async def test_reads_on_a_connection_that_another_process_replaced_are_refused(make_tools):
    world = make_tools(TOOLS, store="sqlite")
    async with world.runtime() as here, world.runtime() as there:
        old = await here.open_session(user="u1")
        assert (await old.call("kb_look", {"q": "1"}, call_id="c1")).ok
        await there.resume_session(old.id, token=old.token)
        here.housekeeper._looked = 0.0
        await here.housekeeper.learn_connections()
        refused = await old.call("kb_look", {"q": "2"}, call_id="c2")
        assert refused.error.type is ErrorType.CONFLICT
        assert "replaced by a newer one" in refused.error.message


async def test_a_slow_call_is_told_to_the_model(make_tools):
    slow = "async def execute(args, ctx):\n    await asyncio.sleep(0.02)\n    return {'ok': True, 'data': {}}\n"
    world = make_tools({"slow": (reading(latencyBudgetMs=5), slow), "look": (reading(latencyBudgetMs=60_000), FOUND)})
    async with world.runtime() as runtime:
        session = await runtime.open_session()
        told = (await session.call("slow", {})).meta["slow"]
        assert told["budgetMs"] == 5
        assert told["overMs"] >= 14
        assert "slow" not in (await session.call("look", {})).meta
