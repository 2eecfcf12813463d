"""What a person is shown before approving: a trusted template and the exact arguments, never a word of the model's own.

Every argument is shown or counted, whatever would not be seen as what it is is escaped, secrets are masked, cuts are said.
A text that could be taken for another kind of value (`yes`, `nothing`, an empty one) stands in quotation marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from handrail.contract.definition import ToolDefinition
from handrail.contract.hidden_characters import escaped_exactly

MASK = "•••"
MAX_LINES = 60
"""So many arguments are shown on lines of their own; the rest are counted."""
_ABSENT = "–"
_WORDS = {True: "yes", False: "no", None: "nothing"}
_PLACE = re.compile(r"\{([^{}]*)\}")
# Texts that look like a word for another value, like nothing at all, like a list or an object, or like a quoted text.
_MISTAKABLE = re.compile(
    rf"""{"|".join(_WORDS.values())}|{_ABSENT}|{MASK}|\s*|\s.*|.*\s|\[.*\]|\{{\s*["}}].*|".*""",
    re.DOTALL | re.IGNORECASE,
)
_LONG, _SHORT = 300, 60
_MAX_ITEMS = 100


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
            return _ABSENT
        if name in secret:
            return MASK
        return _count(args[name]) if how == "count" else value_text(name, how)

    def value_text(name: str, how: str) -> str:
        value = shown.get(name)
        if isinstance(value, str) and value != args[name]:  # the audit's own mask, not the text of an argument
            return _cut(value, _SHORT)
        return _shown(value, how)

    text = _PLACE.sub(fill, definition.preview) if definition.preview else f"Run {definition.tool_id}."
    rest = [name for name in args if name not in named]
    lines = [text]
    for name in rest[:MAX_LINES]:
        lines.append(f"{_cut(name, _SHORT)}: {MASK if name in secret else value_text(name, '')}")
    if len(rest) > MAX_LINES:
        more = len(rest) - MAX_LINES
        lines.append(f"… and {more} more argument{'' if more == 1 else 's'}")
    if facts is not None:
        lines.append(_cut(text_of_facts(facts), _LONG))
    return "\n".join(lines)


def text_of_facts(facts: Any) -> str:
    """What a tool's own `preview` found out, uncut and not escaped."""
    return facts if isinstance(facts, str) else _text(facts)


def _count(value: Any) -> str:
    return str(len(value)) if isinstance(value, (list, str, dict)) else str(value)


def _shown(value: Any, how: str) -> str:
    if how == "date" and isinstance(value, str):
        return _date(value)
    limit = _SHORT if how == "short" else _LONG
    if isinstance(value, str):
        return f'"{_cut(value, limit)}"' if _MISTAKABLE.fullmatch(value) else _cut(value, limit)
    if isinstance(value, list) and len(value) > _MAX_ITEMS:
        # No more of them would be seen.
        return f"{_cut(_text(value[:_MAX_ITEMS]), limit)}… and {len(value) - _MAX_ITEMS} more items"
    return _cut(_text(value), limit)


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return _WORDS[value]
    # A comma inside an item would make one look like two.
    if isinstance(value, list) and value and all(_is_plain_item(item) for item in value):
        return ", ".join(map(str, value))
    return orjson.dumps(value, default=str).decode()


def _is_plain_item(item: Any) -> bool:
    if isinstance(item, str):
        return "," not in item and not _MISTAKABLE.fullmatch(item)
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def _date(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return _cut(value, _SHORT)
    return moment.strftime("%A %d %B %Y, %H:%M") + (f" ({moment.strftime('UTC%z')})" if moment.tzinfo else "")


def _cut(text: str, limit: int) -> str:
    """The text, escaped, no more of it than `limit` characters; how much is left out is said."""
    shown = escaped_exactly(text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text) - limit} more characters)"
