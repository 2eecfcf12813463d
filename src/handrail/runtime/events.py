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


class Listener:
    """One who listens, from the moment on that it was made. Who does not keep up loses the oldest events."""

    __slots__ = ("closed", "waiting", "wake")

    def __init__(self) -> None:
        self.waiting: deque[Event] = deque(maxlen=MOST_WAITING)
        self.wake = asyncio.Event()
        self.closed = False

    def put(self, event: Event) -> None:
        self.waiting.append(event)
        self.wake.set()

    def close(self) -> None:
        self.closed = True
        self.wake.set()


class Events:
    """The events of one session. What comes while nobody listens is kept for the first who does."""

    __slots__ = ("_listeners", "_waiting", "is_closed")

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._waiting: deque[Event] | None = None
        self.is_closed = False

    def emit(self, type: str, data: Mapping[str, Any]) -> None:
        event = Event(type, data)
        for listener in self._listeners:
            listener.put(event)
        if not self._listeners:
            self._keep((event,))

    def close(self) -> None:
        self.is_closed = True
        for listener in self._listeners:
            listener.close()

    def attach(self) -> Listener:
        """A listener that hears what happens from now on, before anybody asks it."""
        listener = Listener()
        while self._waiting:
            listener.put(self._waiting.popleft())
        if self.is_closed:
            listener.close()
        self._listeners.append(listener)
        return listener

    def detach(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
            if not self._listeners:
                self._keep(listener.waiting)

    async def listen(self, listener: Listener | None = None) -> AsyncIterator[Event]:
        """Every event from now on, and those that waited; ends when the session does."""
        ear = listener or self.attach()
        try:
            while True:
                while ear.waiting:
                    yield ear.waiting.popleft()
                if ear.closed:
                    return
                ear.wake.clear()
                await ear.wake.wait()
        finally:
            self.detach(ear)

    def _keep(self, events: Any) -> None:
        if self._waiting is None:
            self._waiting = deque(maxlen=MOST_WAITING)
        self._waiting.extend(events)
