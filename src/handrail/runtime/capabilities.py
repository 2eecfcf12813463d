"""The small capabilities that every runtime has without any set-up: messaging, voice, audio, audit,
secrets, the local time and the client.

Each is a `PerCall`: the context makes the port for its own call when a handler first asks for it, so that a port knows
whose call it serves and nothing has to be passed in. A host that gives an object of its own under one of these names
replaces it. What a handler hands over is checked here, because handlers pass on what models wrote.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.credentials import ConnectionNeeded, ConnectionsPort
from handrail.contract.errors import ErrorType, ToolError, UsageError
from handrail.contract.events import ClientMessage, ConnectionWanted, MessageSent, SessionEvent
from handrail.contract.fields import shown
from handrail.contract.frozen import freeze
from handrail.contract.intents import Intent, IntentType
from handrail.runtime.client_port import ClientPort
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
        "engine": (str, _NOTHING),
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
        "client": PerCall(ClientPort),
    }


def tell(session: Session, event: SessionEvent) -> None:
    """Put an event on the session's events. A plain handler runs in a thread, from where listeners must not be woken."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop = session.core.loop
        if loop is not None:
            # In the order of their calls: what one handler sends arrives as it was sent.
            loop.call_soon_threadsafe(session.events_queue.emit, event)
    else:
        session.events_queue.emit(event)


class Messaging:
    """`send` puts a message for the user's client on the session's events."""

    __slots__ = ("_attempt", "_sent")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._sent = 0

    def send(self, message: Mapping[str, Any]) -> Sent:
        """Send one of the known messages; `UsageError` if it is none. It is sent at once: awaiting the answer is optional."""
        if self._attempt.handed_out:
            message = without_tokens(message, self._attempt.handed_out)
        # Copied and frozen: the handler may change its own object afterwards, and listeners get it later.
        checked = checked_message(message)
        self._sent += 1
        if self._sent > MAX_MESSAGES:
            raise UsageError(f"One call sends at most {MAX_MESSAGES} messages; put what belongs together into one.")
        tell(self._attempt.session, MessageSent(checked))
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
        # Left out without an error: notes are for the operator, and must not decide about the call.
        if self._written > MAX_NOTES:
            return
        attempt = self._attempt
        core, session = attempt.session.core, attempt.session
        if attempt.handed_out:
            data = without_tokens(data, attempt.handed_out)
        fields = {"callId": attempt.call.call_id, "idempotencyKey": attempt.key, "toolId": attempt.plan.tool_id}
        core.trail.note(NOTE_PREFIX + event, session, {**core.trail.who(session), **fields, **_noted(data)})


class Secrets:
    """The host's secrets, and the tokens of the call's own user, for tools that list `secrets` among their capabilities. They are
    shown by no `repr`, and what a tool was given is struck out wherever it writes it: see `struck_out`."""

    __slots__ = ("_attempt", "_kept")

    def __init__(self, attempt: Attempt, kept: Mapping[str, str]) -> None:
        self._attempt = attempt
        self._kept = kept

    def get(self, name: str) -> str | None:
        """The host's secret of this name, whatever the case of its letters; None if the host has none."""
        self._check()
        return self._kept.get(name.lower())

    async def token(self, connection: str) -> str:
        """The access token of the user of this call for `[connections.NAME]`, valid now. Another user's cannot be asked for.

        Where the user has not connected it, the call ends in AUTH, and the person is shown where to connect; let it pass."""
        port, tenant, user = self._whose(connection)
        try:
            given = await port.token(tenant, user, connection)
        except ConnectionNeeded:
            self._want(port, connection)
            raise
        attempt = self._attempt
        # From here on everything that leaves the call is searched for it.
        attempt.handed_out = (*attempt.handed_out, given.value)
        return given.value

    def token_now(self, connection: str) -> str:
        """`token` for a plain handler, which runs in a thread and cannot await."""
        loop = self._attempt.session.core.loop
        if loop is None:
            raise UsageError("The runtime is not open.")
        # On the runtime's loop, where the refresh of a token is shared with everybody who waits for the same one.
        return asyncio.run_coroutine_threadsafe(self.token(connection), loop).result()

    async def refused(self, connection: str, token: str, scopes: Sequence[str] = ()) -> None:
        """The service did not take this token although it should be valid: the next `token` is a new one. `scopes` are those that
        it wants beyond what the person has allowed: this call ends in AUTH, and the person is shown where to allow them."""
        port, tenant, user = self._whose(connection)
        try:
            await port.refused(tenant, user, connection, token, scopes)
        except ConnectionNeeded:
            self._want(port, connection)
            raise

    def ask_to_connect(self, connection: str) -> None:
        """The service takes no token of this connection, or wants another permission: the person is shown where to connect."""
        port, _, _ = self._whose(connection)
        self._want(port, connection)

    def _whose(self, connection: str) -> tuple[ConnectionsPort, str, str]:
        self._check()
        attempt = self._attempt
        session, tool = attempt.session, attempt.plan.tool_id
        port = session.core.connections
        if port is None or connection not in port.names:
            raise UsageError(f'"{tool}" uses the connection {shown(connection)}; add [connections.{connection}].')
        if not port.is_for(connection, tool):
            raise UsageError(f'"tools" in [connections.{connection}] does not name "{tool}".')
        if not session.user:
            label = port.label(connection)
            raise ToolError(ErrorType.AUTH, f'"{label}" is connected by each person, and this session has no user.')
        return port, session.tenant, session.user

    def _want(self, port: ConnectionsPort, connection: str) -> None:
        attempt = self._attempt
        event = ConnectionWanted(
            connection=connection,
            label=port.label(connection),
            tool_id=attempt.plan.tool_id,
            call_id=attempt.call.call_id,
            link=port.link(connection),
        )
        tell(attempt.session, event)

    def _check(self) -> None:
        definition = self._attempt.plan.definition
        if "secrets" not in definition.capabilities:
            tool = definition.tool_id
            raise UsageError(f'"{tool}" reads a secret; add "secrets" to the "capabilities" in its schema.json.')


STRUCK_OUT = "[token]"
"""What stands where a tool has written a token that it was given."""


def struck_out(text: str, handed_out: tuple[str, ...]) -> str:
    """A text without the tokens that the call was given."""
    for token in handed_out:
        text = text.replace(token, STRUCK_OUT)
    return text


def without_tokens(value: Any, handed_out: tuple[str, ...]) -> Any:
    """A value of JSON without the tokens that the call was given; what is none is left as it is."""
    if isinstance(value, str):
        return struck_out(value, handed_out)
    if isinstance(value, Mapping):
        return {
            struck_out(name, handed_out) if isinstance(name, str) else name: without_tokens(one, handed_out)
            for name, one in value.items()
        }
    return [without_tokens(one, handed_out) for one in value] if isinstance(value, (list, tuple)) else value


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
