"""Arguments that are plain text: which words of a request they are, judged by the name of the argument."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from handrail.agents.offline.pieces import Pieces
from handrail.agents.offline.vocabulary import BODY, PERSON, PLACE, QUERY, TITLE, VERBS
from handrail.agents.offline.wording import cleaned, title_from
from handrail.picking.words import COMMON

_LEAVING, _ARRIVING = {"origin", "from", "departure", "source"}, {"destination", "to", "arrival"}
_CAPITALISED = re.compile(r"[A-ZÀ-ÖØ-Þ][\w'’.-]*(?:,?\s+[A-ZÀ-ÖØ-Þ][\w'’.-]*)*")
_SAYING = re.compile(r"\b(?:saying|that\s+says|to\s+say|of|showing|about)\s+(.{2,})$", re.IGNORECASE | re.DOTALL)
_PICTURED = re.compile(
    r"\b(?:pictures?|images?|photos?|drawings?|paintings?|sketch(?:es)?|illustrations?|cards?|posters?|prompts?)\s+"
    r"(?:of|showing|about|with|that\s+shows?)\s+(.{2,})$",
    re.IGNORECASE | re.DOTALL,
)
"""What a picture shows: a map of Narnia is one, not Narnia."""
_CALLED = re.compile(
    r"^[^\w\n]*(?:\w+\W+){0,3}?(?:(?:call|name|title)\s+(?:it|that|this|the\s+\w+)|(?:change|set|make)\s+(?:the|its)\s+(?:title|name|subject)"
    r"(?:\s+to|:))\s+(?P<title>\S.*?)(?:,?\s+please)?\W*$",
    re.IGNORECASE | re.MULTILINE,
)
_SHOWING = re.compile(
    r"^(?:draw|paint|sketch|illustrate|make|create|generate)\s+(?:(?:me|us|her|him|them)\s+)?", re.IGNORECASE
)
"""The asking for a picture is not what it shows."""


@dataclass(frozen=True, slots=True)
class FreeText:
    """Candidates, best first: those that something in the text points out, and those that are only likely."""

    signed: list[str]
    guessed: list[str]


def free_text(words: set[str], pieces: Pieces, *, acting: bool) -> FreeText:
    """The candidates for an argument whose name has these words."""
    names = [name for _, name in pieces.names]
    if words <= {"from", "to", "in", "at"}:
        return FreeText(list(pieces.places(*words)), list(pieces.after(*words)))
    if words & QUERY:
        return FreeText([], [cleaned(pieces.text)])
    if words & PLACE:
        way = (
            ("from",)
            if words & _LEAVING
            else ("to",)
            if words & _ARRIVING
            else ("in", "at", "near", "for", "of", "around")
        )
        return FreeText(list(pieces.places(*way)), [*pieces.places("to", "in", "visit", "visiting"), *names])
    if words & TITLE or (words == {"name"} and acting):
        newest = [match[1].strip(" .!\"'“”") for match in _CALLED.finditer(pieces.text)][::-1]
        told = [*newest, *pieces.quoted, *pieces.after("called", "named", "titled")]
        return FreeText(told, [title_from(pieces.rest)])
    if words & BODY:
        told = [*pieces.quoted, *_found(re.compile(r":\s+(\S.*)$", re.DOTALL), pieces.text)]
        whole = cleaned(pieces.text)
        shown = _SHOWING.sub("", whole) if words & {"prompt", "idea"} else whole
        asked = [shown or whole] if not acting or whole.lower() not in VERBS else []
        saying = _PICTURED if words & {"prompt", "idea"} else _SAYING
        return FreeText([*told, *_found(saying, pieces.text)], asked)
    if words & PERSON:
        beside = _capitalised(pieces.after("with", "for", "to", "by", "about", "of", "named", "called", "is"))
        return FreeText([], [*pieces.quoted, *beside, *names])
    nouns = [word for word in words if word not in COMMON]
    loose = pieces.after("of", "for", "about", "in", "on", "to", "with")
    return FreeText([], [*pieces.quoted, *pieces.after(*nouns), *names, *loose])


def _capitalised(phrases: Iterable[str]) -> Iterable[str]:
    for phrase in phrases:
        match = _CAPITALISED.match(phrase)
        if match:
            yield match[0].rstrip(".,")


def _found(pattern: re.Pattern[str], text: str) -> Iterable[str]:
    match = pattern.search(text)
    if match:
        yield match[1].strip(" .\"'“”")
