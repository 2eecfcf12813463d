"""What is missing is asked for; what no tool does is said, and no switch is looked for that nobody turned."""

import pytest


@pytest.mark.parametrize(
    ("words", "reply", "title", "start"),
    [
        ("book lunch with Marko", "marko@example.com, Friday at noon", "Lunch with Marko", "20T12:00"),
        ("schedule dinner with Marko", "tomorrow at 7pm, marko@example.com", "Dinner with Marko", "17T19:00"),
        ("set up coffee with Marko please", "marko@example.com tomorrow at 11", "Coffee with Marko", "17T11:00"),
        ("can you plan a review with Marko?", "friday at 9:30 with marko@example.com", "Review with Marko", "20T09:30"),
    ],
)
async def test_who_and_when_are_asked_for_and_the_answer_is_taken(at_home, words, reply, title, start):
    async with at_home() as here:
        answer = await here.say(words)
        assert "address for Marko" in answer
        assert "When?" in answer
        await here.say(reply)
        made = dict(here.calls)["calendar_create_event"]
        assert (made["title"], made["attendees"]) == (title, ["marko@example.com"])
        assert made["start_time"] == f"2026-11-{start}:00+01:00"


@pytest.mark.parametrize(
    "words",
    [
        "remind me to call mum tomorrow at 9",
        "make it four",
        "approve it",
        "book a table",
        "book a flight with Lufthansa",
    ],
)
async def test_what_was_never_here_is_not_said_to_be_switched_off(at_home, words):
    async with at_home() as here:
        answer = await here.say(words)
        assert "I have no tool for that" in answer
        assert "switched off" not in answer
        assert here.calls == []


async def test_what_was_here_before_may_be_switched_off(at_home):
    async with at_home() as here:
        await here.say("book a meeting with ana@example.com tomorrow at three")
        here.runtime.switches = {"calendar_create_event": "being mended"}
        answer = await here.say("book a meeting with zoe@example.com on friday at ten")
        assert "it may be switched off" in answer
        assert here.calls == []
        assert "switched off" not in await here.say("book a flight with Lufthansa")
