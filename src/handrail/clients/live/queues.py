"""The two queues of a live session. Audio is dropped first and oldest first; everything else is kept."""

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

    def __init__(self, most_audio: int, most_events: int, counters: LiveCounters) -> None:
        self._cells: deque[list[LiveEvent | None]] = deque()
        self._audio: deque[list[LiveEvent | None]] = deque()
        self._most_audio = most_audio
        self._most_events = most_events
        self._counters = counters
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._others = 0

    async def put(self, event: LiveEvent) -> None:
        """Wait for room, which audio does not need."""
        if not isinstance(event, AudioOut):
            await self._room.wait()
        self.put_now(event)

    def put_now(self, event: LiveEvent) -> None:
        cell: list[LiveEvent | None] = [event]
        if isinstance(event, AudioOut):
            if len(self._audio) >= self._most_audio:
                self._audio.popleft()[0] = None
            self._audio.append(cell)
        else:
            self._others += 1
            if self._others >= self._most_events:
                self._room.clear()
        self._cells.append(cell)
        self._arrived.set()

    async def listen(self) -> AsyncIterator[LiveEvent]:
        while True:
            while self._cells:
                cell = self._cells.popleft()
                event = cell[0]
                if event is None:  # counted here, between the events where the host misses it
                    self._counters.dropped_audio_out += 1
                    continue
                if isinstance(event, AudioOut):
                    self._audio.popleft()
                else:
                    self._others -= 1
                    if self._others < self._most_events:
                        self._room.set()
                yield event
                if isinstance(event, Closed):
                    return
            self._arrived.clear()
            await self._arrived.wait()


class Outbox:
    """From the host to the provider: commands first, then audio."""

    def __init__(self, most_audio: int, counters: LiveCounters) -> None:
        self._commands: deque[Command] = deque()
        self._audio: deque[tuple[bytes, int]] = deque()
        self._most_audio = most_audio
        self._counters = counters
        self._arrived = asyncio.Event()

    def put(self, command: Command) -> None:
        self._commands.append(command)
        self._arrived.set()

    def put_audio(self, pcm: bytes, rate: int) -> bool:
        """Whether nothing had to be dropped for it."""
        is_full = len(self._audio) >= self._most_audio
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
            await self._arrived.wait()
