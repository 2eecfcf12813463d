"""Availability against recurring-ical-events: another library puts repetitions and exceptions together, by its own lights."""

import asyncio
import warnings
from dataclasses import replace
from datetime import datetime
from itertools import count
from zoneinfo import ZoneInfo

import icalendar
import pytest
import recurring_ical_events
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tests.services.calendar.events import ZONES, events, text
from tests.services.calendar.kit import open_calendar, read, sheet
from tests.services.calendar.oracle import DAY, instant
from tests.services.calendar.test_oracle import minutes, windows

from handrail_reference.services.calendar.library import CalendarLibrary
from handrail_reference.services.calendar.port import Caller

TENANTS = count()
ORDERS = (
    ";TZID={}:",
    ";TZID={};VALUE=DATE-TIME:",
    ";VALUE=DATE-TIME;TZID={}:",
    ';TZID="{}":',
    ';X-NOTE=";TZID=Nowhere:";TZID={}:',
)


@pytest.fixture(scope="module")
def calendars(tmp_path_factory):
    opened = {zone: open_calendar(tmp_path_factory.mktemp("zone"), time_zone=zone) for zone in ZONES}
    yield opened
    for calendar in opened.values():
        asyncio.run(calendar.close())


def definition(zone):
    """A zone of the database, written out under a name that no database knows."""
    lines = icalendar.Timezone.from_tzid(zone).to_ical().decode()
    return lines.replace(f"TZID:{zone}", f"TZID:Own {zone}").replace("\r\n", "\n")


DEFINED = {zone: definition(zone) for zone in ZONES}


def written(event, number, order, own):
    """An event as a file says it: its parameters in this order, its zone by a name of the file's own if wanted."""
    name = f"Own {event.zone}" if own else event.zone
    return text(event, f"u{number}").replace(f";TZID={event.zone}:", order.format(name))


def spans(data, window, kinds, home):
    """When time is taken by the other library's account. Of its moments the wall times are used: which instants these are
    is the business of the zone, and zones that a file defines do not agree about times that clocks skip."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = recurring_ical_events.of(icalendar.Calendar.from_ical(data)).between(
            window[0] - 5 * DAY, window[1] + 5 * DAY
        )
    for one in found:
        if one.get("STATUS") == "CANCELLED" or one.get("TRANSP") == "TRANSPARENT":
            continue
        event = kinds[str(one["UID"])]
        zone = {"utc": ZoneInfo("UTC"), "zoned": ZoneInfo(event.zone)}.get(event.kind, home)
        yield tuple(instant(_wall(moment), zone) for moment in (one.start, one.end))


def _wall(moment):
    if not isinstance(moment, datetime):
        return datetime(moment.year, moment.month, moment.day)
    return moment.replace(tzinfo=None)


def agreed(event):
    """The event in words that both take the same way."""
    if event.kind in ("zoned", "floating"):
        # The other library adds hours of a DURATION by the clock on the wall, where the standard wants them exact.
        event = replace(event, how="DTEND")
    if event.rule is not None and event.rule.byweekno and not event.rule.byday:
        # It takes all seven days of a numbered week, where the standard wants the day of the week on which it starts.
        event = replace(event, rule=replace(event.rule, byday=((0, event.start.weekday()),)))
    if event.rule is not None and event.rule.until is not None:
        # It drops a start that is later than UNTIL; the standard calls the start the first instance, and what a rule that
        # does not contain it gives undefined.
        event = replace(event, rule=replace(event.rule, until=max(event.rule.until, event.start)))
    return event


async def check(calendars, found, orders, owns, window, home):
    calendar, tenant = calendars[home], f"case-{next(TENANTS)}"
    found = [agreed(event) for event in found]
    blocks = [written(*row) for row in zip(found, range(len(found)), orders, owns, strict=False)]
    head = "".join(DEFINED[zone] for zone in sorted({event.zone for event in found}))
    data = sheet(*blocks, head=head)
    reading = read(calendar, data)
    if any("does not reach its COUNT" in one.message for one in reading.problems):
        reject()
    assert reading.problems == []
    await CalendarLibrary(calendar, tenant).take_in([reading], "primary")
    answer = await calendar.availability(
        start=window[0], end=window[1], calendars=["primary"], caller=Caller(tenant=tenant)
    )
    kinds = {f"u{number}": event for number, event in enumerate(found)}
    expected = minutes(spans(data, window, kinds, ZoneInfo(home)), window)
    assert minutes([(one.start, one.end) for one in answer.busy], window) == expected
    assert minutes([(gap.start, gap.end) for gap in answer.free], window) == bytes(1 - minute for minute in expected)


CASE = (
    st.lists(events(), min_size=1, max_size=3),
    st.lists(st.sampled_from(ORDERS), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    windows(),
    st.sampled_from(ZONES),
)


@settings(max_examples=25)
@given(*CASE)
async def test_another_library_finds_the_same_minutes(calendars, found, orders, owns, window, home):
    await check(calendars, found, orders, owns, window, home)


@pytest.mark.long
@settings(max_examples=10_000)
@given(*CASE)
async def test_another_library_finds_the_same_minutes_in_ten_thousand_calendars(
    calendars, found, orders, owns, window, home
):
    await check(calendars, found, orders, owns, window, home)
