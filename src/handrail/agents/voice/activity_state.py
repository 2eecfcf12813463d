"""What the conversation is doing, told when it changes, and whether it does anything at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handrail.agents.voice.live_session import VoiceSession


class ActivityState:
    """Derives the state from the parts. `on_idle` is called when nothing has happened for `idle` seconds."""

    def __init__(self, talk: VoiceSession, *, idle: float, on_idle: Callable[[], None]) -> None:
        self._talk = talk
        self._idle = idle
        self._on_idle = on_idle
        self._moved_at = asyncio.get_running_loop().time()
        self._timer: asyncio.TimerHandle | None = None
        self._state = ""
        self._link_up = False

    def start(self) -> None:
        self.moved()
        self._look()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def quiet_for(self) -> float:
        return asyncio.get_running_loop().time() - self._moved_at

    def link(self, *, up: bool) -> None:
        self._link_up = up
        self.moved()

    def touch(self) -> None:
        """Something goes on that changes nothing."""
        self._moved_at = asyncio.get_running_loop().time()

    def moved(self) -> None:
        """Something happened."""
        self._moved_at = asyncio.get_running_loop().time()
        if self._talk.is_over:
            return
        state = self._now()
        if state != self._state:
            self._state = state
            if self._talk.session.is_active:
                self._talk.session.state.set("isModelGenerating", state in ("thinking", "speaking"))
            self._talk.tell("state", {"state": state})

    def _now(self) -> str:
        talk = self._talk
        if not self._link_up:
            return "reconnecting"
        if talk.hearing.is_speaking:
            return "hearing"
        if talk.playback.is_playing or talk.speaking.item is not None:
            return "speaking"
        if talk.calls.running:
            return "working"
        return "thinking" if talk.is_generating else "listening"

    def _look(self) -> None:
        """Idle is who listens for long; whoever does anything is looked at again later."""
        loop = asyncio.get_running_loop()
        left = self._idle - self.quiet_for()
        if left <= 0 and self._state == "listening":
            self._on_idle()
            return
        self._timer = loop.call_later(left if left > 0 else self._idle, self._look)
