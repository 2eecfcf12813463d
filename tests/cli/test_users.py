"""`handrail users forget`: what the server deletes the command deletes as well."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from handrail.app import open_calendar
from handrail.services.calendar.port import Draft
from handrail.settings import load_settings

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture
def events(built):
    """A project with an event of Ana's and one of Bob's."""

    async def make() -> None:
        calendar = open_calendar(load_settings(built, {}))
        for place, user in enumerate(("ana", "bob")):
            start = START + timedelta(days=place)
            draft = Draft(uid=user, title="Plans", start=start, end=start + timedelta(hours=1))
            await calendar.create(draft, user=user)
        await calendar.close()

    asyncio.run(make())
    return built / "calendar.db"


def creators(file):
    with closing(sqlite3.connect(file)) as db:
        return [row[0] for row in db.execute("SELECT created_by FROM item ORDER BY start")]


def test_who_created_an_event_is_wiped_though_no_tool_needs_the_calendar(handrail, events):
    assert creators(events) == ["ana", "bob"]
    said = handrail("users", "forget", "ana", "--yes", "--json")
    assert (said.code, json.loads(said.out)["user"]) == (0, "ana")
    assert creators(events) == [None, "bob"]


def test_a_calendar_that_cannot_be_read_is_named_and_keeps_nothing_else(handrail, events):
    events.write_bytes(b"no database " * 500)
    said = handrail("users", "forget", "ana", "--yes")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("handrail users: Everything was deleted but who created calendar events: The calendar ")
    assert said.err.count("\n") == 1


def test_forgetting_somebody_makes_no_calendar(handrail, built):
    assert handrail("users", "forget", "ana", "--yes").code == 0
    assert not (built / "calendar.db").exists()
