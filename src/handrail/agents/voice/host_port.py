"""The port between a voice conversation and its host: what the host hears, what it says in return, and the settings.

The host owns the user's client. It passes what the client sends to a `SpokenConversation`. Its `VoiceListener` receives
everything in return: control events by name with JSON data, and sound as PCM. A conversation outlives its clients, so one
listener serves all of them and decides what it keeps for a client that is away.

| event | data |
| --- | --- |
| `state` | `state`: `listening`, `hearing`, `thinking`, `working`, `speaking` or `reconnecting` |
| `turn` | `turn`, `inputId` |
| `transcript` | `who` (`user`, `model`), `item`, `inputId`, `text` (the new piece), `final`, and then `whole` |
| `audio_end` | `item`, `ms`: the item's sound is complete, and its length |
| `flush` | `item`: what is not played of it, and of all before it, is thrown away |
| `tool_started`, `tool_finished`, `tool_refused`, `progress`, `message` | as in text |
| `connection_wanted`, `confirmation`, `confirmation_closed` | as in text |
| `question` | `id`, `state` (`reading`, `asking`, `missed`, `screen`, `approved`, `declined`, `expired`), `misses` |
| `speak` | `id`, `item`, `text`, `kind` (`answer`, `filler`, `preview`, `notice`): for the client's own voice, or to be read |
| `cue` | `kind` (`slow`, `reconnected`), `toolId` |
| `turn_done` | `turn`, `inputId`, `input`, `text`, `citations`, `interrupted`, `latency` |
| `context` | `usedTokens`, `windowTokens`: nine tenths of the model's window are used; old results are left out |
| `link` | `state` (`up`, `lost`), `number`: the provider's side |
| `error` | `code`, `message` |
| `ended` | `reason`, `closingMessage`, `textResponse`, `resumable`, `message`; the last one |

`turn_done` comes again for the same turn, with all of its text, when the model continues in it after a late result. The words of
the user may become known after `turn_done`; the last `transcript` with this `inputId` has them.

`latency` says where the time of a turn went, in milliseconds; null where nothing of the kind happened. `hearingMs`: from the end
of the user's speech until it was committed, or its words were known. `modelMs`: until the model's first output, without the time
of its tools, `toolsMs`. `speakingMs`: the length of the sound that was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from handrail.contract.errors import HandrailError
from handrail.contract.events import SessionEvent
from handrail.runtime.session import Session

SpeechState: TypeAlias = Literal["started", "ended"]
RecogniserName: TypeAlias = Literal["provider", "local"]


class VoiceError(HandrailError):
    """A voice conversation cannot begin, or cannot take this. `code` is short and stable, for a program."""

    def __init__(self, message: str, *, code: str = "refused", retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class Sound:
    """A piece of the voice that the user hears: PCM, 16 bit, little-endian, mono; `offset_ms` from the item's beginning."""

    item: int
    offset_ms: int
    pcm: bytes
    rate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What the user's client can do beside showing text."""

    sound: bool = True
    """It sends the user's audio and plays ours."""
    recognises: bool = False
    """It turns the user's speech into words itself."""
    speaks: bool = False
    """It speaks words itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoicePolicy:
    """The settings of the voice agent. Seconds, unless a name says otherwise."""

    model: str = ""
    """Such as "gemini-live:…" or "openai-realtime:…"; empty: the text model, heard and spoken by the client."""
    base_url: str = ""
    voice: str = ""
    language: str = "en"
    recogniser: RecogniserName = "provider"
    """Who hears the answer to a spoken confirmation: the provider's transcription alone, or a local recogniser beside it."""
    filler: tuple[str, ...] = ("One moment, please.", "I am still looking.", "Just a second.")
    """What is said when a tool takes longer than its budget."""
    idle_seconds: float = 300.0
    """Nobody speaks, nothing runs: the conversation ends."""
    grace_seconds: float = 30.0
    """How long a conversation waits for its client to come back; the host sees to it."""
    farewell_seconds: float = 20.0
    """How long a farewell may take to be spoken and played before the conversation ends without it."""
    playback_seconds: float = 5.0
    """How much longer than the sound itself the client may take to report that it was played."""
    connect_seconds: float = 15.0
    """For the first connection to the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a conversation ended. After `closed` it may begin again; after all others the session is in text mode."""

    reason: str
    """`user_requested` or what the tool said,  `idle`, `blocked`, `session_ended`, `provider_lost`, `closed`, `fault`."""
    closing_message: str | None = None
    text_response: str | None = None
    resumable: bool = False
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As `ended` tells it."""
        return {
            "reason": self.reason,
            "closingMessage": self.closing_message,
            "textResponse": self.text_response,
            "resumable": self.resumable,
            "message": self.message,
        }


def taken_over() -> Ending:
    """The session continues elsewhere, so this conversation is over."""
    return Ending(reason="taken_over", message="The conversation continues in another connection.")


class VoiceListener(Protocol):
    """Receives everything for the host. It queues what it gets: nobody waits for it, and it raises nothing."""

    def tell(self, type: str, data: Mapping[str, Any]) -> None: ...

    def play(self, sound: Sound) -> None: ...


class SpokenConversation(Protocol):
    """A spoken conversation, as its host uses it. `VoiceAgent.begin` gives one."""

    ending: asyncio.Future[Ending]
    """Done when the conversation is over; the listener got `ended` before."""

    @property
    def session(self) -> Session:
        """The session that speaks."""
        ...

    @property
    def is_over(self) -> bool: ...

    @property
    def input_rates(self) -> tuple[int, ...]:
        """The rates that `hear` takes, the best first; none if the model does not hear."""
        ...

    @property
    def output_rate(self) -> int:
        """The rate of every `Sound`; 0 if the model does not speak."""
        ...

    @property
    def sound_dropped(self) -> int:
        """Pieces of the model's sound that were lost between the provider and the host."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the host's `ready` says: `sessionId`, `turn`, `mode`, `model`, `provider`, `offline`, `language`, `audio`."""
        ...

    def hear(self, pcm: bytes, rate: int) -> bool:
        """The user's audio. False: older audio was dropped, or it is not taken now. Never waits, never raises."""
        ...

    async def say(self, text: str, *, id: str, spoken: bool = False) -> None:
        """Words that the user typed, or that the client recognised. The same id again is the same input."""
        ...

    def speech(self, state: SpeechState, ago_seconds: float = 0.0) -> None:
        """The client's own detection of the user's voice; it may find out some time later that it has begun."""
        ...

    def played(self, item: int, ms: int, done: bool = False) -> None:
        """How much of the item the client has played; `done`: it will play no more of it."""
        ...

    def sound_lost(self, item: int | None) -> None:
        """Some of this item did not reach the client; None: some of all that it has not played yet.

        The client dropped it, fell behind, or is another one. Lost sound never counts as heard.
        """
        ...

    def spoken(self, id: str, completed: bool) -> None:
        """The client's voice has spoken a `speak`, or was cut off in it."""
        ...

    async def interrupt(self) -> None:
        """The user pressed stop."""
        ...

    async def take_newest_tools(self) -> None:
        """The session continues with the tools as they are now, between two turns; returns when it does, or when it is over.

        `StoreUnavailable` if that cannot be stored.
        """
        ...

    def take(self, event: SessionEvent) -> bool:
        """Something that the session reports; the listener hears of it in turn.

        True: the conversation delivers this envelope to the model, and nobody else may.
        """
        ...

    def adapt(self, abilities: Abilities, *, resumed: bool = False) -> None:
        """A client is on the line, with abilities of its own. `resumed`: the same that was on it before."""
        ...

    async def end(self, reason: str = "user_requested") -> None:
        """The user leaves voice: the session goes back to text mode."""
        ...

    async def close(self) -> None:
        """Let go. The session stays in voice mode, and a conversation can begin in it again."""
        ...
