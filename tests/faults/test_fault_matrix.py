"""The fault matrix of the reliability design: one test a row, for every row that needs no HTTP or provider, on every store.

21 (HTTP disconnect) and 42 (injected instructions) are in `test_served_rows.py`, 20 with live providers in the tests of
voice. 16 is about files only. Two hosts are two processes on PostgreSQL that know nothing of each other's machine.
"""

import asyncio
import json
import resource
import sqlite3
import unicodedata
from contextlib import asynccontextmanager, closing

import pytest
from tests.faults.accidents import JumpingClock, PatientClock, die
from tests.faults.hosts import call_elsewhere
from tests.runtime.kit import (
    FOUND,
    PAID,
    PATIENT,
    PATIENT_IN_A_THREAD,
    asked,
    audited,
    begins_at_once,
    confirmed,
    kind,
    next_event,
    reading,
    until,
    utility,
    writing,
)
from tests.stores.processes import Racer

from handrail import Call
from handrail.runtime.reconcile import reconcile
from handrail.testing import CrashAt, Crashed, VirtualClock, settle

QUICK = {"lease_ms": 20}
IMPATIENT = {**QUICK, "text": {"wait_seconds": 0.2}}
TOOLS = {"pay": (writing(), PAID), "look": (reading(), FOUND), "set": (writing(idempotent=True), PAID)}
# The first that starts takes until the test says so.
FIRST_IS_SLOW = """
async def execute(args, ctx):
    mark(args)
    number = len(MARKS.read_text().splitlines())
    while number == 1 and not (MARKS.parent / "go").exists():
        await asyncio.sleep(0.005)
    return {"ok": True, "data": {"by": number}}
"""
every_store = pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
both_stores = pytest.mark.parametrize("store", ["sqlite", "postgres"])


async def pay(session, call_id=None, q="a", tool="pay"):
    return await session.call(tool, {"q": q}, call_id=call_id)


async def crashed(world, point, tool="pay"):
    """A session whose process died at this point of a call with the id c1, resumed in another."""
    runtime = world.runtime(crash=CrashAt(point), policy=QUICK)
    session = await world.session(runtime=runtime)
    with pytest.raises(Crashed):
        await pay(session, "c1", tool=tool)
    await die(world, runtime)
    return await world.runtime(policy=QUICK).resume_session(session.id, token=session.token)


@every_store
async def test_row_01_crash_before_the_claim_leaves_no_row_and_redelivery_runs_once(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await crashed(world, "before_claim")
        assert await world.store.ledger_rows() == []
        assert (await pay(session, "c1")).ok
        assert (await pay(session, "c1")).meta["replayed"]
        assert world.starts == 1


@every_store
@pytest.mark.parametrize("point", ["after_claim", "before_handler"])
async def test_row_02_crash_after_the_claim_is_unknown_or_run_again(make_tools, store, point):
    async with make_tools(TOOLS, store=store) as world:
        session = await crashed(world, point)
        for call_id in ("c1", "c2", None):
            answer = await pay(session, call_id)
            assert (kind(answer), answer.error.partial_side_effects) == ("CONFLICT", True)
        assert world.starts == 0
        assert [row.state.value for row in await world.store.ledger_rows()] == ["unknown"]
        session = await crashed(world, point, tool="set")
        assert (await pay(session, "c1", tool="set")).ok, "an idempotent call is taken over"
        assert (await pay(session, "c1", tool="set")).meta["replayed"]
        assert world.starts == 1


@every_store
@pytest.mark.parametrize("point", ["after_claim", "before_handler", "after_handler"])
async def test_row_02_a_call_that_was_left_is_taken_over_once_by_all_that_deliver_it_at_once(make_tools, store, point):
    async with make_tools(TOOLS, store=store) as world:
        session = await crashed(world, point, tool="set")
        before = world.starts
        answers = await asyncio.gather(*(pay(session, "c1", tool="set") for _ in range(4)))
        assert [answer.data for answer in answers] == [answers[0].data] * 4
        assert sum("replayed" not in answer.meta for answer in answers) == 1
        assert world.starts == before + 1
        assert len(await world.store.ledger_rows()) == 1


@every_store
async def test_row_02_an_idempotent_call_is_taken_over_under_a_new_id_too(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await crashed(world, "after_claim", tool="set")
        assert (await pay(session, "c2", tool="set")).ok
        assert (await pay(session, "c1", tool="set")).meta["replayed"]
        assert world.starts == 1
        assert [row.fence for row in await world.store.ledger_rows()] == [2]


@every_store
@pytest.mark.parametrize("point", ["after_handler", "before_finish"])
async def test_row_03_crash_after_the_effect_is_unknown_until_it_is_reconciled(make_tools, store, point):
    source = (
        PAID + "\nasync def reconcile(args, ctx):\n    return {'ok': True, 'data': {'found': ctx.idempotency_key}}\n"
    )
    async with make_tools({**TOOLS, "pay": (writing(), source)}, store=store) as world:
        session = await crashed(world, point)
        assert kind(await pay(session, "c1")) == "CONFLICT"
        (row,) = await world.store.ledger_rows()
        assert (await reconcile(session.core, row)).state.value == "succeeded"
        assert (await pay(session, "c1")).data == {"found": row.key}
        assert world.starts == 1
        session = await crashed(world, point, tool="set")
        assert (await pay(session, "c1", tool="set")).ok
        assert world.starts == 3, "an idempotent effect may happen twice, under the same key"
        keys = {row.key for row in await world.store.ledger_rows() if row.tool == "set"}
        assert len(keys) == 1


@every_store
@pytest.mark.parametrize("point", ["after_finish", "before_intents", "before_delivery"])
async def test_row_04_crash_after_the_finish_replays_the_stored_result(make_tools, store, point):
    async with make_tools(TOOLS, store=store) as world:
        session = await crashed(world, point)
        for call_id in ("c2", "c1"):
            answer = await pay(session, call_id)
            assert answer.data["paid"] == "a"
            assert answer.meta["replayed"]
        assert world.starts == 1


@every_store
async def test_row_05_same_id_delivered_100_times_starts_once_with_equal_results(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        answers = await asyncio.gather(*(pay(session, "c1") for _ in range(50)))
        answers += [await pay(session, "c1") for _ in range(50)]
        assert world.starts == 1
        assert len({json.dumps(answer.data, sort_keys=True) for answer in answers}) == 1
        assert sum("replayed" in answer.meta for answer in answers) == 99


@both_stores
async def test_row_05_also_right_after_a_resume(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        session = await world.runtime().resume_session(session.id, token=session.token)
        answers = await asyncio.gather(*(pay(session, "c1") for _ in range(100)))
        assert world.starts == 1
        assert all(answer.ok for answer in answers)


@both_stores
async def test_row_06_same_call_in_two_processes_of_one_host_runs_in_one(make_tools, store):
    slow = PAID.replace("return", "await asyncio.sleep(0.2)\n    return")
    async with make_tools({"pay": (writing(), slow)}, store=store) as world:
        here = await world.session()
        first = asyncio.create_task(pay(here, "c1"))
        await until(lambda: world.starts)
        there = await world.runtime().resume_session(here.id, token=here.token)
        second = await pay(there, "c1")
        assert second.meta["replayed"]
        assert (await first).data == second.data
        assert world.starts == 1


@asynccontextmanager
async def another_host(world, session, *, ahead_seconds=0.0, wait_seconds=30.0):
    """`tool -> what it is answered there`, by a process that has resumed the session as another machine would."""
    told = (session.id, session.token)
    other = Racer.start(call_elsewhere, world.tools.artifact, world.url, ahead_seconds, wait_seconds, told)
    assert await asyncio.to_thread(other.told) == "resumed"
    try:
        yield lambda tool: asyncio.create_task(asyncio.to_thread(other.ask, tool))
    finally:
        other.pipe.send("end")
        await asyncio.to_thread(other.end)


async def test_row_06_same_call_on_two_hosts_runs_on_one(make_tools):
    async with make_tools({"pay": (writing(timeoutMs=60_000), PATIENT)}, store="postgres") as world:
        here = await world.session()
        first = asyncio.create_task(pay(here, "c1"))
        await until(lambda: world.starts)
        async with another_host(world, here) as there:
            second = there("pay")
            await asyncio.wait([second], timeout=0.2)
            assert not second.done()
            world.go()
            assert await second == (None, {"done": "a"}, True)
        assert (await first).data == {"done": "a"}
        assert world.starts == 1


async def test_row_12_a_host_whose_clock_is_an_hour_ahead_takes_nothing_from_a_living_one(make_tools):
    tools = {"set": (writing(idempotent=True, timeoutMs=60_000), PATIENT), "pay": (writing(), PAID)}
    async with make_tools(tools, store="postgres") as world:
        runtime = world.runtime(policy=QUICK)
        here = await world.session(runtime=runtime)
        running = asyncio.create_task(pay(here, "c1", tool="set"))
        await until(lambda: world.starts)
        runtime._housekeeper.cancel()  # its lease is over by any clock
        async with another_host(world, here, ahead_seconds=3_600, wait_seconds=0.1) as there:
            assert (await there("set"))[0] == "IN_PROGRESS"
            world.go()
            assert (await running).data == {"done": "a"}
            assert await there("set") == (None, {"done": "a"}, True)
        assert world.starts == 1
        (row,) = await world.store.ledger_rows()
        assert abs(row.finished_at - await world.store.now()) < 600_000, "the time is that of the database"


@every_store
async def test_row_07_reissued_with_a_new_id_after_a_resume_is_a_replay(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        first = await pay(session, "c1")
        session = await world.runtime().resume_session(session.id, token=session.token)
        again = await pay(session, "new")
        assert again.meta["replayed"] is True
        assert again.data == first.data
        assert world.starts == 1


@both_stores
async def test_row_08_two_identical_calls_wanted_in_one_turn_both_run(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        answers = await session.call_many([Call(name="pay", args={"q": "a"}, call_id=one) for one in "12"])
        assert all(answer.ok for answer in answers)
        assert world.starts == 2


@every_store
async def test_row_09_same_id_with_other_arguments_or_tool_is_refused(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        await pay(session, "c1")
        for again in (session, await world.runtime().resume_session(session.id, token=session.token)):
            assert kind(await pay(again, "c1", q="b")) == "CONFLICT"
            assert kind(await pay(again, "c1", tool="set")) == "CONFLICT"
            assert kind(await again.call("look", {"q": "a"}, call_id="c1")) == "CONFLICT"
        assert world.starts == 1


async def zombie(world, tool):
    """A call that still runs in a process that everybody takes for dead; and the session in another process."""
    runtime = world.runtime(policy=QUICK)
    session = await world.session(runtime=runtime)
    running = asyncio.create_task(pay(session, "c1", tool=tool))
    await until(lambda: world.starts)
    runtime._housekeeper.cancel()
    await world.store.release_owner(runtime.owner)
    await asyncio.sleep(0.05)  # longer than its lease
    return running, await world.runtime(policy=QUICK).resume_session(session.id, token=session.token)


@every_store
async def test_row_10_a_zombie_that_finishes_after_a_takeover_gets_the_winner_s_outcome(make_tools, store):
    async with make_tools({"set": (writing(idempotent=True), FIRST_IS_SLOW)}, store=store) as world:
        running, session = await zombie(world, "set")
        assert (await pay(session, "c1", tool="set")).data == {"by": 2}
        world.go()
        assert (await running).data == {"by": 2}
        assert (await pay(session, "c1", tool="set")).data == {"by": 2}
        assert world.starts == 2


@every_store
async def test_row_11_a_zombie_that_finishes_after_unknown_is_accepted(make_tools, store):
    async with make_tools({"pay": (writing(), FIRST_IS_SLOW)}, store=store) as world:
        running, session = await zombie(world, "pay")
        assert kind(await pay(session, "c1")) == "CONFLICT"
        world.go()
        assert (await running).data == {"by": 1}
        assert (await pay(session, "c1")).data == {"by": 1}
        assert world.starts == 1


@both_stores
async def test_row_13_a_clock_that_jumps_takes_nothing_from_a_living_owner(make_tools, store):
    clock = JumpingClock()
    async with make_tools({"set": (writing(idempotent=True), PATIENT)}, store=store, clock=clock) as world:
        runtime = world.runtime(policy=QUICK)
        session = await world.session(runtime=runtime)
        running = asyncio.create_task(pay(session, "c1", tool="set"))
        await until(lambda: world.starts)
        runtime._housekeeper.cancel()
        clock.now += 3_600_000
        session = await world.runtime(policy=IMPATIENT).resume_session(session.id, token=session.token)
        assert kind(await pay(session, "c1", tool="set")) == "IN_PROGRESS"
        world.go()
        assert (await running).ok
        assert world.starts == 1


@both_stores
async def test_row_14_a_store_that_is_down_before_the_claim_starts_nothing(make_tools, store):
    async with make_tools(TOOLS, store=store, flaky=True) as world:
        session = await world.session()
        world.store.down = 2
        answer = await pay(session, "c1")
        assert kind(answer) == "STORE_UNAVAILABLE"
        assert answer.error.retry_after
        assert world.starts == 0
        assert (await pay(session, "c1")).ok


@both_stores
async def test_row_14_a_claim_that_was_made_unheard_is_recognised(make_tools, store):
    async with make_tools(TOOLS, store=store, flaky=True) as world:
        session = await world.session()
        world.store.deaf, world.store.only = 1, "claim"
        assert (await pay(session, "c1")).ok
        world.store.deaf = 2
        assert kind(await pay(session, "c2", q="b")) == "STORE_UNAVAILABLE"
        assert (await pay(session, "c2", q="b")).ok, "also by a later try of the same call"
        assert world.starts == 2
        assert {row.state.value for row in await world.store.ledger_rows()} == {"succeeded"}


@both_stores
async def test_row_15_a_store_that_is_down_at_the_finish_is_tried_again(make_tools, store):
    async with make_tools(TOOLS, store=store, flaky=True) as world:
        session = await world.session()
        world.store.down, world.store.only = 3, "finish"
        assert (await pay(session, "c1")).ok
        assert [row.state.value for row in await world.store.ledger_rows()] == ["succeeded"]


@both_stores
async def test_row_15_what_cannot_be_stored_for_long_is_stored_later_or_unknown(make_tools, store):
    clock = PatientClock()
    async with make_tools(TOOLS, store=store, flaky=True) as world:
        clock.store = world.store
        runtime = world.runtime(clock=clock, policy=QUICK)
        session = await world.session(runtime=runtime)
        world.store.down, world.store.only = 10_000, "finish"
        task = asyncio.create_task(pay(session, "c1"))
        await clock.advance(4)
        assert (await task).ok, "the effect has happened, and the model is told"
        assert [row.state.value for row in await world.store.ledger_rows()] == ["running"]
        world.store.down = 0
        await clock.advance(25)
        async with asyncio.timeout(30):
            while [row.state.value for row in await world.store.ledger_rows()] != ["succeeded"]:
                await clock.advance(1)
        world.store.down = 10_000
        task = asyncio.create_task(pay(session, "c2", q="b"))
        await clock.advance(4)
        assert (await task).ok
        await die(world, runtime)
        await world.store.open()
        states = [row.state.value for row in await world.store.ledger_rows()]
        assert states == ["unknown", "succeeded"]


async def test_row_16_a_locked_sqlite_file_is_waited_for_a_bounded_time(make_tools, tmp_path):
    from handrail.stores import SqliteStore

    async with make_tools(TOOLS, store=SqliteStore(tmp_path / "store.db", busy_ms=100)) as world:
        session = await world.session()
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other, other:
            other.execute("BEGIN IMMEDIATE")
            assert kind(await pay(session, "c1")) == "STORE_UNAVAILABLE", "though it stays locked"
            assert (await session.call("look", {"q": "a"})).ok
            other.execute("ROLLBACK")
        other.close()
        assert (await pay(session, "c1")).ok
        assert world.starts == 2


@both_stores
async def test_row_17_a_slow_handler_keeps_its_lease_and_duplicates_are_in_progress(make_tools, store):
    policy = {"lease_ms": 500, "text": {"wait_seconds": 0.1}}
    async with make_tools({"pay": (writing(timeoutMs=60_000), PATIENT)}, store=store) as world:
        session = await world.session(runtime=world.runtime(policy=policy))
        running = asyncio.create_task(pay(session, "c1"))
        await until(lambda: world.starts)
        (first,) = (later,) = await world.store.ledger_rows()
        assert kind(await pay(session, "c1")) == "IN_PROGRESS"
        async with asyncio.timeout(30):
            while later.lease_until == first.lease_until:
                await asyncio.sleep(0.05)
                (later,) = await world.store.ledger_rows()
        assert later.lease_until > first.lease_until
        other = await world.runtime(policy=policy).resume_session(session.id, token=session.token)
        assert kind(await pay(other, "c2")) == "IN_PROGRESS"
        world.go()
        assert (await running).ok
        assert (await pay(other, "c2")).meta["replayed"], "an answer IN_PROGRESS takes no ordinal"
        assert world.starts == 1


@both_stores
async def test_row_18_a_timeout_cancels_and_is_unknown_or_may_run_again(make_tools, store):
    slow = "async def execute(args, ctx):\n    mark(args)\n    await asyncio.sleep(20)\n"
    tools = {"pay": (writing(timeoutMs=40), slow), "set": (writing(idempotent=True, timeoutMs=40), slow)}
    async with make_tools(tools, store=store) as world:
        session = await world.session()
        unsafe = await pay(session, "c1")
        assert (kind(unsafe), unsafe.error.partial_side_effects) == ("TIMEOUT", True)
        assert kind(await pay(session, "c2")) == "CONFLICT"
        assert world.starts == 1
        assert kind(await pay(session, "c3", tool="set")) == "TIMEOUT"
        assert kind(await pay(session, "c4", tool="set")) == "TIMEOUT"
        assert world.starts == 3


@both_stores
async def test_row_18_the_late_result_of_a_plain_function_makes_the_unknown_known(make_tools, store):
    async with make_tools({"pay": (writing(timeoutMs=50), PATIENT_IN_A_THREAD)}, store=store) as world:
        session = await world.session()
        begins_at_once(session.core)
        assert kind(await pay(session, "c1")) == "TIMEOUT"
        assert kind(await pay(session, "c2")) == "CONFLICT"
        world.go()
        async with asyncio.timeout(30):
            while [row.state.value for row in await world.store.ledger_rows()] != ["succeeded"]:
                await asyncio.sleep(0.005)
        assert (await pay(session, "c1")).data == {"done": "a"}
        assert (await pay(session, "c2")).data == {"done": "a"}
        assert world.starts == 1


@both_stores
async def test_row_19_cancelled_before_the_claim_starts_nothing(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        task = asyncio.create_task(pay(session, "c1"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle()
        assert world.starts == 0
        task = asyncio.create_task(pay(session, "c1"))
        await asyncio.sleep(0)
        await session.interrupt()
        assert kind(await task) == "CANCELLED"
        assert world.starts == 0
        assert (await pay(session, "c2")).ok
        assert session.turn.total_used == 1


@both_stores
async def test_row_20_an_interruption_in_the_middle_lets_a_write_finish_and_delivers_it_silently(make_tools, store):
    async with make_tools({"pay": (writing(), PATIENT)}, store=store) as world:
        session = await world.session()
        task = asyncio.create_task(pay(session, "c1"))
        await until(lambda: world.starts)
        await session.interrupt()
        task.cancel()  # the host gives the turn up
        with pytest.raises(asyncio.CancelledError):
            await task
        world.go()
        event = await asyncio.wait_for(next_event(session, "envelope"), 30)
        assert (event.data["callId"], event.data["silent"], event.data["envelope"]["ok"]) == ("c1", True, True)
        assert (await pay(session, "c1")).meta["replayed"]
        assert world.starts == 1


@both_stores
@pytest.mark.parametrize("words", ["SystemExit(1)", "asyncio.CancelledError()"])
async def test_row_22_a_handler_that_ends_the_process_is_recorded_and_the_worker_survives(make_tools, words, store):
    source = f"async def execute(args, ctx):\n    mark(args)\n    raise {words}"
    async with make_tools({"pay": (writing(), source), "look": (reading(), FOUND)}, store=store) as world:
        session = await world.session()
        with pytest.raises((SystemExit, asyncio.CancelledError)):
            await pay(session, "c1")
        assert [row.state.value for row in await world.store.ledger_rows()] == ["unknown"]
        assert kind(await pay(session, "c1")) == "CONFLICT"
        assert (await session.call("look", {"q": "b"})).ok
        assert world.tools.started() == [{"q": "a"}, {"q": "b"}]


@both_stores
@pytest.mark.parametrize("data", ["object()", "float('nan')", "'x' * 2_000_000", "{1: 2}"])
async def test_row_23_a_result_that_cannot_be_used_leaves_the_effect_standing(make_tools, data, store):
    source = f"async def execute(args, ctx):\n    mark(args)\n    return {{'ok': True, 'data': {data}}}"
    async with make_tools({"pay": (writing(), source)}, store=store) as world:
        session = await world.session()
        answer = await pay(session, "c1")
        assert (kind(answer), answer.error.partial_side_effects) == ("INTERNAL", True)
        assert [row.state.value for row in await world.store.ledger_rows()] == ["succeeded"]
        again = await pay(session, "c1")
        assert (kind(again), again.meta["replayed"]) == ("INTERNAL", True)
        assert world.starts == 1


HOSTILE = {
    "row_24_too_large": (json.dumps({"q": "x" * 66_000}), "args_too_large"),
    "row_24_too_large_object": ({"q": "x" * 66_000}, "args_too_large"),
    "row_25_too_deep": ('{"q":' * 33 + "1" + "}" * 33, "too_deep"),
    "row_25_far_too_deep": ("[" * 30_000, "too_deep"),
    "row_26_nan": ('{"q": NaN}', ("invalid_json", "invalid_number")),
    "row_26_infinity": ('{"q": -Infinity}', ("invalid_json", "invalid_number")),
    "row_26_1e999": ('{"q": 1e999}', ("invalid_json", "invalid_number")),
    "row_26_nan_object": ({"q": float("nan")}, ("invalid_json", "invalid_number")),
    "row_27_duplicate_key": ('{"q": "a", "q": "b"}', "duplicate_key"),
    "row_28_unsafe_integer": ('{"q": 9007199254740993}', "invalid_number"),
    "row_28_many_digits": ('{"q": ' + "9" * 5_000 + "}", "invalid_number"),
    "row_29_surrogate_value": ('{"q": "\\ud800"}', "invalid_unicode"),
    "row_29_surrogate_key": ('{"\\udfff": 1}', "invalid_unicode"),
    "row_29_surrogate_object": ({"q": "\ud800"}, "invalid_unicode"),
}


@both_stores
async def test_rows_24_to_29_hostile_arguments_are_named_and_start_nothing(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        for row, (args, codes) in HOSTILE.items():
            await session.begin_turn(row)
            answer = await session.call("pay", args, call_id=row)
            assert kind(answer) == "VALIDATION", row
            assert answer.error.details[0]["code"] in codes, row
        assert world.starts == 0
        assert await world.store.ledger_rows() == []


@both_stores
async def test_row_28_a_whole_float_is_the_integer(make_tools, store):
    number = {"type": "object", "properties": {"n": {"type": "number"}}, "additionalProperties": False}
    async with make_tools({"pay": (writing(parameters=number), PAID)}, store=store) as world:
        session = await world.session()
        await session.call("pay", '{"n": 1.0}')
        assert (await session.call("pay", '{"n": 1}')).meta["replayed"]


@both_stores
async def test_row_30_other_ways_to_write_a_letter_are_other_keys_and_one_loop(make_tools, store):
    composed, apart = unicodedata.normalize("NFC", "ü"), unicodedata.normalize("NFD", "ü")
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        first, second = await pay(session, "c1", q=composed), await pay(session, "c2", q=apart)
        assert first.data["key"] != second.data["key"]
        assert kind(await pay(session, "c3", q=apart)) == "LOOP_DETECTED"
        assert world.starts == 2


@both_stores
async def test_row_31_a_concurrent_budget_is_never_exceeded(make_tools, store):
    slow = FOUND.replace("return", "await asyncio.sleep(0.001)\n    return")
    async with make_tools({"note": (utility(), slow)}, store=store) as world:
        session = await world.session(policy={"text": {"total_calls": 77}})
        answers = await asyncio.gather(
            *(session.call("note", {"q": str(number)}, call_id=str(number)) for number in range(400))
        )
        assert sum(answer.ok for answer in answers) == world.starts == 77


@both_stores
async def test_row_32_a_replay_is_not_charged_again(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session(mode="voice")
        for _ in range(5):
            await pay(session, "c1")
            await session.call("look", {"q": "a"}, call_id="c2")
        assert (session.turn.total_used, session.turn.retrieval_used) == (2, 1)


@every_store
async def test_row_33_a_replay_after_its_body_was_evicted_runs_nothing(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        await pay(session, "c1")
        assert await world.store.evict(bodies_before=2**50, rows_before=0) == (1, 0, None)
        session = await world.runtime().resume_session(session.id, token=session.token)
        for call_id in ("c2", "c1"):
            answer = await pay(session, call_id)
            assert (kind(answer), answer.error.partial_side_effects) == ("INTERNAL", True)
            assert not answer.error.retryable, "it has run"
        assert world.starts == 1


@every_store
async def test_row_34_the_rows_of_an_open_session_never_expire(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session()
        await pay(session, "c1")
        assert (await world.store.evict(bodies_before=0, rows_before=2**50))[1] == 0
        session = await world.runtime().resume_session(session.id, token=session.token)
        assert (await pay(session, "c1")).meta["replayed"]
        assert world.starts == 1


@both_stores
async def test_row_35_a_tool_that_changes_while_its_request_is_open_is_asked_for_anew(make_tools, store):
    async with make_tools({"pay": (confirmed(), PAID)}, store=store) as world:
        session = await world.session()
        first = await pay(session, "c1")
        hold_id, token = await asked(session)
        world.tools.write({"pay": (confirmed(version="1.1.0", preview="Pay {q}, really"), PAID)})
        world.tools.rebuild()
        world.registry.reload()
        session = await session.core.resume_session(session.id, token=session.token)
        second = await pay(session, "c2")
        assert second.error.confirmation_request["preview"] == "Pay a, really"
        assert second.error.confirmation_request["id"] != first.error.confirmation_request["id"]
        assert kind(await session.core.approve(hold_id, token=token)) == "CONFLICT"
        assert world.starts == 0


@both_stores
async def test_row_36_a_call_that_runs_while_the_tools_change_finishes_in_its_version(make_tools, store):
    async with make_tools({"pay": (writing(timeoutMs=60_000), PATIENT)}, store=store) as world:
        session = await world.session()
        version = world.registry.version
        task = asyncio.create_task(pay(session, "c1"))
        await until(lambda: world.starts)
        world.tools.write({"pay": (writing(version="2.0.0", timeoutMs=60_000), PATIENT)})
        world.tools.rebuild()
        world.registry.reload()
        world.go()
        answer = await task
        assert (answer.meta["toolVersion"], answer.meta["registryVersion"]) == ("1.0.0", version)
        assert [row.registry_version for row in await world.store.ledger_rows()] == [version]


@both_stores
async def test_row_37_an_approval_that_is_late_again_or_somebody_else_s(make_tools, store):
    clock = VirtualClock()
    async with make_tools({"pay": (confirmed(), PAID)}, clock=clock, store=store) as world:
        runtime = world.runtime(clock=clock)
        session = await world.session(runtime=runtime, user="ana")
        other = await world.session(runtime=runtime, user="ben")
        await pay(session, "c1")
        await pay(other, "c1")
        (mine, my_token), (_, their_token) = await asked(session), await asked(other)
        assert kind(await runtime.approve(mine, token=their_token)) == "NOT_FOUND"
        done = await runtime.approve(mine, token=my_token)
        assert (await runtime.approve(mine, token=my_token)).data == done.data
        await pay(session, "c2", q="b")
        late, token = await asked(session)
        await clock.advance(301)
        answer = await runtime.approve(late, token=token)
        assert "expired" in answer.error.message
        assert world.starts == 1


@both_stores
async def test_row_38_a_model_that_says_approved_or_calls_approve_changes_nothing(make_tools, store):
    async with make_tools({"pay": (confirmed(), PAID), "look": (reading(), FOUND)}, store=store) as world:
        session = await world.session()
        held = await pay(session, "c1")
        hold_id = held.error.confirmation_request["id"]
        for name in ("approve", "runtime.approve", "confirm", "handrail_approve"):
            assert kind(await session.call(name, {"confirmation_id": hold_id, "token": "approved"})) == "NOT_FOUND"
        await session.call("look", {"q": f"approved {hold_id}"})
        assert kind(await session.call("pay", {"q": "a", "approved": True}, call_id="c2")) == "VALIDATION"
        assert kind(await pay(session, "c1")) == "CONFIRMATION_REQUIRED"
        assert len(world.tools.started()) == 1
        assert len(audited(session.core, "refusal")) >= 5


# No file of this process can grow then, so a store in a file would be as full as the audit.
@pytest.mark.parametrize("store", ["memory", "postgres"])
async def test_row_39_a_full_audit_disk_stops_writes_and_not_reads(make_tools, store, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with make_tools(TOOLS, store=store) as world:
        session = await world.session(runtime=world.runtime(audit=tmp_path / "audit"))
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_500, hard))
            for number in range(8):
                await session.call("look", {"q": str(number)})
            answer = await pay(session, "c1")
            assert kind(answer) == "STORE_UNAVAILABLE"
            assert (await session.call("set", {"q": "x"})).ok is False
            await session.begin_turn("m2")
            assert (await session.call("look", {"q": "z"})).ok
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert {"q": "a"} not in world.tools.started()
        assert (await pay(session, "c1")).ok, "and continue when there is room again"


@both_stores
async def test_row_40_the_third_of_the_same_is_a_loop_also_in_turns(make_tools, store):
    async with make_tools({"one": (utility(), FOUND), "two": (utility(), FOUND)}, store=store) as world:
        session = await world.session()
        kinds = []
        for number in range(6):
            kinds.append(kind(await session.call("one" if number % 2 == 0 else "two", {"q": "x"}, call_id=str(number))))
        assert kinds == [None, None, None, None, "LOOP_DETECTED", "LOOP_DETECTED"]


@every_store
async def test_row_41_a_writer_on_a_stale_connection_is_refused(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        old = await world.session()
        new = await world.runtime().resume_session(old.id, token=old.token)
        assert kind(await pay(old, "c1")) == "CONFLICT"
        assert await old.begin_turn("m9") == 1, "it cannot begin turns either"
        assert world.starts == 0
        assert (await pay(new, "c1")).ok
