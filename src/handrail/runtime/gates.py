"""The checks of a call, each in its step. A call passes all of them, the approval of a held one those from 4 to 8 again.

    2 parse · 4–6 admit · 7–8 validate and clamp · (9 key) · the host's own gates · 10–12 charge · 13 must a person approve it?

Each gives the refusal that ends the call, or None. A *gate* has a name and, for every tool, a check; None where it could never
refuse a call of that tool. No gate knows another. Adding one is a class here, a line in `ADMISSION` or `LIMITS`, and its
`GateName` in `policy.py`: there also in `OBSERVABLE` if it may only observe, and in `envelopes.py` (`_UNCOUNTED_GATES`) if its
refusals count as a loop. The gates of a host stop a call or send it to a person, and cannot loosen anything. All of them are
asked, even after one wanted a person; an exception refuses the call.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import orjson

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import ErrorType, JsonError, SchemaError, UsageError
from handrail.contract.frozen import freeze
from handrail.contract.gates import AskPerson, Gate, GatedCall, Refuse
from handrail.runtime.call_attempt import Attempt, Check, Refusal, replaced_connection
from handrail.runtime.hydrate import parse_call, validate_call
from handrail.runtime.known_calls import loop_key
from handrail.runtime.policy import RESERVED_GATES, GateName, ModePolicy, Policy
from handrail.runtime.turns import TurnRecord, digest_of
from handrail.schema.condition import compile_condition
from handrail.schema.strict_json import canonical, read_arguments, trimmed
from handrail.schema.validator import Violation

_MAX_REASON = 200
Clamp = Callable[[dict[str, Any]], tuple[dict[str, Any], tuple[str, ...]]]
_GATE_LOG = logging.getLogger("handrail.gates")
_LOG = logging.getLogger("handrail.runtime")
_SORTED = orjson.OPT_SORT_KEYS
_dumps, _join = orjson.dumps, b"".join
_HOST_GATE_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class ToolGate(Protocol):
    """A gate of Handrail's own, compiled for each tool."""

    @property
    def name(self) -> str: ...

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check | None: ...


class SessionGate:
    """Step 4: the session is active, its connection current, the user not blocked, and signed in where the tool asks for it."""

    name = GateName.SESSION

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check:
        wants_user = definition.requires_auth

        def check(attempt: Attempt) -> Refusal | None:
            session = attempt.session
            if not session.state.is_active:
                return Refusal(GateName.SESSION, ErrorType.SESSION_INACTIVE, "The session has ended.", rule="active")
            core = session.core
            # Hardly ever is anybody blocked; then this costs one look at an empty dict.
            left = session.blocked_for() if core.blocks else 0.0
            if left:
                return Refusal(
                    GateName.SESSION,
                    ErrorType.AUTH,
                    "This user is blocked for now.",
                    rule="block",
                    value=session.user,
                    retry_after=left,
                )
            if wants_user and session.user is None:
                return Refusal(
                    GateName.SESSION,
                    ErrorType.AUTH,
                    "The user must sign in first.",
                    rule="requiresAuth",
                    suggestion=_SIGN_IN,
                )
            connection, current = attempt.connection, session.connection
            if connection is not None and (
                # Identity first: nearly every call comes on the very object, and comparing numbers of a subclass of int takes
                # longer.
                session.is_taken_over or (connection is not current and connection != current)
            ):
                return replaced_connection(connection)
            newest = core.registry.generation
            # In production open sessions keep their tools until they are resumed; `is_outdated` is never true there.
            if newest is not session.snapshot and session.is_outdated:
                return Refusal(
                    GateName.SESSION,
                    ErrorType.CONFLICT,
                    "The tools were built again while this session was open; resume the session to continue with the new ones.",
                    rule="version",
                    value=session.snapshot.version,
                    limit=newest.version,
                    suggestion=_NEWER_TOOLS,
                )
            return None

        return check


_IN_TEXT = "Tell the user that this is done in writing, and offer to end voice for it."
_IN_VOICE = "Tell the user that this is done in a spoken conversation, and offer to begin one."
_NEWER_TOOLS = "Tell the user to continue with the new tools on their screen; do not call a tool again before that."
_SIGN_IN = "Ask the user to sign in; do not call it again before that."
_ANOTHER_WAY = "Do without it, and tell the user that this is not possible here."


class ModeGate:
    """Step 5: the tool may be called in the session's mode."""

    name = GateName.MODE

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check | None:
        allowed = definition.allowed_modes
        # Both modes: it could never refuse, so the tool has no such check.
        if len(allowed) == 2:
            return None

        def check(attempt: Attempt) -> Refusal | None:
            mode = attempt.session.mode
            if mode in allowed:
                return None
            message = f'"{definition.tool_id}" cannot be called in {mode} mode; it is for {" and ".join(allowed)}.'
            return Refusal(
                GateName.MODE,
                ErrorType.MODE_RESTRICTED,
                message,
                rule="allowedModes",
                value=mode,
                limit=list(allowed),
                suggestion=_IN_TEXT if mode == "voice" else _IN_VOICE,
            )

        return check


def switched_off(tool_id: str, reason: str | None) -> str:
    """What those are told who call a tool that an operator has switched off: the operator's reason, on one line."""
    said = " ".join((reason or "").split())[:_MAX_REASON].rstrip(".")
    return f'"{tool_id}" is switched off for now: {said}.' if said else f'"{tool_id}" is switched off for now.'


class AvailabilityGate:
    """Step 6: the tool is switched on, does not hang, has a schema if the policy wants one, and its condition is true."""

    name = GateName.AVAILABILITY

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check:
        tool_id = definition.tool_id
        text = definition.availability_condition
        condition = compile_condition(text, ("mode", "user", "session")) if text is not None else None
        refuse_always = definition.no_schema_mode == "refuse"

        def check(attempt: Attempt) -> Refusal | None:
            core = attempt.session.core
            reason = core.switches.get(tool_id) if core.switches else None
            if reason is not None:
                return Refusal(
                    GateName.AVAILABILITY,
                    ErrorType.UNAVAILABLE,
                    switched_off(tool_id, reason),
                    rule="switch",
                    value=reason,
                )
            # A thread that does not end is not given back. Without this one tool could take the workers of all others.
            crowded = core.runner.crowded
            late = crowded.get(tool_id) if crowded else None
            if late is not None:
                message = f'{late} calls of "{tool_id}" still run after their deadline; it takes no others until one has ended.'
                return Refusal(
                    GateName.AVAILABILITY,
                    ErrorType.UNAVAILABLE,
                    message,
                    rule="stragglers",
                    value=late,
                    retry_after=5.0,
                    retryable=True,
                )
            if refuse_always:
                message = f'"{tool_id}" has no schema, and its calls are refused until it has one.'
                return Refusal(
                    GateName.AVAILABILITY, ErrorType.UNAVAILABLE, message, rule="noSchemaMode", value="refuse"
                )
            if condition is None:
                return None
            try:
                holds = condition.holds(attempt.session.facts())
            except SchemaError as error:
                # A condition that cannot be answered does not let anything pass.
                message = f'"{tool_id}" is not available.'
                return Refusal(
                    GateName.AVAILABILITY,
                    ErrorType.UNAVAILABLE,
                    message,
                    rule="availability.condition",
                    value=error.message,
                    limit=text,
                )
            if holds:
                return None
            message = f'"{tool_id}" is not available in this situation.'
            return Refusal(
                GateName.AVAILABILITY,
                ErrorType.UNAVAILABLE,
                message,
                rule="availability.condition",
                value=False,
                limit=text,
                suggestion=_ANOTHER_WAY,
            )

        return check


def clamps_for(definition: ToolDefinition) -> Mapping[str, Clamp]:
    """Step 8, for each mode that clamps something: arguments → (clamped copy, names of what was clamped)."""
    return {mode: _clamp(limits) for mode, limits in definition.clamp.items() if limits}


def _clamp(limits: Mapping[str, Any]) -> Clamp:
    def clamp(args: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        clamped: dict[str, Any] | None = None
        names: list[str] = []
        for name, limit in limits.items():
            if name not in args:
                continue
            better = _within(args[name], limit)
            if better != args[name]:
                # Copied at the first limit that is passed: most calls are within all of them, and the audit keeps what was
                # asked for.
                clamped = clamped or dict(args)
                clamped[name] = better
                names.append(name)
        return (args, ()) if clamped is None else (clamped, tuple(names))

    return clamp


def _within(value: Any, limit: Any) -> Any:
    if not isinstance(limit, tuple):
        # To Python a boolean is an integer. It is no quantity, so no maximum is for it.
        return min(value, limit) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
    if isinstance(value, list):
        if not value:
            return value
        # Nothing left of the list means that everything allowed is meant, as an empty list might not be valid.
        return [item for item in value if item in limit] or list(limit)
    return value if value in limit else limit[0]


class RateGate:
    """Step 10: the calls of a tool in any window of time are limited, per session or per user."""

    name = GateName.RATE

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check | None:
        limit = definition.rate_limit
        if limit is None:
            return None
        tool_id = definition.tool_id

        def check(attempt: Attempt) -> Refusal | None:
            wait, attempt.rate_slot = attempt.session.rates.charge(attempt.session, tool_id, limit)
            if wait is None:
                return None
            return Refusal(
                GateName.RATE,
                ErrorType.RATE_LIMIT,
                f'"{tool_id}" was called {limit.calls} times in {limit.window_ms / 1000:g} seconds, which is its limit.',
                rule="rateLimit",
                value=limit.calls,
                limit={"calls": limit.calls, "windowMs": limit.window_ms, "scope": limit.scope},
                retry_after=wait,
                retryable=True,
            )

        return check


class LoopGate:
    """Step 11: the third identical call in a turn is refused, and a search that keeps coming back empty."""

    name = GateName.LOOP

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check:
        tool_id = definition.tool_id
        max_identical, max_empty = policy.identical_calls, policy.empty_results
        retrieval = definition.category == "retrieval"

        def check(attempt: Attempt) -> Refusal | None:
            turn = attempt.turn
            key = (tool_id, attempt.loop_key)
            identical = turn.identical
            # Counted also if it is refused: a model that asks once more all the same stays refused.
            identical[key] = seen = identical[key] + 1 if key in identical else 1
            # The counters that every claim carries may then no longer be made by adding the newest call alone.
            if seen > 1:
                turn.has_repeats = True
            # Calls before a reconnect, or in another process, are known by their digests only.
            if turn.identical_before:
                seen += turn.identical_before.get(digest_of(tool_id, attempt.loop_key), 0)
            if seen >= max_identical:
                return Refusal(
                    GateName.LOOP,
                    ErrorType.LOOP_DETECTED,
                    f'"{tool_id}" was called {seen} times with the same arguments in this turn.',
                    rule="identical",
                    value=seen,
                    limit=max_identical,
                    suggestion="Use the result that you have, change the arguments, or answer the user.",
                )
            if retrieval and turn.empties and turn.empties.get(tool_id, 0) >= max_empty:
                return Refusal(
                    GateName.LOOP,
                    ErrorType.LOOP_DETECTED,
                    f'"{tool_id}" found nothing {turn.empties[tool_id]} times in this turn.',
                    rule="empty",
                    value=turn.empties[tool_id],
                    limit=max_empty,
                    suggestion="What you look for may not exist; use another tool, or tell the user that it was not found.",
                )
            return None

        return check


def give_back_loop_count(attempt: Attempt) -> None:
    """The call could not be recorded, or met another that runs: asking again later is no loop."""
    key = (attempt.plan.tool_id, attempt.loop_key)
    attempt.turn.identical[key] = max(0, attempt.turn.identical.get(key, 0) - 1)
    attempt.session.counted(attempt.turn)
    attempt.turn.has_repeats = True


class BudgetGate:
    """Step 12: what a turn may cost. A unit is taken before the handler starts, and given back if it does not."""

    name = GateName.BUDGET

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check:
        tool_id = definition.tool_id
        retrieval = definition.category == "retrieval"

        def check(attempt: Attempt) -> Refusal | None:
            turn = attempt.turn
            limits = attempt.session.limits
            if retrieval and limits.retrieval_calls is not None and turn.retrieval_used >= limits.retrieval_calls:
                return _spent(tool_id, "retrieval calls", turn.retrieval_used, limits.retrieval_calls)
            if limits.total_calls is not None and turn.total_used >= limits.total_calls:
                return _spent(tool_id, "calls", turn.total_used, limits.total_calls)
            # Taken now and not when the handler has ended: calls that run side by side must not spend the same unit.
            turn.total_used += 1
            if retrieval:
                turn.retrieval_used += 1
            attempt.charged = True
            return None

        return check


def give_back_budget(attempt: Attempt) -> None:
    """The handler did not start: the unit is the turn's again."""
    if not attempt.charged:
        return
    attempt.charged = False
    attempt.turn.total_used -= 1
    if attempt.plan.retrieval:
        attempt.turn.retrieval_used -= 1
    attempt.session.counted(attempt.turn)


def budget_left(limits: ModePolicy, turn: TurnRecord) -> dict[str, Any]:
    """What the model is told: the calls and the time in tools that are left in this turn, where there is a limit."""
    told: dict[str, Any] = {}
    if limits.retrieval_calls is not None:
        told["retrieval"] = max(0, limits.retrieval_calls - turn.retrieval_used)
    if limits.total_calls is not None:
        told["total"] = max(0, limits.total_calls - turn.total_used)
    if limits.turn_ms is not None:
        left = told["latencyMs"] = max(0, int(limits.turn_ms - turn.tool_ms))
        if not left:
            told["suggestion"] = "The time for tools in this turn is used up. Answer now with what you have."
    return told


def _spent(tool_id: str, what: str, used: int, limit: int) -> Refusal:
    return Refusal(
        GateName.BUDGET,
        ErrorType.BUDGET_EXCEEDED,
        f'The {limit} {what} of this turn are used up, so "{tool_id}" did not run.',
        rule=what,
        value=used,
        limit=limit,
        suggestion="Answer with what you have; the budget is full again in the next turn.",
    )


LOOP = LoopGate()
ADMISSION: tuple[ToolGate, ...] = (SessionGate(), ModeGate(), AvailabilityGate())
"""Steps 4 to 6: whether this session may call the tool now."""
LIMITS: tuple[ToolGate, ...] = (RateGate(), LOOP, BudgetGate())
"""Steps 10 to 12: what a call costs."""


class GateVerdict(NamedTuple):
    """What the gates of the host said together."""

    refusal: Refusal | None = None
    asked_by: str | None = None
    """The gate that wants a person to approve the call."""


PASS = GateVerdict()
HostCheck = Callable[[Attempt], GateVerdict]
Observe = Callable[[Attempt, Refusal], None]


def checked_gates(gates: Sequence[Gate]) -> tuple[Gate, ...]:
    """The gates, if all of them can be used; `UsageError` with one sentence otherwise."""
    names: set[str] = set()
    for gate in gates:
        name = getattr(gate, "name", None)
        if not isinstance(gate, Gate) or not isinstance(name, str) or not callable(gate.check):
            raise UsageError(f"A gate needs a `name` and a method `check(call)`; {type(gate).__name__} has not both.")
        if not _HOST_GATE_NAME.fullmatch(name):
            raise UsageError(
                f'"{name}" cannot be the name of a gate; use small letters, digits and underscores, a letter first, at most 64.'
            )
        if name in RESERVED_GATES:
            raise UsageError(f'Handrail has a gate or a step "{name}" itself; name yours otherwise.')
        if name in names:
            raise UsageError(f'There are two gates called "{name}"; each needs a name of its own.')
        if inspect.iscoroutinefunction(gate.check):
            raise UsageError(f'The gate "{name}" cannot wait: make `check` a plain function.')
        names.add(name)
    return tuple(gates)


def host_check(gates: Sequence[Gate], policy: Policy, observe: Observe) -> HostCheck | None:
    """What asks these gates about a call under this policy; None if there are none."""
    if not gates:
        return None
    observed = policy.observe

    def check(attempt: Attempt) -> GateVerdict:
        call = _gated_call(attempt)
        asked_by: str | None = None
        for gate in gates:
            verdict = _ask_gate(gate, call)
            if verdict is None:
                continue
            # Before the verdict counts for anything: an observed gate only says in the log what it would have done.
            if gate.name in observed:
                observe(attempt, _host_refusal(gate.name, call, verdict))
            elif isinstance(verdict, AskPerson):
                # Not the end of the round: a gate after this one may refuse the call, which is stricter than asking.
                asked_by = asked_by or gate.name
            else:
                return GateVerdict(_host_refusal(gate.name, call, verdict))
        return PASS if asked_by is None else GateVerdict(None, asked_by)

    return check


def _ask_gate(gate: Gate, call: GatedCall) -> Refuse | AskPerson | Exception | None:
    """What one gate says. An exception is an answer too: whatever it was about, the gate has not let the call pass."""
    try:
        verdict = gate.check(call)
        if verdict is None or isinstance(verdict, (Refuse, AskPerson)):
            return verdict
        raise TypeError(f"check returned {type(verdict).__name__}; it returns Refuse, AskPerson or None")
    except Exception as error:  # noqa: BLE001  # a host's code may raise anything
        _GATE_LOG.error(
            'The gate "%s" failed on a call of %s, which is refused', gate.name, call.tool_id, exc_info=error
        )
        return error


def _host_refusal(name: str, call: GatedCall, verdict: Refuse | AskPerson | Exception) -> Refusal:
    if isinstance(verdict, Refuse):
        wait = verdict.retry_after
        return Refusal(
            name,
            verdict.type,
            verdict.message,
            rule=verdict.rule,
            retry_after=wait,
            suggestion=verdict.suggestion,
            retryable=wait is not None,
        )
    if isinstance(verdict, AskPerson):
        message = f'"{call.tool_id}" waits for the approval of a person.'
        return Refusal(name, ErrorType.CONFIRMATION_REQUIRED, message, rule="ask", value=verdict.reason)
    message = f'"{call.tool_id}" was not called, because a check of the host failed.'
    return Refusal(name, ErrorType.INTERNAL, message, rule="exception", value=type(verdict).__name__)


def _gated_call(attempt: Attempt) -> GatedCall:
    session, plan, call = attempt.session, attempt.plan, attempt.call
    definition = plan.definition
    return GatedCall(
        tool_id=plan.tool_id,
        tool_version=plan.version,
        category=definition.category,
        writes=plan.writes,
        idempotent=definition.idempotent,
        # Read anew from the canonical text: a gate cannot reach, and so not change, the objects that the handler gets.
        args=freeze(orjson.loads(attempt.canonical)),
        call_id=call.call_id,
        provider=call.provider,
        session_id=session.id,
        user=session.user,
        tenant=session.tenant,
        mode=session.mode,
        attributes=freeze(session.attributes),
        turn=attempt.turn.number,
        held=attempt.held,
    )


def parse_arguments(attempt: Attempt) -> Refusal | None:
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
        _replace_arguments(attempt, meaning(call.provider, attempt.args))
    return None


def _repair(attempt: Attempt, error: JsonError) -> Refusal | None:
    """Arguments that are no JSON: repaired once, where the policy allows it, or refused."""
    if attempt.session.policy.repair:
        try:
            _replace_arguments(attempt, parse_call(attempt.call.args, repair=True).args)
            attempt.repaired = True
            return None
        except JsonError as second:
            error = second
    details = ({"pointer": error.pointer, "code": error.code, "message": error.message},)
    is_text = error.code == "invalid_json" and not error.is_json
    message = f"The arguments are not valid JSON. {error.message}" if is_text else error.message
    return Refusal(GateName.PARSE, ErrorType.VALIDATION, message, rule=error.code, details=details)


def _replace_arguments(attempt: Attempt, args: dict[str, Any]) -> None:
    attempt.args, attempt.raw_digest, attempt.is_plain = args, trimmed(canonical(args)), False


def admit(attempt: Attempt) -> Refusal | None:
    """Steps 4 to 6: session, mode, availability."""
    return attempt.plan.admission(attempt)


def validate_and_clamp(attempt: Attempt) -> Refusal | None:
    """Steps 7 and 8: validated arguments with defaults, clamped by mode, in canonical form."""
    plan, args, text = attempt.plan, attempt.args, attempt.raw_digest
    # The compiled check says only yes or no, which is enough for nearly every call. Why not is worked out for the others.
    is_valid, fill = plan.is_valid, plan.fill
    began = perf_counter()
    good = is_valid is not None and is_valid(args)
    attempt.validation = perf_counter() - began
    if good:
        if fill is not None:
            filled: list[str] = []
            args = fill(args, "", filled, True)  # they are the attempt's own since step 2
            if filled:
                attempt.defaulted = plan.same_names(filled)
    else:
        if plan.violations is not None:
            violations = plan.violations(args)
        else:
            args, attempt.defaulted, violations = plan.validator.validate(args)
        attempt.validation = perf_counter() - began
        if violations:
            refusal = _repair_values(attempt, violations)
            if refusal is not None:
                return refusal
            args, text = attempt.args, trimmed(canonical(attempt.args))
    # The arguments are no longer those that came, so the canonical text of those does not stand for them any more.
    if attempt.defaulted:
        attempt.args = args
        is_plain = attempt.is_plain and plan.defaults_plain
        text = _join((_dumps(args, None, _SORTED) if is_plain else canonical(args), b""))  # `trimmed`, as it is kept
    if plan.clamps and (clamp := plan.clamps.get(attempt.session.mode)) is not None:
        attempt.args, attempt.clamped = clamp(args)
        if attempt.clamped:
            # Kept for the audit, which tells what was asked for beside what was let through.
            attempt.requested = args
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
    message = " ".join([violation.message for violation in violations[:5]])
    details = tuple([violation.to_dict() for violation in violations])
    return Refusal(
        GateName.VALIDATE, ErrorType.VALIDATION, message, rule=first.keyword, value=first.pointer, details=details
    )


def ask_host(attempt: Attempt) -> Refusal | None:
    """The host's own gates, between the key and the limits. One that wants a person is noted in the attempt."""
    check = attempt.plan.host_check
    refusal, attempt.asked_by = check(attempt) if check is not None else (None, None)
    return refusal


def charge_limits(attempt: Attempt) -> Refusal | None:
    """Steps 10 to 12: rate limit, loop, budget. What a call that passes used up is written behind."""
    plan, session = attempt.plan, attempt.session
    refusal = plan.limits(attempt)
    if refusal is not None:
        return refusal
    limit = plan.rate_limit
    # A writing call's unit of a limit per user goes with its claim, where the store counts it over all processes.
    if limit is not None and (not plan.writes or limit.scope == "session"):
        session.rates.write_behind(session, plan.tool_id, limit, attempt.rate_slot)
    attempt.turn.is_stored_as_left, session.dirty = False, True  # as `Session.counted` does
    return None


def condition_wants_person(attempt: Attempt) -> bool:
    """Whether `confirmation.when` is true of this call. A question that cannot be answered is put to a person."""
    condition = attempt.plan.confirm_when
    assert condition is not None
    try:
        return condition.holds({**attempt.session.facts(), "args": attempt.args})
    except SchemaError as error:
        _LOG.warning("%s", error)
        return True
