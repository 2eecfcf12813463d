"""Scripted models: they play a conversation without any provider, so that policy and agents can be tested in a few lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from handrail.contract.call import Call, IdScope
from handrail.contract.envelope import ToolResponse
from handrail.contract.model import CallMade, Finished, ModelError, ModelEvent, ModelRequest, TextDelta, Usage
from handrail.runtime.session import Session


@dataclass
class ScriptedModel:
    """A list of turns, each a list of messages, each a list of calls; `answers` collects every envelope that came back."""

    turns: Iterable[Sequence[Sequence[Call]]]
    answers: list[list[ToolResponse]] = field(default_factory=list)

    async def play(self, session: Session) -> list[list[ToolResponse]]:
        """Play every turn in the session; the envelopes per turn."""
        for number, messages in enumerate(self.turns, 1):
            await session.begin_turn(f"scripted-{number}")
            envelopes: list[ToolResponse] = []
            for calls in messages:
                envelopes += await session.call_many(list(calls))
            await session.end_turn()
            self.answers.append(envelopes)
        return self.answers


Said: TypeAlias = str | Call | ModelEvent | Exception | Callable[[], Awaitable[object]]
"""A piece of the answer, a call, any event of a stream, an error to raise, or something to wait for."""


@dataclass
class PlayedModel:
    """A model for agents: each time it is asked, it says the next of `answers`. `requests` collects what it was asked.

    An answer is a list of what it says in order; a `Finished` is added where none is given, unless an error ends it.
    """

    answers: Iterable[Sequence[Said]]
    name: str = "played"
    provider: str = "openai-chat"
    id_scope: IdScope = "session"
    context_window: int | None = None
    requests: list[ModelRequest] = field(default_factory=list)
    closed: int = 0
    """How many streams were closed before their end."""

    def __post_init__(self) -> None:
        self._left = iter(self.answers)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        answer = next(self._left, None)
        if answer is None:
            raise ModelError("The script has no further answer.")
        try:
            async for event in self._events(answer):
                yield event
        except GeneratorExit:
            self.closed += 1
            raise

    async def _events(self, answer: Sequence[Said]) -> AsyncGenerator[ModelEvent, None]:
        for said in answer:
            if isinstance(said, str):
                yield TextDelta(said)
            elif isinstance(said, Call):
                yield CallMade(said)
            elif isinstance(said, Exception):
                raise said
            elif isinstance(said, (TextDelta, CallMade, Usage, Finished)):
                yield said
            else:
                await said()
        if not any(isinstance(said, Finished) for said in answer):
            called = any(isinstance(said, (Call, CallMade)) for said in answer)
            yield Finished("calls" if called else "stop")

    async def close(self) -> None:
        """Nothing is open."""
