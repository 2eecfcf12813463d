"""Long work in a thread that leaves room for others: a thread that computes gives the interpreter away when another has waited
for five milliseconds, and an event loop may have to wait so several times in one round. A pause gives it away at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
_BUSY_SECONDS, _PAUSE_SECONDS = 0.001, 0.00002


def unhurried(items: Iterable[T], is_needed: Callable[[], bool] = lambda: True) -> Iterator[T]:
    """The same items, with a pause after each millisecond that this thread has computed, where one is needed."""
    started = time.thread_time()
    for item in items:
        yield item
        if is_needed() and time.thread_time() - started >= _BUSY_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            started = time.thread_time()
