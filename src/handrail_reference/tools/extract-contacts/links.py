"""Finds web addresses: those with a scheme, and those that start with `www.`.

Each character is looked at once: a start is searched for, then followed to its end, and the search continues from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from .places import TextSpan, is_ascii_word, is_unspaced, is_word

_START = re.compile(
    r"(?<![a-z0-9])(?:https?|ftps?)://|(?<![a-z0-9@._/-])www\.(?=[^\s.])",
    re.IGNORECASE | re.ASCII,
)
_CLOSED_BY = {"(": ")", "[": "]"}
_NEVER = frozenset('<>"`{}|\\^“”„«»‹›，。、；：！？（）【】「」『』《》〈〉…\0')
_NOT_AT_THE_END = ".,;:!?'’*(["


def find(text: str) -> Iterator[TextSpan]:
    """Web addresses in the order of the text, without the punctuation around them."""
    begin = _START.search(text)
    while begin is not None:
        start = begin.start()
        stop = _stop(text, start, begin.end())
        trailing = _NOT_AT_THE_END + (text[start - 1] if start and text[start - 1] in "_~" else "")
        written = text[start:stop].rstrip(trailing)
        if _is_link(written):
            yield TextSpan(start=start, end=start + len(written), value=written)
        begin = _START.search(text, max(stop, begin.end()))


def _stop(text: str, start: int, host: int) -> int:
    """Where the address can continue no further. Brackets belong to it as long as they are balanced within it."""
    quoted = start > 0 and text[start - 1] == "'"
    open_brackets: list[str] = []
    in_host = True
    for place in range(host, len(text)):
        character = text[place]
        if character in _NEVER or character.isspace() or (quoted and character == "'"):
            return place
        if character in _CLOSED_BY:
            open_brackets.append(_CLOSED_BY[character])
        elif character in ")]":
            if not open_brackets or open_brackets.pop() != character:
                return place
        elif character in ",;":
            if _START.match(text, place + 1):
                return place
        elif character in "/?#":
            in_host = False
        elif in_host and is_unspaced(character) and is_ascii_word(text[place - 1]):
            return place
    return len(text)


def _is_link(written: str) -> bool:
    has_scheme = "://" in written
    try:
        parts = urlsplit(written if has_scheme else f"https://{written}")
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if "[" in parts.netloc:
        return True
    labels = host.removesuffix(".").split(".")
    if not all(label and all(is_word(character) or character in "-_" for character in label) for label in labels):
        return False
    return has_scheme or (len(labels) > 2 and "@" not in parts.netloc)
