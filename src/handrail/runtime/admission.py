"""The steps that need nothing but the call itself. A call passes all of them, the approval of a held one those from 4 to 8 again.

    2 read · 3 id_key · 4–6 admit · 7–8 prepare · (9) the host's gates · 10–12 charge

Each gives the refusal that ends the call, or None.
"""

from __future__ import annotations

import logging
from typing import Any

import orjson

from handrail.contract.errors import ErrorType, JsonError, SchemaError
from handrail.runtime.attempt import Attempt, Refusal
from handrail.runtime.hydrate import parse_call, validate_call
from handrail.runtime.known_calls import loop_key
from handrail.schema.strict_json import canonical, read_arguments, trimmed
from handrail.schema.validator import Violation

_SORTED = orjson.OPT_SORT_KEYS
_dumps, _join = orjson.dumps, b"".join

_LOG = logging.getLogger("handrail.runtime")


def read(attempt: Attempt) -> Refusal | None:
    """Step 2: the arguments as plain data, in the meaning that the provider's form has."""
    call = attempt.call
    try:
        attempt.args, attempt.raw_digest, attempt.is_plain = read_arguments(call.args)
    except JsonError as error:
        refusal = _repair(attempt, error)
        if refusal is not None:
            return refusal
    meaning = attempt.plan.meaning
    if meaning is not None and isinstance(call.provider, str):
        _take(attempt, meaning(call.provider, attempt.args))
    return None


def _repair(attempt: Attempt, error: JsonError) -> Refusal | None:
    """Arguments that are no JSON: repaired once, where the policy allows it, or refused."""
    if attempt.session.policy.repair:
        try:
            _take(attempt, parse_call(attempt.call.args, repair=True).args)
            attempt.repaired = True
            return None
        except JsonError as second:
            error = second
    details = ({"pointer": error.pointer, "code": error.code, "message": error.message},)
    about_text = error.code == "invalid_json" and not error.message.startswith("Arguments")
    message = f"The arguments are not valid JSON. {error.message}" if about_text else error.message
    return Refusal("parse", ErrorType.VALIDATION, message, rule=error.code, details=details)


def _take(attempt: Attempt, args: dict[str, Any]) -> None:
    attempt.args, attempt.raw_digest, attempt.is_plain = args, trimmed(canonical(args)), False


def admit(attempt: Attempt) -> Refusal | None:
    """Steps 4 to 6: session, mode, availability."""
    for check in attempt.plan.admission:
        refusal = check(attempt)
        if refusal is not None:
            return refusal
    return None


def prepare(attempt: Attempt) -> Refusal | None:
    """Steps 7 and 8: validated arguments with defaults, clamped by mode, in canonical form."""
    plan, args, text = attempt.plan, attempt.args, attempt.raw_digest
    is_valid, fill = plan.is_valid, plan.fill
    if is_valid is not None and is_valid(args):
        if fill is not None:
            filled: list[str] = []
            args = fill(args, "", filled)
            attempt.defaulted = tuple(filled)
    else:
        args, attempt.defaulted, violations = plan.validator.validate(args)
        if violations:
            refusal = _repair_values(attempt, violations)
            if refusal is not None:
                return refusal
            args, text = attempt.args, trimmed(canonical(attempt.args))
    if attempt.defaulted:
        attempt.args = args
        is_plain = attempt.is_plain and plan.defaults_plain
        text = _join((_dumps(args, None, _SORTED) if is_plain else canonical(args), b""))  # `trimmed`, as it is kept
    clamp = plan.clamps.get(attempt.session.mode) if plan.clamps else None
    if clamp is not None:
        attempt.args, attempt.clamped = clamp(args)
        if attempt.clamped:
            text = trimmed(canonical(attempt.args))
    attempt.canonical = text
    attempt.loop_key = text if text.isascii() else loop_key(text)
    return None


def _repair_values(attempt: Attempt, violations: list[Violation]) -> Refusal | None:
    """Arguments that do not fit: plain type slips repaired once, where the policy allows it, or refused."""
    plan = attempt.plan
    if attempt.session.policy.repair:
        checked = validate_call(plan.tool, attempt.args, repair=True, validator=plan.validator)
        violations = list(checked.violations)
        if not violations:
            attempt.args, attempt.defaulted = checked.args, checked.defaulted
            attempt.repaired = attempt.repaired or checked.repaired
            return None
    first = violations[0]
    message = " ".join(violation.message for violation in violations[:5])
    details = tuple(violation.to_dict() for violation in violations)
    return Refusal("validate", ErrorType.VALIDATION, message, rule=first.keyword, value=first.pointer, details=details)


def ask_host(attempt: Attempt) -> Refusal | None:
    """The host's own gates, between the key and the limits. One that wants a person is noted in the attempt."""
    check = attempt.plan.host_check
    if check is None:
        return None
    refusal, attempt.asked_by = check(attempt)
    return refusal


def charge(attempt: Attempt) -> Refusal | None:
    """Steps 10 to 12: rate limit, loop, budget. What a call that passes used up is written behind."""
    plan, session = attempt.plan, attempt.session
    for check in plan.limits:
        refusal = check(attempt)
        if refusal is not None:
            return refusal
    limit = plan.rate_limit
    if limit is not None and (not plan.writes or limit.scope == "session"):
        session.rates.write_behind(session, plan.tool_id, limit, attempt.rate_slot)
    session.counted(attempt.turn)
    return None


def needs_person(attempt: Attempt) -> bool:
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
        _LOG.warning("%s", error)
        return True
