"""The conversation of the README in text, with a scripted model: what it calls is looked up, held, approved and told."""

from __future__ import annotations

import asyncio
from typing import Any

from handrail import Call
from handrail.agents import Conversation, TextAgent
from handrail.events import ConfirmationWanted, LateEnvelope
from handrail.testing import PlayedModel, VirtualClock

MONDAY = 1794819600.0
"""Monday, 16 November 2026, 10:00 in Zagreb."""
DETAILS = {"name": "Ana Kovac", "start": "2026-11-17T10:00", "phone": "555 0100"}


def test_the_script_of_the_readme_books_what_was_approved(reception: Any) -> None:
    async def scene() -> None:
        model = PlayedModel(
            [
                [Call("find_slots", {"day": "2026-11-17"}, "call_1")],
                ["Nine, half past nine or ten?"],
                [Call("book_appointment", DETAILS, "call_2")],
                ["Please confirm it."],
                ["You are booked for ten."],
            ]
        )
        async with reception.tools.runtime(clock=VirtualClock(MONDAY)) as runtime:
            session = await runtime.open_session(mode="voice", user="caller")
            agent, conversation = TextAgent(runtime, model, listen=False), Conversation(time_zone="Europe/Zagreb")
            said: list[str] = []
            for words in ("What is free tomorrow?", "Book ten for Ana Kovac, 555 0100"):
                said += [
                    event.data["text"] async for event in agent.run(session, conversation, words) if _is_end(event)
                ]
            assert said == ["Nine, half past nine or ten?", "Please confirm it."]
            free = model.requests[1].messages[-1].envelope["data"]["slots"]
            assert free == ["2026-11-17T09:00", "2026-11-17T09:30", "2026-11-17T10:00"]
            assert reception.bookings() == []

            async for event in session.events():
                if isinstance(event, ConfirmationWanted):
                    assert event.preview.startswith(
                        "Book an appointment for Ana Kovac on Tuesday 17 November 2026, 10:00"
                    )
                    assert (await runtime.approve(event.id, token=event.token)).ok
                if isinstance(event, LateEnvelope):
                    told = await agent.late(session, conversation, event)
                    break
            assert [event.data["text"] for event in told if _is_end(event)] == ["You are booked for ten."]
        assert reception.bookings() == [("Ana Kovac", "2026-11-17T10:00", "555 0100")]

    asyncio.run(scene())


def _is_end(event: Any) -> bool:
    return bool(event.type == "done")
