"""The embedded calendar: named calendars of each tenant in one SQLite file. See `port` for what it promises.

Whoever asks sees the calendars of their own tenant and no others; within a tenant all users share them. Names are those
of the settings, the same for every tenant; a calendar that nobody has written to is empty.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Literal, cast

from handrail.errors import ConfigError, ErrorType, ToolError
from handrail.sqlite_files import check_database, scrub
from handrail_reference.services.calendar import gaps
from handrail_reference.services.calendar.components import read_component
from handrail_reference.services.calendar.database import CalendarDatabase
from handrail_reference.services.calendar.failures import unknown_calendar
from handrail_reference.services.calendar.forgetting import forget_user
from handrail_reference.services.calendar.items import (
    Happening,
    SeriesShelf,
    calendar_id,
    made_calendar,
    plain_between,
    put,
)
from handrail_reference.services.calendar.moments import in_range
from handrail_reference.services.calendar.port import Availability, Busy, Created, Described, Draft
from handrail_reference.services.calendar.writing import to_lines
from handrail_reference.services.calendar.zones import home_zone
from handrail_reference.services.meetings import JitsiMeetings, MeetingPort

PRIMARY = "primary"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_ADDRESS = re.compile(r"^ATTENDEE[^:]*:mailto:(.+)$", re.IGNORECASE)
_MAX_CONFLICTS = 20
_LONGEST_WINDOW = timedelta(days=400)


class EmbeddedCalendar:
    """`ctx.calendar` without any server. Opened at the first request; close it with the runtime."""

    def __init__(
        self,
        path: Path,
        *,
        names: Sequence[str] = (PRIMARY,),
        time_zone: str = "UTC",
        meetings: MeetingPort | None = None,
        clock: Callable[[], float] = time.time,
        busy_ms: int = 5_000,
        forget_events: Literal["delete", "keep"] = "delete",
    ) -> None:
        self._forget_events = forget_events
        for name in names:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f'"names" in [services.calendar] has {name!r}; a name is small letters, digits, ".", "-" and "_", at most 64.'
                )
        try:
            self._zone = home_zone(time_zone)
        except KeyError:
            raise ConfigError(
                f'"time_zone" in [services.calendar] must be an IANA name such as "Europe/Zagreb"; {time_zone!r} is not.'
            ) from None
        self.names = tuple(dict.fromkeys((PRIMARY, *names)))
        self.database = CalendarDatabase(path, busy_ms=busy_ms)
        self._meetings = meetings or JitsiMeetings()
        self._clock = clock
        self._shelf = SeriesShelf(self._zone)
        self._writers_shelf = SeriesShelf(self._zone)

    @property
    def zone(self) -> tzinfo:
        return self._zone

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    async def close(self) -> None:
        await self.database.close()

    async def availability(
        self,
        *,
        start: datetime,
        end: datetime,
        calendars: Sequence[str],
        details: bool = False,
        min_minutes: int = 0,
        user: str | None = None,
        tenant: str = "",
    ) -> Availability:
        names = [self.checked_name(name) for name in dict.fromkeys(calendars)]

        def work(db: sqlite3.Connection) -> Availability:
            taken = (_busy(one, details) for one in self._taken(db, self._shelf, tenant, names, start, end))
            return gaps.availability(taken, start, end, min_minutes)

        return await self.database.read(work)

    async def clashes(
        self,
        *,
        start: datetime,
        end: datetime,
        calendar: str,
        user: str | None = None,
        tenant: str = "",
        limit: int = 20,
    ) -> tuple[Busy, ...]:
        self.checked_name(calendar)
        return await self.database.read(lambda db: self._clashing(db, self._shelf, tenant, start, end, None, limit))

    async def create(self, draft: Draft, *, user: str | None = None, tenant: str = "") -> Created:
        name = self.checked_name(draft.calendar)
        if (
            not draft.uid
            or not draft.start < draft.end
            or not all(map(in_range, map(_naive_utc, (draft.start, draft.end))))
        ):
            raise ToolError(ErrorType.VALIDATION, "An event needs a UID, and must end after it starts.")
        link = await self._meetings.link(draft.uid) if draft.with_meeting else None
        now = self.now().replace(microsecond=0)

        def look(db: sqlite3.Connection, start: datetime, end: datetime) -> tuple[Busy, ...]:
            return self._clashing(db, self._writers_shelf, tenant, start, end, draft.uid, _MAX_CONFLICTS)

        def work(db: sqlite3.Connection) -> Created:
            found = _found(db, tenant, draft.uid)
            if found is None:
                number = made_calendar(db, tenant, name)
                part = read_component(to_lines(draft, link, now), {}, self._zone)
                calendar = (number, tenant, name)
                stamp = int(now.timestamp())
                put(db, calendar, [part], self._zone, now=stamp, meeting_link=link, created_by=user)
                found = _found(db, tenant, draft.uid)
            made = _created(found, ())
            # In the same transaction: of several that are created at once, each but the first sees those before it.
            return replace(made, conflicts=look(db, made.start, made.end))

        await self.database.prepare(lambda db: look(db, draft.start, draft.end))
        return await self.database.write(work)

    async def find(self, uid: str, *, user: str | None = None, tenant: str = "") -> Created | None:
        row = await self.database.read(lambda db: _found(db, tenant, uid))
        if row is None:
            return None
        made = _created(row, ())

        def look(db: sqlite3.Connection) -> tuple[Busy, ...]:
            return self._clashing(db, self._shelf, tenant, made.start, made.end, uid, _MAX_CONFLICTS)

        return replace(made, conflicts=await self.database.read(look))

    # For the host (docs/services.md)

    def check(self) -> str:
        """What `handrail doctor` says. The file is only read; one that is not there is right."""
        return check_database(self.database.path, self.database.look)

    async def forget_user(self, user: str, tenant: str = "") -> Mapping[str, int]:
        """Delete the events that a user has made, or with `forget_events = "keep"` only that it was them; their name from
        whom others invited; and what the file still has of them in unused pages. How many events were deleted."""
        if not self.database.is_there:
            return {"events": 0}
        delete = self._forget_events == "delete"
        deleted = await self.database.write(lambda db: forget_user(db, tenant, user, delete=delete))
        await asyncio.to_thread(scrub, self.database.path)
        return {"events": deleted}

    async def describe_event(self, event_id: str, *, tenant: str = "") -> Described | None:
        """The event that a link of a tool's answer names, for a page that shows it; None if there is none."""

        def look(db: sqlite3.Connection) -> Any:
            return db.execute(
                """SELECT item.uid, title, private, attendees, created_by FROM item
                   JOIN calendar ON calendar.id = calendar_id WHERE event_id = ? AND tenant = ?""",
                (event_id, tenant),
            ).fetchone()

        row = await self.database.read(look)
        found = await self.find(row[0], tenant=tenant) if row is not None else None
        if found is None:
            return None
        _, title, private, attendees, creator = row
        return Described(event=found, title=title, private=bool(private), attendee_count=attendees, creator=creator)

    async def happenings(self, tenant: str, names: Sequence[str], start: datetime, end: datetime) -> list[Happening]:
        """Everything within a window as its owner sees it, in order; also what takes no time or is free."""

        def work(db: sqlite3.Connection) -> list[Happening]:
            found = self._happenings(db, self._shelf, tenant, names, start, end)
            return sorted(found, key=lambda one: (one.start, one.end, one.calendar, one.uid))

        return await self.database.read(work)

    def checked_name(self, name: str) -> str:
        if name not in self.names:
            raise unknown_calendar(name, self.names)
        return name

    # On the threads of the database, each with a shelf of its own
    def _happenings(
        self,
        db: sqlite3.Connection,
        shelf: SeriesShelf,
        tenant: str,
        names: Sequence[str],
        start: datetime,
        end: datetime,
    ) -> Iterator[Happening]:
        for name in names:
            number = calendar_id(db, tenant, name)
            if number is not None:
                yield from plain_between(db, number, name, start, end, self._zone)
                yield from shelf.between(db, number, name, start, end)

    def _taken(
        self,
        db: sqlite3.Connection,
        shelf: SeriesShelf,
        tenant: str,
        names: Sequence[str],
        start: datetime,
        end: datetime,
    ) -> Iterator[Happening]:
        if end - start > _LONGEST_WINDOW:
            raise ToolError(ErrorType.VALIDATION, f"A window may be {_LONGEST_WINDOW.days} days long at most.")
        for one in self._happenings(db, shelf, tenant, names, start, end):
            if one.status != "free" and one.start < one.end:
                yield one

    def _clashing(
        self,
        db: sqlite3.Connection,
        shelf: SeriesShelf,
        tenant: str,
        start: datetime,
        end: datetime,
        besides: str | None,
        limit: int,
    ) -> tuple[Busy, ...]:
        taken = (one for one in self._taken(db, shelf, tenant, self.names, start, end) if one.uid != besides)
        first = sorted(taken, key=lambda one: (one.start, one.end, one.calendar, one.uid))[:limit]
        return tuple(_busy(one, details=False) for one in first)


def _created(row: Any, conflicts: tuple[Busy, ...]) -> Created:
    uid, identity, lines, start, end, link, calendar = row
    addresses = [match[1] for line in json.loads(lines)[0] if (match := _ADDRESS.match(line))]
    return Created(
        event_id=identity,
        uid=uid,
        calendar=calendar,
        start=datetime.fromtimestamp(start, UTC),
        end=datetime.fromtimestamp(end, UTC),
        attendees=tuple(addresses),
        link=f"/calendar/events/{identity}",
        meeting_link=link,
        conflicts=conflicts,
    )


def _found(db: sqlite3.Connection, tenant: str, uid: str) -> Any:
    return db.execute(
        """SELECT item.uid, event_id, lines, start, end, meeting_link, calendar.name FROM item
        JOIN calendar ON calendar.id = calendar_id WHERE uid = ? AND tenant = ? ORDER BY item.id""",
        (uid, tenant),
    ).fetchone()


def _busy(one: Happening, details: bool) -> Busy:
    shown = details and not one.private
    return Busy(
        start=one.start,
        end=one.end,
        status=cast(Any, one.status),
        calendar=one.calendar,
        title=one.title if shown else None,
        attendees=one.attendees if shown else None,
    )


def _naive_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)
