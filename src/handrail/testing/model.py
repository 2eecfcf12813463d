"""A scripted model: plays a conversation against a session without any provider, so that policy can be tested in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
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
