"""Which arguments of a tool are dates, times and people, and which tools are about free time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from handrail.agents.offline.fitting import fits, local_form
from handrail.agents.offline.view import SeenTool
from handrail.agents.offline.wording import parts_of
from handrail.picking.words import stem


def described_format(words: set[str], schema: Mapping[str, Any]) -> str | None:
    if local_form(schema) is not None:
        return "date-time"
    if "pattern" in schema and not fits(schema, "2026-01-31") and not fits(schema, "09:30"):
        return None
    described = str(schema.get("description", ""))
    if words & {"zone", "timezone", "tz"}:
        return None
    if words & {"date", "day", "when"} or "YYYY-MM-DD" in described:
        return "date-time" if re.search(r"date-?time|YYYY-MM-DDT|YYYY-MM-DD HH", described) else "date"
    return "time" if "time" in words and re.search(r"HH:MM|time", described, re.IGNORECASE) else None


def takes_time(tool: SeenTool) -> bool:
    """Whether an argument of a tool is a date or a time."""
    return any(kind_of_time(name, schema) is not None for name, schema in tool.properties.items())


def kind_of_time(name: str, schema: Mapping[str, Any]) -> str | None:
    """Which of date, time or both an argument is; None if it is none of them."""
    kind = schema.get("format") or described_format(set(parts_of(name)), schema)
    return kind if kind in ("date-time", "date", "time") else None


def takes_addresses(schema: Mapping[str, Any]) -> bool:
    """Whether an argument is a list of e-mail addresses: of people, that is."""
    items = schema.get("items")
    return isinstance(items, Mapping) and items.get("format") == "email"


def shows_a_zone(tool: SeenTool) -> bool:
    """Whether a tool tells times of a zone that it is given, and changes nothing."""
    zones = any({"zone", "timezone", "tz"} & set(parts_of(name)) for name in tool.properties)
    return zones and tool.category == "utility" and takes_time(tool)


def is_about_free_time(tool: SeenTool) -> bool:
    return bool(
        tool.vocabulary() & {stem(word) for word in ("availability", "calendar", "slot", "busy", "free", "meeting")}
    )
