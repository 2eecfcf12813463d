"""`GET /calendar/events/{id}`: all of an event for who created it and for operators, for others what availability tells."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.server.kit import KEYS, OPERATOR, OTHER, USER, ServerUnderTest, bearer, in_process

from handrail.server.key_ring import Key, hash_of
from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.file_import import read_file
from handrail_reference.services.calendar.library import CalendarLibrary
from handrail_reference.services.calendar.port import Caller, Draft

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
GUESTS = ("zoe@example.com", "max@example.com")
BACKEND = "hr_backend_key_for_tests_00001"
ALL_KEYS = (*KEYS, Key(name="backend", hash=hash_of(BACKEND), role="user", user=None))
IMPORTED = """BEGIN:VCALENDAR\r
VERSION:2.0\r
PRODID:-//test//EN\r
BEGIN:VEVENT\r
UID:secret@example.com\r
DTSTAMP:20260101T000000Z\r
DTSTART:20260303T090000Z\r
DTEND:20260303T100000Z\r
SUMMARY:Diagnosis\r
CLASS:PRIVATE\r
ATTENDEE:mailto:doctor@example.com\r
END:VEVENT\r
END:VCALENDAR\r
"""


@asynccontextmanager
async def with_calendar(
    folder: Path, busy_ms: int = 5_000, forget_events: str = "delete", **more: Any
) -> AsyncIterator[tuple[ServerUnderTest, EmbeddedCalendar]]:
    calendar = EmbeddedCalendar(folder / "calendar.db", busy_ms=busy_ms, forget_events=forget_events)
    async with in_process(folder, capabilities={"calendar": calendar}, keys=ALL_KEYS, **more) as server:
        yield server, calendar
    await calendar.close()


async def made_by_ana(calendar: EmbeddedCalendar) -> str:
    draft = Draft(
        uid="u1", title="Plans", start=START, end=START + timedelta(hours=1), attendees=GUESTS, with_meeting=True
    )
    return (await calendar.create(draft, caller=Caller(user="ana"))).link


async def test_who_created_an_event_and_operators_see_who_comes_and_where(tmp_path):
    async with with_calendar(tmp_path) as (server, calendar):
        link = await made_by_ana(calendar)
        for key in (USER, OPERATOR, BACKEND):
            shown = (await server.get(link, key)).json()
            assert shown["attendees"] == list(GUESTS)
            assert shown["meetingLink"].startswith("https://")
            assert (shown["title"], shown["attendeeCount"]) == ("Plans", 2)


async def test_another_user_sees_what_availability_tells(tmp_path):
    async with with_calendar(tmp_path) as (server, calendar):
        answer = await server.get(await made_by_ana(calendar), OTHER)
        told = await calendar.availability(
            start=START, end=START + timedelta(hours=1), calendars=["primary"], details=True, caller=Caller(user="bob")
        )
        (busy,) = told.busy
        shown = answer.json()
        assert (shown["title"], shown["attendeeCount"]) == (busy.title, busy.attendees) == ("Plans", 2)
        assert (shown["start"], shown["end"]) == (busy.start.isoformat(), busy.end.isoformat())
        assert shown["attendees"] is shown["meetingLink"] is None
        assert "@" not in answer.text
        assert "://" not in answer.text


async def test_an_imported_event_is_the_operators(tmp_path):
    async with with_calendar(tmp_path) as (server, calendar):
        await CalendarLibrary(calendar).take_in([read_file("a.ics", IMPORTED.encode(), calendar.zone)], "primary")
        found = await calendar.find("secret@example.com")
        assert found is not None
        for key in (USER, OTHER, BACKEND):
            shown = (await server.get(found.link, key)).json()
            hidden = ("title", "attendeeCount", "attendees", "meetingLink")
            assert [shown[name] for name in hidden] == [None, None, None, None]
        shown = (await server.get(found.link)).json()
        assert (shown["title"], shown["attendees"]) == ("Diagnosis", ["doctor@example.com"])


async def test_an_event_stays_its_creators_after_it_was_taken_out_and_in_again(tmp_path):
    async with with_calendar(tmp_path) as (server, calendar):
        link = await made_by_ana(calendar)
        library = CalendarLibrary(calendar)
        changed = (await library.give_out("primary")).replace(b"SUMMARY:Plans", b"SEQUENCE:7\r\nSUMMARY:New plans")
        await library.take_in([read_file("a.ics", changed, calendar.zone)], "primary")
        shown = (await server.get(link, USER)).json()
        assert (shown["title"], shown["attendees"]) == ("New plans", list(GUESTS))
        assert (await server.get(link, OTHER)).json()["attendees"] is None


async def test_events_of_a_forgotten_user_are_gone(tmp_path):
    async with with_calendar(tmp_path) as (server, calendar):
        link = await made_by_ana(calendar)
        await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        assert (await server.get(link, USER)).status_code == 404


async def test_whoever_comes_under_a_forgotten_name_is_not_the_creator_of_what_was_kept(tmp_path):
    async with with_calendar(tmp_path, forget_events="keep") as (server, calendar):
        link = await made_by_ana(calendar)
        await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        shown = (await server.get(link, USER)).json()
        assert (shown["title"], shown["attendees"]) == ("Plans", None)


async def forgotten(server: ServerUnderTest) -> list[dict]:
    lines = (await server.get("/api/audit?limit=1000")).json()["events"]
    return [line for line in lines if line["event"] == "user_forgotten"]


async def test_a_calendar_that_is_locked_keeps_nothing_else_and_is_told(tmp_path):
    async with with_calendar(tmp_path, busy_ms=50) as (server, calendar):
        link = await made_by_ana(calendar)
        ana = await server.open(USER)
        await ana.say("hello")
        with closing(sqlite3.connect(tmp_path / "calendar.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            answer = await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], answer.headers["retry-after"]) == (503, "UNAVAILABLE", "6")
        assert error["message"] == (
            'Everything was deleted but what the service "calendar" keeps: The calendar "calendar.db" is locked by another '
            "process for longer than we wait; try again."
        )
        assert (await server.client.get(f"/api/sessions/{ana.id}", headers=ana.headers)).status_code == 404
        (line,) = await forgotten(server)
        assert (line["ok"], line["left"], line["conversations"]) == (False, ['what the service "calendar" keeps'], 1)
        assert (await server.get(link, USER)).json()["attendees"] == list(GUESTS)

        again = await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        assert again.status_code == 200
        assert (await server.get(link, USER)).status_code == 404
        assert sorted(line["ok"] for line in await forgotten(server)) == [False, True]


async def test_forgetting_somebody_makes_no_calendar(tmp_path):
    async with with_calendar(tmp_path) as (server, _):
        await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        assert not (tmp_path / "calendar.db").exists()


async def test_what_is_no_event_is_not_found(tmp_path):
    async with with_calendar(tmp_path) as (server, calendar):
        await made_by_ana(calendar)
        for name in ("evt_0", "ä", "u1"):
            assert (await server.get(f"/calendar/events/{name}", USER)).status_code == 404
