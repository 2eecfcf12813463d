"""Google Calendar. An event's id is made of its UID, so that creating it twice is a `409`, and the first is found and compared.

Google invites the attendees itself and makes Meet links with the event; both happen in the same request as the event.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from datetime import time as clock_time
from hashlib import sha256
from typing import Any, Literal, cast

from handrail.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar import gaps
from handrail_reference.services.calendar.booking import (
    BookingCalendar,
    Inserted,
    another_event,
    changed_since,
    is_from,
    joined,
)
from handrail_reference.services.calendar.google_client import GoogleClient, nonsense
from handrail_reference.services.calendar.items import Happening
from handrail_reference.services.calendar.marks import (
    mark_of,
    read_uninvited,
    uninvited_text,
    with_mark,
    with_uninvited,
)
from handrail_reference.services.calendar.moments import instant_of
from handrail_reference.services.calendar.port import (
    MAX_CONFLICTS,
    NOBODY,
    Availability,
    BookedEvent,
    Busy,
    Caller,
    Draft,
    EventChange,
    InvitationSender,
    MeetingProvider,
    OutcomeUnknown,
)
from handrail_reference.services.calendar.remote import (
    Maybe,
    as_busy,
    check_window,
    clashing,
    not_there,
    taken,
    too_many,
    twice,
    unknown,
    wrong_tenant,
)
from handrail_reference.services.invitations import InvitationPort
from handrail_reference.services.meetings import Meeting, MeetingPort

GoogleInvitations = Literal["auto", "service", "mail", "none"]
_ID = re.compile(r"[a-v0-9]{5,1024}")
_UPDATES: Mapping[InvitationSender, str] = {"service": "all", "mail": "none", "none": "none"}
_MARKS, _MEETING, _LINK = "handrailCalls", "handrailMeeting", "handrailMeetingLink"
_UID, _UNINVITED = "handrailUid", "handrailUninvited"
_MAX_PROPERTY = 900
"""Characters of a private property; Google takes 1,024."""
_READ_ONLY = ("self", "organizer", "asyncOperation")
"""What Google alone says of an attendee."""
_MAX_PAGES = 20
_CANCELLATION = 1
"""By how much a cancellation counts up the sequence of its event, for those who are informed by mail."""
_MEET_TRIES = 4
_MEET_SECONDS = 0.3


class GoogleCalendar(BookingCalendar):
    """`ctx.calendar` at Google."""

    not_forgotten = "events at Google stay, with whoever was invited; delete them there"
    """What `handrail users forget` says of it."""

    def __init__(
        self,
        client: GoogleClient,
        *,
        calendars: Mapping[str, str],
        time_zone: str = "UTC",
        meetings: MeetingPort | None = None,
        mail: InvitationPort | None = None,
        invitations: GoogleInvitations = "auto",
        tenants: Sequence[str] | None = ("",),
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(names=tuple(calendars), time_zone=time_zone, meetings=meetings, mail=mail, clock=clock)
        if "primary" not in calendars:
            raise ConfigError('[services.calendar.calendars] must have "primary", the calendar that is used first.')
        self._client = client
        self._by: InvitationSender = "service" if invitations == "auto" else invitations
        self._tenants = tenants
        self._ids = dict(calendars)

    async def close(self) -> None:
        await self._client.close()
        await super().close()

    async def check(self) -> str:
        """What `handrail doctor` says. People's own calendars are theirs to look at."""
        partners = await super().check()
        if self._tenants is None:
            return joined("each person's own calendar; people connect it themselves", partners)
        await self._free_busy(
            self.names, self.now(), self.now().replace(year=self.now().year + 1), Caller(tenant=self._tenants[0])
        )
        number = len(self.names)
        return joined(f"{number} calendar{'' if number == 1 else 's'} at Google; invitations: {self._by}", partners)

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
        check_window(start, end)
        if details:
            found = await self._taken(names, start, end, caller)
            return gaps.availability((as_busy(one, details=True) for one in found), start, end, min_minutes)
        return gaps.availability(await self._free_busy(names, start, end, caller), start, end, min_minutes)

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
        check_window(start, end)
        return clashing(await self._taken(self.names, start, end, caller), besides, limit)

    async def find(self, uid: str, *, caller: Caller = NOBODY) -> BookedEvent | None:
        for name in self.names:
            found = await self._get(name, _id_of(uid), caller)
            if found is not None:
                return await self._with_conflicts(found, caller)
        return None

    async def get(self, event_id: str, *, caller: Caller = NOBODY) -> BookedEvent | None:
        name, _, identity = event_id.partition(":")
        if name not in self.names or not re.fullmatch(r"[A-Za-z0-9_]{5,1024}", identity):
            return None
        return await self._get(name, identity, caller)

    async def _sender(self, caller: Caller) -> InvitationSender:
        return self._by

    async def _insert(self, draft: Draft, meeting: Meeting, by: InvitationSender, caller: Caller) -> Inserted:
        identity = _id_of(draft.uid)
        body = _body(draft, meeting, identity)
        version = 1 if "conferenceData" in body else 0
        request = self._events.insert(
            calendarId=self._ids[draft.calendar], body=body, sendUpdates=_UPDATES[by], conferenceDataVersion=version
        )
        try:
            status, answer = await self._twice(request, caller)
        except Maybe as doubt:
            if await self._looked(draft.calendar, identity, caller, doubt) is None:
                raise not_there(doubt) from None
            status, answer = 409, {}
        if status not in (200, 409):
            raise _refused(status)
        stored = self._written(draft.calendar, identity, answer) if status == 200 else None
        if stored is None or (stored.title, stored.start, stored.end) != (draft.title, draft.start, draft.end):
            # There already, or described as another: what is there is compared with what was asked for.
            stored = await self._looked(draft.calendar, identity, caller, None)
            if stored is None and status == 200:
                raise OutcomeUnknown("Google took the event and does not have it.")
            if stored is None or not is_from(stored, draft):
                raise another_event()
        if version and stored.meeting_link is None:
            stored = await self._with_meet(stored, caller)
        return Inserted(await self._with_conflicts(stored, caller), is_new=status == 200)

    def _uid_of(self, event_id: str) -> str:
        return event_id.partition(":")[2]

    async def _replace(
        self, event: BookedEvent, change: EventChange, key: str, by: InvitationSender, caller: Caller
    ) -> BookedEvent:
        identity = event.event_id.partition(":")[2]
        body = await self._changes(event, change, key, by, caller)
        request = self._events.patch(
            calendarId=self._ids[event.calendar], eventId=identity, body=body, sendUpdates=_UPDATES[by]
        )
        try:
            status, answer = await self._twice(request, caller, event.etag)
        except Maybe as doubt:
            there = await self._looked(event.calendar, identity, caller, doubt)
            if there is None or mark_of(key) not in there.keys:
                raise not_there(doubt) from None
            return await self._with_conflicts(there, caller)
        if status == 412:
            there = await self._looked(event.calendar, identity, caller, None)
            if there is None:
                raise _gone(event)
            if mark_of(key) not in there.keys:
                raise changed_since(there)
            return await self._with_conflicts(there, caller)
        if status in (404, 410):
            raise _gone(event)
        if status != 200:
            raise _refused(status)
        return await self._with_conflicts(self._written(event.calendar, identity, answer), caller)

    async def _call_off(
        self, event: BookedEvent, key: str, message: str, by: InvitationSender, caller: Caller
    ) -> BookedEvent:
        await self._delete(event, _UPDATES[by], caller)
        return replace(event, cancelled=True, sequence=event.sequence + _CANCELLATION)

    async def _withdraw(self, event: BookedEvent, caller: Caller) -> None:
        await self._delete(event, "none", caller)

    async def _delete(self, event: BookedEvent, updates: str, caller: Caller) -> None:
        identity = event.event_id.partition(":")[2]
        request = self._events.delete(calendarId=self._ids[event.calendar], eventId=identity, sendUpdates=updates)
        try:
            status, _ = await self._twice(request, caller, event.etag)
        except Maybe as doubt:
            there = await self._looked(event.calendar, identity, caller, doubt)
            if there is None or there.cancelled:
                return
            raise not_there(doubt) from None
        if status == 412:
            there = await self._looked(event.calendar, identity, caller, None)
            if there is not None and not there.cancelled:
                raise changed_since(there)
        elif status not in (200, 204, 404, 410):
            raise _refused(status)

    @property
    def _events(self) -> Any:
        return self._client.events

    async def _twice(self, request: Any, caller: Caller, etag: str = "") -> tuple[int, Mapping[str, Any]]:
        """The id, or the version, makes sure that it is done once."""
        self._check_caller(caller)
        return await twice(lambda: self._client.send(request, caller, etag))

    async def _read(self, request: Any, caller: Caller) -> tuple[int, Mapping[str, Any]]:
        self._check_caller(caller)
        try:
            return await self._client.send(request, caller)
        except Maybe as doubt:
            raise doubt.why from None

    async def _get(self, name: str, identity: str, caller: Caller) -> BookedEvent | None:
        status, answer = await self._read(self._events.get(calendarId=self._ids[name], eventId=identity), caller)
        if status in (404, 410):
            return None
        if status != 200:
            raise _refused(status)
        return self._event(name, identity, answer)

    async def _looked(self, name: str, identity: str, caller: Caller, doubt: Maybe | None) -> BookedEvent | None:
        """What there is after a write; a failure to look leaves the write in doubt."""
        try:
            return await self._get(name, identity, caller)
        except ToolError as error:
            raise unknown(doubt or Maybe(error)) from None

    def _written(self, name: str, identity: str, answer: Mapping[str, Any]) -> BookedEvent:
        try:
            return self._event(name, identity, answer)
        except ToolError as error:
            raise OutcomeUnknown(f"Google took the event and described another: {error.message}") from None

    def _event(self, name: str, identity: str, answer: Mapping[str, Any]) -> BookedEvent:
        if answer.get("id") != identity or not isinstance(answer.get("etag"), str):
            raise ToolError(ErrorType.PERMANENT, "Google answered with another event than the one that was asked for.")
        try:
            private = answer.get("extendedProperties", {}).get("private", {})
            provider, _, ref = str(private.get(_MEETING, "")).partition(":")
            link = _meeting_link(answer) or _followed(private.get(_LINK)) or None
            is_off = answer.get("status") == "cancelled"
            meet = bool(answer.get("hangoutLink") or answer.get("conferenceData"))
            return BookedEvent(
                event_id=f"{name}:{identity}",
                uid=str(answer.get("iCalUID") or identity),
                calendar=name,
                title=str(answer.get("summary", "")),
                start=self._moment(answer["start"]),
                end=self._moment(answer["end"]),
                attendees=tuple(str(one["email"]) for one in answer.get("attendees", ()) if "email" in one),
                link=_followed(answer.get("htmlLink")),
                meeting_link=link,
                description=str(answer.get("description", "")),
                location=str(answer.get("location", "")),
                etag=answer["etag"].strip('"'),
                sequence=int(answer.get("sequence", 0)) + (_CANCELLATION if is_off else 0),
                cancelled=is_off,
                repeats=bool(answer.get("recurrence") or answer.get("recurringEventId")),
                keys=tuple(str(private.get(_MARKS, "")).split()),
                uninvited=read_uninvited(" ".join(text for _, text in _parts(private))),
                draft_uid=str(private.get(_UID, identity)),
                meeting_ref=ref,
                meeting_provider=cast(MeetingProvider, provider)
                if provider in ("zoom", "jitsi")
                else "meet"
                if meet and link
                else "none",
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise nonsense() from None

    def _moment(self, given: Mapping[str, str]) -> datetime:
        """A moment as Google writes it; a whole day is one of the calendar's own zone."""
        if "date" in given:
            day = date.fromisoformat(given["date"])
            return instant_of(datetime.combine(day, clock_time.min), self._zone)
        moment = datetime.fromisoformat(given["dateTime"].upper())
        if moment.tzinfo is None:
            raise ValueError(given)
        return moment.astimezone(UTC)

    async def _changes(
        self, event: BookedEvent, change: EventChange, key: str, by: InvitationSender, caller: Caller
    ) -> dict[str, Any]:
        private = {_MARKS: " ".join(with_mark(event.keys, key))}
        # Whoever is informed by mail goes by the sequence, and Google promises nowhere that it counts the changes itself.
        body: dict[str, Any] = {"sequence": event.sequence + 1, "extendedProperties": {"private": private}}
        if by == "mail" and change.attendees is not None:
            gone = [one for one in event.attendees if one not in change.attendees]
            private |= _uninvited_parts(uninvited_text(with_uninvited(event.uninvited, key, gone)))
        for name, text in (
            ("summary", change.title),
            ("description", change.description),
            ("location", change.location),
        ):
            if text is not None:
                body[name] = text
        if change.start is not None:
            body["start"] = _google_moment(change.start)
        if change.end is not None:
            body["end"] = _google_moment(change.end)
        if change.attendees is not None:
            body["attendees"] = await self._people(event, change.attendees, caller)
        return body

    async def _people(self, event: BookedEvent, attendees: Sequence[str], caller: Caller) -> list[dict[str, Any]]:
        """Those who stay keep what is known of their answer."""
        identity = event.event_id.partition(":")[2]
        _, answer = await self._read(self._events.get(calendarId=self._ids[event.calendar], eventId=identity), caller)
        known = {str(one.get("email")): one for one in answer.get("attendees", ()) if isinstance(one, dict)}
        return [_writable(known.get(address) or {"email": address}) for address in attendees]

    async def _with_meet(self, event: BookedEvent, caller: Caller) -> BookedEvent:
        """Google may take a moment to make the meeting of an event that is there already."""
        identity = event.event_id.partition(":")[2]
        for _ in range(_MEET_TRIES):
            try:
                status, answer = await self._read(
                    self._events.get(calendarId=self._ids[event.calendar], eventId=identity), caller
                )
                if status == 200 and _meeting_link(answer):
                    return self._event(event.calendar, identity, answer)
                if _conference_failed(answer):
                    break
            except ToolError:
                break
            await asyncio.sleep(_MEET_SECONDS)
        return replace(event, warnings=(*event.warnings, "Google has made no Meet link for it yet."))

    async def _with_conflicts(self, event: BookedEvent, caller: Caller) -> BookedEvent:
        if event.cancelled or event.repeats:
            return event
        try:
            found = await self._taken(self.names, event.start, event.end, caller)
        except ToolError:
            return replace(event, warnings=(*event.warnings, "What it clashes with could not be looked up."))
        return replace(event, conflicts=clashing(found, event.uid))

    async def _free_busy(self, names: Sequence[str], start: datetime, end: datetime, caller: Caller) -> list[Busy]:
        by_id = {self._ids[name]: name for name in names}
        body = {
            "timeMin": start.astimezone(UTC).isoformat(),
            "timeMax": end.astimezone(UTC).isoformat(),
            "items": [{"id": identity} for identity in by_id],
        }
        status, answer = await self._read(self._client.freebusy.query(body=body), caller)
        if status != 200:
            raise _refused(status)
        found: list[Busy] = []
        try:
            for identity, name in by_id.items():
                told = answer["calendars"][identity]
                if told.get("errors"):
                    raise ToolError(
                        ErrorType.AUTH, f'Google does not show the calendar "{name}"; its owner has to share it.'
                    )
                found += [
                    Busy(start=_instant(one["start"]), end=_instant(one["end"]), status="busy", calendar=name)
                    for one in told["busy"]
                ]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise nonsense() from None  # what cannot be read must not pass for free
        return found

    async def _taken(self, names: Sequence[str], start: datetime, end: datetime, caller: Caller) -> list[Happening]:
        lists = await asyncio.gather(*(self._happenings(name, start, end, caller) for name in names))
        return taken((one for found in lists for one in found), start, end)

    async def _happenings(self, name: str, start: datetime, end: datetime, caller: Caller) -> list[Happening]:
        found: list[Happening] = []
        page: str | None = None
        for _ in range(_MAX_PAGES):
            request = self._events.list(
                calendarId=self._ids[name],
                timeMin=start.astimezone(UTC).isoformat(),
                timeMax=end.astimezone(UTC).isoformat(),
                singleEvents=True,
                maxResults=2500,
                **({"pageToken": page} if page else {}),
            )
            status, answer = await self._read(request, caller)
            if status != 200:
                raise _refused(status)
            try:
                found += [self._happening(name, one) for one in answer["items"] if one.get("status") != "cancelled"]
                page = answer.get("nextPageToken")
            except (KeyError, TypeError, ValueError, AttributeError):
                raise nonsense() from None
            if not page:
                return found
        raise too_many()

    def _happening(self, name: str, one: Mapping[str, Any]) -> Happening:
        status = (
            "free"
            if one.get("transparency") == "transparent"
            else "tentative"
            if one.get("status") == "tentative"
            else "busy"
        )
        return Happening(
            self._moment(one["start"]),
            self._moment(one["end"]),
            status,
            one.get("visibility") in ("private", "confidential"),
            str(one.get("summary", ""))[:200],
            len(one.get("attendees", ())),
            str(one.get("iCalUID") or one["id"]),
            name,
        )

    def _check_caller(self, caller: Caller) -> None:
        wrong = None if self._tenants is None else wrong_tenant(caller.tenant, self._tenants)
        if wrong is not None:
            raise wrong


def _id_of(uid: str) -> str:
    """An id in the letters that Google takes (base32hex); the key of a call is one already."""
    return uid if _ID.fullmatch(uid) else sha256(uid.encode()).hexdigest()


def _parts(private: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The texts of whom calls have uninvited, which may be longer than one property."""
    numbered = (
        (name.removeprefix(_UNINVITED), str(text)) for name, text in private.items() if name.startswith(_UNINVITED)
    )
    return sorted((int(number), text) for number, text in numbered if number.isdecimal())


def _uninvited_parts(text: str) -> dict[str, str]:
    parts = [""]
    for one in text.split():
        if len(parts[-1]) + len(one) >= _MAX_PROPERTY:
            parts.append("")
        parts[-1] = f"{parts[-1]} {one}".strip()
    return {f"{_UNINVITED}{number}": part for number, part in enumerate(parts) if part}


def _body(draft: Draft, meeting: Meeting, identity: str) -> dict[str, Any]:
    private = {_MARKS: " ".join(with_mark((), draft.uid)), _UID: draft.uid[:_MAX_PROPERTY]}
    body: dict[str, Any] = {
        "id": identity,
        "summary": draft.title,
        "start": _google_moment(draft.start),
        "end": _google_moment(draft.end),
        "attendees": [{"email": address} for address in draft.attendees],
        "extendedProperties": {"private": private},
    }
    if draft.description:
        body["description"] = draft.description
    if draft.location or meeting.link:
        body["location"] = draft.location or meeting.link
    if meeting.provider == "meet":
        solution = {"type": "hangoutsMeet"}
        body["conferenceData"] = {"createRequest": {"requestId": identity[:64], "conferenceSolutionKey": solution}}
    elif meeting.link:
        private |= {_MEETING: f"{meeting.provider}:{meeting.ref}", _LINK: meeting.link}
    return body


def _writable(attendee: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attendee.items() if name not in _READ_ONLY}


def _google_moment(moment: datetime) -> dict[str, str]:
    return {"dateTime": moment.astimezone(UTC).isoformat(), "timeZone": "UTC"}


def _instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text.upper())
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.astimezone(UTC)


def _meeting_link(answer: Mapping[str, Any]) -> str:
    points = (answer.get("conferenceData") or {}).get("entryPoints", ())
    videos = [one.get("uri") for one in points if one.get("entryPointType") == "video"]
    return _followed(videos[0] if videos else answer.get("hangoutLink"))


def _conference_failed(answer: Mapping[str, Any]) -> bool:
    request = (answer.get("conferenceData") or {}).get("createRequest") or {}
    return bool((request.get("status") or {}).get("statusCode") == "failure")


def _followed(link: Any) -> str:
    """A link that a person may be given."""
    return link if isinstance(link, str) and link.startswith("https://") else ""


def _gone(event: BookedEvent) -> ToolError:
    return ToolError(ErrorType.NOT_FOUND, f'The event "{event.event_id}" is not in the calendar.')


def _refused(status: int) -> ToolError:
    if status in (404, 410):
        return ToolError(
            ErrorType.AUTH, "Google does not show this calendar; its owner has to share it with the account."
        )
    return ToolError(ErrorType.PERMANENT, f"Google refused the request ({status}).")
