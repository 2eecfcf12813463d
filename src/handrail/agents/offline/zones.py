"""Time zones as people say them: by their name, or by a city that gave one its name. And a clock of one place that is to be
told as that of another: "what time is 3pm London in Tokyo?"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from handrail.agents.offline.languages import language_in
from handrail.agents.offline.moments import Times, is_name_of_time, read_times
from handrail.agents.offline.pieces import Pieces

_WRITTEN_OUT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")
_ZONE = r"[A-Z]\w{1,30}+/[A-Z]\w{1,30}+(?:/\w{1,30}+)?|\bUTC\b|\bGMT\b"
_CLOCK = (
    r"(?:\b\d{1,2}(?:[:.][0-5]\d)?(?:\s*[ap]\.?\s?m\b\.?)?|\bnoon|\bmidday|\bmidnight|"
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve))(?:\s*o['’]?clock)?"
)
_CONVERTING = re.compile(
    rf"\bconvert|\btime\s+(?:is|will|would|was)\b|\bwhen\b|\bwhat(?:['’]s|\s+is|\s+would|\s+will)\s+(?:\w+\s+)?{_CLOCK}",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?:\b(?P<to>in|to|for|from|at)\s+|(?P<clock>"
    + _CLOCK
    + r")\s+(?:in\s+|at\s+|from\s+)?)(?P<name>[A-Z][\w.'’-]*(?:\s+[A-Z][\w.'’-]*)*)"
)
_ASKED_IN = re.compile(
    r"\btime\s+(?:is\s+it\s+)?(?:now\s+|right\s+now\s+)?in\s+(?!(?:the|my|your|our|an?|this|words)\b|\d)"
    r"(\w[\w ]{1,40}?)(?:\s+(?:now|right\s+now|please|today))?\W*$",
    re.IGNORECASE,
)
_OURS = re.compile(
    r"\b(?:here|my\s+time|our\s+time|for\s+(?:me|us)|local\s+time|my\s+(?:time\s+)?zone)\b", re.IGNORECASE
)
_ITS_TIME = re.compile(r"\s+time\b", re.IGNORECASE)
_MOST_CLOCKS = 4
"""For each of them the text is read once more."""
# Where people are, and no zone is called after it.
_ALSO = {
    "America/New_York": "boston, washington, philadelphia, miami, atlanta",
    "America/Chicago": "houston, dallas, austin",
    "America/Los_Angeles": "san francisco, seattle, san diego, las vegas, california",
    "America/Sao_Paulo": "são paulo, rio, rio de janeiro",
    "Europe/London": "england, scotland, edinburgh, manchester, uk, britain",
    "Europe/Berlin": "germany, munich, hamburg, frankfurt, cologne",
    "Europe/Paris": "france, lyon, nice",
    "Europe/Madrid": "spain, barcelona",
    "Europe/Rome": "italy, milan",
    "Europe/Zurich": "switzerland, geneva",
    "Europe/Zagreb": "croatia, split, rijeka",
    "Europe/Kyiv": "ukraine, kiev",
    "Asia/Kolkata": "india, mumbai, delhi, new delhi, bangalore, bengaluru",
    "Asia/Shanghai": "china, beijing, shenzhen",
    "Asia/Tokyo": "japan, osaka, kyoto",
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """A clock time of one place, to be told in another; a zone that is None is that of the conversation."""

    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    end: int
    zone: str


def zone_in(pieces: Pieces) -> str | None:
    """The zone that is named."""
    for candidate in re.findall(_ZONE, pieces.text):
        if candidate in _zones():
            return str(candidate)
    return None


def zone_of_city(pieces: Pieces) -> str | None:
    """The zone of a city that is named."""
    named = next((zone for _, name in pieces.names if (zone := _cities().get(name.lower())) is not None), None)
    return named or next((place.zone for place in _places(pieces.rest)), None)


def own_zone(pieces: Pieces, now: datetime) -> str | None:
    """The zone of the conversation, where none is named: "what time is it?" asks for the clock on the wall. A moment that is
    given with its offset says where it is read itself."""
    return None if _WRITTEN_OUT.search(pieces.text) else getattr(now.tzinfo, "key", None)


def conversion_in(text: str) -> Conversion | None:
    """From where to where a clock time is to be told: the place beside the clock is the one, the other is the other."""
    if not _CONVERTING.search(text) or _WRITTEN_OUT.search(text):
        return None
    places = _places(text)
    beside = next((place for place in places if _beside_a_clock(text, place)), None)
    others = [place for place in places if place is not beside]
    if beside is None or len(others) > 1:
        return None
    if others:
        return Conversion(beside.zone, others[0].zone)
    between = re.search(r"\b(?:in|at|from)\s+$", text[: beside.start], re.IGNORECASE)
    is_source = between is None or _OURS.search(text[beside.end :]) or re.match(r"\s+time\b", text[beside.end :])
    return Conversion(beside.zone, None) if is_source else None


def converted_times(text: str, now: datetime) -> Times | None:
    """The moment that a conversion is about, read on the clock of its place."""
    found = conversion_in(text)
    if found is None or found.source is None:
        return None
    there = now.astimezone(ZoneInfo(found.source))
    times = read_times(text, there)
    begin = times.begins(there)
    return Times(exact=(begin,), rest=times.rest) if begin is not None else None


def times_of_a_place(text: str, now: datetime) -> Times | None:
    """When "tomorrow at 3pm London time" is, on the own clock."""
    clocks = (
        (place, said.end())
        for place in _places(text)
        if (said := _ITS_TIME.match(text, place.end)) is not None and _beside_a_clock(text, place)
    )
    for place, end in islice(clocks, _MOST_CLOCKS):
        there = now.astimezone(ZoneInfo(place.zone))
        times = read_times(text[: place.start] + " " * (end - place.start) + text[end:], there)
        begins, ends = times.begins(there), times.ends(there)
        if begins is not None and ends is not None:
            return Times(exact=(begins.astimezone(now.tzinfo), ends.astimezone(now.tzinfo)), rest=times.rest)
    return None


def doubt_about_place(text: str) -> str | None:
    """Why a time cannot be told for a place: nobody here knows it, or which of several is meant; None if there is no doubt."""
    known = _places(text)
    elsewhere = _without(text, known)
    for match in _NAMED.finditer(text):
        name = re.sub(r"(?:['’]s|\s+[Tt]ime)$", "", match["name"]).rstrip(".'’-")
        is_known = elsewhere[match.start("name") : match.end("name")] != match["name"]
        if not is_known and not is_name_of_time(name.split()[0]) and language_in(name, {}) is None:
            return f"I do not know the time zone of {name}; a large city nearby may help."
    asked = _ASKED_IN.search(text)
    if asked is not None and not known:
        return f"I do not know the time zone of {asked[1]}; a large city nearby may help."
    clock = re.search(rf"{_CLOCK}", elsewhere, re.IGNORECASE)
    if len(known) > 1 and (conversion_in(text) is None) and clock is not None:
        return "I cannot tell which place that time is of; please say it as in: what time is 3pm London in Tokyo?"
    return None


def _without(text: str, places: list[_Place]) -> str:
    for place in places:
        text = text[: place.start] + " " * (place.end - place.start) + text[place.end :]
    return text


def _before(text: str, place: _Place) -> str:
    """The few words before a place."""
    return text[max(0, place.start - 100) : place.start]


def _beside_a_clock(text: str, place: _Place) -> bool:
    return (
        re.search(
            rf"{_CLOCK}\s+(?:o['’]clock\s+)?(?:(?:in|at|from)\s+)?(?:the\s+)?$", _before(text, place), re.IGNORECASE
        )
        is not None
    )


def _places(text: str) -> list[_Place]:
    """Places with a zone, in their order. Written small, a name counts behind a clock or a preposition only."""
    zones = [_Place(m.start(), m.end(), m[0]) for m in re.finditer(_ZONE, text) if m[0] in _zones()]
    cities: list[_Place] = []
    for match in _pattern().finditer(_without(text, zones)):
        place = _Place(match.start(), match.end(), _cities()[match[0].lower()])
        led = re.search(r"\b(?:in|to|from|for)\s+$", _before(text, place), re.IGNORECASE) or _beside_a_clock(
            text, place
        )
        if match[0][0].isupper() or led:
            cities.append(place)
    return sorted([*zones, *cities], key=lambda place: place.start)


@cache
def _zones() -> frozenset[str]:
    """Asked once: the answer is put together from files."""
    return frozenset(available_timezones())


@cache
def _pattern() -> re.Pattern[str]:
    names = sorted((name for name in _cities() if len(name) > 1), key=len, reverse=True)
    return re.compile(rf"(?<![\w/])(?:{'|'.join(map(re.escape, names))})(?![\w/])", re.IGNORECASE)


@cache
def _cities() -> dict[str, str]:
    named = (zone for zone in sorted(_zones(), reverse=True) if "/" in zone and not zone.startswith("Etc/"))
    cities = {zone.rsplit("/", 1)[1].replace("_", " ").lower(): zone for zone in named}
    return {name: zone for zone, names in _ALSO.items() for name in names.split(", ")} | cities
