"""The turns of a spoken conversation and the calls that the model makes in them. Pure.

A committed input begins a turn, the runtime numbers it, and the client hears when it is done. A turn is known here at once and
stored in its order; its calls wait for that. What the model says between two turns belongs to the next one if it is still being
said when that begins. Otherwise it belongs to the last one, which is then done once more. Of the calls it is known which run,
whom they belong to, and who took them back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from handrail.agents.conversation import UNHEARD, Conversation
from handrail.agents.events import citations_in, cited_by
from handrail.agents.unacknowledged_writes import UnacknowledgedWrites
from handrail.agents.voice.state.events_and_effects import EffectQueue, EndTurn, StoreTurn
from handrail.agents.voice.state.session_port import SessionPort
from handrail.agents.voice.state.speech_output import SpokenItem
from handrail.contract.call import Call
from handrail.contract.errors import ErrorType
from handrail.contract.live import Answer
from handrail.contract.model import ToolMessage, UserMessage

_MAX_ITEMS = 200
_RUNAWAY = 4
"""A turn with this many times the rounds that it may have ends the conversation."""


@dataclass(slots=True, eq=False)
class VoiceTurn:
    """One turn, and where its time went."""

    input_id: str
    words: str
    committed_at: float
    spoke_until: float | None
    """When the user stopped speaking; None if they typed."""
    words_at: float | None = None
    number: int = 0
    """As the runtime counts; 0 until it is stored."""
    answered_at: float | None = None
    """When the model's first words or sound came."""
    tools_seconds: float = 0.0
    sound_ms: int = 0
    rounds: int = 0
    items: list[SpokenItem] = field(default_factory=list)
    evidence: dict[str, dict[str, Any]] = field(default_factory=dict)
    filled: bool = False
    """A filler was spoken in it."""
    reported: int = 0
    """How many items had been said when it was reported as done."""
    done: bool = False
    interrupted: bool = False

    @property
    def has_output(self) -> bool:
        return bool(self.items or self.rounds)

    def claim(self, item: SpokenItem) -> None:
        """What is said in the item belongs to this turn."""
        item.turn = self
        if len(self.items) < _MAX_ITEMS:
            self.items.append(item)
        if self.answered_at is None:
            self.answered_at = item.began

    def report(self) -> dict[str, Any]:
        """As `turn_done` has it."""
        said = [item.heard_text() if item.cut else item.text for item in self.items]
        text = "\n\n".join(part.strip() for part in said if part.strip())
        hearing = model = None
        if self.spoke_until is not None:
            known = self.words_at if self.words_at is not None else self.committed_at
            # Words that come after the answer has begun kept nobody waiting.
            known = min(known, self.answered_at) if self.answered_at is not None else known
            hearing = round(1000 * max(0.0, max(known, self.committed_at) - self.spoke_until))
        if self.answered_at is not None:
            model = round(1000 * max(0.0, self.answered_at - self.committed_at - self.tools_seconds))
        return {
            "turn": self.number,
            "inputId": self.input_id,
            "input": self.words,
            "text": text,
            "citations": cited_by(text, self.evidence.values()) if self.evidence else [],
            "interrupted": self.interrupted,
            "latency": {
                "hearingMs": hearing,
                "modelMs": model,
                "toolsMs": round(1000 * self.tools_seconds) if self.rounds else None,
                "speakingMs": self.sound_ms or None,
            },
        }


class VoiceTurns:
    """Begins and ends them."""

    def __init__(self, effects: EffectQueue, session: SessionPort, conversation: Conversation) -> None:
        self._effects = effects
        self._conversation = conversation
        self.connection = session.connection
        """The session's, that the model is attached to."""
        self._inputs = 0
        self.current: VoiceTurn | None = None

    def next_input_id(self) -> str:
        """An id for an input that has none of its own: unique in the session, because connections are numbered."""
        self._inputs += 1
        return f"voice:{self.connection}.{self._inputs}"

    def begin(
        self, input_id: str, words: str, open_item: SpokenItem | None, *, spoke_until: float | None = None
    ) -> VoiceTurn:
        """The user's input was committed. `open_item` is what the model is saying."""
        before, now = self.current, self._effects.now
        if before is not None and not before.done:
            self.finish(interrupted=True)
        turn = self.current = VoiceTurn(input_id, words, now, spoke_until, words_at=now if words else None)
        # The answer may begin before the provider reports that the input is committed.
        if open_item is not None and open_item.turn is None:
            turn.claim(open_item)
        self._conversation.begin(words or UNHEARD, input_id)
        self._effects.append(StoreTurn(turn, before))
        return turn

    def heard(self, turn: VoiceTurn, words: str) -> None:
        """The words of a turn are known, or more of them."""
        turn.words = words
        turn.words_at = turn.words_at or self._effects.now
        conversation = self._conversation
        place = conversation.inputs.get(turn.input_id)
        if place is not None:
            conversation.messages[place] = UserMessage(words)

    def finish(self, *, interrupted: bool, unclaimed: list[SpokenItem] | None = None) -> None:
        """The model has said all that it has to say, or the user cut it off: the turn is done, or done once more.

        Words of no turn (`unclaimed`) go to the last one.
        """
        turn = self.current
        if turn is None:
            return
        if unclaimed:
            for item in unclaimed:
                if item.turn is None:
                    turn.claim(item)
            unclaimed.clear()
        if turn.done and len(turn.items) == turn.reported:
            return
        turn.done, turn.reported = True, len(turn.items)
        turn.interrupted = turn.interrupted or interrupted
        self._effects.append(EndTurn(turn))


@dataclass(slots=True, eq=False)
class CallBatch:
    """The calls of one message."""

    calls: tuple[Call, ...]
    placeholders: tuple[ToolMessage, ...]
    """What stands in the conversation in the place of the envelopes."""
    turn: VoiceTurn | None
    connection: int
    """The model's connection that made them."""
    number: int
    """Which message with calls of its turn it is."""
    interrupted: bool = False

    def attach(self, connection: int) -> bool:
        """The session's connection that the calls are made on; whether it is another than before."""
        is_new = any(call.connection != connection for call in self.calls)
        self.calls = tuple(call._replace(connection=connection) for call in self.calls)
        return is_new


class CallBatches:
    """The calls of one conversation."""

    def __init__(self, conversation: Conversation, writes: Callable[[Call], bool], *, max_rounds: int) -> None:
        self._writes = writes
        self._conversation = conversation
        self._unacknowledged: UnacknowledgedWrites = conversation.unacknowledged
        self.max_rounds = max_rounds
        """Messages with calls in one turn, those after late results included."""
        self.running: list[CallBatch] = []
        self.busy_since = 0.0
        """Since when calls run."""
        self._turn: VoiceTurn | None = None
        self._rounds = 0
        """Messages with calls in that turn."""

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

    def ended(self, batch: CallBatch, answers: Sequence[Answer], now: float) -> None:
        """The envelopes are there: they take their places in the conversation."""
        if batch in self.running:
            self.running.remove(batch)
        # Once for calls that run beside each other: what counts is how long somebody waited.
        if not self.running and batch.turn is not None:
            batch.turn.tools_seconds += now - self.busy_since
        for placeholder, answer in zip(batch.placeholders, answers, strict=True):
            self._conversation.replace(placeholder, ToolMessage(placeholder.call_id, placeholder.name, answer.envelope))
            if batch.turn is not None:
                for cited in citations_in(answer.envelope.get("data")):
                    batch.turn.evidence.setdefault(cited["id"], {**cited, "toolId": answer.call.name})

    def interrupt(self) -> bool:
        """The user interrupted; whether anything runs that could be stopped."""
        for batch in self.running:
            batch.interrupted = True
        if self._unacknowledged.writes:
            self._unacknowledged.interrupted()
        return bool(self.running)

    def are_all_that_runs(self, ids: Collection[str]) -> bool:
        """Whether these calls are all that runs, or cannot be stopped alone: one that waits in a message behind others."""
        for batch in self.running:
            named = [call for call in batch.calls if call.call_id in ids]
            # Calls that write run one after the other, so one that has not begun is stopped only with all of them.
            if len(batch.calls) > 1 and any(self._writes(call) for call in named):
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
