"""Availability against an oracle that tries every day: the same minutes are busy, and the same are free."""

import asyncio
from datetime import UTC, timedelta
from itertools import count
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tests.services.calendar.events import FIRST, ZONES, events, text
from tests.services.calendar.kit import open_calendar, read, sheet
from tests.services.calendar.oracle import DAY, LAST, taken, walls

from handrail_reference.services.calendar.library import CalendarLibrary
from handrail_reference.services.calendar.port import Caller

MINUTE = timedelta(minutes=1)
TENANTS = count()


@st.composite
def windows(draw):
    start = draw(st.datetimes(FIRST, LAST - 40 * DAY)).replace(second=0, microsecond=0, tzinfo=UTC)
    return start, start + draw(st.integers(1, 31 * 1440)) * MINUTE


@pytest.fixture(scope="module")
def calendars(tmp_path_factory):
    """A calendar for each home zone, all in files of their own."""
    opened = {zone: open_calendar(tmp_path_factory.mktemp("zone"), time_zone=zone) for zone in ZONES}
    yield opened
    for calendar in opened.values():
        asyncio.run(calendar.close())


def minutes(spans, window):
    """The minutes of a window that these spans cover."""
    start, end = window
    line = bytearray((end - start) // MINUTE)
    for begun, ended in spans:
        first, last = max((begun - start) // MINUTE, 0), min((ended - start) // MINUTE, len(line))
        if first < last:
            line[first:last] = b"\x01" * (last - first)
    return line


async def check(calendars, primary, team, window, home):
    calendar, zone = calendars[home], ZoneInfo(home)
    tenant = f"case-{next(TENANTS)}"
    for name, found in (("primary", primary), ("team", team)):
        blocks = [text(event, f"{name}-{number}") for number, event in enumerate(found)]
        reading = read(calendar, sheet(*blocks))
        if any("does not reach its COUNT" in one.message for one in reading.problems):
            assert any(event.rule and event.rule.count and len(walls(event, LAST)) < 60 for event in found)
            reject()  # refused on purpose: a rule that hardly ever comes true
        assert reading.problems == []
        await CalendarLibrary(calendar, tenant).take_in([reading], name)
    start, end = window
    answer = await calendar.availability(
        start=start, end=end, calendars=["primary", "team"], caller=Caller(tenant=tenant)
    )
    # No event is longer than three days, or moved further than three days.
    first, last = (moment.replace(tzinfo=None) for moment in (start - 8 * DAY, end + 8 * DAY))
    expected = minutes([span for event in primary + team for span in taken(event, zone, first, last)], window)
    seen = minutes([(one.start, one.end) for one in answer.busy], window)
    free = minutes([(gap.start, gap.end) for gap in answer.free], window)
    assert seen == expected
    assert free == bytes(1 - minute for minute in expected)
    assert answer.busy_minutes == sum(expected)


CASE = (st.lists(events(), min_size=1, max_size=3), st.lists(events(), max_size=2), windows(), st.sampled_from(ZONES))


@settings(max_examples=120)
@given(*CASE)
async def test_the_same_minutes_are_busy_and_free(calendars, primary, team, window, home):
    await check(calendars, primary, team, window, home)


@pytest.mark.long
@settings(max_examples=10_000)
@given(*CASE)
async def test_the_same_minutes_are_busy_and_free_in_ten_thousand_cases(calendars, primary, team, window, home):
    await check(calendars, primary, team, window, home)
