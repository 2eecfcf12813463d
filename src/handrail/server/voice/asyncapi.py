"""The AsyncAPI document of the voice protocol, made from the schemas that check its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.server.voice.close_codes import CLOSINGS
from handrail.server.voice.voice_protocol import ABOUT_CLIENT, ABOUT_SERVER, CLIENT, MAX_AUDIO_BYTES, PROTOCOL, SERVER

_ADDRESS = "/api/sessions/{session}/voice"
_PCM: dict[str, Any] = {"type": "string", "format": "binary"}
_AUDIO = {
    "audioIn": (
        "A binary frame of the user's audio: PCM, 16 bit, little-endian, mono, at the rate of `hello.audio`; 10 to 100 ms, whole "
        f"samples, at most {MAX_AUDIO_BYTES} bytes."
    ),
    "audioOut": (
        "A binary frame of the voice that the user hears: the item and the offset in milliseconds, each an unsigned number of "
        "32 bits, little-endian, then PCM, 16 bit, little-endian, mono, at the rate of `ready.audio.output`."
    ),
}


def document() -> dict[str, Any]:
    """The whole document, AsyncAPI 3.0, as seen by the server: it receives what clients send."""
    incoming = {f"client.{name}": _message(name, schema, ABOUT_CLIENT) for name, schema in CLIENT.items()}
    outgoing = {f"server.{name}": _message(name, schema, ABOUT_SERVER) for name, schema in SERVER.items()}
    messages = {**incoming, **outgoing, **{name: _sound(name, about) for name, about in _AUDIO.items()}}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Handrail voice",
            "version": "1",
            "description": "A spoken conversation in a session of Handrail: audio both ways and control messages on one "
            f"WebSocket, subprotocol `{PROTOCOL}`. docs/voice.md says the same in words.\n\nClose codes: "
            + " ".join(f"{closing.code} {closing.about}." for closing in CLOSINGS),
        },
        "defaultContentType": "application/json",
        "channels": {
            "voice": {
                "address": _ADDRESS,
                "title": "One client of one conversation",
                "parameters": {"session": {"description": "The session's id."}},
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
                "bindings": {"ws": {"method": "GET", "bindingVersion": "0.1.0"}},
            }
        },
        "operations": {
            "hear": _operation("receive", "What clients send", [*incoming, "audioIn"]),
            "tell": _operation("send", "What the server sends to clients", [*outgoing, "audioOut"]),
        },
        "components": {"messages": messages},
    }


def _operation(action: str, summary: str, names: list[str]) -> dict[str, Any]:
    return {
        "action": action,
        "summary": summary,
        "channel": {"$ref": "#/channels/voice"},
        "messages": [{"$ref": f"#/channels/voice/messages/{name}"} for name in names],
    }


def _message(name: str, schema: Mapping[str, Any], about: Mapping[str, str]) -> dict[str, Any]:
    return {"name": name, "summary": about[name], "contentType": "application/json", "payload": dict(schema)}


def _sound(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "summary": about, "contentType": "application/octet-stream", "payload": dict(_PCM)}
