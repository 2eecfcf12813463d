"""What the calendar's tools have in common: moments read and refused in one way, events and facts written in one form."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from handrail import ErrorType, ToolError
from handrail_reference.services.calendar.booking import SETTLING_SECONDS
from handrail_reference.services.calendar.port import Arrangements, BookedEvent, Busy, Caller

_LONGEST = timedelta(days=366)
_OLDEST = timedelta(days=366)
_YEARS_AHEAD = 50
_SHOWN_CLASHES = 3
_SHOWN_PEOPLE = 3
_SHORT = 60
_MEETINGS = {
    "zoom": "Zoom meeting",
    "meet": "Google Meet in place of Zoom",
    "jitsi": "Jitsi room in place of Zoom",
    "none": "No online meeting",
}
_INVITATIONS = {
    "service": "the calendar service invites the attendees",
    "mail": "the attendees are invited by mail",
    "none": "no invitations are sent",
}


_WHO_INVITES = {
    "service": "The calendar service tells the attendees",
    "mail": "The attendees are told by mail",
    "none": "The attendees are not told",
}


def may_still_happen(ctx: Any) -> bool:
    """Whether what an unknown call has asked of the calendar may be under way: it is too early to say that it did not happen."""
    settling: float = getattr(ctx.calendar, "settling_seconds", SETTLING_SECONDS)
    return settling > 0 and bool(ctx.since_deadline < settling)


def caller_of(ctx: Any) -> Caller:
    """For whom the call is made."""
    return Caller(user=ctx.user, tenant=ctx.tenant, secrets=ctx.secrets if ctx.capabilities.get("secrets") else None)


def moment_of(args: Mapping[str, Any], name: str) -> datetime:
    """The moment that an argument names.

    The schema has checked the form, but RFC 3339 knows moments that Python does not: leap seconds, the year 0.
    """
    text = args[name].upper()
    try:
        moment = datetime.fromisoformat(f"{text[:17]}59{text[19:]}" if text[17:19] == "60" else text)
        moment.timestamp()
    except (ValueError, OverflowError):
        raise refused(name, f'"{args[name]}" is no date that a calendar has.') from None
    return moment


def refused(name: str, message: str) -> ToolError:
    """The refusal of an argument."""
    return ToolError(ErrorType.VALIDATION, message, details=[{"pointer": f"/{name}"}])


def text_of(moment: datetime, zone: tzinfo | None) -> str:
    """The moment on the clock of a zone, UTC as `Z`."""
    text = moment.astimezone(zone).isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def checked_title(args: Mapping[str, Any]) -> None:
    if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in args.get("title", "")):
        raise refused("title", "The title has control characters or line breaks; write it as one plain line.")


def check_times(start: datetime, end: datetime, now: datetime) -> None:
    """Refuse an event at a time that cannot be meant."""
    if not start < end:
        raise refused("end_time", "The event does not end after it starts; end_time must come after start_time.")
    if end - start > _LONGEST:
        raise refused("end_time", f"The event is longer than {_LONGEST.days} days.")
    if start < now - _OLDEST:
        raise refused("start_time", "The event starts more than a year ago; check the year.")
    if end.year > now.year + _YEARS_AHEAD:
        raise refused("end_time", f"The event lies more than {_YEARS_AHEAD} years ahead; check the year.")


def event_data(event: BookedEvent, zone: tzinfo | None) -> dict[str, Any]:
    """The event as the tools that write answer with it."""
    return {
        "event_id": event.event_id,
        "uid": event.uid,
        "etag": event.etag,
        "html_link": event.link,
        "title": event.title,
        "status": "cancelled" if event.cancelled else "confirmed",
        "meeting_link": event.meeting_link,
        "meeting_provider": event.meeting_provider,
        "calendar": event.calendar,
        "start": text_of(event.start, zone),
        "end": text_of(event.end, zone),
        "attendees": list(event.attendees),
        "invitations": event.invitations,
        "invited": list(event.invited),
        "warnings": list(event.warnings),
        "conflicts": [
            {
                "start": text_of(one.start, zone),
                "end": text_of(one.end, zone),
                "status": one.status,
                "calendar": one.calendar,
            }
            for one in event.conflicts
        ],
    }


def clock_of(ctx: Any) -> tzinfo | None:
    """The zone that the host has named for its calendar, or the person's own; where nobody has named one, the offset that
    the call is written in is the only clock there is."""
    zone: tzinfo = ctx.calendar.zone
    if str(zone) != "UTC":
        return zone
    theirs: tzinfo | None = ctx.local_time.zone if ctx.capabilities.get("local_time") else None
    return theirs


def arrangements_text(found: Arrangements, *, with_meeting: bool = True) -> str:
    """Which meeting it will be, and who tells the attendees."""
    if with_meeting:
        return f"{_MEETINGS[found.meeting_provider]}; {_INVITATIONS[found.invitations]}."
    return f"{_WHO_INVITES[found.invitations]}."


def range_text(start: datetime, end: datetime, zone: tzinfo) -> str:
    begun, ended = start.astimezone(zone), end.astimezone(zone)
    last = f"{ended:%H:%M}" if begun.date() == ended.date() else f"{ended:%a %d %b %Y, %H:%M}"
    return f"{begun:%a %d %b %Y, %H:%M}–{last}"


def length_text(length: timedelta) -> str:
    days, seconds = length.days, length.seconds
    parts = [(days, "d"), (seconds // 3600, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def clashes_text(clashes: Sequence[Busy], zone: tzinfo) -> str:
    if not clashes:
        return "No clashes."
    shown = "; ".join(f"{range_text(one.start, one.end, zone)} in {one.calendar}" for one in clashes[:_SHOWN_CLASHES])
    more = f"; and {len(clashes) - _SHOWN_CLASHES} more" if len(clashes) > _SHOWN_CLASHES else ""
    return f"Clashes with {len(clashes)} busy time{'' if len(clashes) == 1 else 's'}: {shown}{more}."


def time_text(start: datetime, end: datetime, shown: tzinfo) -> str:
    """How long it takes; and on the person's own clock, where the call is written on another."""
    length = length_text(end - start)
    if all(moment.astimezone(shown).utcoffset() == moment.utcoffset() for moment in (start, end)):
        return f"It takes {length}."
    return f"Local time: {range_text(start, end, shown)} ({shown}), {length}."


def shown_clock(ctx: Any, start: datetime) -> tzinfo:
    return clock_of(ctx) or start.tzinfo or UTC


def short(title: str) -> str:
    """A title that stands between other facts."""
    return f'"{title}"' if len(title) <= _SHORT else f'"{title[: _SHORT - 1]}…"'


def some(people: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(people) - _SHOWN_PEOPLE} more" if len(people) > _SHOWN_PEOPLE else ""
    return f"{', '.join(people[:_SHOWN_PEOPLE]) or 'nobody'}{more}"
