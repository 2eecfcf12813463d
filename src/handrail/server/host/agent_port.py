"""What the server needs of an agent: events that come one after the other, and can be broken off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from handrail.agents import Conversation
from handrail.contract.events import LateEnvelope
from handrail.runtime.session import Session


class PortEvent(Protocol):
    """One event of an agent."""

    @property
    def type(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


class PortEvents(Protocol):
    """Events of an agent that can be broken off."""

    def __aiter__(self) -> AsyncIterator[PortEvent]: ...
    async def aclose(self) -> None: ...


class TextAgentPort(Protocol):
    """What the server needs of a text agent. `handrail.agents.TextAgent` is one, made with `listen=False`: the host listens."""

    def run(
        self, session: Session, conversation: Conversation, text: str, *, message_id: str | None = None
    ) -> PortEvents: ...
    def late(self, session: Session, conversation: Conversation, event: LateEnvelope) -> PortEvents: ...
