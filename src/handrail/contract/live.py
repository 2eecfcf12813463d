"""The live port: a spoken conversation with a model, and what comes back from it. Every live client implements it.

A `LiveConnection` outlives the provider's connections: it reconnects, resumes and re-tells by itself, and says so with a
`Connected` for each. Audio is PCM, 16 bit, little-endian, mono, both ways. Audio may be dropped when a side is slow; calls,
transcripts and the other events never are. The last event is `Closed`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from handrail.contract.call import Call
from handrail.contract.model import ModelError, Usage

__all__ = [
    "Answer",
    "AudioOut",
    "CallsCancelled",
    "CallsMade",
    "Closed",
    "Connected",
    "Disconnected",
    "GoAway",
    "InputTranscript",
    "Interrupted",
    "LiveConfig",
    "LiveConnection",
    "LiveCounters",
    "LiveError",
    "LiveEvent",
    "LiveLimits",
    "LiveModel",
    "Note",
    "OutputTranscript",
    "ProviderWarning",
    "ResumptionHandle",
    "Scheduling",
    "TurnEnded",
    "Usage",
    "UserSpeechEnded",
    "UserSpeechStarted",
    "Utterance",
]

Scheduling = Literal["when_idle", "interrupt", "silent"]
"""How an answer is brought up: when the model has nothing to say, at once, or not at all (it only becomes known)."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one side has said so far: before the live session began, or on a connection that is gone."""

    role: Literal["user", "model"]
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A call and the envelope that it ended in."""

    call: Call
    envelope: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the host told the model."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """What a live session begins with. Only some providers can change the tools in a session: `LiveModel.changes_tools`."""

    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    """Declarations in the format of `LiveModel.provider`."""
    background: frozenset[str] = frozenset()
    """Tools during which the model may continue talking, where the provider can do that."""
    history: Sequence[Utterance | Answer | Note] = ()
    """What was said, called and told before, such as the chat that was handed over."""
    voice: str | None = None
    language: str | None = None
    transcribe: bool = True
    resumption: bool = True
    """Ask the provider for resumption handles, where it has them."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What a local model may use, as in `ModelRequest.session`: `mode`, `time_zone`, `user`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLimits:
    """How long is waited, and how much is kept. Seconds, and numbers of things."""

    connect_seconds: float = 10.0
    """For one connection to be made and set up."""
    send_seconds: float = 10.0
    """For the provider to take one message."""
    reply_seconds: float = 30.0
    """For the model to continue when it is its turn; after that the connection is made anew."""
    attempts: int = 6
    """Connections tried in a row without one useful event, before the session is given up."""
    first_delay: float = 0.25
    max_delay: float = 4.0
    connection_seconds: float = 3300.0
    """Age at which a connection is replaced at a quiet moment, for providers that do not say when they go."""
    audio_in_frames: int = 100
    """Frames of the user's audio that wait to be sent; the oldest are dropped."""
    audio_out_frames: int = 500
    """Frames of the model's audio that wait to be taken; the oldest are dropped."""
    events: int = 1000
    """Other events that wait to be taken; beyond them nothing more is read from the provider."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection is up: the first, or one after a loss. `restored_calls` are those that the model still remembers.

    Give them to `Runtime.resume_session` when `number` is above 1: calls told after this event belong to it.
    """

    number: int
    resumed: bool = False
    """The provider took the session up where a handle says; False: a new one, which was given what had been said."""
    restored_calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone, and another one is tried."""

    reason: str


@dataclass(frozen=True, slots=True)
class AudioOut:
    """A piece of the model's voice."""

    pcm: bytes
    rate: int


@dataclass(frozen=True, slots=True)
class InputTranscript:
    """What the user says, as the provider heard it: the new piece, and the utterance up to here."""

    text: str
    whole: str
    final: bool = False
    item: str = ""
    """Which utterance it is, by the provider's own name; "" where the provider does not say that."""


@dataclass(frozen=True, slots=True)
class OutputTranscript:
    """What the model says: the new piece, and all of its answer up to here."""

    text: str
    whole: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class CallsMade:
    """All calls of one message of the model, complete. Each wants an envelope, given to `send_envelopes`."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class CallsCancelled:
    """The provider takes calls back, because the user interrupted. Stop them if they do not write."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The model was cut off: what is still to be played is thrown away."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The model has finished, or was stopped. A message with calls does not end the turn."""

    reason: Literal["done", "interrupted", "cut", "failed"] = "done"
    detail: str = ""
    """The provider's code for it."""
    message: str = ""
    """What the user hears of a failure, where there are words for it."""


@dataclass(frozen=True, slots=True)
class UserSpeechStarted:
    item: str = ""
    """The name of the utterance, where the provider has one: words come under it, at any time and in any order."""


@dataclass(frozen=True, slots=True)
class UserSpeechEnded:
    """The provider took the user's speech to be complete: the input is committed."""

    item: str = ""
    again: bool = False
    """Words came after the end of speech was reported, and no new beginning: they may be its own."""


@dataclass(frozen=True, slots=True)
class GoAway:
    """The connection ends in this many seconds; None if it is not known. It is replaced at the next quiet moment."""

    time_left: float | None


@dataclass(frozen=True, slots=True)
class ResumptionHandle:
    """A new handle, or, with `resumable` False, that resuming now would lose what happens at the moment."""

    handle: str | None
    resumable: bool


@dataclass(frozen=True, slots=True)
class ProviderWarning:
    """The provider did not like something that was sent. For the log."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The end. `closed`: asked for. `refused`: the provider does not let us in. `lost`: it could not be had again."""

    reason: Literal["closed", "refused", "lost"]
    message: str = ""


LiveEvent: TypeAlias = (
    Connected
    | Disconnected
    | AudioOut
    | InputTranscript
    | OutputTranscript
    | CallsMade
    | CallsCancelled
    | Interrupted
    | TurnEnded
    | UserSpeechStarted
    | UserSpeechEnded
    | GoAway
    | ResumptionHandle
    | ProviderWarning
    | Usage
    | Closed
)


@dataclass(slots=True)
class LiveCounters:
    """What went unnoticed, counted."""

    unknown_events: int = 0
    malformed_events: int = 0
    duplicate_events: int = 0
    refused_calls: int = 0
    """Calls that were answered here because their message held too many."""
    unfinished_calls: int = 0
    """Calls that were cut off or cancelled by the provider and so were never told."""
    dropped_audio_in: int = 0
    dropped_audio_out: int = 0
    connections: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """Unknown events by name, at most a hundred names."""


class LiveError(ModelError):
    """The live session cannot be had, or is over."""


class LiveConnection(Protocol):
    """One spoken conversation."""

    @property
    def counters(self) -> LiveCounters: ...

    def send_audio(self, pcm: bytes, rate: int) -> bool:
        """Hand over the user's audio; never waits. False: the provider is slow, and older audio was dropped for it.

        `LiveError` for what is not whole 16-bit samples or has a rate that the provider does not take.
        """
        ...

    async def send_text(self, text: str) -> None:
        """What the user typed. The model answers it."""
        ...

    async def tell(self, text: str, *, scheduling: Scheduling = "when_idle") -> None:
        """Something that the host tells the model outside of any call. Never the user's words."""
        ...

    async def send_envelopes(self, answers: Sequence[Answer], *, scheduling: Scheduling = "when_idle") -> None:
        """Answer calls. Those that the provider took back, or made on a connection that is gone, are answered in words."""
        ...

    async def interrupt(self) -> None:
        """Stop the model's answer, where the provider has a message for it."""
        ...

    async def truncate(self, played_ms: int) -> None:
        """The user heard this much of the model's last answer, and no more."""
        ...

    async def rotate(self) -> None:
        """Replace the connection at the next quiet moment."""
        ...

    async def leave_out_results(self) -> None:
        """The model's window is nearly full: old results of tools are no longer among what it knows. What was said stays. Nothing
        where the provider makes room itself."""
        ...

    async def change_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> None:
        """From now on these tools, with the instructions that speak of them. Where the provider cannot change them in a session
        (`LiveModel.changes_tools`), the connection is replaced for it at the next quiet moment."""
        ...

    def events(self) -> AsyncIterator[LiveEvent]:
        """Everything that happens, once, in order; for one listener. Ends after `Closed`."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class DirectDelivery(Protocol):
    """A `LiveConnection` that can hand its events on without a task that waits for them, which halves what a frame costs."""

    def hand_to(self, take: Callable[[LiveEvent], None]) -> None:
        """In place of `events()`: `take` is called with each event in the moment in which it comes. It may not wait or raise."""


class LiveModel(Protocol):
    """A model that listens and speaks."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str:
        """Whose schema format `LiveConfig.tools` has."""
        ...

    @property
    def input_rates(self) -> tuple[int, ...]:
        """The sample rates that it takes, the best one first."""
        ...

    @property
    def output_rate(self) -> int: ...

    @property
    def changes_tools(self) -> bool:
        """Whether a session can be given other tools while it lasts."""
        ...

    async def connect(self, config: LiveConfig) -> LiveConnection:
        """Begin a conversation; `LiveError` with a sentence if the provider cannot be had."""
        ...

    async def close(self) -> None: ...
