"""The turns of a spoken conversation: a committed input begins one, the runtime numbers it, and the client hears when it is done.

A turn is known here at once and stored in its order; its calls wait for that. What the model says between two turns belongs to
the next one if it is still being said when that begins. Otherwise it belongs to the last one, which is then done once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from handrail.agents.events import cited_by
from handrail.agents.voice.host_port import Latency
from handrail.agents.voice.state.events_and_effects import EffectQueue, EndTurn, StoreTurn
from handrail.agents.voice.state.playback import SpokenItem
from handrail.agents.voice.state.session_port import SessionPort
from handrail.agents.voice.transcript import VoiceTranscript

_MAX_ITEMS = 200


class VoiceTurn:
    """One turn, and where its time went."""

    __slots__ = (
        "answered_at",
        "committed_at",
        "done",
        "evidence",
        "filled",
        "input_id",
        "interrupted",
        "items",
        "number",
        "reported",
        "rounds",
        "sound_ms",
        "spoke_until",
        "tools_seconds",
        "words",
        "words_at",
    )

    def __init__(self, input_id: str, words: str, committed_at: float, spoke_until: float | None) -> None:
        self.input_id = input_id
        self.words = words
        self.number = 0
        """As the runtime counts; 0 until it is stored."""
        self.spoke_until = spoke_until
        """When the user stopped speaking; None if they typed."""
        self.committed_at = committed_at
        self.words_at: float | None = committed_at if words else None
        self.answered_at: float | None = None
        """When the model's first words or sound came."""
        self.tools_seconds = 0.0
        self.sound_ms = 0
        self.rounds = 0
        self.items: list[SpokenItem] = []
        self.evidence: dict[str, dict[str, Any]] = {}
        self.filled = False
        """A filler was spoken in it."""
        self.reported = 0
        """So many items had been said when it was told as done."""
        self.done = False
        self.interrupted = False

    @property
    def has_output(self) -> bool:
        return bool(self.items or self.rounds)

    @property
    def text(self) -> str:
        said = [item.heard_text() if item.cut else item.text for item in self.items]
        return "\n\n".join(text.strip() for text in said if text.strip())

    def note_answer(self, now: float) -> None:
        if self.answered_at is None:
            self.answered_at = now

    def report(self) -> dict[str, Any]:
        """As `turn_done` has it."""
        text = self.text
        return {
            "turn": self.number,
            "inputId": self.input_id,
            "input": self.words,
            "text": text,
            "citations": cited_by(text, self.evidence.values()),
            "interrupted": self.interrupted,
            "latency": self.latency().to_dict(),
        }

    def latency(self) -> Latency:
        hearing = model = None
        if self.spoke_until is not None:
            known = self.words_at if self.words_at is not None else self.committed_at
            # Words that come after the answer has begun kept nobody waiting.
            known = min(known, self.answered_at) if self.answered_at is not None else known
            hearing = _ms(max(0.0, max(known, self.committed_at) - self.spoke_until))
        if self.answered_at is not None:
            model = _ms(max(0.0, self.answered_at - self.committed_at - self.tools_seconds))
        tools = _ms(self.tools_seconds) if self.rounds else None
        return Latency(hearing=hearing, model=model, tools=tools, speaking=self.sound_ms or None)


class VoiceTurns:
    """Begins and ends them."""

    def __init__(self, effects: EffectQueue, session: SessionPort, transcript: VoiceTranscript) -> None:
        self._effects = effects
        self._session = session
        self._transcript = transcript
        self._inputs = 0
        self.current: VoiceTurn | None = None

    @property
    def is_open(self) -> bool:
        """Whether the model still has to answer the last input."""
        return self.current is not None and not self.current.done

    def next_input_id(self) -> str:
        """An id for an input that has none of its own: unique in the session, because connections are numbered."""
        self._inputs += 1
        return f"voice:{self._session.connection}.{self._inputs}"

    def begin(
        self, input_id: str, words: str, open_item: SpokenItem | None, *, spoke_until: float | None = None
    ) -> VoiceTurn:
        """The user's input was committed. `open_item` is what the model is saying."""
        if self.is_open:
            self.finish(interrupted=True)
        before = self.current
        turn = self.current = VoiceTurn(input_id, words, self._effects.now, spoke_until)
        # The answer may begin before the provider reports that the input is committed.
        if open_item is not None and open_item.turn is None:
            _claim(open_item, turn)
        self._transcript.begin(input_id, words)
        self._effects.add(StoreTurn(turn, before))
        return turn

    def stored(self, turn: VoiceTurn, number: int, before: VoiceTurn | None) -> None:
        """The runtime has numbered it."""
        if before is not None:  # it was reported as done before this step, and will not be again
            before.items, before.evidence = [], {}
        turn.number = number

    def heard(self, turn: VoiceTurn, words: str) -> None:
        """The words of a turn are known, or more of them."""
        turn.words = words
        turn.words_at = turn.words_at or self._effects.now
        self._transcript.heard(turn.input_id, words)

    def output(self, item: SpokenItem) -> None:
        """The model says something: in the turn that waits for it, or in none that is known yet."""
        turn = self.current
        if item.turn is None and turn is not None and not turn.done:
            _claim(item, turn)
        if item.turn is not None:
            item.turn.note_answer(self._effects.now)

    def ended(self, unclaimed: Iterable[SpokenItem]) -> None:
        """The model has said all that it has to say: words of no turn go to the last one, which is done, or done again."""
        turn = self.current
        if turn is None:
            return
        for item in unclaimed:
            _claim(item, turn)
        self.finish(interrupted=False)

    def finish(self, *, interrupted: bool) -> None:
        turn = self.current
        if turn is None or (turn.done and len(turn.items) == turn.reported):
            return
        turn.done, turn.reported = True, len(turn.items)
        turn.interrupted = turn.interrupted or interrupted
        self._effects.add(EndTurn(turn))


def _claim(item: SpokenItem, turn: VoiceTurn) -> None:
    item.turn = turn
    if len(turn.items) < _MAX_ITEMS:
        turn.items.append(item)
    turn.note_answer(item.began)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
