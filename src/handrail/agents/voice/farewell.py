"""How a conversation comes to its end by itself: the model's or the host's farewell is spoken, heard, and then it is over.

A tool may ask for the end (`pendingEndVoiceSession`); a user may be blocked; nobody may have spoken for long. Whatever it is, the
closing words are spoken first: by the model, which is asked for them once if it does not say them by itself, or by the client's
own voice. A time without any sign of life ends it all the same.

A person who speaks into it is heard: nothing ends before it is known what they said, and an input takes the end back, unless they
are blocked.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from handrail.agents.voice.host_phrases import is_said, say_exactly, stays_words

if TYPE_CHECKING:
    from handrail.agents.voice.live_session import VoiceSession

_WORDS_SECONDS = 1.5
"""So long after a voice its words, or the provider's word that it heard one, may come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEnd:
    """Why the conversation ends, and what is said before."""

    reason: str
    closing: str | None = None
    text: str | None = None


class Farewell:
    """The end of one conversation, if it comes to it."""

    def __init__(self, talk: VoiceSession) -> None:
        self._talk = talk
        self._own: PlannedEnd | None = None
        self._asked = False
        self._due_at: float | None = None
        """Since when an end is due."""
        self._is_held = False
        """Somebody speaks into it, and it is not known yet what they say."""
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_timer: asyncio.TimerHandle | None = None

    @property
    def leave(self) -> PlannedEnd | None:
        """The end that is due."""
        if self._own is not None:
            return self._own
        pending = self._talk.session.state.get("pendingEndVoiceSession")
        if pending is None:
            return None
        closing = pending.get("closingMessage") if pending["after"] == "farewell_spoken" else None
        return PlannedEnd(
            reason=pending.get("reason") or "user_requested", closing=closing, text=pending.get("textResponse")
        )

    def want(self, leave: PlannedEnd) -> None:
        """The host wants the end, for a reason of its own."""
        if self._own is None:
            self._own = leave
            self.consider()

    def consider(self) -> None:
        """Something happened after which it may be time: go as far as it can go now."""
        talk, leave = self._talk, self.leave
        if leave is None or talk.is_over:
            return
        self._arm()
        if talk.calls.awaited or talk.is_generating:
            return  # it may be saying it
        if leave.closing and not self._asked and not self._is_said(leave.closing):
            self._asked = True
            self._ask(leave.closing)
            return
        if talk.playback.latest is None and not self._is_spoken_into():
            talk.finish(leave.reason, closing=leave.closing, text=leave.text)

    def close(self) -> None:
        for timer in (self._timer, self._quiet_timer):
            if timer is not None:
                timer.cancel()

    def spoken_into(self) -> None:
        """The client or the provider noticed that the person speaks."""
        if self.leave is not None:
            self._is_held = True

    def person_spoke(self, started_at: float | None) -> None:
        """An input was committed that began then; if nobody knows when, a voice in the meantime tells that it is a new one."""
        leave, due_at = self.leave, self._due_at
        if leave is None or due_at is None or self._talk.is_over:
            return
        if (self._talk.asking.voice_heard_at if started_at is None else started_at) > due_at:
            self._take_back(leave)

    def _take_back(self, leave: PlannedEnd) -> None:
        """The person has something more to say. What was asked for stays recorded, and that it did not come to it."""
        if leave.reason == "blocked":
            return
        talk = self._talk
        is_of_a_tool = self._own is None
        self._own, self._due_at = None, None
        self._asked = self._is_held = False
        self.close()
        self._timer = self._quiet_timer = None
        if is_of_a_tool:
            session = talk.session
            intent = {"type": "END_VOICE_SESSION", **session.state.get("pendingEndVoiceSession")}
            session.state.set("pendingEndVoiceSession", None)
            reason = "The person spoke into the farewell: the end was taken back."
            core = session.core
            core.trail.note(
                "intent", session, {**core.trail.who(session), "intent": intent, "ok": False, "reason": reason}
            )
            talk.order.put(lambda: talk.runtime.save(session))
        else:
            talk.watch.start()  # it has looked for the last time when nobody had spoken for long
        words = stays_words()
        talk.record.note(words)
        talk.order.put(lambda: talk.connection.tell(words, scheduling="silent"))

    def _is_spoken_into(self) -> bool:
        """Whether somebody speaks, by anybody's word; what only the level tells is looked at again soon."""
        talk, due_at = self._talk, self._due_at
        if self._is_held or talk.hearing.is_speaking:
            return True
        heard_at = talk.asking.voice_heard_at
        loop = asyncio.get_running_loop()
        if due_at is None or heard_at <= due_at or loop.time() >= heard_at + _WORDS_SECONDS:
            return False
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
        self._quiet_timer = loop.call_at(heard_at + _WORDS_SECONDS, self.consider)
        return True

    def _ask(self, closing: str) -> None:
        talk = self._talk
        if not talk.is_voiced:
            item = talk.speaking.say(closing, "notice", "farewell")
            item.message = talk.record.say(closing)
            if item.over:
                self.consider()
            return
        talk.ask_model(say_exactly(closing), "farewell")

    def _is_said(self, closing: str) -> bool:
        turn = self._talk.turns.current
        said = [item.text for item in turn.items] if turn is not None else []
        if self._asked:
            said += [item.text for item in self._talk.playback.of("farewell")]
        return any(is_said(closing, text) for text in [*said, " ".join(said)])

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        if self._due_at is None:
            self._due_at = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._talk.policy.farewell_seconds, self._late)

    def _late(self) -> None:
        """No sign of life for long enough: the end comes without the farewell."""
        talk, leave = self._talk, self.leave
        self._timer = None
        if leave is None or talk.is_over:
            return
        left = talk.policy.farewell_seconds - talk.quiet_for()
        if left > 0 and not talk.calls.running:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(left, self._late)
        elif talk.calls.running:
            self._arm()
        else:
            talk.finish(leave.reason, closing=leave.closing, text=leave.text)
