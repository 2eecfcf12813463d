"""Reading a guide: its summary (the first line that is no heading) and the JSON blocks under its Examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

SUMMARY_LIMIT = 250
_HEADING = re.compile(r"^(#{1,6})(?:\s+(.*?)\s*#*)?\s*$")
# However deep it stands: a fence in a list is indented as the list is.
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})\s*(.*?)\s*$")


@dataclass(frozen=True, slots=True)
class Example:
    """One JSON block: what it shows, its text, and the line on which the text starts."""

    kind: Literal["arguments", "response"]
    text: str
    line: int


def summary_of(guide: str) -> tuple[str, int]:
    """The summary and its line number; empty text if the guide has none."""
    for number, line in enumerate(guide.splitlines(), 1):
        if line.strip() and not _HEADING.match(line):
            return line.strip(), number
    return "", 1


def examples_in(guide: str) -> Iterator[Example]:
    """The JSON blocks below a heading called Examples, up to the next heading of the same or a higher level."""
    inside_level: int | None = None
    fence: str | None = None
    block: list[str] = []
    kind: Literal["arguments", "response"] | None = None
    start, before = 0, ""
    for number, line in enumerate(guide.splitlines(), 1):
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence) and not mark[2]:
                if kind is not None and inside_level is not None:
                    yield Example(kind, "\n".join(block), start)
                fence, before = None, ""
            else:
                block.append(line)
            continue
        if mark:
            fence, block, start = mark[1], [], number + 1
            kind = _kind(mark[2].lower().split(), before)
            continue
        heading = _HEADING.match(line)
        if heading:
            level = len(heading[1])
            if (heading[2] or "").lower() in ("example", "examples"):
                inside_level = level
            elif inside_level is not None and level <= inside_level:
                inside_level = None
        if line.strip():
            before = line.strip()
    if fence is not None and kind is not None and inside_level is not None:
        yield Example(kind, "\n".join(block), start)  # a fence that is never closed reaches to the end


def _kind(info: list[str], before: str) -> Literal["arguments", "response"] | None:
    if not info or info[0] != "json":
        return None
    answer = "response" in info[1:] or before.rstrip("*_ ").endswith("Response:")
    return "response" if answer else "arguments"
