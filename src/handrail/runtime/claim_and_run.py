"""Steps 14 to 16 for a writing or held call: claimed in the ledger before the handler runs, finished after it.

The claim and the handler run in a task of their own: a caller that goes away, or a user who interrupts, does not leave a
call half done. What is promised: per key, a writing, non-idempotent handler starts at most once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType, RegistryError, UsageError
from handrail.contract.events import ConfirmationRunning, LateEnvelope
from handrail.contract.intents import Intent, IntentType
from handrail.contract.ports import Clock
from handrail.contract.store import (
    Block,
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
from handrail.runtime.audit_recovery import AuditRecovery
from handrail.runtime.call_attempt import Attempt, Refusal, RefusalRule, replaced_connection
from handrail.runtime.context import Context
from handrail.runtime.envelopes import (
    Answers,
    AuditTrail,
    StartOver,
    keep_unknown,
    milliseconds_since,
    not_recorded,
    running,
    unknown_answer,
)
from handrail.runtime.execution import Execution, ResultRules, checked_result, failure_of, settled_result
from handrail.runtime.gates import give_back_budget, give_back_loop_count, switched_off
from handrail.runtime.known_calls import Aliases, KnownCall, alias_of
from handrail.runtime.ledger_lookup import LedgerLookup, OwnClaims, settle_from_row
from handrail.runtime.policy import GateName
from handrail.runtime.rates import claim_charge
from handrail.runtime.state import StateController

if TYPE_CHECKING:
    from handrail.runtime.session import Session

# Pauses of 0.05 s, doubled each time: about three seconds in all, after which the housekeeper tries.
_FINISH_TRIES = 6
_POLL_SECONDS = 0.05


class AppliesIntents(Protocol):
    """Applies what a handler asked for. `stored`: the store has it already, with the outcome."""

    def __call__(
        self, session: Session, attempt: Attempt, intents: Sequence[Intent], *, stored: bool = False
    ) -> None: ...


class LostConnection(Protocol):
    """The store has a newer connection of the session than this one. Whether it was made in this process."""

    async def __call__(self, session: Session, connection: int | None) -> bool: ...


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
        crash: Callable[[str], None],
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

    async def run(self, attempt: Attempt, hold: Hold | None, entry: KnownCall) -> ToolResponse:
        """Claim and run, in a task that outlives its caller."""
        # From here on a task carries it out, and `CallIds.trim` must not let go of the entry that its outcome goes into.
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
                # Nobody waits for it any more. If it has not started, it need not; what a person approved starts all the same.
                attempt.write.left = hold is None
            if not task.cancelled():
                # The handler may have started, and what it comes to must reach the model some other way.
                task.add_done_callback(lambda done: self._deliver_late(attempt, done))
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _claim_and_answer(
        self, attempt: Attempt, hold: Hold | None, entry: KnownCall, answered: asyncio.Future[Any]
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

    async def _claim_and_run(
        self, attempt: Attempt, hold: Hold | None, entry: KnownCall
    ) -> ToolResponse | BaseException:
        """Step 14: claimed by nobody else, here or elsewhere; then carried out."""
        session, write, own = attempt.session, attempt.write, self._own
        assert write is not None
        key = write.key = hold.ledger_key if hold else write.key
        write.hold_id = hold.hold_id if hold else None
        # Somebody in this session was first: their outcome is the answer. An approved call cannot start over in the pipeline,
        # so it looks again until the key is free.
        while (there := session.writes.get(key)) is not None and there is not entry:
            try:
                return await self._answers.replay(attempt, there)
            except StartOver:
                if hold is None:
                    self._forget(attempt, entry, None)
                    give_back_budget(attempt)
                    raise
        # Nothing is awaited between this look and the entry below: of two approvals at the same time, one finds the other here.
        first, current = own.under_way.get(key), asyncio.current_task()
        if first is not None:
            return await self._after(first, attempt, hold, entry)
        assert current is not None
        own.under_way[key] = current
        try:
            entry.ledger_key = key
            session.writes[key] = entry
            # The last look without the store. What it refuses leaves no row, and so nothing that could be in doubt.
            refusal = self._cannot_start(attempt, hold)
            if refusal is not None:
                self._forget(attempt, entry, hold)
                return self._answers.refuse(attempt, refusal, free=True)
            try:
                result = await self._claim_patiently(attempt, key, hold)
            except StoreUnavailable as error:
                self._forget(attempt, entry, hold)
                if hold is None:
                    return self._answers.refuse_unrecorded(attempt, error)
                return self._answers.refuse(attempt, _not_heard(attempt.plan.tool_id, str(error)), free=True)
            if result.verdict not in (ClaimVerdict.CLAIMED, ClaimVerdict.TAKEN_OVER):
                return await self._not_claimed(attempt, entry, hold, result)
            # Here the housekeeper finds it, and renews the lease for as long as the handler runs.
            own.fences[key] = write.fence = result.fence
            write.claimed = result.row
            return await self._execute(attempt, entry, key, result.fence, hold)
        finally:
            own.fences.pop(key, None)
            del own.under_way[key]

    async def _after(
        self, first: asyncio.Task[Any], attempt: Attempt, hold: Hold | None, entry: KnownCall
    ) -> ToolResponse | BaseException:
        """What the first came to, for somebody who tries the same at the same time; it is waited for a little."""
        # By the runtime's clock and not by `asyncio.timeout`, so that tests play this wait in virtual time.
        patience = asyncio.ensure_future(self._clock.sleep(attempt.session.limits.wait_seconds))
        try:
            await asyncio.wait((first, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if hold is None:
            self._forget(attempt, entry, None)
        elif entry.response is not None:
            return await self._answers.replay(attempt, entry)
        elif first.done() and not first.cancelled() and first.exception() is None:
            answer: ToolResponse | BaseException = first.result()
            return answer
        return self._answers.refuse(attempt, running(attempt.plan.tool_id), free=True)

    def _cannot_start(self, attempt: Attempt, hold: Hold | None) -> Refusal | None:
        """What is looked at last before the claim."""
        tool = attempt.plan.tool_id
        if self._was_cancelled(attempt, hold):
            message = f'"{tool}" was cancelled before it started.'
            return Refusal(GateName.INTERRUPT, ErrorType.CANCELLED, message, rule=RefusalRule.INTERRUPT, retryable=True)
        if attempt.plan.writes:
            if not self._audit_checked:
                # Whether lines can be written is tried now, once for all calls of one round of the loop.
                self._audit_checked = True
                asyncio.get_running_loop().call_soon(setattr, self, "_audit_checked", False)
                self._trail.audit.flush()
            if not self._trail.audit.healthy:
                return not_recorded(tool, "The audit log cannot be written.")
        try:
            # Loaded before the claim: a handler that is missing or broken is refused, instead of leaving a claim that never
            # ran.
            _ = attempt.plan.start or attempt.plan.tool.handler
        except RegistryError as error:
            self._log.error("%s", error)
            return Refusal(
                GateName.HANDLER, ErrorType.INTERNAL, f'"{tool}" failed unexpectedly.', rule=RefusalRule.LOAD
            )
        return None

    def _was_cancelled(self, attempt: Attempt, hold: Hold | None) -> bool:
        write = attempt.write
        if hold is not None or write is None:
            # A person has approved it; nobody's connection matters, but that person's no.
            return hold is not None and hold.ledger_key in self._own.given_up
        return write.left or write.interruptions != attempt.session.interruptions

    async def _execute(
        self, attempt: Attempt, entry: KnownCall, key: str, fence: int, hold: Hold | None
    ) -> ToolResponse | BaseException:
        """Steps 15 and 16: the handler runs, and its outcome is recorded."""
        plan, write = attempt.plan, attempt.write
        assert write is not None
        # The effect and its record are what this method must not part: whatever the handler raises, an outcome is stored.
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
                # The ledger key is the idempotency key that the handler passes to its service: a second execution has the same
                # one.
                response, raw = await self._execution.run(attempt, Context(attempt, self._execution.capabilities, key))
        except BaseException as error:  # noqa: BLE001  # a process exit or cancellation: recorded here, raised again for the caller
            passed_on = error
            failure = ToolFailure(
                ErrorType.CANCELLED, f'"{plan.tool_id}" was ended before it finished.', False, plan.writes
            )
            response, raw = ToolResponse(False, None, failure), b""
        self._crash("after_handler")
        # 16. Settle: the outcome is stored, then told.
        # A second try may have succeeded after a first one of which nobody knows: then what is known is the success.
        uncertain = write.uncertain and not response.ok
        cut_off = passed_on is not None
        state = _state_of(response, unsafe=plan.effects == "unsafe", uncertain=uncertain, cut_off=cut_off)
        answer = self._answers.finish(attempt, response, raw)
        row = await self._finish(attempt, key, fence, state, answer)
        self._crash("after_finish")
        if row is not None and (row.fence != fence or row.state is not state):
            # Somebody took over, or settled it, while we ran: theirs is the recorded outcome, and the only one that is given.
            settle_from_row(entry, row)
            answer = entry.replay()
        elif state is LedgerState.UNKNOWN:
            keep_unknown(attempt, key)
            entry.settle(unknown_answer(plan.tool_id, answer.meta), b"")
            entry.unknown = True
        else:
            entry.settle(answer, raw)
            self._crash("before_intents")
            if answer.ok and answer.intents:
                self._apply_intents(attempt.session, attempt, answer.intents, stored=row is not None)
        self._crash("before_delivery")
        return passed_on if passed_on is not None else answer

    async def record_late(self, attempt: Attempt, late: asyncio.Future[Any]) -> None:
        """A handler continued after it was given up: what it came to is recorded, and not delivered."""
        plan, write, started = attempt.plan, attempt.write, attempt.started
        try:
            # Shielded: the stop of the runtime ends this, and does not wait for a handler that does not end.
            response, _ = checked_result(await asyncio.shield(late), ResultRules.of(plan.tool))
        except asyncio.CancelledError:
            if not late.cancelled():
                raise
            message = f'"{plan.tool_id}" ended late.'
            response = ToolResponse(False, None, ToolFailure(ErrorType.CANCELLED, message, False, plan.writes))
        except Exception as error:  # noqa: BLE001  # an author's code may raise anything
            response = ToolResponse(False, None, failure_of(error, plan.definition, voice=False))
        response, _ = settled_result(response, b"", attempt)
        error_type = None if response.error is None else response.error.type.value
        self._answers.audit_call("late_result", attempt, milliseconds_since(started), error_type)
        # A late failure leaves open what the handler has done before it, and what is safe to repeat may have run again since.
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
        session, write = attempt.session, attempt.write
        assert write is not None
        # With the outcome, in one transaction. Stored apart, a crash in between would lose a block that the handler asked for.
        block, after = _stored_intents(session, answer.intents) if answer.ok and answer.intents else (None, None)
        finish = Finish(
            key=key,
            fence=fence,
            state=state,
            envelope=orjson.dumps(answer.to_dict()).decode(),
            block=block,
            session_state=after,
            connection=session.connection,
            claimed=write.claimed,
        )
        self._crash("before_finish")
        for attempt_number in range(_FINISH_TRIES):
            try:
                return await self._store.finish(finish)
            except StoreUnavailable as error:
                self._log.warning("The outcome of %s could not be stored yet: %s", attempt.plan.tool_id, error)
                await self._clock.sleep(0.05 * 2**attempt_number)
        self._log.error("The outcome of %s could not be stored; it is tried again", attempt.plan.tool_id)
        # The effect has happened, so this is tried for as long as the process lives. The row stays claimed until then.
        self._own.unstored[key] = finish
        return None

    async def store_unstored(self) -> None:
        """Store what could not be stored when it happened; each by itself, so that none stands in another's way."""
        # A copy: calls that end while the store answers add to it.
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
        self, attempt: Attempt, entry: KnownCall, hold: Hold | None, result: ClaimResult
    ) -> ToolResponse:
        row = result.row
        match result.verdict:
            # Another process, or another id, has carried it out. That is the answer, and this id stands for it from now on.
            case ClaimVerdict.SETTLED if row is not None:
                give_back_budget(attempt)
                settle_from_row(entry, row)
                await self._aliases.remember(attempt, entry)
                return await self._answers.replay(attempt, entry)
            case ClaimVerdict.RUNNING if row is not None:
                self._forget(attempt, entry, hold)
                elsewhere = KnownCall.of(attempt.plan.tool_id, attempt.raw_digest, ledger_key=row.key)
                answer = await self._lookup.replay(attempt, elsewhere)
                if answer is None:
                    return self._answers.refuse(attempt, running(attempt.plan.tool_id), free=True)
                return answer
            # Its process died while the handler ran. Whether it had its effect only a person can find out.
            case ClaimVerdict.UNKNOWN if row is not None:
                self._forget(attempt, entry, hold)
                give_back_budget(attempt)
                return self._answers.refuse_unknown(attempt, row.key)
            case _:
                self._forget(attempt, entry, hold)
                # The session was resumed elsewhere between the pipeline's look and the claim, which is the one that counts.
                if result.verdict is ClaimVerdict.STALE_CONNECTION:
                    await self._lost_connection(attempt.session, attempt.connection)
                return self._answers.refuse(attempt, _verdict_refusal(attempt, result), free=True)

    async def _claim_patiently(self, attempt: Attempt, key: str, hold: Hold | None) -> ClaimResult:
        """The claim, again and again while only an owner stands in the way that no longer renews its lease: it may be busy, and
        will end, or dead, and the store will soon know."""
        deadline = self._clock.monotonic() + attempt.session.limits.wait_seconds
        while True:
            result = await self._claim(attempt, key, hold)
            if hold is not None or result.verdict is not ClaimVerdict.RUNNING or result.row is None:
                return result
            if self._clock.monotonic() >= deadline or self._was_cancelled(attempt, hold):
                return result
            if not await self._lookup.may_be_taken_over(result.row):
                return result  # nothing but its outcome can be waited for
            await self._clock.sleep(_POLL_SECONDS)

    async def _claim(self, attempt: Attempt, key: str, hold: Hold | None) -> ClaimResult:
        """The store's answer to the claim. Asked a second time where there is none: an unheard commit is recognised as ours."""
        session, plan, write, own = attempt.session, attempt.plan, attempt.write, self._own
        assert write is not None
        self._crash("before_claim")
        if not self._audit_recovery.has_begun:
            await self._audit_recovery.begin()
        first = hold or write.takeover
        limit = plan.rate_limit
        # The claim carries the counters along: a crash after it must not give the turn its budget back.
        counted = session.turn if session.turn is not None and session.turn.stored else attempt.turn
        claim = Claim(
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
            owner=own.owner,
            lease_ms=session.policy.lease_ms,
            # In the same transaction as the row, so that a retry by this id finds the row whenever the row is there.
            alias=alias_of(attempt, key, hold.hold_id if hold else None),
            hold_id=hold.hold_id if hold else None,
            # A held call has paid when it was held.
            rate=claim_charge(session, plan.tool_id, limit, attempt.rate_slot) if limit and hold is None else None,
            # While a turn begins, the store may have the session in another already.
            counters=None if hold or session.beginning else counted.counters(),
            # What this call took from its own turn must not wait to be written behind: the handler starts next.
            left=(attempt.turn.number, attempt.turn.counters())
            if hold is None and (session.beginning or attempt.turn is not counted)
            else None,
            # An approval is a person's, who may give it long after the model has reconnected.
            check_connection=hold is None,
            # The same id for as long as no answer was heard: by it the store recognises a row that we made without knowing.
            claim_id=own.unconfirmed.get(key) or f"{own.owner}-{next(self._numbers)}",
        )
        try:
            result = await self._store.claim(claim)
        except StoreUnavailable:
            self._crash("between_claims")
            try:
                result = await self._store.claim(claim)
            except StoreUnavailable:
                own.unconfirmed[key] = claim.claim_id
                if hold is not None:
                    own.unconfirmed_holds.add(hold.hold_id)
                raise
        own.unconfirmed.pop(key, None)
        self._crash("after_claim")
        return result

    def _forget(self, attempt: Attempt, entry: KnownCall, hold: Hold | None) -> None:
        session, write = attempt.session, attempt.write
        assert write is not None
        give_back_unstarted(attempt)
        # Only our own: another attempt may have put its entry there while this one waited.
        if session.writes.get(write.key) is entry:
            del session.writes[write.key]
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


def _state_of(response: ToolResponse, *, unsafe: bool, uncertain: bool, cut_off: bool) -> LedgerState:
    """What the ledger keeps of this outcome."""
    # The effect happened. That nobody can use what the handler returned does not undo it.
    if response.ok or response.meta.get("resultUnavailable"):
        return LedgerState.SUCCEEDED
    # It may have had its effect before it was broken off, so it must not run again by itself.
    if unsafe and (uncertain or cut_off):
        return LedgerState.UNKNOWN
    assert response.error is not None
    cancelled = cut_off or response.error.type is ErrorType.CANCELLED
    return LedgerState.CANCELLED if cancelled else LedgerState.FAILED


def _not_heard(tool: str, why: str) -> Refusal:
    """Of an approved call: it may be claimed, so that it continues, and the person must not believe that it is over."""
    message = (
        f'"{tool}" is approved but has not started, because it could not be recorded yet: it is carried out, and its outcome '
        "told, as soon as it can be, unless it is declined or its time ends before; there is no need to approve it again."
    )
    return Refusal(GateName.LEDGER, ErrorType.STORE_UNAVAILABLE, message, rule=RefusalRule.STORE, value=why)


def _verdict_refusal(attempt: Attempt, result: ClaimResult) -> Refusal:
    tool = attempt.plan.tool_id
    wait = result.retry_after_ms / 1000 if result.retry_after_ms is not None else None
    match result.verdict:
        case ClaimVerdict.BLOCKED:
            return Refusal(
                GateName.SESSION,
                ErrorType.AUTH,
                "This user is blocked for now.",
                rule=RefusalRule.BLOCK,
                retry_after=wait,
            )
        case ClaimVerdict.SWITCHED_OFF:
            message = switched_off(tool, result.reason)
            return Refusal(
                GateName.AVAILABILITY, ErrorType.UNAVAILABLE, message, rule=RefusalRule.SWITCH, value=result.reason
            )
        case ClaimVerdict.RATE_LIMITED:
            message = f'"{tool}" was called too often by this user.'
            return Refusal(
                GateName.RATE,
                ErrorType.RATE_LIMIT,
                message,
                rule=RefusalRule.RATE_LIMIT,
                retry_after=wait,
                retryable=True,
            )
        case ClaimVerdict.STALE_CONNECTION:
            return replaced_connection()
        case ClaimVerdict.INACTIVE:
            return Refusal(
                GateName.SESSION, ErrorType.SESSION_INACTIVE, "The session has ended.", rule=RefusalRule.ACTIVE
            )
        case ClaimVerdict.NO_GRANT:
            return Refusal(
                GateName.CONFIRMATION,
                ErrorType.CONFLICT,
                "This approval was used, has expired, or was for something else.",
                rule=RefusalRule.GRANT,
            )
        case _:
            message = "This key stands for another call."
            return Refusal(GateName.LEDGER, ErrorType.CONFLICT, message, rule=result.verdict.value)


def _stored_intents(session: Session, intents: Sequence[Intent]) -> tuple[Block | None, Any]:
    """What the intents of an outcome change, for the transaction that stores it: the block, and the session's state."""
    after = StateController(session.state.snapshot())
    block: Block | None = None
    for intent in intents:
        if after.apply_intent(intent).applied and intent.type == IntentType.BLOCK_USER:
            until = int(intent.fields["until"] * 1000)
            block = Block(
                tenant=session.tenant, user=session.blocked_as, until=max(until, block.until) if block else until
            )
    return block, dict(after.snapshot())
