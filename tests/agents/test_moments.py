"""Days and times as people write them, seen from Monday, 16 November 2026, 10:00 in Zagreb."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.offline.moments import Times, read_times
from handrail.agents.offline.numbers import numbers_in

ZAGREB = ZoneInfo("Europe/Zagreb")
NOW = datetime(2026, 11, 16, 10, 0, tzinfo=ZAGREB)


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        ("tomorrow at three", "2026-11-17T15:00", "2026-11-17T16:00"),
        ("tomorrow at 3 pm for 30 minutes", "2026-11-17T15:00", "2026-11-17T15:30"),
        ("next Tuesday 14:30", "2026-11-24T14:30", "2026-11-24T15:30"),
        ("on Tuesday at 9", "2026-11-17T09:00", "2026-11-17T10:00"),
        ("Monday at noon", "2026-11-23T12:00", "2026-11-23T13:00"),
        ("friday from 2 to 4 pm", "2026-11-20T14:00", "2026-11-20T16:00"),
        ("between 10 and 11:30 on Wednesday", "2026-11-18T10:00", "2026-11-18T11:30"),
        ("a meeting 11-1pm tomorrow", "2026-11-17T11:00", "2026-11-17T13:00"),
        ("from 9 to 5 on the 20th", "2026-11-20T09:00", "2026-11-20T17:00"),
        ("in two hours", "2026-11-16T12:00", "2026-11-16T13:00"),
        ("in half an hour", "2026-11-16T10:30", "2026-11-16T11:30"),
        ("half past three today", "2026-11-16T15:30", "2026-11-16T16:30"),
        ("quarter to five on 12.12.2026", "2026-12-12T16:45", "2026-12-12T17:45"),
        ("tonight at 8", "2026-11-16T20:00", "2026-11-16T21:00"),
        ("at 3 in the morning", "2026-11-17T03:00", "2026-11-17T04:00"),
        ("at 9", "2026-11-17T09:00", "2026-11-17T10:00"),
        ("at 11", "2026-11-16T11:00", "2026-11-16T12:00"),
        ("December 5th, 2026 at 8 for two hours", "2026-12-05T08:00", "2026-12-05T10:00"),
        ("5 January at 07:30", "2027-01-05T07:30", "2027-01-05T08:30"),
        ("5/12/2026 at 07:30", "2026-12-05T07:30", "2026-12-05T08:30"),
        ("12/25/2026 at 9am", "2026-12-25T09:00", "2026-12-25T10:00"),
        ("2026-12-01 15:00", "2026-12-01T15:00", "2026-12-01T16:00"),
        ("the day after tomorrow at two o'clock", "2026-11-18T14:00", "2026-11-18T15:00"),
        ("in three days at ten thirty", "2026-11-19T10:30", "2026-11-19T11:30"),
    ],
)
def test_a_moment_is_read_as_people_mean_it(text, begins, ends):
    times = read_times(text, NOW)
    found = times.begins(NOW), times.ends(NOW)
    assert [moment.strftime("%Y-%m-%dT%H:%M") for moment in found] == [begins, ends]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("tomorrow", "2026-11-17T00:00", "2026-11-18T00:00"),
        ("tomorrow afternoon", "2026-11-17T12:00", "2026-11-17T18:00"),
        ("this week", "2026-11-16T00:00", "2026-11-23T00:00"),
        ("next week", "2026-11-23T00:00", "2026-11-30T00:00"),
        ("next month", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("the next three days", "2026-11-16T00:00", "2026-11-20T00:00"),
        ("this weekend", "2026-11-21T00:00", "2026-11-23T00:00"),
        ("last week", "2026-11-09T00:00", "2026-11-16T00:00"),
        ("yesterday", "2026-11-15T00:00", "2026-11-16T00:00"),
    ],
)
def test_a_stretch_of_days_has_a_beginning_and_an_end(text, first, last):
    window = read_times(text, NOW).window(NOW)
    assert [moment.strftime("%Y-%m-%dT%H:%M") for moment in window] == [first, last]


@pytest.mark.parametrize(
    "text",
    [
        "order 1001 please",
        "call 123-456",
        "I may come",
        "top 3 results",
        "version 1.2.3",
        "5 apples",
        "A-1001",
        "what is a sun",
    ],
)
def test_what_is_no_time_is_left_alone(text):
    times = read_times(text, NOW)
    assert not times.has_day
    assert not times.has_clock
    assert times.rest == text


def test_an_answer_to_when_may_be_a_bare_hour():
    assert not read_times("three", NOW).has_clock
    assert read_times("three", NOW, bare=True).start.hour == 15


def test_an_exact_moment_keeps_its_own_offset():
    assert read_times("at 2026-12-01T15:00:00Z", NOW).begins(NOW).isoformat() == "2026-12-01T15:00:00+00:00"


def test_offsets_follow_the_zone_through_summer_time():
    now = datetime(2027, 3, 26, 10, tzinfo=ZAGREB)
    assert read_times("on Monday at 9", now).begins(now).utcoffset() == timedelta(hours=2)
    assert read_times("today at 11", now).begins(now).utcoffset() == timedelta(hours=1)


def test_a_later_text_corrects_an_earlier_one_in_what_it_names():
    earlier = read_times("tomorrow at three for 30 minutes", NOW)
    assert read_times("at 4", NOW).over(earlier).begins(NOW).strftime("%d %H") == "17 16"
    assert read_times("on Friday", NOW).over(earlier).begins(NOW).strftime("%d %H") == "20 15"
    assert read_times("with Ivo", NOW).over(earlier).begins(NOW).strftime("%d %H") == "17 15"
    assert read_times("at 4", NOW).over(earlier).minutes == 30


@pytest.mark.parametrize(
    "text",
    ["in 99999999999 weeks", "in 9999999 days at 3", "99999999 hours ago", "0000-00-00", "99.99.9999", "the 99th"],
)
def test_times_that_cannot_be_do_not_break_the_reader(text):
    assert isinstance(read_times(text, NOW), Times)


SAID = "tomorrow next at three 14:30 for 30 minutes Tuesday in two hours from to 4 pm the 17th of May - . , half past"
WORDS = st.sampled_from(sorted(set(SAID.split())))


@given(st.lists(st.one_of(WORDS, st.text(max_size=6)), max_size=12).map(" ".join))
def test_any_text_gives_times_that_make_sense(text):
    times = read_times(text, NOW)
    begin, end = times.begins(NOW), times.ends(NOW)
    assert (begin is None) == (end is None)
    if begin is not None and not len(times.exact) > 1:
        assert end > begin or times.minutes == 0
    assert len(times.rest) == len(text)


def test_numbers_are_those_that_stand_for_themselves():
    assert [value for *_, value in numbers_in("3 of 1,200 and -4.5, two dozen; not A-17, 14:30 or #12")] == [
        3,
        1200,
        -4.5,
        2,
        12,
    ]
