"""The checks that a call and the approval of a held one share: steps 4 to 8, and steps 10 to 12."""

from __future__ import annotations

from handrail.contract.errors import ErrorType
from handrail.runtime.attempt import Attempt, Refusal
from handrail.runtime.hydrate import validate_call
from handrail.runtime.keys import loop_key
from handrail.schema.canonical import canonical
from handrail.schema.trimmed import trimmed


def admit(attempt: Attempt) -> Refusal | None:
    """Steps 4 to 6: session, mode, availability."""
    for gate in attempt.plan.early:
        refusal = gate(attempt)
        if refusal is not None:
            return refusal
    return None


def prepare(attempt: Attempt) -> Refusal | None:
    """Steps 7 and 8: validated arguments with defaults, clamped by mode, in canonical form."""
    plan, session = attempt.plan, attempt.session
    raw = attempt.args
    value, defaulted, violations = plan.validator.validate(raw)
    if defaulted:
        attempt.defaulted = defaulted
    if violations and session.policy.repair:
        checked = validate_call(plan.tool, raw, repair=True, validator=plan.validator)
        value, attempt.defaulted, violations = checked.args, checked.defaulted, list(checked.violations)
        attempt.repaired = attempt.repaired or checked.repaired
    if violations:
        message = " ".join(violation.message for violation in violations[:5])
        details = tuple(violation.to_dict() for violation in violations)
        first = violations[0]
        return Refusal(
            "validate", ErrorType.VALIDATION, message, rule=first.keyword, value=first.pointer, details=details
        )
    clamp = plan.clamps.get(session.mode) if plan.clamps else None
    if clamp is not None:
        value, attempt.clamped = clamp(value)
    attempt.args = value
    attempt.canonical = text = trimmed(canonical(value))
    attempt.loop_key = text if text.isascii() else loop_key(text)
    changed = attempt.defaulted or attempt.clamped or attempt.repaired
    attempt.raw_digest = trimmed(canonical(raw)) if changed else text
    return None


def charge(attempt: Attempt) -> Refusal | None:
    """Steps 10 to 12: rate limit, loop, budget. What a call that passes used up is written behind."""
    for gate in attempt.plan.late:
        refusal = gate(attempt)
        if refusal is not None:
            return refusal
    plan, session = attempt.plan, attempt.session
    limit = plan.rate_limit
    if limit is not None and (not plan.writes or limit.scope == "session"):
        session.rates.write_behind(session, plan.tool_id, limit, attempt.rate_slot)
    session.counted(attempt.turn)
    return None
