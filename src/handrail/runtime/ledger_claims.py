"""Writing calls: claimed in the ledger before the handler runs, finished after it, answered from there ever after.

    key → (rate, loop, budget) → confirmation → claim → run → finish → settle

The claim and the handler run in a task of their own: a caller that goes away, or a user who interrupts, does not leave a
call half done. What is promised: per key, a writing, non-idempotent handler starts at most once.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType, RegistryError, UsageError
from handrail.contract.events import ConfirmationRunning
from handrail.contract.store import (
    Alias,
    Claim,
    ClaimResult,
    ClaimVerdict,
    Finish,
    Hold,
    LedgerRow,
    LedgerState,
    StoreUnavailable,
)
from handrail.runtime.admission import charge
from handrail.runtime.answers import StartOver
from handrail.runtime.attempt import Attempt, Refusal, Write
from handrail.runtime.dedup import LookAgain
from handrail.runtime.gates import budget, loop
from handrail.runtime.keys import args_digest, exact_digest, hash_key, held_key, id_in_message
from handrail.runtime.ledger_view import (
    declined,
    keep_unknown,
    not_heard,
    not_recorded,
    running,
    settle_from_row,
    state_of,
    stored_intents,
    unknown_answer,
    unknown_message,
    verdict_refusal,
)
from handrail.runtime.outcome import checked_result, failure_of
from handrail.runtime.rates import claim_charge
from handrail.runtime.replays import Entry
from handrail.runtime.shutdown import latest_end

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore

_FINISH_TRIES = 6


class Writing:
    """The writing half of the pipeline."""

    __slots__ = ("_audited", "_numbers", "claims", "core", "tasks", "under_way", "unfinished")

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core
        self.claims: dict[str, int] = {}
        """What this process runs: ledger key → fence. The housekeeper renews their leases."""
        self.under_way: dict[str, asyncio.Task[Any]] = {}
        """Who claims or runs what: ledger key → task. One at a time in this process, as all of it claim under one id."""
        self.unfinished: dict[str, Finish] = {}
        """Outcomes that could not be stored; the housekeeper tries again."""
        self.tasks: dict[asyncio.Task[Any], tuple[str, float]] = {}
        """What runs, with its tool and the time of the loop by which it has ended."""
        self._audited = False
        self._numbers = count(1)

    async def call(self, attempt: Attempt, needs_person: bool) -> ToolResponse:
        """Steps 9 to 16 for a writing or held call."""
        session, plan = attempt.session, attempt.plan
        attempt.digest = args_digest(plan.definition, attempt.args, attempt.canonical)
        attempt.exact = exact_digest(attempt.canonical) if plan.definition.dedupe_fields else attempt.digest
        attempt.write = Write(session.interruptions)
        by_id = attempt.key
        restored = session.calls_by_id.get(by_id) if by_id else None
        entry = Entry(plan.tool_id, attempt.raw_digest)
        entry.call_id = attempt.call.call_id
        if restored is not None and restored.ledger_key is not None:
            attempt.write.key = restored.ledger_key
        if by_id:
            # Before anything is awaited: the same id delivered at once a second time must find this one.
            session.calls_by_id[by_id] = entry
        else:
            attempt.key = hash_key(plan.tool_id, attempt.args, attempt.turn.number)
        try:
            return await self._answer(attempt, needs_person, entry)
        except StoreUnavailable as error:
            self._not_started(attempt)
            return self.core.answers.refuse_unrecorded(attempt, error)
        except asyncio.CancelledError:
            if not entry.kept:
                self._not_started(attempt)
                budget.give_back(attempt)
            raise
        finally:
            if not entry.kept and not entry.settled:
                # Refused, or answered from another: this entry stands for nothing.
                if session.calls_by_id.get(by_id) is entry:
                    del session.calls_by_id[by_id]
                if restored is not None:
                    # The id goes on standing for the execution that it stood for before.
                    session.calls_by_id.setdefault(by_id, restored)
                if session.writes.get(attempt.write.key) is entry:
                    del session.writes[attempt.write.key]
                entry.abandon()

    async def _answer(self, attempt: Attempt, needs_person: bool, entry: Entry) -> ToolResponse:
        session, turn = attempt.session, attempt.turn
        assert attempt.write is not None
        if not turn.stored:
            await self.core.turns.store(session, turn)
        # 9. Key
        known = await self._from_before(attempt)
        if known is not None:
            return known
        session.writes[attempt.write.key] = entry
        # 10. Rate limit, 11. loop, 12. budget
        refusal = charge(attempt) if attempt.write.takeover is None else None
        if refusal is not None:
            attempt.write.taken.pop(attempt.ordinal, None)
            return self.core.answers.refuse(attempt, refusal)
        # 13. Confirmation
        if needs_person:
            return await self.core.confirmations.hold(attempt, entry)
        # 14. Claim, 15. run, 16. settle
        return await self.carry_out(attempt, None, entry)

    async def _from_before(self, attempt: Attempt) -> ToolResponse | None:
        """What a request, a person's no, or an earlier execution answers; None if this call is the first of its kind."""
        session, write = attempt.session, attempt.write
        assert write is not None
        pair = (attempt.plan.tool_id, attempt.exact)
        while True:
            held = session.holds.get(pair)
            if held is not None:
                answer = await self.core.confirmations.answered_from(attempt, *held)
                if answer is not None:
                    return answer
            if pair in attempt.turn.declined:
                return self.core.answers.refuse(attempt, declined(attempt.plan.tool_id))
            try:
                return await self.core.dedup.known(attempt)
            except LookAgain:
                write.taken.pop(attempt.ordinal, None)

    async def carry_out(self, attempt: Attempt, hold: Hold | None, entry: Entry) -> ToolResponse:
        """Claim and run, in a task that outlives its caller."""
        entry.kept = True
        loop_now = asyncio.get_running_loop()
        task = loop_now.create_task(self._claim_and_run(attempt, hold, entry))
        self.tasks[task] = (attempt.plan.tool_id, latest_end(attempt, loop_now.time()))
        # What `asyncio.shield` does, with one callback instead of four.
        over: asyncio.Future[None] = loop_now.create_future()
        task.add_done_callback(partial(self._over, over))
        try:
            await over
            answer = task.result()
        except asyncio.CancelledError:
            if attempt.write is not None:
                attempt.write.left = hold is None
            if not task.cancelled():
                task.add_done_callback(lambda done: self._deliver_late(attempt, done))
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _over(self, over: asyncio.Future[None], task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if not over.done():
            over.set_result(None)

    async def _claim_and_run(self, attempt: Attempt, hold: Hold | None, entry: Entry) -> ToolResponse | BaseException:
        session, write = attempt.session, attempt.write
        assert write is not None
        key = write.key = hold.ledger_key if hold else write.key
        write.hold_id = hold.hold_id if hold else None
        while (there := session.writes.get(key)) is not None and there is not entry:
            try:
                return await self.core.answers.replay(attempt, there)
            except StartOver:
                if hold is None:
                    self._forget(attempt, entry, None)
                    budget.give_back(attempt)
                    raise
        first = self.under_way.get(key)
        if first is not None:
            return await self._after(first, attempt, hold, entry)
        current = asyncio.current_task()
        assert current is not None
        self.under_way[key] = current
        try:
            return await self._claim_alone(attempt, hold, entry, key)
        finally:
            del self.under_way[key]

    async def _after(
        self, first: asyncio.Task[Any], attempt: Attempt, hold: Hold | None, entry: Entry
    ) -> ToolResponse | BaseException:
        """What the first came to, for somebody who tries the same at the same time; it is waited for a little."""
        patience = asyncio.ensure_future(self.core.clock.sleep(attempt.session.limits.wait_seconds))
        try:
            await asyncio.wait((first, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if hold is None:
            self._forget(attempt, entry, None)
        elif entry.settled:
            return await self.core.answers.replay(attempt, entry)
        elif first.done() and not first.cancelled() and first.exception() is None:
            answer: ToolResponse | BaseException = first.result()
            return answer
        return self.core.answers.refuse(attempt, running(attempt.plan.tool_id), free=True)

    async def _claim_alone(
        self, attempt: Attempt, hold: Hold | None, entry: Entry, key: str
    ) -> ToolResponse | BaseException:
        session, write = attempt.session, attempt.write
        assert write is not None
        entry.ledger_key = key
        session.writes[key] = entry
        refusal = self._cannot_start(attempt, hold)
        if refusal is not None:
            self._forget(attempt, entry, hold)
            return self.core.answers.refuse(attempt, refusal, free=True)
        self.core.crash("before_claim")
        try:
            await self.core.audit_recovery.begin()
            result = await self.core.unconfirmed_claims.claimed(self._claim(attempt, key, hold))
        except StoreUnavailable as error:
            self._forget(attempt, entry, hold)
            if hold is None:
                return self.core.answers.refuse_unrecorded(attempt, error)
            return self.core.answers.refuse(attempt, not_heard(attempt.plan.tool_id, str(error)), free=True)
        self.core.crash("after_claim")
        if result.verdict not in (ClaimVerdict.CLAIMED, ClaimVerdict.TAKEN_OVER):
            return await self._not_claimed(attempt, entry, hold, result)
        self.claims[key] = write.fence = result.fence
        write.claimed = result.row
        try:
            return await self._execute(attempt, entry, key, result.fence, hold)
        finally:
            self.claims.pop(key, None)

    def _cannot_start(self, attempt: Attempt, hold: Hold | None) -> Refusal | None:
        """What is looked at last before the claim."""
        tool = attempt.plan.tool_id
        if self._was_cancelled(attempt, hold):
            message = f'"{tool}" was cancelled before it started.'
            return Refusal("interrupt", ErrorType.CANCELLED, message, rule="interrupt", retryable=True)
        if attempt.plan.writes and not self._can_be_audited():
            return not_recorded(attempt.plan.tool_id, "The audit log cannot be written.")
        try:
            _ = attempt.plan.tool.handler
        except RegistryError as error:
            self.core.log.error("%s", error)
            return Refusal("handler", ErrorType.INTERNAL, f'"{tool}" failed unexpectedly.', rule="load")
        return None

    def _was_cancelled(self, attempt: Attempt, hold: Hold | None) -> bool:
        write = attempt.write
        if hold is not None or write is None:
            # A person has approved it; nobody's connection matters, but that person's no.
            return hold is not None and hold.ledger_key in self.core.unconfirmed_claims.given_up
        return write.left or write.interruptions != attempt.session.interruptions

    async def _execute(
        self, attempt: Attempt, entry: Entry, key: str, fence: int, hold: Hold | None
    ) -> ToolResponse | BaseException:
        plan = attempt.plan
        passed_on: BaseException | None = None
        self.core.crash("before_handler")
        try:
            if self._was_cancelled(attempt, hold):
                budget.give_back(attempt)
                message = f'"{plan.tool_id}" was cancelled before it started.'
                response, raw = ToolResponse(False, None, ToolFailure(ErrorType.CANCELLED, message, True)), b""
            else:
                if (
                    hold is not None
                ):  # whoever shows the request sees that it runs, also where it was approved elsewhere
                    running = ConfirmationRunning(id=hold.hold_id, tool_id=plan.tool_id, call_id=attempt.call.call_id)
                    attempt.session.events_queue.emit(running)
                response, raw = await self.core.execution.run(attempt, self.core.execution.context(attempt, key))
        except BaseException as error:  # noqa: BLE001  # a process exit or cancellation: recorded here, raised again for the caller
            passed_on = error
            failure = ToolFailure(
                ErrorType.CANCELLED, f'"{plan.tool_id}" was ended before it finished.', False, plan.writes
            )
            response, raw = ToolResponse(False, None, failure), b""
        self.core.crash("after_handler")
        answer = await self.record(attempt, entry, key, fence, response, raw, cut_off=passed_on is not None)
        self.core.crash("before_delivery")
        return passed_on if passed_on is not None else answer

    async def record(
        self,
        attempt: Attempt,
        entry: Entry,
        key: str,
        fence: int,
        response: ToolResponse,
        raw: bytes,
        *,
        cut_off: bool = False,
    ) -> ToolResponse:
        """Step 16: the outcome stored, then settled; the envelope that is told."""
        plan, write = attempt.plan, attempt.write
        assert write is not None
        uncertain = write.uncertain and not response.ok
        state = state_of(response, unsafe=plan.effects == "unsafe", uncertain=uncertain, cut_off=cut_off)
        answer = self.core.answers.finish(attempt, response, raw)
        row = await self._finish(attempt, key, fence, state, answer)
        self.core.crash("after_finish")
        if row is not None and (row.fence != fence or row.state is not state):
            # Somebody took over, or settled it, while we ran: theirs is the recorded outcome, and only that is told.
            settle_from_row(entry, row)
            return entry.replay()
        if state is LedgerState.UNKNOWN:
            keep_unknown(attempt, key)
            entry.settle(unknown_answer(plan.tool_id, answer.meta), b"")
            entry.unknown = True
            return answer
        entry.settle(answer, raw)
        self.core.crash("before_intents")
        if answer.ok and answer.intents:
            self.core.apply_intents(attempt.session, attempt, answer.intents, stored=row is not None)
        return answer

    async def record_late(self, attempt: Attempt, late: asyncio.Future[Any]) -> None:
        """A handler went on after it was given up: what it came to is recorded, and not delivered."""
        plan, write, started = attempt.plan, attempt.write, attempt.started
        try:
            # Shielded: the stop of the runtime ends this, and does not wait for a handler that does not end.
            response, _ = checked_result(await asyncio.shield(late), plan.tool)
        except asyncio.CancelledError:
            if not late.cancelled():
                raise
            message = f'"{plan.tool_id}" ended late, as it was told at its deadline.'
            response = ToolResponse(False, None, ToolFailure(ErrorType.CANCELLED, message, False, plan.writes))
        except Exception as error:  # noqa: BLE001  # an author's code may raise anything
            response = ToolResponse(False, None, failure_of(error, plan.definition, voice=False))
        error_type = None if response.error is None else response.error.type.value
        self.core.trail.audit_call("late_result", attempt, (perf_counter() - started) * 1000, response.ok, error_type)
        if write is None or plan.effects != "unsafe" or not response.ok:
            return
        fence = write.fence
        answer = ToolResponse(
            True, response.data, None, response.intents, {**response.meta, **self.core.answers.meta(attempt, 0.0)}
        )
        row = await self._finish(attempt, write.key, fence, LedgerState.SUCCEEDED, answer)
        entry = attempt.session.writes.get(write.key)
        if row is not None and row.state is LedgerState.SUCCEEDED and entry is not None:
            settle_from_row(entry, row)

    async def _finish(
        self, attempt: Attempt, key: str, fence: int, state: LedgerState, answer: ToolResponse
    ) -> LedgerRow | None:
        """Store the outcome; tried again while the store is away, because the effect has happened."""
        session = attempt.session
        block, after = stored_intents(session, answer)
        finish = Finish(
            key=key,
            fence=fence,
            state=state,
            envelope=orjson.dumps(answer.to_dict()).decode(),
            block=block,
            session_state=after,
            connection=session.connection,
            claimed=attempt.write.claimed if attempt.write is not None else None,
        )
        self.core.crash("before_finish")
        for attempt_number in range(_FINISH_TRIES):
            try:
                return await self.core.store.finish(finish)
            except StoreUnavailable as error:
                self.core.log.warning("The outcome of %s could not be stored yet: %s", attempt.plan.tool_id, error)
                await self.core.clock.sleep(0.05 * 2**attempt_number)
        self.core.log.error("The outcome of %s could not be stored; it is tried again", attempt.plan.tool_id)
        self.unfinished[key] = finish
        return None

    async def finish_the_unfinished(self) -> None:
        """Store what could not be stored when it happened; each by itself, so that none stands in another's way."""
        waiting = list(self.unfinished.items())
        done = await asyncio.gather(*(self.core.store.finish(one) for _, one in waiting), return_exceptions=True)
        failed: BaseException | None = None
        for (key, one), outcome in zip(waiting, done, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, UsageError):
                failed = outcome
                continue
            if isinstance(outcome, UsageError):
                self.core.log.error("The outcome of %s cannot be stored; it is given up", key, exc_info=outcome)
            if self.unfinished.get(key) is one:  # else more has become known of it meanwhile
                del self.unfinished[key]
        if failed is not None:
            raise StoreUnavailable(f"An outcome could not be stored yet: {failed!r}") from failed

    async def _not_claimed(
        self, attempt: Attempt, entry: Entry, hold: Hold | None, result: ClaimResult
    ) -> ToolResponse:
        row = result.row
        match result.verdict:
            case ClaimVerdict.SETTLED if row is not None:
                budget.give_back(attempt)
                settle_from_row(entry, row)
                await self.core.dedup.remember(attempt, entry)
                return await self.core.answers.replay(attempt, entry)
            case ClaimVerdict.RUNNING if row is not None:
                self._forget(attempt, entry, hold)
                elsewhere = Entry.of(attempt.plan.tool_id, attempt.raw_digest, ledger_key=row.key)
                answer = await self.core.dedup.again(attempt, elsewhere)
                if answer is None:
                    return self.core.answers.refuse(attempt, running(attempt.plan.tool_id), free=True)
                return answer
            case ClaimVerdict.UNKNOWN if row is not None:
                self._forget(attempt, entry, hold)
                budget.give_back(attempt)
                return self.outcome_unknown(attempt, row.key)
            case _:
                self._forget(attempt, entry, hold)
                if result.verdict is ClaimVerdict.STALE_CONNECTION:
                    await self.core.lost_connection(attempt.session, attempt.connection)
                return self.core.answers.refuse(attempt, verdict_refusal(attempt, result), free=True)

    def outcome_unknown(self, attempt: Attempt, key: str) -> ToolResponse:
        """It may have run: that is the answer, and it never runs again by itself."""
        keep_unknown(attempt, key)
        duration = (perf_counter() - attempt.started) * 1000
        refusal = Refusal("ledger", ErrorType.CONFLICT, unknown_message(attempt.plan.tool_id), rule="unknown")
        self.core.trail.audit_refusal(attempt, refusal, duration)
        return unknown_answer(attempt.plan.tool_id, self.core.answers.meta(attempt, duration))

    def _claim(self, attempt: Attempt, key: str, hold: Hold | None) -> Claim:
        session, plan, write = attempt.session, attempt.plan, attempt.write
        assert write is not None
        first = hold or write.takeover
        return Claim(
            key=key,
            tenant=session.tenant,
            session_id=session.id,
            user=session.user,
            turn=first.turn if first is not None else attempt.turn.number,
            connection=attempt.connection or session.connection,
            tool=plan.tool_id,
            tool_hash=plan.tool.hash,
            registry_version=session.snapshot.version,
            args_digest=attempt.digest,
            args=attempt.canonical.decode(),
            effects=plan.effects,
            ordinal=first.ordinal if first is not None else attempt.ordinal,
            owner=self.core.owner,
            lease_ms=session.policy.lease_ms,
            alias=self.alias(attempt, key, hold.hold_id if hold else None),
            hold_id=hold.hold_id if hold else None,
            rate=None if hold else claim_charge(session, plan.tool_id, plan.definition.rate_limit, attempt.rate_slot),
            counters=None if hold else session.counters(attempt.turn),
            check_connection=hold is None,
            claim_id=self.core.unconfirmed_claims.ids.get(key) or f"{self.core.owner}-{next(self._numbers)}",
        )

    def alias(self, attempt: Attempt, key: str | None, hold_id: str | None) -> Alias | None:
        name = attempt.key
        if not name.startswith("provider:"):
            in_message = id_in_message(attempt.call)
            if in_message is None or hold_id is None:
                return None
            name = held_key(hold_id, in_message)
        raw = self.core.digest_of(attempt.raw_digest)
        return Alias(call_id=name, tool=attempt.plan.tool_id, raw_digest=raw, ledger_key=key, hold_id=hold_id)

    def _can_be_audited(self) -> bool:
        """Whether lines can be written: tried now, once for all calls of one round of the loop."""
        if not self._audited:
            self._audited = True
            asyncio.get_running_loop().call_soon(self._audit_again)
            self.core.audit.flush()
        return self.core.audit.healthy

    def _audit_again(self) -> None:
        self._audited = False

    def _not_started(self, attempt: Attempt) -> None:
        """The handler did not start: ordinal, limit and loop count are as if nobody had called."""
        assert attempt.write is not None
        attempt.write.taken.pop(attempt.ordinal, None)
        if not attempt.charged:
            return
        loop.give_back(attempt)
        limit = attempt.plan.definition.rate_limit
        if limit is not None:
            self.core.rates.give_back(attempt.session, attempt.plan.tool_id, limit, attempt.rate_slot)

    def _forget(self, attempt: Attempt, entry: Entry, hold: Hold | None) -> None:
        session = attempt.session
        self._not_started(attempt)
        if entry.ledger_key is not None and session.writes.get(entry.ledger_key) is entry:
            del session.writes[entry.ledger_key]
        if hold is None:
            entry.kept = False
            entry.ledger_key = None
            if session.calls_by_id.get(attempt.key) is entry:
                del session.calls_by_id[attempt.key]
            entry.abandon()

    def _deliver_late(self, attempt: Attempt, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None or not isinstance(task.result(), ToolResponse):
            return
        self.core.deliver(attempt.session, attempt.call.call_id, attempt.plan.tool_id, task.result(), silent=True)
