"""OpenAI Realtime: what its events mean, when calls are told and answers asked for, and what a new conversation is told."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.wire_examples import example

from handrail.contract.call import Call
from handrail.contract.live import (
    Answer,
    AudioOut,
    CallsMade,
    InputTranscript,
    Interrupted,
    LiveConfig,
    LiveEvent,
    OutputTranscript,
    ProviderWarning,
    TurnEnded,
    Usage,
    UserSpeechEnded,
    UserSpeechStarted,
    Utterance,
)
from handrail.providers.live_history import MAX_CALLS
from handrail.providers.openai.realtime import messages
from handrail.providers.openai.realtime.transport import BUSY, OpenAIRealtimeTransport

PCM = b"\x00\x00\x10\x00\xf0\xff\x00\x00"
OK = {"ok": True, "data": {"level": 20}, "intents": [], "meta": {}}
ARGUMENTS = '{"room":"kitchen","level":20}'


def new(**config: Any) -> OpenAIRealtimeTransport:
    transport = OpenAIRealtimeTransport(LiveConfig(**config))
    transport.setup()
    transport.begin()
    return transport


def told(transport: OpenAIRealtimeTransport, *sent: dict[str, Any]) -> list[LiveEvent]:
    return [event for message in sent for event in transport.receive(json.dumps(message))]


def created(name: str = "r1") -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": name, "status": "in_progress"}}


def done(name: str = "r1", status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": "response.done", "response": {"id": name, "status": status, "output": [], **fields}}


def item(call_id: Any = "call_1", *, status: str = "completed", response: str = "r1", **fields: Any) -> dict[str, Any]:
    call = {"type": "function_call", "status": status, "call_id": call_id, "name": "set_lamp", "arguments": ARGUMENTS}
    return {"type": "response.output_item.done", "response_id": response, "item": {**call, **fields}}


def types_of(sent: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in sent]


def test_every_event_of_the_example_is_understood() -> None:
    transport = new()
    events = told(transport, *example("openai-realtime.server-events.json"))
    assert events == [
        CallsMade((Call("set_lamp", ARGUMENTS, "call_lamp1", "openai-realtime", "connection"),)),
        AudioOut(PCM, 24_000),
        OutputTranscript("Kitchen is", "Kitchen is"),
        UserSpeechStarted("item_u2"),
        Interrupted(),
        TurnEnded("interrupted", "turn_detected"),
        Interrupted(),
        TurnEnded("interrupted", "client_cancelled"),
        ProviderWarning("conversation_already_has_active_response", "A response is already active."),
    ]
    counters = transport.counters
    assert (counters.unknown_events, counters.malformed_events, counters.unfinished_calls) == (0, 0, 1)


def test_every_event_of_the_example_can_be_produced() -> None:
    wanted = example("openai-realtime.client-events.json")
    config = LiveConfig(system="Be brief.", tools=wanted[0]["session"]["tools"], voice="marin")
    produced = [
        {**messages.session_update(config), "event_id": "evt_c1"},
        messages.audio(PCM),
        messages.message("user", "Dim the kitchen."),
        messages.respond(),
        {**messages.function_call_output("call_lamp1", '{"ok":true}'), "event_id": "evt_c5"},
        {**messages.respond(instructions="Confirm in one short sentence.", tool_choice="none"), "event_id": "evt_c6"},
        messages.cancel("resp_rt2"),
        messages.truncate("item_msg2", 640),
        messages.replace_tools([]),
    ]
    assert produced == wanted
    assert json.loads(messages.audio_frame(PCM)) == wanted[1]


def test_the_retired_beta_events_run_nothing_and_are_counted_where_their_names_are_gone() -> None:
    transport = new()
    assert told(transport, *example("openai-realtime-beta.server-events.json")) == []
    assert transport.counters.kinds == {"response.audio.delta": 1}


def test_the_session_is_not_asked_for_in_the_beta_shape() -> None:
    beta = example("openai-realtime-beta.client-events.json")[0]["session"]
    ours = messages.session_update(LiveConfig(tools=beta["tools"], voice="sage"))["session"]
    assert ours["type"] == "realtime"
    assert ours.keys() & beta.keys() == {"instructions", "tools", "tool_choice"}


def test_what_is_sent_has_the_types_of_the_sdk() -> None:
    realtime = pytest.importorskip("openai.types.realtime")
    pydantic = pytest.importorskip("pydantic")
    adapter = pydantic.TypeAdapter(realtime.RealtimeClientEvent)
    transport = new(
        tools=[{"type": "function", "name": "set_lamp", "parameters": {"type": "object"}}], language="en-US"
    )
    told(transport, created(), item(), done())
    call = Call("set_lamp", ARGUMENTS, "call_1")
    sent = [transport.setup(), *transport.answers([Answer(call, OK)], "when_idle"), *transport.user_text("Hello")]
    told(transport, created("r2"), {"type": "response.output_audio.delta", "item_id": "item_2", "delta": "AAAA"})
    sent += [*transport.truncate(50), *transport.interrupt()]
    transport.lost()
    transport.setup()
    sent += transport.begin()[0]
    sent += transport.answers([Answer(Call("set_lamp", {"level": 1}, "call_0"), OK)], "silent")
    for message in sent:
        adapter.validate_python(message)


def test_calls_are_told_together_when_their_response_is_done() -> None:
    transport = new()
    assert told(transport, created(), item("call_1"), item("call_2")) == []
    events = told(transport, done(usage={"input_tokens": 5, "output_tokens": 2}))
    assert events[0] == Usage(5, 2)
    assert [call.call_id for call in events[1].calls] == ["call_1", "call_2"]  # type: ignore[union-attr]
    assert len(events) == 2


def test_one_answer_is_asked_for_when_all_outputs_are_in() -> None:
    transport = new()
    told(transport, created(), item("call_1"), item("call_2"), done())
    first = transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "when_idle")
    second = transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_2"), OK)], "when_idle")
    assert types_of(first) == ["conversation.item.create"]
    assert types_of(second) == ["conversation.item.create", "response.create"]
    assert json.loads(first[0]["item"]["output"]) == OK
    assert len({message["event_id"] for message in first + second}) == 3


def test_no_answer_is_asked_for_while_one_is_active_and_then_once() -> None:
    transport = new()
    told(transport, created(), item(), done(), created("r2"))
    sent = transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "when_idle")
    assert types_of(sent) == ["conversation.item.create"]
    assert transport.replies() == []
    told(transport, done("r2"))
    assert types_of(transport.replies()) == ["response.create"]
    assert transport.replies() == []


def test_a_silent_answer_asks_for_nothing() -> None:
    transport = new()
    told(transport, created(), item(), done())
    assert len(transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "silent")) == 1
    assert transport.replies() == []


def test_an_answer_that_was_refused_because_another_is_active_is_asked_for_again() -> None:
    transport = new()
    (_, asked) = transport.user_text("Hello")
    told(transport, created("theirs"))
    told(transport, {"type": "error", "error": {"code": BUSY, "event_id": asked["event_id"], "message": "Busy."}})
    assert transport.replies() == []
    told(transport, done("theirs"))
    assert types_of(transport.replies()) == ["response.create"]


def test_an_answer_that_is_refused_for_another_reason_fails_the_turn() -> None:
    transport = new()
    (_, asked) = transport.user_text("Hello")
    events = told(transport, {"type": "error", "error": {"code": "rate_limit_exceeded", "event_id": asked["event_id"]}})
    assert events == [ProviderWarning("rate_limit_exceeded", ""), TurnEnded("failed", "rate_limit_exceeded")]
    assert transport.waits_for_model is False


def test_what_the_user_says_meanwhile_is_answered_with_the_result_and_not_twice() -> None:
    transport = new()
    told(transport, created(), item(), done(), {"type": "input_audio_buffer.speech_started"})
    assert len(transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "when_idle")) == 1
    told(transport, {"type": "input_audio_buffer.speech_stopped"})
    assert transport.replies() == []
    told(transport, created("r2"), done("r2"))
    assert transport.replies() == []


@pytest.mark.parametrize("status", ["incomplete", "in_progress", None])
def test_a_call_that_is_not_complete_is_never_told(status: Any) -> None:
    transport = new()
    events = told(transport, created(), item(status=status), done(status="incomplete"))
    assert not [event for event in events if isinstance(event, CallsMade)]
    assert transport.counters.unfinished_calls == 1


def test_a_call_of_a_cancelled_response_does_not_run_and_is_not_left_open() -> None:
    transport = new()
    events = told(transport, created(), item(), done(status="cancelled", status_details={"reason": "turn_detected"}))
    assert events == [Interrupted(), TurnEnded("interrupted", "turn_detected")]
    (output,) = transport.replies()
    assert json.loads(output["item"]["output"])["error"]["type"] == "CANCELLED"


@pytest.mark.parametrize("reason", ["content_filter", "something_new"])
def test_a_call_of_a_response_that_was_filtered_does_not_run_whenever_it_comes(reason: str) -> None:
    transport = new()
    filtered = done(status="incomplete", status_details={"type": "incomplete", "reason": reason})
    assert told(transport, created(), item("call_1"), filtered, item("call_2")) == [TurnEnded("cut", reason)]
    outputs = [json.loads(sent["item"]["output"]) for sent in transport.replies()]
    assert [output["error"]["type"] for output in outputs] == ["CANCELLED", "CANCELLED"]
    assert transport.counters.unfinished_calls == 2


def test_a_whole_call_of_a_response_that_was_only_too_long_is_told() -> None:
    cut = done(status="incomplete", status_details={"type": "incomplete", "reason": "max_output_tokens"})
    assert [type(event) for event in told(new(), created(), item(), cut)] == [CallsMade]


def test_the_same_call_twice_is_told_once() -> None:
    transport = new()
    events = told(transport, created(), created(), item(), item(), done(), done())
    assert len([event for event in events if isinstance(event, CallsMade)]) == 1
    assert transport.counters.duplicate_events == 2


def test_a_call_that_comes_after_the_end_of_its_response_is_told() -> None:
    events = told(new(), created(), done(), item())
    assert [type(event) for event in events] == [TurnEnded, CallsMade]


def test_a_call_that_only_the_end_of_its_response_tells_of_is_told() -> None:
    events = told(new(), created(), done(output=[item()["item"]]))
    assert [type(event) for event in events] == [CallsMade]


def test_thousands_of_calls_are_capped_and_the_rest_answered_at_once() -> None:
    transport = new()
    told(transport, created(), *[item(f"call_{n}") for n in range(500)])
    (event,) = told(transport, done())
    assert len(event.calls) == MAX_CALLS  # type: ignore[union-attr]
    assert len(transport.replies()) == 500 - MAX_CALLS == transport.counters.refused_calls


def test_calls_of_responses_that_never_end_are_not_kept_without_end() -> None:
    transport = new()
    told(transport, *[item(f"call_{n}", response=f"r{n}") for n in range(500)])
    kept = [event for n in range(500) for event in told(transport, done(f"r{n}"))]
    calls = [call.call_id for event in kept if isinstance(event, CallsMade) for call in event.calls]
    assert calls == [f"call_{n}" for n in range(450, 500)]
    assert transport.counters.unfinished_calls == 450


def test_transcripts_are_told_in_pieces_and_whole() -> None:
    kind = "conversation.item.input_audio_transcription"
    events = told(
        new(),
        {"type": f"{kind}.delta", "item_id": "u", "delta": "Dim"},
        {"type": f"{kind}.completed", "item_id": "u", "transcript": "Dim it."},
        {"type": f"{kind}.completed", "item_id": "v", "transcript": "Now."},
    )
    assert events == [
        InputTranscript("Dim", "Dim", item="u"),
        InputTranscript(" it.", "Dim it.", True, "u"),
        InputTranscript("Now.", "Now.", True, "v"),
    ]


def test_what_is_told_of_an_utterance_is_told_once_and_under_its_name() -> None:
    transport = new()
    kind = "conversation.item.input_audio_transcription"
    sent = [
        {"type": "input_audio_buffer.speech_started", "item_id": "u"},
        {"type": "input_audio_buffer.speech_stopped", "item_id": "u"},
        {"type": "input_audio_buffer.speech_started", "item_id": "v"},
        {"type": f"{kind}.completed", "item_id": "u", "transcript": "Yes."},
        {"type": "input_audio_buffer.speech_stopped", "item_id": "v"},
    ]
    once = [
        UserSpeechStarted("u"),
        UserSpeechEnded("u"),
        UserSpeechStarted("v"),
        InputTranscript("Yes.", "Yes.", True, "u"),
        UserSpeechEnded("v"),
    ]
    assert told(transport, *[message for one in sent for message in (one, one)]) == once
    assert told(transport, {"type": f"{kind}.delta", "item_id": "u", "delta": "Yes."}) == []
    assert transport.counters.duplicate_events == 6


def test_words_that_belong_to_no_utterance_are_not_told() -> None:
    transport = new()
    kind = "conversation.item.input_audio_transcription"
    assert told(transport, {"type": f"{kind}.delta", "delta": "Yes"}) == []
    assert told(transport, {"type": f"{kind}.completed", "transcript": "Yes."}) == []
    assert transport.counters.malformed_events == 2


def test_no_more_is_cut_off_than_was_spoken() -> None:
    transport = new()
    assert transport.truncate(100) == []
    told(transport, {"type": "response.output_audio.delta", "item_id": "i", "delta": "AAAA" * 800})
    assert [transport.truncate(ms)[0]["audio_end_ms"] for ms in (20, 1000, -5)] == [20, 50, 0]


class TestANewConversation:
    def test_it_is_told_what_was_said_and_which_calls_were_answered(self) -> None:
        transport = new(history=[Utterance("user", "I am Ana.")])
        told(transport, created(), item(), done())
        transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "when_idle")
        assert transport.restored_calls == ()
        told(transport, created("r2"), {"type": "response.output_audio_transcript.delta", "delta": "Done."}, done("r2"))
        transport.lost()
        transport.setup()
        first, resumed = transport.begin()

        assert resumed is False
        assert [message["item"]["type"] for message in first] == [
            "message",
            "function_call",
            "function_call_output",
            "message",
        ]
        assert (transport.is_settled, transport.restored_calls) == (False, ())
        told(transport, *[{"type": "conversation.item.added", "item": message["item"]} for message in first])
        assert (transport.is_settled, transport.restored_calls) == (True, ("call_1",))

    def test_a_call_to_whose_output_the_model_has_not_reacted_is_told_and_not_remembered(self) -> None:
        transport = new()
        told(transport, created(), item(), done())
        transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "when_idle")
        transport.lost()
        transport.setup()
        first, _ = transport.begin()
        told(transport, *[{"type": "conversation.item.added", "item": one["item"]} for one in first if "item" in one])
        assert "call_1" in str(first)
        assert transport.restored_calls == ()

    def test_a_call_that_it_did_not_take_is_not_remembered(self) -> None:
        transport = new()
        told(transport, created(), item(), done())
        transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "when_idle")
        told(transport, created("r2"), done("r2"))
        transport.lost()
        transport.setup()
        first, _ = transport.begin()
        for message in first:
            told(transport, {"type": "error", "error": {"code": "invalid_value", "event_id": message["event_id"]}})
        assert (transport.is_settled, transport.restored_calls) == (True, ())

    def test_an_answer_that_was_owed_is_asked_for(self) -> None:
        transport = new()
        transport.user_text("Hello")
        transport.lost()
        transport.setup()
        first, _ = transport.begin()
        assert types_of(first) == ["conversation.item.create", "response.create"]

    def test_a_call_that_still_runs_is_put_into_it_with_its_output(self) -> None:
        transport = new()
        told(transport, created(), item(), done())
        transport.lost()
        transport.setup()
        assert transport.begin()[0] == []
        sent = transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "when_idle")
        assert [message.get("item", message)["type"] for message in sent] == [
            "function_call",
            "function_call_output",
            "response.create",
        ]

    def test_the_same_call_under_its_old_id_is_given_its_outcome_again_and_not_told(self) -> None:
        transport = new()
        told(transport, created(), item(), done())
        transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "when_idle")
        told(transport, created("r2"), done("r2"))
        transport.lost()
        transport.setup()
        transport.begin()
        spaced = json.dumps(json.loads(ARGUMENTS), indent=2)
        events = told(transport, created("r3"), item(response="r3", arguments=spaced), done("r3"))
        assert not [event for event in events if isinstance(event, CallsMade)]
        output, asked = transport.replies()
        assert output["item"]["type"] == "function_call_output"
        assert json.loads(output["item"]["output"]) == OK
        assert asked["type"] == "response.create"

    def test_another_call_under_an_old_id_is_told(self) -> None:
        transport = new()
        told(transport, created(), item(), done())
        transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "when_idle")
        transport.lost()
        transport.setup()
        transport.begin()
        events = told(transport, created("r3"), item(response="r3", arguments='{"level": 77}'), done("r3"))
        assert [call.args for event in events if isinstance(event, CallsMade) for call in event.calls] == [
            '{"level": 77}'
        ]


@pytest.mark.parametrize(
    "shown",
    [
        [done("r1")],
        [{"type": "response.output_audio.delta", "response_id": "r1", "item_id": "i", "delta": "AAAA"}, done("r1")],
        [item(), done("r1")],
    ],
)
def test_a_response_whose_beginning_was_lost_does_not_hold_up_the_next(shown: list[dict[str, Any]]) -> None:
    transport = new()
    transport.user_text("Hello")
    told(transport, *shown)
    if len(shown) == 2 and shown[0]["type"] == "response.output_item.done":
        transport.answers([Answer(Call("set_lamp", ARGUMENTS, "call_1"), OK)], "silent")
    assert "response.create" in types_of(transport.user_text("Are you there?"))


BAD = [
    "nonsense",
    "",
    b"\xff",
    "[]",
    "{}",
    '{"type": 3}',
    '{"type": "response.done", "response": 4}',
    '{"type": "response.output_item.done", "item": []}',
    '{"type": "response.output_audio.delta", "delta": 9}',
    '{"type": "response.output_audio.delta", "delta": "%%%%"}',
    '{"type": "response.output_audio_transcript.delta"}',
    '{"type": "conversation.item.input_audio_transcription.completed"}',
    '{"type": "error"}',
]


@pytest.mark.parametrize("raw", BAD, ids=range(len(BAD)))
def test_what_cannot_be_read_is_counted_and_left_out(raw: str | bytes) -> None:
    transport = new()
    assert transport.receive(raw) == []
    assert transport.counters.malformed_events == 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
_KINDS = st.sampled_from([*OpenAIRealtimeTransport(LiveConfig())._readers, "session.updated", "unheard.of"])
_ITEMS = st.fixed_dictionaries(
    {"type": st.just("function_call")},
    optional={"call_id": _JSON, "name": _JSON, "arguments": _JSON, "status": st.just("completed") | _JSON},
)
_EVENTS = st.fixed_dictionaries(
    {"type": _KINDS},
    optional={
        "response": _JSON | st.fixed_dictionaries({"id": st.sampled_from(["a", "b"]), "status": st.just("completed")}),
        "response_id": st.sampled_from(["a", "b"]) | _JSON,
        "item": _ITEMS | _JSON,
        "item_id": _JSON,
        "delta": _JSON,
        "transcript": _JSON,
        "error": _JSON | st.fixed_dictionaries({"code": st.just(BUSY), "event_id": st.just("evt_h2")}),
    },
)


@given(st.lists(_EVENTS, max_size=8))
def test_no_event_whatever_is_in_it_raises(sent: list[dict[str, Any]]) -> None:
    transport = new()
    for message in sent:
        for event in transport.receive(json.dumps(message)):
            if isinstance(event, CallsMade):
                transport.answers([Answer(call, OK) for call in event.calls], "when_idle")
        transport.replies()
    transport.lost()
    transport.setup()
    transport.begin()


def test_speech_is_reported_when_it_starts_and_stops() -> None:
    events = told(new(), {"type": "input_audio_buffer.speech_started"}, {"type": "input_audio_buffer.speech_stopped"})
    assert events == [UserSpeechStarted(), UserSpeechEnded()]
