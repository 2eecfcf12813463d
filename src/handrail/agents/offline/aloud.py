"""What is written, made to be heard: times in words, lists as sentences, no marks, brackets or addresses."""

from __future__ import annotations

import re
from datetime import datetime

from handrail.agents.offline.numbers import WORDS
from handrail.agents.offline.wording import listed

_NUMBER = {value: word for word, value in WORDS.items() if value < 60 and word != "dozen"}
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z\b|[+-]\d\d:?\d\d)?)?(?![\w-])")
_CLOCK = r"(?:[01]?\d|2[0-3]):[0-5]\d"
_HALF = r"(?:\s*(?:[ap]m\b|[ap]\.\s?m\.))?"
_RANGE = re.compile(rf",?\s*(?<![\d:+−-])\b({_CLOCK}{_HALF})\s*[–-]\s*({_CLOCK}{_HALF})(?![\d:])", re.IGNORECASE)
# What stands behind a sign is how far a clock is from UTC, and no time of the day.
_SINGLE = re.compile(rf"(?P<before>,\s*|\bat\s+)?(?<![\d:+−-])\b(?P<clock>{_CLOCK}{_HALF})(?![\d:])", re.IGNORECASE)
_ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+(?P<text>.+)$")
_SIGNS = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)|`([^`\n]*)`|\*\*([^*\n]+)\*\*")
_ADDRESS = re.compile(r"\s*\(?\bhttps?://[^\s]*[^\s.,;:!?)]\)?")
_ORDER = ("first", "second", "third", "fourth", "fifth")
_DAY = re.compile(r"^(?P<day>\w+day \d{1,2} [A-Z][a-z]+(?: \d{4})?) at ")


def aloud(text: str, now: datetime) -> str:
    """The same, for a voice: sentences in one line."""
    plain = _ADDRESS.sub("", _SIGNS.sub(lambda match: next(part for part in match.groups() if part is not None), text))
    plain = _MOMENT.sub(lambda match: _moment(match[0], now), plain)
    plain = _RANGE.sub(lambda match: f" from {_time(match[1])} to {_time(match[2])}", plain)
    plain = _SINGLE.sub(lambda match: f"{' at ' if match['before'] else ''}{_time(match['clock'])}", plain)
    return " ".join(_sentences(plain.splitlines()).split())


def _moment(written: str, now: datetime) -> str:
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return written
    moment = moment.astimezone(now.tzinfo) if moment.tzinfo is not None else moment
    year = f" {moment.year}" if moment.year != now.year else ""
    day = f"{moment:%A} {moment.day} {moment:%B}{year}"
    return f"{day} at {_time(f'{moment:%H:%M}')}" if len(written) > 10 else day


def _time(clock: str) -> str:
    """ "09:30" is "nine thirty in the morning", "4:27 PM" is "four twenty-seven in the afternoon"."""
    hour, minute = int(clock.split(":")[0]), int(clock.split(":")[1][:2])
    half = clock.lower().strip("0123456789: ")[:1]
    if half and hour <= 12:
        hour = hour % 12 + (12 if half == "p" else 0)
    if minute == 0 and hour in (0, 12):
        return "noon" if hour else "midnight"
    part = "in the morning" if hour < 12 else "in the afternoon" if hour < 18 else "in the evening"
    spoken = _NUMBER[(hour - 1) % 12 + 1]
    if minute:
        spoken += f" {'oh ' if minute < 10 else ''}{_NUMBER[minute]}"
    return f"{spoken} {part}"


def _sentences(lines: list[str]) -> str:
    """Lines as sentences, the items of a list as one."""
    done: list[str] = []
    items: list[str] = []
    numbered = False
    for line in [*lines, ""]:
        item = _ITEM.match(line)
        if item is not None:
            numbered = numbered or line.lstrip()[0].isdecimal()
            items.append(item["text"].strip().rstrip(".;,"))
            continue
        if items:
            done.append(f"{_joined(items, numbered)}.")
            items, numbered = [], False
        if line.strip():
            done.append(line.strip() if line.strip()[-1] in ".!?:,…" else f"{line.strip()}.")
    return " ".join(done)


def _joined(items: list[str], numbered: bool) -> str:
    if numbered and len(items) <= len(_ORDER):
        return "; ".join(f"the {name}, {item}" for name, item in zip(_ORDER, items, strict=False))
    days = [match["day"] if (match := _DAY.match(item)) else "" for item in items]
    told = [items[0]]
    for place, item in enumerate(items[1:], 1):
        same = days[place] and days[place] == days[place - 1]
        told.append(item.removeprefix(f"{days[place]} at ") if same else item)
    return listed(told) if all("," not in item for item in told) else "; ".join(told)
