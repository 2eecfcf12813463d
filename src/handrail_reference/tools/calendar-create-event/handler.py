"""Puts an event into a calendar, once: the key of the call is the event's UID, and a UID has one event."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from handrail import ErrorType, ToolError
from handrail_reference.services.calendar.arguments import moment_of, refused, text_of
from handrail_reference.services.calendar.port import Draft

_LONGEST = timedelta(days=366)
_OLDEST = timedelta(days=366)
_YEARS_AHEAD = 50
_SHOWN_CLASHES = 3


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Create the event; the same key again gives the event that is there."""
    start, end = _checked(args, ctx.calendar.now())
    draft = Draft(
        uid=ctx.idempotency_key,
        title=args["title"],
        start=start,
        end=end,
        attendees=tuple(args["attendees"]),
        description=args.get("description", ""),
        location=args.get("location", ""),
        calendar=args["calendar"],
        with_meeting=args["include_zoom_link"],
    )
    created = await ctx.calendar.create(draft, user=ctx.user, tenant=ctx.tenant)
    return _answer(created, start.tzinfo)


async def preview(args: Mapping[str, Any], ctx: Any) -> str:
    """What a person should know before saying yes: the time on their own clock where the template shows another, how long it
    is, and what it clashes with."""
    try:
        start, end = _checked(args, ctx.calendar.now())
        clashes = await ctx.calendar.clashes(
            start=start, end=end, calendar=args["calendar"], user=ctx.user, tenant=ctx.tenant
        )
    except ToolError as error:
        if error.type not in (ErrorType.VALIDATION, ErrorType.NOT_FOUND):
            raise  # nobody knows what it clashes with: the person is told that
        return f"It cannot be created like this: {error.message}"
    shown = _local(ctx) or start.tzinfo or UTC
    length, clash = _length(end - start), _clashes(clashes, shown)
    if all(moment.astimezone(shown).utcoffset() == moment.utcoffset() for moment in (start, end)):
        return f"It takes {length}. {clash}"
    return f"Local time: {_range(start, end, shown)} ({shown}), {length}. {clash}"


def _local(ctx: Any) -> tzinfo | None:
    """The zone that the host has named for its calendar, or the person's own; where nobody has named one, the offset that
    the call is written in is the only clock there is."""
    zone: tzinfo = ctx.calendar.zone
    if str(zone) != "UTC":
        return zone
    theirs: tzinfo | None = ctx.local_time.zone if ctx.capabilities.get("local_time") else None
    return theirs


async def reconcile(args: Mapping[str, Any], ctx: Any) -> dict[str, Any] | None:
    """Was the event created by a call whose outcome nobody knows? The calendar knows by its UID."""
    if not ctx.capabilities.get("calendar"):
        return None
    found = await ctx.calendar.find(ctx.idempotency_key, user=ctx.user, tenant=ctx.tenant)
    if found is not None:
        return _answer(found, moment_of(args, "start_time").tzinfo)
    message = "The event was not created; no event in the calendar has its UID."
    return {"ok": False, "error": {"type": "NOT_FOUND", "message": message, "retryable": False}}


def _checked(args: Mapping[str, Any], now: datetime) -> tuple[datetime, datetime]:
    """Start and end, if everything about the event can be."""
    if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in args["title"]):
        raise refused("title", "The title has control characters or line breaks; write it as one plain line.")
    start, end = (moment_of(args, name).replace(microsecond=0) for name in ("start_time", "end_time"))
    if not start < end:
        raise refused("end_time", "The event does not end after it starts; end_time must come after start_time.")
    if end - start > _LONGEST:
        raise refused("end_time", f"The event is longer than {_LONGEST.days} days.")
    if start < now - _OLDEST:
        raise refused("start_time", "The event starts more than a year ago; check the year.")
    if end.year > now.year + _YEARS_AHEAD:
        raise refused("end_time", f"The event lies more than {_YEARS_AHEAD} years ahead; check the year.")
    return start, end


def _answer(created: Any, zone: tzinfo | None) -> dict[str, Any]:
    return {
        "ok": True,
        "data": {
            "event_id": created.event_id,
            "uid": created.uid,
            "html_link": created.link,
            "meeting_link": created.meeting_link,
            "calendar": created.calendar,
            "start": text_of(created.start, zone),
            "end": text_of(created.end, zone),
            "attendees": list(created.attendees),
            "conflicts": [
                {
                    "start": text_of(one.start, zone),
                    "end": text_of(one.end, zone),
                    "status": one.status,
                    "calendar": one.calendar,
                }
                for one in created.conflicts
            ],
        },
    }


def _range(start: datetime, end: datetime, zone: tzinfo) -> str:
    begun, ended = start.astimezone(zone), end.astimezone(zone)
    last = f"{ended:%H:%M}" if begun.date() == ended.date() else f"{ended:%a %d %b %Y, %H:%M}"
    return f"{begun:%a %d %b %Y, %H:%M}–{last}"


def _length(length: timedelta) -> str:
    days, seconds = length.days, length.seconds
    parts = [(days, "d"), (seconds // 3600, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def _clashes(clashes: Any, zone: tzinfo) -> str:
    if not clashes:
        return "No clashes."
    shown = "; ".join(f"{_range(one.start, one.end, zone)} in {one.calendar}" for one in clashes[:_SHOWN_CLASHES])
    more = f"; and {len(clashes) - _SHOWN_CLASHES} more" if len(clashes) > _SHOWN_CLASHES else ""
    return f"Clashes with {len(clashes)} taken: {shown}{more}."
