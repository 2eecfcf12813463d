"""Conversations in which anything goes wrong at any moment: no booking is made twice, and what was booked is told."""

import asyncio
from contextlib import suppress
from random import Random
from typing import get_args

import pytest
from tests.clients.live.kit import IMPATIENT, PROVIDERS, LiveCase, conversation

from handrail.contract.live import Closed
from handrail.testing.servers.live import Ask, Fault, Pause, Say, Turn, call

FAULTS = [None, None, *get_args(Fault)]
both = pytest.mark.parametrize("provider", PROVIDERS)


def script(random: Random) -> list[Turn]:
    turns = []
    for number in range(40):  # more than will be played: a lost input skips one
        steps: list[Ask | Say | Pause] = []
        if random.random() < 0.3:
            steps.append(Say("One moment.", pace=random.choice((0.0, 0.01))))
        steps.append(Ask(call("book_table", guest=f"guest-{number};"), fault=random.choice(FAULTS)))
        steps.append(Pause(random.choice((0.0, 0.0, 0.02))))
        steps.append(Say(f"Done {number}.", pace=random.choice((0.0, 0.005))))
        turns.append(Turn(steps, hears=f"A table for guest {number}"))
    return turns


async def one_turn(case: LiveCase, random: Random) -> None:
    """Speak, let things happen, and wait until it is answered or nothing more can be hoped for."""
    before = len(case.host.answered)
    await case.host.speak()
    if random.random() < 0.35:
        await asyncio.sleep(random.random() * 0.1)
        case.server.cut_all()
    if random.random() < 0.25:
        await asyncio.sleep(random.random() * 0.05)
        await case.host.speak()
    with suppress(TimeoutError):  # what the user said was lost with a connection: the user says it again
        await case.host.until(lambda host: len(host.answered) > before, seconds=3)


async def play(provider: str, seed: int) -> None:
    random = Random(seed)
    async with conversation(provider, script(random), limits=IMPATIENT) as case:
        for _ in range(5):
            await one_turn(case, random)
        booked = [args["guest"] for name, args in case.book.starts if name == "book_table"]
        assert len(booked) == len(set(booked)), f"seed {seed}: booked twice"
        async with asyncio.timeout(30):
            while not all(f'"for":"{guest}"' in _told(case) for guest in booked):
                await asyncio.sleep(0.02)
    assert isinstance(case.host.events[-1], Closed)


def _told(case: LiveCase) -> str:
    """Everything that the client sent, with one kind of quotes."""
    return str(case.server.received).replace("\\", "").replace("'", '"').replace(": ", ":")


@both
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_booked_twice_and_every_booking_is_told(provider: str, seed: int) -> None:
    await play(provider, seed)


@pytest.mark.long
@both
@pytest.mark.parametrize("seed", range(100, 250))
async def test_nothing_is_booked_twice_in_many_conversations(provider: str, seed: int) -> None:
    await play(provider, seed)
