"""What day and time it is: on the clock of the person who asks, wherever that is."""

from datetime import datetime

import pytest

from handrail.agents import Conversation
from handrail.agents.offline.aloud import aloud


def formatted(here):
    [(name, args)] = here.calls
    assert name == "format_datetime"
    return args


@pytest.mark.parametrize(
    ("words", "zone", "told"),
    [
        ("what is today's date?", "Europe/Zagreb", "Monday, November 16, 2026"),
        ("what's the date today", "Pacific/Auckland", "Monday, November 16, 2026"),
        ("what day is it?", "Europe/Zagreb", "Monday, November 16, 2026"),
        ("What day of the week is it today?", "America/Los_Angeles", "Monday, November 16, 2026"),
        ("what day is tomorrow?", "Pacific/Kiritimati", "Tuesday, November 17, 2026"),
        ("which weekday is 24 December?", "Europe/Zagreb", "Thursday, December 24, 2026"),
        ("what day was yesterday?", "Europe/Zagreb", "Sunday, November 15, 2026"),
        ("what time is it?", "Europe/Zagreb", "10:00 AM"),
        ("what time is it now?", "Pacific/Auckland", "10:00 PM"),
        ("what's the current time?", "America/Los_Angeles", "1:00 AM"),
    ],
)
async def test_the_day_and_the_time_are_those_of_the_conversation(at_home, words, zone, told):
    async with at_home() as here:
        here.conversation = Conversation(time_zone=zone)
        answer = await here.say(words)
        assert formatted(here)["time_zone"] == zone
        assert told in answer


async def test_a_day_that_something_happens_on_is_no_date_to_work_out(at_home):
    async with at_home() as here:
        await here.say("what day is the standup?")
        assert here.calls[0][0] == "kb_search"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("what time is it?", "It is 10:00 AM."),
        ("what time is it in Tokyo?", "It is 6:00 PM in Tokyo."),
        ("what's the time in New York", "It is 4:00 AM in New York."),
        ("what is today's date?", "It is Monday, November 16, 2026."),
        ("what day is tomorrow?", "That is Tuesday, November 17, 2026."),
    ],
)
async def test_a_moment_is_told_in_one_sentence(at_home, words, told):
    async with at_home() as here:
        answer = await here.say(words)
        assert answer.startswith(told)
        assert "offset" not in answer
        assert "Locale" not in answer


@pytest.mark.parametrize(
    ("written", "heard"),
    [
        ("It is 4:27 PM in Tokyo.", "It is four twenty-seven in the afternoon in Tokyo."),
        ("It is 9:05 AM.", "It is nine oh five in the morning."),
        ("It is 12:30 a.m. there.", "It is twelve thirty in the morning there."),
        ("That is 12:00 AM.", "That is midnight."),
        ("Lunch is at 12:00 pm", "Lunch is at noon."),
        ("It is open 9:00 AM – 5:30 PM.", "It is open from nine in the morning to five thirty in the afternoon."),
        ("It is 16:27 there.", "It is four twenty-seven in the afternoon there."),
        ("Utc offset: +09:00.", "Utc offset: +09:00."),
        ("UTC-05:00 is meant.", "UTC-05:00 is meant."),
    ],
)
def test_a_clock_is_heard_as_it_is_said(written, heard):
    assert aloud(written, datetime.fromisoformat("2026-11-16T10:00:00+01:00")) == heard


@pytest.mark.parametrize(
    ("words", "value", "zone", "told"),
    [
        ("What time is 3pm Zagreb in New York?", "16T15:00:00+01:00", "America/New_York", "9:00 AM in New York"),
        ("convert 3pm London time to Tokyo", "16T15:00:00+00:00", "Asia/Tokyo", "12:00 AM in Tokyo on Tuesday 17"),
        ("what time is 3pm london in tokyo", "16T15:00:00+00:00", "Asia/Tokyo", "12:00 AM in Tokyo on Tuesday 17"),
        (
            "If it is 9am in Tokyo, what time is it in London?",
            "17T09:00:00+09:00",
            "Europe/London",
            "12:00 AM in London",
        ),
        ("what time is it in Lima when it is 8 pm in Berlin?", "16T20:00:00+01:00", "America/Lima", "2:00 PM in Lima"),
        ("convert 15:30 from Paris to Los Angeles", "16T15:30:00+01:00", "America/Los_Angeles", "6:30 AM"),
        ("what time is noon UTC in Sydney?", "16T12:00:00+00:00", "Australia/Sydney", "11:00 PM in Sydney"),
    ],
)
@pytest.mark.parametrize("home", ["Europe/Zagreb", "America/Los_Angeles"])
async def test_a_clock_is_that_of_the_place_beside_it(at_home, words, value, zone, told, home):
    async with at_home() as here:
        here.conversation = Conversation(time_zone=home)
        answer = await here.say(words)
        args = formatted(here)
        assert (args["value"], args["time_zone"]) == (f"2026-11-{value}", zone)
        assert told in answer


async def test_a_clock_of_elsewhere_alone_is_told_on_the_own_one(at_home):
    async with at_home() as here:
        assert "That is 3:00 PM." in await here.say("when is 9am New York time for me?")
        assert formatted(here)["time_zone"] == "Europe/Zagreb"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("what time is it in Gotham?", "time zone of Gotham"),
        ("what time is it in gotham", "time zone of gotham"),
        ("what time is 3pm PST in Tokyo?", "time zone of PST"),
        ("what time is it in London and Tokyo at 3pm?", "which place that time is of"),
    ],
)
async def test_a_place_that_is_not_known_is_said_and_not_guessed(at_home, words, told):
    async with at_home() as here:
        assert told in await here.say(words)
        assert here.calls == []


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("book a call with ana@x.com tomorrow at 3pm London time", "17T16:00", "17T17:00"),
        ("book a call with ana@x.com tomorrow at 9 am New York time for 30 minutes", "17T15:00", "17T15:30"),
        ("book a call with ana@x.com tomorrow from 2pm to 4pm london time", "17T15:00", "17T17:00"),
        ("book a call with ana@x.com tomorrow at 3pm", "17T15:00", "17T16:00"),
    ],
)
async def test_a_booking_at_the_time_of_another_place_is_made_at_that_moment(at_home, words, start, end):
    async with at_home() as here:
        await here.say(words)
        made = dict(here.calls)["calendar_create_event"]
        assert (made["start_time"], made["end_time"]) == (f"2026-11-{start}:00+01:00", f"2026-11-{end}:00+01:00")
        assert made["title"] == "Call with Ana"
        assert "location" not in made
