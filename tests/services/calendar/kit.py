"""A calendar in a file of its own, filled from iCalendar text."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.file_import import Reading, read_file
from handrail_reference.services.calendar.library import CalendarLibrary, Report

NOW = datetime(2026, 1, 12, 9, tzinfo=UTC)


def open_calendar(folder: Path, **options: Any) -> EmbeddedCalendar:
    """A calendar whose clock stands at `NOW`."""
    return EmbeddedCalendar(folder / "calendar.db", **{"names": ("team",), "clock": NOW.timestamp, **options})


def sheet(*events: str, head: str = "") -> bytes:
    """A file with these events, each given by its lines."""
    parts = [f"BEGIN:VEVENT\n{event.strip()}\nEND:VEVENT\n" for event in events]
    return f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//test//EN\n{head}{''.join(parts)}END:VCALENDAR\n".encode()


def read(calendar: EmbeddedCalendar, data: bytes) -> Reading:
    return read_file("test.ics", data, calendar.zone)


async def fill(
    calendar: EmbeddedCalendar, *events: str, name: str = "primary", head: str = "", tenant: str = ""
) -> Report:
    """Import these events, which must all be good."""
    reading = read(calendar, sheet(*events, head=head))
    assert reading.problems == []
    return await CalendarLibrary(calendar, tenant).take_in([reading], name)


async def busy(calendar: EmbeddedCalendar, start: str, end: str, **options: Any) -> list[tuple[str, str]]:
    """What is taken, as pairs of texts in UTC."""
    found = await calendar.availability(
        start=datetime.fromisoformat(start), end=datetime.fromisoformat(end), **{"calendars": ["primary"], **options}
    )
    return [(f"{one.start:%Y-%m-%dT%H:%M}", f"{one.end:%Y-%m-%dT%H:%M}") for one in found.busy]
