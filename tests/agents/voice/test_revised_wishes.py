"""A wish that is revised in the answer takes the place of the question, be the call, the words or the judgement first."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.agents.voice.kit import VoiceCase
from tests.agents.voice.test_spoken_confirmation import question
from tests.agents.voice.virtual import Microphone, provider_side, virtual_voice
from tests.clients.live.kit import PROVIDERS

from handrail.testing.servers.live import Ask, Say, Turn, call
from handrail.testing.virtual_time import run_virtually

both = pytest.mark.parametrize("provider", PROVIDERS)
FIRST = call("buy_table", guest="for four")
REVISED = call("buy_table", guest="for six")
WORDS = "Yes, but for six."


@pytest.fixture(autouse=True)
def as_in_production(words_settle_soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()


class Answering:
    """Somebody says something, and the provider tells of it and makes a call, in any order."""

    def __init__(self, case: VoiceCase, provider: str) -> None:
        self.case = case
        self.talk = provider_side(case)
        self.is_gemini = provider == "gemini-live"

    async def begin(self) -> None:
        if not self.is_gemini:
            self.talk.utterances.append(self.talk._name("item"))
            await self.talk.event(
                "input_audio_buffer.speech_started", audio_start_ms=0, item_id=self.talk.utterances[-1]
            )

    async def end(self) -> None:
        if not self.is_gemini:
            await self.talk.event("input_audio_buffer.speech_stopped", audio_end_ms=0, item_id=self.talk.utterances[-1])

    async def words(self, text: str) -> None:
        utterance = 0 if self.is_gemini else len(self.talk.utterances)
        await self.talk.tell_words(utterance, text)

    async def answer(self) -> None:
        self.case.server.progress.insert_turn([Say("Fine.")])
        self.talk.play()

    async def call(self) -> None:
        self.case.server.progress.insert_turn([Ask(REVISED)])
        self.talk.play()


async def asked(case: VoiceCase) -> None:
    await case.voice.say("Buy it", id="m1")
    await case.client.until(lambda client: "asking" in question(client), seconds=30)
    await asyncio.sleep(0.4)


def states_of(case: VoiceCase, guest: str) -> list[str]:
    requests = {one["id"] for one in case.client.of("confirmation") if one["args"]["guest"] == guest}
    assert len(requests) < 2
    return [one["state"] for one in case.client.of("question") if one["id"] in requests]


@both
@pytest.mark.parametrize("order", ["words, call", "call, words", "words, answer, judged, call", "call", "yes, call"])
def test_a_revised_call_is_asked_about_in_the_place_of_the_old_one(provider: str, order: str) -> None:
    async def play() -> None:
        async with virtual_voice(provider, [Turn([Ask(FIRST)])]) as case:
            microphone = Microphone(case.voice, "white", -60.0)
            await asked(case)
            await asyncio.sleep(1.0)
            says = Answering(case, provider)
            await says.begin()
            await microphone.say(1.0, -25.0)
            await asyncio.sleep(0.3)
            await says.end()
            for step in order.split(", "):
                await asyncio.sleep(0.1)
                acts: dict[str, Callable[[], Awaitable[None]]] = {
                    "words": lambda: says.words(WORDS),
                    "yes": lambda: says.words("Yes."),
                    "call": says.call,
                    "answer": says.answer,
                    "judged": lambda: case.client.until(lambda client: "missed" in question(client), seconds=30),
                }
                await acts[step]()
            await case.client.until(lambda client: len(client.of("confirmation")) >= 2, seconds=30)
            await case.client.until(lambda client: states_of(case, "for six")[-1:] == ["asking"], seconds=60)
            assert states_of(case, "for four")[-1] == "screen"
            assert case.tool_log.starts == []
            if order == "call":
                await microphone.close()
                return  # where nobody names words, the next ones may be those that have not come

            await asyncio.sleep(0.5)
            await says.begin()
            await microphone.say(0.3, -25.0)
            await asyncio.sleep(0.3)
            await says.end()
            await asyncio.sleep(0.1)
            await says.words("Yes.")
            await asyncio.sleep(0.1)
            await says.answer()
            await case.tool_log.until(lambda tool_log: bool(tool_log.starts), seconds=30)
            assert case.tool_log.starts == [("buy_table", {"guest": "for six"})]
            await microphone.close()

    run_virtually(play())
