"""Confirmation: a call that a person must approve is held, shown, and carried out once, after the person said yes.

The model can never approve its own call: the secret goes to the user's channel only, is stored as a hash, and no argument,
tool, tool output or model text leads here. Approving is necessary, not sufficient: the checks run again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import orjson

from handrail.contract.call import Call
from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType, RegistryError, SchemaError
from handrail.contract.store import Approval, Hold, HoldState, LedgerState, StoreUnavailable
from handrail.runtime.admission import admit, prepare
from handrail.runtime.attempt import Attempt, Refusal, Write
from handrail.runtime.confirmation_view import (
    OPEN,
    call_id_of,
    closed_answer,
    confirmation_event,
    declined_answer,
    key_of,
    pair_of,
    request_of,
    shown_digest,
    shown_to_user,
)
from handrail.runtime.gates import budget
from handrail.runtime.keys import args_digest, exact_digest
from handrail.runtime.ledger_view import declined, not_recorded, settle_from_row
from handrail.runtime.preview import render, text_of_facts
from handrail.runtime.replays import Entry

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore
    from handrail.runtime.plan import ToolPlan
    from handrail.runtime.session import Session

_POLL_SECONDS = 0.1
_PREVIEW_SECONDS = 5.0
NOT_LOOKED_UP = "Not checked: the current facts, such as clashes or prices, could not be looked up."
"""What a person is told in place of the facts of a `preview` that failed or took too long."""


class Confirmations:
    """Held calls of one runtime."""

    __slots__ = ("_approvals", "core")

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core
        self._approvals: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """Session and tool → whose approved call runs; only for tools whose `preview` looks facts up."""

    def wanted(self, attempt: Attempt) -> bool:
        """Step 13's question, asked early: does a person have to approve this call?"""
        plan = attempt.plan
        if plan.always_confirm or (attempt.repaired and plan.writes):
            return True
        if plan.confirm_when is None:
            return False
        try:
            return plan.confirm_when.holds({**attempt.session.facts(), "args": attempt.args})
        except SchemaError as error:
            # A question that cannot be answered is put to a person.
            self.core.log.warning("%s", error)
            return True

    async def hold(self, attempt: Attempt, entry: Entry) -> ToolResponse:
        """Hold the call, ask the user's channel, and tell the model that it waits."""
        session, plan = attempt.session, attempt.plan
        token = secrets.token_urlsafe(32)
        seconds = session.limits.confirmation_seconds
        new, facts = await self._new_hold(attempt, await self.core.store.now() + seconds * 1000)
        self.core.crash("before_hold")
        asked = await self.core.store.hold(new, token_hash(token), shown_digest(new, facts))
        self.core.crash("after_hold")
        if session.writes.get(new.ledger_key) is entry:
            del session.writes[new.ledger_key]
        pair = pair_of(asked)
        there = session.holds.get(pair)
        if asked.hold_id != new.hold_id:
            budget.give_back(attempt)  # somebody has asked for the same meanwhile, and has paid for it
        else:
            self.core.metrics.held(plan.tool_id)
        if there is not None and there[0].hold_id == asked.hold_id:
            entry = there[1]
        session.holds[pair] = (asked, entry)
        entry.held(asked.hold_id, asked.ledger_key)
        if attempt.key.startswith("provider:"):
            self.core.dedup.stands_for(attempt, entry)
        limit = plan.definition.rate_limit
        if limit is not None and plan.writes and limit.scope == "user":
            self.core.rates.write_behind(
                session, plan.tool_id, limit, attempt.rate_slot
            )  # no claim will carry this unit
        if asked.hold_id == new.hold_id:
            self._announce(session, shown_to_user(asked, token))
        else:
            await self.announce_again(session, asked)
        self._announce_replaced(session, asked)
        self.core.trail.audit_hold("confirmation_wanted", session, asked)
        return self._held_answer(attempt, asked)

    async def again(self, attempt: Attempt, entry: Entry) -> ToolResponse:
        """The same call, by its id, while it is held, or after its request was closed."""
        hold = await self.core.store.hold_by_id(entry.hold_id or "")
        if hold is None:
            message = "The request for a confirmation is no longer kept."
            refusal = Refusal("confirmation", ErrorType.CONFLICT, message, rule="expired")
            return self.core.answers.refuse(attempt, refusal, free=True)
        if attempt.turn.from_before:
            self.core.dedup.take_held(attempt.session, attempt.turn, hold)
        if hold.state in OPEN:
            return self._held_answer(attempt, hold)
        if hold.state is HoldState.CONSUMED:
            await self._outcome(entry, hold.ledger_key, attempt.session.limits.wait_seconds)
            return await self._replayed(attempt, entry, hold.hold_id)
        if hold.state is HoldState.DECLINED:
            return self.core.answers.refuse(attempt, declined(hold.tool), free=True)
        failure = closed_answer(hold).error
        assert failure is not None
        refusal = Refusal("confirmation", failure.type, failure.message, rule=hold.state.value)
        return self.core.answers.refuse(attempt, refusal, free=True)

    async def answered_from(self, attempt: Attempt, hold: Hold, entry: Entry) -> ToolResponse | None:
        """The answer that an open or carried-out confirmation gives to an identical call; None if it gives none any more."""
        session = attempt.session
        stored = await self.core.store.hold_by_id(hold.hold_id)
        if stored is not None and stored.state in OPEN:
            await self._same_hold(attempt, stored, entry)
            if attempt.turn.number > stored.asked_turn:
                await self.core.store.ask_again(stored.hold_id, attempt.turn.number)
                self._announce_replaced(session, stored)
            return self._held_answer(attempt, stored)
        if (
            stored is not None
            and stored.state is HoldState.CONSUMED
            and stored.expires_at > await self.core.store.now()
            and not (stored.told_turn is not None and attempt.turn.number > stored.told_turn)
        ):
            if entry.unknown or not (entry.settled or hold.ledger_key in session.writes):
                await self._outcome(entry, hold.ledger_key, session.limits.wait_seconds)
            failure = entry.response[0].error if entry.response is not None else None
            if failure is None or failure.partial_side_effects:
                if entry.settled:
                    await self._same_hold(attempt, stored, entry)
                return await self._replayed(attempt, entry, stored.hold_id)
            # It failed without effects, so it was not carried out: a person is asked anew.
        if stored is not None and stored.state is HoldState.DECLINED and not entry.settled:
            self._declined(session, stored, entry)  # by somebody who reached another process
        pair = pair_of(hold)
        if session.holds.get(pair, (None, None))[1] is entry:
            del session.holds[pair]
        return None

    async def answered_under(self, attempt: Attempt, key: str) -> ToolResponse | None:
        """The answer of a confirmation with this ledger key: of a call with other arguments that the tool's `dedupeFields`
        make the same one. A call with an id of its own takes another key; one that may be a repetition does not."""
        for hold, entry in list(attempt.session.holds.values()):
            if hold.ledger_key == key:
                answer = await self.answered_from(attempt, hold, entry)
                if answer is not None:
                    return answer
        return None

    async def _replayed(self, attempt: Attempt, entry: Entry, hold_id: str) -> ToolResponse:
        """The outcome as the answer to a further call: so the model knows it."""
        answer = await self.core.answers.replay(attempt, entry)
        if entry.settled:
            await self.outcome_told(hold_id, attempt.turn.number)
        return answer

    async def outcome_told(self, hold_id: str, turn: int) -> None:
        """The model was given the outcome in this turn. From the user's next one on an identical call is a new wish."""
        try:
            await self.core.store.outcome_told(hold_id, turn)
        except StoreUnavailable as error:
            # Until the request would have expired, identical calls get the outcome: too careful, and never twice.
            self.core.log.warning("That the model knows an outcome could not be stored: %s", error)

    async def _same_hold(self, attempt: Attempt, hold: Hold, entry: Entry) -> None:
        """Another id for a call that is held, or was: it stands for the same request from now on."""
        if attempt.key.startswith("provider:") and attempt.session.calls_by_id.get(attempt.key) is not entry:
            self.core.dedup.stands_for(attempt, entry)
            key = hold.ledger_key if hold.state is HoldState.CONSUMED else None
            await self.core.dedup.remember_id(attempt, key, hold.hold_id)

    async def approve(
        self, hold_id: str, token: str, approver: str | None = None, via: str | None = None
    ) -> ToolResponse:
        """A person said yes. The outcome of the held call, whoever runs it; or why it does not run."""
        approval = Approval(approver, via)
        hold, shown = await self._authentic(hold_id, token)
        if hold is None:
            self.core.audit.emit(
                "confirmation",
                {"confirmationId": hold_id, "ok": False, "errorType": "NOT_FOUND", "gate": "confirmation"},
            )
            return _failure(ErrorType.NOT_FOUND, "There is no such confirmation request.")
        if self.core.unconfirmed_claims.about(hold):
            return await self.core.unconfirmed_claims.again(hold)
        if hold.state is HoldState.CONSUMED:
            return await self.carried_out(hold)
        if hold.state not in OPEN:
            return closed_answer(hold)
        session = await self.core.session_for(hold)
        if session is None:
            return _failure(ErrorType.SESSION_INACTIVE, "The session has ended.")
        attempt, refusal = self.checked_again(session, hold)
        if refusal is not None:
            if refusal.rule == "superseded":
                await self._supersede(session, hold)
            return self.refused(session, hold, refusal)
        assert attempt is not None
        if not self._has_facts(attempt.plan):
            return await self._approved(session, attempt, hold, shown, approval)
        # A call of this tool that was approved before may still run, and change the very facts that this one depends on.
        lock = self._approvals.setdefault((session.id, hold.tool), asyncio.Lock())
        async with lock:
            return await self._approved(session, attempt, hold, shown, approval)

    async def _approved(
        self, session: Session, attempt: Attempt, hold: Hold, shown: str, approval: Approval
    ) -> ToolResponse:
        """The facts are still what the person saw: the grant is given, and the call is carried out."""
        hold_id = hold.hold_id
        if hold.state is HoldState.PENDING:
            changed = await self._ask_anew_if_changed(session, attempt, hold, shown)
            if changed is not None:
                return changed
        approval = approval._replace(approver=approval.approver or hold.user)
        named = await self.core.pseudonym_of(session, approval.approver)
        self.core.crash("before_approve")
        moved = await self.core.store.move_hold(hold_id, HoldState.APPROVED, frm=OPEN, approval=approval)
        self.core.crash("after_approve")
        if moved is None or moved.state is not HoldState.APPROVED:
            if moved is not None and moved.state is HoldState.CONSUMED:
                return await self.carried_out(moved)
            return closed_answer(moved or hold)
        self.core.trail.audit_hold("confirmation_approved", session, hold, approver=named, approved_via=approval.via)
        if not self.core.has_connection(session):
            taken = await self._left_to_owner(session, moved)
            if taken is not None:
                return taken
        answer = await self.carry_out(session, attempt, moved)
        refused = await self._reopen_if_refused(session, moved)
        if refused is not None and refused.state not in (*OPEN, HoldState.CONSUMED):
            return closed_answer(refused)
        unheard = answer.error is not None and answer.error.type is ErrorType.STORE_UNAVAILABLE
        if unheard and refused is not None and refused.state is HoldState.PENDING:
            return answer._replace(error=not_recorded(hold.tool, "").failure())
        return answer

    def refused(self, session: Session, hold: Hold, refusal: Refusal) -> ToolResponse:
        self.core.trail.audit_hold("confirmation_refused", session, hold, refusal)
        return ToolResponse(False, None, refusal.failure(), (), {"toolId": hold.tool})

    async def _ask_anew_if_changed(
        self, session: Session, attempt: Attempt, hold: Hold, shown: str
    ) -> ToolResponse | None:
        """The facts are looked up once more. If they are not what this person saw, the request is shown anew, and this yes
        counts for nothing; None if they are."""
        preview, facts = await self._preview(attempt) if self._has_facts(attempt.plan) else (hold.preview, "")
        # Looking up takes time, in which a newer request may have replaced this one.
        stored = await self.core.store.hold_by_id(hold.hold_id)
        if stored is None or stored.state is not HoldState.PENDING:
            return None  # somebody has answered meanwhile, and what they set off may be what has changed
        now = replace(stored, preview=preview)
        if shown_digest(now, facts) == shown:
            return None
        self._announce(session, await self._shown(now, facts, stored.preview))
        self.core.trail.audit_hold("confirmation_changed", session, now)
        message = "Nothing was run: what this would do has changed since it was shown. Look at it again, then decide."
        failure = ToolFailure(ErrorType.CONFIRMATION_REQUIRED, message, False, confirmation_request=request_of(now))
        return ToolResponse(False, None, failure, (), {"toolId": hold.tool})

    async def _reopen_if_refused(self, session: Session, hold: Hold) -> Hold | None:
        """The claim was refused (blocked, switched off): the approver is told, and nothing runs later by itself. The request as
        it then is; None if it was carried out, or that cannot be seen."""
        known = session.holds.get(pair_of(hold))
        outcome = known[1].response if known is not None else None
        if outcome is not None and (outcome[0].error is None or outcome[0].error.type is not ErrorType.DECLINED):
            return None
        try:
            stored = await self.core.store.hold_by_id(hold.hold_id)
            if stored is not None and stored.state is HoldState.APPROVED:
                stored = await self.core.store.move_hold(hold.hold_id, HoldState.PENDING, frm=(HoldState.APPROVED,))
            return stored
        except StoreUnavailable as error:
            self.core.log.warning("A confirmation that was not carried out could not be opened again: %s", error)
            return None

    async def decline(self, hold_id: str, token: str) -> ToolResponse:
        """A person said no: that is the answer for the rest of the turn."""
        hold, _ = await self._authentic(hold_id, token)
        if hold is None:
            return _failure(ErrorType.NOT_FOUND, "There is no such confirmation request.")
        # Also after a yes: a claim that comes later finds no grant.
        moved = await self.core.store.move_hold(hold_id, HoldState.DECLINED, frm=OPEN)
        was_open = moved is not None and moved.state is HoldState.DECLINED
        if moved is None or not (was_open or await self.core.unconfirmed_claims.declined(moved)):
            return closed_answer(moved or hold)
        session = await self.core.session_for(hold)
        if session is not None:
            known = session.holds.get(pair_of(hold))
            entry = known[1] if known is not None else Entry.of(hold.tool, "", hold_id=hold_id)
            self._declined(session, moved, entry)
        return declined_answer(hold)

    def _declined(self, session: Session, hold: Hold, entry: Entry) -> None:
        """A person said no: told once, and the answer to identical calls for the rest of the turn."""
        if session.turn is not None:
            session.turn.declined.add(pair_of(hold))
            session.dirty = True
        answer = declined_answer(hold)
        entry.settle(answer, b"")
        self.core.trail.audit_hold("confirmation_declined", session, hold)
        self._tell(session, hold, entry, answer)

    def _tell(self, session: Session, hold: Hold, entry: Entry, answer: ToolResponse) -> None:
        """The late envelope, once."""
        if not entry.told:
            entry.told = True
            self.core.deliver(session, call_id_of(hold), hold.tool, answer, hold_id=hold.hold_id)

    async def carry_out(self, session: Session, attempt: Attempt, hold: Hold) -> ToolResponse:
        """Run an approved call: once, whoever else tries. Its late envelope goes to the session's events."""
        pair = pair_of(hold)
        known = session.holds.get(pair)
        if known is None:
            raw = hold.alias.raw_digest if hold.alias else ""
            known = (hold, Entry.of(hold.tool, raw, ledger_key=hold.ledger_key, hold_id=hold.hold_id))
            session.holds[pair] = known
        entry = known[1]
        answer = await self.core.writing.carry_out(attempt, hold, entry)
        if entry.response is not None:
            self._tell(session, hold, entry, answer)
        return answer

    async def follow(self, session: Session) -> None:
        """What became of held calls in other processes. This one has the session's connection: it runs what was approved
        there, and tells the model what was carried out or declined there."""
        for hold, entry in list(session.holds.values()):
            if entry.settled or hold.ledger_key in session.writes:
                continue
            stored = await self.core.store.hold_by_id(hold.hold_id)
            if stored is None or stored.state in (HoldState.EXPIRED, HoldState.SUPERSEDED):
                session.holds.pop(pair_of(hold), None)
            elif stored.state is HoldState.APPROVED:
                attempt, refusal = self.checked_again(session, stored)
                if attempt is not None and refusal is None:
                    self.core.spawn(self.carry_out(session, attempt, stored))
            elif stored.state is HoldState.DECLINED and not entry.settled:
                self._declined(session, stored, entry)
            elif stored.state is HoldState.CONSUMED:
                row = await self.core.store.ledger_row(hold.ledger_key)
                if row is not None and row.state is not LedgerState.RUNNING:
                    settle_from_row(entry, row)
                    self._tell(session, stored, entry, entry.replay())

    async def restore(self, session: Session) -> None:
        """After a resume: open requests go to the user's channel again; those whose tool changed are superseded."""
        stored = await self.core.store.holds(session.id, (*OPEN, HoldState.CONSUMED, HoldState.DECLINED))
        before, session.holds = session.holds, {}
        for hold in stored:
            pair = pair_of(hold)
            kept = before.get(pair)
            known = kept[1] if kept is not None and kept[0].hold_id == hold.hold_id else None
            if hold.state is HoldState.DECLINED:
                self._restore_no(session, hold, known)
                continue
            tool = session.snapshot.get(hold.tool)
            if hold.state in OPEN and (tool is None or tool.hash != hold.tool_hash):
                await self._supersede(session, hold)
                continue
            raw = hold.alias.raw_digest if hold.alias else ""
            entry = known or Entry.of(hold.tool, raw, ledger_key=hold.ledger_key, hold_id=hold.hold_id)
            session.holds[pair] = (hold, entry)
            if hold.alias is not None:
                session.calls_by_id[hold.alias.call_id] = entry
            if hold.state is HoldState.PENDING:
                # Beside the resumption: looking up facts may take seconds, and the model's connection does not wait for them.
                self.core.spawn(self.announce_again(session, hold))

    def _restore_no(self, session: Session, hold: Hold, known: Entry | None) -> None:
        """The turn's counters are written behind, so that a crash just after a no has left them without it."""
        if known is not None and not known.settled:
            self._declined(session, hold, known)  # by somebody who reached another process
        elif session.turn is not None and session.turn.number == hold.turn:
            session.turn.declined.add(pair_of(hold))

    async def show(self, session: Session, hold: Hold) -> dict[str, Any] | None:
        """An open request for the user's channel, its facts looked up now, with a fresh token; any of its tokens approves, once,
        what was shown with it. None if it was answered meanwhile."""
        return await self._shown(*await self._looked_up(session, hold), hold.preview)

    async def show_again(self, hold_id: str, token: str) -> dict[str, Any] | None:
        """`show`, for somebody who was shown it before."""
        hold, _ = await self._authentic(hold_id, token)
        session = await self.core.session_for(hold) if hold is not None and hold.state is HoldState.PENDING else None
        return await self.show(session, hold) if hold is not None and session is not None else None

    async def show_all(self, session: Session, *, tokens: bool = True) -> list[dict[str, Any]]:
        """The open requests of a session, in the order in which they were asked for; without `tokens` only to be looked at."""
        holds = await self.core.store.holds(session.id, (HoldState.PENDING,))
        show = self.show if tokens else self._look_at
        shown = await asyncio.gather(*(show(session, hold) for hold in holds))
        return [{**one, "turn": hold.turn} for one, hold in zip(shown, holds, strict=True) if one is not None]

    async def _look_at(self, session: Session, hold: Hold) -> dict[str, Any] | None:
        looked_up, _ = await self._looked_up(session, hold)
        shown = shown_to_user(looked_up, "")
        return {name: value for name, value in shown.items() if name != "token"}

    async def announce_again(self, session: Session, hold: Hold) -> None:
        self._announce(session, await self.show(session, hold))

    def _announce(self, session: Session, shown: Mapping[str, Any] | None) -> None:
        if shown is not None:
            session.events_queue.emit(confirmation_event(shown))

    def _announce_replaced(self, session: Session, newest: Hold) -> None:
        """Whoever still sees an older request of this tool is told that there is a newer one."""
        others = (hold for hold, _ in session.holds.values() if hold.tool == newest.tool)
        if any(hold.hold_id != newest.hold_id for hold in others):
            self.core.spawn(self._announce_those_replaced_by(session, newest))

    async def _announce_those_replaced_by(self, session: Session, newest: Hold) -> None:
        for hold in await self.core.store.holds(session.id, (HoldState.PENDING,)):
            if hold.replaced_by == newest.hold_id:
                await self.announce_again(session, hold)

    async def _shown(self, hold: Hold, facts: str, stored: str) -> dict[str, Any] | None:
        """`facts` are the uncut ones of the request; `stored` is the preview that the store has."""
        token = secrets.token_urlsafe(32)
        preview = hold.preview if hold.preview != stored else None
        kept = await self.core.store.add_hold_token(
            hold.hold_id, token_hash(token), shown_digest(hold, facts), preview=preview
        )
        return shown_to_user(hold, token) if kept.state is HoldState.PENDING else None

    async def _looked_up(self, session: Session, hold: Hold) -> tuple[Hold, str]:
        """The request with the facts of this moment, and these uncut. Where the call would be refused now, nothing is looked
        up for it."""
        plan = session.plans.find(hold.tool)
        if plan is None or not self._has_facts(plan):
            return hold, ""
        attempt, _ = self.checked_again(session, hold)
        if attempt is None:
            return hold, ""
        preview, facts = await self._preview(attempt)
        return replace(hold, preview=preview), facts

    def _has_facts(self, plan: ToolPlan) -> bool:
        try:
            return plan.tool.handler.preview is not None
        except RegistryError as error:  # it cannot run either, and whoever approves it is told so
            self.core.log.error("%s", error)
            return False

    async def _new_hold(self, attempt: Attempt, expires: int) -> tuple[Hold, str]:
        session, plan = attempt.session, attempt.plan
        assert attempt.write is not None
        hold_id = "conf_" + secrets.token_hex(12)
        preview, facts = await self._preview(attempt)
        hold = Hold(
            hold_id=hold_id,
            tenant=session.tenant,
            session_id=session.id,
            user=session.user,
            turn=attempt.turn.number,
            tool=plan.tool_id,
            tool_hash=plan.tool.hash,
            args_digest=attempt.exact,
            args=attempt.canonical.decode(),
            raw_args=attempt.raw_digest.decode(),
            preview=preview,
            channel=plan.definition.confirmation_channel,
            ledger_key=attempt.write.key,
            ordinal=attempt.ordinal,
            expires_at=expires,
            alias=self.core.writing.alias(attempt, None, hold_id),
            repaired=attempt.repaired,
            call_id=attempt.call.call_id,
        )
        return hold, facts

    async def _preview(self, attempt: Attempt) -> tuple[str, str]:
        """The trusted text, with the facts that the tool's own `preview` finds, where it has one; and these uncut."""
        hook = attempt.plan.tool.handler.preview
        facts: Any = None
        unknown = False
        if hook is not None:
            try:
                context = self.core.execution.context(attempt, None)
                seconds = min(_PREVIEW_SECONDS, attempt.plan.timeout)
                facts = await self.core.runner.call_hook(hook, orjson.loads(attempt.canonical), context, seconds)
            except Exception as error:  # noqa: BLE001  # an author's code may raise anything
                self.core.log.warning(
                    "The preview of %s failed: %s", attempt.plan.tool_id, str(error) or type(error).__name__
                )
                unknown = True
        redact = attempt.plan.redact
        masked = attempt.args if redact is None else redact(attempt.args)
        text = render(attempt.plan.definition, attempt.args, facts, masked)
        if unknown:
            return f"{text}\n{NOT_LOOKED_UP}", ""
        return text, "" if facts is None else text_of_facts(facts)

    def _held_answer(self, attempt: Attempt, hold: Hold) -> ToolResponse:
        duration = (perf_counter() - attempt.started) * 1000
        message = f'"{hold.tool}" waits for the approval of a person; tell the user what it is about, and do not call it again.'
        failure = ToolFailure(
            ErrorType.CONFIRMATION_REQUIRED,
            message,
            False,
            False,
            (),
            None,
            None,
            None,
            confirmation_request=request_of(hold),
        )
        attempt.charged = False  # a held call keeps its unit
        self.core.trail.audit_call("held", attempt, duration, False, failure.type.value)
        return ToolResponse(False, None, failure, (), self.core.answers.meta(attempt, duration))

    async def _authentic(self, hold_id: object, token: object) -> tuple[Hold | None, str]:
        """The held call, if the token is one of its secrets, and the digest of what was shown with it."""
        if not isinstance(hold_id, str) or not hold_id.isascii() or not isinstance(token, str) or not token:
            return None, ""
        hold = await self.core.store.hold_by_id(hold_id)
        shown = await self.core.store.shown_with(hold_id, token_hash(token)) if hold is not None else None
        return (None, "") if shown is None else (hold, shown)

    def checked_again(self, session: Session, hold: Hold) -> tuple[Attempt | None, Refusal | None]:
        """Steps 1 and 4 to 8, with the session as it is now and without the connection check."""
        plan = session.plans.find(hold.tool)
        if plan is None or plan.tool.hash != hold.tool_hash:
            return None, Refusal(
                "confirmation",
                ErrorType.CONFLICT,
                f'"{hold.tool}" has changed since it was asked for.',
                rule="superseded",
            )
        turn = session.turn or session.enter_turn(hold.turn, self.core.clock.monotonic())
        call = Call(name=hold.tool, args=None, call_id=call_id_of(hold))
        attempt = Attempt(session, call, plan, turn, perf_counter())
        attempt.args = orjson.loads(hold.raw_args)
        attempt.connection = None
        refusal = admit(attempt) or prepare(attempt)
        if refusal is not None:
            return None, refusal
        attempt.digest = args_digest(plan.definition, attempt.args, attempt.canonical)
        attempt.exact = exact_digest(attempt.canonical)
        if attempt.canonical.decode() != hold.args:
            return None, Refusal(
                "confirmation",
                ErrorType.CONFLICT,
                f'The arguments of "{hold.tool}" would now be others.',
                rule="superseded",
            )
        attempt.ordinal = hold.ordinal
        attempt.held = True
        attempt.write = Write(session.interruptions)
        attempt.key = key_of(hold)
        return attempt, None

    async def _supersede(self, session: Session, hold: Hold) -> None:
        await self.core.store.move_hold(hold.hold_id, HoldState.SUPERSEDED, frm=OPEN)
        session.holds.pop(pair_of(hold), None)
        self.core.trail.audit_hold("confirmation_superseded", session, hold)

    async def _left_to_owner(self, session: Session, hold: Hold) -> ToolResponse | None:
        """The process that has the session's connection runs it; if it does not within two seconds, we do."""
        waited = 0.0
        while waited < session.policy.approver_wait_seconds:
            stored = await self.core.store.hold_by_id(hold.hold_id)
            if stored is not None and stored.state is HoldState.CONSUMED:
                return await self.carried_out(stored)
            await self.core.clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
        return None

    async def carried_out(self, hold: Hold) -> ToolResponse:
        """The outcome of a call that was carried out before: a second approval gets the same one."""
        session = self.core.sessions.get(hold.session_id)
        entry = session.writes.get(hold.ledger_key) if session is not None else None
        if entry is None or not entry.settled:
            entry = Entry.of(hold.tool, "", ledger_key=hold.ledger_key)
            await self._outcome(entry, hold.ledger_key, self.core.policy.text.wait_seconds)
        if entry.settled:
            return entry.replay()
        message = f'"{hold.tool}" is still running.'
        return _failure(ErrorType.IN_PROGRESS, message, retryable=True, retry_after=1.0)

    async def _outcome(self, entry: Entry, key: str, seconds: float) -> None:
        waited = 0.0
        while waited < seconds:
            row = await self.core.store.ledger_row(key)
            if row is not None and row.state is not LedgerState.RUNNING:
                settle_from_row(entry, row)
                return
            await self.core.clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS


def token_hash(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _failure(kind: ErrorType, message: str, **facts: Any) -> ToolResponse:
    return ToolResponse.failure(kind, message, **facts)
