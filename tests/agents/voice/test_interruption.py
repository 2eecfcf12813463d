"""The user speaks into the answer, or into a call: what stops, what continues, and what the model and the chat know of it."""

import asyncio

import pytest
from tests.agents.voice.kit import Client, voice
from tests.clients.live.kit import PROVIDERS

from handrail.contract.model import AssistantMessage, ToolMessage
from handrail.testing.servers.live import Ask, Say, Turn, call

BOOK = call("book_table", guest="Ana")
FIND = call("find_table", place="window")
both = pytest.mark.parametrize("provider", PROVIDERS)


@both
async def test_speaking_into_the_answer_flushes_it_and_the_next_turn_is_answered(provider: str) -> None:
    turns = [Turn([Say("A long story. " * 40, pace=0.05)], hears="Hello"), Turn([Say("Yes?")], hears="Stop")]
    async with voice(provider, turns, client=Client(reports=False)) as case:
        await case.speak()
        await case.client.until(lambda client: client.sounds)
        item = case.client.sounds[0].item
        case.voice.played(item, 60)
        await case.speak()
        await case.client.until(lambda client: "Yes?" in client.answers)

        assert case.client.of("flush")[0]["item"] == item
        first, *_ = case.client.of("turn_done")
        assert first["interrupted"] is True
        assert case.client.of("turn_done")[-1]["interrupted"] is False
        assert case.server.complaints == []
        if provider == "openai-realtime":
            (cut,) = [one for one in case.server.received if one["type"] == "conversation.item.truncate"]
            assert cut["audio_end_ms"] == 60


@both
async def test_a_reading_call_is_cancelled_by_the_users_voice(provider: str) -> None:
    turns = [Turn([Ask(FIND), Say("There is one.")], hears="Hello"), Turn([Say("Yes?")], hears="Wait")]
    async with voice(provider, turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("find_table") == 1)
        await case.speak()
        await case.client.until(lambda client: "Yes?" in client.answers)

        assert case.tool_log.cancelled == ["find_table"]
        assert case.client.of("turn_done")[0]["interrupted"] is True
        (card,) = [*case.client.of("tool_finished"), *case.client.of("tool_refused")]
        assert card["error"]["type"] == "CANCELLED"
        assert case.server.complaints == []


@both
async def test_a_writing_call_is_finished_and_told_silently(provider: str) -> None:
    turns = [Turn([Ask(BOOK), Say("It is booked.")], hears="Hello"), Turn([Say("Yes?")], hears="Wait")]
    async with voice(provider, turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("book_table") == 1)
        await case.speak()
        await case.client.until(lambda client: "Yes?" in client.answers)
        spoken = len(case.client.words("model"))
        case.tool_log.may_finish.set()
        await case.client.until("tool_finished")

        assert case.tool_log.ends == [("book_table", {"guest": "Ana"})]
        (answer,) = [one for one in case.conversation.messages if isinstance(one, ToolMessage)]
        assert answer.envelope["ok"] is True
        await _was_told(case.server, provider)
        assert len(case.client.words("model")) == spoken
        assert case.server.complaints == []


async def _was_told(server: object, provider: str) -> None:
    """The model has the outcome, and was not asked to speak of it."""

    def told() -> bool:
        received = server.received  # type: ignore[attr-defined]
        if provider == "openai-realtime":
            last = [one for one in received if one["type"] != "input_audio_buffer.append"][-1]
            return last["type"] == "conversation.item.create" and "receipt" in str(last)
        contents = [one["client_content"] for one in received if "client_content" in one]
        return bool(contents) and "receipt" in str(contents[-1]) and not contents[-1].get("turnComplete")

    async with asyncio.timeout(30):
        while not told():
            await asyncio.sleep(0.01)


@both
async def test_a_reading_call_that_is_to_finish_goes_on(provider: str) -> None:
    turns = [
        Turn([Ask(call("watch_table", place="door")), Say("Seen.")], hears="Hello"),
        Turn([Say("Yes?")], hears="Wait"),
    ]
    async with voice(provider, turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("watch_table") == 1)
        await case.speak()
        await case.client.until(lambda client: "Yes?" in client.answers)
        assert case.tool_log.cancelled == []
        case.tool_log.may_finish.set()
        await case.client.until("tool_finished")
        assert case.client.of("tool_finished")[0]["ok"] is True


@both
async def test_the_chat_keeps_only_what_was_heard_of_an_answer_that_was_cut(provider: str) -> None:
    turns = [
        Turn([Say("One two three four five six seven eight nine ten.")], hears="Hello"),
        Turn([Say("Yes?")], hears="Stop"),
    ]
    async with voice(provider, turns, client=Client(reports=False)) as case:
        await case.speak()
        await case.client.until("turn_done")
        (ended,) = case.client.of("audio_end")
        case.voice.played(ended["item"], ended["ms"] // 2)
        await case.speak()
        await case.client.until(lambda client: "Yes?" in client.answers)
        (cut, yes) = [one for one in case.conversation.messages if isinstance(one, AssistantMessage)]
        assert cut.text == "One two three four five …"
        assert yes.text == "Yes?"


@both
async def test_the_stop_button_silences_the_answer_and_the_conversation_goes_on(provider: str) -> None:
    turns = [Turn([Say("A long story. " * 40, pace=0.02)], hears="Hello"), Turn([Say("Yes?")], hears="Next")]
    async with voice(provider, turns, client=Client(reports=False)) as case:
        await case.speak()
        await case.client.until(lambda client: client.sounds)
        await case.voice.interrupt()
        await case.client.until("turn_done")
        before = len(case.client.sounds)
        assert case.client.of("turn_done")[0]["interrupted"] is True
        await case.speak()
        await case.client.until(lambda client: "Yes?" in client.answers)
        later = {sound.item for sound in case.client.sounds[before:]}
        assert later == {case.client.of("audio_end")[-1]["item"]}


@both
async def test_typed_words_stop_the_answer_and_are_answered(provider: str) -> None:
    turns = [Turn([Say("A long story. " * 40, pace=0.02)], hears="Hello"), Turn([Say("Two.")])]
    async with voice(provider, turns, client=Client(reports=False)) as case:
        await case.speak()
        await case.client.until(lambda client: client.sounds)
        await case.voice.say("What is one and one?", id="m1")
        await case.client.until(lambda client: "Two." in client.answers)
        (first, second) = case.client.of("turn_done")
        assert (first["interrupted"], second["interrupted"]) == (True, False)
        assert (second["inputId"], second["input"]) == ("m1", "What is one and one?")
        assert case.server.complaints == []


async def test_a_call_that_the_provider_takes_back_is_stopped_alone() -> None:
    other = call("find_table", place="door")
    turns = [Turn([Ask(FIND, other), Say("There is one by the door.")], hears="Hello")]
    async with voice("gemini-live", turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("find_table") == 2)
        provider = case.server.conversations[-1]
        await provider.send({"toolCallCancellation": {"ids": [next(iter(provider.open))]}})
        await case.tool_log.until(lambda tool_log: tool_log.cancelled)
        case.tool_log.may_finish.set()
        await case.client.until("tool_finished")
        assert case.tool_log.cancelled == ["find_table"]
        assert case.tool_log.ends == [("find_table", {"place": "door"})]
        outcomes = [one.envelope["ok"] for one in case.conversation.messages if isinstance(one, ToolMessage)]
        assert outcomes == [False, True]
