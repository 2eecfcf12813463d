"""Tells in one sentence what became of a call and why: which gate refused it, by which rule and value, or that it
ran, was replayed, held, approved or declined. Reads nothing but the call's lines in the audit log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from handrail.contract.fields import shown
from handrail.observe.audit_files import CALL_NAMES, matches, read_events
from handrail.observe.sealing import ERASED

_REMEMBERED = 5_000
"""How many of the newest ids are searched for near ones."""

_LINKS = ("confirmationId", "ledgerKey")
_HELD = "was held for a person's confirmation"
_CONFIRMATIONS = {
    "wanted": _HELD,
    "held": _HELD,
    "pending": _HELD,
    "approved": "was approved by a person",
    "consumed": "was approved by a person",
    "declined": "was declined by a person",
    "expired": "expired before anybody confirmed it",
    "superseded": "was superseded before it was carried out",
    "refused": "was approved, but could not be carried out",
}


@dataclass(frozen=True, slots=True)
class CallExplanation:
    found: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class CallLines:
    """The lines about a call; without any, the ids that are most like the one that was asked for."""

    call: str
    events: Sequence[Mapping[str, Any]]
    near: Sequence[str] = ()


def why(events: Iterable[Mapping[str, Any]], call_id: str) -> str:
    """What became of the call with this id or key, or of this confirmation, as one sentence."""
    return explain(events, call_id).sentence


def explain(events: Iterable[Mapping[str, Any]], call_id: str) -> CallExplanation:
    """As `why`, and whether there is such a call."""
    return tell(lines_of(events, call_id))


def lines_in(directory: Path, call_id: str) -> CallLines:
    """`lines_of` over the audit log in a directory."""
    events = list(read_events(directory, call=call_id))
    # Near ids, and what a person decided about a held call, may be in lines that do not name the call.
    enough = events and not any(name in event for event in events for name in _LINKS)
    return lines_of(events if enough else read_events(directory), call_id)


def lines_of(events: Iterable[Mapping[str, Any]], call_id: str) -> CallLines:
    """The events about a call, by any of its names."""
    found: list[Mapping[str, Any]] = []
    ids: dict[str, None] = {}
    links: set[str] = set()
    """Confirmations and ledger keys of the call: its other lines may name nothing else of it."""
    for event in events:
        named = {event[name] for name in _LINKS if isinstance(event.get(name), str)}
        if matches(event, call=call_id) or not links.isdisjoint(named):
            links |= named
            found.append(event)
        else:
            _remember(ids, event)
    return CallLines(call_id, found, () if found else get_close_matches(call_id, ids, n=3, cutoff=0.5))


def tell(lines: CallLines) -> CallExplanation:
    """What the lines say, in one sentence."""
    steps: list[str] = []
    for event in lines.events:
        step = _step(event)
        if step and (not steps or steps[-1] != step):
            steps.append(step)
    tool = next((str(event["toolId"]) for event in lines.events if event.get("toolId")), "")
    call = shown(lines.call)
    if steps:
        return CallExplanation(True, f"Call {call}{f' to {shown(tool)}' if tool else ''} {', then '.join(steps)}.")
    if tool:
        return CallExplanation(True, f"Call {call} to {shown(tool)} is in the audit log, but not what became of it.")
    hint = f"; the nearest are {', '.join(map(shown, lines.near))}" if lines.near else ", and none like it"
    return CallExplanation(False, f"There is no call {call} in the audit log{hint}.")


def _remember(ids: dict[str, None], event: Mapping[str, Any]) -> None:
    for name in CALL_NAMES:
        value = event.get(name)
        if isinstance(value, str):
            ids.pop(value, None)
            ids[value] = None
            if len(ids) > _REMEMBERED:
                del ids[next(iter(ids))]


def _step(event: Mapping[str, Any]) -> str | None:
    """What this line says about the call, as the rest of a sentence; None if nothing."""
    kind = str(event.get("event"))
    if kind.startswith("confirmation") or kind == "held":
        return _confirmation(kind, event)
    match kind:
        case "refusal" | "would_refuse":
            return _refused(event)
        case "execution":
            return _ran(event)
        case "replay":
            other = event.get("duplicateOf")
            return (
                "was answered from an earlier run" + (f", {shown(other)}" if other else "") + ", and did not run again"
            )
        case "settled":
            return f"was settled as {'succeeded' if event.get('ok') else 'failed'} by {event.get('by') or 'a person'}"
        case "clamp":
            return "had its arguments clamped" + _because(event)
        case "repair":
            return "had its arguments repaired" + _because(event)
        case _:
            return None


def _confirmation(kind: str, event: Mapping[str, Any]) -> str:
    state = str(event.get("state") or kind.removeprefix("confirmation").lstrip("_") or "refused")
    if state == "refused" and event.get("errorType") == "NOT_FOUND":
        return "was not approved by somebody who tried without the right token"
    told = _CONFIRMATIONS.get(state, f"was {state}")
    if state in ("approved", "consumed"):
        told = "was approved by " + _approver(event)
    return told + _because(event)


def _approver(event: Mapping[str, Any]) -> str:
    name, via = event.get("approver"), event.get("approvedVia")
    return (shown(name) if name else "a person") + (f" ({via})" if via else "")


def _refused(event: Mapping[str, Any]) -> str:
    if event.get("errorType") == "CONFIRMATION_REQUIRED":
        return _HELD + _because(event)
    gate = event.get("gate")
    by = f"by the gate {shown(gate)}" if gate else "before any gate"
    observed = event.get("event") == "would_refuse"
    did = "would have been refused, had it not only been observed," if observed else "was refused"
    kind = f" ({event['errorType']})" if event.get("errorType") else ""
    return f"{did} {by}{kind}{_because(event)}"


def _ran(event: Mapping[str, Any]) -> str:
    duration = event.get("duration")
    took = f" for {duration:g} ms" if isinstance(duration, (int, float)) else ""
    # The process died before it wrote the line; what the ledger had kept was written later.
    recovered = ", as the ledger tells" if event.get("recovered") else ""
    if event.get("approver") or event.get("approvedVia"):
        recovered += f", approved by {_approver(event)}"
    if event.get("ok"):
        return f"ran{took} and succeeded{recovered}"
    return f"ran{took} and failed ({event.get('errorType') or 'no error type'}){recovered}{_because(event)}"


def _because(event: Mapping[str, Any]) -> str:
    """The rule and the value that decided, and what the model got to know."""
    rule, value, limit = event.get("rule"), event.get("value"), event.get("limit")
    reasons = []
    if rule:
        reasons.append(f"rule {shown(rule)}")
    if value is not None:
        reasons.append(f"value {shown(value)}")
    if limit is not None:
        reasons.append(f"limit {shown(limit)}")
    message = event.get("message")
    if event.get(ERASED):
        reasons.append("what was said is erased, as its user was forgotten")
    if isinstance(message, str) and message.strip():
        # One sentence stays one: what the model got is quoted, on one line, without its full stop.
        reasons.append(f'"{" ".join(message.split()).rstrip(".")}"')
    return f": {', '.join(reasons)}" if reasons else ""
