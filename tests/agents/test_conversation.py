"""Conversations: kept as JSON and read back, whole turns left out, and never a call without its envelope."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import Call
from handrail.agents import Conversation
from handrail.agents.conversation import ANSWER_LEFT_OUT, MAX_MESSAGES, MAX_TOKENS, tokens_of_message
from handrail.contract.errors import UsageError
from handrail.contract.model import AssistantMessage, HostMessage, ToolMessage, UserMessage

CALL = Call("look_up", {"q": "a"}, "c1", "openai-chat", "connection")
ENVELOPE = {"ok": True, "data": {"x": [1, None]}, "intents": [], "meta": {}}


def kept(conversation):
    return Conversation.from_dict(json.loads(json.dumps(conversation.to_dict())))


def test_a_conversation_survives_being_kept():
    told = Conversation(time_zone="Europe/Zagreb")
    told.begin("Hello", "m1")
    told.add(AssistantMessage("", (CALL,), {"id": 7}), ToolMessage("c1", "look_up", ENVELOPE), AssistantMessage("Hi."))
    told.tell("conf_1")
    told.later.append(HostMessage("Later."))
    again = kept(told)

    assert again.messages == told.messages
    assert again.to_dict() == told.to_dict()
    assert again.answer_to("m1") == "Hi."
    assert not again.tell("conf_1")
    assert again.time_zone == "Europe/Zagreb"


def test_arguments_that_came_as_bytes_are_kept_as_text():
    told = Conversation()
    told.begin("Hello", None)
    told.add(AssistantMessage("", (CALL._replace(args=b"{}\xff"),)))
    assert kept(told).messages[1].calls[0].args == "{}\ufffd"


def test_a_call_without_an_envelope_gets_one_when_it_is_read_back():
    told = Conversation()
    told.begin("One", "m1")
    told.add(AssistantMessage("", (CALL, CALL._replace(call_id="c2"))), ToolMessage("c1", "look_up", ENVELOPE))
    told.messages.append(UserMessage("Two"))
    told.inputs["m2"] = 3
    again = kept(told)

    assert [type(message).__name__ for message in again.messages] == [
        "UserMessage", "AssistantMessage", "ToolMessage", "ToolMessage", "UserMessage",
    ]  # fmt: skip
    assert again.messages[3].call_id == "c2"
    assert again.messages[again.inputs["m2"]] == UserMessage("Two")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"format": 2},
        {"format": 1, "messages": [{"role": "wizard"}], "inputs": {}, "told": [], "offered": []},
        {"format": 1, "messages": "x", "inputs": [], "told": [], "offered": []},
        {"format": 1, "messages": [{"role": "tool"}], "inputs": {}, "told": [], "offered": []},
    ],
    ids=["nothing", "newer", "role", "shapes", "fields"],
)
def test_what_is_no_conversation_is_refused_in_a_sentence(data):
    with pytest.raises(UsageError, match="conversation"):
        Conversation.from_dict(data)


def test_it_does_not_grow_without_end():
    told = Conversation()
    for number in range(MAX_MESSAGES):
        told.begin(f"Question {number}", f"m{number}")
        told.add(AssistantMessage(f"Answer {number}"))
    assert len(told.messages) <= MAX_MESSAGES + 2
    assert told.answer_to(f"m{MAX_MESSAGES - 1}") == f"Answer {MAX_MESSAGES - 1}"
    assert told.answer_to("m0") is None
    assert isinstance(told.messages[0], UserMessage)


def test_it_does_not_grow_in_size_either_and_keeps_whole_turns():
    told = Conversation()
    large = {**ENVELOPE, "data": {"text": "x" * 40_000}}
    for number in range(60):
        told.begin(f"Question {number}", f"m{number}")
        call = CALL._replace(call_id=f"c{number}")
        told.add(AssistantMessage("", (call,)), ToolMessage(call.call_id, call.name, large))
        told.add(AssistantMessage(f"Answer {number}"))
        assert sum(map(tokens_of_message, told.messages)) <= MAX_TOKENS + 11_000
    assert len(told.messages) < 4 * 60
    assert isinstance(told.messages[0], UserMessage)
    assert told.answer_to("m59") == "Answer 59"
    assert [type(message) for message in told.messages[:4]] == [
        UserMessage, AssistantMessage, ToolMessage, AssistantMessage,
    ]  # fmt: skip


def test_the_last_turn_is_kept_however_large_it_is():
    told = Conversation()
    for number in range(3):
        told.begin(f"Question {number}", f"m{number}")
        told.add(AssistantMessage("x" * (5 * MAX_TOKENS)))
    told.begin("And then?", "m3")
    assert [message.text for message in told.messages if isinstance(message, UserMessage)] == [
        "Question 2",
        "And then?",
    ]


TURNS = st.lists(st.tuples(st.text(max_size=30), st.integers(0, 3), st.text(max_size=60)), min_size=1, max_size=8)


@given(TURNS, st.integers(0, 200))
def test_what_is_sent_fits_has_the_newest_turn_and_an_answer_for_every_call(turns, most):
    told = Conversation()
    for place, (said, calls, answer) in enumerate(turns):
        told.begin(said, f"m{place}")
        for number in range(calls):
            call = CALL._replace(call_id=f"c{place}-{number}")
            told.add(AssistantMessage("", (call,)), ToolMessage(call.call_id, "look_up", ENVELOPE))
        told.add(AssistantMessage(answer))
    sent, left_out, tokens = told.sent_within(most)
    assert tokens == sum(map(tokens_of_message, sent))

    words = [message.text for message in sent if isinstance(message, UserMessage)]
    assert words == [said for said, _, _ in turns][-len(words) :]
    if len(words) < len(turns):  # then nothing but words could be left out any more
        assert {message.text for message in sent[:-1] if isinstance(message, AssistantMessage)} <= {
            ANSWER_LEFT_OUT, "", *(answer for _, _, answer in turns)
        }  # fmt: skip
    if len(words) > 1:
        assert sum(map(tokens_of_message, sent)) <= most
    assert (sent == told.messages) is (left_out == 0)
    assert isinstance(sent[0], UserMessage)
    assert sent[-1] == told.messages[-1]
    asked = [call.call_id for message in sent if isinstance(message, AssistantMessage) for call in message.calls]
    assert asked == [message.call_id for message in sent if isinstance(message, ToolMessage)]
    assert kept(told).messages == told.messages
