"""A person's answer to a held call: approved, it is checked again and carried out once; declined, it never runs.

Whoever has the session's connection carries an approved call out; otherwise the approver's process does, after a short wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.ports import Clock
from handrail.contract.store import Approval, Hold, HoldState, LedgerRow, LedgerState, Store, StoreUnavailable
from handrail.runtime.call_attempt import Attempt, Refusal, RefusalRule
from handrail.runtime.claim_and_run import LedgerClaims
from handrail.runtime.confirmation import (
    OPEN,
    Confirmations,
    closed_answer,
    readmit,
    request_of,
    shown_digest,
    token_hash,
)
from handrail.runtime.envelopes import AuditTrail, declined_again, declined_answer, not_recorded
from handrail.runtime.known_calls import KnownCall
from handrail.runtime.ledger_lookup import LedgerLookup, UnconfirmedClaims, settle_from_row, sleep_unless
from handrail.runtime.policy import Policy
from handrail.runtime.statistics import CallStatistics
from handrail.runtime.turns import pair_of

if TYPE_CHECKING:
    from handrail.runtime.session import Session

_POLL_SECONDS = 0.1
_GRANTED = (HoldState.APPROVED, HoldState.CONSUMED)


class HeldSessions(Protocol):
    """The sessions of held calls: those that are open here, and those that only the store has."""

    def open_session_of(self, hold: Hold) -> Session | None:
        """The session, if this process has it."""

    async def session_for(self, hold: Hold) -> Session | None:
        """The session, made from the store for this approval where this process does not have it; None if it has ended."""

    def has_connection(self, session: Session) -> bool:
        """Whether the session's model stream is attached to this process."""

    async def pseudonym_of(self, session: Session, user: str | None) -> str | None:
        """Under which name the audit log knows a person."""


class Approvals:
    """Takes the answers of persons for one runtime."""

    __slots__ = (
        "_approving",
        "_claims",
        "_clock",
        "_confirmations",
        "_crash",
        "_log",
        "_lookup",
        "_policy",
        "_sessions",
        "_spawn",
        "_store",
        "_trail",
        "_unconfirmed",
        "_usage",
    )

    def __init__(
        self,
        store: Store,
        sessions: HeldSessions,
        confirmations: Confirmations,
        claims: LedgerClaims,
        unconfirmed: UnconfirmedClaims,
        lookup: LedgerLookup,
        trail: AuditTrail,
        *,
        policy: Policy,
        clock: Clock,
        log: logging.Logger,
        crash: Callable[[str], None],
        spawn: Callable[[Coroutine[Any, Any, Any]], None],
        usage: CallStatistics | None = None,
    ) -> None:
        self._store = store
        self._usage = usage
        self._sessions = sessions
        self._confirmations = confirmations
        self._claims = claims
        self._unconfirmed = unconfirmed
        self._lookup = lookup
        self._trail = trail
        self._policy = policy
        self._clock = clock
        self._log = log
        self._crash = crash
        self._spawn = spawn
        self._approving: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """Session and tool → whose approved call runs; only for tools whose `preview` looks facts up."""

    async def find(self, hold_id: object) -> Hold | None:
        """The held call of this id."""
        return await self._store.hold_by_id(hold_id) if isinstance(hold_id, str) and hold_id.isascii() else None

    async def approve(self, hold: Hold, token: object, approval: Approval) -> ToolResponse:
        """A person said yes. The outcome of the held call, whoever runs it; or why it does not run."""
        # The token first. Without it nobody learns what state the request is in, nor that it exists.
        shown = await self._shown_with(hold, token)
        if shown is None:
            return self.not_found(hold.hold_id)
        # The grant was used by a claim of ours that nobody answered: to the store it is carried out, and it has not started.
        if self._unconfirmed.covers(hold):
            return await self._carry_out_unconfirmed(hold)
        if hold.state is HoldState.CONSUMED:
            return await self._outcome(hold)
        if hold.state not in OPEN:
            return closed_answer(hold)
        session = await self._sessions.session_for(hold)
        if session is None:
            return _session_ended()
        attempt = readmit(session, hold)
        if isinstance(attempt, Refusal):
            return await self._refuse_readmission(session, hold, attempt)
        if not self._confirmations.has_facts(attempt.plan):
            return await self._approve_shown(session, attempt, hold, shown, approval)
        # A call of this tool that was approved before may still run, and change the very facts that this one depends on.
        lock = self._approving.setdefault((session.id, hold.tool), asyncio.Lock())
        async with lock:
            # The call that held the lock may have changed what the gates look at.
            attempt = readmit(session, hold)  # and what the gates say of it
            if isinstance(attempt, Refusal):
                return await self._refuse_readmission(session, hold, attempt)
            return await self._approve_shown(session, attempt, hold, shown, approval)

    async def _refuse_readmission(self, session: Session, hold: Hold, refusal: Refusal) -> ToolResponse:
        if refusal.rule is RefusalRule.SUPERSEDED:
            await self._confirmations.supersede(session, hold)
        return self._refuse(session, hold, refusal)

    async def _approve_shown(
        self, session: Session, attempt: Attempt, hold: Hold, shown: str, approval: Approval
    ) -> ToolResponse:
        """The facts are still what the person saw: the grant is given, and the call is carried out."""
        hold_id = hold.hold_id
        if hold.state is HoldState.PENDING:
            # A yes is to what the person saw. If that is no longer so, it is a yes to nothing.
            changed = await self._ask_anew_if_changed(session, attempt, hold, shown)
            if changed is not None:
                return changed
        approval = approval._replace(approver=approval.approver or hold.user)
        named = await self._sessions.pseudonym_of(session, approval.approver)
        self._crash("before_approve")
        # One statement decides between two answers at the same time; whoever comes second reads what the first has made of it.
        moved = await self._store.move_hold(hold_id, HoldState.APPROVED, expected=OPEN, approval=approval)
        self._crash("after_approve")
        if moved is None or moved.state is not HoldState.APPROVED:
            if moved is not None and moved.state is HoldState.CONSUMED:
                return await self._outcome(moved)
            return closed_answer(moved or hold)
        self._trail.audit_hold("confirmation_approved", session, hold, approver=named, approved_via=approval.via)
        # The owner's process has the session's state, its handlers' capabilities and the model to report to.
        if not self._sessions.has_connection(session):
            taken = await self._left_to_owner(session, moved)
            if taken is not None:
                return taken
        answer = await self._carry_out(session, attempt, moved)
        # A grant that stayed would let the call run later, when nobody expects it any more.
        refused = await self._reopen_if_refused(session, moved)
        if refused is not None and refused.state not in (*OPEN, HoldState.CONSUMED):
            return closed_answer(refused)
        unheard = answer.error is not None and answer.error.type is ErrorType.STORE_UNAVAILABLE
        if unheard and refused is not None and refused.state is HoldState.PENDING:
            return answer._replace(error=not_recorded(hold.tool, "").failure())
        return answer

    def not_found(self, hold_id: object) -> ToolResponse:
        """Nobody learns whether it is the id or the token that is wrong."""
        fields = {"confirmationId": hold_id, "ok": False, "errorType": "NOT_FOUND", "gate": "confirmation"}
        self._trail.audit.emit("confirmation", fields)
        return no_such_request()

    def _refuse(self, session: Session, hold: Hold, refusal: Refusal) -> ToolResponse:
        self._trail.audit_hold("confirmation_refused", session, hold, refusal)
        return ToolResponse(False, None, refusal.failure(), (), {"toolId": hold.tool})

    async def _ask_anew_if_changed(
        self, session: Session, attempt: Attempt, hold: Hold, shown: str
    ) -> ToolResponse | None:
        """The facts are looked up once more. If they are not what this person saw, the request is shown anew, and this yes
        counts for nothing; None if they are."""
        preview, facts = (
            await self._confirmations.preview(attempt)
            if self._confirmations.has_facts(attempt.plan)
            else (hold.preview, "")
        )
        # Looking up takes time, in which a newer request may have replaced this one.
        stored = await self._store.hold_by_id(hold.hold_id)
        if stored is None or stored.state is not HoldState.PENDING:
            return None  # somebody has answered meanwhile, and what they set off may be what has changed
        now = replace(stored, preview=preview)
        if shown_digest(now, facts) == shown:
            return None
        self._confirmations.announce(session, await self._confirmations.shown(now, facts, stored.preview))
        self._trail.audit_hold("confirmation_changed", session, now)
        message = "Nothing was run: what this would do has changed since it was shown. Look at it again, then decide."
        failure = ToolFailure(ErrorType.CONFIRMATION_REQUIRED, message, False, confirmation_request=request_of(now))
        return ToolResponse(False, None, failure, (), {"toolId": hold.tool})

    async def _reopen_if_refused(self, session: Session, hold: Hold) -> Hold | None:
        """The claim was refused (blocked, switched off): the approver learns so, and nothing runs later by itself. The request as
        it then is; None if it was carried out, or that cannot be seen."""
        known = session.holds.get(pair_of(hold))
        outcome = known[1].response if known is not None else None
        if outcome is not None and (outcome[0].error is None or outcome[0].error.type is not ErrorType.DECLINED):
            return None
        try:
            stored = await self._store.hold_by_id(hold.hold_id)
            # One that is claimed just now, for another yes to the same request, keeps the grant.
            is_refused = stored is not None and stored.state is HoldState.APPROVED
            if is_refused and not self._unconfirmed.is_under_way(hold):
                stored = await self._store.move_hold(hold.hold_id, HoldState.PENDING, expected=(HoldState.APPROVED,))
            return stored
        except StoreUnavailable as error:
            self._log.warning("A confirmation that was not carried out could not be opened again: %s", error)
            return None

    async def decline(self, hold: Hold, token: object) -> ToolResponse:
        """A person said no: that is the answer for the rest of the turn."""
        if await self._shown_with(hold, token) is None:
            return no_such_request()
        # Also after a yes: a claim that comes later finds no grant.
        left = declined_again(hold)
        envelope = orjson.dumps(left.to_dict()).decode()
        # A claim that a dead process left of it is settled in the same transaction: nobody takes it over after this no.
        moved = await self._store.decline_hold(hold.hold_id, expected=OPEN, left=envelope)
        was_open = moved is not None and moved.state is HoldState.DECLINED
        if moved is None or not (was_open or await self._unconfirmed.decline(moved)):
            return closed_answer(moved or hold)
        row = await self._store.ledger_row(hold.ledger_key) if was_open else None
        answer = left if row is not None and row.envelope == envelope else declined_answer(hold)
        session = await self._sessions.session_for(hold)
        if session is not None:
            known = session.holds.get(pair_of(hold))
            entry = known[1] if known is not None else KnownCall.of(hold.tool, "", hold_id=hold.hold_id)
            self._confirmations.decline(session, moved, entry, answer)
            if self._usage is not None:
                self._usage.declined(session, moved)
        return answer

    async def show_again(self, hold: Hold, token: object) -> dict[str, Any] | None:
        """An open request for somebody who was shown it before, its facts looked up now, with a fresh token."""
        if hold.state is not HoldState.PENDING or await self._shown_with(hold, token) is None:
            return None
        session = await self._sessions.session_for(hold)
        return await self._confirmations.show(session, hold) if session is not None else None

    async def _carry_out(self, session: Session, attempt: Attempt, hold: Hold) -> ToolResponse:
        """Run an approved call: once, whoever else tries. Its late envelope goes to the session's events."""
        pair = pair_of(hold)
        known = session.holds.get(pair)
        # It was asked for in another process, or before this one restarted.
        if known is None:
            raw = hold.alias.raw_digest if hold.alias else ""
            known = (hold, KnownCall.of(hold.tool, raw, ledger_key=hold.ledger_key, hold_id=hold.hold_id))
            session.holds[pair] = known
        entry = known[1]
        answer = await self._claims.run(attempt, hold, entry)
        if entry.response is not None:
            self._confirmations.deliver(session, hold, entry, answer)
        return answer

    async def carry_out_granted(self, session: Session) -> None:
        """What became of held calls in other processes. This one has the session's connection: it runs what was approved
        there, and tells the model what was carried out or declined there."""
        for hold, entry in list(session.holds.values()):
            # What this process has carried out, or carries out now, it knows best itself.
            if entry.response is not None or hold.ledger_key in session.writes:
                continue
            stored = await self._store.hold_by_id(hold.hold_id)
            if stored is None or stored.state in (HoldState.EXPIRED, HoldState.SUPERSEDED):
                session.holds.pop(pair_of(hold), None)
            elif stored.state is HoldState.APPROVED:
                attempt = readmit(session, stored)
                if isinstance(attempt, Attempt):
                    self._spawn(self._carry_out(session, attempt, stored))
            elif stored.state is HoldState.DECLINED and entry.response is None:
                self._confirmations.decline(session, stored, entry)
            elif stored.state is HoldState.CONSUMED:
                row = await self._store.ledger_row(hold.ledger_key)
                if row is not None and row.state is not LedgerState.RUNNING:
                    settle_from_row(entry, row)
                    self._confirmations.deliver(session, stored, entry, entry.replay())
                elif row is not None and await self._may_run_again(stored, row):
                    attempt = readmit(session, stored)
                    if isinstance(attempt, Attempt):
                        self._spawn(self._carry_out(session, attempt, stored))

    async def carry_out_unconfirmed(self) -> None:
        """Approved calls whose claims the store did not answer: carried out now, unless they are given up."""
        for hold_id in self._unconfirmed.holds():
            hold = await self._store.hold_by_id(hold_id)
            if hold is not None and self._unconfirmed.is_under_way(hold):
                continue
            granted = hold is not None and hold.state in _GRANTED and self._unconfirmed.has_claim(hold)
            if hold is None or not granted or await self._unconfirmed.is_over(hold):
                self._unconfirmed.forget(hold_id)
                continue
            session = await self._sessions.session_for(hold)
            attempt = readmit(session, hold) if session is not None else None
            if session is not None and isinstance(attempt, Attempt):
                self._spawn(self._carry_out(session, attempt, hold))

    async def _carry_out_unconfirmed(self, hold: Hold) -> ToolResponse:
        """The approver asks again: carried out now, unless the checks refuse it or it is given up."""
        if await self._unconfirmed.is_over(hold):
            return await self._outcome(hold)
        session = await self._sessions.session_for(hold)
        if session is None:
            return _session_ended()
        attempt = readmit(session, hold)
        if isinstance(attempt, Refusal):
            return self._refuse(session, hold, attempt)
        return await self._carry_out(session, attempt, hold)

    async def _left_to_owner(self, session: Session, hold: Hold) -> ToolResponse | None:
        """The process that has the session's connection runs it; if it does not within two seconds, we do."""
        waited = 0.0
        while waited < session.policy.approver_wait_seconds:
            # Asked before the look, so that a change right after it is heard.
            changed = self._store.changed(hold.hold_id)
            stored = await self._store.hold_by_id(hold.hold_id)
            if stored is not None and stored.state is HoldState.CONSUMED:
                return await self._outcome(stored)
            await sleep_unless(self._clock, _POLL_SECONDS, changed)
            waited += _POLL_SECONDS
        return None

    async def _outcome(self, hold: Hold) -> ToolResponse:
        """The outcome of a call that was carried out before: a second approval gets the same one. Where its process died and it
        may be run again, this approval runs it."""
        row = await self._store.ledger_row(hold.ledger_key)
        if row is not None and await self._may_run_again(hold, row):
            made = await self._sessions.session_for(hold)
            attempt = readmit(made, hold) if made is not None else None
            if made is not None and isinstance(attempt, Attempt):
                return await self._carry_out(made, attempt, hold)
        session = self._sessions.open_session_of(hold)
        entry = session.writes.get(hold.ledger_key) if session is not None else None
        if entry is None or entry.response is None:
            entry = KnownCall.of(hold.tool, "", ledger_key=hold.ledger_key)
            await self._lookup.settle(entry, hold.ledger_key, self._policy.text.wait_seconds)
        if entry.response is not None:
            return entry.replay()
        message = f'"{hold.tool}" is still running.'
        return ToolResponse.failure(ErrorType.IN_PROGRESS, message, retryable=True, retry_after=1.0)

    async def _may_run_again(self, hold: Hold, row: LedgerRow) -> bool:
        """Whether its process has died and the yes still counts."""
        if row.state is not LedgerState.RUNNING or hold.expires_at <= await self._store.now():
            return False
        return await self._lookup.may_be_taken_over(row)

    async def _shown_with(self, hold: Hold, token: object) -> str | None:
        """The digest of what was shown with this token; None if it is none of the request's secrets."""
        if not isinstance(token, str) or not token:
            return None
        return await self._store.shown_with(hold.hold_id, token_hash(token))


def _session_ended() -> ToolResponse:
    return ToolResponse.failure(ErrorType.SESSION_INACTIVE, "The session has ended.")


def no_such_request() -> ToolResponse:
    """What a wrong id and a wrong token get alike."""
    return ToolResponse.failure(ErrorType.NOT_FOUND, "There is no such confirmation request.")
