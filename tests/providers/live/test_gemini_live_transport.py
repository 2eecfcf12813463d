"""Gemini Live: what its messages mean, what is sent back, and what is remembered across connections."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.wire_examples import example

from handrail.contract.call import Call
from handrail.contract.live import (
    Answer,
    AudioOut,
    CallsCancelled,
    CallsMade,
    GoAway,
    InputTranscript,
    Interrupted,
    LiveConfig,
    LiveEvent,
    OutputTranscript,
    ResumptionHandle,
    TurnEnded,
    Usage,
    UserSpeechEnded,
    UserSpeechStarted,
)
from handrail.providers.gemini.live import messages
from handrail.providers.gemini.live.transport import GeminiLiveTransport
from handrail.providers.live_history import MAX_CALLS

PCM = b"\x00\x00\x10\x00\xf0\xff\x00\x00"
OK = {"ok": True, "data": {"level": 20}, "intents": [], "meta": {}}
FAILED = {
    "ok": False,
    "error": {"type": "PERMANENT", "message": "No.", "retryable": False, "partialSideEffects": False},
    "intents": [],
    "meta": {},
}
CANCELLED = {**FAILED, "error": {**FAILED["error"], "type": "CANCELLED"}}  # type: ignore[dict-item]
TOOL_CALL = {"toolCall": {"functionCalls": [{"id": "fc-1", "name": "set_lamp", "args": {"level": 20}}]}}
AUDIO = {
    "serverContent": {
        "modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": "AAAQAPD/AAA="}}]}
    }
}
DONE = {"serverContent": {"turnComplete": True}}


def new(**config: Any) -> GeminiLiveTransport:
    transport = GeminiLiveTransport("a-model", LiveConfig(**config))
    transport.setup()
    transport.begin()
    return transport


def told(transport: GeminiLiveTransport, *sent: dict[str, Any]) -> list[LiveEvent]:
    return [event for message in sent for event in transport.receive(json.dumps(message))]


def heard(text: str) -> dict[str, Any]:
    return {"serverContent": {"inputTranscription": {"text": text}}}


def handle(name: str) -> dict[str, Any]:
    return {"sessionResumptionUpdate": {"newHandle": name, "resumable": True}}


def test_every_message_of_the_example_is_understood() -> None:
    transport = new()
    events = told(transport, *example("gemini-live.server-messages.json"))
    calls = (
        Call("set_lamp", {"room": "kitchen", "level": 20}, "fc-lamp1", "gemini-live", "session"),
        Call("lookup_order", {"order_id": "A-17"}, "fc-order1", "gemini-live", "session"),
    )
    assert events == [
        InputTranscript("Dim the kitchen", "Dim the kitchen"),
        UserSpeechEnded(),
        CallsMade(calls),
        AudioOut(PCM, 24_000),
        OutputTranscript("Kitchen is dimmed.", "Kitchen is dimmed."),
        Usage(50, 20),
        TurnEnded("done"),
        Interrupted(),
        CallsCancelled(("fc-order1",)),
        TurnEnded("interrupted", "MALFORMED_FUNCTION_CALL"),
        ResumptionHandle("handle-2", True),
        ResumptionHandle(None, False),
        GoAway(9.5),
    ]
    assert (transport.counters.unknown_events, transport.counters.malformed_events) == (0, 0)


def test_every_message_of_the_example_can_be_produced() -> None:
    wanted = example("gemini-live.client-messages.json")
    tools = wanted[0]["setup"]["tools"][0]["functionDeclarations"]
    undeclared = [{key: value for key, value in tool.items() if key != "behavior"} for tool in tools]
    config = LiveConfig(system="Be brief.", tools=undeclared, background=frozenset({"lookup_order"}))
    made = messages.setup("example-live-model", config)
    wanted[0]["setup"]["realtimeInputConfig"]["automaticActivityDetection"].pop("silenceDurationMs")
    again = messages.setup("example-live-model", LiveConfig(), "handle-2")["setup"]

    order = {"output": {"progress": 0.5}}, {"output": {"status": "shipped"}}
    produced = [
        made,
        messages.audio(PCM, 16_000),
        messages.realtime_text("Dim the kitchen."),
        messages.content([("user", "Dim the kitchen.")], complete=True),
        _response("fc-lamp1", "set_lamp", {"output": {"ok": True}}),
        _response("fc-order1", "lookup_order", order[0], "silent", True),
        _response("fc-order1", "lookup_order", order[1], "when_idle", False),
        _response("fc-lamp2", "set_lamp", {"error": "Lamp offline"}, "interrupt"),
        messages.microphone("activityStart"),
        messages.microphone("activityEnd"),
        messages.microphone("audioStreamEnd"),
        messages.replace_tools([]),
        {"setup": {name: again[name] for name in ("model", "generationConfig", "sessionResumption")}},
    ]
    assert produced == wanted
    assert json.loads(messages.audio_frame(PCM, 16_000)) == wanted[1]


def _response(*facts: Any) -> dict[str, Any]:
    return messages.tool_response([messages.function_response(*facts)])


def test_what_is_sent_has_the_types_of_the_sdk() -> None:
    types = pytest.importorskip("google.genai.types")
    transport = new(
        tools=[{"name": "set_lamp", "description": "x"}],
        background=frozenset({"set_lamp"}),
        voice="Kore",
        language="en-US",
    )
    told(transport, TOOL_CALL)
    call = Call("set_lamp", {}, "fc-1")
    sent = [
        transport.setup(),
        *transport.answers([Answer(call, OK)], "when_idle"),
        *transport.answers([Answer(call, OK)], "when_idle"),
        *transport.user_text("Hello"),
        *transport.host_text("Note", "silent"),
    ]
    for message in sent:
        body = dict(message)
        setup = body.get("setup")
        if setup:  # this one field is known to the connection's settings only
            types.RealtimeInputConfig.model_validate(setup["realtimeInputConfig"])
            body["setup"] = {key: value for key, value in setup.items() if key != "realtimeInputConfig"}
        types.LiveClientMessage.model_validate(body)


def test_an_answer_is_the_whole_envelope_under_the_key_that_tells_how_it_went() -> None:
    transport = new(tools=[{"name": "set_lamp"}])
    calls = [{"id": f"fc-{n}", "name": "set_lamp", "args": {}} for n in (1, 2)]
    (event,) = told(transport, {"toolCall": {"functionCalls": calls}})
    assert isinstance(event, CallsMade)
    (sent,) = transport.answers([Answer(event.calls[0], OK), Answer(event.calls[1], FAILED)], "when_idle")
    assert sent["toolResponse"]["functionResponses"] == [
        {"id": "fc-1", "name": "set_lamp", "response": {"output": OK}},
        {"id": "fc-2", "name": "set_lamp", "response": {"error": FAILED}},
    ]


def test_scheduling_is_told_for_tools_that_do_not_block() -> None:
    transport = new(tools=[{"name": "set_lamp"}], background=frozenset({"set_lamp"}))
    told(transport, TOOL_CALL)
    (sent,) = transport.answers([Answer(Call("set_lamp", {}, "fc-1"), OK)], "silent")
    assert sent["toolResponse"]["functionResponses"][0]["scheduling"] == "SILENT"


def test_the_same_call_twice_is_told_once_and_another_one_under_its_id_is_told() -> None:
    transport = new()
    other = {"toolCall": {"functionCalls": [{"id": "fc-1", "name": "set_lamp", "args": {"level": 99}}]}}
    assert len(told(transport, TOOL_CALL)) == 1
    assert told(transport, TOOL_CALL) == []
    assert len(told(transport, other)) == 1
    assert transport.counters.duplicate_events == 1


def test_thousands_of_calls_in_a_message_are_capped_and_the_rest_answered_at_once() -> None:
    transport = new()
    calls = [{"id": f"fc-{n}", "name": "set_lamp", "args": {}} for n in range(5000)]
    (event,) = told(transport, {"toolCall": {"functionCalls": calls}})
    assert isinstance(event, CallsMade)
    assert len(event.calls) == MAX_CALLS
    (reply,) = transport.replies()
    refused = reply["toolResponse"]["functionResponses"]
    assert len(refused) == 5000 - MAX_CALLS == transport.counters.refused_calls
    assert refused[0]["response"]["error"]["error"]["type"] == "BUDGET_EXCEEDED"
    assert transport.replies() == []


@pytest.mark.parametrize("envelope", [CANCELLED, OK], ids=["without effect", "with effect"])
def test_a_call_that_was_taken_back_gets_no_response_and_what_it_did_is_told_silently(envelope: dict[str, Any]) -> None:
    transport = new()
    told(transport, TOOL_CALL, {"toolCallCancellation": {"ids": ["fc-1"]}})
    sent = transport.answers([Answer(Call("set_lamp", {"level": 20}, "fc-1"), envelope)], "when_idle")
    if envelope is CANCELLED:
        assert sent == []
    else:
        content = sent[0]["clientContent"]
        assert content["turnComplete"] is False
        assert '"set_lamp" (call "fc-1")' in content["turns"][0]["parts"][0]["text"]


def test_a_call_that_was_taken_back_and_is_made_again_under_its_id_is_answered_under_it() -> None:
    transport = new()
    told(transport, TOOL_CALL, {"toolCallCancellation": {"ids": ["fc-1"]}})
    (made,) = told(transport, TOOL_CALL)
    assert isinstance(made, CallsMade)
    (sent,) = transport.answers([Answer(made.calls[0], OK)], "when_idle")
    assert sent["toolResponse"]["functionResponses"][0]["id"] == "fc-1"
    assert told(transport, TOOL_CALL) == []  # an echo of what was made again is one, too


def test_a_call_without_an_id_is_told_and_answered_in_words() -> None:
    transport = new()
    (event,) = told(transport, {"toolCall": {"functionCalls": [{"name": "set_lamp"}]}})
    assert isinstance(event, CallsMade)
    assert event.calls[0].call_id is None
    (sent,) = transport.answers([Answer(event.calls[0], OK)], "when_idle")
    assert "toolResponse" not in sent
    assert '"level":20' in str(sent)


def test_audio_is_read_from_both_alphabets_of_base64() -> None:
    for data in ("AAAQAPD/AAA=", "AAAQAPD_AAA="):
        part = {"inlineData": {"mimeType": "audio/pcm", "data": data}}
        assert told(new(), {"serverContent": {"modelTurn": {"parts": [part]}}}) == [AudioOut(PCM, 24_000)]


def test_a_turn_ends_when_the_model_is_idle_and_not_while_it_is_in_progress() -> None:
    transport = new()
    assert told(transport, {"serverContent": {"turnComplete": True, "interactionStatus": "IN_PROGRESS"}}) == []
    assert told(transport, {"serverContent": {"turnComplete": True, "interactionStatus": "IDLE"}}) == [
        TurnEnded("done")
    ]


def test_a_malformed_call_fails_the_turn() -> None:
    message = {"serverContent": {"turnComplete": True, "turnCompleteReason": "MALFORMED_FUNCTION_CALL"}}
    assert told(new(), message) == [TurnEnded("failed", "MALFORMED_FUNCTION_CALL")]


def _ended_by(reason: str) -> dict[str, Any]:
    return {"serverContent": {"turnComplete": True, "turnCompleteReason": reason}}


@pytest.mark.parametrize("reason", ["RESPONSE_REJECTED", "GENERATED_CONTENT_SAFETY", "SOMETHING_NEW"])
def test_a_turn_that_is_rejected_takes_its_open_calls_back(reason: str) -> None:
    transport = new()
    earlier = {"toolCall": {"functionCalls": [{"id": "fc-0", "name": "set_lamp", "args": {}}]}}
    told(transport, earlier, DONE, TOOL_CALL)
    assert told(transport, _ended_by(reason)) == [CallsCancelled(("fc-1",)), TurnEnded("failed", reason)]
    assert transport.answers([Answer(Call("set_lamp", {"level": 20}, "fc-1"), CANCELLED)], "when_idle") == []


def test_a_call_in_the_message_that_rejects_its_turn_is_not_told() -> None:
    transport = new()
    events = told(transport, {**TOOL_CALL, **_ended_by("GENERATED_CONTENT_SAFETY")})
    assert events == [TurnEnded("failed", "GENERATED_CONTENT_SAFETY")]
    assert transport.counters.unfinished_calls == 1


@pytest.mark.parametrize("reason", ["", "NEED_MORE_INPUT"])
def test_a_turn_that_ended_well_leaves_its_calls_open(reason: str) -> None:
    assert told(new(), TOOL_CALL, _ended_by(reason))[1:] == [TurnEnded("done", reason)]


class TestTheEndOfTheUsersSpeech:
    def test_it_is_the_first_output_after_speech_was_heard(self) -> None:
        transport = new()
        events = told(transport, heard("Dim"), heard(" it"), AUDIO, AUDIO, DONE, AUDIO, DONE)
        assert [type(event) for event in events] == [
            InputTranscript,
            InputTranscript,
            UserSpeechEnded,
            AudioOut,
            AudioOut,
            TurnEnded,
            AudioOut,
            TurnEnded,
        ]

    def test_a_transcript_that_comes_late_commits_the_input_then_and_once(self) -> None:
        transport = new()
        events = told(transport, AUDIO, heard("Dim"), heard(" it"), AUDIO, DONE, AUDIO, DONE)
        assert [type(event) for event in events].count(UserSpeechEnded) == 1

    def test_speech_into_the_answer_is_committed_with_the_next_one(self) -> None:
        transport = new()
        first = told(transport, heard("Tell me"), AUDIO, heard("Stop"), {"serverContent": {"interrupted": True}}, DONE)
        assert [type(event) for event in first].count(UserSpeechEnded) == 1
        assert [type(event) for event in told(transport, AUDIO)] == [UserSpeechEnded, AudioOut]

    def test_it_survives_the_loss_of_the_connection_before_the_answer(self) -> None:
        transport = new()
        told(transport, heard("Dim it"))
        transport.lost()
        transport.setup()
        (first,), _ = transport.begin()
        assert first["clientContent"]["turnComplete"] is True
        assert UserSpeechEnded() in told(transport, AUDIO)

    def test_a_late_piece_of_a_transcript_makes_no_new_input_of_a_call_that_is_issued_again(self) -> None:
        transport = new()
        told(transport, heard("Dim"), TOOL_CALL, heard(" it"))
        transport.lost()
        transport.setup()
        transport.begin()
        again = {"toolCall": {"functionCalls": [{"id": "fc-9", "name": "set_lamp", "args": {"level": 20}}]}}
        assert [type(event) for event in told(transport, again)] == [CallsMade]

    def test_a_model_that_reports_activity_is_believed(self) -> None:
        transport = new()
        started = {"voiceActivity": {"voiceActivityType": "ACTIVITY_START"}}
        ended = {"voiceActivity": {"voiceActivityType": "ACTIVITY_END"}}
        assert told(transport, started, ended) == [UserSpeechStarted(), UserSpeechEnded()]
        assert told(transport, AUDIO) == [AudioOut(PCM, 24_000)]

    def test_words_after_the_end_of_activity_may_be_its_own_until_activity_starts_again(self) -> None:
        started = {"voiceActivity": {"voiceActivityType": "ACTIVITY_START"}}
        ended = {"voiceActivity": {"voiceActivityType": "ACTIVITY_END"}}
        transport = new()
        told(transport, started, ended, heard("Dim it"))
        assert told(transport, AUDIO)[0] == UserSpeechEnded(again=True)
        transport = new()
        told(transport, started, ended, started, heard("Dim it"))
        assert told(transport, AUDIO)[0] == UserSpeechEnded()
        transport = new()
        told(transport, started, ended, AUDIO, DONE, heard("Dim it"))
        assert told(transport, AUDIO)[0] == UserSpeechEnded()


class TestResumption:
    def test_calls_behind_the_handle_are_restored_and_later_ones_are_told_again(self) -> None:
        transport = new()
        for number in (1, 2):
            call = {"id": f"fc-{number}", "name": "set_lamp", "args": {}}
            told(transport, {"toolCall": {"functionCalls": [call]}})
            transport.answers([Answer(Call("set_lamp", {}, f"fc-{number}"), OK)], "when_idle")
            told(transport, AUDIO, DONE)
            if number == 1:
                told(transport, handle("h1"))
        transport.lost()

        assert transport.setup()["setup"]["sessionResumption"] == {"handle": "h1"}
        first, resumed = transport.begin()
        assert resumed is True
        assert transport.restored_calls == ("fc-1",)
        assert '(call \\"fc-2\\")' in json.dumps(first)
        assert '(call \\"fc-1\\")' not in json.dumps(first)

    def test_an_answer_to_which_the_model_has_not_reacted_is_not_behind_the_handle(self) -> None:
        transport = new()
        told(transport, TOOL_CALL)
        transport.answers([Answer(Call("set_lamp", {}, "fc-1"), OK)], "when_idle")
        told(transport, handle("h1"))
        transport.lost()
        transport.setup()
        (first,), _ = transport.begin()
        assert transport.restored_calls == ()
        assert first["clientContent"]["turnComplete"] is True

    def test_a_notice_that_it_cannot_be_resumed_keeps_the_older_handle(self) -> None:
        transport = new()
        told(transport, handle("h1"), {"sessionResumptionUpdate": {"resumable": False}})
        transport.lost()
        assert transport.setup()["setup"]["sessionResumption"] == {"handle": "h1"}

    def test_ids_are_good_for_the_session_until_a_new_one_had_to_be_begun(self) -> None:
        transport = new()
        assert _scope(transport) == "session"
        told(transport, handle("h1"))
        transport.lost()
        transport.setup()
        transport.begin()
        assert _scope(transport) == "session"
        transport.lost()
        transport.forget_handle()
        transport.setup()
        transport.begin()
        assert _scope(transport) == "connection"

    def test_the_answer_to_a_call_of_a_lost_connection_is_told_in_words(self) -> None:
        transport = new()
        told(transport, TOOL_CALL)
        transport.lost()
        transport.setup()
        first, _ = transport.begin()
        assert first == []
        (sent,) = transport.answers([Answer(Call("set_lamp", {"level": 20}, "fc-1"), OK)], "when_idle")
        assert sent["clientContent"]["turnComplete"] is True


def _scope(transport: GeminiLiveTransport) -> str:
    (event,) = [one for one in told(transport, TOOL_CALL) if isinstance(one, CallsMade)]
    return event.calls[0].id_scope


BAD = [
    "nonsense",
    "",
    b"\xff",
    "[]",
    "null",
    '{"toolCall": 3}',
    '{"toolCall": {}}',
    '{"toolCall": {"functionCalls": [null, 3]}}',
    '{"serverContent": "x"}',
    '{"toolCallCancellation": {"ids": [1]}}',
    '{"serverContent": {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm", "data": "%"}}]}}}',
    "[" * 100_000,
]


@pytest.mark.parametrize("raw", BAD, ids=range(len(BAD)))
def test_what_cannot_be_read_is_counted_and_left_out(raw: str | bytes) -> None:
    transport = new()
    assert transport.receive(raw) == []
    assert transport.counters.malformed_events == 1


def test_unknown_fields_are_counted_by_name_within_bounds() -> None:
    transport = new()
    for number in range(500):
        assert told(transport, {f"field{number}": {}}) == []
    assert transport.counters.unknown_events == 500
    assert len(transport.counters.kinds) == 100


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=5,
)
_FIELDS = st.sampled_from(
    ["toolCall", "toolCallCancellation", "serverContent", "voiceActivity", "sessionResumptionUpdate", "goAway",
     "usageMetadata", "setupComplete"]
)  # fmt: skip
_INNER = st.dictionaries(
    st.sampled_from(
        ["functionCalls", "ids", "modelTurn", "inputTranscription", "outputTranscription", "interrupted", "turnComplete",
         "interactionStatus", "newHandle", "resumable", "timeLeft", "promptTokenCount", "voiceActivityType", "parts"]
    ),
    _JSON | st.dictionaries(st.sampled_from(["parts", "text", "finished", "inlineData"]), _JSON),
)  # fmt: skip


@given(st.lists(st.dictionaries(_FIELDS, _INNER | _JSON, max_size=2), max_size=4))
def test_no_message_whatever_is_in_it_raises(sent: list[dict[str, Any]]) -> None:
    transport = new()
    for message in sent:
        transport.receive(json.dumps(message))
        transport.replies()
    transport.lost()
    transport.setup()
    transport.begin()


def test_a_frame_is_made_as_the_encoder_would() -> None:
    pcm = bytes(range(256)) * 4
    assert json.loads(messages.audio_frame(pcm, 16_000))["realtimeInput"]["audio"]["data"] == b64encode(pcm).decode()
