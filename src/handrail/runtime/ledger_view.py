"""What the ledger's answers mean to the model: a stored outcome as an envelope, a verdict as a refusal, an outcome as a state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.intents import IntentType
from handrail.contract.store import Block, ClaimResult, ClaimVerdict, LedgerRow, LedgerState
from handrail.runtime.attempt import Attempt, Refusal, RefusalRule, replaced_connection
from handrail.runtime.gates import switched_off
from handrail.runtime.known_calls import Entry
from handrail.runtime.state import StateController

if TYPE_CHECKING:
    from handrail.runtime.session import Session

PASSING = (ErrorType.TRANSIENT, ErrorType.TIMEOUT, ErrorType.CANCELLED)
"""Outcomes that say nothing about the next try."""


def settle_from_row(entry: Entry, row: LedgerRow) -> None:
    """What a stored outcome says. A body that was evicted is not run again for."""
    entry.ledger_key = row.key
    if row.state is LedgerState.UNKNOWN:
        entry.settle(unknown_answer(row.tool, {"toolId": row.tool}), b"")
        entry.unknown = True
        return
    if row.envelope is None:
        message = f'"{row.tool}" has run, but its result is no longer kept.'
        entry.settle(
            ToolResponse(
                False,
                None,
                ToolFailure(ErrorType.INTERNAL, message, False, row.effects != "none"),
                (),
                {"toolId": row.tool},
            ),
            b"",
        )
        return
    response = ToolResponse.from_dict(orjson.loads(row.envelope))
    entry.settle(response, orjson.dumps(response.data))


def declined(tool: str) -> Refusal:
    message = f'A person has declined "{tool}" with these arguments.'
    return Refusal(
        "confirmation",
        ErrorType.DECLINED,
        message,
        rule=RefusalRule.DECLINED,
        suggestion="Do not ask again; find another way.",
    )


def may_try_again(response: ToolResponse) -> bool:
    error = response.error
    return error is not None and error.type in PASSING and not error.partial_side_effects


def state_of(response: ToolResponse, *, unsafe: bool, uncertain: bool, cut_off: bool) -> LedgerState:
    """What the ledger keeps of this outcome."""
    if response.ok or response.meta.get("resultUnavailable"):
        return LedgerState.SUCCEEDED
    if unsafe and (uncertain or cut_off):
        return LedgerState.UNKNOWN
    assert response.error is not None
    cancelled = cut_off or response.error.type is ErrorType.CANCELLED
    return LedgerState.CANCELLED if cancelled else LedgerState.FAILED


def unknown_message(tool: str) -> str:
    return f'It is not known whether "{tool}" has run with these arguments; a person has to look. It was not run again.'


def unknown_answer(tool: str, meta: Any) -> ToolResponse:
    return ToolResponse(False, None, ToolFailure(ErrorType.CONFLICT, unknown_message(tool), False, True), (), meta)


def keep_unknown(attempt: Attempt, key: str) -> None:
    """After this outcome no further ordinal is given in its turn."""
    attempt.turn.unknown[(attempt.plan.tool_id, attempt.digest)] = key
    attempt.session.counted(attempt.turn)


def running(tool: str) -> Refusal:
    message = f'"{tool}" is still running from an earlier request.'
    return Refusal("ledger", ErrorType.IN_PROGRESS, message, rule=RefusalRule.RUNNING, retry_after=1.0, retryable=True)


def not_recorded(tool: str, why: str) -> Refusal:
    message = f'"{tool}" did not run, because it could not be recorded; try again shortly.'
    return Refusal(
        "ledger",
        ErrorType.STORE_UNAVAILABLE,
        message,
        rule=RefusalRule.STORE,
        value=why,
        retry_after=2.0,
        retryable=True,
    )


def not_heard(tool: str, why: str) -> Refusal:
    """Of an approved call: it may be claimed, so that it goes on, and the person must not believe that it is over."""
    message = (
        f'"{tool}" is approved but has not started, because it could not be recorded yet: it is carried out, and its outcome '
        "told, as soon as it can be, unless it is declined or its time ends before; there is no need to approve it again."
    )
    return Refusal("ledger", ErrorType.STORE_UNAVAILABLE, message, rule=RefusalRule.STORE, value=why)


def verdict_refusal(attempt: Attempt, result: ClaimResult) -> Refusal:
    tool = attempt.plan.tool_id
    wait = result.retry_after_ms / 1000 if result.retry_after_ms is not None else None
    match result.verdict:
        case ClaimVerdict.BLOCKED:
            return Refusal(
                "session", ErrorType.AUTH, "This user is blocked for now.", rule=RefusalRule.BLOCK, retry_after=wait
            )
        case ClaimVerdict.SWITCHED_OFF:
            message = switched_off(tool, result.reason)
            return Refusal("availability", ErrorType.UNAVAILABLE, message, rule=RefusalRule.SWITCH, value=result.reason)
        case ClaimVerdict.RATE_LIMITED:
            message = f'"{tool}" was called too often by this user.'
            return Refusal(
                "rate", ErrorType.RATE_LIMIT, message, rule=RefusalRule.RATE_LIMIT, retry_after=wait, retryable=True
            )
        case ClaimVerdict.STALE_CONNECTION:
            return replaced_connection()
        case ClaimVerdict.INACTIVE:
            return Refusal("session", ErrorType.SESSION_INACTIVE, "The session has ended.", rule=RefusalRule.ACTIVE)
        case ClaimVerdict.NO_GRANT:
            return Refusal(
                "confirmation",
                ErrorType.CONFLICT,
                "This approval was used, has expired, or was for something else.",
                rule=RefusalRule.GRANT,
            )
        case _:
            message = "This key stands for another call."
            return Refusal("ledger", ErrorType.CONFLICT, message, rule=result.verdict.value)


def stored_intents(session: Session, answer: ToolResponse) -> tuple[Block | None, Any]:
    """What the intents of an outcome change, for the transaction that stores it: the block, and the session's state."""
    if not answer.ok or not answer.intents:
        return None, None
    after = StateController(session.state.snapshot())
    block: Block | None = None
    for intent in answer.intents:
        if after.apply_intent(intent).applied and intent.type == IntentType.BLOCK_USER and session.user is not None:
            until = int(intent.fields["until"] * 1000)
            block = Block(tenant=session.tenant, user=session.user, until=max(until, block.until if block else 0))
    return block, dict(after.snapshot())
