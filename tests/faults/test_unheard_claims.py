"""Row 14 where it is hardest: a claim was made unheard, and what comes next is an approval, or another connection."""

import asyncio

import pytest
from tests.faults.accidents import Flaky
from tests.runtime.kit import PAID, asked, confirmed, kind, next_event, writing

from handrail.contract.store import Block
from handrail.testing import VirtualClock, settle

TOOLS = {"pay": (confirmed(), PAID), "note": (writing(), PAID)}


async def unheard(world, runtime):
    """A session with an approved call whose claim was made unheard: its request, and the secret."""
    session = await world.session(runtime=runtime, user="u1")
    await session.call("pay", {"q": "a"}, call_id="c1")
    hold_id, token = await asked(session)
    world.store.deaf, world.store.only = 2, "claim"
    assert kind(await runtime.approve(hold_id, token=token)) == "STORE_UNAVAILABLE"
    assert await states(world) == ["running"]
    assert world.starts == 0
    return session, hold_id, token


async def answered(clock, work):
    """The answer, while time passes as far as it is needed."""
    task = asyncio.ensure_future(work)
    for _ in range(100):
        await clock.advance(0.25)
        if task.done():
            return task.result()
        await asyncio.sleep(0.005)  # the housekeeper has work in threads
    task.cancel()
    raise AssertionError("There is no answer.")


async def until(happened):
    while not happened():
        await asyncio.sleep(0.005)


async def states(world):
    return [row.state.value for row in await world.store.ledger_rows()]


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def world(make_tools, clock):
    return make_tools(TOOLS, store=Flaky(clock=clock.milliseconds))


async def test_row_14_approving_again_carries_it_out_once(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        session, hold_id, token = await unheard(world, runtime)
        runtime._housekeeper.cancel()  # the approver alone does it
        first = await answered(clock, runtime.approve(hold_id, token=token))
        assert first.ok
        assert (await runtime.approve(hold_id, token=token)).data == first.data
        assert (await session.call("pay", {"q": "a"}, call_id="c2")).data == first.data
        assert (await next_event(session, "envelope")).data["confirmationId"] == hold_id
        assert (world.starts, await states(world)) == (1, ["succeeded"])


async def test_row_14_it_is_carried_out_though_nobody_approves_again(world, clock):
    async with world:
        session, hold_id, _ = await unheard(world, world.runtime(clock=clock))
        told = await answered(clock, next_event(session, "envelope"))
        assert (told.data["confirmationId"], told.data["envelope"]["ok"]) == (hold_id, True)
        assert (world.starts, await states(world)) == (1, ["succeeded"])


async def test_row_14_all_who_try_again_at_once_run_it_once(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        _, hold_id, token = await unheard(world, runtime)
        tries = [asyncio.create_task(runtime.approve(hold_id, token=token)) for _ in range(10)]
        await asyncio.gather(*(runtime.doubts.settle() for _ in range(3)))
        assert all(answer.ok for answer in await answered(clock, asyncio.gather(*tries)))
        assert (world.starts, await states(world)) == (1, ["succeeded"])


async def test_row_14_a_second_yes_while_the_claim_is_asked_for_again_runs_it_once(world, clock):
    """The first claim was made unheard, and its repetition is under way."""
    async with world:
        runtime = world.runtime(clock=clock)
        session = await world.session(runtime=runtime)
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        world.store.deaf, world.store.only = 1, "claim"
        tries = [asyncio.create_task(runtime.approve(hold_id, token=token)) for _ in range(5)]
        assert all(answer.ok for answer in await answered(clock, asyncio.gather(*tries)))
        assert (world.starts, await states(world)) == (1, ["succeeded"])


async def test_row_14_an_approver_without_the_connection_goes_on_with_it_too(world, clock):
    async with world:
        session = await world.session(clock=clock)
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        session.core._housekeeper.cancel()  # the process that has the connection is gone without a word
        other = world.runtime(clock=clock)
        world.store.deaf, world.store.only = 2, "claim"
        approval = asyncio.create_task(other.approve(hold_id, token=token))
        await settle(100)
        await clock.advance(2.2)
        assert kind(await approval) == "STORE_UNAVAILABLE"
        await answered(clock, until(lambda: world.starts))
        assert (world.starts, await states(world)) == (1, ["succeeded"])
        assert (await answered(clock, other.approve(hold_id, token=token))).ok


async def test_row_14_what_may_not_run_any_more_is_recorded_as_not_run(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        session, hold_id, token = await unheard(world, runtime)
        await world.store.block(Block(tenant="", user="u1", until=clock.milliseconds() + 10_000_000))
        await runtime.housekeeper.learn()
        await clock.advance(0.6)
        assert kind(await answered(clock, runtime.approve(hold_id, token=token))) == "AUTH"
        assert (world.starts, await states(world)) == (0, ["running"])
        await clock.advance(301)
        told = await answered(clock, next_event(session, "envelope"))
        assert told.data["envelope"]["error"]["type"] == "CANCELLED"
        assert "nothing was run" in told.data["envelope"]["error"]["message"]
        assert kind(await answered(clock, runtime.approve(hold_id, token=token))) == "CANCELLED"
        assert (world.starts, await states(world)) == (0, ["cancelled"])
        assert not runtime.doubts.holds


@pytest.mark.parametrize("call_id", ["c1", "c2"])
async def test_row_14_a_call_goes_on_with_its_own_claim_under_another_connection(world, clock, call_id):
    async with world:
        runtime = world.runtime(clock=clock)
        session = await world.session(runtime=runtime)
        world.store.deaf, world.store.only = 2, "claim"
        assert kind(await session.call("note", {"q": "a"}, call_id="c1")) == "STORE_UNAVAILABLE"
        session = await runtime.resume_session(session.id, token=session.token)
        assert (await answered(clock, session.call("note", {"q": "a"}, call_id=call_id))).ok
        assert (world.starts, await states(world)) == (1, ["succeeded"])
