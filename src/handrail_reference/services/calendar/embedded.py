"""The embedded calendar: named calendars of each tenant in one SQLite file. See `port` for what it promises.

Whoever asks sees the calendars of their own tenant and no others; within a tenant all users share them. Names are those
of the settings, the same for every tenant; a calendar that nobody has written to is empty.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast

from icalendar import Event

from handrail.errors import ErrorType, ToolError
from handrail.sqlite_files import check_database, scrub
from handrail_reference.services.calendar import gaps
from handrail_reference.services.calendar.booking import (
    PRIMARY,
    BookingCalendar,
    Inserted,
    changed_since,
    joined,
)
from handrail_reference.services.calendar.components import read_component
from handrail_reference.services.calendar.database import CalendarDatabase
from handrail_reference.services.calendar.event_text import apply_change, call_off, lines_of, new_event, record_of
from handrail_reference.services.calendar.forgetting import forget_user
from handrail_reference.services.calendar.items import (
    Happening,
    SeriesShelf,
    calendar_id,
    made_calendar,
    plain_between,
    put,
)
from handrail_reference.services.calendar.port import (
    LONGEST_WINDOW,
    MAX_CONFLICTS,
    NOBODY,
    Availability,
    BookedEvent,
    Busy,
    Caller,
    Described,
    Draft,
    EventChange,
    InvitationSender,
)
from handrail_reference.services.invitations import InvitationPort
from handrail_reference.services.meetings import JitsiMeetings, Meeting, MeetingPort, NoMeetings

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -(2**35), 2**37


class EmbeddedCalendar(BookingCalendar):
    """`ctx.calendar` without any server. Opened at the first request; close it with the runtime."""

    def __init__(
        self,
        path: Path,
        *,
        names: Sequence[str] = (PRIMARY,),
        time_zone: str = "UTC",
        meetings: MeetingPort | None = None,
        mail: InvitationPort | None = None,
        clock: Callable[[], float] = time.time,
        busy_ms: int = 5_000,
        forget_events: Literal["delete", "keep"] = "delete",
    ) -> None:
        super().__init__(names=names, time_zone=time_zone, meetings=meetings or JitsiMeetings(), mail=mail, clock=clock)
        if isinstance(self._meetings, NoMeetings):
            self.settling_seconds = 0.0  # no service is asked for anything
        self._forget_events = forget_events
        self.database = CalendarDatabase(path, busy_ms=busy_ms)
        self._shelf = SeriesShelf(self._zone)
        self._writers_shelf = SeriesShelf(self._zone)

    async def close(self) -> None:
        await self.database.close()
        await super().close()

    async def availability(
        self,
        *,
        start: datetime,
        end: datetime,
        calendars: Sequence[str],
        details: bool = False,
        min_minutes: int = 0,
        caller: Caller = NOBODY,
    ) -> Availability:
        names = [self.checked_name(name) for name in dict.fromkeys(calendars)]

        def work(db: sqlite3.Connection) -> Availability:
            taken = (_busy(one, details) for one in self._taken(db, self._shelf, caller.tenant, names, start, end))
            return gaps.availability(taken, start, end, min_minutes)

        return await self.database.read(work)

    async def clashes(
        self,
        *,
        start: datetime,
        end: datetime,
        calendar: str,
        caller: Caller = NOBODY,
        limit: int = MAX_CONFLICTS,
        besides: str | None = None,
    ) -> tuple[Busy, ...]:
        self.checked_name(calendar)
        tenant = caller.tenant
        return await self.database.read(lambda db: self._clashing(db, self._shelf, tenant, start, end, besides, limit))

    async def find(self, uid: str, *, caller: Caller = NOBODY) -> BookedEvent | None:
        return await self._looked_up("uid", uid, caller)

    async def get(self, event_id: str, *, caller: Caller = NOBODY) -> BookedEvent | None:
        return await self._looked_up("event_id", event_id, caller)

    async def _looked_up(self, column: Literal["uid", "event_id"], value: str, caller: Caller) -> BookedEvent | None:
        row = await self.database.read(lambda db: _found(db, caller.tenant, column, value))
        if row is None:
            return None
        event = _event_of(row)
        if event.repeats:
            return event

        def look(db: sqlite3.Connection) -> tuple[Busy, ...]:
            return self._clashing(db, self._shelf, caller.tenant, event.start, event.end, event.uid, MAX_CONFLICTS)

        return replace(event, conflicts=await self.database.read(look))

    async def _insert(self, draft: Draft, meeting: Meeting, by: InvitationSender, caller: Caller) -> Inserted:
        now = self.now().replace(microsecond=0)
        organizer = self._mail.sender if self._mail is not None else ""

        def work(db: sqlite3.Connection) -> Inserted:
            found = _found(db, caller.tenant, "uid", draft.uid)
            is_new = found is None
            if found is None:
                number = made_calendar(db, caller.tenant, draft.calendar)
                lines = lines_of(new_event(draft, meeting, now, organizer=organizer))
                put(
                    db,
                    (number, caller.tenant, draft.calendar),
                    [read_component(lines, {}, self._zone)],
                    self._zone,
                    now=int(now.timestamp()),
                    meeting_link=meeting.link,
                    created_by=caller.user,
                )
                found = _found(db, caller.tenant, "uid", draft.uid)
            # In the same transaction: of several that are created at once, each but the first sees those before it.
            return Inserted(self._with_conflicts(db, _event_of(found), caller), is_new)

        await self._prepare(draft.start, draft.end, draft.uid, caller)
        return await self.database.write(work)

    async def _replace(
        self, event: BookedEvent, change: EventChange, key: str, by: InvitationSender, caller: Caller
    ) -> BookedEvent:
        now = self.now().replace(microsecond=0)
        await self._prepare(change.start or event.start, change.end or event.end, event.uid, caller)
        return await self._written(event, lambda stored: apply_change(stored, change, now, key, by), caller)

    async def _call_off(
        self, event: BookedEvent, key: str, message: str, by: InvitationSender, caller: Caller
    ) -> BookedEvent:
        now = self.now().replace(microsecond=0)
        return await self._written(event, lambda stored: call_off(stored, now, key), caller)

    async def _written(self, event: BookedEvent, edit: Callable[[Event], None], caller: Caller) -> BookedEvent:
        """The next version of an event, if nobody has written one since it was read."""

        def work(db: sqlite3.Connection) -> BookedEvent:
            row = _found(db, caller.tenant, "event_id", event.event_id)
            if row is None:
                raise ToolError(ErrorType.NOT_FOUND, f'The event "{event.event_id}" is not in the calendar.')
            there = _event_of(row)
            if there.etag != event.etag:
                raise changed_since(there)
            parts, zones = json.loads(row[2]), json.loads(row[7])
            stored = _parsed(parts[0])
            edit(stored)
            number = calendar_id(db, caller.tenant, event.calendar)
            assert number is not None
            put(
                db,
                (number, caller.tenant, event.calendar),
                [read_component(lines_of(stored), zones, self._zone)],
                self._zone,
                now=int(self._clock()),
            )
            return self._with_conflicts(db, _event_of(_found(db, caller.tenant, "event_id", event.event_id)), caller)

        return await self.database.write(work)

    async def _withdraw(self, event: BookedEvent, caller: Caller) -> None:
        def work(db: sqlite3.Connection) -> None:
            number = calendar_id(db, caller.tenant, event.calendar)
            db.execute("DELETE FROM item WHERE calendar_id = ? AND uid = ?", (number, event.uid))

        await self.database.write(work)

    async def _prepare(self, start: datetime, end: datetime, uid: str, caller: Caller) -> None:
        """Follow repeated events before the lock is taken, so that nobody waits for it."""
        shelf, tenant = self._writers_shelf, caller.tenant
        await self.database.prepare(lambda db: self._clashing(db, shelf, tenant, start, end, uid, MAX_CONFLICTS))

    def _with_conflicts(self, db: sqlite3.Connection, event: BookedEvent, caller: Caller) -> BookedEvent:
        if event.cancelled:
            return event
        shelf = self._writers_shelf
        found = self._clashing(db, shelf, caller.tenant, event.start, event.end, event.uid, MAX_CONFLICTS)
        return replace(event, conflicts=found)

    # For the host (docs/services.md)

    async def check(self) -> str:
        """What `handrail doctor` says. The file is only read; one that is not there is right."""
        return joined(check_database(self.database.path, self.database.look), await super().check())

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
        found = await self.find(row[0], caller=Caller(tenant=tenant)) if row is not None else None
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
        if end - start > LONGEST_WINDOW:
            raise ToolError(ErrorType.VALIDATION, f"A window may be {LONGEST_WINDOW.days} days long at most.")
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


def _event_of(row: Any) -> BookedEvent:
    _uid, identity, lines, start, end, link, calendar, _zones = row
    parts = json.loads(lines)
    found = record_of(
        _parsed(parts[0]),
        event_id=identity,
        calendar=calendar,
        start=_instant(start),
        end=_instant(end),
        link=f"/calendar/events/{identity}",
        etag=sha256(lines.encode()).hexdigest()[:16],
    )
    return replace(found, meeting_link=link, repeats=found.repeats or len(parts) > 1)


def _instant(seconds: int) -> datetime:
    """The bounds of an event that repeats without end lie outside of what a datetime can say."""
    return _EPOCH + timedelta(seconds=min(max(seconds, _FIRST), _LAST))


def _parsed(lines: Sequence[str]) -> Event:
    return cast(Event, Event.from_ical("\r\n".join(lines) + "\r\n"))


def _found(db: sqlite3.Connection, tenant: str, column: Literal["uid", "event_id"], value: str) -> Any:
    return db.execute(
        f"""SELECT item.uid, event_id, lines, start, end, meeting_link, calendar.name, zones FROM item
        JOIN calendar ON calendar.id = calendar_id WHERE {column} = ? AND tenant = ? ORDER BY item.id""",  # noqa: S608
        (value, tenant),
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
