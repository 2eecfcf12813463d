"""What a session tells its host beside the answers to calls: confirmations wanted, late envelopes, intents, messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """`confirmation` (with its secret token), `envelope` (a late result), `intent`, `message`, `progress`, or `closed`."""

    type: str
    data: Mapping[str, Any]


class Events:
    """The events of one session. What comes while nobody listens is kept for the first who does."""

    __slots__ = ("_closed", "_listeners", "_waiting")

    def __init__(self) -> None:
        self._listeners: list[asyncio.Queue[Event | None]] = []
        self._waiting: deque[Event] | None = None
        self._closed = False

    def emit(self, type: str, data: Mapping[str, Any]) -> None:
        event = Event(type, data)
        if self._listeners:
            for queue in self._listeners:
                queue.put_nowait(event)
            return
        if self._waiting is None:
            self._waiting = deque(maxlen=MOST_WAITING)
        self._waiting.append(event)

    def close(self) -> None:
        self._closed = True
        for queue in self._listeners:
            queue.put_nowait(None)

    async def listen(self) -> AsyncIterator[Event]:
        """Every event from now on, and those that waited; ends when the session does."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        while self._waiting:
            queue.put_nowait(self._waiting.popleft())
        if self._closed:
            queue.put_nowait(None)
        self._listeners.append(queue)
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._listeners.remove(queue)
