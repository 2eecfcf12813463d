"""The event that a calendar tool's `html_link` names, for people who follow it. Only where the embedded calendar is.

Whoever made the event, and operators, see all of it; others see what the calendar tells anybody about a time that is taken.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from handrail.contract.errors import ToolError
from handrail.server.keys import Key
from handrail.server.parts import key_of, parts_of
from handrail.server.problems import Problem, answer

_TENANT = ""
"""Sessions of the server belong to no tenant, and so do the calendars that their users share."""


async def show_event(request: Request) -> Response:
    calendar = parts_of(request).runtime.capabilities.get("calendar")
    database = getattr(calendar, "database", None)
    event_id = str(request.path_params["event"])
    if calendar is None or database is None or not event_id.isascii():
        raise _none()

    def look(db: Any) -> Any:
        return db.execute(
            """SELECT item.uid, title, private, attendees, created_by FROM item
               JOIN calendar ON calendar.id = calendar_id WHERE event_id = ? AND tenant = ?""",
            (event_id, _TENANT),
        ).fetchone()

    try:
        row = await database.read(look)
        found = await calendar.find(row[0], tenant=_TENANT) if row is not None else None
    except ToolError as error:
        raise Problem(503, error.message, retry_after=5) from None
    if found is None:
        raise _none()
    _, title, private, attendees, creator = row
    own = _is_for(key_of(request), creator)
    shown = own or not private
    return answer(
        {
            "eventId": event_id,
            "title": title if shown else None,
            "calendar": found.calendar,
            "start": found.start.isoformat(),
            "end": found.end.isoformat(),
            "attendeeCount": attendees if shown else None,
            "attendees": list(found.attendees) if own else None,
            "meetingLink": found.meeting_link if own else None,
        }
    )


def _is_for(key: Key, creator: str | None) -> bool:
    """An event that was imported has no creator: it is the operators'."""
    return key.is_operator or (creator is not None and key.may_use(creator))


def _none() -> Problem:
    return Problem(404, "There is no such event.")
