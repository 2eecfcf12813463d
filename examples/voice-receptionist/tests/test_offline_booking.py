"""What the README tells to say, said to the offline model: without a provider, a key or a network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from handrail.agents import Conversation, TextAgent
from handrail.agents.offline import OfflineModel
from handrail.testing import VirtualClock

MONDAY = 1794819600.0
"""Monday, 16 November 2026, 10:00 in Zagreb."""


async def _say(reception: Any, *said: str) -> list[tuple[str, Any]]:
    """Say this, one after the other; the calls that were made."""
    calls: list[tuple[str, Any]] = []
    async with reception.tools.runtime(clock=VirtualClock(MONDAY)) as runtime:
        session = await runtime.open_session(mode="voice", user="caller")
        agent, conversation = TextAgent(runtime, OfflineModel()), Conversation(time_zone="Europe/Zagreb")
        for number, words in enumerate(said):
            async for event in agent.run(session, conversation, words, message_id=f"m{number}"):
                if event.type == "tool_started":
                    calls.append((event.data["toolId"], event.data["args"]))
    return calls


@pytest.mark.parametrize(
    "said",
    [
        ["Book an appointment for Ana Kovac tomorrow at ten, phone 555 0100"],
        ["I'd like an appointment tomorrow at ten", "Ana Kovac, 555 0100"],
        ["I need an appointment", "Tomorrow at ten", "My name is Ana Kovac", "My number is 555 0100"],
    ],
)
def test_the_script_of_the_readme_books_what_was_said(reception: Any, said: list[str]) -> None:
    booked = {"name": "Ana Kovac", "start": "2026-11-17T10:00", "phone": "555 0100"}
    assert asyncio.run(_say(reception, *said)) == [("book_appointment", booked)]


def test_free_times_are_looked_up_for_the_day_that_was_said(reception: Any) -> None:
    assert asyncio.run(_say(reception, "What is free tomorrow?")) == [("find_slots", {"day": "2026-11-17"})]
