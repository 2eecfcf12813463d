"""Where to look: an option of a search that is said in plain words ("in my personal notes"), and the places that are left when
nothing was found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from handrail.agents.offline.view import Done, SeenTool, View
from handrail.agents.offline.wording import named

_KEPT = (
    r"(?:notes?|records?|documents?|docs?|files?|entries|stuff|things|knowledge(?:\s+base)?|base|space|namespace|"
    r"collection|pages?)"
)
_WHERES = frozenset({"namespace", "scope", "space", "collection", "folder", "area", "section"})


def said_place(tool: SeenTool, text: str) -> tuple[dict[str, Any], str]:
    """The options of a search that are said in plain words, and the text without them."""
    found: dict[str, Any] = {}
    rest = text
    for name, schema in tool.properties.items():
        if name in tool.required:
            continue
        for value in _values(schema):
            match = _place(value, named(name)).search(rest)
            if match is not None:
                found[name] = value
                rest = f"{rest[: match.start()]} {rest[match.end() :]}"
                break
    return found, rest


def _place(value: str, label: str) -> re.Pattern[str]:
    """ "in my personal notes", "search personal for", "my personal records", "the namespace personal"."""
    said = re.escape(value).replace("_", r"[\s_-]")
    whose = r"(?:(?:my|our|the|your|all|own)\s+)*"
    return re.compile(
        rf"\b(?:(?:in|from|within|of|through|among|under|at|inside)\s+{whose}{said}(?:\s+{_KEPT})?(?=\s*(?:$|[.?!,;:]|for\b|about\b|on\b|that\b|with\b|and\b))"
        rf"|(?<=search )(?:(?:my|our|the)\s+)?{said}(?:\s+{_KEPT})?(?=\s+(?:for|about)\b)"
        rf"|(?:my|our)\s+(?:own\s+)?{said}\s+{_KEPT}|(?:in\s+)?(?:the\s+)?{re.escape(label)}\s+{said}|(?:in\s+)?(?:the\s+)?{said}\s+{re.escape(label)})\b",
        re.IGNORECASE,
    )


def elsewhere(view: View, tool: SeenTool, done: list[Done]) -> dict[str, Any] | None:
    """Where else a thing may be that was not found: the next value of an option that says where. Not in voice, where every
    look is time that somebody waits, and not where the person has said where."""
    if view.mode == "voice":
        return None
    for name, schema in tool.properties.items():
        if name not in _WHERES:
            continue
        tried = {str(one.args.get(name, schema.get("default"))) for one in done}
        if said_place(tool, view.turn.text)[0].get(name) is not None:
            return None
        left = [value for value in _values(schema) if value not in tried]
        if left:
            return {name: left[0]}
    return None


def _values(schema: Mapping[str, Any]) -> list[str]:
    return [value for value in schema.get("enum") or () if isinstance(value, str) and value]
