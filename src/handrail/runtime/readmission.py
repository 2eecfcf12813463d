"""A held call passes steps 1, 4 to 8 and the host's gates again, with the session as it is now: approving is not sufficient."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from handrail.contract.call import Call
from handrail.contract.errors import ErrorType
from handrail.contract.store import Hold
from handrail.runtime.admission import admit, ask_host, prepare
from handrail.runtime.attempt import Attempt, Refusal, RefusalRule, Write
from handrail.runtime.known_calls import args_digest, call_id_of, exact_digest, key_of
from handrail.schema.strict_json import read_arguments

if TYPE_CHECKING:
    from handrail.runtime.session import Session


def readmit(session: Session, hold: Hold) -> Attempt | Refusal:
    """The held call as an attempt that may be claimed, or why it may not. Its connection does not matter any more."""
    plan = session.plans.find(hold.tool)
    if plan is None or plan.tool.hash != hold.tool_hash:
        return _superseded(f'"{hold.tool}" has changed since it was asked for.')
    turn = session.turn or session.enter_turn(hold.turn, perf_counter())
    attempt = Attempt(session, Call(name=hold.tool, args=None, call_id=call_id_of(hold)), plan, turn, perf_counter())
    attempt.held = True
    attempt.args, attempt.raw_digest, attempt.is_plain = read_arguments(hold.raw_args)
    # A gate of the host that wants a person has one now; that it refuses stands.
    refusal = admit(attempt) or prepare(attempt) or ask_host(attempt)
    if refusal is not None:
        return refusal
    attempt.digest = args_digest(plan.definition, attempt.args, attempt.canonical)
    attempt.exact = exact_digest(attempt.canonical)
    if attempt.canonical.decode() != hold.args:
        return _superseded(f'The arguments of "{hold.tool}" would now be others.')
    attempt.ordinal = hold.ordinal
    attempt.write = Write(session.interruptions)
    attempt.key = key_of(hold)
    return attempt


def _superseded(message: str) -> Refusal:
    return Refusal("confirmation", ErrorType.CONFLICT, message, rule=RefusalRule.SUPERSEDED)
