"""What day and time it is: on the clock of the person who asks, wherever that is."""

import pytest

from handrail.agents import Conversation


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
