"""The event that a calendar tool's `html_link` names, for people who follow it. Only where the embedded calendar is."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from handrail.contract.errors import ToolError
from handrail.server.parts import parts_of
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
            """SELECT item.uid, item.title, item.private FROM item JOIN calendar ON calendar.id = calendar_id
               WHERE event_id = ? AND tenant = ?""",
            (event_id, _TENANT),
        ).fetchone()

    try:
        row = await database.read(look)
        found = await calendar.find(row[0], tenant=_TENANT) if row is not None else None
    except ToolError as error:
        raise Problem(503, error.message, retry_after=5) from None
    if found is None:
        raise _none()
    private = bool(row[2])
    return answer(
        {
            "eventId": event_id,
            "title": None if private else row[1],
            "calendar": found.calendar,
            "start": found.start.isoformat(),
            "end": found.end.isoformat(),
            "attendees": [] if private else list(found.attendees),
            "meetingLink": None if private else found.meeting_link,
        }
    )


def _none() -> Problem:
    return Problem(404, "There is no such event.")
