"""The housekeeper frees the space used by expired rows: once a day, and a call that comes late still does not run again."""

import asyncio
import logging

import pytest
from tests.runtime.kit import PAID, audited, kind, writing

from handrail.contract.store import StoreUnavailable
from handrail.runtime.policy import Policy
from handrail.runtime.retention import Pruning
from handrail.testing import VirtualClock, settle

TOOLS = {"pay": (writing(), PAID)}
DAY = 86_400
both = pytest.mark.parametrize("store", ["memory", "sqlite"])


@pytest.fixture
def clock():
    return VirtualClock()


def leap(clock, seconds):
    """Time passes in which nobody does anything, the housekeeper included."""
    clock._now += seconds


async def pruned_in(runtime, clock, seconds):
    """So long later the housekeeper looks once; how many batches of pruning it began."""
    begun = []
    evict = runtime.store.evict

    async def counted(**limits):
        begun.append(limits)
        return await evict(**limits)

    runtime.store.evict = counted
    try:
        leap(clock, seconds)
        await runtime.housekeeper.pruning.step()
    finally:
        del runtime.store.evict
    return len(begun)


@both
async def test_an_old_result_goes_and_its_call_does_not_run_again(make_tools, clock, store):
    async with make_tools(TOOLS, store=store, clock=clock) as world:
        session = await world.session(clock=clock)
        assert (await session.call("pay", {"q": "a"}, call_id="c1")).ok
        core = session.core
        await pruned_in(core, clock, 29 * DAY)
        assert await pruned_in(core, clock, 1000), "one that found nothing old enough"
        [row] = await world.store.ledger_rows()
        assert not row.evicted
        await pruned_in(core, clock, 2 * DAY)
        [row] = await world.store.ledger_rows()
        assert row.evicted
        session = await world.runtime(clock=clock).resume_session(session.id, token=session.token)
        assert kind(await session.call("pay", {"q": "a"}, call_id="c1")) == "INTERNAL"
        assert world.starts == 1
        assert [line["results"] for line in audited(core, "pruned")] == [1]


@both
async def test_calls_of_a_closed_session_go_and_it_stays_closed(make_tools, clock, store):
    async with make_tools(TOOLS, store=store, clock=clock) as world:
        session = await world.session(clock=clock)
        core = session.core
        await session.call("pay", {"q": "a"}, call_id="c1")
        await session.close()
        await pruned_in(core, clock, 1)
        await pruned_in(core, clock, 31 * DAY)
        assert await world.store.ledger_rows() == []
        assert not (await world.store.load_session(session.id)).active


async def test_it_happens_some_time_after_the_start_and_then_once_a_day(make_tools, clock):
    async with make_tools(TOOLS, clock=clock) as world:
        core = world.runtime(clock=clock)
        await core.open()
        waits = (0, 599, 1, DAY - 1, 1, 1)
        assert [await pruned_in(core, clock, seconds) for seconds in waits] == [0, 0, 1, 0, 1, 0]


async def test_there_is_one_batch_at_a_time_until_all_is_looked_at(make_tools, clock):
    async with make_tools(TOOLS, clock=clock) as world:
        core = world.runtime(clock=clock)
        await core.open()
        for _ in range(250):
            await core.open_session()
        await pruned_in(core, clock, 0)
        assert [await pruned_in(core, clock, seconds) for seconds in (600, 0.25, 0.25, 0.25)] == [1, 1, 1, 0]


async def test_what_a_walk_has_dropped_is_audited_also_if_the_runtime_stops_before_its_end(make_tools, clock):
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(clock=clock)
        core = session.core
        for number in range(101):
            await session.begin_turn()
            await session.call("pay", {"q": str(number)})
        await pruned_in(core, clock, 0)
        await pruned_in(core, clock, 31 * DAY)
        assert audited(core, "pruned") == []
        await core.close()
        assert [line["results"] for line in audited(core, "pruned")] == [100]


async def test_a_batch_in_which_it_is_broken_off_counts_too(make_tools, clock):
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(clock=clock)
        await session.call("pay", {"q": "a"})
        evict, begun, go = world.store.evict, asyncio.Event(), asyncio.Event()

        async def slow(**limits):
            gone = await evict(**limits)
            begun.set()
            await go.wait()
            return gone

        world.store.evict = slow
        leap(clock, 31 * DAY)
        pruning = Pruning(await world.store.now(), results_days=30, calls_days=30)
        step = asyncio.create_task(pruning.step(world.store))
        await begun.wait()
        step.cancel()
        await settle()
        assert not step.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert pruning.gone() == {"results": 1, "rows": 0}


async def away(**limits):
    raise StoreUnavailable("The store is away.")


async def due_while_away(world, clock):
    """A runtime that is about to prune, and whose store is away."""
    core = world.runtime(clock=clock)
    await core.open()
    await pruned_in(core, clock, 0)
    core.store.evict = away
    leap(clock, 600)
    return core


async def test_a_store_that_is_away_is_asked_again_a_little_later(make_tools, clock):
    async with make_tools(TOOLS, clock=clock) as world:
        core = await due_while_away(world, clock)
        with pytest.raises(StoreUnavailable):
            await core.housekeeper.pruning.step()
        del core.store.evict
        assert [await pruned_in(core, clock, seconds) for seconds in (0, 59, 1)] == [0, 0, 1]


async def test_the_housekeeper_says_in_one_line_that_the_store_is_away(make_tools, clock, caplog):
    caplog.set_level(logging.WARNING)
    async with make_tools(TOOLS, clock=clock) as world:
        core = await due_while_away(world, clock)
        async with asyncio.timeout(60):
            while not caplog.records:
                await clock.advance(0.25)
                await asyncio.sleep(0.001)  # the audit is written in a thread
        del core.store.evict
        assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)]


async def test_how_long_things_are_kept_is_policy(make_tools, clock):
    async with make_tools(TOOLS, clock=clock) as world:
        core = world.runtime(clock=clock, policy=Policy(keep_results_days=2, keep_calls_days=36_500_000))
        session = await world.session(runtime=core)
        await session.call("pay", {"q": "a"}, call_id="c1")
        await session.close()
        await pruned_in(core, clock, 0)
        await pruned_in(core, clock, 3 * DAY)
        [row] = await world.store.ledger_rows()
        assert row.evicted
