"""Voice conversations on the real SDKs and the local live servers: sound in, calls, sound out, and what is left of it."""

import asyncio
import json

import pytest
from tests.agents.voice.kit import VoiceCase, voice
from tests.clients.live.kit import PROVIDERS

from handrail.contract.model import AssistantMessage, ToolMessage, UserMessage
from handrail.testing.servers.live import Ask, Say, Send, Turn, call, silence, speech

BOOK = call("book_table", guest="Ana")
FIND = call("find_table", place="window")
both = pytest.mark.parametrize("provider", PROVIDERS)


@both
async def test_speech_becomes_a_call_whose_result_is_heard(provider: str) -> None:
    turns = [Turn([Ask(BOOK), Say("Your table is booked.")], hears="A table for Ana")]
    async with voice(provider, turns) as case:
        await case.speak()
        await case.client.until("turn_done")

        assert case.tool_log.starts == [("book_table", {"guest": "Ana"})]
        assert case.server.complaints == []
        ((name, envelope),) = case.server.outcomes
        assert (name, envelope["ok"]) == ("book_table", True)
        (done,) = case.client.of("turn_done")
        assert (done["text"], done["input"], done["interrupted"]) == ("Your table is booked.", "A table for Ana", False)
        (ended,) = case.client.of("audio_end")
        assert sum(len(sound.pcm) for sound in case.client.sounds) == ended["ms"] * 48 > 0
        assert [card["ok"] for card in case.client.of("tool_finished")] == [True]
        assert case.client.words("user") == ["A table for Ana"]
        assert case.client.words("model") == ["Your table is booked."]
        assert done["latency"]["speakingMs"] == ended["ms"]


def _said(case: VoiceCase) -> list[str]:
    return [type(message).__name__ for message in case.conversation.messages]


@both
async def test_the_conversation_keeps_what_was_said_and_called(provider: str) -> None:
    turns = [Turn([Say("Let me look."), Ask(FIND), Say("One is free.")], hears="Is there a table?")]
    async with voice(provider, turns) as case:
        await case.speak()
        await case.client.until("turn_done")
        user, made, answer, said = case.conversation.messages
        assert user == UserMessage("Is there a table?")
        assert isinstance(made, AssistantMessage)
        assert (made.text, made.calls[0].name) == ("Let me look.", "find_table")
        assert isinstance(answer, ToolMessage)
        assert answer.envelope["data"]["for"] == "window"
        assert said == AssistantMessage("One is free.")


@both
async def test_a_model_that_calls_without_end_is_stopped_and_the_turn_is_over(provider: str) -> None:
    find = [Ask(call("find_table", place=str(number))) for number in range(60)]
    async with voice(provider, [Turn([*find, Say("Never.")], hears="Look everywhere")]) as case:
        most = case.voice.reducer.calls.max_rounds
        await case.speak()
        await case.client.until("turn_done")
        assert [one["code"] for one in case.client.of("error")] == ["too_many_rounds"]
        made = [one for one in case.conversation.messages if isinstance(one, ToolMessage)]
        assert len(made) == most
        if provider == "gemini-live":  # it continues after every answer, whatever it was
            async with asyncio.timeout(60):
                ending = await asyncio.shield(case.voice.ending)
            assert (ending.reason, ending.resumable) == ("fault", True)
        assert len([one for one in case.conversation.messages if isinstance(one, ToolMessage)]) == most
        assert "Never." not in case.client.answers


REJECTED = {
    "gemini-live": {"serverContent": {"turnComplete": True, "turnCompleteReason": "PROHIBITED_INPUT_CONTENT"}},
    "openai-realtime": {
        "type": "response.done",
        "event_id": "event_rejected",
        "response": {"id": "resp_1", "status": "failed", "status_details": {"reason": "PROHIBITED_INPUT_CONTENT"}},
    },
}


@both
async def test_a_providers_code_is_no_sentence_for_the_user(provider: str) -> None:
    steps = [Send(json.dumps(REJECTED[provider]))]
    async with voice(provider, [Turn(steps, hears="Something forbidden")]) as case:
        await case.speak()
        await case.client.until("error")
        (error,) = case.client.of("error")
        assert (error["code"], error["message"]) == ("model_failed", "The model could not answer.")
        assert error["detail"] == "PROHIBITED_INPUT_CONTENT"


@pytest.mark.parametrize("frames", [1, 7])
async def test_a_microphone_that_sends_one_sound_over_and_over_is_noticed_once(frames: int) -> None:
    async with voice("openai-realtime", [Turn([Say("Hello.")])]) as case:
        rate = case.voice.input_rates[0]
        clip, size = speech(20 * frames, rate), rate // 50 * 2
        for number in range(120):
            # What is mixed in makes each frame of the clip another, as in life.
            frame = bytes([number % frames]) + clip[number % frames * size :][: size - 1]
            case.voice.hear(frame, rate)
        await case.client.until("error")
        assert [one["code"] for one in case.client.of("error")] == ["repeated_audio"]
        assert len(case.voice.session.state.get("lastAudioFingerprint")) == 16


async def test_silence_is_no_repeated_sound() -> None:
    async with voice("openai-realtime", [Turn([Say("Hello.")])]) as case:
        rate = case.voice.input_rates[0]
        frame = b"\1" * len(silence(20, rate))
        # What is heard again after a long silence was not said all the while.
        for pcm in (frame, *[silence(20, rate)] * 120, frame):
            case.voice.hear(pcm, rate)
        assert case.client.of("error") == []
        assert case.voice.session.state.get("lastAudioFingerprint") is None
