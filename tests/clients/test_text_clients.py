"""Definition → the real SDK's request → a local server → call → governed pipeline → a result that the provider accepts."""

import asyncio
import re

import pytest
from tests.clients.kit import LOOK, PAY, SERVERS, build, open_agent, spec
from tests.runtime.kit import Tools, utility

from handrail.clients import ClientLimits, provider_of
from handrail.clients import open_model as open_client
from handrail.contract.model import Finished, ModelError, ModelRequest, TextDelta, UserMessage
from handrail.testing.servers import (
    AnthropicServer,
    GeminiServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    Reply,
    ScriptedCall,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tools"))


@pytest.fixture
def tools(built):
    built[0].forget()
    return built


def ask(text="Hello?"):
    return ModelRequest(system="Be brief.", messages=[UserMessage(text)])


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_call_goes_all_the_way_and_its_result_is_accepted(tools, kind):
    kept, registry = tools
    script = [Reply("One moment.", [PAY, LOOK]), Reply("Paid."), Reply("Still paid.")]
    async with SERVERS[kind](script) as server, open_agent(registry, server, kind) as here:
        assert await here.say("Pay the rent.") == "One moment.\n\nPaid."
        assert await here.say("Is it paid?") == "Still paid."

        assert server.problems == []
        assert kept.started() == [{"q": "rent"}, {"q": "rates"}]
        envelopes = server.envelopes(server.requests[1].body)
        assert [one["ok"] for one in envelopes] == [True, True]
        assert envelopes[0]["data"]["paid"] == "rent"
        assert {"toolId", "registryVersion", "duration"} <= envelopes[0]["meta"].keys(), "the full envelope goes back"
        assert here.agent.model.counters.malformed_events == 0


ECHO = """
async def execute(args, ctx):
    return {"ok": True, "data": {"args": args}}
"""


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
async def test_arguments_whose_names_a_provider_refuses_arrive_under_their_own(kind, tmp_path):
    """The local servers refuse such names as the providers do; the model uses those that it was offered."""
    odd = ["Content-Type", "größe", "2nd place"]
    inner = {"type": "object", "properties": {name: {"type": "string"} for name in odd}, "additionalProperties": False}
    parameters = {**inner, "properties": {**inner["properties"], "more": {"type": "array", "items": inner}}}
    kit = Tools(tmp_path)
    kit.write({"send": (utility(parameters=parameters), ECHO)})
    registry = kit.build()
    names = dict(zip(odd, offered_names(registry, provider_of(spec(kind))), strict=True))
    told = {name: own for own, name in names.items()}

    script = [Reply("", [ScriptedCall("send", {**told, "more": [told]})]), Reply("Sent.")]
    async with SERVERS[kind](script) as server, open_agent(registry, server, kind) as here:
        assert await here.say("Send it.") == "Sent."
        (envelope,) = server.envelopes(server.requests[1].body)

    own = {name: name for name in odd}
    assert envelope["data"]["args"] == {**own, "more": [own]}
    assert server.problems == []


def offered_names(registry, provider):
    (sent,) = registry.provider_schemas(provider)
    sent = sent.get("function", sent)
    schema = next(sent[key] for key in ("parametersJsonSchema", "parameters", "input_schema") if key in sent)
    return [name for name in schema["properties"] if name != "more"]


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_refusal_of_the_pipeline_is_told_to_the_model(tools, kind):
    kept, registry = tools
    wrong = type(PAY)("pay", {"q": 7})
    script = [Reply("", [wrong, type(PAY)("no_such_tool", {})]), Reply("I could not.")]
    async with SERVERS[kind](script) as server, open_agent(registry, server, kind) as here:
        assert await here.say("Pay.") == "I could not."

        assert server.problems == []
        envelopes = server.envelopes(server.requests[1].body)
        assert [one["error"]["type"] for one in envelopes] == ["VALIDATION", "NOT_FOUND"]
        assert kept.started() == []


@pytest.mark.parametrize("kind", SERVERS)
async def test_closing_a_stream_closes_the_connection(kind):
    async with SERVERS[kind]([Reply("Hello there.", [PAY], fault="stall")]) as server:
        model = open_client(spec(kind), environment=server.environment, base_url=server.base_url)
        stream = model.stream(ask())
        async for event in stream:
            if isinstance(event, TextDelta):
                break
        assert len(server.connections) == 1
        await stream.aclose()
        await asyncio.wait_for(server.quiet(), 20)
        await model.close()


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
async def test_a_cancelled_task_ends_its_request(kind):
    async with SERVERS[kind]([Reply("Hello there.", [PAY], fault="stall")]) as server:
        model = open_client(spec(kind), environment=server.environment, base_url=server.base_url)

        async def listen():
            return [event async for event in model.stream(ask())]

        task = asyncio.ensure_future(listen())
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.quiet(), 20)
        await model.close()


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
async def test_a_wrong_key_is_one_sentence_and_not_tried_again(kind):
    async with SERVERS[kind]([Reply("Hello.")]) as server:
        environment = dict.fromkeys(server.environment, "another-key")
        model = open_client(spec(kind), environment=environment, base_url=server.base_url)
        with pytest.raises(ModelError, match=r"refused access\.$") as caught:
            [event async for event in model.stream(ask())]
        await model.close()

    assert not caught.value.retryable
    assert caught.value.misconfigured
    assert re.search(r"refused access .*check [A-Z]+_API_KEY", caught.value.detail)
    assert "another-key" not in caught.value.detail
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
async def test_a_provider_that_cannot_be_reached_is_an_error_that_may_pass(kind, caplog):
    async with SERVERS[kind]([]) as server:
        environment, gone = server.environment, server.base_url
    model = open_client(
        spec(kind), environment=environment, base_url=gone, limits=ClientLimits(retries=1, first_wait=0.0)
    )
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        [event async for event in model.stream(ask())]
    await model.close()

    assert caught.value.retryable
    assert f" at {gone.rstrip('/')} (" in caught.value.detail
    assert '"base_url" in [agent] says where it is' in caught.value.detail
    assert caught.value.detail in caplog.text, "whoever runs the server learns of it"
    assert "127.0.0.1" not in str(caught.value), "and whoever talks to the model does not"
    assert "base_url" not in str(caught.value)


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
async def test_a_request_that_the_provider_refuses_says_what_it_said(kind):
    async with SERVERS[kind]([]) as server:
        model = open_client(spec(kind), environment=server.environment, base_url=server.base_url)
        with pytest.raises(ModelError, match="status 400") as caught:
            [event async for event in model.stream(ask())]
        await model.close()

    assert not caught.value.retryable
    assert len(server.requests) == 1


# The local servers speak as the providers do: the SDKs' own streams, with their types, take what they send.
async def test_the_openai_sdk_takes_what_the_local_chat_server_sends():
    from openai import AsyncOpenAI

    async with (
        OpenAIChatServer([Reply("Well.", [PAY, LOOK])]) as server,
        AsyncOpenAI(api_key=server.api_key, base_url=server.base_url) as client,
    ):
        messages = [{"role": "user", "content": "Pay."}]
        async with client.chat.completions.stream(model="m", messages=messages) as stream:
            message = (await stream.get_final_completion()).choices[0].message

    assert message.content == "Well."
    assert [one.function.name for one in message.tool_calls] == ["pay", "look"]
    assert message.tool_calls[0].function.arguments == '{"q":"rent"}'


async def test_the_openai_sdk_takes_a_whole_answer_of_the_local_chat_server():
    from openai import AsyncOpenAI

    async with (
        OpenAIChatServer([Reply("Well.", [PAY, LOOK]), Reply("Paid.")]) as server,
        AsyncOpenAI(api_key=server.api_key, base_url=server.base_url) as client,
    ):
        messages = [{"role": "user", "content": "Pay."}]
        first = await client.chat.completions.create(model="m", messages=messages)
        message = first.choices[0].message
        results = [{"role": "tool", "tool_call_id": one.id, "content": "{}"} for one in message.tool_calls]
        said = [*messages, message.model_dump(exclude_none=True), *results]
        second = await client.chat.completions.create(model="m", messages=said)

    assert message.content == "Well."
    assert first.choices[0].finish_reason == "tool_calls"
    assert [one.function.name for one in message.tool_calls] == ["pay", "look"]
    assert message.tool_calls[0].function.arguments == '{"q":"rent"}'
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("Paid.", "stop")
    assert second.usage.total_tokens == second.usage.prompt_tokens + second.usage.completion_tokens
    assert server.problems == []


async def test_the_openai_sdk_takes_what_the_local_responses_server_sends():
    from openai import AsyncOpenAI

    async with (
        OpenAIResponsesServer([Reply("Well.", [PAY, LOOK])]) as server,
        AsyncOpenAI(api_key=server.api_key, base_url=server.base_url) as client,
    ):
        stream = await client.responses.create(model="m", input="Pay.", stream=True, store=False)
        events = [event async for event in stream]

    final = events[-1].response
    assert events[-1].type == "response.completed"
    assert [item.type for item in final.output] == ["message", "reasoning", "function_call", "function_call"]
    assert final.output[2].arguments == '{"q":"rent"}'


async def test_the_anthropic_sdk_takes_what_the_local_server_sends():
    from anthropic import AsyncAnthropic

    async with (
        AnthropicServer([Reply("Well.", [PAY, LOOK])]) as server,
        AsyncAnthropic(api_key=server.api_key, base_url=server.base_url) as client,
    ):
        messages = [{"role": "user", "content": "Pay."}]
        async with client.messages.stream(model="m", max_tokens=100, messages=messages) as stream:
            message = await stream.get_final_message()

    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[2].input == {"q": "rent"}
    assert message.stop_reason == "tool_use"


async def test_the_openai_sdk_takes_a_whole_answer_of_the_local_responses_server():
    from openai import AsyncOpenAI

    async with (
        OpenAIResponsesServer([Reply("Well.", [PAY, LOOK])]) as server,
        AsyncOpenAI(api_key=server.api_key, base_url=server.base_url) as client,
    ):
        response = await client.responses.create(model="m", input="Pay.", store=False)

    assert response.status == "completed"
    assert [item.type for item in response.output] == ["message", "reasoning", "function_call", "function_call"]
    assert response.output[2].arguments == '{"q":"rent"}'


async def test_the_anthropic_sdk_takes_a_whole_answer_of_the_local_server():
    from anthropic import AsyncAnthropic

    async with (
        AnthropicServer([Reply("Well.", [PAY, LOOK])]) as server,
        AsyncAnthropic(api_key=server.api_key, base_url=server.base_url) as client,
    ):
        messages = [{"role": "user", "content": "Pay."}]
        message = await client.messages.create(model="m", max_tokens=100, messages=messages)

    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[2].input == {"q": "rent"}
    assert message.stop_reason == "tool_use"


async def test_the_google_sdk_takes_what_the_local_server_sends():
    from google.genai import Client
    from google.genai.types import HttpOptions

    async with GeminiServer([Reply("Well.", [PAY, LOOK])]) as server:
        client = Client(vertexai=False, api_key=server.api_key, http_options=HttpOptions(base_url=server.base_url))
        stream = await client.aio.models.generate_content_stream(model="m", contents="Pay.")
        parts = [part async for chunk in stream for part in chunk.candidates[0].content.parts]
        await client.aio.aclose()

    made = [part.function_call for part in parts if part.function_call]
    assert [(one.name, one.args) for one in made] == [("pay", {"q": "rent"}), ("look", {"q": "rates"})]


async def test_an_answer_that_was_not_streamed_is_read_too():
    """Some servers behind a base URL answer with one JSON object, whatever they are asked for."""
    import json

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
        body = json.dumps({"id": "x", "object": "chat.completion", "choices": [choice]}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    model = open_client("openai:m", environment={}, base_url=f"http://127.0.0.1:{port}/v1")
    told = [event async for event in model.stream(ask())]
    await model.close()
    server.close()
    await server.wait_closed()

    assert told[0] == TextDelta("Hello.")
    assert isinstance(told[-1], Finished)
