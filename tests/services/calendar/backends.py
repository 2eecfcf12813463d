"""Every calendar with the names `primary` and `team`, empty, with its clock at `NOW`."""

import asyncio
import threading
from contextlib import contextmanager

from tests.services.calendar.google_server import TOKEN
from tests.services.calendar.kit import NOW
from tests.services.calendar.radicale_server import PASSWORD, USER

from handrail_reference.services.calendar.caldav_calendar import CalDavCalendar
from handrail_reference.services.calendar.caldav_client import CalDavClient
from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.google_calendar import GoogleCalendar
from handrail_reference.services.calendar.google_client import GoogleClient, access_token

BACKENDS = ("embedded", "caldav", "google")
NAMES = ("primary", "team")


@contextmanager
def open_backend(kind, folder, request, **options):
    options = {"clock": NOW.timestamp, **options}
    if kind == "embedded":
        calendar = EmbeddedCalendar(folder / "calendar.db", names=NAMES, **options)
    elif kind == "google":
        calendar = google_calendar(request.getfixturevalue("google"), **options)
    else:
        calendar = caldav_calendar(request.getfixturevalue("radicale_server"), **options)
    try:
        yield calendar
    finally:
        _close(calendar)


def caldav_calendar(server, *, url=None, password=PASSWORD, timeout=8.0, calendars=None, **options):
    url = url or server.url
    client = CalDavClient(url, user=USER, password=password, timeout=timeout)
    return CalDavCalendar(
        client, url=url, calendars=calendars or server.calendars(*NAMES), **{"clock": NOW.timestamp, **options}
    )


def google_calendar(server, *, url=None, token=TOKEN, timeout=8.0, **options):
    async def source(caller):
        return access_token(token)

    client = GoogleClient(source, endpoint=url or server.url, timeout=timeout)
    calendars = {"primary": "primary", "team": "team@group.example.com"}
    return GoogleCalendar(client, calendars=calendars, **{"clock": NOW.timestamp, **options})


def _close(calendar):
    """From a test or from a fixture: a loop may run here already."""
    thread = threading.Thread(target=asyncio.run, args=(calendar.close(),))
    thread.start()
    thread.join()
