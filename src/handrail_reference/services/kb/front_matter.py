"""The lines between `---` at the top of a Markdown page: a small, strict part of YAML, read without a YAML parser.

    title: Onboarding          # plain or quoted text
    tags: [people, "day one"]  # or one `- item` a line below
    metadata:
      team: studio             # one level of own values

Anything else (anchors, tags, nested lists, folded text) is refused with its line: nothing is guessed.
"""

from __future__ import annotations

import re
from typing import Any

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*):(?:[ \t]+(.*))?")
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\/nt])*)"|\'((?:[^\']|\'\')*)\'')
_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\/": "/", "\\n": "\n", "\\t": "\t"}
_NOT_PLAIN = ("&", "*", "!", "|", ">", "%", "@", "`", "{", "[", "]", "}", "- ")
FENCE = "---"


class FrontMatterError(ValueError):
    """A line that is not understood; `line` counts from 1 at the top of the page."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def split_page(page: str) -> tuple[dict[str, Any], str]:
    """(values, text) of a page; a page without front matter has no values."""
    lines = page.removeprefix("\ufeff").splitlines(keepends=True)
    if not lines or lines[0].rstrip() != FENCE:
        return {}, page.removeprefix("\ufeff")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() in (FENCE, "..."):
            return _values(lines[1:number]), "".join(lines[number + 1 :])
    raise FrontMatterError(1, f'The front matter has no end; close it with a line "{FENCE}".')


def _values(lines: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    current = ""
    for number, raw in enumerate(lines, 2):
        line = raw.rstrip()
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0] in " \t-":
            _continue(values, current, line.strip(), number)
            continue
        match = _KEY.fullmatch(line)
        if match is None:
            raise FrontMatterError(number, 'This line is not understood; write "name: value".')
        current = match[1]
        if current in values:
            raise FrontMatterError(number, f'"{current}" stands here a second time; keep one.')
        values[current] = _value(match[2] or "", number)
    return {name: value for name, value in values.items() if value is not None}


def _continue(values: dict[str, Any], current: str, line: str, number: int) -> None:
    """An indented line below `current`: an item of its list, or a value of its own."""
    known = values.get(current)
    if line.startswith("- ") and current and (known is None or isinstance(known, list)):
        values[current] = [*(known or []), _scalar(line[2:].strip(), number)]
        return
    match = _KEY.fullmatch(line)
    if match is not None and current and (known is None or isinstance(known, dict)):
        values[current] = {**(known or {}), match[1]: _value(match[2] or "", number)}
        return
    raise FrontMatterError(number, 'This line is not understood; write "- item" or "name: value" below a name.')


def _value(text: str, number: int) -> Any:
    text = text.strip()
    if not text.startswith("["):
        return _scalar(text, number) if text else None
    if not text.endswith("]"):
        raise FrontMatterError(number, 'A list that begins with "[" ends with "]" on the same line.')
    return [_scalar(item, number) for item in _items(text[1:-1], number)]


def _items(text: str, number: int) -> list[str]:
    items, rest = [], text.strip()
    while rest:
        match = _QUOTED.match(rest)
        end = match.end() if match else (rest.find(",") if "," in rest else len(rest))
        items.append(rest[:end].strip())
        rest = rest[end:].strip()
        if rest and not rest.startswith(","):
            raise FrontMatterError(number, "The items of a list are separated by commas.")
        rest = rest[1:].strip()
    return items


def _scalar(text: str, number: int) -> str:
    match = _QUOTED.match(text)
    if match is not None:
        after = text[match.end() :].strip()
        if after and not after.startswith("#"):
            raise FrontMatterError(number, "There is something behind the closing quote.")
        if match[2] is not None:
            return match[2].replace("''", "'")
        return re.sub(r"\\.", lambda found: _ESCAPES[found[0]], match[1])
    if text.startswith(_NOT_PLAIN) or text.startswith(('"', "'")):
        raise FrontMatterError(number, f'A value that begins with "{text[0]}" must be quoted.')
    return text.split(" #", 1)[0].strip()
