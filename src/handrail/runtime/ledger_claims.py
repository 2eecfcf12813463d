"""Steps 14 to 16 for a writing or held call: claimed in the ledger before the handler runs, finished after it.

The claim and the handler run in a task of their own: a caller that goes away, or a user who interrupts, does not leave a
call half done. What is promised: per key, a writing, non-idempotent handler starts at most once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType, RegistryError, UsageError
from handrail.contract.events import ConfirmationRunning, LateEnvelope
from handrail.contract.intents import Intent
from handrail.contract.ports import Clock
from handrail.contract.store import (
    Claim,
    ClaimResult,
    ClaimVerdict,
    Finish,
    Hold,
    LedgerRow,
    LedgerState,
    Store,
    StoreUnavailable,
)
from handrail.runtime.answers import Answers, StartOver
from handrail.runtime.attempt import Attempt, Refusal, RefusalRule
from handrail.runtime.audit_recovery import AuditRecovery
from handrail.runtime.audit_trail import AuditTrail
from handrail.runtime.crash_points import CrashPoints
from handrail.runtime.execution import Execution, ResultRules, checked_result, failure_of
from handrail.runtime.gates import give_back_budget, give_back_loop_count
from handrail.runtime.known_calls import Aliases, Entry, alias_of
from handrail.runtime.ledger_lookup import LedgerLookup
from handrail.runtime.ledger_view import (
    keep_unknown,
    not_heard,
    not_recorded,
    running,
    settle_from_row,
    state_of,
    stored_intents,
    unknown_answer,
    verdict_refusal,
)
from handrail.runtime.own_claims import OwnClaims
from handrail.runtime.rates import claim_charge

if TYPE_CHECKING:
    from handrail.contract.call import Connection
    from handrail.runtime.session import Session

_FINISH_TRIES = 6


class AppliesIntents(Protocol):
    """Applies what a handler asked for. `stored`: the store has it already, with the outcome."""

    def __call__(
        self, session: Session, attempt: Attempt, intents: Sequence[Intent], *, stored: bool = False
    ) -> None: ...


class LostConnection(Protocol):
    """The store has a newer connection of the session than this one. Whether it was made in this process."""

    async def __call__(self, session: Session, connection: Connection | None) -> bool: ...


class LedgerClaims:
    """Claims and runs the writing and held calls of one runtime."""

    __slots__ = (
        "_aliases",
        "_answers",
        "_apply_intents",
        "_audit_checked",
        "_audit_recovery",
        "_clock",
        "_crash",
        "_execution",
        "_log",
        "_lookup",
        "_lost_connection",
        "_numbers",
        "_own",
        "_store",
        "_trail",
        "tasks",
    )

    def __init__(
        self,
        store: Store,
        own: OwnClaims,
        answers: Answers,
        execution: Execution,
        lookup: LedgerLookup,
        aliases: Aliases,
        trail: AuditTrail,
        audit_recovery: AuditRecovery,
        *,
        apply_intents: AppliesIntents,
        lost_connection: LostConnection,
        clock: Clock,
        log: logging.Logger,
        crash: CrashPoints,
    ) -> None:
        self._store = store
        self._own = own
        self._answers = answers
        self._execution = execution
        self._lookup = lookup
        self._aliases = aliases
        self._trail = trail
        self._audit_recovery = audit_recovery
        self._apply_intents = apply_intents
        self._lost_connection = lost_connection
        self._clock = clock
        self._log = log
        self._crash = crash
        self._numbers = count(1)
        self._audit_checked = False
        self.tasks: dict[asyncio.Task[Any], tuple[Attempt, float]] = {}
        """What runs, and since when by the clock of the loop."""

    async def run(self, attempt: Attempt, hold: Hold | None, entry: Entry) -> ToolResponse:
        """Claim and run, in a task that outlives its caller."""
        entry.kept = True
        loop_now = asyncio.get_running_loop()
        # What `asyncio.shield` does, in fewer rounds of the loop: the task itself answers whoever waits.
        answered: asyncio.Future[ToolResponse | BaseException | None] = loop_now.create_future()
        task = loop_now.create_task(self._claim_and_answer(attempt, hold, entry, answered))
        self.tasks[task] = (attempt, loop_now.time())
        task.add_done_callback(partial(self._ended, answered))
        try:
            answer = await answered
            if answer is None:
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

    async def _claim_and_answer(
        self, attempt: Attempt, hold: Hold | None, entry: Entry, answered: asyncio.Future[Any]
    ) -> ToolResponse | BaseException:
        answer = await self._claim_and_run(attempt, hold, entry)
        current = asyncio.current_task()
        if current is not None:
            self.tasks.pop(current, None)  # before the answer, so that nobody who has it waits for this task
        if not answered.done():
            answered.set_result(answer)
        return answer

    def _ended(self, answered: asyncio.Future[Any], task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if not answered.done():
            answered.set_result(None)  # it was cancelled, or raised: whoever waits asks the task

    async def _claim_and_run(self, attempt: Attempt, hold: Hold | None, entry: Entry) -> ToolResponse | BaseException:
        session, write = attempt.session, attempt.write
        assert write is not None
        key = write.key = hold.ledger_key if hold else write.key
        write.hold_id = hold.hold_id if hold else None
        while (there := session.writes.get(key)) is not None and there is not entry:
            try:
                return await self._answers.replay(attempt, there)
            except StartOver:
                if hold is None:
                    self._forget(attempt, entry, None)
                    give_back_budget(attempt)
                    raise
        first = self._own.under_way.get(key)
        if first is not None:
            return await self._after(first, attempt, hold, entry)
        current = asyncio.current_task()
        assert current is not None
        self._own.under_way[key] = current
        try:
            return await self._claim_alone(attempt, hold, entry, key)
        finally:
            del self._own.under_way[key]

    async def _after(
        self, first: asyncio.Task[Any], attempt: Attempt, hold: Hold | None, entry: Entry
    ) -> ToolResponse | BaseException:
        """What the first came to, for somebody who tries the same at the same time; it is waited for a little."""
        patience = asyncio.ensure_future(self._clock.sleep(attempt.session.limits.wait_seconds))
        try:
            await asyncio.wait((first, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if hold is None:
            self._forget(attempt, entry, None)
        elif entry.settled:
            return await self._answers.replay(attempt, entry)
        elif first.done() and not first.cancelled() and first.exception() is None:
            answer: ToolResponse | BaseException = first.result()
            return answer
        return self._answers.refuse(attempt, running(attempt.plan.tool_id), free=True)

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
            return self._answers.refuse(attempt, refusal, free=True)
        self._crash("before_claim")
        try:
            if not self._audit_recovery.has_begun:
                await self._audit_recovery.begin()
            result = await self._ask(self._claim(attempt, key, hold))
        except StoreUnavailable as error:
            self._forget(attempt, entry, hold)
            if hold is None:
                return self._answers.refuse_unrecorded(attempt, error)
            return self._answers.refuse(attempt, not_heard(attempt.plan.tool_id, str(error)), free=True)
        self._crash("after_claim")
        if result.verdict not in (ClaimVerdict.CLAIMED, ClaimVerdict.TAKEN_OVER):
            return await self._not_claimed(attempt, entry, hold, result)
        self._own.fences[key] = write.fence = result.fence
        write.claimed = result.row
        try:
            return await self._execute(attempt, entry, key, result.fence, hold)
        finally:
            self._own.fences.pop(key, None)

    async def _ask(self, claim: Claim) -> ClaimResult:
        """The store's answer to the claim. Asked a second time where there is none: an unheard commit is recognised as ours."""
        own = self._own
        try:
            result = await self._store.claim(claim)
        except StoreUnavailable:
            self._crash("between_claims")
            try:
                result = await self._store.claim(claim)
            except StoreUnavailable:
                own.unconfirmed[claim.key] = claim.claim_id
                if claim.hold_id is not None:
                    own.unconfirmed_holds.add(claim.hold_id)
                raise
        own.unconfirmed.pop(claim.key, None)
        return result

    def _cannot_start(self, attempt: Attempt, hold: Hold | None) -> Refusal | None:
        """What is looked at last before the claim."""
        tool = attempt.plan.tool_id
        if self._was_cancelled(attempt, hold):
            message = f'"{tool}" was cancelled before it started.'
            return Refusal("interrupt", ErrorType.CANCELLED, message, rule=RefusalRule.INTERRUPT, retryable=True)
        if attempt.plan.writes and not self._can_be_audited():
            return not_recorded(attempt.plan.tool_id, "The audit log cannot be written.")
        try:
            _ = attempt.plan.start or attempt.plan.tool.handler
        except RegistryError as error:
            self._log.error("%s", error)
            return Refusal("handler", ErrorType.INTERNAL, f'"{tool}" failed unexpectedly.', rule=RefusalRule.LOAD)
        return None

    def _was_cancelled(self, attempt: Attempt, hold: Hold | None) -> bool:
        write = attempt.write
        if hold is not None or write is None:
            # A person has approved it; nobody's connection matters, but that person's no.
            return hold is not None and hold.ledger_key in self._own.given_up
        return write.left or write.interruptions != attempt.session.interruptions

    async def _execute(
        self, attempt: Attempt, entry: Entry, key: str, fence: int, hold: Hold | None
    ) -> ToolResponse | BaseException:
        plan = attempt.plan
        passed_on: BaseException | None = None
        self._crash("before_handler")
        try:
            if self._was_cancelled(attempt, hold):
                give_back_budget(attempt)
                message = f'"{plan.tool_id}" was cancelled before it started.'
                response, raw = ToolResponse(False, None, ToolFailure(ErrorType.CANCELLED, message, True)), b""
            else:
                if hold is not None:
                    # Whoever shows the request sees that it runs, also where it was approved elsewhere.
                    running = ConfirmationRunning(id=hold.hold_id, tool_id=plan.tool_id, call_id=attempt.call.call_id)
                    attempt.session.events_queue.emit(running)
                response, raw = await self._execution.run(attempt, self._execution.context(attempt, key))
        except BaseException as error:  # noqa: BLE001  # a process exit or cancellation: recorded here, raised again for the caller
            passed_on = error
            failure = ToolFailure(
                ErrorType.CANCELLED, f'"{plan.tool_id}" was ended before it finished.', False, plan.writes
            )
            response, raw = ToolResponse(False, None, failure), b""
        self._crash("after_handler")
        answer = await self.record(attempt, entry, key, fence, response, raw, cut_off=passed_on is not None)
        self._crash("before_delivery")
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
        answer = self._answers.finish(attempt, response, raw)
        row = await self._finish(attempt, key, fence, state, answer)
        self._crash("after_finish")
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
        self._crash("before_intents")
        if answer.ok and answer.intents:
            self._apply_intents(attempt.session, attempt, answer.intents, stored=row is not None)
        return answer

    async def record_late(self, attempt: Attempt, late: asyncio.Future[Any]) -> None:
        """A handler went on after it was given up: what it came to is recorded, and not delivered."""
        plan, write, started = attempt.plan, attempt.write, attempt.started
        try:
            # Shielded: the stop of the runtime ends this, and does not wait for a handler that does not end.
            response, _ = checked_result(await asyncio.shield(late), ResultRules.of(plan.tool))
        except asyncio.CancelledError:
            if not late.cancelled():
                raise
            message = f'"{plan.tool_id}" ended late, as it was told at its deadline.'
            response = ToolResponse(False, None, ToolFailure(ErrorType.CANCELLED, message, False, plan.writes))
        except Exception as error:  # noqa: BLE001  # an author's code may raise anything
            response = ToolResponse(False, None, failure_of(error, plan.definition, voice=False))
        error_type = None if response.error is None else response.error.type.value
        self._answers.audit_call("late_result", attempt, (perf_counter() - started) * 1000, error_type)
        if write is None or plan.effects != "unsafe" or not response.ok:
            return
        fence = write.fence
        answer = ToolResponse(
            True, response.data, None, response.intents, {**response.meta, **self._answers.meta(attempt, 0.0)}
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
        block, after = stored_intents(session, answer) if answer.intents else (None, None)
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
        self._crash("before_finish")
        for attempt_number in range(_FINISH_TRIES):
            try:
                return await self._store.finish(finish)
            except StoreUnavailable as error:
                self._log.warning("The outcome of %s could not be stored yet: %s", attempt.plan.tool_id, error)
                await self._clock.sleep(0.05 * 2**attempt_number)
        self._log.error("The outcome of %s could not be stored; it is tried again", attempt.plan.tool_id)
        self._own.unstored[key] = finish
        return None

    async def store_unstored(self) -> None:
        """Store what could not be stored when it happened; each by itself, so that none stands in another's way."""
        waiting = list(self._own.unstored.items())
        done = await asyncio.gather(*(self._store.finish(one) for _, one in waiting), return_exceptions=True)
        failed: BaseException | None = None
        for (key, one), outcome in zip(waiting, done, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, UsageError):
                failed = outcome
                continue
            if isinstance(outcome, UsageError):
                self._log.error("The outcome of %s cannot be stored; it is given up", key, exc_info=outcome)
            if self._own.unstored.get(key) is one:  # else more has become known of it meanwhile
                del self._own.unstored[key]
        if failed is not None:
            raise StoreUnavailable(f"An outcome could not be stored yet: {failed!r}") from failed

    async def _not_claimed(
        self, attempt: Attempt, entry: Entry, hold: Hold | None, result: ClaimResult
    ) -> ToolResponse:
        row = result.row
        match result.verdict:
            case ClaimVerdict.SETTLED if row is not None:
                give_back_budget(attempt)
                settle_from_row(entry, row)
                await self._aliases.remember(attempt, entry)
                return await self._answers.replay(attempt, entry)
            case ClaimVerdict.RUNNING if row is not None:
                self._forget(attempt, entry, hold)
                elsewhere = Entry.of(attempt.plan.tool_id, attempt.raw_digest, ledger_key=row.key)
                answer = await self._lookup.replay(attempt, elsewhere)
                if answer is None:
                    return self._answers.refuse(attempt, running(attempt.plan.tool_id), free=True)
                return answer
            case ClaimVerdict.UNKNOWN if row is not None:
                self._forget(attempt, entry, hold)
                give_back_budget(attempt)
                return self._answers.refuse_unknown(attempt, row.key)
            case _:
                self._forget(attempt, entry, hold)
                if result.verdict is ClaimVerdict.STALE_CONNECTION:
                    await self._lost_connection(attempt.session, attempt.connection)
                return self._answers.refuse(attempt, verdict_refusal(attempt, result), free=True)

    def _claim(self, attempt: Attempt, key: str, hold: Hold | None) -> Claim:
        session, plan, write = attempt.session, attempt.plan, attempt.write
        assert write is not None
        first = hold or write.takeover
        limit = plan.rate_limit
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
            owner=self._own.owner,
            lease_ms=session.policy.lease_ms,
            alias=alias_of(attempt, key, hold.hold_id if hold else None),
            hold_id=hold.hold_id if hold else None,
            rate=claim_charge(session, plan.tool_id, limit, attempt.rate_slot) if limit and hold is None else None,
            counters=None if hold else session.counters(attempt.turn),
            check_connection=hold is None,
            claim_id=self._own.unconfirmed.get(key) or f"{self._own.owner}-{next(self._numbers)}",
        )

    def _can_be_audited(self) -> bool:
        """Whether lines can be written: tried now, once for all calls of one round of the loop."""
        if not self._audit_checked:
            self._audit_checked = True
            asyncio.get_running_loop().call_soon(self._audit_again)
            self._trail.audit.flush()
        return self._trail.audit.healthy

    def _audit_again(self) -> None:
        self._audit_checked = False

    def _forget(self, attempt: Attempt, entry: Entry, hold: Hold | None) -> None:
        session = attempt.session
        give_back_unstarted(attempt)
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
        call_id, envelope = attempt.call.call_id, task.result().to_dict()
        late = LateEnvelope(call_id=call_id, tool_id=attempt.plan.tool_id, envelope=envelope, silent=True)
        attempt.session.events_queue.emit(late)


def give_back_unstarted(attempt: Attempt) -> None:
    """The handler did not start: ordinal, limit and loop count are as if nobody had called."""
    assert attempt.write is not None
    attempt.write.taken.pop(attempt.ordinal, None)
    if not attempt.charged:
        return
    give_back_loop_count(attempt)
    limit = attempt.plan.definition.rate_limit
    if limit is not None:
        attempt.session.rates.give_back(attempt.session, attempt.plan.tool_id, limit, attempt.rate_slot)
