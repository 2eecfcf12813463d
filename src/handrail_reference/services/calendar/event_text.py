"""An event as iCalendar has it, made from a draft, changed, called off and read: for calendars that keep that text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, cast

from icalendar import Event
from icalendar.prop import vCalAddress, vText, vUri

from handrail_reference.services.calendar.marks import read_uninvited, uninvited_text, with_mark, with_uninvited
from handrail_reference.services.calendar.port import (
    BookedEvent,
    Draft,
    EventChange,
    InvitationSender,
    MeetingProvider,
)
from handrail_reference.services.meetings import Meeting

ScheduleAgent = Literal["", "CLIENT", "NONE"]
"""Who tells the attendees, for a server that could do it itself (RFC 6638): empty leaves it to the server."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MARKS, _MEETING, UNINVITED = "X-HANDRAIL-CALLS", "X-HANDRAIL-MEETING", "X-HANDRAIL-UNINVITED"
_PROVIDERS = ("zoom", "meet", "jitsi")
_MAX_TEXT = 8_000


def new_event(
    draft: Draft, meeting: Meeting, now: datetime, *, organizer: str = "", agent: ScheduleAgent = ""
) -> Event:
    event = Event()
    event.add("uid", draft.uid)
    event.add("dtstamp", now)
    event.add("created", now)
    event.add("dtstart", draft.start.astimezone(UTC))
    event.add("dtend", draft.end.astimezone(UTC))
    event.add("summary", draft.title)
    if draft.description:
        event.add("description", draft.description)
    if draft.location or meeting.link:
        event.add("location", draft.location or meeting.link)
    if meeting.link:
        event.add("conference", vUri(meeting.link, params={"VALUE": "URI", "FEATURE": "AUDIO,VIDEO"}))
        event.add(_MEETING, vText(f"{meeting.provider}:{meeting.ref}"))
    if organizer:
        event.add("organizer", f"mailto:{organizer}")
    _set_attendees(event, draft.attendees, agent)
    event.add(_MARKS, vText(" ".join(with_mark((), draft.uid))))
    return event


def apply_change(
    event: Event,
    change: EventChange,
    now: datetime,
    key: str,
    by: InvitationSender,
    *,
    organizer: str = "",
    agent: ScheduleAgent = "",
) -> None:
    """The next version of the event. What is not changed stays as it was, also what nobody here understands."""
    for name, text in (("SUMMARY", change.title), ("DESCRIPTION", change.description), ("LOCATION", change.location)):
        if text is not None:
            event.pop(name, None)
            if text:
                event.add(name, text)
    if change.start is not None:
        event["DTSTART"] = _moment(change.start)
    if change.end is not None:
        event.pop("DURATION", None)
        event["DTEND"] = _moment(change.end)
    if change.attendees is not None:
        if by == "mail":
            _keep_uninvited(event, change.attendees, key)
        _set_attendees(event, change.attendees, agent)
    if by == "service":
        _leave_to_service(event, organizer)
    _advance(event, now, key)


def call_off(event: Event, now: datetime, key: str) -> None:
    event["STATUS"] = vText("CANCELLED")
    _advance(event, now, key)


def lines_of(event: Event) -> list[str]:
    """Unfolded lines. A control character would be a line of its own in the eyes of some readers."""
    return [_CONTROL.sub(" ", str(line)) for line in event.content_lines() if line]


def record_of(
    event: Event, *, event_id: str, calendar: str, start: datetime, end: datetime, link: str, etag: str
) -> BookedEvent:
    """What tools get of it. Its times are given: the reader of components knows zones better."""
    provider, _, ref = str(event.get(_MEETING, "")).partition(":")
    return BookedEvent(
        event_id=event_id,
        uid=str(event.get("UID", "")),
        calendar=calendar,
        title=_text(event, "SUMMARY"),
        start=start,
        end=end,
        attendees=tuple(dict.fromkeys(_addresses(event))),
        link=link,
        meeting_link=meeting_link_of(event),
        description=_text(event, "DESCRIPTION"),
        location=_text(event, "LOCATION"),
        etag=etag,
        sequence=sequence_of(event),
        cancelled=str(event.get("STATUS", "")).upper() == "CANCELLED",
        repeats=any(name in event for name in ("RRULE", "RDATE", "RECURRENCE-ID")),
        keys=marks_of(event),
        uninvited=read_uninvited(str(event.get(UNINVITED, ""))),
        draft_uid=str(event.get("UID", "")),
        meeting_ref=ref if provider in _PROVIDERS else "",
        meeting_provider=cast(MeetingProvider, provider) if provider in _PROVIDERS else "none",
    )


def marks_of(event: Event) -> tuple[str, ...]:
    return tuple(str(event.get(_MARKS, "")).split())


def sequence_of(event: Event) -> int:
    try:
        return max(int(event.get("SEQUENCE", 0)), 0)
    except (TypeError, ValueError):
        return 0


def meeting_link_of(event: Event) -> str | None:
    """Where the meeting is, if the event says so in a way that can be followed."""
    found = event.get("CONFERENCE")
    link = str(found[0] if isinstance(found, list) else found or "")
    return link if link.startswith(("https://", "http://")) else None


def _advance(event: Event, now: datetime, key: str) -> None:
    marks = with_mark(marks_of(event), key)
    for name in ("SEQUENCE", "DTSTAMP", "LAST-MODIFIED", _MARKS):
        before = sequence_of(event) if name == "SEQUENCE" else None
        event.pop(name, None)
        if before is not None:
            event.add(name, before + 1)
    event.add("dtstamp", now)
    event.add("last-modified", now)
    event.add(_MARKS, vText(" ".join(marks)))


def _keep_uninvited(event: Event, attendees: Sequence[str], key: str) -> None:
    known = read_uninvited(str(event.pop(UNINVITED, "")))
    found = with_uninvited(known, key, (one for one in _addresses(event) if one not in attendees))
    if found:
        event.add(UNINVITED, vText(uninvited_text(found)))


def _leave_to_service(event: Event, organizer: str) -> None:
    """An event that was made when nobody or mail invited: now the server does, for its organizer."""
    people = _people(event)
    for person in people:
        person.params.pop("SCHEDULE-AGENT", None)
    if organizer and people and "ORGANIZER" not in event:
        event.add("organizer", f"mailto:{organizer}")


def _set_attendees(event: Event, addresses: Iterable[str], agent: ScheduleAgent) -> None:
    """Those who stay keep what is known of their answer."""
    known = {_address(one): one for one in _people(event)}
    event.pop("ATTENDEE", None)
    for address in addresses:
        person = known.get(address) or vCalAddress(f"mailto:{address}")
        if agent:
            person.params["SCHEDULE-AGENT"] = agent
        event.add("attendee", person)


def _people(event: Event) -> Sequence[Any]:
    found = event.get("ATTENDEE") or []
    return found if isinstance(found, list) else [found]


def _address(person: Any) -> str:
    text = str(person)
    return text[7:] if text.lower().startswith("mailto:") else text


def _addresses(event: Event) -> Iterable[str]:
    return (_address(person) for person in _people(event) if str(person).lower().startswith("mailto:"))


def _text(event: Event, name: str) -> str:
    found = event.get(name, "")
    return str(found[0] if isinstance(found, list) else found)[:_MAX_TEXT]


def _moment(moment: datetime) -> Any:
    holder = Event()
    holder.add("dtstart", moment.astimezone(UTC))
    return holder["DTSTART"]
