"""Providers that misbehave: no write is done twice, no answer is lost, and nothing hangs."""

import asyncio
from http import HTTPStatus
from typing import get_args

import pytest
from tests.clients.live.kit import IMPATIENT, LIMITS, PROVIDERS, conversation, new_model, new_server

from handrail.contract.live import (
    CallsMade,
    Closed,
    Connected,
    Disconnected,
    LiveConfig,
    LiveError,
    TurnEnded,
)
from handrail.testing.servers.live import Ask, Drop, Fault, Pause, Say, Send, Turn, call

BOOK = call("book_table", guest="Ana")
both = pytest.mark.parametrize("provider", PROVIDERS)
faults = pytest.mark.parametrize("fault", get_args(Fault))


@both
@faults
async def test_a_writing_call_runs_once_and_its_answer_arrives_whatever_the_provider_does(
    provider: str, fault: Fault
) -> None:
    turns = [Turn([Ask(BOOK, fault=fault), Say("Your table is booked.")], hears="A table for Ana"), Turn([Say("Bye.")])]
    async with conversation(provider, turns, limits=IMPATIENT if fault == "stall" else LIMITS) as case:
        await case.host.speak()
        await case.host.until(lambda host: host.spoken == "Your table is booked.")
        await case.host.until(lambda host: host.answered)

        assert case.book.of("book_table") == 1
        assert any("receipt" in str(envelope) for _, envelope in case.server.outcomes)
        assert case.server.complaints == []

        await case.host.speak()
        await case.host.until(lambda host: host.spoken.endswith("Bye."))


@both
async def test_a_call_that_is_made_again_under_a_new_id_meets_the_first_one(provider: str) -> None:
    turns = [Turn([Ask(BOOK, fault="reissue"), Say("Booked.")], hears="A table for Ana")]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(lambda host: host.spoken == "Booked.")

        first, second = case.host.of(CallsMade)
        assert first.calls[0].call_id != second.calls[0].call_id
        assert case.book.of("book_table") == 1
        assert [type(event) for event in case.host.events].count(Connected) == 2


@both
async def test_a_call_that_runs_while_the_line_breaks_is_answered_on_the_next_one(provider: str) -> None:
    turns = [Turn([Ask(BOOK), Say("Your table is booked.")], hears="A table for Ana")]
    async with conversation(provider, turns) as case:
        case.book.may_finish.clear()
        await case.host.speak()
        await asyncio.wait_for(case.book.started_one.wait(), 30)
        case.server.cut_all()
        await case.host.until(lambda host: len(host.of(Connected)) == 2)
        case.book.may_finish.set()
        await case.host.until(lambda host: host.spoken == "Your table is booked.")

        assert case.book.of("book_table") == 1
        assert case.server.complaints == []


@both
async def test_two_identical_calls_that_the_model_really_makes_both_run(provider: str) -> None:
    turns = [Turn([Ask(BOOK), Ask(BOOK), Say("Two tables.")], hears="Two tables for Ana")]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(lambda host: host.spoken == "Two tables.")
        assert case.book.of("book_table") == 2


@both
async def test_a_line_that_breaks_in_the_middle_of_an_answer_leads_to_the_answer_again(provider: str) -> None:
    turns = [Turn([Say("It is"), Drop(), Say("It is five o'clock.")], hears="What time is it?")]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(lambda host: host.answered)
        assert case.host.spoken.endswith("It is five o'clock.")
        assert len(case.host.of(Disconnected)) == 1


@both
async def test_a_frame_of_ten_megabytes_costs_at_most_the_connection(provider: str) -> None:
    call_of_it = (
        '{"type": "response.created", "toolCall": {"functionCalls": [{"id": "x", "name": "book_table", "args": "'
    )
    large = call_of_it + "x" * 10_000_000 + '"}]}}'
    # How often the script hears the user depends on when the line breaks: there is an answer for each time.
    turns = [Turn([Send(large), Say("Hello.")], hears="Hi"), *[Turn([Say("Bye.")])] * 4]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(lambda host: host.answered or len(host.of(Connected)) > 1)
        await case.host.speak()
        await case.host.until(lambda host: host.answered)
        assert case.book.starts == []


@both
async def test_calls_without_name_unknown_or_with_arguments_of_any_kind_are_answered_and_run_nothing(
    provider: str,
) -> None:
    odd = [call(""), call("no_such_tool"), call("book_table"), call("find_table", place={"deep": [1] * 2000})]
    turns = [Turn([Ask(*odd), Say("Nothing of that.")])]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(lambda host: host.answered)
        kinds = [envelope["error"]["type"] for _, envelope in case.server.outcomes]
        assert kinds == ["NOT_FOUND", "NOT_FOUND", "VALIDATION", "VALIDATION"]
        assert case.book.starts == []
        assert case.server.complaints == []


@both
async def test_a_provider_that_always_hangs_up_is_given_up(provider: str) -> None:
    turns = [Turn([Drop(), Drop(), Drop(), Drop(), Drop(), Drop(), Drop(), Drop()], hears="Hello?")]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await case.host.until(Closed)
        closed = case.host.of(Closed)[0]
        assert closed.reason == "lost"
        assert "closed the connection" in closed.message
        with pytest.raises(LiveError, match="over"):
            await case.host.connection.send_text("Hello?")


@both
async def test_a_provider_that_says_nothing_is_left_and_asked_again(provider: str) -> None:
    turns = [Turn([Pause(60), Say("Never.")], hears="Hello?"), Turn([Say("Here I am.")])]
    async with conversation(provider, turns, limits=IMPATIENT) as case:
        await case.host.speak()
        await case.host.until(Disconnected)
        assert "sent nothing" in case.host.of(Disconnected)[0].reason


@both
async def test_a_wrong_key_is_refused_with_a_sentence_and_not_tried_again(provider: str) -> None:
    async with new_server(provider, []) as server:
        model = new_model(provider, server, api_key="wrong")
        with pytest.raises(LiveError, match="HTTP status 401") as refused:
            await model.connect(LiveConfig())
        assert refused.value.retryable is False
        assert server.conversations == []
        await model.close()


@both
async def test_a_provider_that_is_busy_is_tried_again(provider: str) -> None:
    async with new_server(provider, []) as server:
        server.refuse_with = HTTPStatus.SERVICE_UNAVAILABLE
        model = new_model(provider, server)
        connecting = asyncio.create_task(model.connect(LiveConfig()))
        await asyncio.sleep(0.05)
        assert not connecting.done()
        server.refuse_with = None
        connection = await connecting
        await connection.close()
        await model.close()


@both
async def test_a_provider_that_is_not_there_is_told_as_such(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    async with new_server(provider, []) as server:
        pass
    model = new_model(provider, server)
    with pytest.raises(LiveError, match="cannot be reached") as lost:
        await model.connect(LiveConfig())
    assert lost.value.retryable is True
    assert f":{server.port}" in lost.value.detail
    assert '"base_url" in [voice] says where it is' in lost.value.detail
    assert f"The live model cannot be had: {lost.value.detail}" in caplog.text, "whoever runs the server learns of it"
    assert str(server.port) not in str(lost.value), "and whoever speaks does not"
    assert "base_url" not in str(lost.value)
    await model.close()


@both
async def test_audio_that_is_no_audio_is_refused_and_the_session_goes_on(provider: str) -> None:
    async with conversation(provider, [Turn([Say("Hello.")])]) as case:
        with pytest.raises(LiveError, match="16-bit"):
            case.host.connection.send_audio(b"odd", case.host.rate)
        with pytest.raises(LiveError, match="11025 Hz"):
            case.host.connection.send_audio(b"even", 11_025)
        assert case.host.connection.send_audio(b"", case.host.rate) is True
        await case.host.speak()
        await case.host.until(TurnEnded)


@both
async def test_closing_in_the_middle_of_everything_ends_it(provider: str) -> None:
    turns = [Turn([Say("A long story. " * 40, pace=0.05)])]
    async with conversation(provider, turns) as case:
        await case.host.speak()
        await asyncio.sleep(0.1)
        await case.host.connection.close()
        await case.host.until(Closed)
        assert case.host.of(Closed) == [Closed("closed")]
