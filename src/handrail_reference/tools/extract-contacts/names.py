"""Finds the names of people, but only directly beside an e-mail address or a phone number.

Rather none than a wrong one: a name is a few capitalised words, none of which is known to be something else, joined to
the contact by no more than punctuation and a word such as "tel". Before angle brackets (`Ana <ana@example.org>`) the
form itself says that a name stands there, so that one word is enough, in any script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .places import TextSpan, is_mark
from .words import LABELS, NOT_NAMES, PARTICLES, SELDOM_NAMES

_REACH = 200
_MAX_WORDS = 5

_LABEL = r"(?:(?:" + "|".join(sorted(map(re.escape, LABELS), key=len, reverse=True)) + r")\.?[ \t]?:?[ \t]?)?"
_BEFORE = re.compile(
    r"""(?P<quote>["”»])?"""
    r"(?:[ \t]?[<(\[]|[ \t]?[,:;–—][ \t]?|[ \t](?:at|on|[-|·])[ \t]|[ \t])"
    rf"{_LABEL}(?:mailto:|tel:)?[<(\[]?\Z",
    re.IGNORECASE,
)
_AFTER = re.compile(r"[>)\]]?[ \t]?\((?P<name>[^()\n]{3,100})\)")
_OPENED_BY = {'"': '"', "”": "“", "»": "«"}
_GLUED = re.compile(r"[\s:;,(\[{\"“„«|•·*>/=#]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Person(TextSpan):
    contact: str


def find(text: str, contacts: Sequence[TextSpan]) -> list[Person]:
    """The names beside these contacts, which stand in the order of the text."""
    people: dict[int, Person] = {}
    floor = 0
    for contact in contacts:
        for place in (_name_before(text, floor, contact), _name_after(text, contact)):
            if place is not None:
                start, end = place
                person = Person(start=start, end=end, value=text[start:end], contact=contact.value)
                people.setdefault(start, person)
                break
        floor = contact.end
    return [people[start] for start in sorted(people)]


def _name_before(text: str, floor: int, contact: TextSpan) -> tuple[int, int] | None:
    begin = max(floor, contact.start - _REACH)
    begin = max(begin, text.rfind("\n", begin, contact.start) + 1)
    before = text[begin : contact.start]
    gap = _BEFORE.search(before)
    if gap is None:
        return None
    angle = before.endswith("<") and "@" in contact.value
    end = gap.start()
    if gap["quote"]:
        start = before.rfind(_OPENED_BY[gap["quote"]], 0, end) + 1
        quoted = [word.rstrip(",") for word in before[start:end].split(" ")]
        return (begin + start, begin + end) if start and angle and _is_name(quoted, angle=True) else None
    words = list(_words_up_to(before[:end], angle=angle))
    if not words or not _is_name([word for _, word in reversed(words)], angle=angle):
        return None
    if words[-1][0] == 0 and text[begin - 1 : begin].isalpha():
        return None  # it starts further away than we look
    return begin + words[-1][0], begin + end


def _name_after(text: str, contact: TextSpan) -> tuple[int, int] | None:
    match = _AFTER.match(text, contact.end)
    if match is None or not _is_name(match["name"].split(" "), angle=False):
        return None
    return match.span("name")


def _words_up_to(before: str, *, angle: bool) -> Iterator[tuple[int, str]]:
    """The words of a name that ends where `before` ends, last word first, each with its start."""
    found: list[tuple[int, str]] = []
    end = len(before)
    while end > 0 and len(found) <= _MAX_WORDS:
        start = before.rfind(" ", 0, end) + 1
        glued = [mark.end() for mark in _GLUED.finditer(before, start, end)]
        word = before[glued[-1] if glued else start : end]
        if not (_is_name_word(word, angle=angle) or word in PARTICLES):
            break
        found.append((end - len(word), word))
        if glued:
            break
        end = start - 1
    while found and found[-1][1] in PARTICLES:
        found.pop()
    return iter(found)


def _is_name(words: Sequence[str], *, angle: bool) -> bool:
    if not (1 if angle else 2) <= len(words) <= _MAX_WORDS:
        return False
    if not all(_is_name_word(word, angle=angle) or word in PARTICLES for word in words):
        return False
    full = [word for word in words if len(word.rstrip(".")) > 1 and word not in PARTICLES]
    # Headlines are in capitals more often than names are.
    return bool(full) and (angle or not all(word.isupper() for word in full))


def _is_name_word(word: str, *, angle: bool) -> bool:
    plain = word.rstrip(".").casefold()
    if not word or len(word) > 40 or plain in NOT_NAMES or (plain in SELDOM_NAMES and not angle):
        return False
    if not all(character.isalpha() or character in "'’-." or is_mark(character) for character in word):
        return False
    # "J." and "J.R." are initials; after a longer word a period ends the sentence.
    if "." in word and any(len(part) > 1 for part in word.split(".")):
        return False
    if word[0].isupper() or word[0].istitle():
        return True
    # Most scripts of the world have no capitals.
    return angle and word[0].isalpha() and word[0].lower() == word[0].upper()
