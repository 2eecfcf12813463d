"""Which times are taken and which are free. Titles only on request, and never those of private events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Any

from handrail_reference.services.calendar.arguments import caller_of, moment_of, refused, text_of

_LONGEST = timedelta(days=31)
_OLDEST = timedelta(days=366)
_YEARS_AHEAD = 50
_MAX_LISTED = 500


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Everything that is taken in the range, and every gap that is long enough."""
    start, end = moment_of(args, "start_date"), moment_of(args, "end_date")
    _check_range(start, end, ctx.calendar.now())
    found = await ctx.calendar.availability(
        start=start,
        end=end,
        calendars=args["calendars"],
        details=args["include_details"],
        min_minutes=args["min_duration_minutes"],
        caller=caller_of(ctx),
    )
    zone = start.tzinfo
    slots = [
        {"start": text_of(gap.start, zone), "end": text_of(gap.end, zone), "duration_minutes": gap.minutes}
        for gap in found.free
    ]
    return {
        "ok": True,
        "data": {
            "date_range": {"start": args["start_date"], "end": args["end_date"]},
            "existing_events": [_event(one, zone, args["include_details"]) for one in found.busy[:_MAX_LISTED]],
            "available_slots": slots,
            "summary": _summary(found, slots, args["min_duration_minutes"]),
        },
    }


def _check_range(start: datetime, end: datetime, now: datetime) -> None:
    if not start < end:
        raise refused("end_date", "The range ends before it begins; end_date must come after start_date.")
    if end - start > _LONGEST:
        raise refused("end_date", f"The range is longer than {_LONGEST.days} days; ask for a part of it.")
    if start < now - _OLDEST:
        raise refused("start_date", "The range begins more than a year ago; ask for later dates.")
    if end.year > now.year + _YEARS_AHEAD:
        raise refused("end_date", f"The range lies more than {_YEARS_AHEAD} years ahead; ask for earlier dates.")


def _event(one: Any, zone: tzinfo | None, details: bool) -> dict[str, Any]:
    event = {
        "start": text_of(one.start, zone),
        "end": text_of(one.end, zone),
        "status": one.status,
        "calendar": one.calendar,
    }
    return {**event, "title": one.title, "attendees": one.attendees} if details else event


def _summary(found: Any, slots: list[dict[str, Any]], least: int) -> str:
    events = _counted(len(found.busy), "event")
    cut = f" (the first {_MAX_LISTED} are listed)" if len(found.busy) > _MAX_LISTED else ""
    free = sum(slot["duration_minutes"] for slot in slots)
    return (
        f"{events} taking {_counted(found.busy_minutes, 'minute')}{cut}; "
        f"{_counted(len(slots), 'free slot')} of at least {least} minutes, {_counted(free, 'minute')} in all."
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
