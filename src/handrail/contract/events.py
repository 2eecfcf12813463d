"""The events of a session: what its host learns beside the answers to calls. `handrail.events` is the public name of this.

Each event is a frozen value. `type` names it on the wire, `data` is its wire form: plain JSON with the names that the server's
protocol uses, so that a host may send it on to a page unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict, cast

from handrail.contract.envelope import ToolResponse
from handrail.contract.intents import Intent

NOTE_START = "Note of the host"
"""How the note on a late envelope begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationWanted:
    """A call is held until a person approves or declines it. Show `preview` to that person, and keep `token` from the model."""

    type: ClassVar[Literal["confirmation"]] = "confirmation"

    id: str
    """What `Runtime.approve` and `Runtime.decline` are given, together with `token`."""
    tool: str
    args: Mapping[str, Any]
    """The exact arguments that will run."""
    preview: str
    """What the call will do, from the tool's template and the exact arguments, followed by the facts of its own `preview`."""
    expires_at: int
    """Milliseconds since 1970."""
    token: str = field(repr=False)
    """The secret that approves what `preview` shows, once. Left out of `repr`, so that no log has it."""
    channel: Literal["any", "screen"] = "any"
    """`screen`: an answer that was spoken does not count."""
    replaced_by: str | None = None
    """The id of a newer request for the same tool from a later turn. Say so before you ask."""

    @property
    def data(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "tool": self.tool,
            "args": self.args,
            "preview": self.preview,
            "expires_at": self.expires_at,
            "token": self.token,
            "channel": self.channel,
            "replacedBy": self.replaced_by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationRunning:
    """A held call was approved, here or in another process, and its handler starts."""

    type: ClassVar[Literal["confirmation_running"]] = "confirmation_running"

    id: str
    """The id of the confirmation."""
    tool_id: str
    call_id: str | None

    @property
    def data(self) -> dict[str, Any]:
        return {"id": self.id, "toolId": self.tool_id, "callId": self.call_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEnvelope:
    """The outcome of a call that the model was already answered about. Give it to the model in a message of its own."""

    type: ClassVar[Literal["envelope"]] = "envelope"

    call_id: str | None
    """The provider's id of the call."""
    tool_id: str
    envelope: Mapping[str, Any]
    """The wire form of a `ToolResponse`."""
    confirmation_id: str | None = None
    """The request that was approved or declined; None for a call that was interrupted and has finished since."""
    silent: bool = False
    """The model need not say anything about it now."""
    known: bool = False
    """The conversation has this envelope in its place already: only what a page shows of the call is to be settled."""

    @property
    def response(self) -> ToolResponse:
        """The envelope as a value."""
        return ToolResponse.from_dict(self.envelope)

    @property
    def note(self) -> str:
        """The outcome in words for the model: which call it belongs to, what became of it, and the envelope, marked as data."""
        call = f' (call "{self.call_id}")' if self.call_id else ""
        body = json.dumps(self.envelope, default=dict, ensure_ascii=False, separators=(",", ":"))
        said = f'{NOTE_START}: "{self.tool_id}"{call} {self._what_happened()}. Tell the person in a sentence or two.'
        return f"{said} Its envelope, which is data: {body}"

    def _what_happened(self) -> str:
        succeeded = self.envelope.get("ok")
        if self.confirmation_id is None:
            return f"{'was finished' if succeeded else 'ended without success'} after the interruption"
        if succeeded:
            return "was approved by the person and has been carried out"
        if self.envelope["error"]["type"] == "DECLINED":
            return "was declined by the person and did not run"
        return "was approved by the person and did not succeed"

    @property
    def data(self) -> dict[str, Any]:
        told = {
            "callId": self.call_id,
            "toolId": self.tool_id,
            "envelope": self.envelope,
            "confirmationId": self.confirmation_id,
            "silent": self.silent,
        }
        return {**told, "known": True} if self.known else told


@dataclass(frozen=True, slots=True)
class IntentApplied:
    """A change of the session's state that a tool asked for, and that was applied."""

    type: ClassVar[Literal["intent"]] = "intent"

    intent: Intent

    @property
    def data(self) -> dict[str, Any]:
        return self.intent.to_dict()


class TimeoutMessage(TypedDict):
    """The user is blocked for a while."""

    type: Literal["timeout"]
    timeoutUntil: float
    """Seconds since 1970."""
    durationSeconds: float
    farewellMessage: str


class VoiceSessionStartMessage(TypedDict):
    """The client should open a voice connection for the session."""

    type: Literal["voice_session_start"]
    sessionId: str
    pendingRequest: str | None


class ImageMessage(TypedDict):
    """A picture for the user."""

    type: Literal["image"]
    url: str
    imageId: str | None
    caption: str | None
    width: int | None
    height: int | None
    engine: str | None
    """What has drawn it, where that is known; one whose name begins with `placeholder` is no picture of an image model."""


ClientMessage: TypeAlias = TimeoutMessage | VoiceSessionStartMessage | ImageMessage


@dataclass(frozen=True, slots=True)
class MessageSent:
    """A tool's message for the user's client, sent by `ctx.messaging`. Its own `type` says which one it is."""

    type: ClassVar[Literal["message"]] = "message"

    message: ClientMessage

    @property
    def data(self) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How the work of a call is going, in the words of its tool (`ctx.progress`)."""

    type: ClassVar[Literal["progress"]] = "progress"

    tool_id: str
    call_id: str | None
    text: str

    @property
    def data(self) -> dict[str, Any]:
        called = {} if self.call_id is None else {"callId": self.call_id}
        return {"toolId": self.tool_id, **called, "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionWanted:
    """A call needs a service that its user has not connected. Show `link` to that person, and keep it from the model."""

    type: ClassVar[Literal["connection_wanted"]] = "connection_wanted"

    connection: str
    """The name in `[connections.NAME]`."""
    label: str
    """The service as people know it."""
    tool_id: str
    call_id: str | None
    link: str = ""
    """Where the person connects it; relative to the server that they use. Empty where there is none: then by the command line."""

    @property
    def command(self) -> str:
        """What connects it on the machine of the host."""
        return f"handrail connect {self.connection}"

    @property
    def data(self) -> dict[str, Any]:
        called = {} if self.call_id is None else {"callId": self.call_id}
        named = {"connection": self.connection, "label": self.label, "toolId": self.tool_id}
        return {**named, **called, "link": self.link}


SessionEvent: TypeAlias = (
    ConfirmationWanted | ConfirmationRunning | LateEnvelope | IntentApplied | MessageSent | Progress | ConnectionWanted
)
"""Every event that a session yields; `match` over it is checked for completeness by a type checker."""
