"""The threads that plain handlers run in: a bounded pool that a handler which hangs cannot use up, nor keep a process alive.

A thread cannot be stopped. One whose work was given up is replaced, up to as many as there are places, and ends itself when its
work has ended after all. The threads are daemons: the end of the process does not wait for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import count
from typing import Any

_NUMBERS = count(1)
_Job = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Workers(Executor):
    """At most `places` threads work at a time, beside those that were given up."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._given_up: set[Future[Any]] = set()
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("The workers have ended; nothing new is run.")
            self._jobs.append((future, fn, args, kwargs))
            self._have_it_done()
        return future

    def give_up(self, future: Future[Any]) -> None:
        """Nobody waits for this work any more, which continues: another thread takes its place."""
        with self._changed:
            if future.running():
                self._given_up.add(future)
                self._have_it_done()

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Nothing that waits is begun; what runs is left to itself."""
        with self._changed:
            self._closed = True
            while cancel_futures and self._jobs:
                self._jobs.popleft()[0].cancel()
            self._changed.notify_all()

    @property
    def _max_threads(self) -> int:
        return self._places + min(len(self._given_up), self._places)

    def _have_it_done(self) -> None:
        if len(self._jobs) <= self._idle:
            self._changed.notify()
        elif self._threads < self._max_threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"handrail-tool-{next(_NUMBERS)}", daemon=True).start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            future, fn, args, kwargs = job
            del job
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001  # an author's code may raise anything, for whoever waits
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            with self._changed:
                self._given_up.discard(future)
            del future, fn, args, kwargs

    def _next(self) -> _Job | None:
        """The next job; None if this thread is not needed any more."""
        with self._changed:
            while self._threads <= self._max_threads:
                if self._jobs:
                    return self._jobs.popleft()
                if self._closed:
                    break
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            self._threads -= 1
            return None
