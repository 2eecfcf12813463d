"""One VEVENT, checked: everything that availability needs to know of it, and its lines as they were."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from hashlib import sha256
from typing import Any, Literal

from icalendar import Event

from handrail_reference.services.calendar.failures import BadComponent
from handrail_reference.services.calendar.moments import (
    FIRST_YEAR,
    LAST_YEAR,
    Moment,
    Span,
    in_range,
    instant_of,
    midnight,
)
from handrail_reference.services.calendar.rules import RecurrenceRule, read_rule
from handrail_reference.services.calendar.zones import zone_for, zone_names

Status = Literal["busy", "tentative", "free"]

MAX_DATES = 5_000
MAX_RULES = 4
MAX_UID = 500
_LONGEST_REPEATED = timedelta(days=366)
_LONGEST = timedelta(days=366 * 50)
_READ = ("DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID", "UID", "SEQUENCE")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_NO_LINE = "It cannot be parsed; a line in it has no name or no value."
_ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A VEVENT. `zones` are the definitions of the zones that no database knows; `home` was used for what floats."""

    uid: str
    recurrence_id: Moment | None
    and_future: bool
    start: Moment
    span: Span
    rules: tuple[RecurrenceRule, ...]
    extra: tuple[tuple[Moment, Span | None], ...]
    excluded: tuple[Moment, ...]
    status: Status
    private: bool
    title: str
    attendees: int
    sequence: int
    stamp: str
    lines: tuple[str, ...]
    zones: Mapping[str, str]

    @property
    def repeats(self) -> bool:
        return bool(self.rules or self.extra)

    @property
    def key(self) -> str:
        """What tells it from the other components of its UID: empty for the event itself, else its RECURRENCE-ID."""
        if self.recurrence_id is None:
            return ""
        moment = self.recurrence_id
        if moment.zone is None:
            return moment.wall.isoformat()
        return instant_of(moment.wall, moment.zone).isoformat()

    @property
    def age(self) -> tuple[int, str]:
        """Greater is newer."""
        return (self.sequence, self.stamp)


def read_component(lines: list[str], zones: Mapping[str, str], home: tzinfo) -> Component:
    """A component from its lines, whose TZIDs are names that `zones` or the zone database know."""
    try:
        event = Event.from_ical("\r\n".join(lines) + "\r\n")
    except Exception as error:  # the parser raises many things about a bad text
        raise BadComponent(_NO_LINE) from error
    if not isinstance(event, Event):
        raise BadComponent("It is no event.")
    if any(name is None for name, _ in event.errors):
        raise BadComponent(_NO_LINE)
    broken = sorted({str(name) for name, _ in event.errors if str(name).upper() in _READ})
    if broken:
        raise BadComponent(f"Its {broken[0]} cannot be read.")
    try:
        return _checked(event, lines, zones, home)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise BadComponent("A value in it cannot be used.") from error


def _checked(event: Event, lines: list[str], zones: Mapping[str, str], home: tzinfo) -> Component:
    read = _PropertyReader(event, zones)
    if "EXRULE" in event:
        raise BadComponent("It has an EXRULE, which iCalendar has given up; list the dates in EXDATE.")
    start = read.one("DTSTART")
    if start is None:
        raise BadComponent("It has no DTSTART.")
    span = _span(event, read, start)
    rules = [read_rule(rule, start, home) for rule in _listed(event.get("RRULE"))]
    extra = tuple(_bounded("RDATE", read.periods("RDATE")))
    if len(rules) > MAX_RULES:
        raise BadComponent(f"It has {len(rules)} RRULEs; {MAX_RULES} are read.")
    if (rules or extra) and span.wall + span.exact > _LONGEST_REPEATED:
        raise BadComponent("It lasts longer than a year and repeats.")
    recurrence_id = read.one("RECURRENCE-ID")
    return Component(
        uid=_uid(event, lines),
        recurrence_id=recurrence_id,
        and_future=recurrence_id is not None and _range(event) == "THISANDFUTURE",
        start=start,
        span=span,
        rules=tuple(rules) if recurrence_id is None else (),
        extra=extra if recurrence_id is None else (),
        excluded=tuple(moment for moment, _ in _bounded("EXDATE", read.periods("EXDATE"))),
        status=_status(event),
        private=_word(event, "CLASS") in ("PRIVATE", "CONFIDENTIAL"),
        title=_text(event, "SUMMARY", 200),
        attendees=len(_listed(event.get("ATTENDEE"))),
        sequence=_sequence(event),
        stamp=_stamp(event),
        lines=tuple(lines),
        zones={name: zones[name] for name in sorted(zone_names(lines)) if name in zones},
    )


class _PropertyReader:
    """Dates of an event as moments: the wall time as written, and the zone by our own book."""

    def __init__(self, event: Event, zones: Mapping[str, str]) -> None:
        self._event = event
        self._zones = zones

    def one(self, name: str) -> Moment | None:
        value = self._event.get(name)
        if value is None:
            return None
        if isinstance(value, list):
            raise BadComponent(f"It has more than one {name}.")
        return self._moment(name, value.dt, value.params)

    def periods(self, name: str) -> Iterator[tuple[Moment, Span | None]]:
        for value in _listed(self._event.get(name)):
            for item in value.dts:
                if not isinstance(item.dt, tuple):
                    yield self._moment(name, item.dt, value.params), None
                    continue
                first, second = item.dt
                moment = self._moment(name, first, value.params)
                length = second if isinstance(second, timedelta) else second.replace(tzinfo=None) - _wall_time(first)
                yield moment, _span_of(length)

    def _moment(self, name: str, value: Any, parameters: Mapping[str, Any]) -> Moment:
        if isinstance(value, datetime):
            tzid = parameters.get("TZID")
            zone = zone_for(str(tzid), self._zones) if tzid else (UTC if value.tzinfo is not None else None)
            moment = Moment(_wall_time(value), zone)
        elif isinstance(value, date):
            moment = Moment(midnight(value), None, all_day=True)
        else:
            raise BadComponent(f"Its {name} is no date.")
        if not in_range(moment.wall):
            raise BadComponent(f"Its {name} lies outside of the years {FIRST_YEAR} to {LAST_YEAR - 1}.")
        return moment


def _wall_time(value: datetime) -> datetime:
    return value.replace(tzinfo=None, fold=0)


def _span(event: Event, read: _PropertyReader, start: Moment) -> Span:
    end = read.one("DTEND")
    if end is not None and "DURATION" in event:
        raise BadComponent("It has both DTEND and DURATION; only one of them may say how long it lasts.")
    if end is not None:
        if end.all_day != start.all_day:
            raise BadComponent("One of its DTSTART and DTEND is a day and the other a time.")
        if end.zone == start.zone:
            span = _span_of(end.wall - start.wall, by_the_clock=True)
        else:
            home = UTC  # only where one of the two floats, which says nothing certain anyway
            span = _span_of(end.instant(start.zone or home) - start.instant(end.zone or home))
    elif "DURATION" in event:
        length = getattr(event["DURATION"], "dt", None)
        if not isinstance(length, timedelta):
            raise BadComponent("Its DURATION cannot be read.")
        span = _span_of(length)
    else:
        return Span(wall=_ONE_DAY) if start.all_day else Span()
    if start.all_day and not span.wall + span.exact:
        return Span(wall=_ONE_DAY)  # many programs write a day that ends on the day on which it starts
    return span


def _span_of(length: timedelta, by_the_clock: bool = False) -> Span:
    if length < timedelta(0):
        raise BadComponent("It ends before it starts.")
    if length > _LONGEST:
        raise BadComponent("It lasts longer than fifty years.")
    if by_the_clock:
        return Span(wall=length)
    days = timedelta(days=length.days)
    return Span(wall=days, exact=length - days)


def _uid(event: Event, lines: list[str]) -> str:
    uid = str(event.get("UID", "")).strip()
    if len(uid) > MAX_UID or not uid.isprintable():
        raise BadComponent(f"Its UID is longer than {MAX_UID} characters or cannot be printed.")
    # Without one the content itself is the identity, so that importing again changes nothing.
    return uid or f"sha256-{sha256(chr(10).join(lines).encode()).hexdigest()[:32]}"


def _status(event: Event) -> Status:
    status = _word(event, "STATUS")
    if status == "CANCELLED" or _word(event, "TRANSP") == "TRANSPARENT":
        return "free"
    return "tentative" if status == "TENTATIVE" else "busy"


def _sequence(event: Event) -> int:
    value = event.get("SEQUENCE", 0)
    return int(value) if isinstance(value, int) and 0 <= value < 2**31 else 0


def _stamp(event: Event) -> str:
    """The later of LAST-MODIFIED and DTSTAMP, as text that sorts by time."""
    found = [""]
    for name in ("DTSTAMP", "LAST-MODIFIED"):
        value = getattr(event.get(name), "dt", None)
        if isinstance(value, datetime):
            found.append(value.replace(tzinfo=None).isoformat())
    return max(found)


def _range(event: Event) -> str:
    return str(event["RECURRENCE-ID"].params.get("RANGE", "")).upper()


def _word(event: Event, name: str) -> str:
    return str(event.get(name, "")).strip().upper()


def _text(event: Event, name: str, limit: int) -> str:
    """Text for people and models: one line, nothing invisible in it."""
    value = event.get(name)
    return _UNSEEN.sub(" ", str(value if not isinstance(value, list) else value[0])).strip()[:limit] if value else ""


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _bounded(name: str, found: Iterable[tuple[Moment, Span | None]]) -> Iterator[tuple[Moment, Span | None]]:
    for number, item in enumerate(found):
        if number >= MAX_DATES:
            raise BadComponent(f"It has more than {MAX_DATES} dates in {name}.")
        yield item
