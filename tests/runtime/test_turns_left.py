"""What is counted in a turn that was left, wherever and whenever: its message finds it when it comes again."""

import asyncio
from contextlib import contextmanager, nullcontext

import pytest
from tests.runtime.kit import FOUND, NOTHING, PAID, asked, confirmed, kind, reading, utility, writing

from handrail.contract.store import StoreUnavailable
from handrail.testing import settle

LATE = """
async def execute(args, ctx):
    await ctx.gate.wait()
    return {"ok": True, "data": {"results": []}}
"""
TOOLS = {
    "look": (reading(), FOUND),
    "seek": (reading(), NOTHING),
    "late": (reading(), LATE),
    "note": (utility(), FOUND),
    "transfer": (confirmed(), PAID),
}
elsewhere = pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])


async def resumed(session, runtime):
    return await runtime.resume_session(session.id, token=session.token)


@contextmanager
def away(store, method="begin_turn"):
    """The store cannot be told of turns, or what `method` is for."""

    async def fails(*_, **__):
        raise StoreUnavailable("The store is away.")

    setattr(store, method, fails)
    yield
    delattr(store, method)


async def left_long_ago(session):
    """More turns come than are remembered whole, and then the first message again."""
    for number in range(2, 9):
        await session.begin_turn(f"m{number}")
    assert await session.begin_turn("m1") == 1


async def test_empty_results_refusals_and_calls_of_a_turn_that_was_left_long_ago_are_counted_on(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        for word in "ab":
            await session.call("seek", {"q": word})
            await session.call("note", {"q": "same"}, call_id=word)
        for _ in range(5):
            await session.call("nobody", {})
        await left_long_ago(session)
        assert kind(await session.call("seek", {"q": "z"})) == "LOOP_DETECTED"
        assert kind(await session.call("note", {"q": "same"}, call_id="z")) == "LOOP_DETECTED"
        assert kind(await session.call("nobody", {})) == "LOOP_DETECTED"


@elsewhere
async def test_a_turn_that_was_left_twice_is_still_as_it_was(make_tools, elsewhere):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        for word in "ab":
            await session.call("seek", {"q": word})
        await left_long_ago(session)
        await session.begin_turn("m9")
        if elsewhere:
            session = await resumed(session, world.runtime())
        await left_long_ago(session)
        assert kind(await session.call("seek", {"q": "z"})) == "LOOP_DETECTED"


async def test_what_a_person_declined_in_a_turn_that_was_left_long_ago_is_not_asked_again(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await session.call("transfer", {"q": "a"}, call_id="1")
        hold, token = await asked(session)
        await session.core.decline(hold, token=token)
        await left_long_ago(session)
        assert kind(await session.call("transfer", {"q": "a"}, call_id="2")) == "DECLINED"


@elsewhere
async def test_a_message_that_comes_again_while_the_store_is_away_gets_no_second_budget(make_tools, elsewhere):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        for word in "abc":
            await session.call("look", {"q": word})
        for _ in range(4):
            await session.call("nobody", {})
        await session.call("seek", {"q": "a"})
        await session.call("note", {"q": "same"}, call_id="1")
        await session.begin_turn("m2")
        if elsewhere:
            session = await resumed(session, world.runtime())
        with away(world.store):
            await session.begin_turn("m1")
        await session.call("nobody", {})
        await session.call("seek", {"q": "b"})
        await session.call("note", {"q": "same"}, call_id="2")
        await session.core.housekeeper.write_behind()
        for runtime in (None, world.runtime()):
            session = session if runtime is None else await resumed(session, runtime)
            assert session.turn.number == 1
            assert (session.turn.retrieval_used, session.turn.total_used) == (5, 7)
            assert kind(await session.call("look", {"q": "f"})) == "BUDGET_EXCEEDED"
            assert kind(await session.call("seek", {"q": "z"})) == "LOOP_DETECTED"
            assert kind(await session.call("note", {"q": "same"}, call_id="3")) == "LOOP_DETECTED"
            assert kind(await session.call("nobody", {})) == "LOOP_DETECTED"


async def test_a_writing_call_tells_the_store_of_a_turn_before_its_budget_is_looked_at(make_tools):
    async with make_tools(TOOLS | {"pay": (writing(), PAID)}) as world:
        session = await world.session(mode="voice")
        for word in "ab":
            await session.call("note", {"q": word})
        assert (await session.call("pay", {"q": "a"}, call_id="1")).ok
        await session.begin_turn("m2")
        session = await resumed(session, world.runtime())
        with away(world.store):
            await session.begin_turn("m1")
        assert kind(await session.call("pay", {"q": "b"}, call_id="2")) == "BUDGET_EXCEEDED"
        assert (await session.call("pay", {"q": "a"}, call_id="3")).meta["replayed"]


@pytest.mark.parametrize("then", ["written behind", "a turn", "a write"])
async def test_turns_that_began_and_were_left_while_the_store_was_away_are_stored_in_their_order(make_tools, then):
    async with make_tools(TOOLS | {"pay": (writing(), PAID)}) as world:
        first = await world.session()
        await first.begin_turn("m2")
        await first.call("look", {"q": "a"})
        await first.begin_turn("m1")
        session = await resumed(first, world.runtime())
        with away(world.store):
            await session.begin_turn("m3")
            for word in "abc":
                await session.call("look", {"q": word})
            await session.begin_turn("m2")  # this process has not heard of it
            await session.call("look", {"q": "b"})
        if then == "a turn":
            await session.begin_turn("m4")
        elif then == "a write":
            assert (await session.call("pay", {"q": "a"})).ok
        await session.core.housekeeper.write_behind()
        assert session.turn.number == (4 if then == "a turn" else 2)
        session = await resumed(session, world.runtime())
        assert session.turn.number == (4 if then == "a turn" else 2)
        assert await session.begin_turn("m3") == 3
        assert session.turn.retrieval_used == 3
        assert await session.begin_turn("m2") == 2
        assert session.turn.retrieval_used == 2


async def test_a_turn_that_has_the_number_of_another_by_guess_is_not_taken_for_it(make_tools):
    async with make_tools(TOOLS) as world:
        first = await world.session()
        for message in ("m2", "m3", "m1"):
            await first.begin_turn(message)
        session = await resumed(first, world.runtime())
        with away(world.store):
            await session.begin_turn("m3")
            await session.call("look", {"q": "a"})
            assert await session.begin_turn("m4") == 3
            for word in "ab":
                await session.call("look", {"q": word})
        await session.core.housekeeper.write_behind()
        assert {turn.number: turn.retrieval_used for turn in session.turns.values()} == {1: 0, 3: 1, 4: 2}
        assert session.turn.number == 4


@pytest.fixture
def gate():
    return asyncio.Event()


async def searching(session):
    """Two searches that find nothing, when the gate is opened."""
    searches = [asyncio.ensure_future(session.call("late", {"q": word})) for word in "ab"]
    await settle()
    return searches


async def test_empty_results_that_come_after_their_turn_was_left_are_written_behind(make_tools, gate):
    async with make_tools(TOOLS) as world:
        session = await world.session(runtime=world.runtime(capabilities={"gate": gate}))
        searches = await searching(session)
        await session.begin_turn("m2")
        await session.core.housekeeper.write_behind()
        gate.set()
        await asyncio.gather(*searches)
        await session.core.housekeeper.write_behind()
        assert not session.unstored_counters(), "they are written once"
        session = await resumed(session, world.runtime(capabilities={"gate": gate}))
        await session.begin_turn("m1")
        assert kind(await session.call("late", {"q": "c"})) == "LOOP_DETECTED"


async def test_empty_results_that_come_after_the_session_was_resumed_are_written_behind(make_tools, gate):
    async with make_tools(TOOLS) as world:
        first = await world.session(runtime=world.runtime(capabilities={"gate": gate}))
        searches = await searching(first)
        session = await resumed(first, first.core)
        await session.core.housekeeper.write_behind()
        gate.set()
        await asyncio.gather(*searches)
        await session.core.housekeeper.write_behind()
        session = await resumed(session, world.runtime(capabilities={"gate": gate}))
        assert kind(await session.call("late", {"q": "c"})) == "LOOP_DETECTED"


async def test_what_was_counted_in_a_turn_that_was_left_while_the_store_was_away_is_written_behind(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        for _ in range(5):
            await session.call("nobody", {})
        await session.core.housekeeper.write_behind()
        with away(world.store):
            await session.begin_turn("m2")
        await session.core.housekeeper.write_behind()
        assert session.turn.number == 2
        session = await resumed(session, world.runtime())
        assert await session.begin_turn("m1") == 1
        assert kind(await session.call("nobody", {})) == "LOOP_DETECTED"


async def test_what_could_not_be_written_behind_is_written_with_the_next_change(make_tools, gate):
    async with make_tools(TOOLS) as world:
        session = await world.session(runtime=world.runtime(capabilities={"gate": gate}))
        searches = await searching(session)
        await session.begin_turn("m2")
        gate.set()
        await asyncio.gather(*searches)
        with away(world.store, "save_sessions"), pytest.raises(StoreUnavailable):
            await session.core.housekeeper.write_behind()
        await session.core.housekeeper.write_behind()
        session = await resumed(session, world.runtime(capabilities={"gate": gate}))
        await session.begin_turn("m1")
        assert kind(await session.call("late", {"q": "c"})) == "LOOP_DETECTED"


@pytest.mark.parametrize("tool", ["nobody", "look"])
async def test_what_is_counted_while_the_store_is_told_of_the_next_turn_is_written_behind(make_tools, tool):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        # The memory store lets others continue after each change: the call is counted in the turn that is being left.
        await asyncio.gather(session.begin_turn("m2"), session.call(tool, {"q": "a"}))
        counted = session.turns[1].counters()
        assert (counted["refusals"], counted["total"]) == ((1, 0) if tool == "nobody" else (0, 1))
        await session.core.housekeeper.write_behind()
        session = await resumed(session, world.runtime())
        await session.begin_turn("m1")
        assert session.turn.counters() == counted


@pytest.mark.parametrize("moment", ["here", "long ago", "elsewhere", "store away"])
async def test_what_a_person_declines_after_its_turn_was_left_is_not_asked_again_in_it(make_tools, moment):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await session.call("transfer", {"q": "a"}, call_id="1")
        hold, token = await asked(session)
        for number in range(2, 9 if moment == "long ago" else 3):
            await session.begin_turn(f"m{number}")
        if moment in ("elsewhere", "store away"):
            session = await resumed(session, world.runtime())
        await session.core.decline(hold, token=token)
        assert kind(await session.call("transfer", {"q": "a"}, call_id="2")) == "DECLINED"
        await session.begin_turn("m20")
        with away(world.store) if moment == "store away" else nullcontext():
            await session.begin_turn("m1")
        assert kind(await session.call("transfer", {"q": "a"}, call_id="3")) == "DECLINED"
        assert session.turn.number == 1
        await session.begin_turn("m21")
        assert kind(await session.call("transfer", {"q": "a"}, call_id="4")) == "CONFIRMATION_REQUIRED"


async def test_a_write_that_is_claimed_after_its_turn_was_left_counts_in_that_and_not_in_the_next(make_tools):
    async with make_tools(TOOLS | {"pay": (writing(), PAID)}) as world:
        session = await resumed(await world.session(), world.runtime())
        unknown_like, asked_for, may_answer = world.store.unknown_like, asyncio.Event(), asyncio.Event()

        async def later(*place):
            asked_for.set()
            await may_answer.wait()
            return await unknown_like(*place)

        world.store.unknown_like = later
        paying = asyncio.create_task(session.call("pay", {"q": "a"}, call_id="1"))
        await asked_for.wait()
        await session.begin_turn("m2")
        for word in "abc":
            await session.call("look", {"q": word})
        await session.core.housekeeper.write_behind()
        may_answer.set()
        assert (await paying).ok
        session = await resumed(session, world.runtime())
        assert (session.turn.number, session.turn.total_used) == (2, 3)
        await session.begin_turn("m1")
        assert (session.turn.number, session.turn.total_used) == (1, 1)


async def test_a_write_is_counted_in_the_store_with_its_claim(make_tools):
    async with make_tools(TOOLS | {"pay": (writing(), PAID)}) as world:
        session = await world.session()
        session.core._housekeeper.cancel()  # nothing is written behind any more
        assert (await session.call("pay", {"q": "a"}, call_id="1")).ok
        session = await resumed(session, world.runtime())
        assert session.turn.total_used == 1


async def test_an_approved_call_leaves_the_counters_to_the_process_that_has_the_connection(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        session.core._housekeeper.cancel()  # it does not hear of the yes
        await session.call("transfer", {"q": "a"}, call_id="1")
        hold, token = await asked(session)
        await session.core.housekeeper.write_behind()
        move_hold, approved = world.store.move_hold, asyncio.Event()

        async def moved(*place, **facts):
            try:
                return await move_hold(*place, **facts)
            finally:
                approved.set()

        world.store.move_hold = moved
        saying_yes = asyncio.create_task(
            world.runtime(policy={"approver_wait_seconds": 0.3}).approve(hold, token=token)
        )
        await approved.wait()
        for word in "abc":
            await session.call("look", {"q": word})
        await session.core.housekeeper.write_behind()
        assert (await saying_yes).ok
        session = await resumed(session, world.runtime())
        assert session.turn.total_used == 4
