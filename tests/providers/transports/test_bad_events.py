"""Whatever a provider sends, a reader tells whole calls, an error of the model, or counts a drop; it never raises otherwise."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.transports.kit import MODEL, NAMES, calls, finished, read, text, transport

from handrail.contract.model import AssistantMessage, ModelError, ModelRequest, UserMessage
from handrail.providers.event_stream import MAX_ARGUMENTS, MAX_CALLS, StreamCounters
from handrail.testing.servers import (
    AnthropicServer,
    GeminiServer,
    OllamaServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    Reply,
    call,
)
from handrail.testing.servers.script import NumberedCall

SERVERS = {
    "openai-chat": OpenAIChatServer,
    "openai-responses": OpenAIResponsesServer,
    "anthropic": AnthropicServer,
    "gemini": GeminiServer,
    "ollama": OllamaServer,
}
LAMP = {"room": "kitchen", "level": 20}


def played(name, reply, *, cut=False):
    """The events of a reply, as the provider's local server would send them."""
    server = SERVERS[name]([])
    numbered = [NumberedCall(n, server.new_id(n), one.name, one.args) for n, one in enumerate(reply.calls, 1)]
    frames = server.truncated(reply, numbered) if cut else server.frames(reply, numbered)
    sent = []
    for number, frame in enumerate(frames):
        payload = frame.payload
        if name == "openai-responses" and isinstance(payload, dict):
            payload = {**payload, "sequence_number": number}
        sent.append(payload)
    return sent


def whole(call_made):
    args = call_made.args
    return json.loads(args) if isinstance(args, str) else args


WORDS = st.sampled_from(
    [
        "type", "index", "delta", "choices", "tool_calls", "function", "name", "arguments", "id", "finish_reason",
        "message", "content", "content_block", "partial_json", "candidates", "parts", "functionCall", "args", "text",
        "item", "response", "output", "status", "call_id", "usage", "done", "error", "usageMetadata", "finishReason",
        "object", "sequence_number", "thinking", "citation",
    ]
)  # fmt: skip
KINDS = st.sampled_from(
    [
        "content_block_start", "content_block_delta", "content_block_stop", "message_start", "message_delta", "message",
        "message_stop", "tool_use", "text", "text_delta", "input_json_delta", "citations_delta", "signature_delta",
        "response.output_item.done", "response.completed", "response.incomplete", "response.output_text.delta",
        "function_call", "function", "response", "tool_calls", "length", "STOP", "completed",
    ]
)  # fmt: skip
NEARLY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=3) | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)


@given(events=st.lists(st.dictionaries(WORDS, NEARLY, max_size=5) | NEARLY, max_size=6))
def test_events_of_any_shape_never_raise_anything_but_an_error_of_the_model(events):
    for name in NAMES:
        reader = transport(name).new_reader(MODEL, StreamCounters())
        try:
            for event in events:
                list(reader.feed(json.dumps(event).encode()))
            told = list(reader.end())
        except ModelError:
            continue
        json.dumps(finished(told).raw)
        assert len(calls(told)) <= MAX_CALLS
        assert all(isinstance(one.name, str) for one in calls(told))


@given(data=st.lists(st.binary(max_size=40), max_size=6))
def test_bytes_of_any_kind_are_dropped(data):
    for name in NAMES:
        reader = transport(name).new_reader(MODEL, StreamCounters())
        for event in data:
            list(reader.feed(event))
        with pytest.raises(ModelError, match="broke off"):
            list(reader.end())


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_what_is_told_of_a_damaged_stream_is_whole(name, data):
    """Events lost, doubled and swapped with others: a call is told as it was made, or as text that is not JSON, or not at all."""
    reply = Reply("Just a moment.", [call("set_lamp", **LAMP), call("look_up", q="A-17")])
    sent = played(name, reply)
    places = data.draw(st.lists(st.sampled_from(range(len(sent))), min_size=1, max_size=len(sent) + 3, unique=False))
    places = sorted(places) if data.draw(st.booleans()) else places
    try:
        told = read(name, [sent[place] for place in places])
    except ModelError:
        return
    made = {"set_lamp": LAMP, "look_up": {"q": "A-17"}}
    for one in calls(told):
        try:
            args = whole(one)
        except ValueError:
            continue
        # Half of a call's text may be lost and leave nothing at all, which is refused for what is missing.
        assert args in (made.get(one.name, args), {}) or not isinstance(args, dict)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_events_are_counted_and_the_rest_is_read(name):
    counters = StreamCounters()
    sent = played(name, Reply("Yes.", [call("set_lamp", **LAMP)]))
    odd = [{"type": "of_the_future", "x": 1}, b"no json", b"[]", b"7", b"\xff\xfe", {"type": ["list"]}]
    told = read(name, [event for good in sent[:-1] for event in (*odd, good)] + sent[-1:], counters)

    assert (text(told), whole(calls(told)[0])) == ("Yes.", LAMP)
    assert counters.malformed_events >= 4
    assert counters.unknown_events >= 1
    assert counters.kinds


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic"])
def test_a_call_that_was_cut_is_not_told_and_not_in_the_history(name):
    told = read(name, played(name, Reply("", [call("look_up", q="A-17"), call("set_lamp", **LAMP)]), cut=True))

    assert [one.name for one in calls(told)] == ["look_up"], "the one before it was whole"
    assert finished(told).reason == "length"
    assert "set_lamp" not in json.dumps(finished(told).raw)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_ends_too_early_is_an_error_that_may_pass(name):
    sent = played(name, Reply("Yes.", [call("set_lamp", **LAMP)]))
    end = {"openai-chat": 3, "anthropic": 2}.get(name, 1)
    with pytest.raises(ModelError, match="broke off") as caught:
        read(name, sent[:-end])
    assert caught.value.retryable


@pytest.mark.parametrize("name", NAMES)
def test_thousands_of_calls_are_bounded_and_so_is_the_history(name):
    counters = StreamCounters()
    told = read(name, played(name, Reply("", [call("set_lamp", n=n) for n in range(3_000)])), counters)

    assert len(calls(told)) == MAX_CALLS
    assert counters.dropped_calls == 3_000 - MAX_CALLS
    assert json.dumps(finished(told).raw).count("set_lamp") == MAX_CALLS


@pytest.mark.parametrize("name", NAMES)
def test_arguments_of_megabytes_are_told_as_what_is_refused_and_forgotten(name):
    told = read(name, played(name, Reply("", [call("set_lamp", padding="x" * 3_000_000)])))

    (made,) = calls(told)
    assert isinstance(made.args, str)
    assert MAX_ARGUMENTS < len(made.args) < MAX_ARGUMENTS + 100
    assert len(json.dumps(finished(told).raw)) < 1_000


@pytest.mark.parametrize("name", ["gemini", "ollama", "anthropic"])
def test_arguments_that_nest_too_deeply_are_refused_and_forgotten(name):
    deep = json.loads('{"a":' * 300 + "1" + "}" * 300)
    sent = played(name, Reply("", [call("set_lamp")]))
    text_of_all = [json.dumps(event) if not isinstance(event, bytes) else event.decode() for event in sent]
    nested = json.dumps(deep)
    if name == "anthropic":
        nested_text = json.dumps(nested)
        events = [one.replace('"partial_json": "{"', f'"partial_json": {nested_text}') for one in text_of_all]
        events = [one.replace('"partial_json": "}"', '"partial_json": ""') for one in events]
    else:
        events = [one.replace('"args": {}', f'"args": {nested}') for one in text_of_all]
        events = [one.replace('"arguments": {}', f'"arguments": {nested}') for one in events]
    told = read(name, [one.encode() for one in events])

    (made,) = calls(told)
    assert isinstance(made.args, str)
    assert "}" * 100 not in json.dumps(finished(told).raw)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given_name", ["", "no such/tool", "ü" * 80, "1abc"], ids=["none", "path", "long", "digit"])
def test_a_name_that_no_provider_takes_back_is_told_as_it_is_and_mended_in_the_history(name, given_name):
    told = read(name, played(name, Reply("", [call(given_name, **LAMP)])))

    assert [one.name for one in calls(told)] == [given_name]
    found = json.dumps(finished(told).raw, ensure_ascii=False)
    assert given_name == "" or f'"{given_name}"' not in found
    assert '"name": ""' not in found


@pytest.mark.parametrize("name", NAMES)
def test_the_same_call_under_the_same_id_is_told_once(name):
    counters = StreamCounters()
    sent = played(name, Reply("", [call("set_lamp", **LAMP)]))
    if name == "openai-chat":
        again = [
            json.loads(json.dumps(one).replace('"tool_calls": [{"index": 0', '"tool_calls": [{"index": 7'))
            for one in sent[:-3]
        ]
        sent = [*sent[:-3], *again[1:], *sent[-3:]]
    elif name == "anthropic":
        again = [json.loads(json.dumps(one).replace('"index": 1', '"index": 8')) for one in sent[5:-2]]
        sent = [*sent[:-2], *again, *sent[-2:]]
    else:
        sent = [event for one in sent[:-1] for event in (one, one)] + sent[-1:]
    told = read(name, sent, counters)

    assert [whole(one) for one in calls(told)] == [LAMP]
    assert counters.duplicates >= 1
    assert json.dumps(finished(told).raw).count("set_lamp") == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_provider_that_says_that_it_failed_is_an_error_of_the_model(name):
    server = SERVERS[name]([])
    with pytest.raises(ModelError, match=r"broke off\.$") as caught:
        read(name, [server.failure()])
    assert caught.value.detail.endswith("broke off: the local server fails")
    assert caught.value.retryable


def test_calls_without_ids_stay_without():
    gemini, ollama = GeminiServer([], ids=False), OllamaServer([], ids=False)
    for name, server in (("gemini", gemini), ("ollama", ollama)):
        numbered = [NumberedCall(1, server.new_id(1), "set_lamp", LAMP)]
        told = read(name, [frame.payload for frame in server.frames(Reply(), numbered)])
        assert calls(told)[0].call_id is None
        assert '"id"' not in json.dumps(finished(told).raw)


def test_another_call_under_an_index_that_is_taken_is_another_call():
    """Some servers that speak OpenAI's protocol give every parallel call the index 0."""
    sent = played("openai-chat", Reply("", [call("set_lamp", **LAMP), call("look_up", q="A-17")]))
    flat = json.loads(json.dumps(sent[:-1]).replace('"index": 1', '"index": 0'))
    told = read("openai-chat", [*flat, b"[DONE]"])

    assert [(one.name, whole(one)) for one in calls(told)] == [("set_lamp", LAMP), ("look_up", {"q": "A-17"})]


@pytest.mark.parametrize(
    ("name", "reason", "expected"),
    [(name, reason, reason) for name in NAMES for reason in ("length", "refusal")],
)
def test_why_an_answer_ended_is_told(name, reason, expected):
    assert finished(read(name, played(name, Reply("Half an", reason=reason)))).reason == expected


@pytest.mark.parametrize("name", NAMES)
def test_calls_of_an_answer_that_was_refused_are_neither_told_nor_kept(name):
    told = read(name, played(name, Reply("I will.", [call("set_lamp", **LAMP)], reason="refusal")))

    assert (calls(told), finished(told).reason, text(told)) == ([], "refusal", "I will.")
    assert "set_lamp" not in json.dumps(finished(told).raw)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sent_back_after_a_refusal_has_no_call_that_waits_for_a_result(name):
    told = read(name, played(name, Reply("I will.", [call("set_lamp", **LAMP)], reason="refusal")))
    history = [UserMessage("Light!"), AssistantMessage("I will.", (), finished(told).raw), UserMessage("Well?")]
    sent = json.dumps(transport(name).body(ModelRequest(system="", messages=history), model=MODEL))

    assert "I will." in sent
    assert "set_lamp" not in sent


def test_a_filter_that_strikes_before_the_arguments_leaves_no_call():
    """Blank arguments are how some servers say "none", so that a call without them would run."""
    opened = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "start", "arguments": ""}}
    sent = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [opened]}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]},
    ]
    told = read("openai-chat", [*sent, b"[DONE]"])

    assert (calls(told), finished(told).reason) == ([], "refusal")


def test_a_refusal_in_words_takes_the_calls_beside_it_along():
    refusal = {"id": "m", "type": "message", "status": "completed", "content": [{"type": "refusal", "refusal": "No."}]}
    asked = {
        "id": "f",
        "type": "function_call",
        "status": "completed",
        "call_id": "c",
        "name": "pay",
        "arguments": "{}",
    }
    done = [{"type": "response.output_item.done", "item": item} for item in (refusal, asked)]
    told = read("openai-responses", [*done, {"type": "response.completed", "response": {"status": "completed"}}])
    assert (calls(told), finished(told).reason) == ([], "refusal")

    delta = {"refusal": "No.", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "pay", "arguments": "{}"}}]}
    told = read("openai-chat", [{"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]}, b"[DONE]"])
    assert (calls(told), finished(told).reason, text(told)) == ([], "refusal", "No.")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("openai-chat", '"finish_reason": "tool_calls"'),
        ("openai-responses", '"incomplete_details": {"reason": "max_output_tokens"'),
        ("anthropic", '"stop_reason": "tool_use"'),
        ("ollama", '"done_reason": "stop"'),
    ],
)
def test_calls_of_an_answer_that_ended_for_a_reason_nobody_knows_are_not_told(name, reason):
    """Among the reasons of servers that speak these protocols are those of an answer that was broken off. Gemini's, where
    they are neither an end nor a cut, are refusals."""
    length = "length" if name == "openai-responses" else "stop"
    sent = played(name, Reply("", [call("set_lamp", **LAMP)], reason=length))
    text = json.dumps([one for one in sent if one != b"[DONE]"])
    key = reason.rpartition(": ")[0]
    assert text.count(reason) == 1
    with pytest.raises(ModelError, match="broke off before its end"):
        read(name, json.loads(text.replace(reason, f'{key}: "insufficient_system_resource"')))


def test_text_under_a_sequence_number_that_was_told_is_not_told_again():
    sent = played("openai-responses", Reply("Just a moment."))
    counters = StreamCounters()
    told = read("openai-responses", [event for one in sent for event in (one, one)], counters)

    assert text(told) == "Just a moment."
    assert counters.duplicates == len(sent)
