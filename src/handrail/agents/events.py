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
| `usage` | `inputTokens`, `outputTokens`, `round`; `leftOut`: old results and answers that were not sent; `context`: see below |
| `error` | `message`, `retryable`, `where`; `detail`, for whoever runs the host, where it says more than the message |
| `done` | `text`, `citations`, `rounds`, `usage`, `reason`, `turn`, `messageId`; `suggestions` where there are any |

`context` has `usedTokens` and `windowTokens` when nine tenths of the model's window are used; from then on the oldest results of
tools are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from handrail.contract.call import Call
from handrail.contract.errors import ErrorType, JsonError
from handrail.runtime.session import Session
from handrail.schema.strict_json import read_arguments

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
    "connection_wanted",
    "message",
    "usage",
    "done",
    "error",
]
MAX_CITATIONS = 50
_RECORD_LISTS = ("results", "records", "items", "matches", "documents", "hits")
_WEB = re.compile(r"https?://[^\s\x00-\x1f]+", re.IGNORECASE)
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
}
"""Errors that no handler answers with, and the steps that do."""
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
    """The card of a call that begins. Its arguments are for a person's eyes: read if they can be, with what is secret masked."""
    args: Any
    try:
        args = read_arguments(call.args)[0]
        plan = session.plans[call.name] if isinstance(call.name, str) else None
        args = args if plan is None or plan.redact is None else plan.redact(args)
    except JsonError:
        args = str(call.args)[:_MAX_SHOWN]
    card = {"callId": shown_id(call, message), "toolId": call.name, "args": args, "round": number}
    return AgentEvent("tool_started", card)


def ended(session: Session, begun: AgentEvent, envelope: Mapping[str, Any]) -> AgentEvent:
    """The card of a call that got its envelope; `begun` is the card with which it started."""
    card = {**begun.data, **_outcome(envelope)}
    gate = None if card["ok"] or card.get("held") else _refused_by(session, card["toolId"], envelope["error"])
    return AgentEvent("tool_finished", card) if gate is None else AgentEvent("tool_refused", {**card, "gate": gate})


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


def _refused_by(session: Session, tool: object, error: Mapping[str, Any]) -> str | None:
    """The step that refused a call before its handler started, as far as its error says; None if the handler answered."""
    kind = error["type"]
    if kind in _GATES:
        return _GATES[kind]
    if kind == ErrorType.NOT_FOUND and (not isinstance(tool, str) or session.plans[tool] is None):
        return "find"
    details = error.get("details") or ()
    if kind == ErrorType.VALIDATION and any("keyword" in detail or "code" in detail for detail in details):
        return "validate" if any("keyword" in detail for detail in details) else "parse"
    blocked = kind == ErrorType.AUTH and session.blocked_for() > 0
    if blocked or (kind == ErrorType.SESSION_INACTIVE and not session.is_active):
        return "session"
    return None


def _outcome(envelope: Mapping[str, Any]) -> dict[str, Any]:
    error = envelope.get("error")
    outcome: dict[str, Any] = {
        "ok": envelope["ok"],
        "error": error,
        "meta": envelope.get("meta", {}),
        "citations": citations_in(envelope.get("data")),
    }
    if error is not None and error["type"] == ErrorType.CONFIRMATION_REQUIRED:
        outcome["held"] = True
    return outcome


# ---------------------------------------------------------------------------------------------------- citations
def citations_in(data: Any) -> list[dict[str, Any]]:
    """The records that `data` holds in a list of the usual name: each with `id`, `title`, and `url` where it has one.

    An address is only passed on if it is a web address: whoever shows it makes a link of it.
    """
    if not isinstance(data, Mapping):
        return []
    found: dict[str, dict[str, Any]] = {}
    for members in map(data.get, _RECORD_LISTS):
        if isinstance(members, Sequence) and not isinstance(members, str):
            for record in members:
                if not isinstance(record, Mapping):
                    continue
                name, title, url = record.get("id"), record.get("title"), record.get("url")
                if not isinstance(name, str) or not name or not (isinstance(title, str) or isinstance(url, str)):
                    continue
                cited = {"id": name, "title": title if isinstance(title, str) and title else name}
                if isinstance(url, str) and _WEB.fullmatch(url):
                    cited["url"] = url
                found.setdefault(name, cited)
    return list(found.values())[:MAX_CITATIONS]


def cited_by(text: str, evidence: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The evidence that an answer names by its id or address, with the number under which it does so, in that order."""
    cited = []
    for order, record in enumerate(evidence):
        line = _line_naming(text, record)
        if line is not None:
            number = re.search(r"\[(\d{1,3})\]", line)
            cited.append((int(number[1]) if number else 1000 + order, dict(record)))
    cited.sort(key=lambda pair: pair[0])
    return [{"number": number if number < 1000 else None, **record} for number, record in cited]


def _line_naming(text: str, record: Mapping[str, Any]) -> str | None:
    for name in (record["id"], record.get("url")):
        if isinstance(name, str) and name in text:
            standing = re.compile(rf"(?<![\w:/-]){re.escape(name)}(?![\w/-])")
            for line in text.splitlines():
                if standing.search(line):
                    return line
    return None
