"""Leaving voice: by the person's wish, or because what they want is there in text only. What the tools of text are stands in
the prompt of voice; that voice can be ended depends on the registry."""

from __future__ import annotations

import re
from typing import Any, Literal

from handrail.agents.offline.view import SeenTool, View
from handrail.agents.offline.wording import without_politeness
from handrail.picking.words import split_words

OFFER = "Shall I end voice, so that you can type it?"
ONLY_WRITTEN = "I can do that in text only, not in voice."
FAREWELL = "Goodbye."
CANNOT_LEAVE = "I cannot end voice from here; your application can."
HANDOVER = "All right, please type it."
_WHAT = r"(?:the\s+|this\s+|our\s+)?(?:voice(?:\s+\w+)?|(?:phone\s+)?call|talking|speaking|listening|talk|microphone)"
_LEAVING = re.compile(
    rf"^\W*(?:(?:end|stop|close|leave|quit|exit|finish)\s+{_WHAT}|(?:turn|switch)\s+(?:off\s+{_WHAT}|{_WHAT}\s+off)|"
    r"hang\s+up|(?:go|switch|change|move|get)\s+(?:back\s+)?to\s+(?:text|writing|typing|chat|the\s+keyboard)|"
    r"(?:go\s+on|continue)\s+(?:in|by|with)\s+(?:text|writing|typing)|(?:i(?:['’]d|\s+would)\s+)?(?:rather|prefer\s+to)\s+(?:type|write))"
    r"(?:\s+(?:now|here|please|instead|then|again))*\W*$",
    re.IGNORECASE,
)
_REASONS = {
    "wish": ({"user", "requested", "goodbye"}, "The user asked for it."),
    "handover": ({"handover", "text", "handoff"}, "It goes on as text."),
}


def wants_to_leave(text: str) -> bool:
    """Whether somebody asks in so many words to end voice; a goodbye is another matter."""
    return bool(_LEAVING.match(text) or _LEAVING.match(without_politeness(text)))


def leaving(view: View, why: Literal["wish", "handover"]) -> tuple[str, dict[str, Any]] | None:
    """The call that ends voice; None if nothing here can."""
    tool = ending_tool(view)
    if tool is None or view.mode != "voice" or not view.may_call:
        return None
    words, sentence = _REASONS[why]
    args: dict[str, Any] = {}
    for name in tool.required:
        values = tool.properties.get(name, {}).get("enum")
        value = sentence if not values else next((one for one in values if words & set(split_words(str(one)))), None)
        if value is None:
            return None
        args[name] = value
    return tool.name, args


def ending_tool(view: View) -> SeenTool | None:
    return next((tool for tool in view.tools.values() if {"end", "voice"} <= set(tool.words)), None)


def only_written(view: View) -> str:
    """What is said about a wish that text alone can fulfil."""
    return f"{ONLY_WRITTEN} {OFFER}" if leaving(view, "handover") is not None else ONLY_WRITTEN
