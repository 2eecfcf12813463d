"""Virtual time: sleeping takes no time, and the clock shows what it would have taken.

Give a `VirtualClock` to the runtime and its `milliseconds` to a memory store; expiry, leases and windows then pass when the
test says so.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


class VirtualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._start = start
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def time(self) -> float:
        return self._start + self._now

    def monotonic(self) -> float:
        return self._now

    def milliseconds(self) -> int:
        return int(self.time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved past this moment."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let time pass: whoever sleeps wakes in order, and gets to run."""
        await settle()  # who is about to sleep shall do so before time passes
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            when, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue  # whoever slept was cancelled
            self._now = max(self._now, when)  # somebody else may have moved it meanwhile
            future.set_result(None)
            await settle()
        self._now = max(self._now, end)
        await settle()


async def settle(rounds: int = 20) -> None:
    """Let everything that can run, run."""
    for _ in range(rounds):
        await asyncio.sleep(0)
