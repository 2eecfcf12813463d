"""Long texts in pieces that overlap: the best piece counts, and gives the snippet. Pieces are places in the text, not copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

PIECE_WORDS = 180
"""About what MiniLM reads at once; longer pieces would be cut silently."""
OVERLAP_WORDS = 40
PIECE_CHARS = 2_000
"""For texts without spaces, where a line is one word."""
LEAD_WORDS = 50
MAX_SNIPPET = 320
_WORD = re.compile(r"\S{1,200}")


class Piece(NamedTuple):
    """The characters from `start` up to `stop` of a text."""

    start: int
    stop: int


def pieces_of(text: str) -> Iterator[Piece]:
    """At least one piece, also of an empty text: a record that has only a title is found, too. Each is looked for when it is
    asked for: all the words of a book at once would keep other threads waiting."""
    rest = (match.span() for match in _WORD.finditer(text))
    words = list(islice(rest, PIECE_WORDS + 1))  # one more than fit, which tells whether a piece is the last
    if not words:
        yield Piece(0, 0)
    while words:
        count = min(PIECE_WORDS, len(words))
        while count > 1 and words[count - 1][1] - words[0][0] > PIECE_CHARS:
            count -= 1
        yield Piece(words[0][0], words[count - 1][1])
        if count == len(words):
            return
        del words[: max(1, count - min(OVERLAP_WORDS, count // 4))]
        words += islice(rest, PIECE_WORDS + 1 - len(words))


def lead_of(text: str) -> str:
    """The beginning of a text, which mostly says what it is about."""
    end = 0
    for number, match in enumerate(_WORD.finditer(text)):
        end = match.end()
        if number + 1 == LEAD_WORDS:
            break
    return text[:end]


def snippet_of(piece: str, query: str) -> str:
    """The part of a piece in which most of the query's words stand, on one line, with its cuts shown."""
    text = " ".join(piece.split())
    if len(text) <= MAX_SNIPPET:
        return text
    start = _best_start(text, query)
    cut = text[start : start + MAX_SNIPPET - 2]
    if start + len(cut) < len(text):
        cut = cut.rsplit(" ", 1)[0] if " " in cut[MAX_SNIPPET // 2 :] else cut
        cut = cut.rstrip() + "…"
    return ("…" if start else "") + cut


def _best_start(text: str, query: str) -> int:
    low = text.lower()
    # The beginnings of words, so that "accounts" finds "account" as the index does.
    stems = {word[: max(4, len(word) - 2)] for word in re.findall(r"[^\W_]{3,}", query.lower())[:32]}
    places = sorted((match.start(), stem) for stem in stems for match in re.finditer(re.escape(stem), low))
    best, best_count = 0, 0
    for at, (place, _) in enumerate(places[:400]):
        count = len({stem for other, stem in places[at : at + 60] if other < place + MAX_SNIPPET - 20})
        if count > best_count:
            best, best_count = place, count
    if best <= MAX_SNIPPET // 4:
        return 0
    # A little of what stands before, from the beginning of a word.
    back = text.rfind(" ", 0, max(0, best - 40))
    return back + 1
