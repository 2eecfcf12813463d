"""Voice without a provider: a text model as a live one, words for the client's own voice, and the same rules."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.agents.voice.kit import Client, VoiceCase, on_model

from handrail.agents.voice.host_port import Abilities, VoicePolicy
from handrail.agents.voice.state import speech_output
from handrail.agents.voice.text_model_adapter import TextModelAdapter
from handrail.contract.call import Call
from handrail.contract.model import AssistantMessage, HostMessage, ModelError, ToolMessage, UserMessage
from handrail.testing import PlayedModel
from handrail_reference.demo import DemoModel

CLIENT = Abilities(sound=False, recognises=True, speaks=True)
TYPING = Abilities(sound=False, recognises=False, speaks=False)
BOOK = Call("book_table", {"guest": "Ana"}, "call_book_0001")
FIND = Call("find_table", {"place": "door"}, "call_find_0001")
BUY = Call("buy_table", {"guest": "Ana"}, "call_buy_00001")


@asynccontextmanager
async def written(
    *answers: Any, abilities: Abilities = CLIENT, client: Client | None = None, policy: VoicePolicy | None = None
) -> AsyncIterator[tuple[VoiceCase, PlayedModel]]:
    played = PlayedModel(answers)
    model = TextModelAdapter(played, clock=lambda: 1_800_000_000.0)
    async with on_model(model, abilities=abilities, client=client, policy=policy) as case:
        yield case, played


async def test_recognised_words_become_a_call_and_the_answer_is_given_to_the_clients_voice() -> None:
    async with written([BOOK], ["Your table is booked. ", "See you."]) as (case, played):
        case.voice.speech("started")
        case.voice.speech("ended")
        await case.voice.say("A table for Ana", id="u1", spoken=True)
        await case.client.until("turn_done")

        assert case.tool_log.starts == [("book_table", {"guest": "Ana"})]
        assert [data["text"] for data in case.client.of("speak")] == ["Your table is booked.", "See you."]
        assert {data["kind"] for data in case.client.of("speak")} == {"answer"}
        (done,) = case.client.of("turn_done")
        assert (done["input"], done["inputId"]) == ("A table for Ana", "u1")
        assert done["latency"]["hearingMs"] is not None
        first = played.requests[0]
        assert first.messages[-1] == UserMessage("A table for Ana")
        assert first.session["now"].startswith("2027-01-15T09:00:00")
        assert first.session["mode"] == "voice"
        assert "You are heard, not read." in first.system
        assert isinstance(played.requests[1].messages[-1], ToolMessage)


async def test_what_is_told_of_an_answer_grows_with_it_and_not_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_output, "_MAX_CHARACTERS", 500)
    async with written(["word "] * 150) as (case, _):
        await case.voice.say("Go on", id="u1")
        await case.client.until("turn_done")
        told = [data for data in case.client.of("transcript") if data["who"] == "model"]
        *pieces, last = told
        assert [data["text"] for data in pieces] == ["word "] * 100, "beyond its limit nothing is kept or told"
        assert not any("whole" in data for data in pieces)
        assert (last["final"], last["whole"]) == (True, "word " * 100)


async def test_speaking_into_an_answer_stops_it() -> None:
    wait = asyncio.Event()
    async with written(["A long story. ", wait.wait, "Which never ends."], ["Yes?"], client=Client(reports=False)) as (
        case,
        played,
    ):
        await case.voice.say("Tell me", id="u1")
        await case.client.until("speak")
        case.voice.speech("started")
        await case.client.until("turn_done")
        assert case.client.of("flush")
        assert case.client.of("turn_done")[0]["interrupted"] is True
        await case.voice.say("Stop", id="u2", spoken=True)
        await case.client.until("turn_done", 2)
        assert case.client.answers[-1] == "Yes?"
        assert AssistantMessage("A long story. …") in played.requests[1].messages


async def test_a_writing_call_outlives_the_interruption_and_the_model_knows_its_result() -> None:
    async with written([BOOK], ["Yes?"], ["Done."]) as (case, played):
        case.tool_log.may_finish.clear()
        await case.voice.say("A table", id="u1")
        await case.tool_log.until(lambda tool_log: tool_log.of("book_table") == 1)
        await case.voice.say("Wait", id="u2")
        await case.client.until(lambda client: "Yes?" in client.answers)
        case.tool_log.may_finish.set()
        await case.client.until("tool_finished")
        await case.voice.say("And?", id="u3")
        await case.client.until(lambda client: "Done." in client.answers)
        (envelope,) = [one.envelope for one in played.requests[-1].messages if isinstance(one, ToolMessage)]
        assert envelope["data"]["receipt"] == 1


async def test_a_spoken_yes_buys_and_typed_words_do_not() -> None:
    async with written([BUY], ["I need your word."], ["Hm."], ["Fine."], ["Bought."]) as (case, played):
        await case.voice.say("Buy it", id="u1", spoken=True)
        await case.client.until(lambda client: any(data["state"] == "asking" for data in client.of("question")))
        preview = next(data for data in case.client.of("speak") if data["kind"] == "preview")
        assert preview["text"].startswith("Buy the table Ana")
        await case.voice.say("Yes", id="u2")
        await case.client.until(lambda client: [one["state"] for one in client.of("question")].count("asking") == 2)
        assert case.tool_log.starts == []
        case.voice.speech("started")
        case.voice.speech("ended")
        await case.voice.say("Yes", id="u3", spoken=True)
        await case.client.until(lambda client: any(card.get("late") for card in client.of("tool_finished")))
        assert case.tool_log.of("buy_table") == 1
        await case.client.until(lambda client: any("Bought." in text for text in client.answers))
        assert any(isinstance(one, HostMessage) for one in played.requests[-1].messages)


async def test_words_whose_beginning_nobody_heard_answer_no_question() -> None:
    async with written([BUY], ["I need your word."], ["Hm."]) as (case, _):
        await case.voice.say("Buy it", id="u1", spoken=True)
        await case.client.until(lambda client: any(data["state"] == "asking" for data in client.of("question")))
        await case.voice.say("Yes", id="u2", spoken=True)
        await case.client.until(lambda client: "Hm." in client.answers)
        assert case.tool_log.starts == []


async def test_a_yes_that_began_while_the_preview_was_spoken_buys_nothing_however_late_it_is_told() -> None:
    async with written([BUY], ["I need your word."], ["Hm."], ["Hm."]) as (case, _):
        await case.voice.say("Buy it", id="u1", spoken=True)
        await case.client.until(lambda client: any(data["state"] == "asking" for data in client.of("question")))
        case.voice.speech("started", 30.0)
        case.voice.speech("ended")
        await case.voice.say("Yes", id="u2", spoken=True)
        await case.client.until(lambda client: "Hm." in client.answers)
        assert case.tool_log.starts == []
        assert "approved" not in [data["state"] for data in case.client.of("question")]


async def test_at_the_end_every_question_is_left_to_the_screen_also_those_that_waited() -> None:
    other = Call("buy_table", {"guest": "Bob"}, "call_buy_00002")
    async with written([BUY, other], ["I need your word."]) as (case, _):
        await case.voice.say("Buy both", id="u1", spoken=True)
        await case.client.until("confirmation", 2)
        await case.client.until(lambda client: any(data["state"] == "asking" for data in client.of("question")))
        await case.voice.end()
        left = {data["id"] for data in case.client.of("question") if data["state"] == "screen"}
        assert left == {data["id"] for data in case.client.of("confirmation")}
        assert len(left) == 2


async def test_who_only_types_and_reads_is_sent_to_the_screen_for_an_approval() -> None:
    async with written([BUY], ["Please look."], abilities=TYPING) as (case, _):
        await case.voice.say("Buy it", id="u1")
        await case.client.until("turn_done")
        assert [data["state"] for data in case.client.of("question")] == ["screen"]


async def test_a_farewell_is_given_to_the_clients_voice_before_the_end() -> None:
    leave = Call("leave", {"closing": "Goodbye.", "text": "The list."}, "call_leave_001")
    async with written([leave], ["Fine."]) as (case, _):
        await case.voice.say("Bye", id="u1")
        await case.client.until("ended")
        (ended,) = case.client.of("ended")
        assert (ended["closingMessage"], ended["textResponse"]) == ("Goodbye.", "The list.")
        assert case.client.of("speak")[-1]["text"] == "Goodbye."
        texts = [one.text for one in case.conversation.messages if isinstance(one, AssistantMessage) and one.text]
        assert texts == ["Fine.", "Goodbye.", "The list."]
        assert case.voice.session.mode == "text"


async def test_a_model_that_fails_says_so_and_the_next_turn_is_answered() -> None:
    async with written([ModelError("No.")], ["Here I am."]) as (case, _):
        await case.voice.say("Hello", id="u1")
        await case.client.until("turn_done")
        (error,) = case.client.of("error")
        assert (error["code"], error["message"]) == ("model_failed", "No.")
        assert "detail" not in error
        assert "cannot answer" in case.client.of("speak")[0]["text"]
        await case.voice.say("Hello?", id="u2")
        await case.client.until("turn_done", 2)
        assert case.client.answers[-1] == "Here I am."


async def test_nobody_speaks_and_the_call_ends_with_a_spoken_notice() -> None:
    async with written(policy=VoicePolicy(idle_seconds=0.1)) as (case, _):
        await case.client.until("ended")
        assert case.client.of("ended")[0]["reason"] == "idle"
        assert "not heard anything" in case.client.of("speak")[-1]["text"]


async def test_sound_is_not_taken_by_a_model_that_does_not_hear() -> None:
    async with written() as (case, _):
        assert case.voice.hear(b"\0\0" * 160, 16_000) is False
        assert case.voice.facts()["offline"] is True
        assert case.voice.input_rates == ()


async def test_the_demo_model_speaks_by_the_same_path() -> None:
    model = TextModelAdapter(DemoModel(), clock=lambda: 1_800_000_000.0)
    async with on_model(model, abilities=CLIENT) as case:
        await case.voice.say("Hello", id="u1", spoken=True)
        await case.client.until("turn_done")
        assert case.client.answers[0]
        assert " ".join(data["text"] for data in case.client.of("speak")) == " ".join(case.client.answers[0].split())


async def test_a_model_may_be_silent_while_the_host_asks_for_the_persons_word_and_only_then() -> None:
    async with written([BUY], [""], [""], ["Bought."], [""]) as (case, _):
        await case.voice.say("Buy it", id="u1", spoken=True)
        await case.client.until(lambda client: any(data["state"] == "asking" for data in client.of("question")))
        case.voice.speech("started")
        case.voice.speech("ended")
        await case.voice.say("Yes", id="u2", spoken=True)
        await case.client.until(lambda client: "Bought." in client.answers)
        assert {data["text"] for data in case.client.of("speak") if data["kind"] == "answer"} == {"Bought."}
        await case.voice.say("And now?", id="u3", spoken=True)
        await case.client.until(lambda client: "I could not finish" in client.answers[-1])
