"""Steps 14 to 16 where something happens in between: an interruption, a late end, a store or an audit log that fails."""

import asyncio
import json
from dataclasses import replace

import pytest
from tests.faults.accidents import Flaky
from tests.runtime.bank import kind as outcome
from tests.runtime.bank import meanwhile, open_bank
from tests.runtime.kit import (
    PAID,
    PATIENT,
    PATIENT_IN_A_THREAD,
    asked,
    audited,
    begins_at_once,
    confirmed,
    kind,
    next_event,
    until,
    writing,
)

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.store import Finish, LedgerState
from handrail.observe.audit import AuditLog
from handrail.stores import MemoryStore, SqliteStore
from handrail.testing import VirtualClock, settle

LATE_FAILURE = """
def execute(args, ctx):
    mark(args)
    while not (MARKS.parent / "go").exists():
        time.sleep(0.005)
    raise ToolError("PERMANENT", "The bank said no.")
"""
BLOCKS = """
async def execute(args, ctx):
    until = int(time.time()) + 3600
    return {"ok": True, "data": until, "intents": [
        {"type": "BLOCK_USER", "until": until}, {"type": "BLOCK_USER", "until": until - 1800}]}
"""
BLOCKS_AND_FAILS = """
async def execute(args, ctx):
    return {"ok": False, "error": {"type": "PERMANENT", "message": "No."}, "intents": [
        {"type": "BLOCK_USER", "until": time.time() + 3600}]}
"""


def other_outcome(row):
    """What somebody else has recorded of this call."""
    envelope = ToolResponse.failure(ErrorType.PERMANENT, "It was stopped by hand.").to_dict()
    return Finish(key=row.key, fence=row.fence, state=LedgerState.FAILED, envelope=json.dumps(envelope))


async def states(world):
    return [row.state for row in await world.store.ledger_rows()]


# Before the handler starts


class Interrupting(MemoryStore):
    """A user who interrupts while the claim is on its way."""

    session = None

    async def claim(self, claim):
        result = await super().claim(claim)
        if self.session is not None:
            await self.session.interrupt()
        return result


async def test_an_interruption_between_claim_and_handler_starts_nothing_and_costs_nothing(make_tools):
    async with make_tools({"pay": (writing(), PAID)}, store=Interrupting()) as world:
        session = await world.session()
        world.store.session = session
        answer = await session.call("pay", {"q": "a"}, call_id="c1")
        assert kind(answer) == "CANCELLED"
        assert answer.error.retryable
        assert world.starts == 0
        assert await states(world) == [LedgerState.CANCELLED]
        assert session.turn.total_used == 0
        world.store.session = None
        assert (await session.call("pay", {"q": "a"}, call_id="c2")).ok
        assert world.starts == 1


async def test_an_interruption_before_the_claim_leaves_a_call_that_may_be_made_again(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        session = await world.session()
        task = asyncio.create_task(session.call("pay", {"q": "a"}, call_id="c1"))
        await asyncio.sleep(0)
        await session.interrupt()
        answer = await task
        assert (kind(answer), answer.error.retryable) == ("CANCELLED", True)
        assert await states(world) == []


async def test_an_interruption_between_claim_and_handler_does_not_stop_what_a_person_has_approved(make_tools):
    async with make_tools({"pay": (confirmed(), PAID)}, store=Interrupting()) as world:
        session = await world.session()
        await session.call("pay", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        world.store.session = session
        assert (await session.core.approve(hold_id, token=token)).ok
        assert world.starts == 1


async def test_a_call_that_became_unknown_before_its_claim_is_told_so_and_costs_nothing(make_tools):
    """Another process has claimed it in between, and died."""
    async with make_tools({"pay": (writing(), PAID)}) as world:
        session = await world.session()
        claim = world.store.claim

        async def too_late(one):
            await claim(replace(one, owner="another", claim_id="another's"))
            await world.store.finish(Finish(key=one.key, fence=1, state=LedgerState.UNKNOWN, envelope="{}"))
            return await claim(one)

        world.store.claim = too_late
        answer = await session.call("pay", {"q": "a"}, call_id="c1")
        assert (kind(answer), answer.error.partial_side_effects) == ("CONFLICT", True)
        assert "not known" in answer.error.message
        assert (world.starts, session.turn.total_used) == (0, 0)


class UnwritableAudit(AuditLog):
    """A log that finds out by writing that it cannot."""

    broken = False
    healthy = True

    def flush(self):
        self.healthy = not self.broken
        return self.healthy


async def test_the_first_write_of_a_runtime_already_looks_whether_the_audit_log_can_be_written(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        audit = UnwritableAudit(None)
        session = await world.session(audit=audit)
        audit.broken = True
        assert kind(await session.call("pay", {"q": "a"}, call_id="c1")) == "STORE_UNAVAILABLE"
        assert world.starts == 0
        audit.broken = False
        assert (await session.call("pay", {"q": "a"}, call_id="c1")).ok


async def test_a_limit_that_another_process_has_used_up_says_when_to_try_again(make_tools):
    limit = {"calls": 1, "windowMs": 60_000, "scope": "user"}
    async with make_tools({"pay": (writing(rateLimit=limit), PAID)}, store="sqlite") as world:
        first = await world.session(user="ana")
        second = await world.session(user="ana")
        assert (await first.call("pay", {"q": "a"}, call_id="c1")).ok
        answer = await second.call("pay", {"q": "b"}, call_id="c1")
        assert (kind(answer), answer.error.retryable) == ("RATE_LIMIT", True)
        assert 0 < answer.error.retry_after <= 60
        assert world.starts == 1


async def test_a_call_that_is_approved_in_a_later_turn_is_recorded_in_its_own():
    async with open_bank() as bank:
        held = await bank.hold()
        await held.session.begin_turn("something else")
        assert outcome(await bank.runtime.approve(held.id, token=held.token)) == "OK"
        (row,) = await bank.store.ledger_rows()
        assert (row.turn, row.ordinal) == (1, 1)


async def test_a_second_approval_at_the_same_time_does_not_wait_for_ever():
    async with open_bank() as bank:
        held, end = await bank.hold(), asyncio.Event()

        async def lasting(ctx, args):
            await end.wait()
            return {"ok": True, "data": 1}

        bank.book.acts["transfer_money"] = lasting
        first, second = (asyncio.create_task(bank.runtime.approve(held.id, token=held.token)) for _ in range(2))
        answer = await meanwhile(bank.clock, second)
        assert outcome(answer) == "IN_PROGRESS"
        end.set()
        assert outcome(await meanwhile(bank.clock, first)) == "OK"
        assert bank.book.sensitive == 1


# After the handler


async def test_a_write_that_fails_after_its_deadline_stays_unknown(make_tools):
    async with make_tools({"pay": (writing(timeoutMs=50), LATE_FAILURE)}) as world:
        session = await world.session()
        begins_at_once(session.core)
        assert kind(await session.call("pay", {"q": "a"}, call_id="c1")) == "TIMEOUT"
        world.go()
        await until(lambda: audited(session.core, "late_result"))
        await settle()
        assert await states(world) == [LedgerState.UNKNOWN]
        assert kind(await session.call("pay", {"q": "a"}, call_id="c2")) == "CONFLICT"
        assert world.starts == 1


async def test_a_late_end_that_cannot_be_stored_is_stored_when_the_store_is_back(make_tools, caplog):
    clock = VirtualClock()
    async with make_tools({"pay": (writing(timeoutMs=50), PATIENT_IN_A_THREAD)}, store=Flaky()) as world:
        session = await world.session(clock=clock)
        core = session.core
        begins_at_once(core)
        assert kind(await session.call("pay", {"q": "a"}, call_id="c1")) == "TIMEOUT"
        world.store.down, world.store.only = 10_000, "finish"
        world.go()
        await until(lambda: audited(core, "late_result"))
        for _ in range(8):
            await clock.advance(1)
        assert "Something beside the calls failed" not in caplog.text
        assert len(core.own_claims.unstored) == 1
        world.store.down = 0
        await core.claims.store_unstored()
        assert await states(world) == [LedgerState.SUCCEEDED]
        answer = await session.call("pay", {"q": "a"}, call_id="c1")
        assert (answer.data, answer.meta["duration"]) == ({"done": "a"}, 0), "nobody has waited for it"
        assert world.starts == 1


async def test_of_two_blocks_by_one_call_the_longer_is_stored_once(make_tools):
    async with make_tools({"tool": (writing(), BLOCKS)}) as world:
        blocks, block = [], world.store.block

        async def noted(one):
            blocks.append(one)
            await block(one)

        world.store.block = noted
        session = await world.session(user="u1")
        answer = await session.call("tool", {}, call_id="c1")
        await settle()
        assert blocks == [], "the outcome has it already"
        assert (await world.store.operating()).blocks["", "u1"] == answer.data * 1000
        assert session.core.blocks["", "u1"] == answer.data * 1000


async def test_a_block_is_stored_later_where_the_outcome_could_not_be(make_tools):
    clock = VirtualClock()
    async with make_tools({"tool": (writing(), BLOCKS)}, store=Flaky()) as world:
        session = await world.session(user="u1", clock=clock)
        world.store.down, world.store.only = 10_000, "finish"
        call = asyncio.create_task(session.call("tool", {}, call_id="c1"))
        await clock.advance(4)
        assert (await call).ok
        await settle()
        assert ("", "u1") in (await world.store.operating()).blocks


async def test_a_call_that_fails_blocks_nobody(make_tools):
    async with make_tools({"tool": (writing(), BLOCKS_AND_FAILS)}) as world:
        session = await world.session(user="u1")
        assert kind(await session.call("tool", {}, call_id="c1")) == "PERMANENT"
        assert not (await world.store.operating()).blocks


async def test_an_outcome_that_somebody_else_has_settled_is_the_one_that_is_told(make_tools):
    """The fence is still ours, and the row says otherwise: an operator has looked and decided meanwhile."""
    async with make_tools({"pay": (writing(), PATIENT)}) as world:
        session = await world.session()
        call = asyncio.create_task(session.call("pay", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        (row,) = await world.store.ledger_rows()
        await world.store.finish(other_outcome(row))
        world.go()
        answer = await call
        assert (kind(answer), answer.meta["replayed"]) == ("PERMANENT", True)


class Waiting(MemoryStore):
    """A store that takes its time over a claim."""

    def __init__(self):
        super().__init__()
        self.asked = asyncio.Event()

    async def claim(self, claim):
        self.asked.set()
        return await asyncio.Event().wait()


async def test_a_claim_that_is_ended_after_its_caller_left_delivers_nothing(make_tools):
    async with make_tools({"pay": (writing(), PATIENT)}, store=Waiting()) as world:
        failed = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failed.append(what))
        session = await world.session()
        call = asyncio.create_task(session.call("pay", {"q": "a"}, call_id="c1"))
        await world.store.asked.wait()
        (task,) = session.core.claims.tasks
        call.cancel()
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle()
        assert failed == []
        assert world.starts == 0


async def test_a_caller_who_leaves_before_the_claim_is_answered_starts_nothing(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        session = await world.session()
        claim, asked, may_claim = world.store.claim, asyncio.Event(), asyncio.Event()

        async def later(one):
            asked.set()
            await may_claim.wait()
            return await claim(one)

        world.store.claim = later
        call = asyncio.create_task(session.call("pay", {"q": "a"}, call_id="c1"))
        await asked.wait()
        call.cancel()
        await settle()
        (task,) = session.core.claims.tasks
        may_claim.set()
        assert kind(await task) == "CANCELLED"
        assert await states(world) == [LedgerState.CANCELLED]
        assert world.starts == 0


@pytest.mark.parametrize("where", ["store", "handler"])
async def test_a_call_that_breaks_after_its_caller_left_delivers_nothing(make_tools, where):
    ends = 'raise SystemExit("The process ends.")'
    async with make_tools({"pay": (writing(), PATIENT.replace("return", f"{ends}\n    return"))}) as world:
        failed = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failed.append(what))
        session = await world.session()
        asked, broken = asyncio.Event(), asyncio.Event()

        async def breaks(claim):
            asked.set()
            await broken.wait()
            raise RuntimeError("The store has a fault.")

        if where == "store":
            world.store.claim = breaks
        call = asyncio.create_task(session.call("pay", {"q": "a"}, call_id="c1"))
        await (asked.wait() if where == "store" else until(lambda: world.starts))
        (task,) = session.core.claims.tasks
        call.cancel()
        await settle()
        broken.set()
        world.go()
        await asyncio.wait((task,))
        await settle()
        assert failed == []
        assert session.events_queue.waiting() == ()


async def test_the_end_of_a_call_whose_caller_left_is_delivered_later(make_tools):
    async with make_tools({"pay": (writing(), PATIENT)}) as world:
        session = await world.session()
        call = asyncio.create_task(session.call("pay", {"q": "a"}, call_id="c1"))
        await until(lambda: world.starts)
        call.cancel()
        await settle()
        world.go()
        event = await asyncio.wait_for(next_event(session, "envelope"), 20)
        assert (event.call_id, event.silent, event.envelope["data"]) == ("c1", True, {"done": "a"})


async def test_refusals_by_the_claim_count_towards_no_loop(make_tools, tmp_path):
    async with make_tools({"pay": (writing(), PAID)}, store="sqlite") as world:
        session = await world.session()
        session.core._housekeeper.cancel()  # who would read the switch before the claim does
        elsewhere = SqliteStore(tmp_path / "store.db")
        await elsewhere.open()
        await elsewhere.switch("pay", "It is broken.")
        await elsewhere.close()
        answers = [await session.call("pay", {"q": str(number)}, call_id=f"c{number}") for number in range(8)]
        assert {kind(answer) for answer in answers} == {"UNAVAILABLE"}
        assert world.starts == 0


async def test_a_handler_that_cannot_be_loaded_is_not_claimed(make_tools):
    async with make_tools({"pay": (writing(), "nothing = 1 / 0\n" + PAID)}) as world:
        session = await world.session()
        answer = await session.call("pay", {"q": "a"}, call_id="c1")
        assert (kind(answer), answer.error.partial_side_effects) == ("INTERNAL", False)
        assert await states(world) == []


async def test_the_store_knows_before_the_first_claim_that_lines_may_be_left_out(make_tools, tmp_path):
    async with make_tools({"pay": (writing(), PAID)}, store="sqlite") as world:
        asked, begin_audit, claim = [], world.store.begin_audit, world.store.claim

        async def begun(owner):
            asked.append("begin_audit")
            await begin_audit(owner)

        async def claimed(one):
            asked.append("claim")
            return await claim(one)

        world.store.begin_audit, world.store.claim = begun, claimed
        session = await world.session(audit=tmp_path / "audit")
        for call_id in ("c1", "c2"):
            assert (await session.call("pay", {"q": call_id}, call_id=call_id)).ok
        assert asked == ["begin_audit", "claim", "claim"]
