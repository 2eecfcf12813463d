"""Sums, single letters and wishes to be amused are not looked up: whatever were found would be chance."""

import pytest
from tests.agents.inventions import Invented, desk, text

from handrail.agents.offline.manners import small_talk

JOKES = Invented("tell_joke", "utility", "Tells a joke.", {"about": text("What it is about.")}, ())


@pytest.mark.parametrize(
    "words",
    [
        "how much is 12*13?",
        "2+2",
        "2 + 2 = ?",
        "what is 15% of 80?",
        "what is 7 times 8?",
        "what's twelve plus five",
        "calculate 3 * 4",
        "what is the square root of 16?",
        "tell me a joke",
        "can you tell me another funny joke please",
        "sing a song",
        "y",
        "q",
        "?",
    ],
)
async def test_what_cannot_be_looked_up_is_not(at_home, words):
    async with at_home() as here:
        assert "I have no tool for that" in await here.say(words)
        assert here.calls == []


async def test_a_tool_for_it_is_used():
    async with desk(JOKES) as here:
        await here.say("tell me a joke")
        assert [name for name, _ in here.calls] == ["tell_joke"]


@pytest.mark.parametrize(
    "words",
    [
        "What is Handrail?",
        "what is a tool?",
        "how much is kept of a conversation?",
        "tell me the story of Handrail",
        "what are 3 providers?",
    ],
)
async def test_a_question_is_still_looked_up(at_home, words):
    async with at_home() as here:
        await here.say(words)
        assert here.calls[0][0] == "kb_search"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("how are you?", "greeting"),
        ("Hi, how are you doing today?", "greeting"),
        ("hello", "greeting"),
        ("", None),
        ("how are you built?", None),
    ],
)
def test_a_greeting_is_one(words, kind):
    assert small_talk(words) == kind
