"""Markdown's bold in text that arrives in pieces, as a terminal shows it. Its other marks read well as they are."""

from __future__ import annotations

import re

_BOLD = re.compile(r"(?<!\w)\*\*(?=\S)([^*\n]+)(?<=\S)\*\*")
_OPENED = re.compile(r"\*{1,2}$|(?<!\w)\*\*(?=\S)[^*\n]{1,200}\*?$")
"""The end of a text that may become bold once more of it is there."""


class BoldText:
    """Shows `**words**` in bold. What two stars open waits for the other two, for the end of its line, or for too much text."""

    def __init__(self) -> None:
        self._waiting = ""
        self._before = ""
        """The letter that was shown last: stars in the middle of a word are no mark."""

    def feed(self, text: str) -> str:
        """What can be shown now."""
        text = self._before + self._waiting + text
        whole = max((found.end() for found in _BOLD.finditer(text)), default=len(self._before))
        opened = _OPENED.search(text, whole)
        end = opened.start() if opened is not None else len(text)
        self._waiting = text[end:]
        return self._shown(text[:end])

    def rest(self) -> str:
        """What still waits, when no more comes."""
        text, self._waiting = self._before + self._waiting, ""
        return self._shown(text)

    def _shown(self, text: str) -> str:
        start, self._before = len(self._before), text[-1:]
        return _BOLD.sub("\x1b[1m\\1\x1b[22m", text)[start:]
