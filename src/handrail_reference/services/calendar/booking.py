"""Booking, the same on every calendar: the meeting, then the event, then the invitations, and back again where one fails.

A calendar supplies what only it can do (`_insert`, `_replace`, `_withdraw`, …). Its `ToolError` means that nothing was changed;
`OutcomeUnknown` that nobody can tell, so that the ledger keeps the call for `reconcile`.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from handrail.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar.failures import unknown_calendar
from handrail_reference.services.calendar.marks import mark_of
from handrail_reference.services.calendar.moments import in_range
from handrail_reference.services.calendar.port import (
    MAX_CONFLICTS,
    NOBODY,
    Arrangements,
    Availability,
    BookedEvent,
    Busy,
    Caller,
    Described,
    Draft,
    EventChange,
    InvitationSender,
    OutcomeUnknown,
)
from handrail_reference.services.calendar.zones import home_zone
from handrail_reference.services.invitations import InvitationMethod, InvitationPort
from handrail_reference.services.meetings import NO_MEETING, Meeting, MeetingPort, NoMeetings

PRIMARY = "primary"
SETTLING_SECONDS = 30.0
"""Longer than any request is waited for, and time for a service that is still at it when nobody waits any more."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


class Inserted(NamedTuple):
    """The event of a draft. People may know of one that is not new."""

    event: BookedEvent
    is_new: bool


class BookingCalendar(ABC):
    """What all calendars have in common. Close it with the runtime."""

    def __init__(
        self,
        *,
        names: Sequence[str] = (PRIMARY,),
        time_zone: str = "UTC",
        meetings: MeetingPort | None = None,
        mail: InvitationPort | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
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
        self._meetings = meetings or NoMeetings()
        self._mail = mail
        self._clock = clock
        self.settling_seconds = SETTLING_SECONDS

    @property
    def zone(self) -> tzinfo:
        return self._zone

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def checked_name(self, name: str) -> str:
        if name not in self.names:
            raise unknown_calendar(name, self.names)
        return name

    async def close(self) -> None:
        await self._meetings.close()
        if self._mail is not None:
            await self._mail.close()

    async def check(self) -> str:
        """What `handrail doctor` says: the meetings' service and the mail server are asked, and nothing is made or sent."""
        mail = "" if self._mail is None else await self._mail.check()
        return joined(await self._meetings.check(), mail)

    @abstractmethod
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

    @abstractmethod
    async def clashes(
        self,
        *,
        start: datetime,
        end: datetime,
        calendar: str,
        caller: Caller = NOBODY,
        limit: int = MAX_CONFLICTS,
        besides: str | None = None,
    ) -> tuple[Busy, ...]: ...

    @abstractmethod
    async def find(self, uid: str, *, caller: Caller = NOBODY) -> BookedEvent | None: ...

    @abstractmethod
    async def get(self, event_id: str, *, caller: Caller = NOBODY) -> BookedEvent | None: ...

    @abstractmethod
    async def _insert(self, draft: Draft, meeting: Meeting, by: InvitationSender, caller: Caller) -> Inserted:
        """Put it in, or give what is there under its UID, whoever made it; `conflicts` filled in."""

    @abstractmethod
    async def _replace(
        self, event: BookedEvent, change: EventChange, key: str, by: InvitationSender, caller: Caller
    ) -> BookedEvent:
        """Write the next version, if the stored one still is `event`."""

    @abstractmethod
    async def _call_off(
        self, event: BookedEvent, key: str, message: str, by: InvitationSender, caller: Caller
    ) -> BookedEvent:
        """Mark it as cancelled, if the stored one still is `event`."""

    @abstractmethod
    async def _withdraw(self, event: BookedEvent, caller: Caller) -> None:
        """Take out an event of which nobody has heard yet."""

    async def _sender(self, caller: Caller) -> InvitationSender:
        """Who sends the invitations."""
        return "none" if self._mail is None else "mail"

    async def arrangements(self, *, with_meeting: bool, caller: Caller = NOBODY) -> Arrangements:
        provider = self._meetings.provider if with_meeting else "none"
        return Arrangements(meeting_provider=provider, invitations=await self._sender(caller))

    async def create(self, draft: Draft, *, caller: Caller = NOBODY) -> BookedEvent:
        self.checked_name(draft.calendar)
        if not draft.uid or not _is_span(draft.start, draft.end):
            raise ToolError(ErrorType.VALIDATION, "An event needs a UID, and must end after it starts.")
        by = await self._sender(caller)
        meeting = await self._meetings.make(draft) if draft.with_meeting else NO_MEETING
        try:
            event, is_new = await self._insert(draft, meeting, by, caller)
            if not is_from(event, draft):
                raise another_event()
        except ToolError as error:
            raise await self._unbooked(draft, meeting, error, caller) from None
        if meeting.ref and event.meeting_ref != meeting.ref:  # the event was there already, with another meeting
            event = await self._drop_meeting(event, meeting.ref)
        event = replace(event, invitations=by, invited=event.attendees if by == "service" else ())
        if by != "mail" or event.cancelled:
            return event
        if not is_new:  # somebody may have read its invitation
            return await self._notified(event, "REQUEST", event.attendees, again=True)
        try:
            return await self._send(event, "REQUEST", event.attendees)
        except ToolError as error:
            raise await self._taken_back(event, error, caller) from None

    async def update(
        self, event_id: str, change: EventChange, *, key: str, etag: str | None = None, caller: Caller = NOBODY
    ) -> BookedEvent:
        by = await self._sender(caller)
        before = await self._current(event_id, key, etag, caller)
        after = before
        again = mark_of(key) in before.keys
        if not again:
            start, end = change.start or before.start, change.end or before.end
            if not _is_span(start, end):
                raise ToolError(ErrorType.VALIDATION, "The event would not end after it starts.")
            after = await self._replace(before, change, key, by, caller)
            if after.meeting_ref and (after.title, after.start, after.end) != (before.title, before.start, before.end):
                after = await self._move_meeting(after)
        after = replace(after, invitations=by, invited=after.attendees if by == "service" else ())
        if by != "mail":
            return after
        return await self._notify_attendees(after, key, again=again)

    async def cancel(
        self, event_id: str, *, key: str, etag: str | None = None, message: str = "", caller: Caller = NOBODY
    ) -> BookedEvent:
        by = await self._sender(caller)
        event = await self._current(event_id, key, etag, caller)
        if not event.cancelled:
            event = await self._call_off(event, key, message, by, caller)
        if event.meeting_ref:
            event = await self._drop_meeting(event, event.meeting_ref)
        event = replace(event, invitations=by, invited=event.attendees if by == "service" else ())
        return await self._notified(event, "CANCEL", event.attendees, message) if by == "mail" else event

    async def settle_creation(self, draft: Draft, *, caller: Caller = NOBODY) -> BookedEvent | None:
        event = await self._created(draft, caller)
        if event is not None:
            by = await self._sender(caller)
            event = replace(event, invitations=by, invited=event.attendees if by == "service" else ())
            if event.cancelled and event.meeting_ref:
                # Nobody could be invited, and its taking back ended early.
                return await self._drop_meeting(event, event.meeting_ref)
            if by != "mail" or event.cancelled:
                return event
            # It may have been sent: its reader knows it by UID and SEQUENCE, and sees one.
            return await self._notified(event, "REQUEST", event.attendees, again=True)
        left = await self._meetings.find(draft.uid) if draft.with_meeting else None
        if left is not None:
            await self._meetings.remove(left.ref, uid=draft.uid)
        return None

    async def _created(self, draft: Draft, caller: Caller) -> BookedEvent | None:
        """What there is of a draft; not an event of somebody else under its UID."""
        event = await self.find(draft.uid, caller=caller)
        return event if event is not None and is_from(event, draft) else None

    async def settle_change(
        self, event_id: str, *, key: str, message: str = "", caller: Caller = NOBODY
    ) -> BookedEvent | None:
        event = await self.get(event_id, caller=caller)
        if event is None or mark_of(key) not in event.keys:
            return None
        by = await self._sender(caller)
        if event.meeting_ref:
            event = (
                await self._drop_meeting(event, event.meeting_ref)
                if event.cancelled
                else await self._move_meeting(event)
            )
        event = replace(event, invitations=by, invited=event.attendees if by == "service" else ())
        if by != "mail":
            return event
        if event.cancelled:
            return await self._notified(event, "CANCEL", event.attendees, message, again=True)
        return await self._notify_attendees(event, key, again=True)

    async def settle_cancellation(
        self, event_id: str, *, key: str, message: str = "", caller: Caller = NOBODY
    ) -> tuple[bool, BookedEvent | None]:
        settled = await self.settle_change(event_id, key=key, message=message, caller=caller)
        event = settled or await self.get(event_id, caller=caller)
        if event is not None and not event.cancelled:
            return False, event
        if settled is not None:
            return True, event
        # Off without a mark of this call, as where the service deletes: the rest of the cancellation is done again.
        if event is None:
            left = await self._meetings.find(uid) if (uid := self._uid_of(event_id)) else None
            if left is not None:
                await self._meetings.remove(left.ref, uid=uid)
            return True, None
        if event.meeting_ref:
            event = await self._drop_meeting(event, event.meeting_ref)
        if await self._sender(caller) == "mail":
            event = replace(event, invitations="mail")
            event = await self._notified(event, "CANCEL", event.attendees, message, again=True)
        return True, event

    def _uid_of(self, event_id: str) -> str:
        """The UID of the draft of an event that may be gone; empty where its id does not tell."""
        return ""

    async def describe_event(self, event_id: str, *, tenant: str = "") -> Described | None:
        """The event that a link of a tool's answer names, for a page that shows it; None if there is none."""
        event = await self.get(event_id, caller=Caller(tenant=tenant))
        if event is None:
            return None
        count = len(event.attendees)
        # Nobody wrote down in the service for whom it was made, so it is shown as a private one.
        return Described(event=event, title=event.title, private=True, attendee_count=count, creator=None)

    async def _current(self, event_id: str, key: str, etag: str | None, caller: Caller) -> BookedEvent:
        """The event as it is, if this call may change it."""
        event = await self.get(event_id, caller=caller)
        done = event is not None and mark_of(key) in event.keys
        if event is None or (event.cancelled and not done):
            gone = "was cancelled" if event is not None else "is not in the calendar"
            raise ToolError(ErrorType.NOT_FOUND, f'The event "{event_id}" {gone}.')
        if event.repeats:
            raise ToolError(
                ErrorType.VALIDATION, "The event repeats; a repeated event is changed in the calendar itself, not here."
            )
        if etag is not None and etag != event.etag and not done:
            raise changed_since(event)
        return event

    async def _send(
        self, event: BookedEvent, method: InvitationMethod, to: Sequence[str], message: str = ""
    ) -> BookedEvent:
        """Mail to those; `ToolError` if nobody got it."""
        if not to or self._mail is None:
            return event
        local = replace(event, start=event.start.astimezone(self._zone), end=event.end.astimezone(self._zone))
        refused, doubtful = await self._mail.send(local, method, to, message)
        got = tuple(one for one in to if one not in refused and one not in doubtful)
        warnings = (
            *(f"{address} was not written to: {reason}" for address, reason in sorted(refused.items())),
            *(f"It is not known whether {one} was written to: {reason}" for one, reason in sorted(doubtful.items())),
        )
        invited = event.invited if method == "CANCEL" and not event.cancelled else got
        return replace(event, invited=invited, warnings=(*event.warnings, *warnings))

    async def _notified(
        self,
        event: BookedEvent,
        method: InvitationMethod,
        to: Sequence[str],
        message: str = "",
        *,
        again: bool = False,
    ) -> BookedEvent:
        """`_send` about a change that stands whether or not the mail goes out, which an earlier start may have sent."""
        try:
            return await self._send(event, method, to, message)
        except (ToolError, OutcomeUnknown) as error:
            what = "It is not known whether the attendees were" if again else "The attendees were not"
            return replace(event, warnings=(*event.warnings, f"{what} told by mail: {error}"))

    async def _notify_attendees(self, event: BookedEvent, key: str, *, again: bool) -> BookedEvent:
        """The change is mailed to the attendees, and its end to whom this call has uninvited."""
        gone = (one for mark, one in event.uninvited if mark == mark_of(key) and one not in event.attendees)
        event = await self._notified(event, "REQUEST", event.attendees, again=again)
        return await self._notified(event, "CANCEL", tuple(dict.fromkeys(gone)), again=again)

    async def _taken_back(self, event: BookedEvent, error: ToolError, caller: Caller) -> ToolError:
        """Nobody could be invited: the event goes, and its meeting."""
        try:
            await self._withdraw(event, caller)
        except (ToolError, OutcomeUnknown):
            return _partial(error, f"the event is in the calendar ({event.event_id}), but nobody was invited")
        meeting = Meeting(event.meeting_provider, None, event.meeting_ref)
        return await self._without_meeting(meeting, event.draft_uid, error)

    async def _unbooked(self, draft: Draft, meeting: Meeting, error: ToolError, caller: Caller) -> ToolError:
        """The event could not be put in. A meeting that was there before may be that of an event that is there too."""
        if not meeting.is_new:
            try:
                if await self._created(draft, caller) is not None:
                    return error
            except ToolError:
                return _partial(
                    error, f"the {meeting.provider} meeting {meeting.ref} of an earlier try may have no event"
                )
        return await self._without_meeting(meeting, draft.uid, error)

    async def _without_meeting(self, meeting: Meeting, uid: str, error: ToolError) -> ToolError:
        """The failure of an event, after the meeting that was made for it is removed or named."""
        if not meeting.ref:
            return error
        try:
            await self._meetings.remove(meeting.ref, uid=uid)
        except (ToolError, OutcomeUnknown):
            return _partial(
                error, f"the {meeting.provider} meeting {meeting.ref} was made for it and could not be removed"
            )
        return error

    async def _drop_meeting(self, event: BookedEvent, ref: str) -> BookedEvent:
        try:
            await self._meetings.remove(ref, uid=event.draft_uid)
        except (ToolError, OutcomeUnknown) as error:
            what = f"The {self._meetings.provider} meeting {ref} could not be removed: {error}"
            return replace(event, warnings=(*event.warnings, what))
        return event

    async def _move_meeting(self, event: BookedEvent) -> BookedEvent:
        try:
            times = {"start": event.start, "end": event.end}
            await self._meetings.move(event.meeting_ref, uid=event.draft_uid, title=event.title, **times)
        except (ToolError, OutcomeUnknown) as error:
            what = (
                f"The {self._meetings.provider} meeting {event.meeting_ref} may not have been changed with it: {error}"
            )
            return replace(event, warnings=(*event.warnings, what))
        return event


def joined(*said: str) -> str:
    return "; ".join(one for one in said if one)


def is_from(event: BookedEvent, draft: Draft) -> bool:
    """Whether the event was made for this draft, and has not only its UID."""
    if event.keys:
        return mark_of(draft.uid) in event.keys
    # Of a service that keeps no marks: what it says. It may add who organizes it, and write addresses in its own way.
    if (event.title, event.start, event.end) != (draft.title, draft.start, draft.end):
        return False
    return {one.casefold() for one in draft.attendees} <= {one.casefold() for one in event.attendees}


def another_event() -> ToolError:
    return ToolError(ErrorType.CONFLICT, "Another event stands in the calendar under the name of this one.")


def changed_since(event: BookedEvent) -> ToolError:
    """The refusal of a change to a version that is not the newest."""
    now = (
        f'it is now "{event.title}", {event.start.isoformat()} to {event.end.isoformat()}, with '
        f"{', '.join(event.attendees) or 'no attendees'}"
    )
    return ToolError(
        ErrorType.CONFLICT,
        f"The event has changed since it was looked at: {now}.",
        suggestion=f"Ask the user again, then use the etag {event.etag}.",
        details=[{"pointer": "/etag"}],
    )


def _is_span(start: datetime, end: datetime) -> bool:
    return start < end and all(in_range(moment.astimezone(UTC).replace(tzinfo=None)) for moment in (start, end))


def _partial(error: ToolError, what: str) -> ToolError:
    """The failure, with what could not be undone."""
    message = f"{error.message.removesuffix('.')}; {what}, so remove it by hand."
    return ToolError(error.type, message, partial_side_effects=True, details=error.details)
