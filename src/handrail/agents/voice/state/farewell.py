"""How a conversation ends by itself: somebody says goodbye, the user hears it, and then it is over. Pure.

A tool may ask for the end (`pendingEndVoiceSession`); the user may be blocked; nobody may have spoken for long. The closing words
come first: from the model, which is asked for them once if it does not say them by itself, or from the client's own voice.
A time without any sign of life ends the conversation without them.

A person who speaks into the farewell is heard: nothing ends before it is known what they said, and an input takes the end back,
unless they are blocked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from handrail.agents.conversation import Conversation
from handrail.agents.voice.spoken_notices import farewell_withdrawn_notice, is_said
from handrail.agents.voice.state.events_and_effects import EffectQueue, RecordWithdrawnEnd, TellModel, Timer, TimerKind
from handrail.agents.voice.state.session_port import SessionPort
from handrail.agents.voice.state.speech_output import Playback, SpokenItem
from handrail.agents.voice.state.turn_detection import TurnDetection, VoiceActivity
from handrail.contract.model import HostMessage

_WORDS_SECONDS = 1.5
"""So long after a voice its words, or the provider's report that it heard one, may come."""
BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEnd:
    """Why the conversation ends, and what is said before."""

    reason: str
    closing: str | None = None
    text: str | None = None


class FarewellHost(Protocol):
    """What a farewell has to know of the conversation around it, and what it asks of it."""

    def is_answering(self) -> bool:
        """Whether the model says something, or waits for a call: it may be the farewell."""
        ...

    def has_running_calls(self) -> bool: ...

    def quiet_seconds(self) -> float:
        """For how long nothing has happened."""
        ...

    def said_lately(self, *, with_farewells: bool) -> Sequence[str]:
        """What we said in this turn, and the farewells that were asked for."""
        ...

    def say_closing(self, text: str) -> SpokenItem | None:
        """Have the closing words said; the item if the client's own voice says them, None if the model does."""
        ...

    def end_as_planned(self, planned: PlannedEnd) -> None: ...

    def watch_for_idleness(self) -> None:
        """Begin to count anew how long nobody has spoken."""
        ...


class Farewell:
    """The end of one conversation, if it comes to it."""

    def __init__(
        self,
        effects: EffectQueue,
        session: SessionPort,
        conversation: Conversation,
        playback: Playback,
        detection: TurnDetection,
        activity: VoiceActivity,
        host: FarewellHost,
        *,
        max_seconds: float,
    ) -> None:
        self._effects = effects
        self._session = session
        self._conversation = conversation
        self._playback = playback
        self._detection = detection
        self._activity = activity
        self._host = host
        self._max_seconds = max_seconds
        self.own: PlannedEnd | None = None
        self._asked = False
        self.due_at: float | None = None
        """Since when an end is due."""
        self.is_held = False
        """Somebody speaks into it, by the client's or the provider's word, and it is not known yet what they say."""

    @property
    def planned(self) -> PlannedEnd | None:
        """The end that is due."""
        if self.own is not None:
            return self.own
        pending = self._session.state.get("pendingEndVoiceSession")
        if pending is None:
            return None
        closing = pending.get("closingMessage") if pending["after"] == "farewell_spoken" else None
        return PlannedEnd(
            reason=pending.get("reason") or "user_requested", closing=closing, text=pending.get("textResponse")
        )

    def plan(self, planned: PlannedEnd) -> None:
        """The host wants the end, for a reason of its own."""
        if self.own is None:
            self.own = planned
            self.consider()

    def consider(self) -> None:
        """Something happened after which it may be time: proceed as far as possible now."""
        planned = self.planned
        if planned is None:
            return
        self._arm()  # the time limit counts from when the end was due, whatever the model does
        if self._host.is_answering():
            return  # it may be saying it
        if planned.closing and not self._asked and not self._is_said(planned.closing):
            self._asked = True
            item = self._host.say_closing(planned.closing)
            if item is not None and item.over:
                self.consider()
            return
        # Whoever is blocked cannot put the end off by speaking.
        if self._playback.latest is None and (planned.reason == BLOCKED or not self._is_spoken_into()):
            self._host.end_as_planned(planned)

    def person_spoke(self, started_at: float | None) -> None:
        """An input was committed that began then. If nobody knows when, a voice since the end was due makes it a new one."""
        planned, due_at = self.planned, self.due_at
        if planned is None or due_at is None:
            return
        if (self._activity.heard_at if started_at is None else started_at) > due_at:
            self._take_back(planned)

    def _take_back(self, planned: PlannedEnd) -> None:
        """The person has something more to say. The request for the end stays recorded, and that it was taken back."""
        if planned.reason == BLOCKED:
            return
        is_of_a_tool = self.own is None
        self.own, self.due_at = None, None
        self._asked = self.is_held = False
        self.close()
        if is_of_a_tool:
            intent = {"type": "END_VOICE_SESSION", **self._session.state.get("pendingEndVoiceSession")}
            self._session.state.set("pendingEndVoiceSession", None)
            self._effects.append(RecordWithdrawnEnd(intent))
        else:
            self._host.watch_for_idleness()  # it stopped counting when nobody had spoken for long
        words = farewell_withdrawn_notice()
        self._conversation.add(HostMessage(words))
        self._effects.append(TellModel(words, "silent"))

    def close(self) -> None:
        self._effects.timers.pop(Timer(TimerKind.FAREWELL_LATE), None)
        self._effects.timers.pop(Timer(TimerKind.FAREWELL_QUIET), None)

    def _is_spoken_into(self) -> bool:
        """Whether somebody speaks, by anybody's report; what only the level shows is looked at again soon."""
        if self.is_held or self._detection.is_speaking:
            return True
        heard_at, due_at = self._activity.heard_at, self.due_at
        if due_at is None or heard_at <= due_at or self._effects.now >= heard_at + _WORDS_SECONDS:
            return False
        self._effects.timers[Timer(TimerKind.FAREWELL_QUIET)] = heard_at + _WORDS_SECONDS
        return True

    def _is_said(self, closing: str) -> bool:
        said = self._host.said_lately(with_farewells=self._asked)
        return any(is_said(closing, text) for text in [*said, " ".join(said)])

    def _arm(self) -> None:
        now = self._effects.now
        if self.due_at is None:
            self.due_at = now
        if Timer(TimerKind.FAREWELL_LATE) not in self._effects.timers:
            self._effects.timers[Timer(TimerKind.FAREWELL_LATE)] = now + self._max_seconds

    def late_elapsed(self) -> None:
        """No sign of life for long enough: the end comes without the farewell."""
        planned = self.planned
        if planned is None:
            return
        left = self._max_seconds - self._host.quiet_seconds() if planned.reason != BLOCKED else 0.0
        if self._host.has_running_calls():
            self._arm()
        elif left > 0:
            self._effects.timers[Timer(TimerKind.FAREWELL_LATE)] = self._effects.now + left
        else:
            self._host.end_as_planned(planned)
