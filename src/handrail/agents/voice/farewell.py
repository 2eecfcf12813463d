"""How a conversation comes to its end by itself: the model's or the host's farewell is spoken, heard, and then it is over.

A tool may ask for the end (`pendingEndVoiceSession`); a user may be blocked; nobody may have spoken for long. Whatever it is, the
closing words are spoken first: by the model, which is asked for them once if it does not say them by itself, or by the client's
own voice. A time without any sign of life ends it all the same.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from handrail.agents.voice.words import is_said, say_exactly

if TYPE_CHECKING:
    from handrail.agents.voice.talk import VoiceTalk


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Why the conversation ends, and what is said before."""

    reason: str
    closing: str | None = None
    text: str | None = None


class Farewell:
    """The end of one conversation, if it comes to it."""

    def __init__(self, talk: VoiceTalk) -> None:
        self._talk = talk
        self._own: Leave | None = None
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def leave(self) -> Leave | None:
        """The end that is due."""
        if self._own is not None:
            return self._own
        pending = self._talk.session.state.get("pendingEndVoiceSession")
        if pending is None:
            return None
        closing = pending.get("closingMessage") if pending["after"] == "farewell_spoken" else None
        return Leave(
            reason=pending.get("reason") or "user_requested", closing=closing, text=pending.get("textResponse")
        )

    def want(self, leave: Leave) -> None:
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
        if talk.playback.latest is None:
            talk.finish(leave.reason, closing=leave.closing, text=leave.text)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

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
        if self._timer is None:
            loop = asyncio.get_running_loop()
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
