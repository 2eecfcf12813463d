"""Both generations of Gemini Live: what is told to the model arrives, in the messages that its generation takes."""

from typing import get_args

import pytest
from tests.agents.voice.kit import obedient, voice
from tests.clients.live.kit import IMPATIENT, LIMITS, RECENT_GEMINI, conversation

from handrail.contract.call import Call
from handrail.contract.live import Answer, Connected, LiveConfig, TurnEnded, Utterance
from handrail.providers.gemini.live.model_families import family_of
from handrail.providers.gemini.live.transport import GeminiLiveTransport
from handrail.testing.servers.live import Ask, Fault, Say, Turn, call

BOOK = call("book_table", guest="Ana")
BUY = Turn([Ask(call("buy_table", guest="Ana")), Say("I need your word for that.")], hears="Buy it")
HISTORY = (Utterance("user", "I am Ana."), Utterance("model", "Hello Ana."))
generations = pytest.mark.parametrize("provider", ["gemini-live", RECENT_GEMINI])


@pytest.mark.parametrize(
    ("model", "any_time"),
    [
        ("gemini-live-2.5-flash-preview", True),
        ("models/gemini-2.5-flash-native-audio-preview-12-2025", True),
        ("gemini-2.0-flash-live-001", True),
        ("gemini-3.1-flash-live-preview", False),
        ("models/gemini-3.8-live", False),
        ("publishers/google/models/gemini-3.1-flash-live-preview", False),
        ("gemini-live-3-pro", False),
        ("gemini-10-live", False),
        ("gemini-flash-live-latest", False),
        ("a-model", True),
    ],
)
def test_the_generation_is_known_by_the_name_of_the_model(model: str, any_time: bool) -> None:
    assert family_of(model).takes_content_any_time is any_time


@generations
async def test_a_preview_is_read_aloud_and_a_yes_to_it_buys_the_table(provider: str) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes.")]) as case:
        case.server.on_note = obedient
        await case.speak()
        await case.client.until(lambda client: any(one["state"] == "asking" for one in client.of("question")))
        await case.speak()
        await case.client.until(lambda client: any(card.get("late") for card in client.of("tool_finished")))
        assert case.tool_log.starts == [("buy_table", {"guest": "Ana"})]
        assert case.server.complaints == []


@pytest.mark.parametrize("fault", get_args(Fault))
async def test_a_writing_call_of_a_recent_model_runs_once_and_its_answer_arrives(fault: Fault) -> None:
    turns = [Turn([Ask(BOOK, fault=fault), Say("Your table is booked.")], hears="A table for Ana"), Turn([Say("Bye.")])]
    async with conversation(RECENT_GEMINI, turns, limits=IMPATIENT if fault == "stall" else LIMITS) as case:
        await case.host.speak()
        await case.host.until(lambda host: host.spoken == "Your table is booked.")
        await case.host.until(lambda host: host.answered)
        assert case.book.of("book_table") == 1
        assert any("receipt" in str(envelope) for _, envelope in case.server.outcomes)
        assert case.server.complaints == []


@generations
async def test_a_new_session_is_told_what_was_said_before(provider: str) -> None:
    async with conversation(provider, [Turn([Say("Yes.")])], config={"history": HISTORY}) as case:
        await case.host.speak()
        await case.host.until(TurnEnded)
        (told,) = (one["client_content"] for one in case.server.received if "client_content" in one)
        said = [(turn["role"], turn["parts"][0]["text"]) for turn in told["turns"]]
        assert said[:2] == [("user", "I am Ana."), ("model", "Hello Ana.")]
        assert case.server.complaints == []


async def test_a_session_that_lost_its_handle_is_seeded_and_goes_on() -> None:
    turns = [Turn([Say("My name is Iva.")], hears="Who are you?"), Turn([Say("Still here.")])]
    async with conversation(RECENT_GEMINI, turns) as case:
        await case.host.speak()
        await case.host.until(lambda host: host.answered and host.events[-1] != host.answered[-1])
        case.server.handles.clear()
        case.server.cut_all()
        await case.host.until(lambda host: len(host.of(Connected)) == 2)
        await case.host.speak()
        await case.host.until(lambda host: len(host.answered) == 2)
        assert "historyConfig" in case.server.setups[-1]
        assert case.server.complaints == []


def recent(**config: object) -> GeminiLiveTransport:
    return GeminiLiveTransport("gemini-3.1-flash-live-preview", LiveConfig(**config))  # type: ignore[arg-type]


def test_an_older_model_is_seeded_with_a_history_that_ends_with_the_user() -> None:
    transport = GeminiLiveTransport("gemini-2.5-flash-live", LiveConfig(history=HISTORY))
    assert "historyConfig" not in transport.setup()["setup"]
    (told,), _ = transport.begin()
    assert [turn["role"] for turn in told["clientContent"]["turns"]] == ["user", "model", "user"]


def test_a_recent_model_is_seeded_once_and_asked_by_realtime_input() -> None:
    transport = recent(history=HISTORY)
    transport.setup()
    transport.begin()
    transport.user_text("What is my name?")
    transport.lost()
    assert transport.setup()["setup"]["historyConfig"] == {"initialHistoryInClientContent": True}
    (seed, asked), resumed = transport.begin()
    assert not resumed
    assert [turn["parts"][0]["text"] for turn in seed["clientContent"]["turns"]] == ["I am Ana.", "Hello Ana."]
    assert seed["clientContent"]["turnComplete"] is True
    assert asked == {"realtimeInput": {"text": "What is my name?"}}


def test_a_recent_model_gets_no_content_after_the_beginning() -> None:
    transport = recent()
    assert "historyConfig" not in transport.setup()["setup"]
    assert transport.begin() == ([], False)
    answer = Answer(Call("book_table", {}, "fc-9", "gemini-live"), {"ok": True, "data": {}})
    assert transport.host_text("Note of the host: quiet.", "silent") == []
    sent = transport.host_text("Note of the host: read this.", "interrupt") + transport.answers([answer], "when_idle")
    assert all(set(message) == {"realtimeInput"} for message in sent)
    # What was to be told without making the model speak goes along with the next that does.
    assert sent[0]["realtimeInput"]["text"] == "Note of the host: quiet.\nNote of the host: read this."


def test_what_a_recent_model_was_not_told_yet_is_told_after_a_loss() -> None:
    transport = recent()
    transport.setup()
    transport.begin()
    transport.host_text("Note of the host: the table is booked.", "silent")
    spoken = '{"serverContent": {"outputTranscription": {"text": "Hello."}, "turnComplete": true}}'
    transport.receive(spoken)
    transport.receive('{"sessionResumptionUpdate": {"newHandle": "h1", "resumable": true}}')
    transport.lost()
    assert transport.setup()["setup"]["sessionResumption"] == {"handle": "h1"}
    assert transport.begin() == ([], True)
    (sent,) = transport.host_text("Note of the host: go on.", "when_idle")
    assert "the table is booked" in sent["realtimeInput"]["text"]
