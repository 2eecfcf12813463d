"""Repeated events: exceptions, rules followed from far away, and rules that are bombs."""

from datetime import UTC, datetime, timedelta

import dateutil.rrule
import icalendar
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.services.calendar.kit import busy, fill, open_calendar, sheet
from tests.services.calendar.oracle import DAYS

from handrail_reference.services.calendar.file_import import read_file
from handrail_reference.services.calendar.moments import Moment
from handrail_reference.services.calendar.rules import read_rule
from handrail_reference.services.calendar.series import Series


def series_of(*events, home=UTC):
    reading = read_file("test.ics", sheet(*events), home)
    assert reading.problems == []
    return Series(reading.components, home)


def starts(series, first, last):
    found = series.between(datetime.fromisoformat(first), datetime.fromisoformat(last))
    return sorted(f"{one.start:%m-%dT%H:%M}" for one in found)


WEEKLY = (
    "UID:a\nDTSTART;TZID=Europe/Zagreb:20260105T090000\nDTEND;TZID=Europe/Zagreb:20260105T100000\nRRULE:FREQ=WEEKLY"
)


def test_a_weekly_event_keeps_its_time_on_the_wall_when_clocks_change():
    series = series_of(WEEKLY)
    assert starts(series, "2026-03-20T00:00Z", "2026-04-08T00:00Z") == ["03-23T08:00", "03-30T07:00", "04-06T07:00"]


def test_exdate_takes_away_and_rdate_adds_whatever_zone_they_are_written_in():
    series = series_of(
        f"{WEEKLY};COUNT=4\nEXDATE:20260112T080000Z\nEXDATE;VALUE=DATE:20260119\nRDATE;TZID=America/New_York:20260107T030000"
    )
    assert starts(series, "2026-01-01T00:00Z", "2026-03-01T00:00Z") == ["01-05T08:00", "01-07T08:00", "01-26T08:00"]


def test_rdate_may_be_a_period_with_a_length_of_its_own():
    series = series_of(f"{WEEKLY};COUNT=1\nRDATE;VALUE=PERIOD:20260107T080000Z/PT3H,20260108T080000Z/20260108T083000Z")
    found = series.between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
    assert sorted((one.end - one.start) / timedelta(minutes=1) for one in found) == [30, 60, 180]


def test_an_exception_replaces_its_occurrence_wherever_it_was_moved_to():
    moved = "UID:a\nRECURRENCE-ID;TZID=Europe/Zagreb:20260112T090000\nDTSTART:20260301T120000Z\nDURATION:PT15M\nSUMMARY:Moved"
    series = series_of(WEEKLY, moved)
    assert starts(series, "2026-01-05T00:00Z", "2026-01-20T00:00Z") == ["01-05T08:00", "01-19T08:00"]
    assert starts(series, "2026-03-01T00:00Z", "2026-03-02T00:00Z") == ["03-01T12:00"]


def test_an_exception_from_now_on_moves_all_later_ones_until_the_next():
    later = (
        "UID:a\nRECURRENCE-ID;RANGE=THISANDFUTURE;TZID=Europe/Zagreb:20260119T090000\n"
        "DTSTART;TZID=Europe/Zagreb:20260120T110000\nDURATION:PT30M"
    )
    single = "UID:a\nRECURRENCE-ID:20260202T080000Z\nDTSTART:20260202T150000Z\nDURATION:PT15M"
    series = series_of(WEEKLY, later, single)
    expected = ["01-05T08:00", "01-12T08:00", "01-20T10:00", "01-27T10:00", "02-02T15:00", "02-10T10:00"]
    assert starts(series, "2026-01-01T00:00Z", "2026-02-15T00:00Z") == expected
    assert {one.end - one.start for one in series.between(*_days("2026-01-20", "2026-01-30"))} == {
        timedelta(minutes=30)
    }


def test_an_occurrence_that_is_excluded_stays_so_even_if_it_was_moved_before():
    moved = "UID:a\nRECURRENCE-ID:20260112T080000Z\nDTSTART:20260113T120000Z\nDURATION:PT15M"
    series = series_of(f"{WEEKLY}\nEXDATE:20260112T080000Z", moved)
    assert starts(series, "2026-01-05T00:00Z", "2026-01-20T00:00Z") == ["01-05T08:00", "01-19T08:00"]


def test_an_event_is_found_by_its_middle():
    series = series_of("UID:a\nDTSTART:20260101T220000Z\nDURATION:PT8H\nRRULE:FREQ=DAILY")
    assert starts(series, "2026-01-16T03:00Z", "2026-01-16T04:00Z") == ["01-15T22:00"]
    long = series_of("UID:a\nDTSTART:20260101T000000Z\nDURATION:P40D\nRRULE:FREQ=YEARLY")
    assert starts(long, "2027-02-05T00:00Z", "2027-02-06T00:00Z") == ["01-01T00:00"]


def test_an_exception_whose_event_is_missing_stands_alone():
    series = series_of("UID:a\nRECURRENCE-ID:20260112T090000Z\nDTSTART:20260113T090000Z\nDURATION:PT1H")
    assert starts(series, "2026-01-01T00:00Z", "2026-02-01T00:00Z") == ["01-13T09:00"]


def test_an_exception_may_call_off_one_occurrence():
    off = "UID:a\nRECURRENCE-ID:20260112T080000Z\nDTSTART:20260112T080000Z\nDURATION:PT1H\nSTATUS:CANCELLED"
    found = series_of(WEEKLY, off).between(*_days("2026-01-01", "2026-01-20"))
    assert sorted((one.start.day, one.of.status) for one in found) == [(5, "busy"), (12, "free"), (19, "busy")]


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("UNTIL=20260119T080000Z", "01-19T08:00"),
        ("UNTIL=20260119T075959Z", "01-12T08:00"),
        ("UNTIL=20260119T090000", "01-19T08:00"),
        ("UNTIL=20260119", "01-19T08:00"),
        ("UNTIL=20260118", "01-12T08:00"),
        ("UNTIL=99991231T235959Z", "02-23T08:00"),
        ("COUNT=3", "01-19T08:00"),
    ],
)
def test_the_end_of_a_rule_is_understood_however_it_is_written(until, last):
    assert starts(series_of(f"{WEEKLY};{until}"), "2026-01-01T00:00Z", "2026-03-01T00:00Z")[-1] == last


@pytest.mark.parametrize(
    "event",
    [
        f"{WEEKLY};UNTIL=20250601T000000Z",
        f"{WEEKLY};UNTIL=20260105T075959Z",
        "UID:a\nDTSTART;VALUE=DATE:20260105\nRRULE:FREQ=WEEKLY;UNTIL=20260104",
    ],
)
def test_an_event_whose_rule_has_ended_before_its_start_happens_once(event):
    """RFC 5545, 3.8.5.3: DTSTART is the first instance. A rule without it is left open; rather busy than booked twice."""
    series = series_of(event)
    assert [one[:5] for one in starts(series, "2025-01-01T00:00Z", "2027-01-01T00:00Z")] == ["01-05"]
    first, last = series.bounds()
    assert first.date() == datetime(2026, 1, 5).date() <= last.date()


def test_a_leap_day_comes_every_four_years():
    series = series_of("UID:a\nDTSTART;VALUE=DATE:20200229\nRRULE:FREQ=YEARLY")
    assert starts(series, "2026-01-01T00:00Z", "2033-01-01T00:00Z") == ["02-29T00:00", "02-29T00:00"]


def test_the_last_day_of_every_month():
    series = series_of("UID:a\nDTSTART;VALUE=DATE:20260131\nRRULE:FREQ=MONTHLY;BYMONTHDAY=-1")
    assert starts(series, "2026-01-01T00:00Z", "2026-05-01T00:00Z") == [
        "01-31T00:00",
        "02-28T00:00",
        "03-31T00:00",
        "04-30T00:00",
    ]


def _days(first, last):
    return datetime.fromisoformat(f"{first}T00:00Z"), datetime.fromisoformat(f"{last}T00:00Z")


FAR = st.datetimes(datetime(2018, 1, 1), datetime(2023, 1, 1)).map(lambda wall: wall.replace(second=0, microsecond=0))
SHORT = ["", ";BYDAY=MO,WE", ";BYDAY=SU;WKST=SU", ";BYDAY=SU,MO,SA;WKST=WE", ";BYMONTH=1,2,3", ";BYDAY=TU;BYSETPOS=1"]
LONG = [
    "",
    ";BYMONTHDAY=-1",
    ";BYDAY=2TU",
    ";BYMONTH=1,2",
    ";BYDAY=MO,FR;BYSETPOS=-1",
    ";BYMONTHDAY=29,30,31",
    ";BYHOUR=9",
]
RULES = st.one_of(
    st.tuples(st.sampled_from(["HOURLY", "DAILY", "WEEKLY", "WEEKLY"]), st.integers(1, 40), st.sampled_from(SHORT)),
    st.tuples(st.just("MONTHLY"), st.integers(1, 11), st.sampled_from(LONG)),
    st.tuples(st.just("YEARLY"), st.just(1), st.sampled_from([*LONG, ";BYWEEKNO=1,5,53", ";BYYEARDAY=1,-1,60"])),
)


@given(FAR, RULES)
@settings(max_examples=80)
def test_a_rule_that_is_joined_late_gives_what_it_gives_from_its_start(start, told):
    frequency, interval, more = told
    written = icalendar.vRecur.from_ical(f"FREQ={frequency};INTERVAL={interval}{more}")
    rule = read_rule(written, Moment(start, UTC), UTC)
    first, last = datetime(2026, 1, 10), datetime(2026, 3, 10)
    assert rule._skipped(start, first) > start
    whole = dateutil.rrule.rrulestr(
        f"FREQ={frequency};INTERVAL={interval}{more}{_weekday_of(more, start)}", dtstart=start
    )
    from_start = [wall for wall in whole.between(first, last, inc=True) if first <= wall < last]
    assert list(rule.walls(start, first, last)) == from_start


def _weekday_of(more, start):
    """By RFC 5545 the weekday of a BYWEEKNO comes from the start; dateutil alone takes every day of the week."""
    return f";BYDAY={DAYS[start.weekday()]}" if "BYWEEKNO" in more else ""


@pytest.mark.parametrize("rule", ["FREQ=MONTHLY", "FREQ=YEARLY", "FREQ=MONTHLY;INTERVAL=5;BYDAY=1MO", "FREQ=DAILY"])
def test_a_rule_of_two_hundred_years_is_joined_where_the_window_is(rule, monkeypatch):
    steps = []
    rebuild = dateutil.rrule._iterinfo.rebuild
    monkeypatch.setattr(dateutil.rrule._iterinfo, "rebuild", lambda *args: (steps.append(args), rebuild(*args)))
    series = series_of(f"UID:a\nDTSTART:18000115T090000Z\nDURATION:PT1H\nRRULE:{rule}")
    assert series.between(*_days("2026-01-01", "2026-03-01" if "DAY" not in rule else "2026-09-01"))
    assert 0 < len(steps) < 40


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=31;BYMONTH=4",
        "FREQ=DAILY;INTERVAL=7;BYDAY=TU",
        "FREQ=YEARLY;BYYEARDAY=366;BYMONTH=3",
    ],
)
def test_a_rule_that_never_comes_true_is_given_up_at_the_end_of_the_window(rule, monkeypatch):
    steps = []
    rebuild = dateutil.rrule._iterinfo.rebuild
    monkeypatch.setattr(dateutil.rrule._iterinfo, "rebuild", lambda *args: (steps.append(args), rebuild(*args)))
    series = series_of(f"UID:a\nDTSTART:19900101T000000Z\nDURATION:PT1H\nRRULE:{rule}")
    assert series.between(*_days("2026-01-01", "2026-02-01")) == []
    assert 0 < len(steps) < 500  # months or years; dateutil alone looks on until the year 9999


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("FREQ=SECONDLY", "SECONDLY"),
        ("FREQ=MINUTELY;COUNT=1000000000", "MINUTELY"),
        ("FREQ=DAILY;COUNT=1000000000", "COUNT in its RRULE must be one number from 1 to 10000"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20270101T000000Z", "both COUNT and UNTIL"),
        ("FREQ=HOURLY;BYMINUTE=0,1,2,3,4,5,6,7", "192 times a day"),
        ("FREQ=DAILY;BYHOUR=0,6,12,18;BYMINUTE=0,10,20,30,40,50;BYSECOND=0,10,20,30,40,50", "144 times a day"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=5", "does not reach its COUNT"),
        ("FREQ=FORTNIGHTLY", "RRULE"),
        ("FREQ=WEEKLY;BYDAY=XX", "RRULE"),
        ("FREQ=WEEKLY;BYDAY=2MO", "by the month or year"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "BYMONTHDAY"),
        ("FREQ=YEARLY;BYMONTH=13", "RRULE"),
        ("FREQ=MONTHLY;BYSETPOS=1", "BYSETPOS"),
        ("FREQ=DAILY;RSCALE=CHINESE", "RSCALE"),
        ("BYDAY=MO", "FREQ"),
        ("garbage", "RRULE"),
    ],
)
def test_a_rule_that_is_wrong_or_too_much_is_named(rule, says):
    found = read_file("test.ics", sheet(f"UID:a\nDTSTART:20260101T000000Z\nRRULE:{rule}"), UTC)
    assert found.components == []
    assert says in found.problems[0].message


async def test_a_series_of_two_hundred_years_is_found_at_its_far_end(tmp_path):
    calendar = open_calendar(tmp_path)
    await fill(calendar, "UID:a\nDTSTART:18300101T090000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY")
    assert await busy(calendar, "2026-01-10T00:00Z", "2026-01-11T00:00Z") == [("2026-01-10T09:00", "2026-01-10T10:00")]
    await calendar.close()
