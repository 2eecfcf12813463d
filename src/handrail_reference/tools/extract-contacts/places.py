"""A place in the text with what was found there, and the few questions about characters that every finder asks."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSpan:
    """`value` is what is reported, `text[start:end]` what stands there."""

    start: int
    end: int
    value: str


def hide(text: str, places: Iterable[TextSpan]) -> str:
    """The text with those places blanked out, at the same length, so that other finders keep their offsets."""
    pieces, last = [], 0
    for place in places:
        pieces += [text[last : place.start], "\0" * (place.end - place.start)]
        last = place.end
    return "".join([*pieces, text[last:]])


def is_ascii_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def is_word(character: str) -> bool:
    """A letter, a digit, or a mark on one: in many scripts words are not made of letters alone."""
    return character.isalnum() or is_mark(character)


def is_mark(character: str) -> bool:
    return character >= "\u0300" and unicodedata.category(character)[0] == "M"


def is_unspaced(character: str) -> bool:
    """Of a script that sets no space beside a foreign word: Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese.

    There, an address may follow its sentence directly, and the sentence may continue directly after the address.
    """
    return character >= "\u0e00" and (
        character <= "\u0eff"
        or "\u1000" <= character <= "\u11ff"
        or "\u1780" <= character <= "\u17ff"
        or "\u3005" <= character <= "\u30ff"
        or "\u3400" <= character <= "\u9fff"
        or "\uac00" <= character <= "\ud7a3"
        or "\uf900" <= character <= "\ufaff"
        or "\U00020000" <= character <= "\U0003ffff"
    )
