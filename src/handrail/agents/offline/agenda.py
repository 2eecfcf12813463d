"""What is in a calendar, where that is asked for rather than which times are free: whole days, and the titles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from handrail.agents.offline.moments import moment_of, spoken
from handrail.agents.offline.wording import one_line
from handrail.picking.words import split_words

_KEPT = r"(?:calendar|schedule|agenda|diary|day|week|month|morning|afternoon|evening|plans?)"
_EVENTS = r"(?:events?|meetings?|appointments?|calls|plans)"
_ASKED = re.compile(
    rf"\bwhat(?:['’]s|\s+is|\s+are)?\s+(?:(?:on|in|planned|scheduled|there)\s+)*(?:my|our)\s+(?:\w+\s+)?{_KEPT}\b"
    r"|\bwhat(?:\s+(?:else|all))?\s+(?:do|did|will|have)\s+(?:i|we)\s+(?:have|got)(?!\s+to\b)\b(?=\s+(?:on|in|at|for|planned|scheduled|coming|going|today|tomorrow|"
    r"tonight|this|next|later|mon|tue|wed|thu|fri|sat|sun))"
    r"|\bwhat(?:['’]s|\s+is)\s+(?:on|up|planned|scheduled|happening|coming\s+up)\s+(?:for\s+)?(?:today|tomorrow|tonight|on|this|next)\b"
    rf"|\b(?:what|which|how\s+many)\s+(?:other\s+)?{_EVENTS}\s+(?:do|have|are|did|will)\b"
    rf"|\b(?:list|show|read|tell|give)\s+(?:me\s+)?(?:all\s+)?(?:of\s+)?(?:my|our|the)\s+(?:\w+\s+)?(?:{_EVENTS}|calendar|schedule|agenda|diary)\b"
    rf"|\b(?:do|have)\s+(?:i|we)\s+(?:have|got)\s+(?:an?|any|some|anything|something)?\s*(?:other\s+)?(?:{_EVENTS}|on\b|planned|scheduled)"
    rf"|\bany(?:thing)?\s+(?:on|planned|scheduled|{_EVENTS})\b|\b(?:what|how)\s+does\s+my\s+\w+\s+look\b",
    re.IGNORECASE,
)
_FREE = re.compile(
    r"\b(?:free|available|availability|gaps?|slots?|open|time\s+for|room\s+for|book|schedule\s+an?)\b", re.I
)


def lists_events(text: str) -> bool:
    """Whether somebody wants to hear what is planned: "what do I have on my calendar tomorrow?"."""
    return bool(_ASKED.search(text)) and not _FREE.search(text)


def events_told(data: Any, now: datetime) -> str | None:
    """What is planned, with its titles; None where a result is not about such."""
    listed = next((value for key, value in data.items() if _names_events(key, value)), None) if _is_map(data) else None
    if listed is None:
        return None
    found = ((moment, event) for event in listed if (moment := _begins(event)) is not None)
    events = sorted(found, key=lambda pair: pair[0])
    if not events:
        return "Nothing is in your calendar then."
    lines = [f"- {_line(moment, event, now)}" for moment, event in events[:12]]
    more = [f"- and {len(events) - 12} more"] if len(events) > 12 else []
    return "\n".join(["This is in your calendar:", *lines, *more])


def _line(begin: datetime, event: Mapping[str, Any], now: datetime) -> str:
    end = moment_of(event.get("end"))
    until = f"–{end.astimezone(now.tzinfo):%H:%M}" if end is not None else ""
    when = f"{spoken(begin.astimezone(now.tzinfo), now)}{until}"
    title = event.get("title")
    if isinstance(title, str) and title.strip():
        return f"{when}: {one_line(title, 120)}"
    return f"{when}: private" if "title" in event else f"{when}: taken"


def _is_map(data: Any) -> bool:
    return isinstance(data, Mapping)


def _names_events(key: str, value: Any) -> bool:
    return bool(set(split_words(key)) & {"events", "busy", "taken", "booked"}) and isinstance(value, list)


def _begins(event: Any) -> datetime | None:
    return moment_of(event.get("start")) if isinstance(event, Mapping) else None
