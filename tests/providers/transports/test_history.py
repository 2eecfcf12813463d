"""Whatever the conversation went through, what a provider is sent is a history that it accepts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.transports.kit import MODEL, NAMES, calls, finished, read, transport
from tests.providers.transports.test_bad_events import SERVERS, played

from handrail import Call
from handrail.contract.frozen import freeze
from handrail.contract.model import AssistantMessage, HostMessage, ModelRequest, ToolMessage, UserMessage
from handrail.testing.servers import Received, Reply, call

PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1/models/x:streamGenerateContent?alt=sse",
    "ollama": "/api/chat",
}
OK = {"ok": True, "data": {"x": 1}, "intents": [], "meta": {}}
BAD = {"ok": False, "error": {"type": "VALIDATION", "message": "no"}, "intents": [], "meta": {}}


def body(name, messages, **more):
    return transport(name).body(ModelRequest(system="S", messages=messages, **more), model=MODEL)


def problem(name, made):
    """What the provider's local server would refuse this body for."""
    received = Received(PATHS[name], {"anthropic-version": "2026-10-21"}, json.loads(json.dumps(made)))
    return SERVERS[name]([]).problem(received)


def own_turn(name, *tools):
    told = read(name, played(name, Reply("Well.", [call(tool, q=1) for tool in tools])))
    return AssistantMessage("Well.", tuple(calls(told)), finished(told).raw)


@pytest.mark.parametrize("name", NAMES)
def test_a_late_envelope_is_told_in_the_users_place_as_the_hosts_word(name):
    turn = own_turn(name, "pay")
    answer = ToolMessage(turn.calls[0].call_id, "pay", OK)
    made = body(name, [UserMessage("Pay."), turn, answer, HostMessage('Note of the host: "pay" was approved.')])

    assert problem(name, made) is None
    sent = json.dumps(made)
    assert "<host>\\nNote of the host" in sent
    last = (made.get("messages") or made.get("input") or made.get("contents"))[-1]
    assert last["role"] == "user"


@pytest.mark.parametrize("name", NAMES)
def test_the_full_envelope_goes_back_for_every_call_in_the_order_of_the_calls(name):
    turn = own_turn(name, "one", "two")
    first, second = turn.calls
    answers = [ToolMessage(second.call_id, "two", BAD), ToolMessage(first.call_id, "one", OK)]
    made = body(name, [UserMessage("Go."), turn, *answers])

    assert problem(name, made) is None
    assert SERVERS[name]([]).envelopes(made) == [OK, BAD]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_without_a_result_and_a_result_without_a_call_do_not_spoil_the_history(name):
    turn = own_turn(name, "one", "two")
    left_over = ToolMessage("call_gone", "gone", OK)
    made = body(name, [UserMessage("Go."), turn, ToolMessage(turn.calls[0].call_id, "one", OK), left_over])

    assert problem(name, made) is None
    sent = json.dumps(made)
    assert "not answered" in sent
    assert "CANCELLED" in sent
    assert "Earlier result of" in sent


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("before", NAMES)
def test_a_conversation_goes_on_with_another_provider(name, before):
    turn = own_turn(before, "one", "two")
    answers = [ToolMessage(one.call_id, one.name, OK) for one in turn.calls]
    made = body(name, [UserMessage("Go."), turn, *answers, UserMessage("On.")])

    assert problem(name, made) is None
    if name != before:
        sent = json.dumps(made)
        assert "c2lnbmVk" not in sent, "a signature of another model is not sent"
        assert 'encrypted_content": "' not in sent


@pytest.mark.parametrize("name", NAMES)
def test_calls_without_ids_of_another_provider_get_ids_where_they_must_have_one(name):
    turn = AssistantMessage("", (Call("one", {"q": 1}, None, "other"), Call("one", {"q": 1}, None, "other")))
    answers = [ToolMessage(None, "one", OK), ToolMessage(None, "one", BAD)]
    made = body(name, [UserMessage("Go."), turn, *answers])

    assert problem(name, made) is None
    assert SERVERS[name]([]).envelopes(made) == [OK, BAD]


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic"])
def test_a_turn_that_came_twice_stands_in_the_history_once(name):
    """A cache in between may give the same answer again, with the same ids; a provider refuses those for good."""
    made = own_turn(name, "one", "two")
    turn = AssistantMessage(made.text, tuple(one._replace(id_scope="session") for one in made.calls), made.raw)
    answers = [ToolMessage(one.call_id, one.name, OK) for one in turn.calls]
    once = [UserMessage("Go."), turn, *answers]
    silent = AssistantMessage("", turn.calls, turn.raw)
    made = body(name, [*once, silent, *answers, UserMessage("On.")])

    assert made == body(name, [*once, UserMessage("On.")])


@pytest.mark.parametrize("name", NAMES)
def test_calls_of_a_server_that_counts_anew_in_each_message_all_stand_in_the_history(name):
    """Also where the arguments are the same: each was a call, and had a result."""
    turns = [AssistantMessage("", (Call("one", {"q": 1}, "call_0", name, "message"),)) for _ in range(3)]
    answers = [ToolMessage("call_0", "one", {**OK, "data": {"x": n}}) for n in range(3)]
    made = body(name, [UserMessage("Go."), *(one for pair in zip(turns, answers, strict=True) for one in pair)])

    assert problem(name, made) is None
    sent = json.dumps(made).replace("\\", "").replace(" ", "")
    assert all(sent.count(f'"x":{n}') == 1 for n in range(3)), "every result is told"


@pytest.mark.parametrize("name", NAMES)
def test_an_id_that_a_server_used_again_names_one_call_only(name):
    turns = [AssistantMessage("", (Call("one", {"q": n}, "call_0", name),)) for n in range(3)]
    answers = [ToolMessage("call_0", "one", {**OK, "data": {"x": n}}) for n in range(3)]
    made = body(name, [UserMessage("Go."), *(one for pair in zip(turns, answers, strict=True) for one in pair)])

    assert problem(name, made) is None
    sent = json.dumps(made).replace("\\", "").replace(" ", "")
    assert all(sent.count(f'"x":{n}') == 1 for n in range(3)), "every result is told"


def test_calls_of_two_providers_that_share_an_id_are_two():
    turns = [AssistantMessage("", (Call("one", {"q": 1}, "call_0", maker),)) for maker in ("ollama", "openai-chat")]
    answers = [ToolMessage("call_0", "one", OK), ToolMessage("call_0", "one", BAD)]
    made = body("anthropic", [UserMessage("Go."), turns[0], answers[0], turns[1], answers[1]])

    assert problem("anthropic", made) is None
    blocks = [block for message in made["messages"] for block in message["content"] if isinstance(block, dict)]
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == ["call_0", "earlier_1"]


def test_another_models_raw_turn_is_not_sent():
    turn = own_turn("gemini", "one")
    other = {**turn.raw, "model": "another"}
    answer = ToolMessage(turn.calls[0].call_id, "one", OK)
    made = body("gemini", [UserMessage("Go."), AssistantMessage("Well.", turn.calls, other), answer])

    assert "b3BhcXVl" not in json.dumps(made)
    assert problem("gemini", made) is None


@pytest.mark.parametrize("name", NAMES)
def test_no_calls_are_asked_for_where_none_are_allowed(name):
    tools = freeze(
        [{"name": "one", "input_schema": {}, "parameters": {}, "type": "function", "function": {"name": "one"}}]
    )
    free, bound = (body(name, [UserMessage("Go.")], tools=tools, allow_calls=allow) for allow in (True, False))

    choice = {"openai-chat": "none", "openai-responses": "none", "anthropic": {"type": "none"}}.get(name)
    if choice is not None:
        assert bound["tool_choice"] == choice
        assert bound["tools"] == free["tools"]
    elif name == "gemini":
        assert bound["toolConfig"]["functionCallingConfig"]["mode"] == "NONE"
    else:
        assert "tools" not in bound
        assert free["tools"]


MESSAGES = st.lists(
    st.one_of(
        st.builds(UserMessage, st.text(min_size=1, max_size=5).filter(str.strip)),
        st.builds(HostMessage, st.text(max_size=5)),
        st.builds(
            AssistantMessage,
            st.text(max_size=5),
            st.lists(
                st.builds(
                    Call,
                    st.sampled_from(["one", "two", "", "no such"]),
                    st.sampled_from([{}, {"q": 1}, '{"q":1}', "{", None, "[]"]),
                    st.sampled_from([None, "call_1", "call_2", "odd id/7"]),
                    st.just("elsewhere"),
                ),
                max_size=3,
            ).map(tuple),
        ),
        st.builds(
            ToolMessage,
            st.sampled_from([None, "call_1", "call_2", "odd id/7"]),
            st.sampled_from(["one", "two", "", "no such"]),
            st.sampled_from([OK, BAD]),
        ),
    ),
    max_size=8,
)


@pytest.mark.parametrize("name", NAMES)
@given(messages=MESSAGES)
def test_any_conversation_becomes_one_that_the_provider_accepts(name, messages):
    made = body(name, [*messages, UserMessage("Now?")])

    assert problem(name, made) is None
