"""What a tool may ask of a calendar. The embedded backend is one answer; CalDAV or Google Calendar may be others.

Every failure is a `ToolError` in the words of the envelope (`AUTH`, `RATE_LIMIT`, `TRANSIENT`, `VALIDATION`, …), so that
handlers pass it on as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A time that is taken. `title` and `attendees` are None unless details were asked for and the event is not private."""

    start: datetime
    end: datetime
    status: Literal["busy", "tentative"]
    calendar: str
    title: str | None = None
    attendees: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which nothing is taken."""

    start: datetime
    end: datetime

    @property
    def minutes(self) -> int:
        return int((self.end - self.start).total_seconds() // 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The events of a range as they are (not cut to it), and the gaps between them within the range."""

    busy: tuple[Busy, ...]
    free: tuple[Gap, ...]
    busy_minutes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An event to be created. Its UID is the caller's: the same one again is the same event."""

    uid: str
    title: str
    start: datetime
    end: datetime
    attendees: tuple[str, ...] = ()
    description: str = ""
    location: str = ""
    calendar: str = "primary"
    with_meeting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """An event that is in the calendar, and the other busy times that it overlaps."""

    event_id: str
    uid: str
    calendar: str
    start: datetime
    end: datetime
    attendees: tuple[str, ...]
    link: str
    meeting_link: str | None
    conflicts: tuple[Busy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An event with what only some may see of it. `creator` is None where it was imported."""

    event: Created
    title: str
    private: bool
    attendee_count: int
    creator: str | None


class CalendarPort(Protocol):
    """`ctx.calendar`. `tenant` decides whose calendars they are; `user` is who asks."""

    @property
    def zone(self) -> tzinfo:
        """The zone of whole days, and of times that people are shown."""
        ...

    def now(self) -> datetime: ...

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
    ) -> Availability: ...

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
        """What an event at this time would overlap, in any of the host's calendars; `calendar` must be one of them."""
        ...

    async def create(self, draft: Draft, *, user: str | None = None, tenant: str = "") -> Created:
        """Put the event into the calendar, once: a UID that is there already gives the event that is there."""
        ...

    async def find(self, uid: str, *, user: str | None = None, tenant: str = "") -> Created | None: ...
