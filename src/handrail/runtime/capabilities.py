"""The small capabilities that every runtime has without any set-up: messaging, voice, audio, audit,
secrets and the local time.

Each is a `PerCall`: the context makes the port for its own call when a handler first asks for it, so that a port knows
whose call it serves and nothing has to be passed in. A host that gives an object of its own under one of these names
replaces it. What a handler hands over is checked here, because handlers pass on what models wrote.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.errors import UsageError
from handrail.contract.events import ClientMessage, MessageSent, SessionEvent
from handrail.contract.fields import shown
from handrail.contract.frozen import freeze
from handrail.contract.intents import Intent, IntentType
from handrail.runtime.local_time import LocalTime

if TYPE_CHECKING:
    from handrail.runtime.call_attempt import Attempt
    from handrail.runtime.session import Session

MAX_MESSAGE_BYTES = 16 * 1024
MAX_MESSAGES = 20
"""Per call: events that nobody has fetched yet push older ones out, and a confirmation may be among those."""
MAX_NOTE_BYTES = 8 * 1024
MAX_NOTES = 100
NOTE_PREFIX = "tool:"
"""Stands before the name of every event that a tool writes, so that none can pass for one of the runtime's own."""
_NOTE_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")

_TEXT: tuple[type, ...] = (str,)
_NUMBER: tuple[type, ...] = (int, float)
_NOTHING = type(None)
# The client messages that tools send: each field with its types; a field that may be None may also be left out.
MESSAGES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "timeout": {"timeoutUntil": _NUMBER, "durationSeconds": _NUMBER, "farewellMessage": _TEXT},
    "voice_session_start": {"sessionId": _TEXT, "pendingRequest": (str, _NOTHING)},
    "image": {
        "url": _TEXT,
        "imageId": (str, _NOTHING),
        "caption": (str, _NOTHING),
        "width": (int, _NOTHING),
        "height": (int, _NOTHING),
    },
}


class PerCall:
    """A capability that is made anew for each call, from the call's attempt."""

    __slots__ = ("bind",)

    def __init__(self, bind: Callable[[Attempt], object]) -> None:
        self.bind = bind


def built_in(secrets: Mapping[str, str] | None = None) -> dict[str, PerCall]:
    """The capabilities of every runtime. `secrets` are the host's, by name, for tools that ask for that capability."""
    kept = {name.lower(): value for name, value in (secrets or {}).items()}
    return {
        "messaging": PerCall(Messaging),
        "voice": PerCall(Voice),
        "audio": PerCall(Audio),
        "audit": PerCall(Notes),
        "secrets": PerCall(lambda attempt: Secrets(attempt, kept)),
        "local_time": PerCall(LocalTime),
    }


def tell(session: Session, event: SessionEvent) -> None:
    """Put an event on the session's events. A plain handler runs in a thread, from where listeners must not be woken."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop = session.core.loop
        if loop is not None:
            loop.call_soon_threadsafe(session.events_queue.emit, event)
    else:
        session.events_queue.emit(event)


class Messaging:
    """`send` puts a message for the user's client on the session's events."""

    __slots__ = ("_sent", "_session")

    def __init__(self, attempt: Attempt) -> None:
        self._session = attempt.session
        self._sent = 0

    def send(self, message: Mapping[str, Any]) -> Sent:
        """Send one of the known messages; `UsageError` if it is none. It is sent at once: awaiting the answer is optional."""
        checked = checked_message(message)
        self._sent += 1
        if self._sent > MAX_MESSAGES:
            raise UsageError(f"One call sends at most {MAX_MESSAGES} messages; put what belongs together into one.")
        tell(self._session, MessageSent(checked))
        return Sent()


class Sent:
    """What `send` gives back: a host's own messaging may have to be awaited, so handlers await this one as well."""

    __slots__ = ()

    def __await__(self) -> Any:
        return iter(())


class Voice:
    """The voice part of the session."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def is_active(self) -> bool:
        """Whether the session speaks: it is in voice mode, or its host has a voice connection open for it."""
        session = self._attempt.session
        return session.is_active and (session.mode == "voice" or session.voice_open)

    def end_session(
        self,
        *,
        after: str = "current_turn",
        reason: str = "user_requested",
        closing_message: str | None = None,
        text_response: str | None = None,
    ) -> Intent:
        """Ask for the end of the voice session, after the current turn or after its farewell was spoken."""
        fields = {"after": after, "reason": reason, "closingMessage": closing_message, "textResponse": text_response}
        return _intend(self._attempt, IntentType.END_VOICE_SESSION, fields)


class Audio:
    """What the user hears."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def suppress(self, value: bool) -> Intent:
        """Ask for silence, or for its end."""
        return _intend(self._attempt, IntentType.SUPPRESS_AUDIO, {"value": value})


class Notes:
    """`ctx.audit`: a tool's own events in the audit log, under names that are not the runtime's."""

    __slots__ = ("_attempt", "_written")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._written = 0

    def log(self, event: str, data: Mapping[str, Any] | None = None) -> None:
        """Note `tool:<event>`. Data that is too large, or no JSON, is left out and the line says so: a note ends no call."""
        if not isinstance(event, str) or not _NOTE_NAME.fullmatch(event):
            raise UsageError(
                f"An audit event is named by up to 64 of a-z, 0-9, _ . and -, a letter first; {shown(event)} is not."
            )
        self._written += 1
        if self._written > MAX_NOTES:
            return
        attempt = self._attempt
        core, session = attempt.session.core, attempt.session
        fields = {"callId": attempt.call.call_id, "idempotencyKey": attempt.key, "toolId": attempt.plan.tool_id}
        core.trail.note(NOTE_PREFIX + event, session, {**core.trail.who(session), **fields, **_noted(data)})


class Secrets:
    """The host's secrets, for tools that list `secrets` among their capabilities. They are shown by no `repr`."""

    __slots__ = ("_allowed", "_kept", "_tool")

    def __init__(self, attempt: Attempt, kept: Mapping[str, str]) -> None:
        definition = attempt.plan.definition
        self._tool = definition.tool_id
        self._allowed = "secrets" in definition.capabilities
        self._kept = kept

    def get(self, name: str) -> str | None:
        """The secret of this name, whatever the case of its letters; None if the host has none."""
        if not self._allowed:
            raise UsageError(f'"{self._tool}" reads a secret; add "secrets" to the "capabilities" in its schema.json.')
        return self._kept.get(name.lower())


def checked_message(message: object) -> ClientMessage:
    """A frozen copy of a client message; `UsageError` if it has another shape than its type, or is too large."""
    if not isinstance(message, Mapping):
        raise UsageError(f"A message is an object; {shown(message)} is not.")
    kind = message.get("type")
    fields = MESSAGES.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise UsageError(f"{shown(kind)} is not a type of message; known are {', '.join(MESSAGES)}.")
    strange = next((name for name in message if name != "type" and name not in fields), None)
    if strange is not None:
        raise UsageError(f'A message "{kind}" has no {shown(strange)}; it has {", ".join(fields)}.')
    for name, types in fields.items():
        value = message.get(name)
        if (
            not isinstance(value, types)
            or isinstance(value, bool)
            or (isinstance(value, float) and not isfinite(value))
        ):
            raise UsageError(f'"{name}" of a message "{kind}" cannot be {shown(value)}.')
    try:
        size = len(orjson.dumps(dict(message)))
    except TypeError as error:
        raise UsageError(f'A message "{kind}" must be JSON: {error}.') from error
    if size > MAX_MESSAGE_BYTES:
        raise UsageError(f'A message "{kind}" of {size} bytes is too large; {MAX_MESSAGE_BYTES} are allowed.')
    checked: ClientMessage = freeze({"type": kind, **{name: message.get(name) for name in fields}})
    return checked


def _intend(attempt: Attempt, kind: IntentType, fields: Mapping[str, Any]) -> Intent:
    """Collect an intent on the attempt: it goes into the envelope if the handler succeeds, and is applied with it."""
    intent = Intent(kind.value, freeze(dict(fields)))
    if attempt.intents is None:
        attempt.intents = []
    attempt.intents.append(intent)
    return intent


def _noted(data: object) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        return {"dataOmitted": "not an object"}
    try:
        raw = orjson.dumps(dict(data))
    except TypeError:
        return {"dataOmitted": "not JSON"}
    if len(raw) > MAX_NOTE_BYTES:
        return {"dataOmitted": f"{len(raw)} bytes"}
    return {"data": orjson.loads(raw)}
