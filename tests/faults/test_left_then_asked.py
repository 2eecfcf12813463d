"""An idempotent write that a dead process left, taken over where a person is asked now: a yes runs it once more, a no ends it."""

import asyncio

import pytest
from tests.faults.accidents import die
from tests.faults.test_crash_points import QUICK
from tests.runtime.kit import PAID, asked, kind, next_event, writing
from tests.runtime.test_host_gates import Says
from tests.stores.values import StillClock

from handrail import AskPerson, Refuse
from handrail.contract.store import Finish, HoldState, LedgerState, StoreUnavailable
from handrail.stores import MemoryStore
from handrail.testing import CrashAt, Crashed, settle

TOOLS = {"pay": (writing(idempotent=True), PAID)}
CALL = {"call_id": "c1"}
STORES = pytest.mark.parametrize("store", ["memory", "sqlite"])


async def left(world, point="before_handler", **facts):
    """The session of a process that died at `point` of a call which nobody was asked about."""
    runtime = world.runtime(crash=CrashAt(point), policy=QUICK)
    session = await world.session(runtime=runtime, user="ana", **facts)
    with pytest.raises(Crashed):
        await session.call("pay", {"q": "a"}, **CALL)
    await die(world, runtime)
    return session


async def next_process(world, session, crash=None):
    """One whose gate sends every call to a person."""
    runtime = world.runtime(gates=[Says(AskPerson("look at it"))], policy=QUICK, crash=crash)
    return await runtime.resume_session(session.id, token=session.token)


async def held(world, session, crash=None, **call):
    session = await next_process(world, session, crash)
    assert kind(await session.call("pay", {"q": "a"}, **(call or CALL))) == "CONFIRMATION_REQUIRED"
    return session, *await asked(session)


async def only_row(world):
    (row,) = await world.store.ledger_rows()
    return row


@STORES
@pytest.mark.parametrize("point", ["after_claim", "before_handler", "after_handler", "before_finish"])
async def test_a_yes_runs_it_once_under_its_first_key(make_tools, store, point):
    async with make_tools(TOOLS, store=store) as world:
        session = await left(world, point)
        before = world.starts
        session, hold_id, token = await held(world, session)
        row = await only_row(world)
        assert (row.state, world.starts) == (LedgerState.RUNNING, before)
        outcome = await session.core.approve(hold_id, token=token)
        assert outcome.ok
        assert outcome.data["key"] == row.key, "the service downstream knows what it has seen of it"
        assert world.starts == before + 1
        assert (await session.core.approve(hold_id, token=token)).data == outcome.data
        again = await session.call("pay", {"q": "a"}, **CALL)
        assert (again.ok, again.meta["replayed"], world.starts) == (True, True, before + 1)
        settled = await only_row(world)
        assert (settled.state, settled.fence, settled.hold_id) == (LedgerState.SUCCEEDED, row.fence + 1, hold_id)
        assert (await world.store.hold_by_id(hold_id)).state is HoldState.CONSUMED


async def test_a_yes_to_the_same_call_under_another_id_runs_it_once(make_tools):
    async with make_tools(TOOLS) as world:
        session = await left(world)
        session, hold_id, token = await held(world, session, call_id="c2")
        outcomes = await asyncio.gather(*(session.core.approve(hold_id, token=token) for _ in range(3)))
        assert {kind(outcome) for outcome in outcomes} <= {None, "IN_PROGRESS"}
        assert (await session.core.approve(hold_id, token=token)).ok
        assert world.starts == 1


async def test_a_condition_that_asks_now_is_met_the_same_way(make_tools):
    fields = {"confirmation": {"when": 'mode == "voice"'}, "allowedModes": ["text", "voice"]}
    async with make_tools({"pay": (writing(idempotent=True, **fields), PAID)}) as world:
        session = await left(world)
        session = await world.runtime(policy=QUICK).resume_session(session.id, token=session.token)
        await session.set_mode("voice")
        assert kind(await session.call("pay", {"q": "a"}, **CALL)) == "CONFIRMATION_REQUIRED"
        hold_id, token = await asked(session)
        assert (await session.core.approve(hold_id, token=token)).ok
        assert world.starts == 1


@STORES
@pytest.mark.parametrize("point", ["after_approve", "before_claim", "after_claim", "before_handler", "after_handler"])
async def test_a_yes_whose_process_died_is_carried_out_by_the_next(make_tools, store, point):
    async with make_tools(TOOLS, store=store) as world:
        session, hold_id, token = await held(world, await left(world), CrashAt(point))
        runtime = session.core
        with pytest.raises(Crashed):
            await runtime.approve(hold_id, token=token)
        await die(world, runtime)
        before = world.starts
        session = await next_process(world, session)
        event = await asyncio.wait_for(next_event(session, "envelope"), 30)
        assert (event.data["callId"], event.data["envelope"]["ok"]) == ("c1", True)
        assert world.starts == before + 1
        assert (await session.core.approve(hold_id, token=token)).ok
        assert world.starts == before + 1


async def test_whoever_said_yes_can_say_so_again_to_the_next_process(make_tools):
    """Nobody has the session there: the approver's process carries it out."""
    async with make_tools(TOOLS) as world:
        session, hold_id, token = await held(world, await left(world), CrashAt("before_handler"))
        with pytest.raises(Crashed):
            await session.core.approve(hold_id, token=token)
        await die(world, session.core)
        runtime = world.runtime(policy=QUICK)
        assert (await runtime.approve(hold_id, token=token)).ok
        assert (await runtime.approve(hold_id, token=token)).ok
        assert world.starts == 1


async def test_a_yes_whose_process_died_is_not_carried_out_where_a_gate_refuses_it_now(make_tools):
    async with make_tools(TOOLS) as world:
        session, hold_id, token = await held(world, await left(world), CrashAt("before_handler"))
        with pytest.raises(Crashed):
            await session.core.approve(hold_id, token=token)
        await die(world, session.core)
        policy = {**QUICK, "text": {"wait_seconds": 0.05}}
        runtime = world.runtime(policy=policy, gates=[Says(Refuse("Not today.", "AUTH"))])
        assert kind(await runtime.approve(hold_id, token=token)) == "IN_PROGRESS"
        assert world.starts == 0


async def test_past_the_time_of_the_request_a_yes_whose_process_died_is_not_carried_out(make_tools):
    clock = StillClock()
    async with make_tools(TOOLS, store=MemoryStore(clock=clock)) as world:
        dead = await left(world)
        clock.pass_ms(50)  # longer than the lease
        session, hold_id, token = await held(world, dead, CrashAt("before_handler"))
        with pytest.raises(Crashed):
            await session.core.approve(hold_id, token=token)
        await die(world, session.core)
        clock.pass_ms(300_000)
        session = await next_process(world, session)
        await session.core.approvals.carry_out_granted(session)
        await settle()
        assert (world.starts, (await only_row(world)).state) == (0, LedgerState.RUNNING)


@STORES
async def test_a_no_settles_it(make_tools, store):
    async with make_tools(TOOLS, store=store) as world:
        session, hold_id, token = await held(world, await left(world))
        answer = await session.core.decline(hold_id, token=token)
        assert (kind(answer), answer.error.partial_side_effects) == ("DECLINED", True)
        row = await only_row(world)
        assert row.state is LedgerState.CANCELLED
        assert '"partialSideEffects":true' in row.envelope.replace(" ", ""), "the process that died may have run it"
        assert kind(await session.core.approve(hold_id, token=token)) == "DECLINED"
        assert kind(await session.call("pay", {"q": "a"}, **CALL)) == "DECLINED"
        await session.begin_turn("m2")
        assert kind(await session.call("pay", {"q": "a"}, **CALL)) == "DECLINED"
        assert world.starts == 0


async def test_an_outcome_that_became_known_answers_the_yes(make_tools):
    """The process that was taken for dead was only slow: it has finished while a person was asked."""
    async with make_tools(TOOLS) as world:
        session, hold_id, token = await held(world, await left(world))
        row = await only_row(world)
        late = '{"ok": true, "data": {"late": 1}, "intents": [], "meta": {}}'
        await world.store.finish(Finish(key=row.key, fence=row.fence, state=LedgerState.SUCCEEDED, envelope=late))
        outcome = await session.core.approve(hold_id, token=token)
        assert (outcome.ok, outcome.data, world.starts) == (True, {"late": 1}, 0)
        assert (await session.core.approve(hold_id, token=token)).data == {"late": 1}


async def test_a_yes_finds_the_call_on_its_way_in_its_own_process_and_carries_it_out_when_that_fails(make_tools):
    """The claim of the first connection is on its way. The next one is elsewhere, where a person is asked, and dies there."""
    async with make_tools(TOOLS) as world:
        runtime = world.runtime(policy={**QUICK, "approver_wait_seconds": 0.05})
        first = await world.session(runtime=runtime, user="ana")
        claim, reached, may_fail = world.store.claim, asyncio.Event(), asyncio.Event()

        async def away(one):
            if one.hold_id is not None:
                return await claim(one)
            reached.set()
            await may_fail.wait()
            raise StoreUnavailable("The store is away.")

        world.store.claim = away
        paying = asyncio.create_task(first.call("pay", {"q": "a"}, **CALL))
        await reached.wait()
        session, hold_id, token = await held(world, first)
        session.core._housekeeper.cancel()
        saying_yes = asyncio.create_task(runtime.approve(hold_id, token=token))
        await asyncio.wait((saying_yes,), timeout=0.5)
        assert not saying_yes.done(), "the call may yet be claimed"
        may_fail.set()
        assert kind(await paying) == "STORE_UNAVAILABLE"
        assert (await saying_yes).ok
        assert world.starts == 1
