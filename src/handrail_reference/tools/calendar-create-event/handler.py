"""Puts an event into a calendar, once: the key of the call is the event's UID, and a UID has one event."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from handrail import ErrorType, ToolError
from handrail_reference.services.calendar.arguments import (
    arrangements_text,
    caller_of,
    check_times,
    checked_title,
    clashes_text,
    event_data,
    may_still_happen,
    moment_of,
    shown_clock,
    time_text,
)
from handrail_reference.services.calendar.port import Draft


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Create the event; the same key again gives the event that is there."""
    draft = _draft(args, ctx)
    created = await ctx.calendar.create(draft, caller=caller_of(ctx))
    return {"ok": True, "data": event_data(created, draft.start.tzinfo)}


async def preview(args: Mapping[str, Any], ctx: Any) -> str:
    """What a person should know before saying yes: which meeting, who is invited by whom, the time on their own clock where the
    template shows another, how long it is, and what it clashes with."""
    caller = caller_of(ctx)
    try:
        start, end = _times(args, ctx.calendar.now())
        clashes = await ctx.calendar.clashes(start=start, end=end, calendar=args["calendar"], caller=caller)
        found = await ctx.calendar.arrangements(with_meeting=args["include_zoom_link"], caller=caller)
    except ToolError as error:
        if error.type not in (ErrorType.VALIDATION, ErrorType.NOT_FOUND):
            raise  # nobody knows what it clashes with: the person learns that
        return f"It cannot be created like this: {error.message}"
    shown = shown_clock(ctx, start)
    return f"{arrangements_text(found)} {time_text(start, end, shown)} {clashes_text(clashes, shown)}"


async def reconcile(args: Mapping[str, Any], ctx: Any) -> dict[str, Any] | None:
    """Was the event created by a call whose outcome nobody knows? The calendar knows by its UID."""
    if not ctx.capabilities.get("calendar") or may_still_happen(ctx):
        return None
    draft = _draft(args, ctx)
    found = await ctx.calendar.settle_creation(draft, caller=caller_of(ctx))
    if found is not None:
        return {"ok": True, "data": event_data(found, draft.start.tzinfo)}
    message = "The event was not created; the calendar has none of this call."
    return {"ok": False, "error": {"type": "NOT_FOUND", "message": message, "retryable": False}}


def _draft(args: Mapping[str, Any], ctx: Any) -> Draft:
    start, end = _times(args, ctx.calendar.now())
    return Draft(
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


def _times(args: Mapping[str, Any], now: datetime) -> tuple[datetime, datetime]:
    """Start and end, if everything about the event can be."""
    checked_title(args)
    start, end = (moment_of(args, name).replace(microsecond=0) for name in ("start_time", "end_time"))
    check_times(start, end, now)
    return start, end
