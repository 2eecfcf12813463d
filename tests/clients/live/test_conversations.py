"""Spoken conversations from end to end: definition, real SDK, local server, call, governed pipeline, result taken."""

import asyncio
from dataclasses import replace

import pytest
from tests.clients.live.kit import LIMITS, PROVIDERS, conversation, heard_audio

from handrail.contract.live import (
    CallsCancelled,
    CallsMade,
    Connected,
    Disconnected,
    GoAway,
    InputTranscript,
    Interrupted,
    TurnEnded,
    UserSpeechEnded,
    UserSpeechStarted,
    Utterance,
)
from handrail.testing.servers.live import Ask, Depart, Say, Turn, call

BOOK = call("book_table", guest="Ana")
FIND = call("find_table", place="window")
both = pytest.mark.parametrize("provider", PROVIDERS)


@both
async def test_a_spoken_request_becomes_a_governed_call_whose_result_the_model_speaks_about(provider: str) -> None:
    turns = [Turn([Ask(BOOK), Say("Your table is booked.")], hears="A table for Ana")]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(TurnEnded)

        assert case.book.starts == [("book_table", {"guest": "Ana"})]
        assert case.server.complaints == []
        ((name, envelope),) = case.server.outcomes
        assert (name, envelope["ok"], envelope["data"]) == ("book_table", True, {"receipt": 1, "for": "Ana"})
        assert envelope["meta"]["toolId"] == "book_table"
        assert case.host.spoken == "Your table is booked."
        assert heard_audio(case.host) > 0
        assert case.host.of(InputTranscript)[-1].whole == "A table for Ana"


@both
async def test_the_tools_that_the_model_is_offered_are_those_that_were_built(provider: str) -> None:
    async with conversation(provider, []) as case:
        sent = case.server.received[0]
        setup = sent.get("setup") or sent["session"]
        declared = setup["tools"][0]["functionDeclarations"] if provider == "gemini-live" else setup["tools"]
        assert [tool["name"] for tool in declared] == ["book_table", "find_table"]
        assert "guest" in str(declared[0])


@both
async def test_calls_of_one_message_are_told_together_and_answered_before_the_model_goes_on(provider: str) -> None:
    turns = [Turn([Ask(FIND, call("find_table", place="corner")), Say("Two are free.")])]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(TurnEnded)

        (made,) = case.host.of(CallsMade)
        assert len(made.calls) == 2
        assert [name for name, _ in case.server.outcomes] == ["find_table", "find_table"]
        assert case.server.complaints == []
        if provider == "openai-realtime":
            asked = [one["type"] for one in case.server.received if one["type"] != "input_audio_buffer.append"]
            assert asked == ["session.update", *["conversation.item.create"] * 2, "response.create"]


@both
async def test_a_refused_call_is_told_with_its_whole_envelope_and_the_error_flag(provider: str) -> None:
    turns = [Turn([Ask(call("book_table", guest=7)), Say("That did not work.")])]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(TurnEnded)

        ((_, envelope),) = case.server.outcomes
        assert (envelope["ok"], envelope["error"]["type"]) == (False, "VALIDATION")
        assert case.book.starts == []
        if provider == "gemini-live":
            answer = next(one["tool_response"] for one in case.server.received if "tool_response" in one)
            assert answer["functionResponses"][0]["response"].keys() == {"error"}


@both
async def test_typed_text_is_answered_as_speech_is(provider: str) -> None:
    async with conversation(provider, [Turn([Say("Hello.")]), Turn([Say("Hello again.")])]) as case:
        await case.host.connection.send_text("Hi")
        await case.host.until(TurnEnded)
        await case.host.connection.send_text("Hi again")
        await case.host.until(lambda host: len(host.answered) == 2)
        assert case.host.spoken == "Hello. Hello again."
        assert case.server.complaints == []


@both
async def test_speaking_into_the_answer_stops_it_and_is_heard(provider: str) -> None:
    turns = [Turn([Say("A long story. " * 40, pace=0.05)]), Turn([Say("Yes?")], hears="Stop")]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(lambda host: heard_audio(host) > 0)
        await case.host.speak()
        await case.host.until(lambda host: host.answered)

        assert case.host.of(Interrupted)
        assert [ended.reason for ended in case.host.of(TurnEnded)] == ["interrupted", "done"]
        assert case.host.spoken == "Yes?"


async def test_gemini_takes_calls_back_when_the_user_interrupts_and_gets_no_answer_for_them() -> None:
    turns = [Turn([Ask(FIND), Say("There is one.")]), Turn([Say("Yes?")])]
    async with conversation("gemini-live", turns) as case:
        case.book.may_finish.clear()
        await case.host.speak()
        await asyncio.wait_for(case.book.started_one.wait(), 30)
        await case.host.speak()
        await case.host.until(lambda host: host.answered)

        assert [event.ids for event in case.host.of(CallsCancelled)] == [("fc-1",)]
        assert case.server.outcomes == []
        assert case.server.complaints == []


async def test_a_writing_call_that_gemini_took_back_is_finished_and_told_silently() -> None:
    turns = [Turn([Ask(BOOK), Say("Booked.")]), Turn([Say("Yes?")])]
    async with conversation("gemini-live", turns) as case:
        case.book.may_finish.clear()
        await case.host.speak()
        await asyncio.wait_for(case.book.started_one.wait(), 30)
        await case.host.speak()
        await case.host.until(CallsCancelled)
        case.book.may_finish.set()
        await case.host.until(lambda host: host.answered)
        async with asyncio.timeout(30):
            while not (told := [one for one in case.server.received if "client_content" in one]):
                await asyncio.sleep(0.01)

        assert case.book.of("book_table") == 1
        assert '"receipt":1' in str(told[-1])
        assert told[-1]["client_content"]["turnComplete"] is False


@pytest.mark.parametrize("asked", [FIND, BOOK])
async def test_a_call_that_gemini_took_back_and_makes_again_under_its_id_is_answered_and_runs_once(asked) -> None:
    async with conversation("gemini-live", [Turn([Ask(asked), Say("Done.")]), Turn([Say("Yes?")])]) as case:
        case.book.may_finish.clear()
        await case.host.speak()
        await asyncio.wait_for(case.book.started_one.wait(), 30)
        await case.host.speak()
        await case.host.until(lambda host: host.of(CallsCancelled) and host.answered)
        case.book.may_finish.set()
        (talk,) = case.server.conversations
        talk.open["fc-1"] = asked
        again = {"id": "fc-1", "name": asked.name, "args": asked.args}
        await talk.send({"toolCall": {"functionCalls": [again]}})
        async with asyncio.timeout(30):
            while not case.server.outcomes:
                await asyncio.sleep(0.01)
        assert case.book.of(asked.name) == 1
        assert case.server.complaints == []


async def test_realtime_gets_the_output_of_a_call_that_the_user_interrupted() -> None:
    turns = [Turn([Ask(BOOK), Say("Booked.")]), Turn([Say("Yes?")])]
    async with conversation("openai-realtime", turns) as case:
        case.book.may_finish.clear()
        await case.host.speak()
        await asyncio.wait_for(case.book.started_one.wait(), 30)
        await case.host.speak()
        await case.host.until(lambda host: host.answered)
        case.book.may_finish.set()
        await case.host.until(lambda host: len(host.answered) == 2)

        assert [name for name, _ in case.server.outcomes] == ["book_table"]
        assert case.server.complaints == []


async def test_realtime_is_told_how_much_of_its_answer_was_heard() -> None:
    turns = [Turn([Say("A long story. " * 20)])]
    async with conversation("openai-realtime", turns) as case:
        await case.host.speak()
        await case.host.until(TurnEnded)
        await case.host.connection.truncate(640)
        await case.host.connection.truncate(10_000_000)
        async with asyncio.timeout(30):
            while len(cut := [one for one in case.server.received if one["type"].endswith("truncate")]) < 2:
                await asyncio.sleep(0.01)
        assert cut[0]["audio_end_ms"] == 640
        assert case.server.complaints == []


async def test_realtime_stops_when_the_host_interrupts() -> None:
    turns = [Turn([Say("A long story. " * 40, pace=0.05)])]
    async with conversation("openai-realtime", turns) as case:
        await case.host.speak()
        await case.host.until(lambda host: heard_audio(host) > 0)
        await case.host.connection.interrupt()
        await case.host.until(TurnEnded)
        assert case.host.of(TurnEnded)[-1] == TurnEnded("interrupted", "client_cancelled")


async def test_gemini_goes_away_and_the_session_goes_on_from_its_handle() -> None:
    turns = [Turn([Ask(BOOK), Say("Booked.")]), Turn([Say("Soon gone."), Depart(60)]), Turn([Say("Still here.")])]
    async with conversation("gemini-live", turns) as case:
        for number in (1, 2):
            await case.host.speak()
            await case.host.until(lambda host, number=number: len(host.answered) == number)
        await case.host.until(lambda host: len(host.of(Connected)) == 2)
        await case.host.speak()
        await case.host.until(lambda host: len(host.answered) == 3)

        assert case.host.of(GoAway) == [GoAway(60.0)]
        again = case.host.of(Connected)[1]
        assert (again.resumed, again.restored_calls) == (True, ("fc-1",))
        assert case.server.setups[1]["sessionResumption"]["handle"].startswith("handle-")
        assert case.host.spoken == "Booked. Soon gone. Still here."
        assert case.server.complaints == []


async def test_a_handle_that_has_expired_leads_to_a_new_session_that_is_told_what_was_said() -> None:
    turns = [Turn([Say("My name is Iva.")], hears="Who are you?"), Turn([Say("Still here.")])]
    async with conversation("gemini-live", turns) as case:
        await case.host.speak()
        await case.host.until(lambda host: host.answered and host.events[-1] != host.answered[-1])
        case.server.handles.clear()
        case.server.cut_all()
        await case.host.until(lambda host: len(host.of(Connected)) == 2)
        await case.host.speak()
        await case.host.until(lambda host: len(host.answered) == 2)

        assert case.host.of(Connected)[1].resumed is False
        told = next(one["client_content"] for one in case.server.conversations[-1].received if "client_content" in one)
        assert [(turn["role"], turn["parts"][0]["text"]) for turn in told["turns"]] == [
            ("user", "Who are you?"),
            ("model", "My name is Iva."),
            ("user", "Note of the host: the connection was replaced, and the conversation continues."),
        ]
        assert told["turnComplete"] is False


@both
async def test_an_old_connection_is_replaced_at_a_quiet_moment(provider: str) -> None:
    limits = replace(LIMITS, connection_seconds=1.0)
    async with conversation(provider, [Turn([Ask(BOOK), Say("Booked.")])], limits=limits) as case:
        case.book.may_finish.clear()
        await case.host.speak()
        await asyncio.wait_for(case.book.started_one.wait(), 30)
        await asyncio.sleep(1.2)
        assert len(case.host.of(Connected)) == 1
        case.book.may_finish.set()
        await case.host.until(lambda host: len(host.of(Connected)) == 2)
        kinds = [type(event) for event in case.host.events]
        assert kinds.index(TurnEnded) < kinds.index(Disconnected)
        assert case.server.complaints == []


@both
async def test_what_was_said_before_the_session_is_told_to_the_model(provider: str) -> None:
    history = (Utterance("user", "I am Ana."), Utterance("model", "Hello Ana."))
    async with conversation(provider, [Turn([Say("Yes.")])], config={"history": history}) as case:
        await case.host.speak()
        await case.host.until(TurnEnded)
        assert "I am Ana." in str(case.server.received)
        assert case.server.complaints == []


@both
async def test_each_spoken_input_is_told_to_be_committed_once_and_before_what_the_model_makes_of_it(
    provider: str,
) -> None:
    turns = [Turn([Ask(BOOK), Say("Booked.")], hears="A table for Ana"), Turn([Say("Yes.")], hears="Really?")]
    async with conversation(provider, turns) as case:
        for number in (1, 2):
            await case.host.speak()
            await case.host.until(lambda host, number=number: len(host.answered) == number)
        committed = [place for place, event in enumerate(case.host.events) if isinstance(event, UserSpeechEnded)]
        assert len(committed) == 2
        assert committed[0] < case.host.events.index(case.host.of(CallsMade)[0])
        assert bool(case.host.of(UserSpeechStarted)) is (provider == "openai-realtime")


@both
async def test_a_note_of_the_host_is_answered_or_kept_as_it_asks(provider: str) -> None:
    async with conversation(provider, [Turn([Say("Hello.")])]) as case:
        await case.host.connection.tell("Note of the host: the line is recorded.", scheduling="silent")
        await case.host.connection.send_text("Hi")
        await case.host.until(TurnEnded)
        assert case.host.spoken == "Hello."
        assert "the line is recorded" in str(case.server.received)
