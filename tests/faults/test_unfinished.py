"""Row 15, for many at once: outcomes that could not be stored are stored later, each by itself."""

import asyncio
from dataclasses import replace

import orjson
import pytest
from tests.faults.accidents import Flaky
from tests.runtime.kit import PAID, writing

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.store import Finish, LedgerState, StoreUnavailable
from handrail.testing import VirtualClock

TOOLS = {"pay": (writing(), PAID)}


class Choosy(Flaky):
    """A store that is away for some keys."""

    def __init__(self, **options):
        super().__init__(**options)
        self.away = set()

    async def finish(self, finish):
        if finish.key in self.away:
            raise StoreUnavailable("The store is away.")
        return await super().finish(finish)


async def unfinished(world, runtime, clock):
    """Two calls whose outcomes are not stored, behind one that can never be: their keys."""
    session = await world.session(runtime=runtime)
    runtime._housekeeper.cancel()  # what it does is done here, step by step
    world.store.down, world.store.only = 10_000, "finish"
    for number in (1, 2):
        call = asyncio.create_task(session.call("pay", {"q": str(number)}, call_id=f"c{number}"))
        await clock.advance(4)
        assert (await call).ok
    world.store.down = 0
    waiting = runtime.own_claims.unstored
    assert len(waiting) == 2
    gone = Finish(key="nowhere", fence=1, state=LedgerState.SUCCEEDED, envelope="{}")
    runtime.own_claims.unstored = {"nowhere": gone, **waiting}
    return list(waiting)


async def states(world):
    return [row.state.value for row in reversed(await world.store.ledger_rows())]


async def test_row_15_an_outcome_that_can_never_be_stored_does_not_keep_the_others_back(make_tools, caplog):
    clock = VirtualClock()
    async with make_tools(TOOLS, store=Choosy()) as world:
        runtime = world.runtime(clock=clock)
        await unfinished(world, runtime, clock)
        for _ in range(3):
            await runtime.claims.store_unstored()
        assert await states(world) == ["succeeded", "succeeded"]
        assert not runtime.own_claims.unstored
        assert caplog.text.count("The outcome of nowhere cannot be stored") == 1


async def test_row_15_an_outcome_that_waits_for_the_store_does_not_keep_the_others_back(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, store=Choosy()) as world:
        runtime = world.runtime(clock=clock)
        first, _ = await unfinished(world, runtime, clock)
        world.store.away = {first}
        with pytest.raises(StoreUnavailable):
            await runtime.claims.store_unstored()
        assert list(runtime.own_claims.unstored) == [first]
        assert await states(world) == ["running", "succeeded"]
        world.store.away = set()
        await runtime.claims.store_unstored()
        assert not runtime.own_claims.unstored
        assert await states(world) == ["succeeded", "succeeded"]


async def test_row_15_a_stop_stores_outcomes_though_something_else_cannot_be_written(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, store=Choosy()) as world:
        runtime = world.runtime(clock=clock)
        await unfinished(world, runtime, clock)

        async def away(saves):
            raise StoreUnavailable("The store is away.")

        world.store.save_sessions = away
        await runtime.close()
        await world.store.open()
        assert await states(world) == ["succeeded", "succeeded"]


@pytest.mark.parametrize("failure", [TimeoutError(), ValueError("a fault of the store"), asyncio.CancelledError()])
async def test_row_15_an_outcome_is_kept_whatever_else_goes_wrong(make_tools, failure):
    clock = VirtualClock()
    async with make_tools(TOOLS, store=Choosy()) as world:
        runtime = world.runtime(clock=clock)
        keys = await unfinished(world, runtime, clock)
        finish = world.store.finish

        async def failing(one):
            raise failure

        world.store.finish = failing
        with pytest.raises(StoreUnavailable):
            await runtime.claims.store_unstored()
        world.store.finish = finish
        assert list(runtime.own_claims.unstored) == ["nowhere", *keys]
        await runtime.claims.store_unstored()
        assert await states(world) == ["succeeded", "succeeded"]


async def test_row_15_what_becomes_known_while_an_outcome_is_stored_is_stored_after_it(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, store=Choosy()) as world:
        runtime = world.runtime(clock=clock)
        key, _ = await unfinished(world, runtime, clock)
        waiting = runtime.own_claims.unstored
        known = waiting.pop(key)
        answer = ToolResponse.failure(ErrorType.INTERNAL, "It is not known.")
        unknown = orjson.dumps(answer.to_dict()).decode()
        waiting[key] = replace(known, state=LedgerState.UNKNOWN, envelope=unknown)
        finish = world.store.finish

        async def meanwhile(one):
            row = await finish(one)
            if one.key == key and one.state is LedgerState.UNKNOWN:
                waiting[key] = known  # the function that continued after its deadline has ended
            return row

        world.store.finish = meanwhile
        await runtime.claims.store_unstored()
        assert waiting == {key: known}
        await runtime.claims.store_unstored()
        assert await states(world) == ["succeeded", "succeeded"]
        assert not waiting
