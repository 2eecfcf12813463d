"""Time zones of iCalendar files: IANA names, the names that Windows uses, prefixed ones, and zones that a file defines.

A zone that a file defines is given a name with a hash of its definition, so that two files that call different zones by
the same name never meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from hashlib import sha256
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from icalendar import Timezone
from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

from handrail_reference.services.calendar.failures import BadComponent
from handrail_reference.services.calendar.lines import ComponentLines
from handrail_reference.services.calendar.moments import LAST_YEAR, Moment, midnight
from handrail_reference.services.calendar.rules import read_rule

MAX_ZONES = 64
"""How many zones of its own a file may define and use."""
_MAX_OFFSETS = 500
_MAX_CHANGES = 3_000
_MAX_CHARACTERS = 64 * 1024
_FIRST_YEAR = 1900
"""Rules of zones are followed from here: many programs write that theirs began in 1601."""
_LATEST_OFFSET = timedelta(hours=24)
_VALUE = r'(?:"[^"]*"|[^";:,]*)'
_HEAD = re.compile(rf"[A-Za-z0-9-]+(?:;[A-Za-z0-9-]+={_VALUE}(?:,{_VALUE})*)*(?=:)")
_PARAMETER = re.compile(rf";([A-Za-z0-9-]+)=({_VALUE}(?:,{_VALUE})*)")
_DATED = ("DTSTART", "DTEND", "EXDATE", "RDATE", "RECURRENCE-ID")


@cache
def _iana() -> Mapping[str, str]:
    return {name.lower(): name for name in available_timezones() if name != "localtime"}


def known_name(tzid: str) -> str | None:
    """The IANA name that a TZID means, None if it means none."""
    names = _iana()
    cleaned = tzid.strip().strip("/")
    if cleaned.lower() in names:
        return names[cleaned.lower()]
    if tzid.strip().startswith("/"):
        # A prefix says whose name it is: /example.org/20260101/Europe/Zagreb.
        parts = cleaned.split("/")
        for candidate in ("/".join(parts[start:]).lower() for start in range(1, len(parts) - 1)):
            if candidate in names:
                return names[candidate]
    return WINDOWS_TO_OLSON.get(cleaned)


def home_zone(name: str) -> ZoneInfo:
    """A zone by its exact IANA name; `KeyError` if there is none."""
    if _iana().get(name.lower()) != name and name != "localtime":
        raise KeyError(name)
    return ZoneInfo(name)


class ZoneBook:
    """The zones of one calendar: those that it defines, and what its TZIDs stand for.

    `in_use` are the names of the zones that its file defines and uses; calendars of one file share it.
    """

    def __init__(self, blocks: list[ComponentLines], in_use: set[str]) -> None:
        self._blocks = {_tzid_of(block): block for block in blocks}
        self._in_use = in_use
        self._read: dict[str, tuple[str, str] | str] = {}

    def rewrite(self, lines: list[str]) -> tuple[list[str], dict[str, str]]:
        """The lines of an event with every TZID replaced by a name of ours, and the definitions of those that need one."""
        used: dict[str, str] = {}
        return [self._line(line, used) if _is_dated(line) else line for line in lines], used

    def _line(self, line: str, used: dict[str, str]) -> str:
        places = _zone_places(line)
        if not places:
            return line
        if len(places) > 1:
            raise BadComponent(f"Its {line.partition(';')[0].upper()} has more than one TZID.")
        [(tzid, start, end)] = places
        return f"{line[:start]};TZID={self._name(tzid, used)}{line[end:]}"

    def _name(self, tzid: str, used: dict[str, str]) -> str:
        known = known_name(tzid)
        if known is not None:
            return known
        # Good or bad, a definition is read once, however many events name it.
        found = self._read.get(tzid)
        if found is None:
            try:
                found = self._defined(tzid)
            except BadComponent as error:
                found = str(error)
            self._read[tzid] = found
        if isinstance(found, str):
            raise BadComponent(found)
        name, text = found
        used[name] = text
        return name

    def _defined(self, tzid: str) -> tuple[str, str]:
        block = self._blocks.get(tzid)
        if block is None:
            raise BadComponent(f'The zone "{tzid[:80]}" is not known, and the file does not define it.')
        if block.problem is not None:
            raise BadComponent(f'The zone "{tzid[:80]}" (line {block.line}) cannot be used: {block.problem}')
        if block.size > _MAX_CHARACTERS:
            raise BadComponent(f'The zone "{tzid[:80]}" (line {block.line}) is larger than 64 KiB.')
        name, text = _named_by_content(tzid, block)
        if name not in self._in_use and len(self._in_use) >= MAX_ZONES:
            raise BadComponent(f"The file defines more than {MAX_ZONES} zones of its own; split it.")
        self._in_use.add(name)
        custom_zone(text)
        return name, text


def zone_names(lines: Iterable[str]) -> set[str]:
    """The zones that the dates of an event are given in. What other lines call a zone is only kept."""
    return {tzid for line in lines if _is_dated(line) for tzid, _, _ in _zone_places(line)}


def is_known(name: str) -> bool:
    """Whether the zone database has a zone of exactly this name."""
    return _iana().get(name.lower()) == name


def zone_for(name: str, defined: Mapping[str, str]) -> tzinfo:
    """The zone behind a name that `ZoneBook` gave."""
    return custom_zone(defined[name]) if name in defined else ZoneInfo(name)


@lru_cache(maxsize=256)
def custom_zone(text: str) -> tzinfo:
    """The zone that a VTIMEZONE defines; `BadComponent` if it cannot be one, or would take for ever to follow."""
    try:
        component = Timezone.from_ical(text)
        if not isinstance(component, Timezone):
            raise BadComponent("A zone that the file defines is no VTIMEZONE.")
        _check(component)
        zone: tzinfo = component.to_tz(lookup_tzid=False)
        for year in (1970, 2000, 2026):
            offset = datetime(year, 1, 1, tzinfo=zone).utcoffset()
            if offset is None or abs(offset) >= _LATEST_OFFSET:
                raise ValueError("no offset")
    except BadComponent:
        raise
    except Exception as error:  # parsers of others raise what they like; the file is to blame
        raise BadComponent("A zone that the file defines (VTIMEZONE) cannot be understood.") from error
    return zone


def _check(component: Timezone) -> None:
    """Refuse what would take long to follow, and let rules that began long ago begin later."""
    steps = [part for part in component.walk() if part.name in ("STANDARD", "DAYLIGHT")]
    if not steps or len(steps) > _MAX_OFFSETS:
        raise BadComponent(f"A zone that the file defines has {len(steps)} offsets; 1 to {_MAX_OFFSETS} are read.")
    changes = 0
    for step in steps:
        changes += 1 + sum(len(dates.dts) for dates in _listed(step.get("RDATE")))
        rules = _listed(step.get("RRULE"))
        if len(rules) > 1:
            raise BadComponent("A zone that the file defines has an offset with more than one RRULE.")
        for rule in rules:
            changes += _yearly_changes(step, rule)
        if changes > _MAX_CHANGES:
            raise BadComponent(f"A zone that the file defines changes its offset more than {_MAX_CHANGES} times.")


def _yearly_changes(step: Any, rule: Any) -> int:
    """About how often the rule of an offset comes true."""
    if [str(value).upper() for value in rule.get("FREQ", [])] != ["YEARLY"]:
        raise BadComponent("A zone that the file defines changes its offset more often than by the year.")
    start = step["DTSTART"].dt
    if not isinstance(start, datetime):
        raise BadComponent("A zone that the file defines has an offset without a time of its own (DTSTART).")
    start = start.replace(tzinfo=None)
    if start.year < _FIRST_YEAR:
        if "COUNT" in rule or rule.get("INTERVAL", [1]) != [1]:
            raise BadComponent(f"A zone that the file defines counts its changes from before {_FIRST_YEAR}.")
        leap = start.month == 2 and start.day == 29
        start = start.replace(year=_FIRST_YEAR + 4 if leap else _FIRST_YEAR)
        del step["DTSTART"]
        step.add("DTSTART", start)
    read = read_rule(rule, Moment(start, UTC), UTC)
    last = LAST_YEAR if read.until is None else read.until.year + 1
    # A few of its turns stand for all. One that never comes would be looked for until the year 9999.
    turns = 8 * read.interval
    end = midnight(date(min(start.year + turns, LAST_YEAR), 1, 1))
    seen = sum(1 for _ in islice(replace(read, until=None).walls(start, start, end), 100))
    if not seen:
        raise BadComponent("A zone that the file defines has an offset whose RRULE never comes true.")
    return 1 + seen * max(last - start.year, 1) // turns


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _zone_places(line: str) -> list[tuple[str, int, int]]:
    """Every TZID of a line, and where its parameter begins and ends; what stands in quotes or in the value is none."""
    head = _HEAD.match(line)
    if head is None:
        return []
    found = _PARAMETER.finditer(line, head[0].index(";") if ";" in head[0] else head.end(), head.end())
    return [(one[2].strip('"'), one.start(), one.end()) for one in found if one[1].upper() == "TZID"]


def _is_dated(line: str) -> bool:
    return line.partition(":")[0].partition(";")[0].upper() in _DATED


def _tzid_of(block: ComponentLines) -> str:
    for line in block.lines:
        name, _, value = line.partition(":")
        if name.partition(";")[0].upper() == "TZID":
            return value.strip()
    return ""


def _named_by_content(tzid: str, block: ComponentLines) -> tuple[str, str]:
    rest = [line for line in block.lines if line.partition(":")[0].partition(";")[0].upper() != "TZID"]
    digest = sha256("\n".join(rest).encode()).hexdigest()[:12]
    plain = re.sub(r"[^A-Za-z0-9+_-]+", "-", tzid.removesuffix(f".{digest}")).strip("-")[:40] or "zone"
    name = f"{plain}.{digest}"
    return name, "\r\n".join([rest[0], f"TZID:{name}", *rest[1:]]) + "\r\n"
