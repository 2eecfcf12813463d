"""A calendar on a CalDAV server (RFC 4791): Nextcloud, Radicale, Fastmail, iCloud and others.

An event's address is made of its UID, and it is written with `If-None-Match: *`: of two that create the same event one
succeeds, and the other finds it. Every change carries the version that it was made from (`If-Match`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal, cast
from urllib.parse import quote, unquote, urljoin, urlsplit
from xml.sax.saxutils import escape

from icalendar import Calendar, Event, FreeBusy

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
from handrail_reference.services.calendar.caldav_client import CalDavClient, DavAnswer, DavRefusal
from handrail_reference.services.calendar.caldav_principal import address_of_principal
from handrail_reference.services.calendar.components import Component
from handrail_reference.services.calendar.event_text import (
    ScheduleAgent,
    apply_change,
    call_off,
    marks_of,
    new_event,
    record_of,
)
from handrail_reference.services.calendar.failures import BadFile
from handrail_reference.services.calendar.file_export import PRODUCT
from handrail_reference.services.calendar.file_import import read_file, whole_events
from handrail_reference.services.calendar.items import Happening
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
    OutcomeUnknown,
)
from handrail_reference.services.calendar.remote import (
    MAX_HAPPENINGS,
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
from handrail_reference.services.calendar.series import Series
from handrail_reference.services.invitations import InvitationPort
from handrail_reference.services.meetings import Meeting, MeetingPort

Invitations = Literal["auto", "service", "mail", "none"]
_AGENTS: Mapping[InvitationSender, ScheduleAgent] = {"service": "", "mail": "CLIENT", "none": "NONE"}
_SPACES = 'xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"'
_TEXT = {"Content-Type": "text/calendar; charset=utf-8"}
_XML = {"Content-Type": "application/xml; charset=utf-8", "Depth": "1"}
_NO_FREE_BUSY = (400, 403, 405, 415, 422, 501)
"""How servers answer to a report that they do not have."""
_STATUSES = {"BUSY": "busy", "BUSY-UNAVAILABLE": "busy", "BUSY-TENTATIVE": "tentative"}


class CalDavCalendar(BookingCalendar):
    """`ctx.calendar` on a CalDAV server, by one account of the host."""

    not_forgotten = "events at the CalDAV server stay, with whoever was invited; delete them there"
    """What `handrail users forget` says of it."""

    def __init__(
        self,
        client: CalDavClient,
        *,
        url: str,
        calendars: Mapping[str, str],
        time_zone: str = "UTC",
        meetings: MeetingPort | None = None,
        mail: InvitationPort | None = None,
        invitations: Invitations = "auto",
        organizer: str = "",
        tenants: Sequence[str] = ("",),
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(names=tuple(calendars), time_zone=time_zone, meetings=meetings, mail=mail, clock=clock)
        if "primary" not in calendars:
            raise ConfigError(
                '[services.calendar.calendars] must have "primary", the address of the calendar that is used first.'
            )
        self._client = client
        self._invitations = invitations
        self._organizer = organizer
        self._derived: str | None = None
        self._tenants = tuple(tenants)
        self._scheduling: bool | None = None
        self._addresses = {name: _collection(url, name, address) for name, address in calendars.items()}

    async def close(self) -> None:
        await self._client.close()
        await super().close()

    async def check(self) -> str:
        """What `handrail doctor` says."""
        name = "primary"
        try:
            by = await self._sender(Caller(tenant=self._tenants[0]))
            for name in self.names:
                await self._free_busy(name, self.now(), self.now().replace(year=self.now().year + 1))
        except ToolError as error:  # the model is not told addresses; whoever runs the host needs them
            path = urlsplit(self._addresses[name]).path
            raise ToolError(error.type, f'Calendar "{name}" at {path}: {error.message}') from None
        number = len(self.names)
        host = urlsplit(self._addresses["primary"]).hostname
        said = f"{number} calendar{'' if number == 1 else 's'} on {host}; invitations: {by}"
        return joined(said, await super().check())

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
        self._check_caller(caller)
        check_window(start, end)
        if details:
            found = await self._taken(names, start, end)
            return gaps.availability((as_busy(one, details=True) for one in found), start, end, min_minutes)
        lists = await asyncio.gather(*(self._free_busy(name, start, end) for name in names))
        return gaps.availability((one for busy in lists for one in busy), start, end, min_minutes)

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
        self._check_caller(caller)
        check_window(start, end)
        return clashing(await self._taken(self.names, start, end), besides, limit)

    async def find(self, uid: str, *, caller: Caller = NOBODY) -> BookedEvent | None:
        self._check_caller(caller)
        for name in self.names:
            found = await self._stored(name, uid)
            if found is not None:
                return await self._with_conflicts(found[0])
        return None

    async def get(self, event_id: str, *, caller: Caller = NOBODY) -> BookedEvent | None:
        self._check_caller(caller)
        name, _, quoted = event_id.partition(":")
        if name not in self.names or not quoted:
            return None
        found = await self._stored(name, unquote(quoted))
        return None if found is None else found[0]

    async def _sender(self, caller: Caller) -> InvitationSender:
        self._check_caller(caller)
        if self._invitations == "mail" or self._invitations == "none":
            return self._invitations
        if self._scheduling is None:
            answer = await self._read("OPTIONS", self._addresses["primary"])
            features = {part.strip().lower() for part in str(answer.headers.get("DAV", "")).split(",")}
            if "calendar-access" not in features:
                raise ToolError(
                    ErrorType.PERMANENT, "The address of the calendar is no CalDAV server; the host has to check it."
                )
            self._scheduling = "calendar-auto-schedule" in features
        if self._invitations == "service" and not self._scheduling:
            raise ToolError(
                ErrorType.PERMANENT,
                'The calendar server sends no invitations, although the host has set `invitations = "service"`.',
            )
        if self._scheduling and await self._organizer_for("service"):
            return "service"
        if self._invitations == "service":
            raise ToolError(
                ErrorType.PERMANENT,
                "The calendar server does not say in whose name it invites; the host has to set `organizer`.",
            )
        return "none" if self._mail is None else "mail"

    async def _organizer_for(self, by: InvitationSender) -> str:
        """In whose name attendees are invited. A server does so for events that its own user organizes, and for no others."""
        if self._organizer or by != "service":
            return self._organizer or (self._mail.sender if self._mail is not None else "")
        if self._derived is None:
            self._derived = await address_of_principal(self._read, self._addresses["primary"])
        return self._derived

    async def _insert(self, draft: Draft, meeting: Meeting, by: InvitationSender, caller: Caller) -> Inserted:
        now = self.now().replace(microsecond=0)
        event = new_event(draft, meeting, now, organizer=await self._organizer_for(by), agent=_AGENTS[by])
        address = self._address(draft.calendar, draft.uid)
        try:
            answer = await self._put(address, _document(event), {"If-None-Match": "*"})
        except Maybe as doubt:
            stored = await self._looked(draft, doubt)
            if stored is None or not (doubt.is_over or is_from(stored, draft)):
                raise not_there(doubt) from None
            return Inserted(await self._with_conflicts(stored), is_new=False)
        # Created now, or there already: either way what the server has is compared with what was asked for.
        if answer.status not in (200, 201, 204, 409, 412):
            raise _refused(answer)
        is_new = answer.status < 300
        stored = await self._looked(draft, None)
        if is_new and (stored is None or not is_from(stored, draft)):
            raise OutcomeUnknown("The calendar server took the event and does not have it.")
        if stored is None:
            raise another_event()
        return Inserted(await self._with_conflicts(stored), is_new)

    async def _created(self, draft: Draft, caller: Caller) -> BookedEvent | None:
        self._check_caller(caller)
        for name in dict.fromkeys((draft.calendar, *self.names)):
            found = await self._anywhere(name, draft.uid)
            if found is not None and is_from(found[0], draft):
                return await self._with_conflicts(found[0])
        return None

    def _uid_of(self, event_id: str) -> str:
        return unquote(event_id.partition(":")[2])

    async def _replace(
        self, event: BookedEvent, change: EventChange, key: str, by: InvitationSender, caller: Caller
    ) -> BookedEvent:
        now = self.now().replace(microsecond=0)
        organizer, agent = await self._organizer_for(by), _AGENTS[by]
        written = await self._edited(
            event, lambda stored: apply_change(stored, change, now, key, by, organizer=organizer, agent=agent)
        )
        return await self._with_conflicts(written)

    async def _call_off(
        self, event: BookedEvent, key: str, message: str, by: InvitationSender, caller: Caller
    ) -> BookedEvent:
        if by == "service":
            # The server tells the attendees when the organizer's event goes.
            await self._withdraw(event, caller)
            return replace(event, cancelled=True, sequence=event.sequence + 1)
        now = self.now().replace(microsecond=0)
        return await self._edited(event, lambda stored: call_off(stored, now, key))

    async def _withdraw(self, event: BookedEvent, caller: Caller) -> None:
        found = await self._stored(event.calendar, event.uid)
        if found is None:
            return
        try:
            answer = await self._client.send("DELETE", found[2], headers={"If-Match": _tag(event.etag)})
        except Maybe as doubt:
            if await self._after_write(event.calendar, event.uid) is None:
                return
            raise not_there(doubt) from None
        if answer.status == 412:
            raise changed_since(found[0])
        if answer.status not in (200, 202, 204, 404, 410):
            raise _refused(answer)

    async def _edited(self, event: BookedEvent, edit: Callable[[Event], None]) -> BookedEvent:
        """The next version of an event, if the server still has the version that was read."""
        found = await self._stored(event.calendar, event.uid)
        if found is None:
            raise ToolError(ErrorType.NOT_FOUND, f'The event "{event.event_id}" is not in the calendar.')
        there, text, address = found
        if there.etag != event.etag:
            raise changed_since(there)
        document = Calendar.from_ical(text)
        stored = next(iter(document.walk("VEVENT")))
        edit(cast(Event, stored))
        body = document.to_ical().decode()
        mark = marks_of(cast(Event, stored))[-1]
        try:
            answer = await self._put(address, body, {"If-Match": _tag(event.etag)})
        except Maybe as doubt:
            after = await self._after_write(event.calendar, event.uid)
            if after is None or mark not in after.keys:
                raise not_there(doubt) from None
            return after
        after = await self._after_write(event.calendar, event.uid)
        if after is None:
            raise OutcomeUnknown("The calendar server took the change and does not have the event.")
        if answer.status == 412 and mark not in after.keys:
            raise changed_since(after)
        if answer.status not in (200, 201, 204, 412):
            raise _refused(answer)
        return after

    async def _put(self, address: str, body: str, condition: Mapping[str, str]) -> DavAnswer:
        headers = {**_TEXT, **condition}
        return await twice(lambda: self._client.send("PUT", address, body, headers))

    async def _after_write(self, name: str, uid: str) -> BookedEvent | None:
        """What the server has now. The write may be done, so that a failure to look is doubt and not failure."""
        try:
            found = await self._stored(name, uid)
        except ToolError as error:
            raise unknown(Maybe(error)) from None
        return None if found is None else found[0]

    async def _looked(self, draft: Draft, doubt: Maybe | None) -> BookedEvent | None:
        """What stands under the UID of a draft, whoever made it, after a request that may have created it."""
        try:
            found = await self._anywhere(draft.calendar, draft.uid)
        except ToolError as error:
            raise unknown(doubt or Maybe(error)) from None
        return None if found is None else found[0]

    async def _anywhere(self, name: str, uid: str) -> tuple[BookedEvent, str, str] | None:
        """`_stored`, also where the address that would be its own is another event's."""
        try:
            return await self._stored(name, uid)
        except _AnotherEvent:
            return await self._by_uid(name, uid)

    async def _stored(self, name: str, uid: str) -> tuple[BookedEvent, str, str] | None:
        """The event with this UID as the server has it, with its text and its address."""
        address = self._address(name, uid)
        answer = await self._read("GET", address)
        if answer.status == 200:
            return *self._event(name, uid, answer.text, str(answer.headers.get("ETag", ""))), address
        if answer.status not in (404, 410):
            raise _refused(answer)
        return await self._by_uid(name, uid)

    async def _by_uid(self, name: str, uid: str) -> tuple[BookedEvent, str, str] | None:
        """Another program may have put it at an address of its own."""
        query = (
            f'<C:prop-filter name="UID"><C:text-match collation="i;octet">{escape(uid)}</C:text-match></C:prop-filter>'
        )
        for href, etag, text in await self._query(name, query):
            address = urljoin(self._addresses[name], href)
            if urlsplit(address)[:2] != urlsplit(self._addresses[name])[:2]:
                continue  # the password is for no other server
            try:
                return *self._event(name, uid, text, etag), address
            except ToolError:
                continue  # a server that matches parts of texts
        return None

    def _event(self, name: str, uid: str, text: str, etag: str) -> tuple[BookedEvent, str]:
        parts = self._components(text).get(uid)
        if not parts or not etag:
            raise _AnotherEvent(
                ErrorType.PERMANENT, "The calendar server answered with another event than the one that was asked for."
            )
        # Parsed above, so it can be parsed again.
        events = [one for one in Calendar.from_ical(text).walk("VEVENT") if str(one.get("UID")) == uid]
        whole = next((part for part in parts if part.recurrence_id is None), parts[0])
        zone = whole.start.zone or self._zone
        event_id = f"{name}:{quote(uid, safe='')}"
        found = record_of(
            cast(Event, events[0]),
            event_id=event_id,
            calendar=name,
            start=instant_of(whole.start.wall, zone),
            end=whole.span.end_of(whole.start.wall, zone),
            link=f"/calendar/events/{event_id}",
            etag=etag.removeprefix("W/").strip('"'),
        )
        return replace(found, repeats=found.repeats or len(parts) > 1), text

    async def _with_conflicts(self, event: BookedEvent) -> BookedEvent:
        if event.cancelled or event.repeats:
            return event
        try:
            found = await self._taken(self.names, event.start, event.end)
        except ToolError:
            return replace(event, warnings=(*event.warnings, "What it clashes with could not be looked up."))
        return replace(event, conflicts=clashing(found, event.uid))

    async def _taken(self, names: Sequence[str], start: datetime, end: datetime) -> list[Happening]:
        lists = await asyncio.gather(*(self._happenings(name, start, end) for name in names))
        return taken((one for found in lists for one in found), start, end)

    async def _happenings(self, name: str, start: datetime, end: datetime) -> list[Happening]:
        span = f'<C:time-range start="{_stamp(start)}" end="{_stamp(end)}"/>'
        rows = await self._query(name, span)
        # In a thread: whoever invites may send events that repeat tens of thousands of times in a range.
        return await asyncio.to_thread(self._repeated, name, [text for _, _, text in rows], start, end)

    def _repeated(self, name: str, texts: Sequence[str], start: datetime, end: datetime) -> list[Happening]:
        found: list[Happening] = []
        for text in texts:
            for uid, parts in self._components(text).items():
                for one in Series(parts, self._zone).between(start, end):
                    of = one.of
                    found.append(
                        Happening(one.start, one.end, of.status, of.private, of.title, of.attendees, uid, name)
                    )
                if len(found) > MAX_HAPPENINGS:
                    raise too_many()
        return found

    def _components(self, text: str) -> dict[str, list[Component]]:
        """The events of an answer, by UID. One that cannot be used is left out, as an import leaves it out."""
        try:
            return whole_events([read_file("calendar", text.encode(), self._zone)])[0]
        except BadFile:
            raise ToolError(
                ErrorType.PERMANENT, "The calendar server answered with something that is no calendar."
            ) from None

    async def _free_busy(self, name: str, start: datetime, end: datetime) -> list[Busy]:
        span = f'<C:time-range start="{_stamp(start)}" end="{_stamp(end)}"/>'
        body = f'<?xml version="1.0" encoding="utf-8"?><C:free-busy-query {_SPACES}>{span}</C:free-busy-query>'
        try:
            answer = await self._read("REPORT", self._addresses[name], body, _XML)
        except DavRefusal as refusal:
            if refusal.status not in _NO_FREE_BUSY:
                raise
            return [as_busy(one, details=False) for one in await self._taken([name], start, end)]
        if answer.status != 200:
            raise _refused(answer)
        return await asyncio.to_thread(_busy_in, answer.text, name)

    async def _query(self, name: str, condition: str) -> tuple[tuple[str, str, str], ...]:
        body = (
            f'<?xml version="1.0" encoding="utf-8"?><C:calendar-query {_SPACES}>'
            "<D:prop><D:getetag/><C:calendar-data/></D:prop>"
            f'<C:filter><C:comp-filter name="VCALENDAR"><C:comp-filter name="VEVENT">{condition}</C:comp-filter></C:comp-filter>'
            "</C:filter></C:calendar-query>"
        )
        answer = await self._read("REPORT", self._addresses[name], body, _XML)
        if answer.status != 207 or answer.rows is None:
            raise _refused(answer)
        return tuple(row for row in answer.rows if row[2])

    async def _read(
        self, method: str, address: str, body: str = "", headers: Mapping[str, str] | None = None
    ) -> DavAnswer:
        try:
            return await self._client.send(method, address, body, headers)
        except Maybe as doubt:
            raise doubt.why from None

    def _address(self, name: str, uid: str) -> str:
        plain = uid if uid.isalnum() and uid.isascii() and len(uid) <= 128 else sha256(uid.encode()).hexdigest()
        return f"{self._addresses[name]}{plain}.ics"

    def _check_caller(self, caller: Caller) -> None:
        wrong = wrong_tenant(caller.tenant, self._tenants)
        if wrong is not None:
            raise wrong


class _AnotherEvent(ToolError):
    """What the server has at an address is not the event of that address."""


def _collection(url: str, name: str, address: str) -> str:
    """The address of a calendar, on the server that the password is for."""
    whole = urljoin(url, address)
    if not address or urlsplit(whole)[:2] != urlsplit(url)[:2]:
        raise ConfigError(
            f'"{name}" in [services.calendar.calendars] must be a path on the server of "caldav_url", such as "/ana/work/"; '
            f"{address!r} is not."
        )
    return whole if whole.endswith("/") else f"{whole}/"


def _busy_in(text: str, name: str) -> list[Busy]:
    """The times of a free-busy report."""
    try:
        parts = [part for part in Calendar.from_ical(text).walk("VFREEBUSY") if isinstance(part, FreeBusy)]
        return [one for part in parts for one in _periods(part, name)]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise ToolError(
            ErrorType.PERMANENT, "The calendar server answered with something that is no calendar."
        ) from None


def _periods(part: FreeBusy, name: str) -> list[Busy]:
    listed = part.get("FREEBUSY") or []
    found = []
    for one in listed if isinstance(listed, list) else [listed]:
        for period in one if isinstance(one, list) else [one]:
            status = _STATUSES.get(str(period.params.get("FBTYPE", "BUSY")).upper())
            start, end = period.start.astimezone(UTC), period.end.astimezone(UTC)
            if status is not None and start < end:
                found.append(
                    Busy(start=start, end=end, status=cast(Literal["busy", "tentative"], status), calendar=name)
                )
    return found


def _document(event: Event) -> str:
    calendar = Calendar()
    calendar.add("prodid", PRODUCT)
    calendar.add("version", "2.0")
    calendar.add_component(event)
    return str(calendar.to_ical().decode())


def _refused(answer: DavAnswer) -> ToolError:
    if answer.status in (404, 410):
        return ToolError(ErrorType.PERMANENT, "The calendar is not on the server; the host has to check its address.")
    return ToolError(ErrorType.PERMANENT, f"The calendar server refused the request ({answer.status}).")


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _tag(etag: str) -> str:
    return f'"{etag}"'
