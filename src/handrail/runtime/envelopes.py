"""How a call is answered: with the envelope of a refusal, of an outcome, or of an earlier execution. Each is audited and counted.

`AuditTrail` writes one event each for executions, refusals, replays, confirmations and sessions; `Answers` makes the envelopes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from handrail.contract.call import Call
from handrail.contract.envelope import RESPONSE_SCHEMA_VERSION, EnvelopeParts, ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.ports import AuditPort, CallParts, CallRecord, Clock, DurableAudit, MetricsPort
from handrail.contract.store import Hold, StoreUnavailable
from handrail.runtime.call_attempt import Attempt, Refusal, RefusalRule
from handrail.runtime.gates import budget_left, give_back_budget
from handrail.runtime.known_calls import KnownCall, call_id_of, key_of
from handrail.runtime.policy import GateName
from handrail.runtime.refusal_lines import (
    Input,
    input_of,
    message_of,
    refusal_fields,
    refused_call,
    refused_name,
    unchanging,
    unplanned_input,
)
from handrail.runtime.statistics import CallStatistics

if TYPE_CHECKING:
    from handrail.runtime.session import Session
    from handrail.runtime.turns import TurnRecord

_UNCOUNTED_GATES = frozenset(GateName) - {
    GateName.FIND,
    GateName.PARSE,
    GateName.REPLAY,
    GateName.SESSION,
    GateName.MODE,
    GateName.AVAILABILITY,
    GateName.VALIDATE,
}
"""All but those of the first eight steps. Too many refusals by those, or by gates of the host, in a turn are a loop."""
_new = tuple.__new__


def milliseconds_since(started: float) -> float:
    """The time that a call has taken, to the microsecond."""
    return (perf_counter() - started) * 1_000_000 // 1 / 1000


class AuditTrail:
    """Writes the events of one runtime to its audit log."""

    __slots__ = ("_log", "audit", "durable")

    def __init__(self, audit: AuditPort, log: logging.Logger) -> None:
        self.audit = audit
        self.durable = audit if isinstance(audit, DurableAudit) else None
        self._log = log

    def note(self, event: str, session: Session, fields: Mapping[str, Any], *, private: Collection[str] = ()) -> None:
        """An event of a session; the words of a user who may be forgotten are sealed, and so are the fields in `private`."""
        subject = session.subject
        if subject is None or self.durable is None:
            self.audit.emit(event, fields)
        else:
            self.durable.emit_for(subject, event, fields, private=private)

    def audit_refusal(self, attempt: Attempt, refusal: Refusal, duration: float, event: str = "refusal") -> None:
        session, call, sent = attempt.session, attempt.call, input_of(attempt)
        who = self.who(session)
        who["connection"] = int(attempt.connection or session.connection)
        message, refusal = message_of(attempt, refusal), unchanging(refusal)
        facts = who, attempt.plan, call, attempt.key, refusal, message, sent, attempt.validation, duration
        self._note_later(event, session, partial(refused_call, *facts), sent)

    def audit_unknown(self, session: Session, call: Call, refusal: Refusal, duration: float) -> None:
        sent = unplanned_input(call.args, hides=bool(session.policy.redact))
        fields = partial(refused_name, self.who(session), call, unchanging(refusal), sent, duration)
        # The name is the model's own, and may be anything that was said.
        self._note_later("refusal", session, fields, sent, private=("toolId",))

    def _note_later(
        self,
        event: str,
        session: Session,
        fields: Callable[[], dict[str, Any]],
        sent: Input,
        *,
        private: Collection[str] = (),
    ) -> None:
        """`note` of what `fields` gives when the line is written."""
        if self.durable is None:
            self.audit.emit(event, fields())
        else:
            self.durable.emit_later(event, fields, session.subject, private=private, size=len(sent))

    def audit_hold(
        self,
        event: str,
        session: Session,
        hold: Hold,
        refusal: Refusal | None = None,
        *,
        approver: str | None = None,
        approved_via: str | None = None,
    ) -> None:
        """`approver` is the pseudonym of the person who approved, so that the line survives their being forgotten."""
        fields: dict[str, Any] = {
            "confirmationId": hold.hold_id,
            "toolId": hold.tool,
            "callId": call_id_of(hold),
            "idempotencyKey": key_of(hold),
            "ledgerKey": hold.ledger_key,
        }
        plan = session.plans[hold.tool]
        if plan is not None:
            fields["toolVersion"] = plan.version
        if approver is not None:
            fields["approver"] = approver
        if approved_via is not None:
            fields["approvedVia"] = approved_via
        told = refusal_fields(refusal, refusal.message) if refusal else {"ok": True}
        self.note(event, session, {**self.who(session), **fields, **told})

    def audit_session(self, event: str, session: Session, **facts: Any) -> None:
        who = {**self.who(session), "user": session.pseudonym, "tenant": session.tenant}
        self.note(event, session, {**who, **facts})

    def observe(self, attempt: Attempt, refusal: Refusal) -> None:
        """A gate that only observes: what it would have refused is written down, and the call passes."""
        self.audit_refusal(attempt, refusal, milliseconds_since(attempt.started), event="would_refuse")

    def warn_latency(self, attempt: Attempt, duration: float) -> dict[str, int]:
        """A call took longer than its soft budget: logged, and told to the model as this."""
        plan = attempt.plan
        limit = plan.latency_budget_ms
        if plan.retrieval:
            limit = min(limit, attempt.session.limits.retrieval_ms)
        self._log.warning("%s took %.0f ms; its budget is %d ms", plan.tool_id, duration, limit)
        return {"budgetMs": limit, "overMs": int(duration - limit)}

    def who(self, session: Session) -> dict[str, Any]:
        return {
            "sessionId": session.id,
            "turnId": session.turn.number if session.turn is not None else None,
            "connection": int(session.connection),
            "registryVersion": session.snapshot.version,
            "mode": session.state.mode,
        }


class StartOver(Exception):
    """The execution that a call waited for came to nothing, or is held now: the call passes the pipeline from its start."""


class Answers:
    """Makes the envelopes of one runtime."""

    __slots__ = ("_clock", "_metrics", "_note_call", "_note_line", "_now", "_trail", "_usage")

    def __init__(
        self, trail: AuditTrail, metrics: MetricsPort, clock: Clock, usage: CallStatistics | None = None
    ) -> None:
        self._usage = usage
        self._trail = trail
        self._metrics = metrics
        self._clock = clock
        # What every call does, so nothing stands between it and the append.
        self._note_line, self._now, self._note_call = trail.audit.note, trail.audit.clock, metrics.note

    def refuse(self, attempt: Attempt, refusal: Refusal, *, free: bool = False) -> ToolResponse:
        """The envelope of a refusal. A `free` one does not count towards the refusals that make a loop."""
        give_back_budget(attempt)
        turn = attempt.turn
        turn.refused += 1
        attempt.session.counted(turn)  # refusals, and identical calls that are refused, count after a restart too
        if not free and refusal.gate not in _UNCOUNTED_GATES:
            turn.refusals += 1
            if turn.refusals > attempt.session.policy.refusals:
                refusal = _too_many_refusals(turn.refusals, attempt.session.policy.refusals, refusal)
        duration = milliseconds_since(attempt.started)
        error = refusal.failure()
        error_type = error.type._value_  # `value` without the call
        if attempt.held:
            self._metrics.refused_held(attempt.plan.metric_name, duration, error_type)
        else:
            self._metrics.refused((attempt.plan.metric_name, duration, error_type))
        if self._usage is not None:
            self._usage.refused(attempt, refusal)
        self._trail.audit_refusal(attempt, refusal, duration)
        return ToolResponse(False, None, error, (), self.meta(attempt, duration))

    def refuse_unplanned(
        self,
        session: Session,
        call: Call,
        refusal: Refusal,
        started: float,
        *,
        free: bool = False,
        turn: TurnRecord | None = None,
    ) -> ToolResponse:
        """The envelope of a refusal where no tool was found for the call, or none was looked for."""
        turn = turn or session.turn
        assert turn is not None
        turn.refused += 1
        turn.refusals += not free
        session.counted(turn)
        if not free and turn.refusals > session.policy.refusals:
            refusal = _too_many_refusals(turn.refusals, session.policy.refusals, refusal)
        duration = milliseconds_since(started)
        self._trail.audit_unknown(session, call, refusal, duration)
        if self._usage is not None:
            self._usage.refused_unplanned(session, refusal)
        meta = {
            "toolId": call.name if isinstance(call.name, str) else "",
            "registryVersion": session.snapshot.version,
            "duration": duration,
            "responseSchemaVersion": RESPONSE_SCHEMA_VERSION,
            **({"budget": left} if (left := budget_left(session.limits, turn)) else {}),
        }
        return ToolResponse(False, None, refusal.failure(), (), meta)

    def refuse_unrecorded(self, attempt: Attempt, error: StoreUnavailable) -> ToolResponse:
        """The envelope of a writing call that did not run, because the store is away."""
        return self.refuse(attempt, not_recorded(attempt.plan.tool_id, str(error)), free=True)

    def refuse_unknown(self, attempt: Attempt, key: str) -> ToolResponse:
        """The envelope of a call that may have run: it never runs again by itself."""
        keep_unknown(attempt, key)
        duration = milliseconds_since(attempt.started)
        refusal = Refusal(
            GateName.LEDGER, ErrorType.CONFLICT, unknown_message(attempt.plan.tool_id), rule=RefusalRule.UNKNOWN
        )
        self._trail.audit_refusal(attempt, refusal, duration)
        if self._usage is not None:
            self._usage.refused(attempt, refusal)
        return unknown_answer(attempt.plan.tool_id, self.meta(attempt, duration))

    async def replay(self, attempt: Attempt, known: KnownCall) -> ToolResponse:
        """The envelope of an earlier execution, which is waited for a little if it still runs; or `StartOver`."""
        held = known.hold_id
        if known.response is None and not await known.wait(self._clock, attempt.session.limits.wait_seconds):
            if known.abandoned or (known.hold_id is not None and known.hold_id != held):
                raise StartOver
            message = f'"{attempt.plan.tool_id}" is still running from an earlier request.'
            refusal = Refusal(
                GateName.REPLAY,
                ErrorType.IN_PROGRESS,
                message,
                rule=RefusalRule.RUNNING,
                retry_after=1.0,
                retryable=True,
            )
            return self.refuse(attempt, refusal, free=True)
        first = known.call_id if known.call_id != attempt.call.call_id else None
        facts: dict[str, Any] = {"duplicateOf": first} if first else {}
        if left := budget_left(attempt.session.limits, attempt.turn):
            facts["budget"] = left  # that of now, not of then
        answer = known.replay(**facts)
        duration = milliseconds_since(attempt.started)
        error_type = None if answer.error is None else answer.error.type.value
        self.audit_call("replay", attempt, duration, error_type, duplicate_of=first, first=known)
        if self._usage is not None:
            self._usage.replayed(attempt)
        return answer

    def finish(self, attempt: Attempt, response: EnvelopeParts, raw: bytes) -> ToolResponse:
        """The envelope of an outcome with the facts about its call. `raw` is its data as JSON."""
        ok, data, error, intents, facts = response
        plan, session, turn, started = attempt.plan, attempt.session, attempt.turn, attempt.started
        session.last_used = started
        ended = perf_counter()
        duration = (ended - started) * 1_000_000 // 1 / 1000  # `milliseconds_since`, without the call
        if session.running or started < turn.tools_until:
            turn.tool_ms += turn.uncounted(started, duration)
        else:
            turn.tool_ms += duration
        turn.tools_until = ended
        meta = self.meta(attempt, duration)
        if facts:
            meta = {**facts, **meta}
        if plan.retrieval and ok and _is_empty(data):
            turn.empties[plan.tool_id] = turn.empties.get(plan.tool_id, 0) + 1
            session.counted(turn)
        error_type = None if error is None else error.type.value
        record = self._record("execution", attempt, duration, error_type, len(raw))
        self._note_line(record)
        if attempt.held:
            self._metrics.ran_held(session.id, plan.metric_name, duration, error_type, len(raw))
            if self._usage is not None:
                self._usage.ran_held(CallRecord._make(record))
        else:
            self._note_call(record)
        if duration > plan.quick_ms and (
            duration > plan.latency_budget_ms or (plan.retrieval and duration > session.limits.retrieval_ms)
        ):
            meta["slow"] = self._trail.warn_latency(attempt, duration)
        return _new(ToolResponse, (ok, data, error, intents, meta))

    def audit_call(
        self,
        event: str,
        attempt: Attempt,
        duration: float,
        error_type: str | None,
        *,
        duplicate_of: str | None = None,
        first: KnownCall | None = None,
    ) -> None:
        """The audit line of a call that did not just end: replayed, held, late, or cut off. `first` is what it repeats."""
        record = CallRecord._make(self._record(event, attempt, duration, error_type, 0))
        facts: dict[str, Any] = {"duplicateOf": duplicate_of} if duplicate_of else {}
        if first is not None and first.turn:
            facts |= {"firstTurn": first.turn, "ageMs": round((attempt.started - first.started) * 1000)}
        if facts:
            record = record._replace(more={**(record.more or {}), **facts})
        self._note_line(record)

    def _record(self, event: str, attempt: Attempt, duration: float, error_type: str | None, size: int) -> CallParts:
        session, plan, write = attempt.session, attempt.plan, attempt.write
        _, raw, call_id, provider, _, _, _ = attempt.call
        more: dict[str, Any] | None = None
        if attempt.clamped or attempt.repaired or write is not None:  # what few calls have
            more = {}
            if attempt.clamped:
                more["clamped"] = list(attempt.clamped)
                asked = {name: attempt.requested[name] for name in attempt.clamped if name in attempt.requested}
                more["requested"] = asked if plan.redact is None else plan.redact(asked)
            if attempt.repaired:
                more["repaired"] = True
            if attempt.asked_by is not None and not attempt.held:
                more["gate"] = attempt.asked_by
            if write is not None and write.key:
                more["ledgerKey"] = write.key
            if write is not None and write.hold_id is not None:
                more["confirmationId"] = write.hold_id
        # fmt: off
        return (
            session.id, plan.tool_id, duration, error_type, size, event, self._now(), plan.audit_fields,
            attempt.turn.number, attempt.connection or session.connection, session.state.mode, provider, call_id, attempt.key,
            attempt.canonical or attempt.raw_digest, attempt.defaulted, plan.redact, more, session.subject, session.tenant,
            raw, attempt.raw_digest, attempt.validation,
        )
        # fmt: on

    def cut_off(self, attempt: Attempt) -> None:
        """The caller went away while the handler ran: there is nobody to answer, and the audit says so."""
        duration = milliseconds_since(attempt.started)
        self.audit_call("execution", attempt, duration, ErrorType.CANCELLED.value)

    def meta(self, attempt: Attempt, duration: float) -> dict[str, Any]:
        """What an envelope says about its call."""
        meta: dict[str, Any] = attempt.plan.meta.copy()
        meta["duration"] = duration
        if attempt.defaulted:
            meta["defaulted"] = [*attempt.defaulted]
        if attempt.clamped:
            meta["clamped"] = [*attempt.clamped]
        if attempt.repaired:
            meta["repaired"] = True
        limits = attempt.session.limits
        if limits.retrieval_calls is not None or limits.total_calls is not None or limits.turn_ms is not None:
            meta["budget"] = budget_left(limits, attempt.turn)
        return meta


def _is_empty(data: Any) -> bool:
    """Nothing was found: null, `{}`, or an object whose lists are all empty."""
    if not isinstance(data, dict):
        return data is None
    has_list = not data
    for value in data.values():
        if isinstance(value, list):
            if value:
                return False
            has_list = True
    return has_list


def _too_many_refusals(count: int, limit: int, last: Refusal) -> Refusal:
    return Refusal(
        GateName.LOOP,
        ErrorType.LOOP_DETECTED,
        f"{count} calls were refused in this turn; the last because: {last.message}",
        rule=RefusalRule.REFUSALS,
        value=count,
        limit=limit,
        suggestion="Stop calling tools in this turn, and answer the user.",
    )


def declined(tool: str) -> Refusal:
    message = f'A person has declined "{tool}" with these arguments.'
    return Refusal(
        GateName.CONFIRMATION,
        ErrorType.DECLINED,
        message,
        rule=RefusalRule.DECLINED,
        suggestion="Do not ask again; find another way.",
    )


def declined_answer(hold: Hold) -> ToolResponse:
    return ToolResponse(False, None, declined(hold.tool).failure(), (), {"toolId": hold.tool})


def declined_again(hold: Hold) -> ToolResponse:
    """A person's no to a call that an owner had begun before it died."""
    message = (
        f'A person has declined to run "{hold.tool}" again. It had been begun before, and may have had its effect.'
    )
    failure = ToolFailure(
        ErrorType.DECLINED, message, False, True, suggestion="Do not ask again; look at what is there."
    )
    return ToolResponse(False, None, failure, (), {"toolId": hold.tool})


def unknown_message(tool: str) -> str:
    return (
        f'It is not known whether "{tool}" has run with these arguments, so it was not run again; a person has to look.'
    )


def unknown_answer(tool: str, meta: Any) -> ToolResponse:
    return ToolResponse(False, None, ToolFailure(ErrorType.CONFLICT, unknown_message(tool), False, True), (), meta)


def keep_unknown(attempt: Attempt, key: str) -> None:
    """After this outcome no further ordinal is given in its turn."""
    attempt.turn.unknown[(attempt.plan.tool_id, attempt.digest)] = key
    attempt.session.counted(attempt.turn)


def running(tool: str) -> Refusal:
    message = f'"{tool}" is still running from an earlier request.'
    return Refusal(
        GateName.LEDGER, ErrorType.IN_PROGRESS, message, rule=RefusalRule.RUNNING, retry_after=1.0, retryable=True
    )


def not_recorded(tool: str, why: str) -> Refusal:
    message = f'"{tool}" did not run, because it could not be recorded; try again shortly.'
    return Refusal(
        GateName.LEDGER,
        ErrorType.STORE_UNAVAILABLE,
        message,
        rule=RefusalRule.STORE,
        value=why,
        retry_after=2.0,
        retryable=True,
    )
