"""Numbers as people write them: in digits, in words, and as lengths of time."""

from __future__ import annotations

import re
from math import isfinite

_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_UNITS = tuple(f"{_SMALL} seventeen eighteen nineteen".split())
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
WORDS: dict[str, int] = {word: value for value, word in enumerate(_UNITS)} | _TENS | {"dozen": 12, "hundred": 100}
WORDS |= {f"{ten}-{unit}": base + WORDS[unit] for ten, base in _TENS.items() for unit in _UNITS[1:10]}
ORDINALS = {
    word: place
    for place, words in enumerate(("first 1st", "second 2nd", "third 3rd", "fourth 4th", "fifth 5th"), 1)
    for word in words.split()
}
NUMBER_WORD = "|".join(sorted(WORDS, key=len, reverse=True))

_MINUTES = {"minute": 1, "min": 1, "hour": 60, "hr": 60, "h": 60, "day": 1440, "week": 10080}
UNIT = r"(?:minutes?|mins?|hours?|hrs?|h|days?|weeks?)"
AMOUNT = rf"(?:\d+(?:[.,]\d+)?|half\s+an?|an?\s+half|an?|one\s+and\s+a\s+half|a\s+couple\s+of|{NUMBER_WORD})"
LENGTH = re.compile(rf"\b(?P<amount>{AMOUNT})(?:\s+|-)?(?P<unit>{UNIT})\b(?!\s+ago)", re.IGNORECASE)
_DIGITS = re.compile(r"(?<![\w.,:/#-])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w:/-]|[.,]\d)")
_WORDED = re.compile(rf"\b(?:{NUMBER_WORD})\b", re.IGNORECASE)


def amount_of(text: str) -> float:
    """What "1.5", "three", "half an" or "a" stands for."""
    words = text.lower().replace("\u00a0", " ").strip()
    if words.startswith("half") or words in ("a half", "an half"):
        return 0.5
    if words.startswith("one and"):
        return 1.5
    if words in ("a", "an"):
        return 1.0
    if "couple" in words:
        return 2.0
    return float(WORDS[words]) if words in WORDS else float(words.replace(",", "."))


def minutes_of(amount: str, unit: str) -> int:
    """A length of time in minutes."""
    return round(amount_of(amount) * _MINUTES[unit.lower().rstrip("s")])


def numbers_in(text: str) -> list[tuple[int, int, float]]:
    """Every number that stands for itself, with its place; numbers in words too. Parts of names and codes are none, nor is what
    is too large to be told from any other."""
    found = [(match.start(), match.end(), float(match[0].replace(",", ""))) for match in _DIGITS.finditer(text)]
    found += [(match.start(), match.end(), float(WORDS[match[0].lower()])) for match in _WORDED.finditer(text)]
    return sorted(number for number in found if isfinite(number[2]))
