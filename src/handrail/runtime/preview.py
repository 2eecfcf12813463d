"""What a person is shown before approving: a trusted template and the exact arguments, never a word of the model's own.

Every argument is shown or counted, whatever would not be seen as what it is is escaped, secrets are masked, cuts are said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from handrail.contract.definition import ToolDefinition
from handrail.contract.hidden_characters import escaped

MASK = "•••"
_PLACE = re.compile(r"\{([^{}]*)\}")
_LONG, _SHORT = 300, 60


def render(
    definition: ToolDefinition, args: Mapping[str, Any], facts: Any = None, masked: Mapping[str, Any] | None = None
) -> str:
    """The text of a confirmation request. `facts` are what the tool's own `preview` found out, shown below; `masked` are the
    arguments as the audit sees them, secrets hidden at any depth."""
    shown = args if masked is None else masked
    properties = definition.parameters.get("properties") or {}
    secret = {name for name, schema in properties.items() if isinstance(schema, Mapping) and schema.get("writeOnly")}
    named: set[str] = set()
    filled: dict[str, str] = {}  # a template may name a long argument many times

    def fill(match: re.Match[str]) -> str:
        if match[1] not in filled:
            filled[match[1]] = value_of(match[1])
        return filled[match[1]]

    def value_of(place: str) -> str:
        name, _, how = (part.strip() for part in place.partition("|"))
        named.add(name)
        if name not in args:
            return "–"
        if name in secret:
            return MASK
        return _shown(args[name] if how == "count" else shown.get(name), how)

    text = _PLACE.sub(fill, definition.preview) if definition.preview else f"Run {definition.tool_id}."
    rest = [
        f"{_cut(name, _SHORT)}: {MASK if name in secret else _shown(shown.get(name), '')}"
        for name in args
        if name not in named
    ]
    lines = [text, *rest]
    if facts is not None:
        lines.append(_shown(facts, ""))
    return "\n".join(lines)


def _shown(value: Any, how: str) -> str:
    if how == "count":
        return str(len(value)) if isinstance(value, (list, str, dict)) else str(value)
    if how == "date" and isinstance(value, str):
        return _date(value)
    text = value if isinstance(value, str) else _text(value)
    return _cut(text, _SHORT if how == "short" else _LONG)


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "nothing"}[value]
    # A comma inside an item would make one look like two.
    if isinstance(value, list) and all(isinstance(item, (str, int, float)) and "," not in str(item) for item in value):
        return ", ".join(map(str, value))
    return orjson.dumps(value, default=str).decode()


def _date(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return _cut(value, _SHORT)
    return moment.strftime("%A %d %B %Y, %H:%M") + (f" ({moment.strftime('UTC%z')})" if moment.tzinfo else "")


def _cut(text: str, limit: int) -> str:
    """The text, escaped, no more of it than `limit` characters; how much is left out is said."""
    shown = escaped(text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text) - limit} more characters)"
