"""Turns that begin while the store is away, are gone through again, or begin while something else is stored: wherever the
session continues, it is in the turn that it was in, with what was counted there."""

import asyncio

import pytest
from tests.runtime.kit import FOUND, PAID, reading, writing
from tests.runtime.test_turns_left import away, resumed

from handrail.testing import settle

TOOLS = {"look": (reading(), FOUND), "pay": (writing(), PAID)}


async def test_a_message_that_comes_again_while_the_store_is_away_pays_once(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        with away(world.store):
            await session.begin_turn("m2")
        assert (await session.call("pay", {"q": "a"}, call_id="1")).ok
        with away(world.store):
            assert await session.begin_turn("m2") == 2
        assert (await session.call("pay", {"q": "a"}, call_id="2")).meta["replayed"]
        assert world.starts == 1


@pytest.mark.parametrize("then", ["written behind", "a turn"])
@pytest.mark.parametrize("turns", [3, 12])
async def test_every_turn_that_began_while_the_store_was_away_is_found_again(make_tools, turns, then):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        with away(world.store):
            for number in range(2, turns + 2):
                assert await session.begin_turn(f"m{number}") == number
                for word in "abc"[: number - 1]:
                    await session.call("look", {"q": word})
        if then == "a turn":
            await session.begin_turn("one more")
        await session.core.housekeeper.write_behind()
        session = await resumed(session, world.runtime())
        assert session.turn.number == turns + (2 if then == "a turn" else 1)
        for number, looks in ((2, 1), (3, 2), (turns + 1, 3)):
            assert await session.begin_turn(f"m{number}") == number
            assert session.turn.retrieval_used == looks


async def test_a_turn_that_began_long_ago_is_known_while_the_store_is_still_away(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        with away(world.store):
            for number in range(2, 12):
                await session.begin_turn(f"m{number}")
                await session.call("look", {"q": "a"})
            assert await session.begin_turn("m2") == 2
            assert session.turn.retrieval_used == 1


async def test_turns_that_the_store_has_are_let_go_after_it_was_away(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        with away(world.store):
            for number in range(2, 12):
                await session.begin_turn(f"m{number}")
        await session.begin_turn("m12")
        await session.begin_turn("m13")
        assert [*session.turns] == [9, 10, 11, 12, 13]
        assert [*session.spent] == [*range(1, 9)]


async def test_however_long_the_store_is_away_turns_are_not_piled_up_for_ever(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        with away(world.store):
            for number in range(2, 230):
                await session.begin_turn(f"m{number}")
        assert len(session.turns) == 200


async def test_a_session_goes_on_in_the_turn_that_it_is_in_not_in_the_one_that_is_stored_late(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        with away(world.store):
            await session.begin_turn("m2")
        await session.call("look", {"q": "a"})
        await session.core.housekeeper.write_behind()
        with away(world.store):
            await session.begin_turn("m3")
            assert await session.begin_turn("m2") == 2
        await session.core.housekeeper.write_behind()
        session = await resumed(session, world.runtime())
        assert session.turn.number == 2
        assert session.turn.retrieval_used == 1


@pytest.mark.parametrize("meanwhile", ["written behind", "a write"])
@pytest.mark.parametrize("message", ["m1", "m3"])
async def test_what_is_stored_while_a_turn_begins_does_not_put_the_session_back(make_tools, message, meanwhile):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        for word in "abc":
            await session.call("look", {"q": word})
        await session.begin_turn("m2")
        await session.call("look", {"q": "a"})
        begin_turn, told = world.store.begin_turn, asyncio.Event()

        async def unheard(*place, **facts):
            started = await begin_turn(*place, **facts)
            await told.wait()
            return started

        world.store.begin_turn = unheard
        beginning = asyncio.ensure_future(session.begin_turn(message))
        await settle()
        if meanwhile == "a write":
            assert (await session.call("pay", {"q": "a"})).ok
        else:
            session.dirty = True
            await session.core.housekeeper.write_behind()
        elsewhere = await resumed(session, world.runtime())
        assert elsewhere.turn.number == int(message[1:])
        assert elsewhere.turn.retrieval_used == (3 if message == "m1" else 0)
        world.store.begin_turn = begin_turn
        told.set()
        await beginning


async def test_a_number_that_was_guessed_is_not_stored(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await session.call("look", {"q": "a"})
        await session.core.housekeeper.write_behind()
        with away(world.store):
            assert await session.begin_turn("m2") == 2
            await session.set_mode("voice")
            session = await resumed(session, world.runtime())
        assert (session.mode, session.turn.number, session.turn.retrieval_used) == ("voice", 1, 1)
