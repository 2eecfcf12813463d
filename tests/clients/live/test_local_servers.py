"""The local servers, met by the SDKs alone: what they send is what the SDKs read, and what is against the protocol is said."""

import asyncio
import json
from typing import Any

import pytest
from tests.providers.wire_examples import example

from handrail.testing.servers.live import (
    Ask,
    GeminiLiveServer,
    OpenAIRealtimeServer,
    Say,
    Turn,
    call,
    silence,
    speech,
)

TURNS = [Turn([Ask(call("set_lamp", level=20)), Say("Dimmed.")], hears="Dim it")]


async def test_the_gemini_sdk_reads_a_conversation_of_the_local_server() -> None:
    genai = pytest.importorskip("google.genai")
    async with GeminiLiveServer(TURNS) as server, asyncio.timeout(30):
        options = {"base_url": server.base_url, "async_client_args": {"ssl": server.tls}}
        client = genai.Client(api_key=server.api_key, http_options=options)
        config = {"response_modalities": ["AUDIO"], "session_resumption": {}}
        async with client.aio.live.connect(model="a-model", config=config) as session:
            for pcm in (speech(100), silence(300)):
                await session.send_realtime_input(audio={"data": pcm, "mime_type": "audio/pcm;rate=16000"})
            heard, audio, said = "", b"", ""
            async for message in session.receive():
                content = message.server_content
                if message.tool_call:
                    made = message.tool_call.function_calls[0]
                    answer = {"id": made.id, "name": made.name, "response": {"output": {"ok": True}}}
                    await session.send_tool_response(function_responses=answer)
                if content and content.input_transcription:
                    heard += content.input_transcription.text
                if content and content.output_transcription:
                    said += content.output_transcription.text
                audio += message.data or b""
        await client.aio.aclose()
        client.close()
        assert (heard, said, server.complaints) == ("Dim it", "Dimmed.", [])
        assert audio
        assert server.outcomes == [("set_lamp", {"ok": True})]


async def test_the_openai_sdk_reads_a_conversation_of_the_local_server() -> None:
    openai = pytest.importorskip("openai")
    async with OpenAIRealtimeServer(TURNS) as server, asyncio.timeout(30):
        client = openai.AsyncOpenAI(api_key=server.api_key, websocket_base_url=server.base_url)
        seen: list[str] = []
        async with client.realtime.connect(model="a-model") as connection:
            await connection.session.update(session={"type": "realtime", "output_modalities": ["audio"]})
            for pcm in (speech(100, 24_000), silence(300, 24_000)):
                await connection.input_audio_buffer.append(audio=_base64(pcm))
            async for event in connection:
                seen.append(event.type)
                if event.type == "response.output_item.done":
                    output = {"type": "function_call_output", "call_id": event.item.call_id, "output": '{"ok": true}'}
                    await connection.conversation.item.create(item=output)
                if event.type == "response.done":
                    if "response.output_audio.delta" in seen:
                        break
                    await connection.response.create()
        await client.close()
        assert server.outcomes == [("set_lamp", {"ok": True})]
        assert server.complaints == []
        assert "conversation.item.input_audio_transcription.completed" in seen


def _base64(pcm: bytes) -> str:
    from base64 import b64encode

    return b64encode(pcm).decode()


async def test_the_beta_shape_is_refused_with_its_close_code() -> None:
    client = pytest.importorskip("websockets.asyncio.client")
    async with OpenAIRealtimeServer(TURNS) as server, asyncio.timeout(30):
        headers = {"Authorization": f"Bearer {server.api_key}"}
        async with client.connect(f"{server.base_url}/realtime", additional_headers=headers) as socket:
            await socket.send(json.dumps(example("openai-realtime-beta.client-events.json")[0]))
            kinds = [json.loads(frame)["type"] async for frame in _until_closed(socket)]
        assert kinds == ["session.created", "error"]
        assert socket.close_code == 4000


async def _until_closed(socket: Any) -> Any:
    from websockets.exceptions import ConnectionClosed

    try:
        while True:
            yield await socket.recv()
    except ConnectionClosed:
        return


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        ({"realtimeInput": {"text": "Hi"}}, "before the set-up"),
        ({"setup": {}, "toolResponse": {}}, "exactly one known field"),
        ({"hello": 1}, "exactly one known field"),
    ],
)
async def test_what_a_client_of_gemini_does_against_the_protocol_is_said(sent: dict[str, Any], complaint: str) -> None:
    client = pytest.importorskip("websockets.asyncio.client")
    async with GeminiLiveServer() as server, asyncio.timeout(30):
        address = server.base_url.replace("https", "wss")
        headers = {"x-goog-api-key": server.api_key}
        async with client.connect(address, ssl=server.tls, additional_headers=headers) as socket:
            await socket.send(json.dumps(sent))
            while not server.complaints:
                await asyncio.sleep(0.01)
        assert complaint in server.complaints[0]


async def test_words_about_one_call_do_not_answer_another_of_the_same_tool() -> None:
    client = pytest.importorskip("websockets.asyncio.client")
    async with GeminiLiveServer(TURNS) as server, asyncio.timeout(30):
        address = server.base_url.replace("https", "wss")
        headers = {"x-goog-api-key": server.api_key}
        async with client.connect(address, ssl=server.tls, additional_headers=headers) as socket:
            await socket.send(json.dumps({"setup": {}}))
            await socket.send(json.dumps({"realtimeInput": {"text": "Dim it"}}))
            while "toolCall" not in json.loads(await socket.recv()):
                pass
            for level in (10, 20):
                said = f'Note of the host: your call of "set_lamp" with the arguments {{"level":{level}}} is answered.'
                turns = [{"role": "user", "parts": [{"text": said}]}]
                await socket.send(json.dumps({"clientContent": {"turns": turns, "turnComplete": False}}))
            while not server.outcomes:
                await asyncio.sleep(0.01)
        assert server.outcomes == [("set_lamp", {"told": said})]


async def test_an_output_without_a_call_and_a_second_output_are_complained_about() -> None:
    client = pytest.importorskip("websockets.asyncio.client")
    async with OpenAIRealtimeServer() as server, asyncio.timeout(30):
        headers = {"Authorization": f"Bearer {server.api_key}"}
        async with client.connect(f"{server.base_url}/realtime", additional_headers=headers) as socket:
            output = {"type": "function_call_output", "call_id": "call_1", "output": "{}"}
            made = {"type": "function_call", "call_id": "call_1", "name": "set_lamp", "arguments": "{}"}
            for item in (output, made, output, output):
                await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
            while len(server.complaints) < 2:
                await asyncio.sleep(0.01)
        assert [text.partition(":")[0] for text in server.complaints] == ["unknown_call", "duplicate_output"]
