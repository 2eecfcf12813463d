"""The messages of `handrail.voice.v1`: a JSON Schema for each. They check what clients send, and make `/asyncapi.json`.

What the server sends is described by the same kind of schema, which the tests hold against real conversations. Objects of clients
are closed: a field that is not known is named, because a misspelt one would otherwise be lost without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.contract.errors import JsonError
from handrail.contract.fields import shown
from handrail.schema.strict_json import parse
from handrail.schema.validator import CompiledSchema, compile_schema
from handrail.server.host.hosted_session import OWN_IDS

PROTOCOL = "handrail.voice.v1"
MAX_TEXT_BYTES = 64 * 1024
MAX_AUDIO_BYTES = 32 * 1024
MAX_WORDS = 8_000
MAX_AGO_MS = 60_000
OWN_REASONS = (
    "blocked", "client_gone", "closed", "fault", "idle", "key_revoked", "provider_lost", "reconnect", "session_ended",
)  # fmt: skip
"""Why the server itself ends a conversation. Programs read more out of these, so no client may give them."""
_DEPTH = 8
_MAX_MS = 86_400_000

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_YES: Schema = {"type": "boolean"}
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_ID: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$", "not": {"pattern": f"^{OWN_IDS}"}}
"""Of an input. Those that the server gives itself, to what is spoken, are not for clients."""
_RATE: Schema = {"type": "integer", "minimum": 8_000, "maximum": 48_000}
_NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _closed(name: str, properties: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """What a client may send: nothing but these fields."""
    return {
        "type": "object",
        "properties": {"type": {"const": name}, **properties},
        "required": ["type", *required],
        "additionalProperties": False,
    }


def _open(
    name: str, properties: Mapping[str, Schema], required: tuple[str, ...] = (), *, numbered: bool = True
) -> Schema:
    """What the server sends: at least these fields. A client passes over those that it does not know."""
    number = {"n": _NUMBER} if numbered else {}
    return {
        "type": "object",
        "properties": {"type": {"const": name}, **number, **properties},
        "required": ["type", *number, *required],
    }


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


CLIENT: Mapping[str, Schema] = {
    "hello": _closed(
        "hello",
        {
            "protocol": {"const": PROTOCOL},
            "ticket": {"type": "string", "minLength": 1, "maxLength": 128},
            "lastEvent": _NUMBER,
            "audio": {
                "type": "object", "properties": {"rate": _RATE}, "required": ["rate"], "additionalProperties": False,
            },
            "abilities": {
                "type": "object",
                "properties": {"sound": _YES, "recognises": _YES, "speaks": _YES},
                "additionalProperties": False,
            },
        },
        ("protocol", "ticket"),
    ),
    "text": _closed(
        "text",
        {"id": _ID, "text": {"type": "string", "minLength": 1, "maxLength": MAX_WORDS}, "spoken": _YES},
        ("id", "text"),
    ),
    "speech": _closed(
        "speech",
        {"state": {"enum": ["started", "ended"]}, "agoMs": {"type": "integer", "minimum": 0, "maximum": MAX_AGO_MS}},
        ("state",),
    ),
    "played": _closed(
        "played",
        {"item": _NUMBER, "ms": {"type": "integer", "minimum": 0, "maximum": _MAX_MS}, "done": _YES},
        ("item", "ms"),
    ),
    "spoken": _closed("spoken", {"id": {"type": "string", "minLength": 1, "maxLength": 128}, "completed": _YES},
                      ("id", "completed")),
    "interrupt": _closed("interrupt", {}),
    "end": _closed(
        "end", {"reason": {"type": "string", "minLength": 1, "maxLength": 200, "not": {"enum": list(OWN_REASONS)}}}
    ),
    "pong": _closed("pong", {}),
}  # fmt: skip

ABOUT_CLIENT: Mapping[str, str] = {
    "hello": "The first message: shows the ticket, and says what the client can do and, where it sends audio, at which rate. "
    "`lastEvent` is the number of the last message that it has seen of this conversation, if it comes back.",
    "text": "Words of the user: typed, or (`spoken`) recognised by the client. The same id again is the same input.",
    "speech": "The client's own detection of the user's voice, where the server gets no audio. `agoMs`: so long before "
    "this message the voice began, where the client learns of it later.",
    "played": "How many milliseconds of an item were really played, without what was lost; `done` when no more of it will be.",
    "spoken": "The client's own voice has spoken a `speak`, or was cut off in it.",
    "interrupt": "The user pressed stop.",
    "end": "The user leaves voice: the session continues in text.",
    "pong": "The answer to `ping`.",
}

_CARD = {"callId": _maybe(_TEXT), "toolId": _TEXT}
_LATENCY = {name: _maybe(_WHOLE) for name in ("hearingMs", "modelMs", "toolsMs", "speakingMs")}

SERVER: Mapping[str, Schema] = {
    "ready": _open(
        "ready",
        {"sessionId": _TEXT, "turn": _WHOLE, "model": _TEXT, "provider": _TEXT, "offline": _YES, "resumed": _YES,
         "language": _TEXT,
         "audio": _object(input=_object(rate=_WHOLE), output=_object(rate=_WHOLE)), "lastEvent": _NUMBER},
        ("sessionId", "turn", "model", "provider", "offline", "language", "resumed", "audio", "lastEvent"),
        numbered=False,
    ),
    "state": _open(
        "state",
        {"state": {"enum": ["listening", "hearing", "thinking", "working", "speaking", "reconnecting"]}},
        ("state",),
    ),
    "turn": _open("turn", {"turn": _WHOLE, "inputId": _TEXT}, ("turn", "inputId")),
    "transcript": _open(
        "transcript",
        {"who": {"enum": ["user", "model"]}, "item": _WHOLE, "text": _TEXT, "whole": _TEXT, "final": _YES},
        ("who", "item", "text", "final"),
    ),
    "audio_end": _open("audio_end", {"item": _WHOLE, "ms": _WHOLE}, ("item", "ms")),
    "flush": _open("flush", {"item": _WHOLE}, ("item",)),
    "tool_started": _open("tool_started", {**_CARD, "args": {}}, ("callId", "toolId")),
    "tool_finished": _open("tool_finished", {**_CARD, "ok": _YES}, ("callId", "toolId", "ok")),
    "tool_refused": _open("tool_refused", {**_CARD, "gate": _TEXT}, ("callId", "toolId", "gate")),
    "progress": _open("progress", {"toolId": _TEXT, "text": _TEXT}, ("text",)),
    "message": _open("message", {"message": {"type": "object"}}, ("message",)),
    "connection_wanted": _open(
        "connection_wanted",
        {"connection": _TEXT, "label": _TEXT, "toolId": _TEXT, "callId": _TEXT, "link": _TEXT},
        ("connection", "label", "toolId", "link"),
    ),
    "confirmation": _open(
        "confirmation",
        {"id": _TEXT, "tool": _TEXT, "args": {"type": "object"}, "preview": _TEXT, "expires_at": _WHOLE,
         "channel": {"enum": ["any", "screen"]}, "token": _TEXT, "replacedBy": {"type": ["string", "null"]}},
        ("id", "tool", "args", "preview", "expires_at", "token"),
    ),
    "confirmation_closed": _open(
        "confirmation_closed",
        {"id": _TEXT, "toolId": _TEXT, "outcome": {"enum": ["carried_out", "declined", "failed", "unknown"]}},
        ("id", "toolId", "outcome"),
    ),
    "question": _open(
        "question",
        {"id": _TEXT, "misses": _WHOLE,
         "state": {"enum": ["reading", "asking", "missed", "screen", "approved", "declined", "expired"]}, "reason": _TEXT},
        ("id", "state"),
    ),
    "speak": _open(
        "speak",
        {"id": _TEXT, "text": _TEXT, "kind": {"enum": ["answer", "filler", "preview", "notice"]}, "item": _WHOLE},
        ("id", "text", "kind"),
    ),
    "cue": _open("cue", {"kind": {"enum": ["slow", "reconnected"]}, "toolId": _maybe(_TEXT)}, ("kind",)),
    "turn_done": _open(
        "turn_done",
        {"turn": _WHOLE, "text": _TEXT, "interrupted": _YES,
         "latency": {"type": "object", "properties": _LATENCY, "required": list(_LATENCY)}},
        ("turn", "text", "interrupted", "latency"),
    ),
    "context": _open(
        "context", {"usedTokens": _WHOLE, "windowTokens": _WHOLE}, ("usedTokens", "windowTokens")
    ),
    "link": _open("link", {"state": {"enum": ["up", "lost"]}, "number": _WHOLE}, ("state", "number")),
    "ended": _open(
        "ended",
        {"reason": _TEXT, "closingMessage": _maybe(_TEXT), "textResponse": _maybe(_TEXT), "resumable": _YES},
        ("reason", "closingMessage", "textResponse", "resumable"),
    ),
    "error": _open(
        "error", {"n": _NUMBER, "code": _TEXT, "message": _TEXT, "detail": _TEXT}, ("code", "message"), numbered=False
    ),
    "ping": _open("ping", {}, numbered=False),
}  # fmt: skip

ABOUT_SERVER: Mapping[str, str] = {
    "ready": "The conversation continues with this client. `resumed`: all after its `lastEvent` follows; otherwise fetch the "
    "session to see what was said before. A rate of 0 means that the model does not hear, or does not speak. `language` is "
    "the one in which spoken answers are understood.",
    "state": "What is happening, for a sign on the screen.",
    "turn": "The user's input was committed.",
    "transcript": "What was said: the new piece; with the last one, `final`, all of the utterance in `whole`, which stands.",
    "audio_end": "The sound of an item is complete, and so long.",
    "flush": "Throw away what is not played of this item and of all before it: the user interrupted.",
    "tool_started": "As in the text protocol.",
    "tool_finished": "As in the text protocol.",
    "tool_refused": "As in the text protocol.",
    "progress": "As in the text protocol.",
    "connection_wanted": "As in the text protocol.",
    "message": "`message` is what a tool sent to the client, as in the text protocol.",
    "confirmation": "A person must decide; as in the text protocol, and approved there.",
    "confirmation_closed": "As in the text protocol.",
    "question": "The spoken side of a confirmation.",
    "speak": "Words for the client's own voice, or to be read; answered with `spoken`.",
    "cue": "Something that deserves a sound or a sign: a tool takes long, or the line is back.",
    "turn_done": "The model has finished answering, and where the time went.",
    "context": "The model's window is nearly full; from now on old results of tools are left out.",
    "link": "The provider's side of the line.",
    "ended": "The conversation is over, and the session continues in text. The last message.",
    "error": "What is wrong, in a sentence; `detail` is the provider's own code for it. If it is the client's fault, or the end, "
    "the socket is closed after it.",
    "ping": "Answer it with `pong`.",
}


class BadMessage(Exception):
    """What a client sent is no message; the sentence says why."""


_CHECKS: Mapping[str, CompiledSchema] = {name: compile_schema(schema, trusted=True) for name, schema in CLIENT.items()}


def read_message(text: str) -> dict[str, Any]:
    """The message in a text frame; `BadMessage` in a sentence that names no value of the client's beyond its type."""
    try:
        message = parse(text, max_bytes=MAX_TEXT_BYTES, max_depth=_DEPTH)
    except JsonError as error:
        raise BadMessage(f"The message is not right: {error}") from None
    if not isinstance(message, dict):
        raise BadMessage("A message is a JSON object.")
    kind = message.get("type")
    check = _CHECKS.get(kind) if isinstance(kind, str) else None
    if check is None:
        raise BadMessage(f"There is no message of the type {shown(kind)}; known are {', '.join(CLIENT)}.")
    if kind == "text" and str(message.get("id")).startswith(OWN_IDS):
        raise BadMessage(f'The message "text" is not right: ids that begin with "{OWN_IDS}" are the server\'s own.')
    if not check.is_valid(message):
        raise BadMessage(f'The message "{kind}" is not right: {check.violations(message)[0].message}')
    return message
