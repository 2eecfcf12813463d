"""Whoever speaks into the farewell is heard: the end is taken back, recorded as such, and the conversation continues."""

import asyncio
from typing import Any

import pytest
from tests.agents.voice.kit import VoiceCase
from tests.agents.voice.test_revised_wishes import Answering, as_in_production
from tests.agents.voice.virtual import Microphone, provider_side, virtual_voice
from tests.clients.live.kit import PROVIDERS

from handrail.agents.voice.host_port import VoicePolicy
from handrail.contract.model import HostMessage
from handrail.observe.audit import AuditLog
from handrail.testing.servers.live import Ask, Say, Turn, call
from handrail.testing.virtual_time import run_virtually

__all__ = ["as_in_production"]

both = pytest.mark.parametrize("provider", PROVIDERS)
GOODBYE = "Goodbye, and thank you very much for your call. Until next time, and have a nice day."
LEAVE = Turn([Ask(call("leave", closing=GOODBYE)), Say(GOODBYE)])


async def in_the_farewell(case: VoiceCase) -> None:
    await case.voice.say("That was all", id="m1")
    await case.client.until(lambda client: GOODBYE in client.words("model"), seconds=30)
    await asyncio.sleep(0.6)
    assert case.voice.reducer.playback.latest is not None
    assert case.voice.session.state.get("pendingEndVoiceSession") is not None


@both
@pytest.mark.parametrize("noticed", ["at once", "by its words"])
def test_somebody_who_speaks_into_the_farewell_is_answered(provider: str, noticed: str) -> None:
    async def play() -> None:
        async with virtual_voice(provider, [LEAVE]) as case:
            microphone = Microphone(case.voice, "white", -60.0)
            await in_the_farewell(case)
            says = Answering(case, provider)
            if noticed == "at once":
                await says.begin()
                if says.is_gemini:
                    talk: Any = provider_side(case)
                    await talk.send({"serverContent": {"interrupted": True}})
            await microphone.say(1.2, -25.0)
            await asyncio.sleep(0.4)
            if noticed != "at once":
                await says.begin()
            await says.end()
            await asyncio.sleep(0.2)
            await says.words("Wait, one more thing.")
            await asyncio.sleep(0.2)
            await says.answer()
            await asyncio.sleep(60.0)

            assert not case.voice.is_over
            assert case.voice.session.mode == "voice"
            assert case.voice.session.state.get("pendingEndVoiceSession") is None
            assert case.client.answers[-1] == "Fine."
            audit = case.voice.session.core.audit
            assert isinstance(audit, AuditLog)
            audit.flush()
            (line,) = [one for one in audit.events if one["event"] == "intent" and not one["ok"]]
            assert line["intent"]["type"] == "END_VOICE_SESSION"
            assert "taken back" in line["reason"]
            notes = [one.text for one in case.conversation.messages if isinstance(one, HostMessage)]
            assert any("its end was taken back" in note for note in notes)
            assert "its end was taken back" in str(case.server.received), "the model knows"
            await microphone.close()

    run_virtually(play())


@both
def test_a_second_wish_to_leave_ends_it_after_all(provider: str) -> None:
    async def play() -> None:
        async with virtual_voice(provider, [LEAVE]) as case:
            microphone = Microphone(case.voice, "white", -60.0)
            await in_the_farewell(case)
            says = Answering(case, provider)
            await says.begin()
            await microphone.say(0.6, -25.0)
            await asyncio.sleep(0.4)
            await says.end()
            await asyncio.sleep(0.1)
            await says.words("Bye.")
            await asyncio.sleep(0.1)
            case.server.progress.insert_turn(LEAVE.steps)
            says.talk.play()
            async with asyncio.timeout(30):
                ending = await asyncio.shield(case.voice.ending)
            assert ending.closing_message == GOODBYE
            await microphone.close()

    run_virtually(play())


@both
def test_a_noise_into_the_farewell_does_not_keep_the_conversation_open(provider: str) -> None:
    async def play() -> None:
        async with virtual_voice(provider, [LEAVE], policy=VoicePolicy(farewell_seconds=5.0)) as case:
            microphone = Microphone(case.voice, "white", -60.0)
            await in_the_farewell(case)
            await microphone.say(0.2, -25.0)
            async with asyncio.timeout(30):
                ending = await asyncio.shield(case.voice.ending)
            assert ending.closing_message == GOODBYE
            await microphone.close()

    run_virtually(play())


@both
def test_a_blocked_person_ends_nothing_by_speaking_into_the_farewell(provider: str) -> None:
    async def play() -> None:
        async with virtual_voice(provider, [Turn([Ask(call("block")), Say("Hm.")])]) as case:
            microphone = Microphone(case.voice, "white", -60.0)
            await case.voice.say("Insults", id="m1")
            await case.client.until(lambda client: "We stop here." in client.words("model"), seconds=30)
            says = Answering(case, provider)
            await says.begin()
            await microphone.say(0.6, -25.0)
            await asyncio.sleep(0.3)
            await says.end()
            async with asyncio.timeout(60):
                ending = await asyncio.shield(case.voice.ending)
            assert ending.reason == "blocked"
            await microphone.close()

    run_virtually(play())


def test_late_words_of_the_goodbye_itself_take_nothing_back() -> None:
    async def play() -> None:
        async with virtual_voice("openai-realtime", [LEAVE]) as case:
            microphone = Microphone(case.voice, "white", -60.0)
            says = Answering(case, "openai-realtime")
            await asyncio.sleep(1.0)
            await says.begin()
            await microphone.say(0.4, -25.0)
            await asyncio.sleep(0.3)
            await says.end()
            case.server.progress.next_turn()
            says.talk.play()
            await case.client.until(lambda client: GOODBYE in client.words("model"), seconds=30)
            await says.words("Goodbye.")
            async with asyncio.timeout(30):
                ending = await asyncio.shield(case.voice.ending)
            assert ending.closing_message == GOODBYE
            await microphone.close()

    run_virtually(play())
