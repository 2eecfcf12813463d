"""The two queues of a live session. Audio is dropped first and oldest first; everything else is kept.

Nothing waits in them while both sides keep up: a host that takes events at once is called with each, and audio for which the
provider has room is not put here at all. Each queue that is passed costs a task's wake-up, and so a round of the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from handrail.contract.live import AudioOut, Closed, LiveCounters, LiveEvent

Command = Callable[[], list[dict[str, Any]]]
"""Makes the messages when they are sent, because what they must look like depends on the connection of that moment."""


class EventQueue:
    """From the provider to the host. A slow host loses audio; before it could lose more, nothing is read any more."""

    def __init__(self, max_audio: int, max_events: int, counters: LiveCounters) -> None:
        self._cells: deque[list[LiveEvent | None]] = deque()
        self._audio: deque[list[LiveEvent | None]] = deque()
        self._max_audio = max_audio
        self._max_events = max_events
        self._counters = counters
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._others = 0
        self._take: Callable[[LiveEvent], None] | None = None

    @property
    def are_handed_on(self) -> bool:
        """The host takes each event at once: none waits here."""
        return self._take is not None

    def hand_to(self, take: Callable[[LiveEvent], None]) -> None:
        """Those that wait first, and from then on each in the moment in which it comes."""
        while self._cells:
            event = self._next()
            if event is not None:
                take(event)
        self._take = take

    async def room(self) -> None:
        """Wait until the host has taken enough of what is here. Audio needs no room: of that, the oldest goes."""
        await self._room.wait()

    def put(self, event: LiveEvent) -> None:
        if self._take is not None:
            self._take(event)
            return
        cell: list[LiveEvent | None] = [event]
        if isinstance(event, AudioOut):
            if len(self._audio) >= self._max_audio:
                self._audio.popleft()[0] = None
            self._audio.append(cell)
        else:
            self._others += 1
            if self._others >= self._max_events:
                self._room.clear()
        self._cells.append(cell)
        self._arrived.set()

    async def listen(self) -> AsyncIterator[LiveEvent]:
        while True:
            while self._cells:
                event = self._next()
                if event is None:
                    continue
                yield event
                if isinstance(event, Closed):
                    return
            self._arrived.clear()
            await self._arrived.wait()

    def _next(self) -> LiveEvent | None:
        """None: it was dropped, which is counted here, between the events where the host misses it."""
        event = self._cells.popleft()[0]
        if event is None:
            self._counters.dropped_audio_out += 1
        elif isinstance(event, AudioOut):
            self._audio.popleft()
        else:
            self._others -= 1
            if self._others < self._max_events:
                self._room.set()
        return event


class SendQueue:
    """From the host to the provider: commands first, then audio."""

    def __init__(self, max_audio: int, counters: LiveCounters) -> None:
        self._commands: deque[Command] = deque()
        self._audio: deque[tuple[bytes, int]] = deque()
        self._max_audio = max_audio
        self._counters = counters
        self._arrived = asyncio.Event()
        self.is_waited_for = False
        """Nothing is here, and nothing that was here is still being sent."""

    def put(self, command: Command) -> None:
        self.is_waited_for = False
        self._commands.append(command)
        self._arrived.set()

    def put_audio(self, pcm: bytes, rate: int) -> bool:
        """Whether nothing had to be dropped for it."""
        self.is_waited_for = False
        is_full = len(self._audio) >= self._max_audio
        if is_full:
            self._audio.popleft()
            self._counters.dropped_audio_in += 1
        self._audio.append((pcm, rate))
        self._arrived.set()
        return not is_full

    async def take(self) -> Command | tuple[bytes, int]:
        while True:
            if self._commands:
                return self._commands.popleft()
            if self._audio:
                return self._audio.popleft()
            self._arrived.clear()
            self.is_waited_for = True
            try:
                await self._arrived.wait()
            finally:
                self.is_waited_for = False
