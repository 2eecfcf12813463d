"""Time zones of iCalendar files: IANA names, the names that Windows uses, prefixed ones, and zones that a file defines.

A zone that a file defines is given a name with a hash of its definition, so that two files that call different zones by
the same name never meet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from functools import cache, lru_cache
from hashlib import sha256
from zoneinfo import ZoneInfo, available_timezones

from icalendar import Timezone
from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

from handrail.services.calendar.failures import BadComponent
from handrail.services.calendar.lines import Block

_MAX_TRANSITIONS = 500
_LATEST_OFFSET = timedelta(hours=24)
_PARAMETER = re.compile(r';TZID=("[^"]*"|[^";:,]*)', re.IGNORECASE)
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
    if name not in available_timezones():
        raise KeyError(name)
    return ZoneInfo(name)


class ZoneBook:
    """The zones of one calendar file: those that it defines, and what its TZIDs stand for."""

    def __init__(self, blocks: list[Block]) -> None:
        self._blocks = {_tzid_of(block): block for block in blocks}

    def rewrite(self, lines: list[str]) -> tuple[list[str], dict[str, str]]:
        """The lines of an event with every TZID replaced by a name of ours, and the definitions of those that need one."""
        used: dict[str, str] = {}
        return [self._line(line, used) if _is_dated(line) else line for line in lines], used

    def _line(self, line: str, used: dict[str, str]) -> str:
        match = _PARAMETER.search(line)
        if match is None:
            return line
        name = self._name(match[1].strip('"'), used)
        return f"{line[: match.start()]};TZID={name}{line[match.end() :]}"

    def _name(self, tzid: str, used: dict[str, str]) -> str:
        known = known_name(tzid)
        if known is not None:
            return known
        block = self._blocks.get(tzid)
        if block is None:
            raise BadComponent(f'The zone "{tzid[:80]}" is not known, and the file does not define it.')
        if block.problem is not None:
            raise BadComponent(f'The zone "{tzid[:80]}" (line {block.line}) cannot be used: {block.problem}')
        name, text = _named_by_content(tzid, block)
        used[name] = text
        custom_zone(text)
        return name


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
    steps = [part for part in component.walk() if part.name in ("STANDARD", "DAYLIGHT")]
    if not steps or len(steps) > _MAX_TRANSITIONS:
        raise BadComponent(f"A zone that the file defines has {len(steps)} offsets; 1 to {_MAX_TRANSITIONS} are read.")
    for step in steps:
        rules = step.get("RRULE", [])
        for rule in rules if isinstance(rules, list) else [rules]:
            if [str(value).upper() for value in rule.get("FREQ", [])] != ["YEARLY"]:
                raise BadComponent("A zone that the file defines changes its offset more often than by the year.")


def _is_dated(line: str) -> bool:
    return line.partition(":")[0].partition(";")[0].upper() in _DATED


def _tzid_of(block: Block) -> str:
    for line in block.lines:
        name, _, value = line.partition(":")
        if name.partition(";")[0].upper() == "TZID":
            return value.strip()
    return ""


def _named_by_content(tzid: str, block: Block) -> tuple[str, str]:
    rest = [line for line in block.lines if line.partition(":")[0].partition(";")[0].upper() != "TZID"]
    digest = sha256("\n".join(rest).encode()).hexdigest()[:12]
    plain = re.sub(r"[^A-Za-z0-9+_-]+", "-", tzid.removesuffix(f".{digest}")).strip("-")[:40] or "zone"
    name = f"{plain}.{digest}"
    return name, "\r\n".join([rest[0], f"TZID:{name}", *rest[1:]]) + "\r\n"
