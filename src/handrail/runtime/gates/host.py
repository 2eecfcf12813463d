"""The gates of the host: after the key, before the limits. They stop a call or send it to a person, and cannot loosen anything.

All of them are asked, even after one wanted a person: a refusal by any of them stands. What is raised in one refuses the call.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import orjson

from handrail.contract.errors import ErrorType, UsageError
from handrail.contract.frozen import freeze
from handrail.contract.gates import AskPerson, Gate, GatedCall, Refuse
from handrail.runtime.attempt import Attempt, Refusal
from handrail.runtime.policy import BUILT_IN_GATES, Policy

_LOG = logging.getLogger("handrail.gates")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


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
        if not _NAME.fullmatch(name):
            raise UsageError(
                f'"{name}" cannot be the name of a gate; use small letters, digits and underscores, a letter first, at most 64.'
            )
        if name in BUILT_IN_GATES:
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
        call = _view(attempt)
        asked_by: str | None = None
        for gate in gates:
            verdict = _ask(gate, call)
            if verdict is None:
                continue
            if gate.name in observed:
                observe(attempt, _refusal(gate.name, call, verdict))
            elif isinstance(verdict, AskPerson):
                asked_by = asked_by or gate.name
            else:
                return GateVerdict(_refusal(gate.name, call, verdict))
        return PASS if asked_by is None else GateVerdict(None, asked_by)

    return check


def _ask(gate: Gate, call: GatedCall) -> Refuse | AskPerson | Exception | None:
    """What one gate says. An exception is an answer too: whatever it was about, the gate has not let the call pass."""
    try:
        verdict = gate.check(call)
        if verdict is None or isinstance(verdict, (Refuse, AskPerson)):
            return verdict
        raise TypeError(f"check returned {type(verdict).__name__}; it returns Refuse, AskPerson or None")
    except Exception as error:  # noqa: BLE001  # a host's code may raise anything
        _LOG.error('The gate "%s" failed on a call of %s, which is refused', gate.name, call.tool_id, exc_info=error)
        return error


def _refusal(name: str, call: GatedCall, verdict: Refuse | AskPerson | Exception) -> Refusal:
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


def _view(attempt: Attempt) -> GatedCall:
    session, plan, call = attempt.session, attempt.plan, attempt.call
    definition = plan.definition
    return GatedCall(
        tool_id=plan.tool_id,
        tool_version=plan.version,
        category=definition.category,
        writes=plan.writes,
        idempotent=definition.idempotent,
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
