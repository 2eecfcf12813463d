"""What an agent tells its host while it answers: one `AgentEvent` after the other, each with data that is JSON.

| type | data |
| --- | --- |
| `turn` | `turn`, `messageId`, `sessionId`, `mode`, `registryVersion`; `replayed` if the message was answered before |
| `text` | `text`: a piece of the answer |
| `tool_started` | `callId` (see `shown_id`), `toolId`, `args`, `round` |
| `tool_finished` | the same, with `ok`, `error`, `meta`, `citations`; `held` if it waits for a person, `late` if it had waited |
| `tool_refused` | as `tool_finished`, for a call whose handler did not start; `gate` says which step refused it |
| `progress` | `toolId`, `callId`, `text` |
| `confirmation` | `id`, `tool`, `args`, `preview`, `expires_at`, `channel` and the secret `token`: for the user's channel only |
| `confirmation_running` | `id`, `toolId`, `callId`: it was approved, and the call runs |
| `confirmation_closed` | `id`, `toolId`, `outcome`: `carried_out`, `declined`, `failed` or `unknown`; `message`: why not |
| `message` | a message for the user's client, as a tool sent it |
| `usage` | `inputTokens`, `outputTokens`, `round` |
| `error` | `message`, `retryable`, `where`; `detail`, for whoever runs the host, where it says more than the message |
| `done` | `text`, `citations`, `rounds`, `usage`, `reason`, `turn`, `messageId`; `suggestions` where there are any |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from handrail.agents.citations import citations_in
from handrail.contract.call import Call
from handrail.contract.errors import ErrorType, JsonError
from handrail.contract.frozen import thaw
from handrail.runtime.session import Session
from handrail.schema.strict_json import parse_arguments

EventType: TypeAlias = Literal[
    "turn",
    "text",
    "tool_started",
    "tool_finished",
    "tool_refused",
    "progress",
    "confirmation",
    "confirmation_running",
    "confirmation_closed",
    "message",
    "usage",
    "done",
    "error",
]
_MAX_SHOWN = 2_000
"""So much is shown of arguments that cannot be read."""

_GATES: Mapping[str, str] = {
    ErrorType.MODE_RESTRICTED: "mode",
    ErrorType.UNAVAILABLE: "availability",
    ErrorType.BUDGET_EXCEEDED: "budget",
    ErrorType.LOOP_DETECTED: "loop",
    ErrorType.DECLINED: "confirmation",
    ErrorType.IN_PROGRESS: "replay",
    ErrorType.STORE_UNAVAILABLE: "ledger",
    ErrorType.SESSION_INACTIVE: "session",
    ErrorType.VALIDATION: "validate",
    ErrorType.NOT_FOUND: "find",
    ErrorType.AUTH: "session",
    ErrorType.RATE_LIMIT: "rate",
    ErrorType.CONFLICT: "replay",
    ErrorType.CANCELLED: "interrupt",
}
_ONLY_GATES = frozenset(
    {
        ErrorType.MODE_RESTRICTED,
        ErrorType.UNAVAILABLE,
        ErrorType.BUDGET_EXCEEDED,
        ErrorType.LOOP_DETECTED,
        ErrorType.DECLINED,
        ErrorType.IN_PROGRESS,
        ErrorType.STORE_UNAVAILABLE,
    }
)
"""Errors that no handler answers with."""
_MAY_HAVE_RUN = frozenset({ErrorType.CONFLICT, ErrorType.TIMEOUT, ErrorType.CANCELLED, ErrorType.INTERNAL})
"""With side effects that may have happened: nobody knows whether they did."""


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """One thing that happened in a turn."""

    type: EventType
    data: Mapping[str, Any]


def shown_id(call: Call, message: str) -> str | None:
    """The id that a call is shown under: the provider's, behind the name of its model message where it counts only for that."""
    return f"{message}.{call.call_id}" if message and call.id_scope == "message" and call.call_id else call.call_id


def started(session: Session, call: Call, number: int, message: str = "") -> AgentEvent:
    return AgentEvent("tool_started", {**_named(session, call, message), "round": number})


def ended(session: Session, call: Call, envelope: Mapping[str, Any], number: int, message: str = "") -> AgentEvent:
    """The card of a call that got its envelope."""
    gate = refused_by(session, call.name, envelope)
    data = {**_named(session, call, message), "round": number, **_outcome(envelope)}
    if gate is not None:
        return AgentEvent("tool_refused", {**data, "gate": gate})
    return AgentEvent("tool_finished", data)


def ended_late(told: Mapping[str, Any]) -> AgentEvent:
    """The card of a call that had waited for a person, or was finished after an interruption."""
    named = {"callId": told.get("callId"), "toolId": told["toolId"], "confirmationId": told.get("confirmationId")}
    return AgentEvent("tool_finished", {**named, **_outcome(told["envelope"]), "late": True})


def closed(told: Mapping[str, Any]) -> AgentEvent:
    named = {"id": told["confirmationId"], "toolId": told["toolId"]}
    error = told["envelope"].get("error")
    why = {} if error is None else {"message": error["message"]}
    return AgentEvent("confirmation_closed", {**named, "outcome": _closed_as(error), **why})


def _closed_as(error: Mapping[str, Any] | None) -> str:
    if error is None:
        return "carried_out"
    if error["type"] == ErrorType.DECLINED:
        return "declined"
    return "unknown" if error.get("partialSideEffects") and error["type"] in _MAY_HAVE_RUN else "failed"


def refused_by(session: Session, tool: object, envelope: Mapping[str, Any]) -> str | None:
    """The step that refused a call before its handler started, as far as its envelope says; None if the handler answered."""
    error = envelope.get("error")
    if error is None or error["type"] == ErrorType.CONFIRMATION_REQUIRED:
        return None
    kind = error["type"]
    if kind in _ONLY_GATES:
        return _GATES[kind]
    if kind == ErrorType.NOT_FOUND and not _is_offered(session, tool):
        return "find"
    details = error.get("details") or ()
    if kind == ErrorType.VALIDATION and any("keyword" in detail or "code" in detail for detail in details):
        return "validate" if any("keyword" in detail for detail in details) else "parse"
    blocked = kind == ErrorType.AUTH and session.blocked_for() > 0
    if blocked or (kind == ErrorType.SESSION_INACTIVE and not session.is_active):
        return "session"
    return None


def _is_offered(session: Session, tool: object) -> bool:
    return isinstance(tool, str) and tool in session.snapshot and session.plans.allows(tool)


def _named(session: Session, call: Call, message: str) -> dict[str, Any]:
    return {"callId": shown_id(call, message), "toolId": call.name, "args": shown_args(session, call)}


def _outcome(envelope: Mapping[str, Any]) -> dict[str, Any]:
    error = envelope.get("error")
    outcome: dict[str, Any] = {
        "ok": envelope["ok"],
        "error": thaw(error),
        "meta": thaw(envelope.get("meta", {})),
        "citations": citations_in(envelope.get("data")),
    }
    if error is not None and error["type"] == ErrorType.CONFIRMATION_REQUIRED:
        outcome["held"] = True
    return outcome


def shown_args(session: Session, call: Call) -> Any:
    """The arguments for a person's eyes: read if they can be, with what is secret masked."""
    try:
        args = parse_arguments(call.args)
    except JsonError:
        return str(call.args)[:_MAX_SHOWN]
    plan = session.plans.find(call.name) if _is_offered(session, call.name) else None
    return thaw(args if plan is None or plan.redact is None else plan.redact(args))
