"""Did a model that was asked to read a preview really read it? Judged by the transcript of what it said. Pure.

Every word, number and name of the preview has to be there, in order, in one of the ways in which it is said; between them
only small words, before them a short announcement, behind them the question. One word more ("not", another number, a second
offer) and it was not read: it is read again, and then the screen has it. Spelling is not forgiven, since a name that sounds
alike may be another person's.

Every character counts but plain punctuation. One that has no way to be said here ("*", "<", "₹", "½") might be left out and not
be missed, so a text that has one was not read, and is not for reading aloud in the first place (`is_speakable`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from handrail.agents.voice.spoken import spoken_numbers as forms
from handrail.agents.voice.spoken.answer_grammar import question

__all__ = ["is_speakable", "was_read"]

_LONGEST = 2000
_MAX_BEFORE, _MAX_AFTER = 16, 20

Unit: TypeAlias = frozenset[forms.Form] | str
"""One thing to be said: in any of these forms, or, as a string of digits, in any grouping."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SMALL = _words("a an the this that it its is are be at on of in and for with comma colon quote unquote")
_BEFORE = _SMALL | _words(
    "okay ok sure certainly course great thanks thank you all right alright sorry so now before i we will can go ahead let me "
    "read again once more here please confirm check following details what to do have would like your just"
)
_AFTER = _SMALL | _words(
    "please say do you confirm would like me to go ahead shall should i correct right just if want can answer tell may or"
)
_PUNCTUATION = frozenset(".,;:!?'\"()-\u2010\u2011\u2012–—…•‘’‚“”„«»‹›¿¡")
_WRITTEN = _PUNCTUATION | frozenset("@%&+#/_€$£")
_LAST_LATIN = "\u024f"
_MINUS = r"(?<!\w)[-−\u2010\u2012–—](?=[€$£]?\ ?\.?\d)(?!\ )"
"""A dash right before a number or an amount, and not right behind a word: "by -5", "-€5", but not "A-5", nor "Ann - 5 people"."""
_NO_WHOLE = re.compile(r"(?<!\w)[.,]\d")
"""A point that begins a number is easily left out, and makes ten times as much of it."""
_MONTH = "|".join(forms.MONTHS)
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?!,?\d)"
_PIECES = re.compile(
    rf"""
      (?P<iso>(?P<iso_y>\d{{4}})-(?P<iso_m>\d\d)-(?P<iso_d>\d\d))
        (?:t(?P<iso_h>\d\d):(?P<iso_i>\d\d)(?::00(?:\.0+)?)?(?P<zone>z|(?P<zone_s>[+-])(?P<zone_h>\d\d):?(?P<zone_i>\d\d))?)?
    | (?P<utc>utc(?P<utc_s>[+-])(?P<utc_h>\d\d):?(?P<utc_i>\d\d))
    | (?P<dm>\b(?P<dm_d>\d{{1,2}})(?:st|nd|rd|th)?\ (?:of\ )?(?P<dm_m>{_MONTH})\b(?:,?\ (?P<dm_y>\d{{4}})\b)?)
    | (?P<md>\b(?P<md_m>{_MONTH})\ (?P<md_d>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)(?:,?\ (?P<md_y>\d{{4}})\b(?!:))?)
    | (?P<clock>\b(?P<ck_h>\d{{1,2}}):(?P<ck_m>\d\d)(?::00)?\b(?:\ ?(?P<ck_half>[ap])\.?m\b\.?)?)
    | (?P<hour>\b(?P<hr_h>\d{{1,2}})\ ?(?P<hr_half>[ap])\.?m\b\.?)
    | (?P<money>(?P<coin>[€$£])\ ?(?P<coin_minus>{_MINUS})?(?P<whole>{_WHOLE})(?:\.(?P<cents>\d\d)\b)?)
    | (?P<spent>\b(?P<spent_whole>{_WHOLE})(?:\.(?P<spent_cents>\d\d))?\ ?(?P<spent_coin>[€$£]))
    | (?P<minus>{_MINUS})
    | (?P<range>(?<=\d)(?:\ [-–]\ |[-–]\ ?)(?=[€$£]?\d))
    | (?P<phone>\+\d[\d\ ()-]{{5,}}\d|\b\d{{7,}}\b|\b0\d+\b)
    | (?P<decimal>\b(?P<dec_whole>\d+)\.(?P<dec_part>\d+)\b)
    | (?P<number>\b(?P<digits>\d{{1,3}}(?:,\d{{3}})+|\d+)(?:st|nd|rd|th)?\b)
    | (?P<word>[^\W\d_]+(?:'[^\W\d_]+)*|\d+|[^\W_]+)
    | (?P<mark>[@%&+\#/€$£]|(?<=\w)\.(?=\w)|_)
    """,
    re.VERBOSE,
)
_TOKENS = re.compile(r"\d+(?:st|nd|rd|th)\b|\d+|[^\W\d_]+|[@%&+#/€$£]|(?<=\w)\.(?=\w)|_")
_LESS: Unit = frozenset({("minus",), ("negative",)})
_SAID = {
    "@": "at",
    "%": "percent",
    "&": "and",
    "+": "plus",
    "#": "number",
    "/": "slash",
    ".": "dot",
    "_": "underscore",
    "€": "euros",
    "$": "dollars",
    "£": "pounds",
}


def is_speakable(text: str) -> bool:
    """Whether each of its characters is one that can be said, or plain punctuation."""
    if _NO_WHOLE.search(text):
        return False
    base = ""
    for letter in unicodedata.normalize("NFD", re.sub(_MINUS, "-", text)):
        if unicodedata.combining(letter):
            # The accents of our letters are not compared; the marks of other alphabets make other letters.
            if not base.isalpha() or base > _LAST_LATIN:
                return False
            continue
        base = letter
        if not (letter.isalpha() or letter.isdecimal() or letter.isspace()) and letter not in _WRITTEN:
            return False
    return True


def was_read(preview: str, transcript: str, *, language: str = "en") -> bool:
    """Whether what was said is the preview, read out as it stands."""
    if len(preview) > _LONGEST or len(transcript) > 2 * _LONGEST or not is_speakable(f"{preview}\n{transcript}"):
        return False
    said = _tokens(transcript)
    english = language.lower().startswith("en")
    spoken = list(_units(_folded(preview))) if english else []
    verbatim: list[Unit] = [frozenset({(token,)}) for token in _tokens(preview)]
    asked = _AFTER if english else frozenset[str]()
    either = _tokens(question(language) or "")
    ends = set[int]()
    for units in (verbatim, spoken):
        if units:
            ends |= _matched(units, said, _BEFORE if english else frozenset(), _SMALL if english else frozenset())
    return any(_is_question(said[end:], either, asked) for end in ends)


def _is_question(rest: Sequence[str], either: Sequence[str], asked: frozenset[str]) -> bool:
    """Whether what follows the preview only asks. A yes in it belongs to "yes or no": no model answers its own question."""
    if len(rest) > _MAX_AFTER:
        return False
    if list(rest) == list(either):
        return True
    left = " ".join(rest).replace("yes or no", "or").split()
    return all(token in asked for token in left)


def _matched(units: Sequence[Unit], said: Sequence[str], before: frozenset[str], small: frozenset[str]) -> set[int]:
    """Where the preview can have ended in what was said; nowhere if it is not there."""
    # All places where it may have ended, and not the first: which words were left out or added shows only at the end.
    places = {0}
    for count, token in enumerate(said[:_MAX_BEFORE], start=1):
        if token not in before:
            break
        places.add(count)
    for unit in units:
        if isinstance(unit, str):
            places = {end for place in places for end in _digits_end(unit, said, place, small)}
        else:
            places = {end for place in places for form in unit for end in _ends(form, said, place, small)}
    return places


def _digits_end(digits: str, said: Sequence[str], place: int, small: frozenset[str]) -> Iterator[int]:
    while place < len(said) and said[place] in small:
        place += 1
    while digits and place < len(said):
        token = said[place]
        value = 0 if token == "oh" else forms.NUMBER_WORDS.get(token, 10)
        group = str(value) if value < 10 else token
        if not group.isdecimal() or not digits.startswith(group):
            return
        digits, place = digits[len(group) :], place + 1
    if not digits:
        yield place


def _ends(form: forms.Form, said: Sequence[str], start: int, small: frozenset[str]) -> set[int]:
    """Where this form can end in what was said, small words before and within it skipped."""
    places = {start}
    for token in form:
        found = set()
        for place in places:
            while place < len(said):
                if said[place] == token:
                    found.add(place + 1)
                if said[place] not in small:
                    break
                place += 1
        places = found
        if not places:
            break
    return places


def _folded(text: str) -> str:
    """Lower case, without accents, with plain apostrophes: transcripts differ in these for the same spoken word."""
    text = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").casefold()
    plain = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


def _tokens(text: str) -> list[str]:
    text = re.sub(r"\b([ap])\.\s?m\b\.?", r"\1m", _folded(text))
    text = re.sub(_MINUS, " minus ", text)
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text).replace("o'clock", "oclock")
    text = re.sub(r"(?<=\d)\.(?=\d)", " point ", text).replace("'", "")
    return [_SAID.get(token, token) for token in _TOKENS.findall(text)]


def _units(text: str) -> Iterator[Unit]:
    for found in _PIECES.finditer(text):
        yield from _english(found)


def _english(found: re.Match[str]) -> Iterator[Unit]:
    got = found.groupdict()
    match next(name for name in _KINDS if got[name] is not None):
        case "iso":
            yield _date(got["iso_d"], int(got["iso_m"]), got["iso_y"], found)
            if got["iso_h"] is not None:
                yield _time(int(got["iso_h"]), int(got["iso_i"]), None, found)
            if got["zone"] == "z":
                yield frozenset({("z",), ("utc",), ("zulu",), ()})
            elif got["zone"] is not None:
                yield _offset(got["zone_s"], got["zone_h"], got["zone_i"])
        case "utc":
            yield _offset(got["utc_s"], got["utc_h"], got["utc_i"])
        case "dm":
            yield _date(got["dm_d"], _month(got["dm_m"]), got["dm_y"], found)
        case "md":
            yield _date(got["md_d"], _month(got["md_m"]), got["md_y"], found)
        case "clock":
            yield _time(int(got["ck_h"]), int(got["ck_m"]), got["ck_half"], found)
        case "hour":
            yield _time(int(got["hr_h"]), 0, got["hr_half"], found)
        case "money":
            if got["coin_minus"] is not None:
                yield _LESS
            yield _money(got["coin"], got["whole"], got["cents"])
        case "spent":
            yield _money(got["spent_coin"], got["spent_whole"], got["spent_cents"])
        case "minus":
            yield _LESS
        case "range":
            yield frozenset({(), ("to",), ("through",), ("dash",)})
        case "phone":
            if found[0].startswith("+"):
                yield frozenset({("plus",)})
            yield "".join(letter for letter in found[0] if letter.isdecimal())
        case "decimal":
            yield frozenset(forms.number(got["dec_whole"]))
            yield frozenset({("point",), ("dot",)})
            yield frozenset(forms.after_point(got["dec_part"]))
        case "number":
            yield frozenset(forms.number(got["digits"].replace(",", "")))
        case "mark":
            yield frozenset({(_SAID[found[0]],)})
        case _:
            yield _one(found[0])


_KINDS = (
    "iso",
    "utc",
    "dm",
    "md",
    "clock",
    "hour",
    "money",
    "spent",
    "minus",
    "range",
    "phone",
    "decimal",
    "number",
    "word",
    "mark",
)


def _one(piece: str) -> Unit:
    plain = tuple(_tokens(piece))
    if not plain:
        return frozenset({()})
    if len(plain) == 1 and plain[0] in forms.NUMBER_WORDS:
        return frozenset({plain, (str(forms.NUMBER_WORDS[plain[0]]),)})
    return frozenset({plain})


def _month(name: str) -> int:
    return forms.MONTHS.index(name) + 1


def _date(day: str, month: int, year: str | None, found: re.Match[str]) -> Unit:
    if not (1 <= int(day) <= 31 and 1 <= month <= 12):
        return frozenset({tuple(_tokens(found[0]))})
    plain = {tuple(_tokens(found["iso"]))} if found["iso"] else set()
    return frozenset(forms.date(int(day), month, None if year is None else int(year)) | plain)


def _time(hour: int, minute: int, half: str | None, found: re.Match[str]) -> Unit:
    if hour > 23 or minute > 59 or (half is not None and not 1 <= hour <= 12):
        return frozenset({tuple(_tokens(found[0]))})
    if half is not None:
        hour = hour % 12 + (12 if half == "p" else 0)
    return frozenset(forms.time(hour, minute, with_half=half is not None))


def _money(coin: str, whole: str, cents: str | None) -> Unit:
    return frozenset(forms.amount(coin, whole.replace(",", ""), cents or ""))


def _offset(sign: str, hours: str, minutes: str) -> Unit:
    said = forms.offset(sign, int(hours), int(minutes))
    return frozenset({("utc", *form) for form in said} | said)
