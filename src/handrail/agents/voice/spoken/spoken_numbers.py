"""The ways in which numbers, times, dates and amounts are said aloud in English. Pure; `preview_reading.py` compares with them.

A form is a tuple of tokens as a transcript has them: lower case, digits in one piece ("7:30 p.m." is `7 30 pm`). Small words
between tokens are skipped by the comparison, so "the eighteenth of November" needs no form of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import TypeAlias

__all__ = [
    "MONTHS",
    "NUMBER_WORDS",
    "Form",
    "after_point",
    "amount",
    "date",
    "digit_by_digit",
    "number",
    "offset",
    "time",
]

Form: TypeAlias = tuple[str, ...]

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_AFTERNOON: tuple[Form, ...] = (("pm",), ("p", "m"), ("afternoon",), ("evening",), ("night",))
_MORNING: tuple[Form, ...] = (("am",), ("a", "m"), ("morning",))
_COINS = {"€": ("euro", "euros", "cent", "cents"), "$": ("dollar", "dollars", "cent", "cents")}
_COINS["£"] = ("pound", "pounds", "penny", "pence")

NUMBER_WORDS = {word: value for value, word in enumerate(_ONES)} | {
    word: ten * 10 for ten, word in enumerate(_TENS) if word
}


def number(digits: str) -> set[Form]:
    """A whole number: `2026` is 2026, 20 26, twenty twenty six, two thousand twenty six, two zero two six."""
    value = int(digits)
    forms: set[Form] = {(digits,), (str(value),), *digit_by_digit(digits)}
    if value < 1_000_000:
        words = _cardinal(value)
        forms |= {words, (*words[:-1], _ordinal(words[-1])), (f"{value}{_ending(value)}",)}
    if len(digits) == 4 and digits[0] != "0":
        high, low = value // 100, value % 100
        tail = (
            [_cardinal(low)] if low >= 10 else [("oh", _ONES[low]), ("hundred",)] if low == 0 else [("oh", _ONES[low])]
        )
        forms |= {(*_cardinal(high), *words) for words in tail} | {(digits[:2], digits[2:])}
    return forms


def digit_by_digit(digits: str) -> set[Form]:
    """`0042` as zero zero four two, oh oh four two, 0 0 4 2."""
    named = tuple(_ONES[int(digit)] for digit in digits)
    return {named, tuple("oh" if word == "zero" else word for word in named), tuple(digits)}


def after_point(digits: str) -> set[Form]:
    """What stands behind a point: `05` is zero five, `5` would be ten times as much."""
    plain = {(digits,), *digit_by_digit(digits)}
    return plain if digits.startswith("0") else plain | number(digits)


def time(hour: int, minute: int, *, with_half: bool = False) -> set[Form]:
    """A time of day. After noon, the short hour needs a word that says so: "seven thirty" alone is in the morning.

    `with_half`: the half of the day is written, and so it has to be said, unless the hour tells it.
    """
    minutes = _minutes(minute)
    hours = {(str(hour),), (f"{hour:02}",), _cardinal(hour)}
    if hour < 10:
        hours |= {("oh", _ONES[hour]), ("zero", _ONES[hour])}
    forms = set() if with_half and hour <= 12 else set(_joined(hours, minutes))
    halves = _AFTERNOON if hour >= 12 else _MORNING
    short = {(str(hour % 12 or 12),), _cardinal(hour % 12 or 12)}
    forms |= set(_joined(short, minutes, halves))
    after = (hour + 1) % 24
    next_short = {(str(after % 12 or 12),), _cardinal(after % 12 or 12)}
    said = {30: [("half", "past")], 15: [("quarter", "past")], 45: [("quarter", "to")]}.get(minute, [])
    for phrase in said:
        base = next_short if minute == 45 else short
        half = (_AFTERNOON if after >= 12 else _MORNING) if minute == 45 else halves
        forms |= set(_joined([phrase], base, half))
        if not with_half and (after if minute == 45 else hour) in range(1, 13):
            forms |= set(_joined([phrase], base))
    if minute == 0 and hour in (0, 12):
        word = "midnight" if hour == 0 else "noon"
        forms |= {(word,), ("12", word), ("twelve", word)}
    return forms


def date(day: int, month: int, year: int | None) -> set[Form]:
    """A day of the calendar, in either order."""
    days = _day(day)
    name: Iterable[Form] = [(MONTHS[month - 1],), (MONTHS[month - 1][:3],)]
    orders = set(_joined(days, name)) | set(_joined(name, days))
    return orders if year is None else set(_joined(orders, number(str(year))))


def amount(symbol: str, whole: str, cents: str) -> set[Form]:
    """Money: `€25.50` is 25 50 euros, twenty five euros and fifty cents, twenty five fifty."""
    one, many, small, smalls = _COINS.get(symbol, (symbol,) * 4)
    names: list[Form] = [(one,), (many,)]
    wholes = number(whole)
    if not cents or int(cents) == 0:
        plain = wholes | (set(_joined(wholes, [("point",), ("dot",), ()], [(cents,)])) if cents else set())
        return set(_joined(plain, names)) | set(_joined(names, plain))
    parts = after_point(cents)
    points = set(_joined(wholes, [("point",), ("dot",), ()], parts))
    spelt = set(_joined(wholes, names, parts))
    spelt |= set(_joined(wholes, names, parts | number(cents), [(small,), (smalls,)]))
    return set(_joined(points, names)) | set(_joined(names, points)) | spelt


def offset(sign: str, hours: int, minutes: int) -> set[Form]:
    """How far a clock is from UTC: `+0100` is plus one, plus 0100, plus one hour."""
    signs: list[Form] = [("plus",)] if sign == "+" else [("minus",), ("negative",)]
    written = f"{hours:02}{minutes:02}"
    said = number(str(hours))
    if minutes:
        said = set(_joined(said, number(str(minutes)))) | set(_joined(said, [("hours",)], number(str(minutes))))
    said |= {(written,), (written[:2], written[2:]), *digit_by_digit(written)}
    forms = set(_joined(signs, said, [(), ("hour",), ("hours",), ("minutes",)]))
    return forms | ({()} if not (hours or minutes) else set())


def _cardinal(value: int) -> Form:
    if value < 20:
        return (_ONES[value],)
    if value < 100:
        return (_TENS[value // 10], *((_ONES[value % 10],) if value % 10 else ()))
    size, word = (100, "hundred") if value < 1000 else (1000, "thousand")
    return (*_cardinal(value // size), word, *(_cardinal(value % size) if value % size else ()))


def _ordinal(word: str) -> str:
    if word in _ORDINALS:
        return _ORDINALS[word]
    return word[:-1] + "ieth" if word.endswith("y") else word + "th"


def _ending(value: int) -> str:
    return "th" if value % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")


def _day(day: int) -> set[Form]:
    words = _cardinal(day)
    return {(str(day),), (f"{day:02}",), (f"{day}{_ending(day)}",), words, (*words[:-1], _ordinal(words[-1]))}


def _minutes(minute: int) -> set[Form]:
    if minute == 0:
        return {(), ("00",), ("oclock",), ("o", "clock"), ("hundred",), ("hundred", "hours"), ("zero", "zero")}
    if minute < 10:
        return {(f"{minute:02}",), ("oh", _ONES[minute]), ("zero", _ONES[minute])}
    return {(str(minute),), _cardinal(minute)}


def _joined(*parts: Iterable[Form]) -> Iterator[Form]:
    for chosen in product(*[tuple(part) for part in parts]):
        yield tuple(token for form in chosen for token in form)
