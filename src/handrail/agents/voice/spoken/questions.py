"""Confirmations by voice: which question is open, whether its preview was heard, and what an utterance does to it.

A state machine without a clock and without I/O: `SpokenConfirmation` reports what happened and when, and carries out the steps
that come back. Moments are seconds on one clock. It approves only if all of this holds: the preview was played to its end,
nothing of ours was heard since, the speech began a moment after that, the whole utterance is a plain yes, the question is the
only open one, and its time is not over.

An answer belongs to what was heard last. So whatever of ours sounds after the preview (the model may ask "shall I read you
the menu?") takes the question back: the preview is read again before an answer counts. Everything that repeats is bounded,
and ends on the screen, where the request stays open.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from handrail.agents.voice.spoken.answer_grammar import AnswerVerdict, question, understood
from handrail.agents.voice.spoken.preview_reading import is_speakable, was_read

__all__ = [
    "AcceptAnswers",
    "AnswerMissed",
    "ApproveRequest",
    "ConfirmationQuestions",
    "DeclineRequest",
    "MoveToScreen",
    "QuestionExpired",
    "QuestionStep",
    "ReadPreview",
    "ScreenReason",
]

SECONDS = 60.0
MAX_MISSES = 2
MAX_READINGS_LOST = 2
LONGEST_PREVIEW = 500
"""Characters; what is longer takes most of the minute to read aloud."""
MIN_CONFIDENCE = 0.6
GUARD_SECONDS = 0.3
"""From the end of the preview until an answer counts: nobody answers sooner, and an echo or a late report may."""


class ScreenReason(StrEnum):
    """Why a question goes to the screen."""

    SCREEN_ONLY = "screen_only"
    NO_GRAMMAR = "no_grammar"
    NOT_SPEAKABLE = "not_speakable"
    NOT_UNDERSTOOD = "not_understood"
    NOT_HEARD = "not_heard"
    REVISED = "revised"


@dataclass(frozen=True, slots=True)
class ReadPreview:
    """Have this read to the person, word for word; then `preview_spoken` or `preview_cut`."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class AcceptAnswers:
    """The preview was heard: an answer counts, `GUARD_SECONDS` after its end."""

    id: str


@dataclass(frozen=True, slots=True)
class ApproveRequest:
    id: str
    token: str


@dataclass(frozen=True, slots=True)
class DeclineRequest:
    id: str
    token: str


@dataclass(frozen=True, slots=True)
class MoveToScreen:
    """No longer a spoken question; the request stays open on the screen."""

    id: str
    reason: ScreenReason


@dataclass(frozen=True, slots=True)
class AnswerMissed:
    """What was said was neither a plain yes nor a plain no, for the `count`th time."""

    id: str
    count: int


@dataclass(frozen=True, slots=True)
class QuestionExpired:
    id: str


QuestionStep: TypeAlias = (
    ReadPreview | AcceptAnswers | ApproveRequest | DeclineRequest | MoveToScreen | AnswerMissed | QuestionExpired
)


@dataclass(slots=True)
class _OpenQuestion:
    id: str
    token: str
    tool: str
    preview: str
    deadline: float
    turn: int = 0
    """In which its call was made."""
    is_reading: bool = True
    heard_at: float = math.inf
    """When the preview had been heard to its end; an answer begins after it."""
    spoiled_at: float = math.inf
    """When something of ours sounded after that; an answer has ended before it."""
    misses: int = 0
    lost: int = 0
    """Readings that were cut off, misread, or talked over."""


class ConfirmationQuestions:
    """The spoken confirmations of one conversation. One is open at a time; others wait for it."""

    def __init__(
        self, *, language: str = "en", needs_local: bool = False, min_confidence: float = MIN_CONFIDENCE
    ) -> None:
        """`needs_local`: a yes also has to be one for the local recogniser."""
        self._language = language
        self._needs_local = needs_local
        self._min_confidence = min_confidence
        self._open: _OpenQuestion | None = None
        self._waiting: deque[_OpenQuestion] = deque()
        self._over: dict[str, float] = {}
        """Questions that were answered or went to the screen, until their time is over: told again, they stay there."""
        self._approved: dict[str, str] = {}
        """Those of them that were answered with yes, and the preview that this was said to."""
        self._sound_began = -math.inf
        self._is_sounding = False
        self._speech: float | None = None
        self._now = -math.inf

    @property
    def ids(self) -> list[str]:
        """The question that is being read or asked, and those that wait for it."""
        return [one.id for one in self._all()]

    @property
    def open_id(self) -> str | None:
        """The question that is being read or asked."""
        return self._open.id if self._open else None

    @property
    def is_asking(self) -> bool:
        """Whether an answer would count now."""
        return self._open is not None and not self._open.is_reading and not self._is_sounding

    def is_answer(self, started_at: float, ended_at: float) -> bool:
        """Whether what was said then was said to the open question, be it a miss or in time or not."""
        asked = self._open
        return asked is not None and asked.heard_at + GUARD_SECONDS <= started_at <= ended_at < asked.spoiled_at

    def wanted(
        self,
        request: Mapping[str, Any],
        token: str,
        channel: str,
        now: float,
        *,
        seconds: float = SECONDS,
        turn: int = 0,
        spoke_at: float = -math.inf,
    ) -> list[QuestionStep]:
        """A confirmation is wanted, or wanted again with a fresh token.

        `seconds`: how long it is still open. `turn`: in which its call was made. `spoke_at`: when the person was last heard.
        """
        self._pass(now)
        asked_id, preview = str(request["id"]), str(request["preview"])
        known = next((one for one in self._all() if one.id == asked_id), None)
        if known is not None:
            return self._wanted_again(known, request, preview, token)
        if asked_id in self._over and self._approved.get(asked_id, preview) == preview:
            return []  # else a yes was to what is no longer so, and the person is asked anew
        # A spoken question has its minute at most, however long the request stays open on the screen.
        asked = _OpenQuestion(asked_id, token, str(request.get("tool", "")), preview, now + min(seconds, SECONDS), turn)
        why = self._unspeakable(preview, channel)
        if request.get("replacedBy"):
            why = ScreenReason.REVISED
        if why is not None:
            self._over[asked_id] = asked.deadline
            return [MoveToScreen(asked_id, why)]
        self._over.pop(asked_id, None)
        before = next((one for one in self._all() if self._is_revised(one, asked, spoke_at)), None)
        if before is None:
            self._waiting.append(asked)
            return self._next()
        # It is read in the place of the old one, before whatever else waits.
        place = 0 if before is self._open else self._waiting.index(before)
        self._waiting.insert(place, asked)
        return [MoveToScreen(before.id, ScreenReason.REVISED), *self._close(before)]

    def _is_revised(self, before: _OpenQuestion, asked: _OpenQuestion, spoke_at: float) -> bool:
        """Whether the new call is what the model made of "yes, but at eight": judged, or still to be judged or transcribed."""
        if before.tool != asked.tool:
            return False
        return bool(before.misses) or asked.turn > before.turn or spoke_at > before.heard_at

    def _wanted_again(
        self, known: _OpenQuestion, request: Mapping[str, Any], preview: str, token: str
    ) -> list[QuestionStep]:
        if request.get("replacedBy"):
            return [MoveToScreen(known.id, ScreenReason.REVISED), *self._close(known)]
        # What is being read, or was heard, keeps the token that belongs to it: a yes to it is then found to be out of date.
        if known is not self._open or preview == known.preview:
            known.token, known.preview = token, preview
        return []

    def preview_spoken(self, id: str, transcript: str | None, ended_at: float) -> list[QuestionStep]:
        """The reading was played to its end. `transcript`: the words of a model that read it; None: our exact words."""
        self._pass(ended_at)
        asked = self._reading(id)
        if asked is None:
            return []
        if transcript is not None and not was_read(asked.preview, transcript, language=self._language):
            return self._read_again(asked)
        if ended_at >= asked.deadline:
            return self._expire(asked)
        if self._is_sounding and self._sound_began <= ended_at:
            return self._read_again(asked)  # something else of ours is right behind it, and would be what is answered
        asked.is_reading, asked.heard_at, asked.spoiled_at = False, ended_at, math.inf
        if self._sound_began > ended_at:
            asked.spoiled_at = self._sound_began
            if not self._is_sounding:
                return self._read_again(asked)
        return [AcceptAnswers(id)]

    def preview_cut(self, id: str) -> list[QuestionStep]:
        """The reading was interrupted: it was not heard. It is read once more, then the screen has it."""
        asked = self._reading(id)
        return [] if asked is None else self._read_again(asked)

    def listener_changed(self, now: float) -> list[QuestionStep]:
        """Somebody else may listen now: what was heard to its end was heard elsewhere."""
        self._pass(now)
        asked = self._open
        if asked is None or asked.is_reading:
            return []
        asked.heard_at = math.inf
        return self._read_again(asked)

    def speech(self, started_at: float, now: float) -> list[QuestionStep]:
        """The person began to speak. Where both are reported, the earlier beginning of an utterance counts."""
        self._speech = started_at
        return self.tick(now)

    def heard(
        self,
        text: str,
        started_at: float,
        ended_at: float,
        confidence: float | None,
        *,
        local: AnswerVerdict | None = None,
        went_on: bool = False,
    ) -> list[QuestionStep]:
        """A final utterance of the person. Only one that lies wholly after everything of ours counts, even as a miss.

        `went_on`: more was said than these words, so they are no answer.
        """
        if self._speech is not None and self._speech <= ended_at:
            started_at, self._speech = min(started_at, self._speech), None
        asked = self._open
        if asked is None or not (math.isfinite(started_at) and started_at <= ended_at < math.inf):
            return []
        self._pass(ended_at)
        if ended_at >= asked.deadline:
            return self._expire(asked)
        if not asked.heard_at + GUARD_SECONDS <= started_at <= ended_at < asked.spoiled_at or not text.strip():
            return []
        match AnswerVerdict.MISS if went_on else self._verdict(text, confidence, local):
            case AnswerVerdict.YES:
                self._approved[asked.id] = asked.preview
                return [ApproveRequest(asked.id, asked.token), *self._close(asked)]
            case AnswerVerdict.NO:
                return [DeclineRequest(asked.id, asked.token), *self._close(asked)]
            case AnswerVerdict.MISS:
                return self._miss(asked)

    def our_audio(self, playing: bool, at: float) -> list[QuestionStep]:
        """Something of ours begins or stops to sound at the person's side: the preview, the model's words, a notice."""
        self._pass(at)
        asked = self._open
        if playing:
            if not self._is_sounding:
                self._is_sounding, self._sound_began = True, at
                if asked is not None and at > asked.heard_at:
                    asked.spoiled_at = min(asked.spoiled_at, at)
            return []
        if not self._is_sounding:
            return []
        self._is_sounding = False
        if asked is None or asked.is_reading or at <= asked.heard_at:
            return []
        asked.spoiled_at = min(asked.spoiled_at, max(self._sound_began, asked.heard_at))
        return self._read_again(asked)

    def closed(self, id: str) -> list[QuestionStep]:
        """Answered elsewhere, superseded or gone."""
        asked = next((one for one in self._all() if one.id == id), None)
        return [] if asked is None else self._close(asked)

    def tick(self, now: float) -> list[QuestionStep]:
        """Time has passed."""
        self._pass(now)
        self._over = {one: deadline for one, deadline in self._over.items() if deadline > now}
        self._approved = {one: preview for one, preview in self._approved.items() if one in self._over}
        late = [one for one in (*self._waiting, self._open) if one is not None and now >= one.deadline]
        return [step for one in late for step in self._expire(one)]

    # ------------------------------------------------------------------------------------------------------ inside

    def _pass(self, now: float) -> None:
        if now > self._now:
            self._now = now

    def _all(self) -> Iterator[_OpenQuestion]:
        if self._open is not None:
            yield self._open
        yield from self._waiting

    def _reading(self, id: str) -> _OpenQuestion | None:
        asked = self._open
        return asked if asked is not None and asked.id == id and asked.is_reading else None

    def _unspeakable(self, preview: str, channel: str) -> ScreenReason | None:
        if channel != "any":
            return ScreenReason.SCREEN_ONLY
        if question(self._language) is None:
            return ScreenReason.NO_GRAMMAR
        if len(preview) > LONGEST_PREVIEW or not preview.strip() or not is_speakable(preview):
            return ScreenReason.NOT_SPEAKABLE
        return None

    def _read(self, asked: _OpenQuestion) -> ReadPreview:
        asked.is_reading = True
        return ReadPreview(asked.id, f"{' '.join(asked.preview.split())} {question(self._language)}")

    def _read_again(self, asked: _OpenQuestion) -> list[QuestionStep]:
        asked.lost += 1
        if asked.lost >= MAX_READINGS_LOST:
            return [MoveToScreen(asked.id, ScreenReason.NOT_HEARD), *self._close(asked)]
        return [self._read(asked)]

    def _miss(self, asked: _OpenQuestion) -> list[QuestionStep]:
        asked.misses += 1
        missed = AnswerMissed(asked.id, asked.misses)
        if asked.misses >= MAX_MISSES:
            return [missed, MoveToScreen(asked.id, ScreenReason.NOT_UNDERSTOOD), *self._close(asked)]
        # What is said while it is read once more answers nothing.
        asked.heard_at = math.inf
        return [missed] if asked.is_reading else [missed, self._read(asked)]

    def _expire(self, asked: _OpenQuestion) -> list[QuestionStep]:
        return [QuestionExpired(asked.id), *self._close(asked)]

    def _close(self, asked: _OpenQuestion) -> list[QuestionStep]:
        self._over[asked.id] = asked.deadline
        if asked is not self._open:
            self._waiting.remove(asked)
            return []
        self._open = None
        return self._next()

    def _next(self) -> list[QuestionStep]:
        steps: list[QuestionStep] = []
        while self._open is None and self._waiting:
            asked = self._waiting.popleft()
            if self._now < asked.deadline:
                self._open = asked
                steps.append(self._read(asked))
            else:
                steps.append(QuestionExpired(asked.id))
        return steps

    def _verdict(self, text: str, confidence: float | None, local: AnswerVerdict | None) -> AnswerVerdict:
        # Only a yes has to pass more: a no that was heard wrongly costs a question, such a yes the deed.
        verdict = understood(text, language=self._language)
        if verdict is not AnswerVerdict.YES:
            return verdict
        # Written so that a confidence that is no number at all is too low.
        if confidence is not None and not confidence >= self._min_confidence:
            return AnswerVerdict.MISS
        if local is not AnswerVerdict.YES and (local is not None or self._needs_local):
            return AnswerVerdict.MISS
        return verdict
