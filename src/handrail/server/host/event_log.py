"""The events of one session, numbered, kept for a while, and read by any number of streams.

Numbers only grow, also over restarts of the server: a session has a new connection number in each process, and that stands in
front. A reader that was away says the last number it has seen and gets what came after it; where that is no longer kept, it is
told so once, and fetches the session's state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from handrail.server.wire import frame, notice, without_detail

SPAN = 10_000_000
"""So many numbers belong to one connection of a session."""
MAX_EVENTS = 2_000
MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event as it is sent. `seen_by` is the number that it had before a restart, for events that were rebuilt; `detailed` is
    the event for operators, where they are told more."""

    number: int
    type: str
    turn: int
    data: bytes
    seen_by: int = 0
    detailed: bytes | None = None


class EventLog:
    """What happened in a session lately. `before` is the last number that is known from an earlier process."""

    __slots__ = ("_before", "_bytes", "_ending", "_held", "_kept", "_start", "last", "readers")

    def __init__(self, connection: int, before: int = 0) -> None:
        self._start = connection * SPAN
        self._before = before
        self._kept: deque[LoggedEvent] = deque()
        self._bytes = 0
        self.readers: set[EventReader] = set()
        self._ending = asyncio.Lock()
        self._held: list[tuple[str, Mapping[str, Any], int]] | None = None
        self.last = self._start

    @asynccontextmanager
    async def next_is_ours(self) -> AsyncIterator[int]:
        """The number that the next event will have. What others tell meanwhile waits until after the block, so that the number
        may be written down before the event is told."""
        async with self._ending:
            held = self._held = []
            try:
                yield self.last + 1
            finally:
                self._held = None
                for name, data, turn in held:
                    self.add(name, data, turn)

    def tell(self, type: str, data: Mapping[str, Any], turn: int) -> None:
        """Append an event, or let it wait for one that has been given its number. Every event says which turn it belongs to."""
        if self._held is not None:
            self._held.append((type, data, turn))
        else:
            self.add(type, data, turn)

    def add(self, type: str, data: Mapping[str, Any], turn: int, *, seen_by: int = 0) -> None:
        """Append an event now and wake whoever waits for it."""
        self.last += 1
        data, detailed = {"turn": turn, **data}, None
        if type == "error" and "detail" in data:
            detailed, data = frame(self.last, type, data), without_detail(type, data)
        kept = LoggedEvent(self.last, type, turn, frame(self.last, type, data), seen_by, detailed)
        self._kept.append(kept)
        self._bytes += len(kept.data)
        while len(self._kept) > MAX_EVENTS or (self._bytes > MAX_BYTES and len(self._kept) > 1):
            self._bytes -= len(self._kept.popleft().data)
        for reader in self.readers:
            reader.wake.set()

    def after(self, number: int) -> tuple[list[LoggedEvent], bool]:
        """The events after this number that are kept, rebuilt ones only for a reader that has not seen them before; and
        whether something after it is no longer kept, or the number is none of ours."""
        first = self._kept[0].number if self._kept else self.last + 1
        lacking = number > self.last or number < self._before or max(number, self._start) < first - 1
        if number < first:
            return [one for one in self._kept if not one.seen_by or number < one.seen_by], lacking
        return [self._kept[index] for index in range(number - first + 1, len(self._kept))], lacking

    def reader(self, after: int | None, *, stays: bool = False, detailed: bool = False) -> EventReader:
        """Somebody who reads from after this number on; None means from now on. One who `stays` is not sent away by a
        restart that is to come: it waits for the end of a turn. `detailed`: an operator, who is told everything."""
        made = EventReader(self, self.last if after is None else after, stays=stays, detailed=detailed)
        self.readers.add(made)
        return made

    def end(self, why: str) -> None:
        """Tell every reader to connect again (`reconnect`) or not (`closed`), and let them go."""
        for reader in list(self.readers):
            if not reader.stays or why != "reconnect":
                reader.end(why)


@dataclass(slots=True, eq=False)
class EventReader:
    """A place in a log. One task at a time waits at it."""

    _log: EventLog
    _at: int
    stays: bool = field(kw_only=True)
    detailed: bool = field(kw_only=True)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    farewell: str | None = None

    def end(self, why: str) -> None:
        self.farewell = why
        self.wake.set()

    @property
    def has_news(self) -> bool:
        """Whether there is something to read, or the reading is over: `batch` does not wait."""
        return self._at != self._log.last or self.farewell is not None

    async def batch(self, seconds: float) -> list[LoggedEvent] | None:
        """What came since; an empty list if nothing did within `seconds`, None when the reading is over."""
        if not self.has_news:
            try:
                async with asyncio.timeout(seconds):
                    await self.wake.wait()
            except TimeoutError:
                return []
        self.wake.clear()
        events, lacking = self._log.after(self._at)
        self._at = self._log.last
        if self.detailed:
            events = [one if one.detailed is None else replace(one, data=one.detailed) for one in events]
        if lacking:
            events.insert(0, LoggedEvent(0, "resync", 0, notice("resync", {"lastEventId": self._at})))
        if not events and self.farewell is not None:
            return None
        return events

    def close(self) -> None:
        self._log.readers.discard(self)
