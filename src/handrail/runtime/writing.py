"""Writing calls: claimed in the ledger before the handler runs, finished after it, answered from there ever after.

    key → (rate, loop, budget) → confirmation → claim → run → finish → settle

The claim and the handler run in a task of their own: a caller that goes away, or a user who interrupts, does not leave a
call half done. What is promised: per key, a writing, non-idempotent handler starts at most once.
"""

from __future__ import annotations

import asyncio
import secrets
from time import perf_counter
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.intents import IntentType
from handrail.contract.store import (
    Alias,
    Block,
    Claim,
    ClaimResult,
    ClaimVerdict,
    Finish,
    Hold,
    LedgerRow,
    LedgerState,
    StoreUnavailable,
)
from handrail.runtime.attempt import Attempt, Refusal
from handrail.runtime.gates import budget
from handrail.runtime.keys import args_digest, ledger_key
from handrail.runtime.rates import claim_charge
from handrail.runtime.replays import Entry

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore
    from handrail.runtime.session import Session

PASSING = (ErrorType.TRANSIENT, ErrorType.TIMEOUT, ErrorType.CANCELLED)
_FINISH_TRIES = 6
_POLL_SECONDS = 0.05


class Writing:
    """The writing half of the pipeline."""

    __slots__ = ("claims", "core", "tasks")

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core
        self.claims: dict[str, int] = {}
        """What this process runs: ledger key → fence. The housekeeper renews their leases."""
        self.tasks: set[asyncio.Task[Any]] = set()

    async def call(self, attempt: Attempt, needs_person: bool) -> ToolResponse:
        """Steps 9 to 16 for a writing or held call."""
        session, plan, turn = attempt.session, attempt.plan, attempt.turn
        # 9. Key
        attempt.digest = args_digest(plan.definition, attempt.args, attempt.canonical)
        pair = (plan.tool_id, attempt.digest)
        held = session.holds.get(pair)
        if held is not None:
            answer = await self.core.confirmations.answered_from(attempt, *held)
            if answer is not None:
                return answer
        if pair in turn.declined:
            return self.core.pipeline.refuse(attempt, declined(plan.tool_id))
        try:
            known = await self._known(attempt)
        except StoreUnavailable as error:
            return self._unavailable(attempt, error)
        if known is not None:
            return known
        # 10. Rate limit, 11. loop, 12. budget
        refusal = self.core.pipeline.charge(attempt)
        if refusal is not None:
            return self.core.pipeline.refuse(attempt, refusal)
        # 13. Confirmation
        if needs_person:
            try:
                return await self.core.confirmations.hold(attempt)
            except StoreUnavailable as error:
                return self._unavailable(attempt, error)
        # 14. Claim, 15. run, 16. settle
        return await self.carry_out(attempt, None)

    async def carry_out(self, attempt: Attempt, hold: Hold | None) -> ToolResponse:
        """Claim and run, in a task that outlives its caller."""
        task = asyncio.get_running_loop().create_task(self._claim_and_run(attempt, hold))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        try:
            answer = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                task.add_done_callback(lambda done: self._deliver_late(attempt, done))
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _known(self, attempt: Attempt) -> ToolResponse | None:
        """The answer of an execution with this key, if there is one; otherwise the attempt has its key and ordinal."""
        session, plan, turn = attempt.session, attempt.plan, attempt.turn
        pair = (plan.tool_id, attempt.digest)
        if pair in turn.unknown or session.resumed:
            row = await self.core.store.unknown_like(session.id, turn.number, *pair)
            if row is not None:
                return self.outcome_unknown(attempt)
            turn.unknown.discard(pair)
        attempt.ordinal = turn.ordinals.get(pair, 0) + 1 if attempt.key else 1
        while True:
            key = ledger_key(session.tenant, session.id, turn.number, plan.tool_id, attempt.digest, attempt.ordinal)
            entry = session.writes.get(key)
            if entry is None and session.resumed:
                entry = await self._stored(attempt, key)
            if entry is None:
                self._name(attempt, key)
                return None
            answer = await self.core.pipeline.await_outcome(attempt, entry)
            if not entry.settled:
                return answer
            if not _may_try_again(answer):
                turn.ordinals[pair] = attempt.ordinal
                if attempt.key:
                    session.calls_by_id[attempt.key] = entry
                return answer
            attempt.ordinal += 1

    async def _stored(self, attempt: Attempt, key: str) -> Entry | None:
        """What the store knows of this execution; another process's running one is waited for."""
        waited = 0.0
        entry = Entry(attempt.plan.tool_id, attempt.raw_digest, ledger_key=key)
        while True:
            row = await self.core.store.ledger_row(key)
            if row is None:
                return None
            if row.state is not LedgerState.RUNNING:
                break
            if waited >= attempt.session.limits.wait_seconds:
                return entry
            await self.core.clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
        settle_from_row(entry, row)
        attempt.session.writes[key] = entry
        return entry

    def _name(self, attempt: Attempt, key: str) -> None:
        attempt.key = attempt.key or key

    async def _claim_and_run(self, attempt: Attempt, hold: Hold | None) -> ToolResponse | BaseException:
        session, plan, turn = attempt.session, attempt.plan, attempt.turn
        pair = (plan.tool_id, attempt.digest)
        key = hold.ledger_key if hold else ledger_key(session.tenant, session.id, turn.number, *pair, attempt.ordinal)
        if plan.writes and not self._can_be_audited():
            return self._unavailable(attempt, StoreUnavailable("The audit log cannot be written."))
        entry = session.writes.get(key)
        if entry is not None:
            return await self.core.pipeline.await_outcome(attempt, entry)
        entry = session.writes[key] = Entry(plan.tool_id, attempt.raw_digest, ledger_key=key)
        if attempt.key:
            session.calls_by_id[attempt.key] = entry
        self.core.crash("before_claim")
        try:
            result = await self._claimed(self._claim(attempt, key, hold))
        except StoreUnavailable as error:
            self._forget(attempt, key, entry)
            return self._unavailable(attempt, error)
        self.core.crash("after_claim")
        if result.verdict not in (ClaimVerdict.CLAIMED, ClaimVerdict.TAKEN_OVER):
            return await self._not_claimed(attempt, entry, key, result)
        if hold is None:
            turn.ordinals[pair] = attempt.ordinal
        self.claims[key] = result.fence
        try:
            return await self._execute(attempt, entry, key, result.fence, hold)
        finally:
            self.claims.pop(key, None)

    async def _claimed(self, claim: Claim) -> ClaimResult:
        """Asked a second time where the store did not answer: a claim that was committed unheard is recognised as ours."""
        try:
            return await self.core.store.claim(claim)
        except StoreUnavailable:
            return await self.core.store.claim(claim)

    async def _execute(
        self, attempt: Attempt, entry: Entry, key: str, fence: int, hold: Hold | None
    ) -> ToolResponse | BaseException:
        plan, session = attempt.plan, attempt.session
        passed_on: BaseException | None = None
        self.core.crash("before_handler")
        try:
            response, raw = await self.core.pipeline.run(attempt, key)
        except BaseException as error:  # noqa: BLE001  # a process exit or cancellation: recorded here, raised again for the caller
            passed_on = error
            failure = ToolFailure(
                ErrorType.CANCELLED, f'"{plan.tool_id}" was ended before it finished.', False, plan.writes
            )
            response, raw = ToolResponse(False, None, failure), b""
        self.core.crash("after_handler")
        state = _state_of(response, plan.effects == "unsafe", passed_on is not None)
        answer = self.core.pipeline.finished(attempt, response, raw)
        row = await self._finish(attempt, key, fence, state, answer)
        self.core.crash("after_finish")
        if row is not None and (row.fence != fence or row.state is not state):
            # Somebody took over, or settled it, while we ran: theirs is the recorded outcome, and only that is told.
            settle_from_row(entry, row)
            answer = entry.replay()
        elif state is LedgerState.UNKNOWN:
            attempt.turn.unknown.add((plan.tool_id, attempt.digest))
            entry.settle(_unknown_answer(plan.tool_id, answer.meta), b"")
        else:
            entry.settle(answer, raw)
            if answer.ok and answer.intents:
                self.core.apply_intents(session, attempt, answer.intents)
        self.core.crash("before_delivery")
        return passed_on if passed_on is not None else answer

    async def _finish(
        self, attempt: Attempt, key: str, fence: int, state: LedgerState, answer: ToolResponse
    ) -> LedgerRow | None:
        """Store the outcome; tried again while the store is away, because the effect has happened."""
        finish = Finish(
            key=key,
            fence=fence,
            state=state,
            envelope=orjson.dumps(answer.to_dict()).decode(),
            block=_block(attempt.session, answer),
        )
        for attempt_number in range(_FINISH_TRIES):
            try:
                return await self.core.store.finish(finish)
            except StoreUnavailable as error:
                self.core.log.warning("The outcome of %s could not be stored yet: %s", attempt.plan.tool_id, error)
                await self.core.clock.sleep(0.05 * 2**attempt_number)
        self.core.log.error("The outcome of %s could not be stored; it will be listed as unknown", attempt.plan.tool_id)
        return None

    async def _not_claimed(self, attempt: Attempt, entry: Entry, key: str, result: ClaimResult) -> ToolResponse:
        session = attempt.session
        row = result.row
        match result.verdict:
            case ClaimVerdict.SETTLED if row is not None:
                settle_from_row(entry, row)
                return await self._given_back(attempt, entry)
            case ClaimVerdict.RUNNING:
                stored = await self._stored(attempt, key)
                if stored is not None and stored.settled and stored.response is not None:
                    entry.settle(*stored.response)
                    return await self._given_back(attempt, entry)
                self._forget(attempt, key, entry)
                budget.give_back(attempt)
                return self.core.pipeline.refuse(attempt, _running(attempt.plan.tool_id), free=True)
            case ClaimVerdict.UNKNOWN:
                self._forget(attempt, key, entry)
                budget.give_back(attempt)
                return self.outcome_unknown(attempt)
            case _:
                self._forget(attempt, key, entry)
                if result.verdict is ClaimVerdict.STALE_CONNECTION:
                    session.is_stale = True
                return self.core.pipeline.refuse(attempt, _verdict_refusal(attempt, result), free=True)

    async def _given_back(self, attempt: Attempt, entry: Entry) -> ToolResponse:
        budget.give_back(attempt)
        return await self.core.pipeline.await_outcome(attempt, entry)

    def outcome_unknown(self, attempt: Attempt) -> ToolResponse:
        """It may have run: that is the answer, and it never runs again by itself."""
        attempt.turn.unknown.add((attempt.plan.tool_id, attempt.digest))
        duration = (perf_counter() - attempt.started) * 1000
        refusal = Refusal("ledger", ErrorType.CONFLICT, _unknown_message(attempt.plan.tool_id), rule="unknown")
        self.core.audit_refusal(attempt, refusal, duration)
        return _unknown_answer(attempt.plan.tool_id, self.core.pipeline.meta(attempt, duration))

    def _claim(self, attempt: Attempt, key: str, hold: Hold | None) -> Claim:
        session, plan = attempt.session, attempt.plan
        alias = None
        if attempt.key.startswith("provider:"):
            alias = Alias(
                call_id=attempt.key,
                tool=plan.tool_id,
                raw_digest=self.core.digest_of(attempt.raw_digest),
                ledger_key=key,
                hold_id=hold.hold_id if hold else None,
            )
        return Claim(
            key=key,
            tenant=session.tenant,
            session_id=session.id,
            user=session.user,
            turn=hold.turn if hold else attempt.turn.number,
            connection=session.connection,
            tool=plan.tool_id,
            tool_hash=plan.tool.hash,
            registry_version=session.snapshot.version,
            args_digest=attempt.digest,
            args=attempt.canonical.decode(),
            effects=plan.effects,
            ordinal=attempt.ordinal,
            owner=self.core.owner,
            lease_ms=session.policy.lease_ms,
            alias=alias,
            hold_id=hold.hold_id if hold else None,
            rate=None if hold else claim_charge(session, plan.tool_id, plan.definition.rate_limit),
            counters=attempt.turn.counters(),
            check_connection=hold is None,
            claim_id=secrets.token_hex(8),
        )

    def _can_be_audited(self) -> bool:
        self.core.audit.flush()
        return self.core.audit.healthy

    def _unavailable(self, attempt: Attempt, error: StoreUnavailable) -> ToolResponse:
        refusal = Refusal(
            "ledger",
            ErrorType.STORE_UNAVAILABLE,
            f'"{attempt.plan.tool_id}" did not run, because it could not be recorded; try again shortly.',
            rule="store",
            value=str(error),
            retry_after=2.0,
            retryable=True,
        )
        return self.core.pipeline.refuse(attempt, refusal, free=True)

    def _forget(self, attempt: Attempt, key: str, entry: Entry) -> None:
        session = attempt.session
        if session.writes.get(key) is entry:
            del session.writes[key]
        if session.calls_by_id.get(attempt.key) is entry:
            del session.calls_by_id[attempt.key]
        entry.abandon()

    def _deliver_late(self, attempt: Attempt, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None or not isinstance(task.result(), ToolResponse):
            return
        self.core.deliver(attempt.session, attempt.call.call_id, attempt.plan.tool_id, task.result(), silent=True)


def settle_from_row(entry: Entry, row: LedgerRow) -> None:
    """What a stored outcome says. A body that was evicted is not run again for."""
    if row.state is LedgerState.UNKNOWN:
        entry.settle(_unknown_answer(row.tool, {}), b"")
        return
    if row.envelope is None:
        message = f'"{row.tool}" has run, but its result is no longer kept.'
        entry.settle(
            ToolResponse(False, None, ToolFailure(ErrorType.INTERNAL, message, False, True), (), {"toolId": row.tool}),
            b"",
        )
        return
    response = ToolResponse.from_dict(orjson.loads(row.envelope))
    entry.settle(response, orjson.dumps(response.data))


def declined(tool: str) -> Refusal:
    message = f'A person has declined "{tool}" with these arguments.'
    return Refusal(
        "confirmation", ErrorType.DECLINED, message, rule="declined", suggestion="Do not ask again; find another way."
    )


def _may_try_again(response: ToolResponse) -> bool:
    error = response.error
    return error is not None and error.type in PASSING and not error.partial_side_effects


def _state_of(response: ToolResponse, unsafe: bool, cut_off: bool) -> LedgerState:
    if response.ok:
        return LedgerState.SUCCEEDED
    assert response.error is not None
    if cut_off:
        return LedgerState.UNKNOWN if unsafe else LedgerState.CANCELLED
    if response.meta.get("resultUnavailable"):
        return LedgerState.SUCCEEDED
    if unsafe and response.error.type in (ErrorType.INTERNAL, ErrorType.TIMEOUT):
        return LedgerState.UNKNOWN
    return LedgerState.FAILED


def _unknown_message(tool: str) -> str:
    return f'It is not known whether "{tool}" has run with these arguments; a person has to look. It was not run again.'


def _unknown_answer(tool: str, meta: Any) -> ToolResponse:
    return ToolResponse(False, None, ToolFailure(ErrorType.CONFLICT, _unknown_message(tool), False, True), (), meta)


def _running(tool: str) -> Refusal:
    message = f'"{tool}" is still running from an earlier request.'
    return Refusal("ledger", ErrorType.IN_PROGRESS, message, rule="running", retry_after=1.0, retryable=True)


def _verdict_refusal(attempt: Attempt, result: ClaimResult) -> Refusal:
    tool = attempt.plan.tool_id
    wait = result.retry_after_ms / 1000 if result.retry_after_ms is not None else None
    match result.verdict:
        case ClaimVerdict.BLOCKED:
            return Refusal("session", ErrorType.AUTH, "This user is blocked for now.", rule="block", retry_after=wait)
        case ClaimVerdict.SWITCHED_OFF:
            return Refusal("availability", ErrorType.UNAVAILABLE, f'"{tool}" is switched off for now.', rule="switch")
        case ClaimVerdict.RATE_LIMITED:
            message = f'"{tool}" was called too often by this user.'
            return Refusal("rate", ErrorType.RATE_LIMIT, message, rule="rateLimit", retry_after=wait, retryable=True)
        case ClaimVerdict.STALE_CONNECTION:
            return Refusal(
                "session", ErrorType.CONFLICT, "This connection was replaced by a newer one.", rule="connection"
            )
        case ClaimVerdict.INACTIVE:
            return Refusal("session", ErrorType.SESSION_INACTIVE, "The session has ended.", rule="active")
        case ClaimVerdict.NO_GRANT:
            return Refusal(
                "confirmation",
                ErrorType.CONFLICT,
                "This approval was used, has expired, or was for something else.",
                rule="grant",
            )
        case _:
            message = "This key stands for another call."
            return Refusal("ledger", ErrorType.CONFLICT, message, rule=result.verdict.value)


def _block(session: Session, answer: ToolResponse) -> Block | None:
    """A block that the handler asked for is stored with its outcome."""
    if not answer.ok or session.user is None:
        return None
    for intent in answer.intents:
        until = intent.fields.get("until")
        if intent.type == IntentType.BLOCK_USER and isinstance(until, (int, float)) and not isinstance(until, bool):
            return Block(tenant=session.tenant, user=session.user, until=int(until * 1000))
    return None
