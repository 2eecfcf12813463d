"""Writing calls that a model makes again because it cannot know what became of the first.

The ledger finds a call that is made again on a new connection in the same turn. It cannot find one of a later turn, because its
key holds the turn: two turns may well ask for the same thing twice. But a model that lost its connection in mid-call, or was
interrupted in it, has not heard the outcome, and a call of the same tool with the same arguments is then the same wish. Until
it has been told, and has ended an answer since, such a call is answered with the outcome of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from handrail.contract.call import Call
from handrail.contract.errors import ErrorType, JsonError
from handrail.runtime.session import Session
from handrail.schema.canonical import canonical
from handrail.schema.strict_json import parse_arguments

_MOST = 200


class First:
    """A writing call, from its making until the model has been told its outcome."""

    __slots__ = ("answered", "call", "connection", "key", "lost", "outcome", "told_turn", "turn")

    def __init__(self, call: Call, key: tuple[str, bytes], turn: int, connection: int) -> None:
        self.call = call
        self.key = key
        self.turn = turn
        self.connection = connection
        """The model's connection that it was made on."""
        self.lost = False
        """The model may not remember that it made it: it was taken back, or its connection is gone."""
        self.outcome: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.told_turn: int | None = None
        """The turn in which its outcome was sent to the model."""
        self.answered = False
        """The model has ended an answer since."""


class Again:
    """The writing calls of one conversation whose outcome the model may not know."""

    def __init__(self) -> None:
        self._firsts: list[First] = []

    def made(self, session: Session, call: Call, turn: int, connection: int) -> First | None:
        """A call is about to run; None if it does not write, or cannot be read."""
        key = _key(session, call)
        if key is None:
            return None
        first = First(call, key, turn, connection)
        self._firsts = [*self._firsts[-_MOST:], first]
        return first

    def known(self, session: Session, call: Call, turn: int) -> First | None:
        """The call that this one repeats without knowing it; None if it is to be run."""
        key = _key(session, call)
        if key is None:
            return None
        for first in reversed(self._firsts):
            if first.key == key and first.lost and not _can_know(first, turn):
                return first if not first.outcome.done() or _counts(first.outcome.result()) else None
        return None

    def settled(self, first: First, envelope: Mapping[str, Any]) -> None:
        if not first.outcome.done():
            first.outcome.set_result(envelope)

    def told(self, first: First, turn: int) -> None:
        """Its outcome was sent to the model in this turn."""
        first.told_turn, first.answered = turn, False

    def reacted(self) -> None:
        """The model goes on after outcomes that it waited for: it knows them."""
        if self._firsts:
            self._firsts = [first for first in self._firsts if first.told_turn is None or first.lost]

    def answered(self) -> None:
        """The model has ended an answer, and so has had time for what it was told before."""
        for first in self._firsts:
            first.answered = first.told_turn is not None

    def interrupted(self) -> None:
        """The user interrupted, and with that took back what is not answered."""
        for first in self._firsts:
            first.lost = first.lost or first.told_turn is None

    def connected(self, connection: int, turn: int, restored: Collection[str]) -> None:
        """A new connection. What was sent on the last one and not reacted to is told again there, now."""
        for first in self._firsts:
            remembered = first.call.call_id in restored
            first.lost = not remembered and (first.lost or first.connection != connection)
            if first.told_turn is not None:
                first.told_turn, first.answered = turn, False


def _can_know(first: First, turn: int) -> bool:
    """A call that is made in the first answer after it was told may have been made before it was heard of."""
    return first.told_turn is not None and first.told_turn < turn and first.answered


async def outcome_of(first: First, call: Call, seconds: float) -> dict[str, Any]:
    """The first call's envelope for the one that repeats it; that it still runs, if it takes too long."""
    done, _ = await asyncio.wait({first.outcome}, timeout=seconds)
    if not done:
        message = f'"{call.name}" is still running from an earlier request.'
        error = {"type": ErrorType.IN_PROGRESS.value, "message": message, "retryable": True}
        full = {**error, "partialSideEffects": False, "retryAfter": 1.0}
        return {"ok": False, "error": full, "intents": [], "meta": {"toolId": call.name}}
    envelope = first.outcome.result()
    meta = {**envelope.get("meta", {}), "replayed": True, "duplicateOf": first.call.call_id}
    return {**envelope, "intents": [], "meta": meta}


def _counts(envelope: Mapping[str, Any]) -> bool:
    """Whether an outcome answers for good: it happened, or may have."""
    error = envelope.get("error")
    return error is None or bool(error.get("partialSideEffects"))


def _key(session: Session, call: Call) -> tuple[str, bytes] | None:
    plan = session.plans.find(call.name) if isinstance(call.name, str) else None
    if plan is None or not plan.writes:
        return None
    try:
        return plan.tool_id, canonical(parse_arguments(call.args))
    except JsonError:
        return None
