"""Row 14 where it is hardest: a claim was made unheard, and what comes next is an approval, or another connection."""

import asyncio

import pytest
from tests.faults.accidents import Flaky, FlakyFile, PatientClock
from tests.runtime.kit import PAID, asked, confirmed, kind, next_event, until, writing

from handrail.contract.store import Block, HoldState, StoreUnavailable
from handrail.testing import CrashAt, Crashed

SLOWLY_PAID = """
async def execute(args, ctx):
    mark(args)
    while not (MARKS.parent / "go").exists():
        await asyncio.sleep(0.005)
    return {"ok": True, "data": {"paid": args.get("q", "")}}
"""
TOOLS = {
    "pay": (confirmed(), PAID),
    "pay_slowly": (confirmed(timeoutMs=60_000), SLOWLY_PAID),
    "note": (writing(), PAID),
}


async def unheard(world, runtime):
    """A session with an approved call whose claim was made unheard: its request, and the secret."""
    session = await world.session(runtime=runtime, user="u1")
    await session.call("pay", {"q": "a"}, call_id="c1")
    hold_id, token = await asked(session)
    world.store.deaf, world.store.only = 2, "claim"
    answer = await runtime.approve(hold_id, token=token)
    assert kind(answer) == "STORE_UNAVAILABLE"
    assert "as soon as it can be" in answer.error.message, "it continues, and the person learns that"
    assert not answer.error.retryable
    assert await states(world) == ["running"]
    assert world.starts == 0
    return session, hold_id, token


async def answered(clock, work):
    """The answer, while time passes as far as it is needed."""
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(30):
        while not task.done():
            await clock.advance(0.25)
            await asyncio.sleep(0.005)
    return task.result()


async def states(world):
    return [row.state.value for row in await world.store.ledger_rows()]


@pytest.fixture
def clock():
    return PatientClock()


@pytest.fixture(params=["memory", "file"])
def world(make_tools, clock, tmp_path, request):
    if request.param == "memory":
        return make_tools(TOOLS, store=Flaky(clock=clock.milliseconds))
    clock.store = FlakyFile(tmp_path / "store.db", clock=clock.milliseconds)
    return make_tools(TOOLS, store=clock.store)


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


async def test_row_14_one_that_is_given_up_does_not_keep_the_others_back(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        session, *_ = await unheard(world, runtime)
        runtime.own_claims.unconfirmed_holds |= {f"conf_gone_{number}" for number in range(20)}
        await runtime.approvals.carry_out_unconfirmed()
        assert (await next_event(session, "envelope")).data["envelope"]["ok"]
        assert world.starts == 1


async def test_row_14_all_who_try_again_at_once_run_it_once(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        _, hold_id, token = await unheard(world, runtime)
        tries = [asyncio.create_task(runtime.approve(hold_id, token=token)) for _ in range(10)]
        await asyncio.gather(*(runtime.approvals.carry_out_unconfirmed() for _ in range(3)))
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
        assert kind(await answered(clock, other.approve(hold_id, token=token))) == "STORE_UNAVAILABLE"
        await answered(clock, until(lambda: world.starts))
        assert (world.starts, await states(world)) == (1, ["succeeded"])
        assert (await answered(clock, other.approve(hold_id, token=token))).ok


async def test_row_14_what_may_not_run_any_more_is_recorded_as_not_run(world, clock, caplog):
    async with world:
        runtime = world.runtime(clock=clock)
        session, hold_id, token = await unheard(world, runtime)
        await world.store.block(Block(tenant="", user="u1", until=clock.milliseconds() + 10_000_000))
        await runtime.housekeeper.learn()
        await clock.advance(0.6)
        assert kind(await answered(clock, runtime.approve(hold_id, token=token))) == "AUTH"
        assert (world.starts, await states(world)) == (0, ["running"])
        await idle(world, clock)
        assert "Something beside the calls failed" not in caplog.text
        await clock.advance(301)
        told = await answered(clock, next_event(session, "envelope"))
        assert told.data["envelope"]["error"]["type"] == "CANCELLED"
        assert "nothing was run" in told.data["envelope"]["error"]["message"]
        assert not told.data["envelope"]["error"]["retryable"], "the same request cannot be approved again"
        assert kind(await answered(clock, runtime.approve(hold_id, token=token))) == "CANCELLED"
        assert (world.starts, await states(world)) == (0, ["cancelled"])
        assert not runtime.own_claims.unconfirmed_holds


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


async def idle(world, clock, seconds=3):
    """Time in which the housekeeper would do whatever it does."""
    for _ in range(seconds * 4):
        await clock.advance(0.25)
    await clock.advance(0)  # for what is still under way


async def test_row_14_a_no_stops_an_approved_call_whose_claim_was_not_heard(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        session, hold_id, token = await unheard(world, runtime)
        assert kind(await runtime.decline(hold_id, token=token)) == "DECLINED"
        await idle(world, clock)
        assert (world.starts, await states(world)) == (0, ["cancelled"])
        assert kind(await answered(clock, runtime.approve(hold_id, token=token))) == "DECLINED"
        told = await next_event(session, "envelope")
        assert (told.data["confirmationId"], told.data["envelope"]["error"]["type"]) == (hold_id, "DECLINED")
        assert kind(await session.call("pay", {"q": "a"}, call_id="c1")) == "DECLINED"
        assert kind(await session.call("pay", {"q": "a"}, call_id="c2")) == "DECLINED"
        assert (world.starts, runtime.own_claims.unconfirmed, runtime.own_claims.given_up) == (0, {}, {})


async def test_row_14_a_no_that_cannot_be_recorded_yet_stops_it_too(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        _, hold_id, token = await unheard(world, runtime)
        world.store.down, world.store.only = 1, "finish"
        with pytest.raises(StoreUnavailable):
            await runtime.decline(hold_id, token=token)
        await idle(world, clock)
        assert (world.starts, await states(world)) == (0, ["cancelled"])
        assert kind(await answered(clock, runtime.approve(hold_id, token=token))) == "DECLINED"
        assert not runtime.own_claims.unconfirmed_holds


async def test_row_14_a_no_that_is_recorded_late_is_the_answer_though_the_user_is_blocked_by_then(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        _, hold_id, token = await unheard(world, runtime)
        runtime._housekeeper.cancel()  # the approver's next try records it
        world.store.down, world.store.only = 1, "finish"
        with pytest.raises(StoreUnavailable):
            await runtime.decline(hold_id, token=token)
        await world.store.block(Block(tenant="", user="u1", until=clock.milliseconds() + 10_000_000))
        await runtime.housekeeper.learn()
        assert kind(await answered(clock, runtime.approve(hold_id, token=token))) == "DECLINED"
        assert (world.starts, await states(world)) == (0, ["cancelled"])


async def test_row_14_a_no_takes_nothing_over_that_another_process_began(make_tools, clock):
    """Our claim never arrived. Another process was approved, began it and died: whoever wants to may continue with that."""
    async with make_tools({"pay": (confirmed(idempotent=True), PAID)}, store=Flaky(clock=clock.milliseconds)) as world:
        runtime = world.runtime(clock=clock)
        session = await world.session(runtime=runtime)
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        runtime._housekeeper.cancel()
        world.store.down, world.store.only = 2, "claim"
        assert kind(await runtime.approve(hold_id, token=token)) == "STORE_UNAVAILABLE"
        other = world.runtime(clock=clock, crash=CrashAt("before_handler"))
        with pytest.raises(Crashed):
            await answered(clock, other.approve(hold_id, token=token))
        await world.store.release_owner(other.owner)
        await clock.advance(20)  # longer than the lease
        before = await world.store.ledger_rows()
        assert kind(await runtime.decline(hold_id, token=token)) == "CONFLICT"
        assert await world.store.ledger_rows() == before
        assert (await answered(clock, world.runtime(clock=clock).approve(hold_id, token=token))).ok
        assert (world.starts, await states(world)) == (1, ["succeeded"])


async def test_row_14_several_who_say_no_at_once_are_all_answered(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        _, hold_id, token = await unheard(world, runtime)
        claim, delays, said = world.store.claim, iter((0.001, 0.02, 0.04)), asyncio.Event()

        async def slowly(one):
            said.set()
            await asyncio.sleep(next(delays))
            return await claim(one)

        world.store.claim = slowly
        noes = asyncio.gather(*(runtime.decline(hold_id, token=token) for _ in range(2)))
        await said.wait()  # before it, the housekeeper would be in time to carry it out
        await runtime.approvals.carry_out_unconfirmed()
        assert {kind(answer) for answer in await noes} == {"DECLINED"}
        await idle(world, clock)
        assert (world.starts, await states(world)) == (0, ["cancelled"])


async def test_row_14_a_no_while_it_is_tried_again_comes_before_the_handler(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        _, hold_id, token = await unheard(world, runtime)
        world.store.deaf = 1
        world.store.hold_failures_back()
        again = asyncio.create_task(runtime.approve(hold_id, token=token))
        await world.store.failing.wait()
        assert runtime.own_claims.under_way
        no = asyncio.create_task(runtime.decline(hold_id, token=token))
        await until(lambda: runtime.own_claims.given_up)
        world.store.may_fail.set()
        assert kind(await no) == "DECLINED"
        assert kind(await answered(clock, again)) == "CANCELLED"
        await idle(world, clock)
        assert (world.starts, await states(world)) == (0, ["cancelled"])


async def test_row_14_a_no_after_a_yes_that_could_not_be_claimed_is_taken(world, clock, monkeypatch):
    """The store went away before the claim, and was still away when the request should have been opened again."""
    async with world:
        runtime = world.runtime(clock=clock)
        session = await world.session(runtime=runtime)
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        world.store.down, world.store.only = 2, "claim"
        moving = world.store.move_hold

        async def away(hold_id, to, **more):
            if to is HoldState.PENDING:
                raise StoreUnavailable("The store is away.")
            return await moving(hold_id, to, **more)

        monkeypatch.setattr(world.store, "move_hold", away)
        assert "as soon as it can be" in (await runtime.approve(hold_id, token=token)).error.message
        assert kind(await runtime.decline(hold_id, token=token)) == "DECLINED"
        await idle(world, clock)
        assert (world.starts, await states(world)) == (0, [])


async def test_row_14_a_request_that_was_opened_again_says_so_and_waits(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        session = await world.session(runtime=runtime)
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        world.store.down, world.store.only = 2, "claim"
        answer = await runtime.approve(hold_id, token=token)
        assert "did not run" in answer.error.message
        assert answer.error.retryable
        await idle(world, clock)
        assert world.starts == 0
        assert (await answered(clock, runtime.approve(hold_id, token=token))).ok


async def test_row_14_a_no_is_too_late_once_another_process_runs_it(world, clock):
    """Our claim was not made; the process with the connection has claimed it since."""
    async with world:
        runtime = world.runtime(clock=clock)
        session = await world.session(runtime=runtime)
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        assert (await answered(clock, runtime.approve(hold_id, token=token))).ok
        key = (await world.store.hold_by_id(hold_id)).ledger_key
        runtime.own_claims.unconfirmed[key] = "a claim that was not made"
        assert kind(await runtime.decline(hold_id, token=token)) == "CONFLICT"
        assert await states(world) == ["succeeded"]


async def test_row_14_a_second_yes_does_not_put_a_running_call_in_doubt(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        session = await world.session(runtime=runtime)
        await session.call("pay_slowly", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        await clock.advance(299.9)
        claim, tries = world.store.claim, []

        async def only_the_first(one):
            tries.append(one)
            if len(tries) > 1:
                await asyncio.sleep(0.02)
                raise StoreUnavailable("The store is away.")
            return await claim(one)

        world.store.claim = only_the_first
        approvals = [asyncio.create_task(runtime.approve(hold_id, token=token)) for _ in range(2)]
        await until(lambda: world.starts)
        await asyncio.sleep(0.05)
        await clock.advance(1)
        (world.tools.root / "go").touch()
        assert all(answer.ok for answer in await asyncio.wait_for(asyncio.gather(*approvals), 30))
        assert (world.starts, await states(world)) == (1, ["succeeded"])


async def test_row_14_tries_that_fail_together_leave_the_claim_recognisable(world, clock):
    async with world:
        runtime = world.runtime(clock=clock)
        _, hold_id, token = await unheard(world, runtime)
        runtime._housekeeper.cancel()
        kept = dict(runtime.own_claims.unconfirmed)
        world.store.down = 4
        world.store.hold_failures_back()
        tries = [asyncio.create_task(runtime.approve(hold_id, token=token)) for _ in range(2)]
        await world.store.failing.wait()
        await clock.advance(0)  # the other is as far as it gets
        world.store.may_fail.set()
        assert {kind(answer) for answer in await asyncio.gather(*tries)} == {"STORE_UNAVAILABLE"}
        assert runtime.own_claims.unconfirmed == kept
        world.store.down = 0
        assert (await answered(clock, runtime.approve(hold_id, token=token))).ok
        assert (world.starts, await states(world)) == (1, ["succeeded"])
