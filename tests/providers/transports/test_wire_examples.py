"""Every checked example of the five text formats is read or written, and what is written passes the real SDK's types."""

import json

import pytest
from tests.providers.transports.kit import MODEL, calls, example, finished, read, text, transport, usage

from handrail import Call
from handrail.contract.model import AssistantMessage, ModelError, ModelRequest, ToolMessage, Usage, UserMessage

ASKED = "Dim the kitchen lamp to 20 and check order A-17."
LAMP, ORDER = {"room": "kitchen", "level": 20}, {"order_id": "A-17", "fields": None}


def as_object(args):
    return json.loads(args) if isinstance(args, str) else args


def request(messages, tools=(), system="Be brief.", **more):
    return ModelRequest(system=system, messages=messages, tools=tools, **more)


def answered(name, whole):
    """The history after a whole response: the model's turn and an envelope for each call."""
    told = read(name, [whole])
    envelopes = [{"ok": True}, {"ok": False, "error": {"type": "NOT_FOUND", "message": "No order A-17"}}]
    made = calls(told)
    return [
        UserMessage(ASKED),
        AssistantMessage(text(told), tuple(made), finished(told).raw),
        *(ToolMessage(one.call_id, one.name, envelope) for one, envelope in zip(made, envelopes, strict=False)),
    ]


# ------------------------------------------------------------------------------------------------------------- read
@pytest.mark.parametrize(
    ("name", "file", "ids", "order"),
    [
        ("openai-chat", "openai-chat.response", ["call_lamp1", "call_order1"], ORDER),
        ("openai-chat", "openai-chat.stream", ["call_lamp1", "call_order1"], ORDER),
        ("openai-responses", "openai-responses.response", ["call_lamp1", "call_order1"], ORDER),
        ("openai-responses", "openai-responses.stream", ["call_lamp1"], None),
        ("anthropic", "anthropic.response", ["toolu_lamp1", "toolu_order1"], ORDER),
        ("anthropic", "anthropic.stream", ["toolu_lamp1"], None),
        ("gemini", "gemini-rest.response", ["fc-lamp1", "fc-order1"], {"order_id": "A-17"}),
        ("gemini", "gemini-rest.stream", ["fc-lamp1", "fc-order1"], {"order_id": "A-17"}),
        ("ollama", "ollama.response", ["call_ab12cd34"], None),
        ("ollama", "ollama.stream", ["call_ab12cd34"], None),
    ],
)
def test_a_checked_answer_is_read(name, file, ids, order):
    events = example(file)
    told = read(name, events if isinstance(events, list) else [events])

    made = calls(told)
    assert [one.call_id for one in made] == ids
    assert (made[0].name, as_object(made[0].args)) == ("set_lamp", LAMP)
    assert order is None or (made[1].name, as_object(made[1].args)) == ("lookup_order", order)
    assert {one.provider for one in made} == {name}
    assert finished(told).reason == "calls"


def test_what_an_answer_cost_and_said_is_read():
    assert usage(read("openai-chat", example("openai-chat.stream"))) == Usage(90, 40)
    assert usage(read("anthropic", example("anthropic.stream"))) == Usage(90, 40)
    assert usage(read("gemini", [example("gemini-rest.response")])) == Usage(80, 30)
    assert usage(read("ollama", example("ollama.stream"))) == Usage(80, 22)
    assert text(read("anthropic", example("anthropic.stream"))) == "On it."
    assert text(read("gemini", example("gemini-rest.stream"))) == "", "thoughts are not the answer"
    assert text(read("ollama", example("ollama.stream"))) == ""


def test_a_call_that_gemini_could_not_form_is_an_error_that_may_pass():
    with pytest.raises(ModelError, match="could not be read") as caught:
        read("gemini", [example("gemini-rest.malformed-call")])
    assert caught.value.retryable


def test_signatures_and_reasoning_are_kept_as_they_came():
    parts = finished(read("gemini", example("gemini-rest.stream"))).raw["content"]
    assert parts == [
        part for chunk in example("gemini-rest.stream") for part in chunk["candidates"][0]["content"]["parts"]
    ]
    items = finished(read("openai-responses", [example("openai-responses.response")])).raw["content"]
    assert items == example("openai-responses.response")["output"]


# ---------------------------------------------------------------------------------------------------------- written
@pytest.mark.parametrize(
    ("name", "file", "ours"),
    [
        ("openai-chat", "openai-chat.request", {"parallel_tool_calls"}),
        ("openai-responses", "openai-responses.request", {"parallel_tool_calls"}),
        ("anthropic", "anthropic.request", {"max_tokens", "tool_choice"}),
        ("gemini", "gemini-rest.request", set()),
        ("gemini", "gemini-rest.request-jsonschema", {"toolConfig"}),
        ("ollama", "ollama.request", set()),
    ],
)
def test_a_first_request_is_written_as_in_the_example(name, file, ours):
    wanted = example(file)
    tools = wanted["tools"][0]["functionDeclarations"] if name == "gemini" else wanted["tools"]
    asked = "Dim the kitchen lamp to 20." if name == "ollama" else ASKED
    system = "" if name == "ollama" or "jsonschema" in file else "Be brief."
    body = transport(name).body(request([UserMessage(asked)], tools, system), model=MODEL)

    assert {key: body.get(key) for key in wanted if key not in ours} == {
        key: value for key, value in wanted.items() if key not in ours
    }
    assert body.keys() - wanted.keys() <= {"stream", "stream_options", "toolConfig"}


def test_results_go_back_as_in_the_example_for_openai_chat():
    body = transport("openai-chat").body(request(answered("openai-chat", example("openai-chat.response"))), model=MODEL)
    wanted = example("openai-chat.results")["messages"]

    assert body["messages"][:4] == wanted[:4]
    assert body["messages"][4]["tool_call_id"] == "call_order1"
    assert json.loads(body["messages"][4]["content"])["error"]["type"] == "NOT_FOUND"


def test_results_go_back_as_in_the_example_for_openai_responses():
    history = answered("openai-responses", example("openai-responses.response"))
    body = transport("openai-responses").body(request(history), model=MODEL)
    wanted = example("openai-responses.results")

    assert body["input"][:5] == wanted["input"][:5]
    assert {**body["input"][5], "output": ""} == {**wanted["input"][5], "output": ""}
    assert body["store"] is wanted["store"] is False
    # With a stored response only the outputs would be sent; those have the same form.
    stored = example("openai-responses.results-stateful")["input"]
    assert body["input"][4] == stored[0]
    assert body["input"][5].keys() == stored[1].keys()


def test_results_go_back_as_in_the_example_for_anthropic():
    body = transport("anthropic").body(request(answered("anthropic", example("anthropic.response"))), model=MODEL)
    wanted = example("anthropic.results")["messages"]

    assert body["messages"][:2] == wanted[:2]
    given, expected = body["messages"][2], wanted[2]
    assert given["role"] == expected["role"] == "user"
    assert given["content"][0] == expected["content"][0]
    assert {**given["content"][1], "content": ""} == {**expected["content"][1], "content": ""}
    assert "No order A-17" in given["content"][1]["content"]


def test_results_go_back_as_in_the_example_for_gemini():
    body = transport("gemini").body(request(answered("gemini", example("gemini-rest.response"))), model=MODEL)
    wanted = example("gemini-rest.results")["contents"]

    assert body["contents"][:2] == wanted[:2]
    first, second = body["contents"][2]["parts"]
    assert first == wanted[2]["parts"][0]
    assert second["functionResponse"]["response"].keys() == {"error"}
    assert second["functionResponse"]["response"]["error"]["ok"] is False, "the full envelope goes back"


def test_results_go_back_as_in_the_example_for_ollama():
    told = read("ollama", [example("ollama.response")])
    made = calls(told)[0]
    history = [
        UserMessage("Dim the kitchen lamp to 20."),
        AssistantMessage("", (made,), finished(told).raw),
        ToolMessage(made.call_id, made.name, {"ok": True}),
    ]
    wanted = example("ollama.results")

    assert transport("ollama").body(request(history, wanted["tools"], ""), model=MODEL) == wanted


# ------------------------------------------------------------------------------------------------------ the SDKs' types
@pytest.mark.long  # the types of a whole API are compiled
def test_what_is_written_passes_the_types_of_the_sdks():
    from anthropic.types.message_create_params import MessageCreateParamsStreaming
    from google.genai.types import Content
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
    from pydantic import TypeAdapter

    checks = {
        "openai-chat": ("openai-chat.response", CompletionCreateParamsStreaming, dict),
        "openai-responses": ("openai-responses.response", ResponseCreateParamsStreaming, dict),
        "anthropic": ("anthropic.response", MessageCreateParamsStreaming, dict),
        "gemini": ("gemini-rest.response", list[Content], lambda body: body["contents"]),
    }
    for name, (file, kind, part) in checks.items():
        tools = example(file.replace(".response", ".request"))["tools"]
        tools = tools[0]["functionDeclarations"] if name == "gemini" else tools
        for allow in (True, False):
            history = request(answered(name, example(file)), tools, allow_calls=allow, max_output_tokens=100)
            body = transport(name).body(history, model=MODEL)
            TypeAdapter(kind).validate_python(part(body), strict=False)


def test_a_call_of_an_earlier_turn_without_raw_form_is_written_from_what_is_known():
    history = [UserMessage("a"), AssistantMessage("", (Call("set_lamp", LAMP, "c1", "openai-chat"),)), UserMessage("b")]
    message = transport("openai-chat").body(request(history), model=MODEL)["messages"][2]

    assert as_object(message["tool_calls"][0]["function"]["arguments"]) == LAMP
