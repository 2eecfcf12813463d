"""What calls leave in the audit log: one event each for executions, refusals, replays, confirmations and sessions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from handrail.contract.call import Call
from handrail.contract.ports import AuditPort, DurableAudit
from handrail.contract.store import Hold
from handrail.runtime.attempt import Attempt, Refusal, RefusalRule
from handrail.runtime.confirmation_view import call_id_of, key_of

if TYPE_CHECKING:
    from handrail.runtime.session import Session


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
        session, plan, call = attempt.session, attempt.plan, attempt.call
        self.note(
            event,
            session,
            {
                **self.who(session),
                "connection": attempt.connection or session.connection,
                "callId": call.call_id,
                "idempotencyKey": attempt.key,
                "toolId": plan.tool_id,
                "toolVersion": plan.definition.version,
                "category": plan.definition.category,
                "provider": call.provider,
                "duration": round(duration, 3),
                **_refusal_fields(refusal, _message(attempt, refusal)),
            },
        )

    def audit_unknown(self, session: Session, call: Call, refusal: Refusal, duration: float) -> None:
        name = call.name[:128] if isinstance(call.name, str) else None
        fields = {"callId": call.call_id, "toolId": name, "provider": call.provider, "duration": round(duration, 3)}
        # The name is the model's own, and may be anything that was said.
        self.note("refusal", session, {**self.who(session), **fields, **_refusal_fields(refusal)}, private=("toolId",))

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
        if approver is not None:
            fields["approver"] = approver
        if approved_via is not None:
            fields["approvedVia"] = approved_via
        told = _refusal_fields(refusal) if refusal else {"ok": True}
        self.note(event, session, {**self.who(session), **fields, **told})

    def audit_session(self, event: str, session: Session, **facts: Any) -> None:
        who = {**self.who(session), "user": session.pseudonym, "tenant": session.tenant}
        self.note(event, session, {**who, **facts})

    def observe(self, attempt: Attempt, refusal: Refusal) -> None:
        """A gate that only observes: what it would have refused is written down, and the call passes."""
        self.audit_refusal(attempt, refusal, (perf_counter() - attempt.started) * 1000, event="would_refuse")

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
            "connection": session.connection,
            "registryVersion": session.snapshot.version,
            "mode": session.mode,
        }


def _message(attempt: Attempt, refusal: Refusal) -> str:
    """What the model was told; without values, which messages about arguments quote, where some of them must not be shown."""
    redact = attempt.plan.redact
    repeated = refusal.rule is RefusalRule.REFUSALS
    if redact is None or not (repeated or refusal.gate in ("parse", "validate")):
        return refusal.message
    if refusal.gate == "validate" and redact(attempt.args) == attempt.args:
        return refusal.message
    where = [f"{one.get('pointer') or '/'} ({one.get('keyword') or one.get('code')})" for one in refusal.details[:5]]
    what = f"{refusal.value} calls of this turn" if repeated else "The arguments"
    return (
        f"{what} were refused{' at ' + ', '.join(where) if where else ''}; why is not shown, because values are hidden."
    )


def _refusal_fields(refusal: Refusal, message: str | None = None) -> dict[str, Any]:
    return {
        "ok": False,
        "errorType": refusal.type.value,
        "gate": refusal.gate,
        "rule": refusal.rule,
        "value": refusal.value,
        "limit": refusal.limit,
        "message": refusal.message if message is None else message,
    }
