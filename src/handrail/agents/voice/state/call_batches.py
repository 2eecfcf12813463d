"""The calls of a spoken conversation as its state has them: which run, whom they belong to, and who took them back. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from handrail.agents.events import citations_in
from handrail.agents.unacknowledged_writes import UnacknowledgedWrites
from handrail.agents.voice.state.session_port import SessionPort
from handrail.agents.voice.state.voice_turns import VoiceTurn
from handrail.agents.voice.transcript import VoiceTranscript
from handrail.contract.call import Call
from handrail.contract.errors import ErrorType
from handrail.contract.live import Answer
from handrail.contract.model import ToolMessage

_RUNAWAY = 4
"""A turn with this many times the rounds that it may have ends the conversation."""


class CallBatch:
    """The calls of one message."""

    __slots__ = ("calls", "connection", "interrupted", "number", "placeholders", "turn")

    def __init__(
        self, calls: Sequence[Call], placeholders: Sequence[ToolMessage], turn: VoiceTurn | None, connection: int
    ) -> None:
        self.calls = tuple(calls)
        self.placeholders = tuple(placeholders)
        """What stands in the conversation in the place of the envelopes."""
        self.turn = turn
        self.connection = connection
        """The model's connection that made them."""
        self.number = turn.rounds if turn is not None else 1
        self.interrupted = False

    def attach(self, connection: int) -> bool:
        """The session's connection that the calls are made on; whether it is another than before."""
        is_new = any(call.connection != connection for call in self.calls)
        self.calls = tuple(call._replace(connection=connection) for call in self.calls)
        return is_new


class CallBatches:
    """The calls of one conversation."""

    def __init__(self, session: SessionPort, transcript: VoiceTranscript, *, max_rounds: int) -> None:
        self._session = session
        self._transcript = transcript
        self._unacknowledged: UnacknowledgedWrites = transcript.conversation.unacknowledged
        self.max_rounds = max_rounds
        """Messages with calls in one turn, those after late results included."""
        self.running: list[CallBatch] = []
        self._busy_since = 0.0
        self._turn: VoiceTurn | None = None
        self._rounds = 0
        """Messages with calls in that turn."""

    @property
    def awaited(self) -> bool:
        """Whether the model waits for an answer before it continues."""
        return any(not batch.interrupted for batch in self.running)

    def count_round(self, turn: VoiceTurn | None) -> bool:
        """The model calls in this turn; whether it still may."""
        if turn is not None:
            turn.rounds += 1
        # Counted here and not only in the turn: a model may call before any turn has begun.
        self._rounds = self._rounds + 1 if turn is self._turn else 1
        self._turn = turn
        return self._rounds <= self.max_rounds

    @property
    def has_just_run_out(self) -> bool:
        """Whether this was the first message with calls too many."""
        return self._rounds == self.max_rounds + 1

    @property
    def runs_away(self) -> bool:
        """Whether the model calls without an end, although no call runs any more."""
        return self._rounds > _RUNAWAY * self.max_rounds

    def add(self, batch: CallBatch, now: float) -> None:
        if not self.running:
            self._busy_since = now
        self.running.append(batch)

    def ended(self, batch: CallBatch, answers: Sequence[Answer], now: float) -> None:
        """The envelopes are there: they take their places in the conversation."""
        if batch in self.running:
            self.running.remove(batch)
        if not self.running and batch.turn is not None:
            batch.turn.tools_seconds += now - self._busy_since
        for placeholder, answer in zip(batch.placeholders, answers, strict=True):
            self._transcript.answer(placeholder, answer.envelope)
            if batch.turn is not None:
                for cited in citations_in(answer.envelope.get("data")):
                    batch.turn.evidence.setdefault(cited["id"], {**cited, "toolId": answer.call.name})

    def interrupt(self) -> bool:
        """The user interrupted; whether anything runs that could be stopped."""
        for batch in self.running:
            batch.interrupted = True
        self._unacknowledged.interrupted()
        return bool(self.running)

    def are_all_that_runs(self, ids: Collection[str]) -> bool:
        """Whether these calls are all that runs, or cannot be stopped alone: one that waits in a message behind others."""
        for batch in self.running:
            named = [call for call in batch.calls if call.call_id in ids]
            # Calls that write run one after the other, so one that has not begun is stopped only with all of them.
            if len(batch.calls) > 1 and any(self._session.writes(call) for call in named):
                return True
        return all(call.call_id in ids for batch in self.running for call in batch.calls)

    def take_back(self, ids: Collection[str]) -> None:
        """The provider takes some calls back. A message of which others are left is still answered aloud."""
        for batch in self.running:
            batch.interrupted = batch.interrupted or all(call.call_id in ids for call in batch.calls)
        self._unacknowledged.interrupted(ids)


def cancelled_call(call: Call) -> dict[str, Any]:
    """The envelope of a call that was interrupted before it started."""
    message = "The call was cancelled before it started, because the user interrupted."
    return _refused(call, ErrorType.CANCELLED, message, doubtful=False)


def too_many_rounds(call: Call, rounds: int) -> dict[str, Any]:
    """The envelope of a call that its turn has no round for."""
    message = f"One turn has at most {rounds} rounds of calls; this call did not run. Wait for the user."
    return _refused(call, ErrorType.BUDGET_EXCEEDED, message, doubtful=False)


def failed_call(call: Call) -> dict[str, Any]:
    """The envelope of a call that broke down in the server."""
    return _refused(call, ErrorType.INTERNAL, "The call broke down; look before you call it again.", doubtful=True)


def _refused(call: Call, kind: ErrorType, message: str, *, doubtful: bool) -> dict[str, Any]:
    error = {"type": kind.value, "message": message, "retryable": not doubtful, "partialSideEffects": doubtful}
    return {"ok": False, "error": error, "intents": [], "meta": {"toolId": call.name}}
