"""The text agent: one turn is model → calls → pipeline → envelopes → model, until there is an answer.

`TextAgent.run` decides whether a turn takes place at all; `loop.py` plays it. Closing the generator cancels the turn:
reading calls are stopped, a writing one that has started is finished, and the conversation stays one that can go on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import aclosing
from typing import Any

from handrail.agents.conversation import Conversation
from handrail.agents.events import AgentEvent
from handrail.agents.host_words import blocked_words, ended_words, moved_words
from handrail.agents.loop import Loop, hear_late
from handrail.agents.offering import Offering, Picker
from handrail.agents.policy import AgentPolicy
from handrail.agents.prompts import Prompts
from handrail.contract.call import Connection
from handrail.contract.errors import UsageError
from handrail.contract.events import LateEnvelope
from handrail.contract.model import Model
from handrail.runtime.core import RuntimeCore
from handrail.runtime.session import Session

MAX_INPUT_CHARACTERS = 32_000


class TextAgent:
    """One per process: it keeps nothing of a conversation itself.

    `picker(query, definitions, k)` chooses among many tools. With `listen` the agent passes on what the session tells
    while a turn runs (progress, confirmations, messages, late envelopes); a host that listens for itself says False,
    forwards those events, and gives late envelopes to `late`.
    """

    def __init__(
        self,
        runtime: RuntimeCore,
        model: Model,
        *,
        prompts: Prompts | None = None,
        policy: AgentPolicy | None = None,
        picker: Picker | None = None,
        listen: bool = True,
    ) -> None:
        self.runtime = runtime
        self.model = model
        self.policy = policy or AgentPolicy()
        self.prompts = prompts or Prompts.load(guide_tokens=self.policy.guide_tokens)
        self.offering = Offering(self.prompts, self.policy, picker)
        self.listen = listen

    async def run(
        self, session: Session, conversation: Conversation, text: str, *, message_id: str | None = None
    ) -> AsyncGenerator[AgentEvent, None]:
        """One turn. The same `message_id` again keeps its turn: it is answered from the conversation, or gone on with."""
        checked_input(text)
        connection = session.connection  # the message came on it; the session may be resumed while this one waits
        async with conversation.lock:
            words, facts = _no_turn(session, connection)
            if words:
                yield AgentEvent("text", {"text": words})
                yield AgentEvent("done", {**_nothing(words, message_id), **facts})
                return
            turn = await session.begin_turn(message_id, connection=connection)
            begun = _turn_facts(session, turn, message_id)
            answered = conversation.answer_to(message_id)
            if answered is not None:
                yield AgentEvent("turn", {**begun, "replayed": True})
                yield AgentEvent("text", {"text": answered})
                yield AgentEvent("done", {**_nothing(answered, message_id), "turn": turn, "reason": "replayed"})
                return
            yield AgentEvent("turn", begun)
            if conversation.turn_of(message_id):
                conversation.begin_again()
            else:
                conversation.begin(text, message_id)
            rounds = self.policy.rounds
            loop = Loop(self, session, conversation, rounds, connection=connection, message_id=message_id, turn=turn)
            async with aclosing(loop.play()) as played:
                async for event in played:
                    yield event

    def late(self, session: Session, conversation: Conversation, event: LateEnvelope | Mapping[str, Any]) -> LateAnswer:
        """Tell the model what became of a call that had waited, and let it say so. Await it for all events, or iterate."""
        told = event.data if isinstance(event, LateEnvelope) else event
        return LateAnswer(lambda: self._late(session, conversation, told))

    async def _late(
        self, session: Session, conversation: Conversation, told: Mapping[str, Any]
    ) -> AsyncGenerator[AgentEvent, None]:
        connection = session.connection
        async with conversation.lock:
            heard = hear_late(conversation, told)
            for event in heard:
                yield event
            if not heard or told.get("silent") or _no_turn(session, connection)[0]:
                return
            turn = session.turn.number if session.turn is not None else 0
            rounds = self.policy.late_rounds
            loop = Loop(self, session, conversation, rounds, connection=connection, message_id=None, turn=turn)
            async with aclosing(loop.play()) as played:
                async for event in played:
                    yield event


class LateAnswer:
    """The events of a further answer: iterate over them as they come, or await them all."""

    def __init__(self, make: Callable[[], AsyncGenerator[AgentEvent, None]]) -> None:
        self._events = make()

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        return self._events

    def __await__(self) -> Generator[Any, None, list[AgentEvent]]:
        return self._all().__await__()

    async def aclose(self) -> None:
        await self._events.aclose()

    async def _all(self) -> list[AgentEvent]:
        return [event async for event in self._events]


def checked_input(text: object) -> None:
    """`UsageError` in a sentence if this is nothing that a user can say."""
    if not isinstance(text, str) or not text.strip():
        raise UsageError("A message must be text that is not empty.")
    if len(text) > MAX_INPUT_CHARACTERS:
        raise UsageError(f"A message has at most {MAX_INPUT_CHARACTERS:,} characters; this one has {len(text):,}.")
    if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError("A message must be text; this one holds halves of surrogates.")


def _no_turn(session: Session, connection: Connection) -> tuple[str, dict[str, Any]]:
    """The words for somebody who cannot be answered now, and why; none if a turn can begin."""
    if not session.is_active:
        return ended_words(), {"reason": "ended"}
    if not session.is_current(connection):
        return moved_words(), {"reason": "stale"}
    left = session.blocked_for()
    if left > 0:
        return blocked_words(left), {"reason": "blocked", "retryAfter": round(left, 3)}
    return "", {}


def _turn_facts(session: Session, turn: int, message_id: str | None) -> dict[str, Any]:
    named = {"turn": turn, "messageId": message_id, "sessionId": session.id}
    return {**named, "mode": session.mode, "registryVersion": session.snapshot.version}


def _nothing(text: str, message_id: str | None) -> dict[str, Any]:
    """The facts of an answer for which no model was asked."""
    usage = {"inputTokens": 0, "outputTokens": 0}
    return {"text": text, "citations": [], "rounds": 0, "usage": usage, "messageId": message_id}
