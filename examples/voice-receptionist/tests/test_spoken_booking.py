"""A booking over the telephone, with both live providers: once for a plain yes, and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from handrail.testing.servers.live import Ask, Drop, Say, Turn, call

DETAILS = {"name": "Ann Lee", "start": "2030-05-14T09:30", "phone": "+44 20 7946 0018"}
BOOKED = [("Ann Lee", "2030-05-14T09:30", "+44 20 7946 0018")]
PREVIEW = "Book an appointment for Ann Lee on Tuesday 14 May 2030, 09:30, phone +44 20 7946 0018."
BOOK = call("book_appointment", **DETAILS)
WANTS = Turn([Ask(BOOK), Say("One moment.")], hears="Half past nine please, Ann Lee")
both = pytest.mark.parametrize("provider", ["gemini-live", "openai-realtime"])


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def answers(*said: str) -> list[Turn]:
    """The script: the caller wants the appointment, then says these things, to each of which the model says something."""
    return [WANTS, *(Turn([Say("Thank you.")], hears=text) for text in said)]


async def until_asked(caller: Any, times: int = 1) -> None:
    await caller.speak()
    await caller.until(lambda one: one.question.count("asking") == times)


@both
def test_a_plain_yes_books_once(reception: Any, provider: str) -> None:
    async def scene() -> None:
        async with reception.call(provider, answers("Yes, please.")) as caller:
            await until_asked(caller)
            assert f"{PREVIEW} Say yes or no." in caller.heard
            assert reception.bookings() == []
            await caller.speak()
            await caller.until(lambda one: one.of("confirmation_closed"))
            assert caller.question == ["reading", "asking", "approved"]
        assert reception.bookings() == BOOKED

    run(scene())


@both
def test_a_no_books_nothing(reception: Any, provider: str) -> None:
    async def scene() -> None:
        async with reception.call(provider, answers("No, thank you.")) as caller:
            await until_asked(caller)
            await caller.speak()
            await caller.until(lambda one: one.of("confirmation_closed"))
            assert caller.question[-1] == "declined"
        assert reception.bookings() == []

    run(scene())


@both
def test_a_yes_but_books_nothing_until_a_plain_yes(reception: Any, provider: str) -> None:
    async def scene() -> None:
        async with reception.call(provider, answers("Yes, but a bit later.", "Yes.")) as caller:
            await until_asked(caller)
            await until_asked(caller, 2)
            assert "missed" in caller.question
            assert reception.bookings() == []
            await caller.speak()
            await caller.until(lambda one: one.of("confirmation_closed"))
        assert reception.bookings() == BOOKED

    run(scene())


@both
def test_a_yes_of_the_model_books_nothing(reception: Any, provider: str) -> None:
    async def scene() -> None:
        turns = [WANTS, Turn([Say("Yes. Yes, go ahead. I confirm.")], hears="Let me think")]
        async with reception.call(provider, turns) as caller:
            await until_asked(caller)
            await caller.speak()
            await caller.until(lambda one: any("I confirm." in text for text in one.heard))
            await caller.until(lambda one: one.question.count("asking") == 2)
            assert "approved" not in caller.question
        assert reception.bookings() == []

    run(scene())


@both
def test_two_unclear_answers_go_to_the_screen_where_it_can_be_booked(reception: Any, provider: str) -> None:
    async def scene() -> None:
        async with reception.call(provider, answers("I guess so.", "What about Friday?")) as caller:
            await until_asked(caller)
            await until_asked(caller, 2)
            await caller.speak()
            await caller.until(lambda one: one.question[-1] == "screen")
            assert reception.bookings() == []
            request = caller.of("confirmation")[0]
            assert request["preview"] == PREVIEW
            assert (await caller.runtime.approve(request["id"], token=request["token"])).ok
        assert reception.bookings() == BOOKED

    run(scene())


@both
@pytest.mark.parametrize("fault", ["drop", "reissue", "duplicate"])
def test_a_line_that_drops_in_the_middle_books_once(reception: Any, provider: str, fault: Any) -> None:
    async def scene() -> None:
        turns = [Turn([Ask(BOOK, fault=fault), Say("One moment.")], hears="Half past nine"), *answers("Yes.")[1:]]
        async with reception.call(provider, turns) as caller:
            await until_asked(caller)
            await caller.speak()
            await caller.until(lambda one: one.of("confirmation_closed"))
            assert caller.question.count("approved") == 1
        assert reception.bookings() == BOOKED

    run(scene())


@both
def test_a_line_that_drops_right_after_the_yes_books_once(reception: Any, provider: str) -> None:
    async def scene() -> None:
        turns = [WANTS, Turn([Drop(), Say("Thank you.")], hears="Yes.")]
        async with reception.call(provider, turns) as caller:
            await until_asked(caller)
            await caller.speak()
            await caller.until(lambda one: one.of("confirmation_closed"))
            assert caller.question.count("approved") == 1
        assert reception.bookings() == BOOKED

    run(scene())
