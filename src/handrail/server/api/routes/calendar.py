"""The event that a calendar tool's `html_link` names, for people who follow it. Only where the service `calendar`
can describe one (`describe_event`).

Whoever made the event, and operators, see all of it; others see what the calendar tells anybody about a time that is taken.
"""

from __future__ import annotations

from starlette.responses import Response

from handrail.contract.errors import ToolError
from handrail.server.api.http import ApiRequest, HttpProblem, answer
from handrail.server.key_ring import Key

_TENANT = ""
"""Sessions of the server belong to no tenant, and so do the calendars that their users share."""


async def show_event(request: ApiRequest) -> Response:
    calendar = request.context.runtime.capabilities.get("calendar")
    describe = getattr(calendar, "describe_event", None)
    event_id = str(request.path_params["event"])
    if describe is None or not event_id.isascii():
        raise _none()
    try:
        found = await describe(event_id, tenant=_TENANT)
    except ToolError as error:
        raise HttpProblem(503, error.message, retry_after=5) from None
    if found is None:
        raise _none()
    event = found.event
    own = _is_for(request.key, found.creator)
    shown = own or not found.private
    return answer(
        {
            "eventId": event_id,
            "title": found.title if shown else None,
            "calendar": event.calendar,
            "start": event.start.isoformat(),
            "end": event.end.isoformat(),
            "attendeeCount": found.attendee_count if shown else None,
            "attendees": list(event.attendees) if own else None,
            "meetingLink": event.meeting_link if own else None,
        }
    )


def _is_for(key: Key, creator: str | None) -> bool:
    """An event that was imported has no creator: it is the operators'."""
    return key.is_operator or (creator is not None and key.may_use(creator))


def _none() -> HttpProblem:
    return HttpProblem(404, "There is no such event.")
