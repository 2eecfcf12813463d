"""Questions about the tools themselves: "What is kb_search?" is answered by the guide of the tool, where guides can be had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from handrail.agents.offline.answering import Record, answer_from, telling
from handrail.agents.offline.view import SeenTool, View
from handrail.agents.offline.wording import first_sentence
from handrail.picking.words import split_words, stem

_ABOUT = re.compile(
    r"\b(?:what|how|when|why|which|explain|describe|guide|tell\s+me|show\s+me|use|do(?:es)?|can|is|are)\b",
    re.IGNORECASE,
)


def tool_asked_about(view: View, text: str) -> SeenTool | None:
    """The tool whose name stands in a question. A name of one plain word may be meant as that word."""
    if not _ABOUT.search(text):
        return None
    for name in sorted(view.tools, key=len, reverse=True):
        joined = re.search(r"[_.-]", name) is not None
        if joined and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE):
            return view.tools[name]
    return None


def guide_call(view: View, tool: SeenTool) -> tuple[SeenTool, dict[str, Any]] | None:
    """The tool that gives guides, and the arguments to get that of `tool`."""
    for giver in view.tools.values():
        if "guide" in giver.words and len(giver.required) == 1:
            return giver, {giver.required[0]: tool.name}
    return None


def told_by_itself(tool: SeenTool) -> str:
    """What a tool says of itself, where no guide can be had."""
    return f"{tool.name}: {tool.description or tool.summary}"


def guide_in(data: Any) -> tuple[str, str, str] | None:
    """Name, summary and guide, if that is what a tool gave."""
    if not isinstance(data, Mapping) or not isinstance(data.get("guide"), str):
        return None
    name = str(data.get("tool_id") or data.get("toolId") or data.get("name") or "the tool")
    return name, str(data.get("summary") or ""), data["guide"]


def answer_from_guide(question: str, guide: tuple[str, str, str], *, spoken_aloud: bool) -> str:
    """What a tool is, from its summary; anything else that is asked about it, from the guide."""
    name, summary, text = guide
    record = Record(name, f"The guide of {name}", "", text)
    own = {stem(word) for word in [*split_words(name), "tool", "guide", "do", "mean", "work"]}
    if telling(question) - own:
        answer = answer_from(question, [record], spoken_aloud=spoken_aloud)
        if not answer.startswith("I found nothing"):
            return answer
    told = summary or first_sentence(text)
    return f"{name}: {told}" if spoken_aloud else f"{name}: {told} [1]\n\nSources:\n[1] {record.title} ({name})"
