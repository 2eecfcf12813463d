"""Calls an event off, with its meeting, and tells the attendees. An event that is off already is not there any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail import ErrorType, ToolError
from handrail_reference.services.calendar.arguments import (
    arrangements_text,
    caller_of,
    event_data,
    may_still_happen,
    range_text,
    short,
    shown_clock,
    some,
)

_NOT_A_LINE = ("conflicts", "meeting_link")


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    event = await ctx.calendar.cancel(
        args["event_id"],
        key=ctx.idempotency_key,
        etag=args.get("etag"),
        message=args.get("message", ""),
        caller=caller_of(ctx),
    )
    return {"ok": True, "data": _data(event, ctx)}


async def preview(args: Mapping[str, Any], ctx: Any) -> str:
    """What is called off, and who is informed."""
    caller = caller_of(ctx)
    event = await ctx.calendar.get(args["event_id"], caller=caller)
    if event is None or event.cancelled:
        return "It cannot be cancelled: the event is not in the calendar."
    found = await ctx.calendar.arrangements(with_meeting=False, caller=caller)
    shown = shown_clock(ctx, event.start)
    stale = " It has changed since it was looked at." if args.get("etag") not in (None, event.etag) else ""
    meeting = (
        f" Its {event.meeting_provider.capitalize()} meeting goes with it." if event.meeting_provider != "none" else ""
    )
    return (
        f"{short(event.title)}, {range_text(event.start, event.end, shown)} ({shown}), with {some(event.attendees)}, is "
        f"cancelled.{stale}{meeting} "
        f"{arrangements_text(found, with_meeting=False)}"
    )


async def reconcile(args: Mapping[str, Any], ctx: Any) -> dict[str, Any] | None:
    """Is the event off, after a call whose outcome nobody knows?"""
    if not ctx.capabilities.get("calendar") or may_still_happen(ctx):
        return None
    is_off, event = await ctx.calendar.settle_cancellation(
        args["event_id"], key=ctx.idempotency_key, message=args.get("message", ""), caller=caller_of(ctx)
    )
    if is_off and event is not None:
        return {"ok": True, "data": _data(event, ctx)}
    if is_off:
        data = {
            "event_id": args["event_id"],
            "status": "cancelled",
            "invitations": "none",
            "invited": [],
            "warnings": [],
        }
        return {"ok": True, "data": data}
    error = ToolError(ErrorType.NOT_FOUND, "The event was not cancelled; it is in the calendar.")
    return {"ok": False, "error": {"type": error.type.value, "message": error.message, "retryable": False}}


def _data(event: Any, ctx: Any) -> dict[str, Any]:
    whole = event_data(event, ctx.calendar.zone)
    return {name: value for name, value in whole.items() if name not in _NOT_A_LINE}
