"""The service `calendar`: the embedded calendar as `[services.calendar]` describes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from handrail_reference.services.calendar.embedded import PRIMARY, EmbeddedCalendar
from handrail_reference.services.meetings import JitsiMeetings


def open_calendar(
    project: Path,
    *,
    path: str = "calendar.db",
    names: Sequence[str] = (PRIMARY,),
    time_zone: str = "UTC",
    meeting_url: str = "https://meet.jit.si",
    forget_events: Literal["delete", "keep"] = "delete",
) -> EmbeddedCalendar:
    """The project's calendar; its file is opened at the first request.

    `names` are every tenant's calendars; `primary` is always among them. `time_zone` is the zone of whole days, of times without
    a zone, and of the times that people are shown. `meeting_url` is the Jitsi server on which meeting rooms are.
    `forget_events` says what becomes of the events of a forgotten user; `keep` removes only the name.
    """
    return EmbeddedCalendar(
        project / path,
        names=names,
        time_zone=time_zone,
        meetings=JitsiMeetings(meeting_url),
        forget_events=forget_events,
    )
