"""What a tool may ask of a calendar: embedded, on a CalDAV server, or at Google.

Every failure is a `ToolError` in the words of the envelope (`AUTH`, `RATE_LIMIT`, `TRANSIENT`, `VALIDATION`, …), so that
handlers pass it on as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Any, Literal, Protocol

from handrail.errors import HandrailError
from handrail_reference.services.calendar.marks import Uninvited

MeetingProvider = Literal["zoom", "meet", "jitsi", "none"]
InvitationSender = Literal["service", "mail", "none"]
"""The calendar service itself, mail from this host, or nobody."""
MAX_CONFLICTS = 20
LONGEST_WINDOW = timedelta(days=400)


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
class EventChange:
    """What is to be different about an event; None leaves a field as it is."""

    title: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    attendees: tuple[str, ...] | None = None
    description: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BookedEvent:
    """An event of a calendar, and what came of booking it.

    `etag` names this version of it. `keys` are marks of the calls that made or changed it, `uninvited` whom they took out and
    tell by mail. `draft_uid` is the UID that it was created with, where the service has given it another. `meeting_ref` is what
    the meeting's provider knows the meeting by. `conflicts` are other busy times that it overlaps.
    """

    event_id: str
    uid: str
    calendar: str
    title: str
    start: datetime
    end: datetime
    attendees: tuple[str, ...]
    link: str
    meeting_link: str | None
    description: str = ""
    location: str = ""
    etag: str = ""
    sequence: int = 0
    cancelled: bool = False
    repeats: bool = False
    keys: tuple[str, ...] = ()
    uninvited: Uninvited = ()
    draft_uid: str = ""
    meeting_ref: str = ""
    meeting_provider: MeetingProvider = "none"
    conflicts: tuple[Busy, ...] = ()
    invitations: InvitationSender = "none"
    invited: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangements:
    """What a booking will bring beside the event: whose meeting link, and who sends the invitations."""

    meeting_provider: MeetingProvider
    invitations: InvitationSender


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An event with what only some may see of it. `creator` is None where it was imported."""

    event: BookedEvent
    title: str
    private: bool
    attendee_count: int
    creator: str | None


class OutcomeUnknown(HandrailError):
    """A service did not say whether it did what it was asked, and does not say it now. The ledger keeps the call as unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """For whom a calendar is asked. `secrets` are those of the call, `ctx.secrets`."""

    user: str | None = None
    tenant: str = ""
    secrets: Any = field(default=None, repr=False)


NOBODY = Caller()


class CalendarPort(Protocol):
    """`ctx.calendar`. The caller's tenant decides whose calendars they are."""

    @property
    def zone(self) -> tzinfo:
        """The zone of whole days, and of times that people are shown."""
        ...

    def now(self) -> datetime: ...

    @property
    def settling_seconds(self) -> float:
        """How long after a call has ended what it asked of a service may still come about."""
        ...

    async def availability(
        self,
        *,
        start: datetime,
        end: datetime,
        calendars: Sequence[str],
        details: bool = False,
        min_minutes: int = 0,
        caller: Caller = NOBODY,
    ) -> Availability: ...

    async def clashes(
        self,
        *,
        start: datetime,
        end: datetime,
        calendar: str,
        caller: Caller = NOBODY,
        limit: int = 20,
        besides: str | None = None,
    ) -> tuple[Busy, ...]:
        """What an event at this time would overlap, in any of the host's calendars; `calendar` must be one of them. The event
        with the UID `besides` is left out."""
        ...

    async def arrangements(self, *, with_meeting: bool, caller: Caller = NOBODY) -> Arrangements: ...

    async def create(self, draft: Draft, *, caller: Caller = NOBODY) -> BookedEvent:
        """Put the event into the calendar, once: a UID that is there already gives the event that is there. `CONFLICT` where that
        is somebody else's."""
        ...

    async def update(
        self, event_id: str, change: EventChange, *, key: str, etag: str | None = None, caller: Caller = NOBODY
    ) -> BookedEvent:
        """Change the event, once per key. `CONFLICT` where `etag` is not its version any more."""
        ...

    async def cancel(
        self, event_id: str, *, key: str, etag: str | None = None, message: str = "", caller: Caller = NOBODY
    ) -> BookedEvent:
        """Call the event off, once per key, with its meeting."""
        ...

    async def find(self, uid: str, *, caller: Caller = NOBODY) -> BookedEvent | None: ...

    async def get(self, event_id: str, *, caller: Caller = NOBODY) -> BookedEvent | None:
        """The event of this id, also when it was called off."""
        ...

    async def settle_creation(self, draft: Draft, *, caller: Caller = NOBODY) -> BookedEvent | None:
        """What became of a creation whose outcome is unknown: the event, its invitations sent again; or None, and the meeting
        that was made for it is removed."""
        ...

    async def settle_change(
        self, event_id: str, *, key: str, message: str = "", caller: Caller = NOBODY
    ) -> BookedEvent | None:
        """The event, if the change or cancellation with this key was made; its invitations are sent again. None if it was not."""
        ...

    async def settle_cancellation(
        self, event_id: str, *, key: str, message: str = "", caller: Caller = NOBODY
    ) -> tuple[bool, BookedEvent | None]:
        """Whether the event is off, whoever called it off; and what is still known of it. The attendees are informed again."""
        ...
