"""Writes one appointment into the book, under the key of the call."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from handrail import ErrorType, ToolError

from .bookings import Taken, book, find


def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Book it, if it is a time that can be booked and nobody has it."""
    _check(args["start"], ctx.now)
    try:
        number = book(ctx.idempotency_key, args["name"], args["start"], args["phone"])
    except Taken:
        message = f"{args['start']} has been taken."
        raise ToolError(ErrorType.CONFLICT, message, suggestion="Offer another time from find_slots.") from None
    return _answer(number, args)


def reconcile(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Asked about a call whose outcome nobody knows: the book knows it by its key."""
    number = find(ctx.idempotency_key)
    if number is not None:
        return _answer(number, args)
    message = "The appointment was not booked; the book has no booking of this call."
    return {"ok": False, "error": {"type": "NOT_FOUND", "message": message, "retryable": False}}


def _check(start: str, now: float) -> None:
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        raise _refused(f"{start} is no date and time.") from None
    if moment.weekday() >= 5 or not 9 <= moment.hour < 17 or moment.minute not in (0, 30):
        raise _refused(f"{start} is outside the opening hours: Monday to Friday, nine to five, every half hour.")
    if moment < datetime.fromtimestamp(now, UTC).replace(tzinfo=None):
        raise _refused(f"{start} has passed.")


def _refused(message: str) -> ToolError:
    return ToolError(ErrorType.VALIDATION, message, suggestion="Take a time from find_slots.")


def _answer(number: int, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"ok": True, "data": {"booking": f"B-{number}", "start": args["start"]}}
