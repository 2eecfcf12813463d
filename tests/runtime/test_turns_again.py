"""A message that comes again in another process: its turn is as far as it was, whatever turns came between."""

import asyncio

import pytest
from tests.runtime.kit import FOUND, NOTHING, PAID, CrashSwitch, kind, reading, utility, writing

from handrail.testing import CrashAt, Crashed

TOOLS = {
    "look": (reading(), FOUND),
    "seek": (reading(), NOTHING),
    "note": (utility(), FOUND),
    "pay": (writing(), PAID),
}
stores = pytest.mark.parametrize("store", ["memory", "sqlite"])


async def resumed(session, runtime):
    return await runtime.resume_session(session.id, token=session.token)


async def looks(session, *words):
    return [kind(await session.call("look", {"q": word})) for word in words]


async def crash(world, session):
    """The process dies on a writing call's way to its claim; the session as another one resumes it."""
    session.core.crash.hook = CrashAt("before_claim")
    with pytest.raises(Crashed):
        await session.call("pay", {"q": "the last"})
    session.core._housekeeper.cancel()
    return await resumed(session, world.runtime(crash=CrashSwitch()))


@stores
async def test_a_turn_that_was_left_gets_no_second_budget_after_a_crash(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        first = await world.session(crash=CrashSwitch())
        await first.begin_turn("m2")
        assert await looks(first, *"abcde") == [None] * 5
        await first.begin_turn("m1")
        session = await crash(world, first)
        assert await session.begin_turn("m2") == 2
        assert await looks(session, "f") == ["BUDGET_EXCEEDED"]


@stores
async def test_loops_and_empty_results_of_a_turn_that_was_left_are_known_after_a_crash(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        first = await world.session(crash=CrashSwitch())
        for call_id in "12":
            await first.call("note", {"q": "a"}, call_id=call_id)
            await first.call("seek", {"q": call_id})
        await first.begin_turn("m2")
        session = await crash(world, first)
        await session.begin_turn("m1")
        assert kind(await session.call("note", {"q": "a"}, call_id="3")) == "LOOP_DETECTED"
        assert kind(await session.call("seek", {"q": "3"})) == "LOOP_DETECTED"
        assert kind(await session.call("note", {"q": "b"}, call_id="4")) is None


@pytest.mark.parametrize("tool", ["note", "look"])
async def test_a_call_that_is_made_again_after_it_was_stored_is_counted_again(make_tools, tool):
    async with make_tools(TOOLS) as world:
        first = await world.session(crash=CrashSwitch())
        for call_id in "12":
            assert (await first.call(tool, {"q": "a"}, call_id=call_id)).ok
            await first.core.housekeeper.write_behind()
        session = await resumed(first, world.runtime())
        assert kind(await session.call(tool, {"q": "a"}, call_id="3")) == "LOOP_DETECTED"


async def test_a_call_that_did_not_start_after_all_is_no_part_of_the_history(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await world.store.switch("pay", "under repair")  # the claim refuses it: nobody here has heard of it yet
        assert kind(await session.call("pay", {"q": "a"}, call_id="1")) == "UNAVAILABLE"
        assert [*session.turn.counters()["identical"].values()] == [0]


@stores
async def test_a_session_resumed_after_a_crash_goes_on_in_the_older_turn_that_it_was_in(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        first = await world.session(crash=CrashSwitch())
        assert (await first.call("pay", {"q": "a"}, call_id="1")).ok
        assert await looks(first, *"abc") == [None] * 3
        await first.begin_turn("m2")
        await first.begin_turn("m1")
        session = await crash(world, first)
        assert session.turn.number == 1
        assert (await session.call("pay", {"q": "a"}, call_id="9")).meta["replayed"], "it was paid in this turn"
        assert world.starts == 4
        assert await looks(session, *"xyz") == [None, None, "BUDGET_EXCEEDED"]
        assert await session.begin_turn("m3") == 3


@stores
async def test_a_turn_is_left_with_what_a_resumed_process_counted_in_it(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        first = await world.session(crash=CrashSwitch())
        await looks(first, *"abc")
        await first.core.housekeeper.write_behind()
        second = await crash(world, first)
        await looks(second, *"de")
        await second.begin_turn("m2")
        session = await crash(world, second)
        await session.begin_turn("m1")
        assert await looks(session, "f") == ["BUDGET_EXCEEDED"]


@stores
async def test_a_call_that_is_counted_after_its_turn_was_left_is_written_behind(make_tools, store, monkeypatch):
    async with make_tools(TOOLS, store=store) as world:
        first = await world.session(mode="voice", crash=CrashSwitch())
        for word in "ab":
            await first.call("note", {"q": word})
        await first.begin_turn("m1")
        # The turn is gone through again, so the store is asked before the call is counted; the next turn begins meanwhile.
        asked, begun = asyncio.Event(), asyncio.Event()
        unknown_like = type(world.store).unknown_like

        async def after_the_turn(*args, **options):
            asked.set()
            await begun.wait()
            return await unknown_like(*args, **options)

        monkeypatch.setattr(type(world.store), "unknown_like", after_the_turn)
        call = asyncio.ensure_future(first.call("pay", {"q": "a"}))
        await asked.wait()
        await first.begin_turn("m2")
        begun.set()
        assert (await call).ok
        assert first.turns[1].total_used == 3
        stored = await world.store.load_session(first.id)
        assert stored.counters["turn"] == 2, "its claim carries the counters of the turn that the session is in"
        await first.core.housekeeper.write_behind()
        assert not first.unstored_counters(), "it is written once"
        session = await crash(world, first)
        await session.begin_turn("m1")
        assert kind(await session.call("note", {"q": "c"})) == "BUDGET_EXCEEDED"


@stores
async def test_a_call_that_claims_while_the_next_turn_begins_is_counted_once_and_in_its_own_turn(
    make_tools, store, monkeypatch
):
    async with make_tools(TOOLS, store=store) as world:
        first = await world.session(mode="voice", crash=CrashSwitch())
        for word in "ab":
            await first.call("note", {"q": word})
        beginning, claimed, claims = asyncio.Event(), asyncio.Event(), []
        begin_turn, claim = type(world.store).begin_turn, type(world.store).claim

        async def after_the_claim(*args, **options):
            beginning.set()
            await claimed.wait()
            return await begin_turn(*args, **options)

        async def noted(self, wanted):
            claims.append(wanted)
            return await claim(self, wanted)

        monkeypatch.setattr(type(world.store), "begin_turn", after_the_claim)
        monkeypatch.setattr(type(world.store), "claim", noted)
        begun = asyncio.ensure_future(first.begin_turn("m2"))
        await beginning.wait()
        assert (await first.call("pay", {"q": "a"})).ok
        assert kind(await first.call("note", {"q": "c"})) == "BUDGET_EXCEEDED", "the turn that is left is full"
        assert [one.counters for one in claims] == [None], "the store may have the session in another turn already"
        claimed.set()
        assert await begun == 2
        assert (first.turns[1].total_used, first.turn.total_used) == (3, 0)
        stored = await world.store.load_session(first.id)
        assert (stored.counters or {}).get("turn") != 1, "what is left says nothing of the turn that the session is in"
        assert (await first.call("note", {"q": "d"})).ok
        await first.core.housekeeper.write_behind()
        assert not first.unstored_counters(), "it is written once"
        session = await crash(world, first)
        await session.begin_turn("m1")
        assert kind(await session.call("note", {"q": "e"})) == "BUDGET_EXCEEDED"
        assert session.turn.total_used == 3
        await session.begin_turn("m2")
        assert session.turn.total_used == 1


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("moment", ["before it is stored", "once it is stored", "once it has begun"])
async def test_a_write_that_claims_while_the_next_turn_begins_is_counted_after_a_crash(
    make_tools, store, moment, monkeypatch
):
    """The process dies right after the claim: nothing has been written behind."""
    async with make_tools(TOOLS, store=store) as world:
        first = await world.session(mode="voice", crash=CrashSwitch())
        for word in "ab":
            await first.call("note", {"q": word})
        beginning, begin_turn = asyncio.Event(), type(world.store).begin_turn
        unknown_like, asked, begun = type(world.store).unknown_like, asyncio.Event(), asyncio.Event()

        async def never_heard_of(*args, **options):
            if moment == "once it is stored":
                await begin_turn(*args, **options)
            beginning.set()
            await asyncio.Event().wait()

        async def after_the_turn(*args, **options):
            asked.set()
            await begun.wait()
            return await unknown_like(*args, **options)

        with monkeypatch.context() as patch:
            if moment == "once it has begun":
                await first.begin_turn(
                    "m1"
                )  # gone through again, so that the store is asked before the call is counted
                patch.setattr(type(world.store), "unknown_like", after_the_turn)
            else:
                patch.setattr(type(world.store), "begin_turn", never_heard_of)
                next_turn = asyncio.ensure_future(first.begin_turn("m2"))
                await beginning.wait()
            first.core.crash.hook = CrashAt("after_claim")
            call = asyncio.ensure_future(first.call("pay", {"q": "a"}))
            if moment == "once it has begun":
                await asked.wait()
                next_turn = asyncio.ensure_future(first.begin_turn("m2"))
                await next_turn
                begun.set()
            with pytest.raises(Crashed):
                await call
            next_turn.cancel()
            first.core._housekeeper.cancel()
        session = await resumed(first, world.runtime())
        assert session.turn.number == (1 if moment == "before it is stored" else 2)
        if session.turn.number == 2:
            assert session.turn.total_used == 0
            await session.begin_turn("m1")
        assert session.turn.total_used == 3
        assert kind(await session.call("note", {"q": "c"})) == "BUDGET_EXCEEDED"
