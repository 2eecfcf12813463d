"""A call is on its way when its connection is replaced: what becomes of it is the answer on the next connection too, and where
nothing becomes of it, nothing stands in the way of the same call there."""

import asyncio

import pytest
from tests.faults.accidents import Flaky, die
from tests.runtime.kit import PAID, CrashSwitch, asked, confirmed, kind, next_event, until, writing

from handrail.testing import CrashAt, Crashed, settle

SLOWLY_PAID = """
async def execute(args, ctx):
    mark(args)
    await ctx.gate.wait()
    return {"ok": True, "data": {"paid": args.get("q", "")}}
"""
TOOLS = {
    "pay": (writing(), SLOWLY_PAID),
    "set": (writing(idempotent=True, timeoutMs=60_000), SLOWLY_PAID),
    "note": (writing(), PAID),
    "transfer": (confirmed(), PAID),
}
QUICK = {"lease_ms": 20}
IMPATIENT = {**QUICK, "text": {"wait_seconds": 0.05}}


@pytest.fixture
def gate():
    return asyncio.Event()


@pytest.fixture
def world(make_tools):
    return make_tools(TOOLS, store=Flaky())


def held_up(world, name, gate, away):
    """The store's next `name` waits for the gate, and then fails once if the store is away."""
    happen, reached = getattr(world.store, name), asyncio.Event()

    async def later(*args):
        setattr(world.store, name, happen)
        reached.set()
        await gate.wait()
        if away:
            world.store.down, world.store.only = 1, name
        return await happen(*args)

    setattr(world.store, name, later)
    return reached


async def resumed(session, runtime=None):
    return await (runtime or session.core).resume_session(session.id, token=session.token)


async def under_way(world, gate, tool, name, *, away=False, policy=IMPATIENT):
    """A call whose `name` in the store is held up, and the connection after its own."""
    old = await world.session(runtime=world.runtime(policy=policy, capabilities={"gate": gate}))
    reached = held_up(world, name, gate, away)
    first = asyncio.create_task(old.call(tool, {"q": "a"}, call_id="c1"))
    await reached.wait()
    return first, await resumed(old)


@pytest.mark.parametrize("call_id", ["c1", "c2"])
@pytest.mark.parametrize("away", [False, True])
async def test_a_claim_that_came_too_late_leaves_nothing_behind(world, gate, call_id, away):
    async with world:
        first, session = await under_way(world, gate, "note", "claim", away=away)
        assert kind(await session.call("note", {"q": "a"}, call_id=call_id)) == "IN_PROGRESS"
        gate.set()
        assert kind(await first) == "CONFLICT", "its connection was replaced"
        assert (await session.call("note", {"q": "a"}, call_id=call_id)).ok
        assert world.starts == 1


async def test_a_call_whose_connection_is_replaced_before_its_claim_is_made_starts_nothing(world, gate):
    async with world:
        session = await resumed(await world.session(runtime=world.runtime(policy=IMPATIENT)))
        reached = held_up(world, "unknown_like", gate, away=False)
        first = asyncio.create_task(session.call("note", {"q": "a"}, call_id="c1"))
        await reached.wait()
        session = await resumed(session)
        gate.set()
        assert kind(await first) == "CONFLICT", "its connection was replaced"
        assert world.starts == 0
        assert (await session.call("note", {"q": "a"}, call_id="c1")).ok
        assert world.starts == 1


@pytest.mark.parametrize("call_id", ["c1", "c2"])
async def test_a_call_that_waits_for_such_a_claim_goes_on_when_it_fails(world, gate, call_id):
    async with world:
        first, session = await under_way(world, gate, "note", "claim", policy=QUICK)
        again = asyncio.create_task(session.call("note", {"q": "a"}, call_id=call_id))
        await settle()
        gate.set()
        assert (await again).ok
        assert kind(await first) == "CONFLICT"
        assert world.starts == 1


@pytest.mark.parametrize("call_id", ["c1", "c2"])
async def test_an_execution_that_ends_after_the_resume_is_the_answer(world, gate, call_id):
    async with world:
        old = await world.session(runtime=world.runtime(policy=IMPATIENT, capabilities={"gate": gate}))
        first = asyncio.create_task(old.call("pay", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        session = await resumed(old)
        assert kind(await session.call("pay", {"q": "a"}, call_id=call_id)) == "IN_PROGRESS"
        gate.set()
        assert (await first).ok
        again = await session.call("pay", {"q": "a"}, call_id=call_id)
        assert (again.data, again.meta["replayed"], world.starts) == ({"paid": "a"}, True, 1)


async def test_a_running_call_that_is_delivered_again_is_not_taken_for_the_next_one(world, gate):
    """The model knows the first under its own id, so that the same under a further id is a second wish."""
    async with world:
        old = await world.session(runtime=world.runtime(policy=IMPATIENT, capabilities={"gate": gate}))
        first = asyncio.create_task(old.call("pay", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        session = await resumed(old)
        assert kind(await session.call("pay", {"q": "a"}, call_id="c1")) == "IN_PROGRESS"
        gate.set()
        assert (await first).ok
        second = await session.call("pay", {"q": "a"}, call_id="c2")
        assert (second.ok, second.meta.get("replayed"), world.starts) == (True, None, 2)


@pytest.mark.parametrize("call_id", ["c1", "c2"])
async def test_a_claim_waits_for_an_owner_that_is_too_busy_to_renew_its_lease(world, gate, call_id):
    async with world:
        policy = {**QUICK, "text": {"wait_seconds": 60}}
        old = await world.session(runtime=world.runtime(policy=policy, capabilities={"gate": gate}))
        first = asyncio.create_task(old.call("set", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        old.core._housekeeper.cancel()
        await asyncio.sleep(0.03)  # longer than the lease
        session = await resumed(old, world.runtime(policy=policy, capabilities={"gate": gate}))
        again = asyncio.create_task(session.call("set", {"q": "a"}, call_id=call_id))
        await asyncio.sleep(0.1)
        assert not again.done()
        gate.set()
        async with asyncio.timeout(30):
            answer = await again
        assert (answer.data, answer.meta["replayed"]) == ({"paid": "a"}, True)
        assert (await first).ok
        assert world.starts == 1


async def test_a_claim_waits_no_longer_than_its_patience_for_a_busy_owner(world, gate):
    async with world:
        old = await world.session(runtime=world.runtime(policy=IMPATIENT, capabilities={"gate": gate}))
        first = asyncio.create_task(old.call("set", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        old.core._housekeeper.cancel()
        await asyncio.sleep(0.03)  # longer than the lease
        session = await resumed(old, world.runtime(policy=IMPATIENT, capabilities={"gate": gate}))
        async with asyncio.timeout(5):
            assert kind(await session.call("set", {"q": "a"}, call_id="c1")) == "IN_PROGRESS"
        gate.set()
        assert (await first).ok
        assert world.starts == 1


@pytest.mark.parametrize("call_id", ["c1", "c2"])
async def test_an_execution_whose_process_died_is_in_doubt_at_once(world, gate, call_id):
    async with world:
        old = await world.session(runtime=world.runtime(policy=IMPATIENT, capabilities={"gate": gate}))
        other = world.runtime(policy=IMPATIENT, capabilities={"gate": gate})
        first = asyncio.create_task(old.call("pay", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        session = await resumed(old, other)
        assert kind(await session.call("pay", {"q": "a"}, call_id=call_id)) == "IN_PROGRESS"
        finish, world.store.finish = world.store.finish, lambda _: asyncio.Event().wait()  # it records nothing any more
        await die(world, old.core)
        world.store.finish = finish
        again = await session.call("pay", {"q": "a"}, call_id=call_id)
        assert (kind(again), again.error.partial_side_effects, world.starts) == ("CONFLICT", True, 1)
        first.cancel()


@pytest.mark.parametrize("call_id", ["c1", "c2"])
@pytest.mark.parametrize("next_turn", [False, True])
async def test_a_request_that_is_made_while_the_connection_changes_is_asked_and_carried_out_once(
    world, gate, call_id, next_turn
):
    async with world:
        first, session = await under_way(world, gate, "transfer", "hold")
        if next_turn:
            await session.begin_turn("m2")
        gate.set()
        assert kind(await first) == "CONFIRMATION_REQUIRED"
        hold_id, token = await asked(session)
        again = await session.call("transfer", {"q": "a"}, call_id=call_id)
        assert again.error.confirmation_request["id"] == hold_id
        assert (await session.core.approve(hold_id, token=token)).ok
        assert (await next_event(session, "envelope")).data["confirmationId"] == hold_id
        assert (await session.call("transfer", {"q": "a"}, call_id=call_id)).data["paid"] == "a"
        assert world.starts == 1


async def test_a_request_that_is_made_while_the_connection_changes_can_be_approved_unasked_again(world, gate):
    async with world:
        first, session = await under_way(world, gate, "transfer", "hold")
        gate.set()
        await first
        hold_id, token = await asked(session)
        assert (await session.core.approve(hold_id, token=token)).ok
        assert world.starts == 1


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_a_no_just_before_a_crash_is_the_answer_where_the_session_goes_on(make_tools, store):
    async with make_tools({"pay": (confirmed(), PAID)}, store=store) as world:
        session = await world.session()
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        await session.core.decline(hold_id, token=token)
        await die(world, session.core)
        session = await world.runtime().resume_session(session.id, token=session.token)
        for call_id in ("c1", "c2", None):
            assert kind(await session.call("pay", {"q": "a"}, call_id=call_id)) == "DECLINED"
        assert kind(await session.call("pay", {"q": "b"}, call_id="c3")) == "CONFIRMATION_REQUIRED"
        await session.begin_turn("m2")
        assert kind(await session.call("pay", {"q": "a"}, call_id="c4")) == "CONFIRMATION_REQUIRED"


async def test_an_earlier_turns_no_is_not_the_answer_where_the_session_goes_on(make_tools):
    async with make_tools({"pay": (confirmed(), PAID)}) as world:
        session = await world.session()
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        await session.core.decline(hold_id, token=token)
        await session.begin_turn("m2")
        await die(world, session.core)
        session = await world.runtime().resume_session(session.id, token=session.token)
        assert kind(await session.call("pay", {"q": "a"}, call_id="c2")) == "CONFIRMATION_REQUIRED"


async def test_a_no_in_another_process_just_before_a_reconnect_is_heard(make_tools):
    async with make_tools({"pay": (confirmed(), PAID)}) as world:
        session = await world.session()
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        await world.runtime().decline(hold_id, token=token)
        session = await session.core.resume_session(session.id, token=session.token)
        event = await asyncio.wait_for(next_event(session, "envelope"), 2)
        assert event.data["envelope"]["error"]["type"] == "DECLINED"
        assert kind(await session.call("pay", {"q": "a"}, call_id="c2")) == "DECLINED"


async def test_the_second_of_two_identical_calls_that_a_dead_process_left_goes_on_as_the_second(make_tools):
    async with make_tools({"set": (writing(idempotent=True), PAID)}) as world:
        switch = CrashSwitch()
        session = await world.session(runtime=world.runtime(policy=QUICK, crash=switch))
        first = await session.call("set", {"q": "a"}, call_id="c1")
        switch.hook = CrashAt("after_claim")
        with pytest.raises(Crashed):
            await session.call("set", {"q": "a"}, call_id="c2")
        left = next(row for row in await world.store.ledger_rows() if row.ordinal == 2)
        await die(world, session.core)
        session = await resumed(session, world.runtime(policy=QUICK))
        second = await session.call("set", {"q": "a"}, call_id="c2")
        assert (second.data["key"], "replayed" in second.meta) == (left.key, False)
        assert (await session.call("set", {"q": "a"}, call_id="c1")).data == first.data
        assert sorted(row.ordinal for row in await world.store.ledger_rows()) == [1, 2]
        assert world.starts == 2


async def test_a_duplicate_whose_first_was_refused_meanwhile_is_no_second_wish(world, gate):
    """It has seen that its id stands for the execution in the other process; while it looks that up, the claim is refused."""
    async with world:
        here = await world.session(runtime=world.runtime(policy=QUICK, capabilities={"gate": gate}))
        running = asyncio.create_task(here.call("set", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        here.core._housekeeper.cancel()  # its lease ends, but it lives: whoever claims hears that it runs
        await asyncio.sleep(0.03)
        session = await resumed(here, world.runtime(policy=IMPATIENT, capabilities={"gate": gate}))
        may_claim, may_look = asyncio.Event(), asyncio.Event()
        claiming = held_up(world, "claim", may_claim, False)
        first = asyncio.create_task(session.call("set", {"q": "a"}, call_id="c2"))
        await claiming.wait()
        looking = held_up(world, "ledger_row", may_look, False)
        duplicate = asyncio.create_task(session.call("set", {"q": "a"}, call_id="c2"))
        await looking.wait()
        may_claim.set()
        assert kind(await first) == "IN_PROGRESS"
        may_look.set()
        assert kind(await duplicate) == "IN_PROGRESS"
        gate.set()
        assert (await running).ok
        assert (await session.call("set", {"q": "a"}, call_id="c2")).meta["replayed"]
        assert world.starts == 1


async def test_of_two_that_continue_for_a_dead_process_at_once_the_second_runs_when_the_first_is_refused(make_tools):
    async with make_tools({"set": (writing(idempotent=True), PAID)}, flaky=True) as world:
        switch = CrashSwitch()
        session = await world.session(runtime=world.runtime(policy=IMPATIENT, crash=switch))
        switch.hook = CrashAt("after_claim")
        with pytest.raises(Crashed):
            await session.call("set", {"q": "a"}, call_id="c1")
        await die(world, session.core)
        session = await resumed(session, world.runtime(policy=IMPATIENT))
        used = session.turn.total_used
        world.store.down, world.store.only = 2, "claim"
        # "c1" is found by its id and "c2" by its content; whichever is begun last claims, and the other waits for it.
        second, first = await asyncio.gather(
            session.call("set", {"q": "a"}, call_id="c2"), session.call("set", {"q": "a"}, call_id="c1")
        )
        assert kind(first) == "STORE_UNAVAILABLE"
        assert second.ok, second
        assert "replayed" not in second.meta
        assert session.turn.total_used == used + 1, "its unit was given back before it started over"
        assert world.starts == 1
        again = await session.call("set", {"q": "a"}, call_id="c1")
        assert (again.data, again.meta["replayed"], world.starts) == (second.data, True, 1)


async def test_who_may_take_over_from_an_owner_that_lives_waits_for_its_outcome(world, gate):
    """The owner is too busy to renew its lease. Nobody hears "in progress" before the time for waiting is over."""
    async with world:
        here = await world.session(runtime=world.runtime(policy=QUICK, capabilities={"gate": gate}))
        running = asyncio.create_task(here.call("set", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        here.core._housekeeper.cancel()
        await asyncio.sleep(0.03)
        session = await resumed(here, world.runtime(policy=QUICK, capabilities={"gate": gate}))
        again = asyncio.create_task(session.call("set", {"q": "a"}, call_id="c2"))
        await asyncio.wait([again], timeout=0.3)
        assert not again.done()
        gate.set()
        assert (await running).ok
        assert (await again).meta["replayed"]
        assert world.starts == 1


async def test_who_waits_for_an_owner_that_dies_takes_over_at_once(world, gate):
    async with world:
        never = asyncio.Event()
        old = world.runtime(policy=QUICK, capabilities={"gate": never})
        here = await world.session(runtime=old)
        running = asyncio.create_task(here.call("set", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        old._housekeeper.cancel()
        await asyncio.sleep(0.03)
        session = await resumed(here, world.runtime(policy=QUICK, capabilities={"gate": gate}))
        again = asyncio.create_task(session.call("set", {"q": "a"}, call_id="c2"))
        await asyncio.wait([again], timeout=0.2)
        gate.set()
        await world.store.release_owner(old.owner)
        assert (await again).ok
        assert world.starts == 2, "what may run twice was begun anew by who took over"
        never.set()
        await running
