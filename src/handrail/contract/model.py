"""The model port: what an agent asks a model for, and the stream that it gets back. Every provider's client implements it.

A request is neutral: system text, messages, and the tools in the provider's own schema format. A stream is text deltas and
calls in the order in which the model made them, usage, and exactly one `Finished` at its end. Closing the stream early
(`aclose`) cancels the request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from handrail.contract.call import Call, IdScope
from handrail.contract.errors import HandrailError


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user wrote."""

    text: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model answered: text, calls, and the provider's own form of the turn, sent back verbatim where it matters."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    raw: Any = None


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The envelope that a call ended in."""

    call_id: str | None
    name: str
    envelope: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HostMessage:
    """Something that the host tells the model outside of any call, such as a late envelope. Never the user's words."""

    text: str


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage | HostMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One round: what the model is given."""

    system: str
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    """Declarations in the format of `Model.provider`, as `Snapshot.provider_schemas` gives them."""
    allow_calls: bool = True
    """False in the last round: the model must answer with what it has."""
    max_output_tokens: int | None = None
    session: Mapping[str, Any] = field(default_factory=dict)
    """Facts that a local model may use: `mode`, `now` (ISO date-time), `time_zone`, `user`."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallMade:
    """The model asks for a call; its arguments are complete."""

    call: Call


@dataclass(frozen=True, slots=True)
class Usage:
    """What the round cost, in tokens."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a stream. `length` means that it was cut: calls that were not complete are not among those told. After a
    `refusal`, the provider's filter included, no call is run."""

    reason: Literal["stop", "calls", "length", "refusal"]
    raw: Any = None
    """The provider's own form of the assistant's turn, for `AssistantMessage.raw`."""
    suggestions: tuple[str, ...] = ()
    """What the user may say next. A client may show each as a button that says it."""


ModelEvent: TypeAlias = TextDelta | CallMade | Usage | Finished


class ModelError(HandrailError):
    """The model could not be asked, or stopped in the middle. `retryable` says whether asking again may help.

    Its sentence may be shown to anybody who talks to the model. `detail` is the same with what only those may know who run it
    and can mend it: addresses, settings, the provider's own words. `misconfigured`: only they can mend it, such as a wrong key.
    """

    def __init__(self, message: str, *, retryable: bool = False, detail: str = "", misconfigured: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.detail = detail or message
        self.misconfigured = misconfigured


class Model(Protocol):
    """A model behind a provider, on this machine, or the demo model."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str:
        """Whose schema format `ModelRequest.tools` has: the name of a provider."""
        ...

    @property
    def id_scope(self) -> IdScope:
        """For how long the provider keeps a call's id the same."""
        ...

    @property
    def context_window(self) -> int | None:
        """Tokens that fit into one request; None if not known."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model. `ModelError` if it cannot be asked; closing the generator cancels the request."""
        ...

    async def close(self) -> None: ...
