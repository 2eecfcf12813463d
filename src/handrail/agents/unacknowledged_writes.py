"""Writing calls that a model makes again because it cannot know what became of the first.

The ledger finds a call that is made again on a new connection in the same turn. It cannot find one of a later turn, because its
key holds the turn: two turns may well ask for the same thing twice. But a model that lost its connection in mid-call, or was
interrupted in it, has not heard the outcome. A call of the same tool with the same arguments is then the same wish. It gets the
outcome of the first, until the model has been told that outcome and has ended an answer since. The ledger's own rule says which
arguments are the same: validated, with their defaults, clamped, and by the tool's `dedupeFields` if it has them.

The `Conversation` keeps these writes, because another model may make the call again: voice that begins anew, the text agent, or
either in the next process. The ledger knows what became of a call of a process that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, JsonError
from handrail.contract.frozen import thaw
from handrail.contract.store import LedgerState
from handrail.runtime.envelopes import unknown_answer
from handrail.runtime.known_calls import KnownCall, id_key, known_by_id
from handrail.runtime.ledger_lookup import settle_from_row
from handrail.runtime.session import Session
from handrail.schema.strict_json import read_arguments

_MAX_KEPT = 200


@dataclass(slots=True, eq=False)
class UnacknowledgedWrite:
    """A writing call, from its making until the model has been told its outcome."""

    call: Call
    key: tuple[str, str]
    """The tool and what its arguments are compared by, as it was when the call was made."""
    turn: int
    connection: int
    """The model's connection that it was made on; 0: one of a conversation that is over."""
    name: str | None
    """What the runtime knows it by; None if its provider gives no ids."""
    lost: bool = False
    """The model may not remember that it made it: it was taken back, or its connection is gone."""
    outcome: Mapping[str, Any] | None = None
    ended: asyncio.Event | None = field(default_factory=asyncio.Event)
    """Set when the outcome is there; None for a call of a process that is gone."""
    told_turn: int | None = None
    """The turn in which its outcome was sent to the model."""
    answered: bool = False
    """The model has ended an answer since."""


class UnacknowledgedWrites:
    """The writing calls of one session whose outcome the model may not know."""

    def __init__(self) -> None:
        self.writes: list[UnacknowledgedWrite] = []

    def made(
        self, session: Session, call: Call, turn: int, connection: int, *, newest: int
    ) -> UnacknowledgedWrite | None:
        """A call is about to run that was made on this connection of the model; None if it does not write, or cannot be read.

        If another is the `newest`, it came while the call waited, and `connected` could not know of this call.
        """
        key = _key(session, call)
        if key is None:
            return None
        name = id_key(call, call.connection or session.connection)
        first = UnacknowledgedWrite(call, key, turn, connection, name, lost=connection != newest)
        self.writes = [*self.writes[-_MAX_KEPT:], first]
        return first

    def is_made_since(self, first: UnacknowledgedWrite | None) -> bool:
        """Whether the model has made the same call on a later connection, where it is carried out."""
        return first is not None and any(
            one.key == first.key and one.connection > first.connection for one in self.writes
        )

    def moved(self, session: Session, firsts: Sequence[UnacknowledgedWrite]) -> None:
        """Calls that are about to run on another connection than the one that they were made for."""
        for first in firsts:
            first.name = id_key(first.call, session.connection)

    def known(self, session: Session, call: Call, turn: int) -> UnacknowledgedWrite | None:
        """The call that this one repeats without knowing it; None if it is to be run."""
        key = _key(session, call) if self.writes else None
        if key is None:
            return None
        for first in reversed(self.writes):
            if first.lost and not _can_know(first, turn) and _is_same(session, first, key):
                return first if first.outcome is None or _counts(first.outcome) else None
        return None

    def reacted(self) -> None:
        """The model continues after outcomes that it waited for: it knows them."""
        if self.writes:
            self.writes = [first for first in self.writes if first.told_turn is None or first.lost]

    def answered(self) -> None:
        """The model has ended an answer, and so has had time for what it was told before."""
        for first in self.writes:
            first.answered = first.told_turn is not None

    def interrupted(self, ids: Collection[str] | None = None) -> None:
        """The user interrupted, and with that took back what is not answered; or only calls with these ids."""
        for first in self.writes:
            if ids is None or first.call.call_id in ids:
                first.lost = first.lost or first.told_turn is None

    def connected(self, connection: int, turn: int, restored: Collection[str]) -> None:
        """A new connection. What was sent on the last one and not reacted to is sent again there, now."""
        for first in self.writes:
            remembered = first.connection > 0 and first.call.call_id in restored
            first.lost = not remembered and (first.lost or first.connection != connection)
            if first.told_turn is not None:
                first.told_turn, first.answered = turn, False

    def left(self) -> None:
        """The conversation with the model is over. Whoever continues may make again what this one did not answer for."""
        self.writes = [first for first in self.writes if not first.answered]
        for first in self.writes:
            first.connection, first.lost, first.told_turn = 0, True, None

    def taken_up(self, turn: int) -> None:
        """A model continues that was given the conversation, and with it the outcomes that are known."""
        for first in self.writes:
            if first.outcome is not None and first.told_turn is None:
                first.told_turn, first.answered = turn, False

    def mark_late_delivered(self, call_id: str | None, turn: int) -> None:
        """A model was told the outcome of a call that another conversation had made. One without an id may be any."""
        for first in self.writes:
            if first.connection == 0 and call_id is not None and first.call.call_id == call_id:
                first.told_turn, first.answered = turn, False

    async def settle(self, seconds: float) -> None:
        """Wait until nothing runs here any more, for at most these seconds."""
        running = [first.ended for first in self.writes if first.ended is not None and first.outcome is None]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for ended in running:
                    await ended.wait()

    async def look_up(self, session: Session) -> list[tuple[Call, Mapping[str, Any]]]:
        """Ask the ledger what became of calls of a process that is gone; those whose outcome is known now."""
        found = []
        for first in [one for one in self.writes if one.ended is None and one.outcome is None]:
            first.outcome = await _recorded(session, first)
            if first.outcome is not None:
                found.append((first.call, first.outcome))
        return found

    async def call_many(
        self, session: Session, calls: Sequence[Call], repeats: Sequence[UnacknowledgedWrite | None]
    ) -> list[ToolResponse]:
        """The calls of one message, through the pipeline; one that repeats another (as `known` said) gets that one's outcome."""
        fresh = [call for call, repeated in zip(calls, repeats, strict=True) if repeated is None]
        outcome_sent = [
            _outcome_of(session, repeated, call)
            for call, repeated in zip(calls, repeats, strict=True)
            if repeated is not None
        ]
        made, *known = await asyncio.gather(session.call_many(fresh), *outcome_sent)
        answers, outcomes = iter(made), iter(known)
        return [next(answers if repeated is None else outcomes) for repeated in repeats]

    # ------------------------------------------------------------------------------------------------------- kept
    def to_list(self) -> list[dict[str, Any]]:
        """Everything, as JSON."""
        kept = []
        for first in self.writes:
            call = first.call
            # The model knows it, and would only make it again knowingly.
            if first.answered:
                continue
            try:
                args = read_arguments(call.args)[1].decode()
            except JsonError:
                args = str(call.args)  # mended by the pipeline, which mends them again
            outcome = thaw(first.outcome) if first.outcome is not None else None
            named = {"name": call.name, "callId": call.call_id, "provider": call.provider, "tool": first.key[0]}
            compared = {"args": args, "digest": first.key[1], "turn": first.turn, "key": first.name}
            kept.append({**named, **compared, "outcome": outcome})
        return kept

    @classmethod
    def from_list(cls, data: Sequence[Mapping[str, Any]]) -> UnacknowledgedWrites:
        """As it was kept, by a process that is gone."""
        made = cls()
        made.writes = [_from_dict(one) for one in data[-_MAX_KEPT:]]
        return made


def _can_know(first: UnacknowledgedWrite, turn: int) -> bool:
    """A call that is made in the first answer after it was told may have been made before it was heard of."""
    return first.told_turn is not None and first.told_turn < turn and first.answered


async def _outcome_of(session: Session, first: UnacknowledgedWrite, call: Call) -> ToolResponse:
    """The first call's envelope for the one that repeats it; that it still runs, if it takes too long."""
    fields = {"callId": call.call_id, "toolId": call.name, "duplicateOf": first.call.call_id}
    core = session.core
    core.trail.note(
        "replay", session, {**core.trail.who(session), **fields, "reason": "outcome not known to the model"}
    )
    if first.outcome is None and first.ended is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(session.limits.wait_seconds):
                await first.ended.wait()
    if first.outcome is None:
        message = f'"{call.name}" is still running from an earlier request.'
        error = {"type": ErrorType.IN_PROGRESS.value, "message": message, "retryable": True}
        full = {**error, "partialSideEffects": False, "retryAfter": 1.0}
        return ToolResponse.from_dict({"ok": False, "error": full, "intents": [], "meta": {"toolId": call.name}})
    if first.connection == 0 and first.told_turn is None:
        first.told_turn = session.turn.number if session.turn is not None else 0
    meta = {**first.outcome.get("meta", {}), "replayed": True, "duplicateOf": first.call.call_id}
    return ToolResponse.from_dict({**thaw(first.outcome), "intents": [], "meta": meta})


async def _recorded(session: Session, first: UnacknowledgedWrite) -> Mapping[str, Any] | None:
    """What the ledger says of a call; None while it runs, which a process may do that lives on beside this one."""
    if first.name is None:
        # Without an id the ledger cannot be asked for it: it may have run.
        return unknown_answer(first.key[0], {"toolId": first.key[0]}).to_dict()
    entry = await known_by_id(session, first.name)
    row = await session.core.store.ledger_row(entry.ledger_key) if entry is not None and entry.ledger_key else None
    if row is None:
        # A write is claimed in the ledger before its handler runs: without a row nothing has run.
        return _not_started(first.call)
    if row.state is LedgerState.RUNNING:
        return None
    found = KnownCall(row.tool, b"")
    settle_from_row(found, row)
    return found.replay().to_dict()


def _not_started(call: Call) -> dict[str, Any]:
    message = f'"{call.name}" was not started: the server stopped before.'
    error = {"type": ErrorType.CANCELLED.value, "message": message, "retryable": True, "partialSideEffects": False}
    return {"ok": False, "error": error, "intents": [], "meta": {"toolId": call.name}}


def _counts(envelope: Mapping[str, Any]) -> bool:
    """Whether an outcome answers for good: it happened, or may have."""
    error = envelope.get("error")
    return error is None or bool(error.get("partialSideEffects"))


def writes(session: Session, call: Call) -> bool:
    """Whether the tool that is called writes."""
    plan = session.plans[call.name] if isinstance(call.name, str) else None
    return plan is not None and plan.writes


def _key(session: Session, call: Call) -> tuple[str, str] | None:
    """The tool and what its arguments are compared by: as the ledger does, and as they came only where they are refused."""
    plan = session.plans[call.name] if isinstance(call.name, str) else None
    if plan is None or not plan.writes:
        return None
    digest = session.core.pipeline.digest(session, plan, call)
    if digest is not None:
        return plan.tool_id, digest
    try:
        return plan.tool_id, read_arguments(call.args)[1].decode()
    except JsonError:
        return None


def _is_same(session: Session, first: UnacknowledgedWrite, key: tuple[str, str]) -> bool:
    """Compared as the first was when it was made, and as it would be now: another mode clamps otherwise."""
    return first.key == key or (first.key[0] == key[0] and _key(session, first.call) == key)


def _from_dict(data: Mapping[str, Any]) -> UnacknowledgedWrite:
    call = Call(str(data["name"]), str(data["args"]), data["callId"], data["provider"])
    key = str(data["tool"]), str(data.get("digest", ""))
    first = UnacknowledgedWrite(call, key, int(data["turn"]), 0, data["key"])
    first.lost, first.ended, first.outcome = True, None, data["outcome"]
    return first
