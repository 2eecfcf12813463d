"""What an answer means: the closed grammar over the user's transcribed words. Pure, and the only judge of a spoken yes.

An utterance that is nothing but a yes approves, one that is nothing but a no declines, and all else is a miss: asking
again costs a moment, a wrong yes costs whatever the tool does. So nothing here looks for a yes *in* an utterance; the whole
of it, down to the last mark, has to be one of the forms in `answer_languages.py`. A question mark, an ellipsis, a dash, a
quotation mark, a digit, a letter of another alphabet, or a comma at the end (somebody was cut off) make it a miss too.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache

from handrail.agents.voice.spoken.answer_languages import LANGUAGES, AnswerForms, LanguageAnswers

__all__ = ["AnswerVerdict", "question", "understood"]

_LONGEST = 100
_MAX_AFTER = 3


class AnswerVerdict(StrEnum):
    """What an utterance is taken for."""

    YES = "yes"
    NO = "no"
    MISS = "miss"


def understood(utterance: str, *, language: str = "en") -> AnswerVerdict:
    """What the person said, in the session's language (`en`, `en-GB`). A language without a grammar is always a miss."""
    words = _words_of(language)
    if words is None or len(utterance) > _LONGEST:
        return AnswerVerdict.MISS
    said = utterance.strip(" \t\r\n").replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    yes, no, plain = _patterns(words)
    if not plain.fullmatch(said):
        return AnswerVerdict.MISS
    said = re.sub("[,.!]", "", said).lower()
    # A form of both would be a fault of the table; then it is neither.
    match yes.fullmatch(said) is not None, no.fullmatch(said) is not None:
        case True, False:
            return AnswerVerdict.YES
        case False, True:
            return AnswerVerdict.NO
        case _:
            return AnswerVerdict.MISS


def question(language: str = "en") -> str | None:
    """How a person is asked for an answer in this language; None if it has no grammar."""
    words = _words_of(language)
    return None if words is None else words.question


def _words_of(language: str) -> LanguageAnswers | None:
    return LANGUAGES.get(re.split("[-_]", language, maxsplit=1)[0].lower())


@cache
def _patterns(words: LanguageAnswers) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """A whole yes, a whole no, and the writing that both are in: words of the language's own letters, plain marks."""
    letters = "".join(sorted(set("".join(_forms(words))) - {" "}))
    word = f"[{re.escape(letters + letters.upper())}]+"
    plain = re.compile(rf"{word}(?:[,.!]? {word})*[.!]?")
    return _any(words.yes), _any(words.no), plain


def _forms(words: LanguageAnswers) -> list[str]:
    sides = (*words.yes, *words.no)
    return [form for side in sides for form in (*side.core, *side.before, *side.after, *side.alone, *side.polite)]


def _any(sides: tuple[AnswerForms, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_side(side)})" for side in sides))


def _side(side: AnswerForms) -> str:
    core = _one_of(side.core)
    answer = f"{core}(?: {core}){{0,{side.repeats - 1}}}"
    if side.before:
        answer = f"(?:{_one_of(side.before)} )?{answer}"
    if side.after:
        answer = f"{answer}(?: {_one_of(side.after)}){{0,{_MAX_AFTER}}}"
    if not side.alone:
        return answer
    alone = _one_of(side.alone) + (f"(?: {_one_of(side.polite)})?" if side.polite else "")
    return f"{answer}|{alone}"


def _one_of(forms: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(map(re.escape, forms))})"
