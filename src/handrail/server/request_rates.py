"""Rates: how often a key may ask, and how often an address may be wrong. Token buckets, a bounded number of them."""

from __future__ import annotations

import time
from collections.abc import Callable

_MAX = 10_000


class TokenBuckets:
    """One bucket for each name: it holds `size` units and is filled again in a minute."""

    __slots__ = ("_clock", "_kept", "_size")

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = float(size)
        self._clock = clock
        self._kept: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> float:
        """Take one unit; 0 if there was one, else the seconds after which there will be."""
        now = self._clock()
        left, then = self._kept.pop(name, (self._size, now))
        left = min(self._size, left + (now - then) * self._size / 60)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / self._size
        self._kept[name] = (left if wait else left - 1, now)
        if len(self._kept) > _MAX:
            del self._kept[next(iter(self._kept))]  # whoever was silent for the longest time
        return wait
