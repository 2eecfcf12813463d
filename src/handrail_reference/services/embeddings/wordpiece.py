"""Text to the numbers of its tokens, as BERT does it: plain lower-case words without accents, and the longest known pieces of
those that are not in the vocabulary as a whole.

Written here instead of taken from a library: theirs keeps every other thread waiting while it reads its vocabulary, and brings
a client for a model hub along.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Mapping

import orjson

from handrail_reference.services.embeddings.characters import DROPPED, IDEOGRAPHS, PUNCTUATION

_LONGEST_WORD = 100
"""A word of more characters is an unknown one."""
_MARKS = re.compile(r"(\[(?:PAD|UNK|CLS|SEP|MASK)])")
"""The model's own tokens. A text that has one written out has the token, as with the published tokenizer."""
_PART_BYTES, _PAUSE_SECONDS = 1 << 16, 0.0001
_VOCABULARY, _BETWEEN_ENTRIES = b'"vocab":{', re.compile(rb'(?<=\d),(?=")')


class WordPiece:
    """Made once, then only read, so several threads may use it at once."""

    def __init__(self, vocabulary: Mapping[str, int], *, max_tokens: int) -> None:
        self._vocabulary = vocabulary
        self._max_tokens = max_tokens
        self._start, self._end, self._unknown = (vocabulary[mark] for mark in ("[CLS]", "[SEP]", "[UNK]"))
        self._longest_piece = max(map(len, vocabulary))
        self._characters = _Characters()

    def encode(self, text: str) -> list[int]:
        """The numbers of at most `most` tokens, between the marks for the beginning and the end."""
        tokens = [self._start]
        for place, part in enumerate(_MARKS.split(text)):
            if place % 2:
                tokens.append(self._vocabulary[part])
                continue
            for word in part.translate(self._characters).split():
                tokens += self._pieces(word)
                if len(tokens) >= self._max_tokens:
                    break
        del tokens[self._max_tokens - 1 :]
        tokens.append(self._end)
        return tokens

    def _pieces(self, word: str) -> list[int]:
        """The longest piece that the word begins with, then the longest that follows; all of it is known, or none."""
        if len(word) > _LONGEST_WORD:
            return [self._unknown]
        pieces: list[int] = []
        start, before = 0, ""
        while start < len(word):
            for stop in range(min(len(word), start + self._longest_piece), start, -1):
                piece = self._vocabulary.get(before + word[start:stop])
                if piece is not None:
                    break
            else:
                return [self._unknown]
            pieces.append(piece)
            start, before = stop, "##"
        return pieces


class _Characters(dict[int, str]):
    """What becomes of each character, looked up when it first comes by. With spaces around it, it is a word of its own."""

    _MAX_KEPT = 1 << 15

    def __missing__(self, code: int) -> str:
        plain = _normalized(code)
        if len(self) < self._MAX_KEPT:  # nobody fills the memory by writing every character that there is
            self[code] = plain
        return plain


def _normalized(code: int) -> str:
    if code in DROPPED:
        return ""
    if chr(code).isspace():
        return " "
    letters = [one.lower() for one in unicodedata.normalize("NFD", chr(code)) if ord(one) not in DROPPED]
    plain = "".join(f" {one} " if ord(one) in PUNCTUATION else one for one in letters)
    return f" {plain} " if code in IDEOGRAPHS else plain


def read_vocabulary(data: bytes) -> dict[str, int]:
    """The vocabulary in a `tokenizer.json`. Who reads JSON lets no other thread run, so it is read in parts, with pauses."""
    vocabulary: dict[str, int] = {}
    start, end = data.index(_VOCABULARY) + len(_VOCABULARY), data.rindex(b"}}}")
    while start < end:
        comma = _BETWEEN_ENTRIES.search(data, start + _PART_BYTES, end)
        stop = comma.start() if comma is not None else end
        vocabulary.update(orjson.loads(b"{" + data[start:stop] + b"}"))
        start = stop + 1
        time.sleep(_PAUSE_SECONDS)
    return vocabulary
