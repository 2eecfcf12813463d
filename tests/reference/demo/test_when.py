"""Days and times: a clear one is read, everything else becomes a question. It is Monday, 16 November 2026, 10:00."""

from datetime import datetime, time
from zoneinfo import ZoneInfo

import pytest

from handrail_reference.demo.when import read_when

NOW = datetime(2026, 11, 16, 10, 0, tzinfo=ZoneInfo("Europe/Zagreb"))


@pytest.mark.parametrize(
    ("words", "day", "clock", "minutes"),
    [
        ("lunch thurs 12:30", "2026-11-19", "12:30", None),
        ("tomorrow at three in the afternoon", "2026-11-17", "15:00", None),
        ("in two weeks at 10", "2026-11-30", "10:00", None),
        ("on the 3rd at noon", "2026-12-03", "12:00", None),
        ("the 31st at noon", "2026-12-31", "12:00", None),
        ("22 nov 14:00", "2026-11-22", "14:00", None),
        ("Dec 24th 6pm", "2026-12-24", "18:00", None),
        ("january 5 at 9", "2027-01-05", "09:00", None),
        ("24.12.2026 10:00", "2026-12-24", "10:00", None),
        ("2026-11-20T15:00", "2026-11-20", "15:00", None),
        ("friday the 20th at 2pm", "2026-11-20", "14:00", None),
        ("tuesday next week at 11", "2026-11-24", "11:00", None),
        ("half past four pm the day after tomorrow", "2026-11-18", "16:30", None),
        ("quarter to five in the afternoon on friday", "2026-11-20", "16:45", None),
        ("thursday evening at six thirty", "2026-11-19", "18:30", None),
        ("3-4pm on friday", "2026-11-20", "15:00", 60),
        ("from 3 to 4:30 tomorrow afternoon", "2026-11-17", "15:00", 90),
        ("from 10 to 1 tomorrow", "2026-11-17", "10:00", 180),
        ("tomorrow from 2pm to 4", "2026-11-17", "14:00", 120),
        ("tomorrow from 3am to 4", "2026-11-17", "03:00", 60),
        ("tomorrow at 2 pm for an hour and a half", "2026-11-17", "14:00", 90),
        ("tomorrow 4 in the morning", "2026-11-17", "04:00", None),
        ("tomorrow at 04:00", "2026-11-17", "04:00", None),
        ("tomorrow at 12", "2026-11-17", "12:00", None),
        ("tomorrow at 10 for one and a half hours", "2026-11-17", "10:00", 90),
        ("tomorrow at 10 for 2.5 hours", "2026-11-17", "10:00", 150),
        ("tomorrow at 10 for half an hour", "2026-11-17", "10:00", 30),
        ("the march report with May on friday at 2pm", "2026-11-20", "14:00", None),
        ("book room 4 tomorrow at 9:15", "2026-11-17", "09:15", None),
        ("tuesday", "2026-11-17", None, None),
        ("tmrw 14:30", "2026-11-17", "14:30", None),
        ("tomorrow at 1pm for 1h30", "2026-11-17", "13:00", 90),
        ("tomorrow at 1pm, 1h", "2026-11-17", "13:00", 60),
        ("tomorrow at 1pm for 1h 20min", "2026-11-17", "13:00", 80),
        ("45min tomorrow at 1pm", "2026-11-17", "13:00", 45),
        ("90min tomorrow at 1pm", "2026-11-17", "13:00", 90),
        ("tomorrow at 1pm for 9h", "2026-11-17", "13:00", 540),
        ("tomorrow for 2 hours 3pm", "2026-11-17", "15:00", 120),
        ("at four pm", None, "16:00", None),
        ("from 23:30 to 00:30 tomorrow night", "2026-11-17", "23:30", 60),
        ("from 11 pm to 1 am on friday", "2026-11-20", "23:00", 120),
        ("from 10 pm to 11 tomorrow", "2026-11-17", "22:00", 60),
        ("tomorrow at 1 pm, ending at 3", "2026-11-17", "13:00", 120),
        ("tomorrow until 3 pm, starting at 1 pm", "2026-11-17", "13:00", 120),
        ("tomorrow at 1 pm up to 3 pm", "2026-11-17", "13:00", 120),
        ("move it to 3 pm", None, "15:00", None),
    ],
)
def test_what_is_clear_is_read(words: str, day: str | None, clock: str | None, minutes: int | None) -> None:
    when = read_when(words, NOW)
    assert (when.questions, when.several) == ([], False)
    assert (when.day and str(when.day), when.clock and f"{when.clock:%H:%M}", when.minutes) == (day, clock, minutes)


@pytest.mark.parametrize(
    "words",
    [
        "next friday 3pm",
        "monday morning",
        "next week at 9",
        "yesterday at 5",
        "10 november at 9",
        "Sunday 17 November at 3pm",
        "friday the 19th at 2pm",
        "november 31 at 9",
        "29 february at 9",
        "5/6 at 10am",
        "friday week at 3pm",
        "a week from tuesday at 1pm",
        "friday in december at 3pm",
        "end of month at 2pm",
        "every thursday at 9",
        "tomorow at 3pm",
        *(f"tomorrow at {hour}" for hour in (*range(1, 8), "four", "4:30")),
        "half past four tomorrow",
        "from 3 to 4:30 tomorrow",
        "tomorrow at 25:00",
        "wednesday at midnight",
        "tomorrow at 3pm CET",
        "tomorrow at 3pm london time",
        "tomorrow between 2 and 4",
        "tomorrow after 3pm",
        "tomorrow at 1530",
        "tomorrow 15h",
        "tomorrow 14h30",
        "in half an hour",
        "tomorrow from 4 to 3",
        "tomorrow at 10 for 2.25 hours",
        *(f"tomorrow {limit} 3 pm" for limit in ("by", "before", "around", "no later than", "to")),
        "tomorrow by 3",
        "tomorrow from 3 pm to 2 pm",
        "tomorrow at 1 pm for an hour until 3 pm",
    ],
)
def test_what_is_not_clear_is_asked_about(words: str) -> None:
    when = read_when(words, NOW)
    assert when.questions
    assert when.day is None or when.clock is None or when.minutes is None


@pytest.mark.parametrize(
    "end", ["until", "till", "up to", "ends at", "finishing at", "ending", "over by", "wraps up at"]
)
def test_an_end_alone_is_no_start(end: str) -> None:
    when = read_when(f"tomorrow {end} 3 pm", NOW)
    assert (when.clock, when.minutes, when.hint) == (None, None, "until 15:00")
    assert read_when(f"{end} 3 pm", NOW, time(13)).minutes == 120


@pytest.mark.parametrize("words", ["tomorrow at 3 and friday at 4", "friday 3pm or 4pm", "tuesday or wednesday at 9"])
def test_two_days_or_times_are_several(words: str) -> None:
    assert read_when(words, NOW).several
