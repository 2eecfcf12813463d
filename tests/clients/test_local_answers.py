"""What a local model may write, how it is read while it comes, and the compact prompt that it is given. All of it pure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contract.call import Call
from handrail.contract.model import AssistantMessage, HostMessage, ModelRequest, ToolMessage, UserMessage
from handrail.providers.local.prompt import messages_for
from handrail.providers.local.tool_call_grammar import AnswerReader, answer_schema, reduced

PAY = {
    "type": "function",
    "function": {
        "name": "pay",
        "description": "Pays a bill. A person approves it first.",
        "parameters": {
            "type": "object",
            "properties": {
                "note": {"type": "string", "maxLength": 5000, "pattern": "(a|b)+"},
                "amount": {"type": "integer", "minimum": 1, "maximum": 9},
                "due": {"type": "string", "format": "date"},
                "to": {"$ref": "#/$defs/person"},
            },
            "required": ["amount", "to"],
            "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
        },
    },
}
NOW = {"now": "2026-11-17T10:00:00+01:00", "mode": "text"}


def request(*messages, tools=(PAY,), **more):
    return ModelRequest(system="long", messages=messages, tools=tools, session=NOW, **more)


def test_each_tool_is_a_branch_and_saying_something_is_the_last():
    branch, say = answer_schema([PAY])["anyOf"]
    assert branch["properties"]["tool"] == {"const": "pay"}
    assert say["required"] == ["say"]
    assert answer_schema([]) == say


def test_a_grammar_gets_only_what_it_can_express_with_what_is_needed_first():
    args = answer_schema([PAY])["anyOf"][0]["properties"]["args"]
    assert list(args["properties"]) == ["amount", "to", "note", "due"]
    assert args["properties"]["note"] == {"type": "string"}
    assert args["properties"]["amount"] == {"type": "integer", "minimum": 1, "maximum": 9}
    assert args["properties"]["due"] == {"type": "string", "format": "date"}
    assert args["properties"]["to"]["properties"] == {"name": {"type": "string"}}
    assert args["additionalProperties"] is False


def test_a_small_model_is_offered_only_what_a_tool_needs():
    args = answer_schema([PAY], only_required=True)["anyOf"][0]["properties"]["args"]
    assert list(args["properties"]) == ["amount", "to"]
    (system, _) = messages_for(request(UserMessage("hi")), context=4096, answer_tokens=500, only_required=True)
    assert "- pay(amount: number, to: any): Pays a bill." in system["content"]
    free = {"function": {"name": "any", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    assert "a" in answer_schema([free], only_required=True)["anyOf"][0]["properties"]["args"]["properties"]


def test_a_schema_that_contains_itself_has_an_end():
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    assert "child" in json.dumps(reduced(tree, tree))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (
            {"type": "array", "items": {"enum": [1, "a"]}, "maxItems": 500},
            {"type": "array", "items": {"enum": [1, "a"]}},
        ),
        ({"type": "object"}, {"type": "object"}),
        ({"$ref": "#/nowhere"}, {}),
        (True, {}),
    ],
)
def test_other_schemas_are_reduced_too(schema, expected):
    assert reduced(schema, {}) == expected


@given(st.text(), st.integers(1, 7), st.booleans(), st.sampled_from(["", " ", "\n   "]))
def test_whatever_is_said_is_read_piece_by_piece_as_it_was_meant(text, size, ascii_only, space):
    written = f'{{{space}"say"{space}:{space}{json.dumps(text, ensure_ascii=ascii_only)}{space}}}'
    reader = AnswerReader()
    pieces = [reader.feed(written[place : place + size]) for place in range(0, len(written), size)]
    assert "".join(pieces) == text
    assert reader.call() is None


def test_what_is_said_comes_out_before_its_end():
    reader = AnswerReader()
    assert [reader.feed(piece) for piece in ('{"sa', 'y": "He', "llo\\", "n\\ud83d", "\\ude00", '!"', "}")] == [
        "", "He", "llo", "\n", "😀", "!", "",
    ]  # fmt: skip


@pytest.mark.parametrize("written", [r'{"say": "\ud83d!"}', r'{"say": "\ude00!"}', r'{"say": "\ud83d\u0021"}'])
def test_half_a_character_spoils_nothing_else(written):
    reader = AnswerReader()
    assert reader.feed(written) == "\ufffd!"


def test_a_call_is_read_when_it_is_whole():
    reader = AnswerReader()
    assert reader.feed('{"tool": "pay", "args": {"amount": 3,') == ""
    assert reader.call() is None, "it was cut"
    reader.feed(' "to": {"name": "Ana"}}}')
    assert reader.call() == ("pay", {"amount": 3, "to": {"name": "Ana"}})


def test_the_prompt_is_short_names_the_days_and_keeps_what_changes_last():
    (system, user) = messages_for(request(UserMessage("Pay Ana 3.")), context=4096, answer_tokens=500)
    assert user == {"role": "user", "content": "Pay Ana 3."}
    text = system["content"]
    assert "long" not in text, "other models' prompt"
    assert "- pay(amount: number, to: any; optional: note, due): Pays a bill." in text
    assert "today is Tuesday 2026-11-17, tomorrow is Wednesday 2026-11-18" in text
    assert "Tuesday next week is 2026-11-24" in text
    assert "2026-11-18T15:00:00+01:00" in text.splitlines()[-1]
    assert len(text) < 1_500


def test_a_project_may_say_who_the_model_is():
    (system, _) = messages_for(request(UserMessage("hi")), context=4096, answer_tokens=500, instructions="You are Bo.")
    assert system["content"].startswith("You are Bo.\n\n")


def test_without_calls_no_tool_is_named():
    (system, _) = messages_for(request(UserMessage("hi"), allow_calls=False), context=4096, answer_tokens=500)
    assert "pay" not in system["content"]
    assert '{"say": TEXT}' in system["content"]


def test_the_conversation_is_told_in_the_models_own_form_and_roles_alternate():
    call = Call("pay", {"amount": 3}, None, "openai-chat", "message")
    messages = messages_for(
        request(
            UserMessage("Pay Ana."),
            AssistantMessage("", (call,)),
            ToolMessage(None, "pay", {"ok": True, "data": {"paid": 3}, "meta": {"duration": 7}}),
            HostMessage("The user approved it."),
            AssistantMessage("Paid."),
            UserMessage("Thanks."),
        ),
        context=4096,
        answer_tokens=500,
    )
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert json.loads(messages[2]["content"]) == {"tool": "pay", "args": {"amount": 3}}
    assert '{"ok":true,"data":{"paid":3}}' in messages[3]["content"]
    assert "duration" not in messages[3]["content"]
    assert "<host>\nThe user approved it.\n</host>" in messages[3]["content"]
    assert json.loads(messages[4]["content"]) == {"say": "Paid."}


def test_what_does_not_fit_is_left_out_from_the_oldest_on():
    said = [UserMessage(f"message {number} " + "x" * 400) for number in range(20)]
    turns = [one for message in said for one in (message, AssistantMessage("yes"))]
    messages = messages_for(request(*turns, UserMessage("the last")), context=1024, answer_tokens=256)
    assert messages[1]["role"] == "user"
    assert messages[-1]["content"] == "the last"
    assert "message 0 " not in str(messages)
    assert "message 19 " in str(messages)
    huge = messages_for(request(UserMessage("x" * 100_000)), context=1024, answer_tokens=256)
    assert len(huge) == 2
