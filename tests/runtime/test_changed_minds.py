"""A person's answer is for all arguments that were shown; `dedupeFields` decide what the ledger takes for the same call.

So a call that differs outside those fields is another request, unless it has the very key of the held one: without an id
of its own in the same turn, or under a new id after a reconnect, where it may be a repetition in other words.
"""

import asyncio
import json
from dataclasses import replace
from hashlib import sha256

import pytest
from tests.runtime.kit import PAID, PATIENT, asked, confirmed, kind, next_event, until, writing

from handrail.contract.store import HoldState
from handrail.stores import SqliteStore

PARAMETERS = {
    "type": "object",
    "properties": {
        "guest": {"type": "string", "description": "Who comes."},
        "time": {"type": "string", "description": "When.", "default": "7"},
    },
    "required": ["guest"],
    "additionalProperties": False,
}
KEYED = {"parameters": PARAMETERS, "dedupeFields": ["guest"]}
TOOLS = {"book": (confirmed(**KEYED, preview="Book {guest} at {time}"), PAID)}


async def book(session, time, call_id=None):
    return await session.call("book", {"guest": "Ana", "time": time}, call_id=call_id)


async def held(session, time, call_id=None):
    """A booking that is asked for: the request, and its secret."""
    request = requested(await book(session, time, call_id))
    assert request["args"] == {"guest": "Ana", "time": time}
    hold_id, token = await asked(session)
    assert hold_id == request["id"]
    return hold_id, token


def requested(answer):
    assert kind(answer) == "CONFIRMATION_REQUIRED", answer
    return answer.error.confirmation_request


def booked(world):
    return [args["time"] for args in world.tools.started()]


async def again(session, runtime=None, **facts):
    return await (runtime or session.core).resume_session(session.id, token=session.token, **facts)


async def test_another_time_is_another_request_and_both_are_carried_out_as_approved(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        seven, seven_token = await held(session, "7", "c1")
        eight, eight_token = await held(session, "8", "c2")
        assert requested(await book(session, "8", "c3"))["id"] == eight
        assert requested(await book(session, "7", "c4"))["id"] == seven
        assert (await session.core.approve(eight, token=eight_token)).ok
        assert booked(world) == ["8"]
        assert (await session.core.approve(seven, token=seven_token)).ok
        assert booked(world) == ["8", "7"]


async def test_a_yes_says_nothing_about_another_time_in_the_next_turn(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        seven, token = await held(session, "7", "c1")
        assert (await session.core.approve(seven, token=token)).ok
        await session.begin_turn("m2")
        assert (await book(session, "7", "c2")).meta["replayed"] is True
        nine, token = await held(session, "9", "c3")
        assert booked(world) == ["7"]
        assert (await session.core.approve(nine, token=token)).ok
        assert booked(world) == ["7", "9"]


@pytest.mark.parametrize("ids", [["c1", "c2", "c3"], [None, None, None]])
async def test_a_no_to_one_time_leaves_another_to_be_asked_for(make_tools, ids):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        seven, token = await held(session, "7", ids[0])
        await session.core.decline(seven, token=token)
        assert kind(await book(session, "7", ids[1])) == "DECLINED"
        eight, token = await held(session, "8", ids[2])
        assert (await session.core.approve(eight, token=token)).ok
        assert booked(world) == ["8"]


async def test_a_no_to_another_time_survives_a_restart(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        seven, token = await held(session, "7", "c1")
        await session.core.decline(seven, token=token)
        await session.core.save(session)
        session = await again(session, world.runtime())
        assert kind(await book(session, "7", "c2")) == "DECLINED"
        await held(session, "8", "c3")


async def test_without_ids_the_same_key_in_a_turn_is_the_same_request_and_then_its_outcome(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        seven, token = await held(session, "7")
        met = requested(await book(session, "8"))
        assert (met["id"], met["args"]["time"]) == (seven, "7"), "it is told what was asked for"
        assert (await session.core.approve(seven, token=token)).ok
        assert (await book(session, "8")).meta["replayed"] is True
        assert booked(world) == ["7"]
        await session.begin_turn("m2")
        await held(session, "8")


async def test_without_ids_and_at_once_the_same_key_is_one_request(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        answers = await asyncio.gather(*(book(session, time) for time in ("7", "8", "9", "7")))
        assert len({requested(answer)["id"] for answer in answers}) == 1
        assert len(await world.store.holds(session.id, [HoldState.PENDING])) == 1


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("same_process", [True, False])
async def test_after_a_reconnect_other_words_meet_the_request_that_the_model_has_forgotten(
    make_tools, same_process, times
):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        seven, token = await held(session, "7", "c1")
        session = await again(session, None if same_process else world.runtime())
        for _ in range(times):
            assert requested(await book(session, "8", "c2"))["id"] == seven, "also when it is delivered again"
        assert requested(await book(session, "8", "c3"))["id"] != seven, "asked for a second time, it is another one"
        assert (await session.core.approve(seven, token=token)).ok
        told = await book(session, "8", "c2")
        assert (told.ok, told.meta["replayed"]) == (True, True)
        assert booked(world) == ["7"]


async def test_after_a_reconnect_other_words_for_what_runs_are_told_so_and_may_be_said_again(make_tools):
    async with make_tools({"book": (confirmed(**KEYED), PATIENT)}) as world:
        session = await world.session(runtime=world.runtime(policy={"text": {"wait_seconds": 0.05}}))
        seven, token = await held(session, "7", "c1")
        approval = asyncio.create_task(session.core.approve(seven, token=token))
        await until(lambda: world.starts)
        session = await again(session)
        for call_id in ("c2", "c3"):
            assert kind(await book(session, "8", call_id)) == "IN_PROGRESS"
        world.go()
        assert (await approval).ok
        assert (await book(session, "8", "c4")).meta["replayed"]
        assert booked(world) == ["7"]


@pytest.mark.parametrize("how", ["restored", "delivered again"])
@pytest.mark.parametrize("same_process", [True, False])
async def test_after_a_reconnect_a_request_that_the_model_knows_is_not_what_it_asks_for_now(
    make_tools, same_process, how
):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        seven, _ = await held(session, "7", "c1")
        restored = ["c1"] if how == "restored" else []
        session = await again(session, None if same_process else world.runtime(), restored_calls=restored)
        if how == "delivered again":
            assert requested(await book(session, "7", "c1"))["id"] == seven
        assert requested(await book(session, "8", "c2"))["id"] != seven


async def test_what_the_tool_asks_for_only_sometimes_is_asked_by_its_own_arguments(make_tools):
    fields = writing(**KEYED, confirmation={"when": 'args.time == "7"'})
    async with make_tools({"book": (fields, PAID)}) as world:
        session = await world.session()
        seven, token = await held(session, "7", "c1")
        assert (await book(session, "8", "c2")).ok
        assert booked(world) == ["8"]
        assert (await session.core.approve(seven, token=token)).ok
        assert booked(world) == ["8", "7"]


async def test_a_default_that_is_written_out_is_the_same_request_and_known_when_it_comes_again(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        seven, token = await held(session, "7", "c1")
        for _ in range(2):
            met = await session.call("book", {"guest": "Ana"}, call_id="c2")
            assert requested(met)["id"] == seven
        assert (await session.core.approve(seven, token=token)).ok
        assert (await session.call("book", {"guest": "Ana"}, call_id="c2")).ok
        assert booked(world) == ["7"]


async def test_a_write_met_in_other_words_is_known_when_it_comes_again_as_it_came(make_tools):
    async with make_tools({"book": (writing(**KEYED), PAID)}) as world:
        session = await world.session()
        await book(session, "7")
        for _ in range(2):
            assert (await book(session, "8", "c2")).meta["replayed"] is True
        assert kind(await book(session, "9", "c2")) == "CONFLICT", "an id means what it meant"
        assert booked(world) == ["7"]


async def test_two_processes_ask_for_two_times_and_each_yes_runs_its_own(make_tools, tmp_path):
    def store():
        return SqliteStore(tmp_path / "shared.db")

    async with make_tools(TOOLS) as world:
        here = world.runtime(store=store())
        session = await world.session(runtime=here)
        seven, seven_token = await held(session, "7", "c1")
        eight, eight_token = await held(session, "8", "c2")
        there = world.runtime(store=store())
        answers = await asyncio.gather(
            there.approve(eight, token=eight_token),
            there.approve(seven, token=seven_token),
            here.approve(seven, token=seven_token),
        )
        assert all(answer.ok for answer in answers)
        assert sorted(booked(world)) == ["7", "8"]


async def test_a_request_stored_by_an_older_version_is_found_by_its_arguments(make_tools):
    """It bears the digest of `dedupeFields`, as holds did."""
    async with make_tools(TOOLS) as world:
        session = await world.session()
        seven, _ = await held(session, "7", "c1")
        old = await world.store.hold_by_id(seven)
        await world.store.move_hold(seven, HoldState.SUPERSEDED, expected=[HoldState.PENDING])
        guest = sha256(json.dumps({"guest": "Ana"}, separators=(",", ":")).encode()).hexdigest()
        older = replace(old, hold_id="conf_older", args_digest=guest, alias=replace(old.alias, hold_id="conf_older"))
        await world.store.hold(older, "x")
        session = await again(session, world.runtime(), restored_calls=["c1"])
        hold_id, token = await asked(session)
        assert hold_id == "conf_older"
        assert requested(await book(session, "7", "c2"))["id"] == "conf_older"
        assert requested(await book(session, "8", "c3"))["id"] != "conf_older"
        assert (await session.core.approve("conf_older", token=token)).ok
        assert (await next_event(session, "envelope")).data["confirmationId"] == "conf_older"
        assert (await book(session, "7", "c4")).meta["replayed"] is True
        assert booked(world) == ["7"]
