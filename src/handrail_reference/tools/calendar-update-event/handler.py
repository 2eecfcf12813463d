"""Changes an event of the calendar, once: the event keeps a mark of the call, and a version that is not the newest is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
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
    range_text,
    refused,
    short,
    shown_clock,
    some,
)
from handrail_reference.services.calendar.port import BookedEvent, EventChange

_FIELDS = ("title", "start_time", "end_time", "attendees", "description", "location")


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Change the event; the same key again gives the event as it is."""
    caller = caller_of(ctx)
    change = _change(args, await _event(args, ctx), ctx)
    changed = await ctx.calendar.update(
        args["event_id"], change, key=ctx.idempotency_key, etag=args.get("etag"), caller=caller
    )
    return {"ok": True, "data": event_data(changed, _zone(args, ctx))}


async def preview(args: Mapping[str, Any], ctx: Any) -> str:
    """The event before and after, who is informed, and what it clashes with then."""
    caller = caller_of(ctx)
    try:
        event = await _event(args, ctx)
        change = _change(args, event, ctx)
        start, end = change.start or event.start, change.end or event.end
        clashes = await ctx.calendar.clashes(
            start=start, end=end, calendar=event.calendar, caller=caller, besides=event.uid
        )
        found = await ctx.calendar.arrangements(with_meeting=False, caller=caller)
    except ToolError as error:
        if error.type not in (ErrorType.VALIDATION, ErrorType.NOT_FOUND, ErrorType.CONFLICT):
            raise
        return f"It cannot be changed like this: {error.message}"
    shown = shown_clock(ctx, start)
    stale = " It has changed since it was looked at." if args.get("etag") not in (None, event.etag) else ""
    title = event.title if change.title is None else change.title
    return (
        f"Before: {short(event.title)}, {range_text(event.start, event.end, shown)}.{stale} "
        f"After: {short(title)}, {range_text(start, end, shown)} ({shown}).{_people(event, change)} "
        f"{arrangements_text(found, with_meeting=False)} {clashes_text(clashes, shown)}"
    )


async def reconcile(args: Mapping[str, Any], ctx: Any) -> dict[str, Any] | None:
    """Was the event changed by a call whose outcome nobody knows? It has the call's mark then."""
    if not ctx.capabilities.get("calendar") or may_still_happen(ctx):
        return None
    found = await ctx.calendar.settle_change(args["event_id"], key=ctx.idempotency_key, caller=caller_of(ctx))
    if found is not None:
        return {"ok": True, "data": event_data(found, _zone(args, ctx))}
    message = "The event was not changed; it has no mark of this call."
    return {"ok": False, "error": {"type": "NOT_FOUND", "message": message, "retryable": False}}


async def _event(args: Mapping[str, Any], ctx: Any) -> BookedEvent:
    event: BookedEvent | None = await ctx.calendar.get(args["event_id"], caller=caller_of(ctx))
    if event is None or event.cancelled:
        gone = "is not in the calendar" if event is None else "was cancelled"
        raise ToolError(ErrorType.NOT_FOUND, f'The event "{args["event_id"]}" {gone}.')
    return event


def _change(args: Mapping[str, Any], event: BookedEvent, ctx: Any) -> EventChange:
    if not any(name in args for name in _FIELDS):
        raise refused("event_id", "Nothing is to be changed; name what shall be different.")
    checked_title(args)
    start, end = (
        moment_of(args, name).replace(microsecond=0) if name in args else None for name in ("start_time", "end_time")
    )
    if start is not None and end is None:
        end = start + (event.end - event.start)  # a meeting that is moved keeps its length
    if start is not None or end is not None:
        check_times(start or event.start, end or event.end, ctx.calendar.now())
    return EventChange(
        title=args.get("title"),
        start=start,
        end=end,
        attendees=tuple(args["attendees"]) if "attendees" in args else None,
        description=args.get("description"),
        location=args.get("location"),
    )


def _zone(args: Mapping[str, Any], ctx: Any) -> tzinfo | None:
    """The clock of the answer: that of the call where it names one."""
    named = next((name for name in ("start_time", "end_time") if name in args), None)
    zone: tzinfo | None = moment_of(args, named).tzinfo if named else ctx.calendar.zone
    return zone


def _people(event: BookedEvent, change: EventChange) -> str:
    """Who is new, and who is uninvited."""
    after = event.attendees if change.attendees is None else change.attendees
    added = [one for one in after if one not in event.attendees]
    gone = [one for one in event.attendees if one not in after]
    parts = [f" {word}: {some(people)}." for word, people in (("Added", added), ("Uninvited", gone)) if people]
    return "".join(parts)
