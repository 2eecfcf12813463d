"""How the events of a session reach those who listen, and which are dropped if nobody keeps up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable

from handrail.contract.events import SessionEvent

MAX_WAITING = 1000
MAX_PROGRESS = 50
"""How many of those may report progress; only the newest matter."""
_DROPPED_FIRST = ("progress", "message", "intent")
"""What has to make room if too much waits; never a request or a result while any of these is there."""


class WaitingEvents(deque[SessionEvent]):
    """Events that nobody has taken yet, the oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self._progress = 0

    def put(self, event: SessionEvent) -> None:
        self.append(event)
        if event.type == "progress":
            self._progress += 1
            if self._progress > MAX_PROGRESS:
                self._drop("progress")
        if len(self) > MAX_WAITING:
            kinds = {waiting.type for waiting in self}
            self._drop(next((kind for kind in _DROPPED_FIRST if kind in kinds), self[0].type))

    def popleft(self) -> SessionEvent:
        event = super().popleft()
        self._progress -= event.type == "progress"
        return event

    def _drop(self, kind: str) -> None:
        """The oldest of this kind."""
        del self[next(place for place, event in enumerate(self) if event.type == kind)]
        self._progress -= kind == "progress"


class Listener:
    """One who listens, from the moment on that it was made. Who does not keep up loses events, the least of them first."""

    __slots__ = ("closed", "waiting", "wake")

    def __init__(self) -> None:
        self.waiting = WaitingEvents()
        self.wake = asyncio.Event()
        self.closed = False

    def put(self, event: SessionEvent) -> None:
        self.waiting.put(event)
        self.wake.set()

    def close(self) -> None:
        self.closed = True
        self.wake.set()


class Events:
    """The events of one session. What comes while nobody listens is kept for the first who does."""

    __slots__ = ("_listeners", "_waiting", "is_closed")

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._waiting: WaitingEvents | None = None
        self.is_closed = False

    def emit(self, event: SessionEvent) -> None:
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

    async def listen(self, listener: Listener | None = None) -> AsyncGenerator[SessionEvent, None]:
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

    def _keep(self, events: Iterable[SessionEvent]) -> None:
        if self._waiting is None:
            self._waiting = WaitingEvents()
        for event in events:
            self._waiting.put(event)
