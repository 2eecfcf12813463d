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
