"""Two calls of one message wait for a person: each is asked about by itself, and neither spoils the other."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.agents.voice.kit import obedient
from tests.agents.voice.test_revised_wishes import Answering, as_in_production, states_of
from tests.agents.voice.virtual import Microphone, virtual_voice
from tests.clients.live.kit import PROVIDERS

from handrail.testing.servers.live import Ask, Say, Turn, call
from handrail.testing.servers.live.script import Step
from handrail.testing.virtual_time import run_virtually

__all__ = ["as_in_production"]

BOTH = Turn([Ask(call("buy_table", guest="Ana"), call("buy_table", guest="Bob"))])


def talkative(note: str) -> Sequence[Step]:
    """A model that says something to every note of the host, and takes its time."""
    return obedient(note) or [Say("That table is bought now.", pace=0.05)]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_second_question_is_read_once_and_answered(provider: str) -> None:
    async def play() -> None:
        async with virtual_voice(provider, [BOTH]) as case:
            case.server.on_note = talkative
            microphone = Microphone(case.voice, "white", -60.0)
            await case.voice.say("Buy both", id="m1")
            says = Answering(case, provider)
            for guest in ("Ana", "Bob"):
                await case.client.until(lambda _: states_of(case, guest)[-1:] == ["asking"], seconds=30)  # noqa: B023
                await asyncio.sleep(0.5)
                await says.begin()
                await microphone.say(0.3, -25.0)
                await asyncio.sleep(0.3)
                await says.end()
                await asyncio.sleep(0.1)
                await says.words("Yes.")
                await asyncio.sleep(0.1)
                await says.answer()
                bought = [("buy_table", {"guest": guest})]
                await case.tool_log.until(lambda log, bought=bought: log.starts[-1:] == bought, seconds=30)
            await asyncio.sleep(2.0)
            assert states_of(case, "Ana") == states_of(case, "Bob") == ["reading", "asking", "approved"]
            assert "That table is bought now." in case.client.words("model"), "of the last one the model speaks"
            assert str(case.server.received).count("was approved by the person") == 2, "and it knows of both"
            await microphone.close()

    run_virtually(play())
