"""Rows of the calendar file and the events that they stand for, both ways. Work of the database's threads."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256
from typing import TypeVar

from handrail.errors import HandrailError
from handrail_reference.services.calendar.components import Component, read_component
from handrail_reference.services.calendar.moments import instant_of
from handrail_reference.services.calendar.series import Series
from handrail_reference.services.calendar.tables import LARGEST_CLASS, SMALLEST_CLASS, length_class

_PAD = 2 * 24 * 3600
"""Rows of what floats are kept as if in UTC, and rows of series by their bounds; no zone is further away than this."""
_BLOCK = 16 * 24 * 3600
"""How many seconds of a repeated event are expanded at a time."""
_WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_LOG = logging.getLogger(__name__)
K = TypeVar("K")
V = TypeVar("V")
_EARLIEST, _LATEST = -(2**40), 2**40


@dataclass(frozen=True, slots=True)
class Happening:
    """An event at one time, as the calendar's owner sees it."""

    start: datetime
    end: datetime
    status: str
    private: bool
    title: str
    attendees: int
    uid: str
    calendar: str


def calendar_id(db: sqlite3.Connection, tenant: str, name: str) -> int | None:
    row = db.execute("SELECT id FROM calendar WHERE tenant = ? AND name = ?", (tenant, name)).fetchone()
    return None if row is None else int(row[0])


def made_calendar(db: sqlite3.Connection, tenant: str, name: str) -> int:
    db.execute("INSERT INTO calendar (tenant, name) VALUES (?, ?) ON CONFLICT DO NOTHING", (tenant, name))
    found = calendar_id(db, tenant, name)
    assert found is not None
    return found


def event_id(tenant: str, calendar: str, uid: str) -> str:
    """The same event has the same id in every process, and after the file was made anew from an export."""
    return "evt_" + sha256(json.dumps([tenant, calendar, uid]).encode()).hexdigest()[:24]


def components_of(lines: str, zones: str, home: tzinfo) -> list[Component]:
    defined = json.loads(zones)
    return [read_component(part, defined, home) for part in json.loads(lines)]


def readable_components(uid: str, lines: str, zones: str, home: tzinfo) -> list[Component]:
    """The components of a row, none if they cannot be read: one bad event must not take its calendar with it."""
    try:
        return components_of(lines, zones, home)
    except (HandrailError, *_WRONG) as error:  # an earlier version wrote it, or somebody else changed it
        _left_out(uid, error)
        return []


def put(
    db: sqlite3.Connection,
    calendar: tuple[int, str, str],
    components: Sequence[Component],
    home: tzinfo,
    *,
    now: int,
    meeting_link: str | None = None,
    created_by: str | None = None,
) -> None:
    """Write the components of one UID, in place of what was there. `calendar` is its id, tenant and name."""
    number, tenant, name = calendar
    first = next((part for part in components if part.recurrence_id is None), components[0])
    series = len(components) > 1 or first.repeats or first.recurrence_id is not None
    start, end = _bounds(components, home) if series else _span(first)
    zones = {zone: text for part in components for zone, text in part.zones.items()}
    free = all(part.status == "free" for part in components)
    db.execute(
        """INSERT INTO item (calendar_id, uid, event_id, lines, zones, series, floating, start, end, length_class, status,
            private, title, attendees, meeting_link, created_by, changed_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (calendar_id, uid) DO UPDATE SET lines = excluded.lines, zones = excluded.zones,
            series = excluded.series, floating = excluded.floating, start = excluded.start, end = excluded.end,
            length_class = excluded.length_class, status = excluded.status, private = excluded.private,
            title = excluded.title, attendees = excluded.attendees, changed_at = excluded.changed_at""",
        (
            number,
            first.uid,
            event_id(tenant, name, first.uid),
            json.dumps([part.lines for part in components]),
            json.dumps(zones),
            series,
            not series and first.start.zone is None,
            start,
            end,
            LARGEST_CLASS if series else length_class(end - start),
            "free" if free else first.status if not series else "busy",
            first.private,
            first.title,
            first.attendees,
            meeting_link,
            created_by,
            now,
        ),
    )


def touch_series(db: sqlite3.Connection, number: int) -> None:
    """Tell every process that what it knows of this calendar's repeated events is out of date."""
    db.execute("UPDATE calendar SET series_revision = series_revision + 1 WHERE id = ?", (number,))


def plain_between(
    db: sqlite3.Connection, number: int, calendar: str, start: datetime, end: datetime, home: tzinfo
) -> Iterator[Happening]:
    """Events that happen once, within the window."""
    first, last = int(start.timestamp()) - _PAD, int(end.timestamp()) + _PAD + 1
    for size in range(SMALLEST_CLASS, LARGEST_CLASS + 1):
        rows = db.execute(
            """SELECT start, end, floating, status, private, title, attendees, uid FROM item
            WHERE calendar_id = ? AND series = 0 AND length_class = ? AND start > ? AND start < ? AND end >= ?""",
            (number, size, first - 2**size, last, first),
        )
        for begun, ended, floating, status, private, title, attendees, uid in rows:
            at, until = _moment(begun), _moment(ended)
            if floating:
                at, until = (instant_of(moment.replace(tzinfo=None), home) for moment in (at, until))
                until = max(at, until)
            if at < end and (until > start or at == until >= start):
                yield Happening(at, until, status, bool(private), title, attendees, uid, calendar)


class SeriesShelf:
    """The repeated events of calendars: parsed once, followed block by block of days, and kept until one of them changes.

    For one thread.
    """

    def __init__(self, home: tzinfo, size: int = 64) -> None:
        self._home = home
        self._size = size
        self._parsed: dict[tuple[int, int], list[tuple[int, int, str, Series]]] = {}
        self._blocks: dict[tuple[int, int, int], list[Happening]] = {}

    def between(
        self, db: sqlite3.Connection, number: int, calendar: str, start: datetime, end: datetime
    ) -> Iterator[Happening]:
        revision = int(db.execute("SELECT series_revision FROM calendar WHERE id = ?", (number,)).fetchone()[0])
        key = (number, revision)
        series = _kept(self._parsed, key, lambda: self._parse(db, number), self._size)
        if not series:
            return
        first, last = (_seconds(moment) // _BLOCK for moment in (start, end))
        for block in range(first, last + 1):
            found = _kept(self._blocks, (*key, block), lambda: self._follow(series, calendar, block), self._size)  # noqa: B023
            since = _moment(block * _BLOCK)
            for one in found:
                # What reaches over from the block before was seen there.
                if one.start < end and one.end > start and (block == first or one.start >= since):
                    yield one

    def _parse(self, db: sqlite3.Connection, number: int) -> list[tuple[int, int, str, Series]]:
        rows = db.execute(
            "SELECT start, end, uid, lines, zones FROM item WHERE calendar_id = ? AND series = 1", (number,)
        )
        found = []
        for first, last, uid, lines, zones in rows:
            parts = readable_components(uid, lines, zones, self._home)
            if parts:
                found.append((first, last, uid, Series(parts, self._home)))
        return found

    def _follow(self, known: list[tuple[int, int, str, Series]], calendar: str, block: int) -> list[Happening]:
        first, last = block * _BLOCK, (block + 1) * _BLOCK
        found = []
        for earliest, latest, uid, series in known:
            if earliest > last + _PAD or latest < first - _PAD:
                continue
            try:
                occurrences = series.between(_moment(first), _moment(last))
            except _WRONG as error:
                _left_out(uid, error)
                continue
            for one in occurrences:
                of = one.of
                found.append(
                    Happening(one.start, one.end, of.status, of.private, of.title, of.attendees, uid, calendar)
                )
        return found


def _left_out(uid: str, error: Exception) -> None:
    _LOG.warning("The event with the UID %r was left out, because it cannot be read: %s Import it again.", uid, error)


def _kept(shelf: dict[K, V], key: K, make: Callable[[], V], size: int) -> V:
    """What is kept under this key, made if it is not; those that were not used for longest go first."""
    value = shelf.pop(key, None)
    if value is None:
        value = make()
    shelf[key] = value
    while len(shelf) > size:
        del shelf[next(iter(shelf))]
    return value


def _span(part: Component) -> tuple[int, int]:
    """Start and end of an event that happens once; of one that floats, as if its wall times were in UTC."""
    zone = part.start.zone or UTC
    return _seconds(instant_of(part.start.wall, zone)), _seconds(part.span.end_of(part.start.wall, zone))


def _bounds(components: Sequence[Component], home: tzinfo) -> tuple[int, int]:
    first, last = Series(components, home).bounds()
    return _EARLIEST if first is None else _seconds(first), _LATEST if last is None else _seconds(last)


def _seconds(moment: datetime) -> int:
    return int((moment - _EPOCH) // timedelta(seconds=1))


def _moment(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
