"""The events that a client sends to OpenAI Realtime (GA), as plain JSON. Pure: what goes in is what comes out."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from handrail.contract.call import Call
from handrail.contract.live import Answer, LiveConfig
from handrail.providers.live_history import LiveEntry, Note, as_text

Message = dict[str, Any]
RATE = 24_000
TRANSCRIBER = "gpt-transcribe"
_PCM = {"type": "audio/pcm", "rate": RATE}


def session_update(config: LiveConfig, transcriber: str = TRANSCRIBER) -> Message:
    """The session as it is wanted. The provider's own detection ends the user's turns and interrupts the model."""
    heard: Message = {
        "format": dict(_PCM),
        "turn_detection": {"type": "server_vad", "create_response": True, "interrupt_response": True},
    }
    if config.transcribe:
        heard["transcription"] = {"model": transcriber}
        if config.language:
            heard["transcription"]["language"] = config.language.partition("-")[0]
    spoken: Message = {"format": dict(_PCM)}
    if config.voice:
        spoken["voice"] = config.voice
    session: Message = {
        "type": "realtime",
        "instructions": config.system,
        "output_modalities": ["audio"],
        "audio": {"input": heard, "output": spoken},
        "tools": [dict(tool) for tool in config.tools],
        "tool_choice": "auto",
    }
    return {"type": "session.update", "session": session}


def replace_tools(tools: Sequence[Mapping[str, Any]], system: str | None = None) -> Message:
    """Other tools, and the instructions that speak of them; everything else of the session stays."""
    session: Message = {"type": "realtime", "tools": [dict(tool) for tool in tools]}
    if system is not None:
        session["instructions"] = system
    return {"type": "session.update", "session": session}


def audio(pcm: bytes) -> Message:
    return {"type": "input_audio_buffer.append", "audio": b64encode(pcm).decode()}


def audio_frame(pcm: bytes) -> str:
    """`audio` as the text of a frame: fifty a second are sent, so it is put together without an encoder."""
    return f'{{"type":"input_audio_buffer.append","audio":"{b64encode(pcm).decode()}"}}'


def message(role: Literal["user", "assistant", "system"], text: str) -> Message:
    kind = "output_text" if role == "assistant" else "input_text"
    return _item({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})


def function_call(call: Call) -> Message:
    """A call of the model, put back into a conversation that has lost it."""
    arguments = call.args if isinstance(call.args, str) else as_text(call.args or {})
    return _item({"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": arguments})


def function_call_output(call_id: str, output: str) -> Message:
    return _item({"type": "function_call_output", "call_id": call_id, "output": output})


def respond(**overrides: object) -> Message:
    """Ask for an answer; `overrides` hold for this one only."""
    return {"type": "response.create", **({"response": overrides} if overrides else {})}


def cancel(response_id: str | None = None) -> Message:
    return {"type": "response.cancel", **({"response_id": response_id} if response_id else {})}


def truncate(item_id: str, played_ms: int) -> Message:
    return {
        "type": "conversation.item.truncate",
        "item_id": item_id,
        "content_index": 0,
        "audio_end_ms": played_ms,
    }


def retell(entry: LiveEntry) -> list[Message]:
    """What was said on a connection that is gone, as items of the new conversation."""
    if isinstance(entry, Answer):
        if not entry.call.call_id:
            return []
        return [function_call(entry.call), function_call_output(entry.call.call_id, as_text(entry.envelope))]
    if isinstance(entry, Note):
        return [message("system", entry.text)]
    return [message("user" if entry.role == "user" else "assistant", entry.text)]


def _item(item: Message) -> Message:
    return {"type": "conversation.item.create", "item": item}
