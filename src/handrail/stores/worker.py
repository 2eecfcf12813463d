"""A thread that carries out what coroutines ask for, everything that waits at once: the group in group commit. The
event loop never waits for the disk, and is woken once for a whole batch."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from handrail.contract.store import StoreUnavailable

T = TypeVar("T")
_log = logging.getLogger("handrail.stores")
_LARGEST_BATCH = 512
"""From here on no more is added: it bounds how long the first waits for the last, and what one failed commit takes with it."""


class Job:
    """One request, and what became of it."""

    __slots__ = ("error", "future", "loop", "outcome", "request")

    def __init__(self, request: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.outcome: Any = None
        self.error: BaseException | None = None


class Worker:
    """Hands batches of jobs to `carry_out`, which fills in the outcome or the error of each."""

    def __init__(
        self, name: str, carry_out: Callable[[Sequence[Job]], None], between: Callable[[], bool] = lambda: False
    ) -> None:
        """`between` is one short step of something else, for when nobody waits; whether there is more of it to do."""
        self._carry_out = carry_out
        self._between = between
        self._waiting: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        # A daemon: a process that ends without `close()` ends, and loses only what nobody was told is stored.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, request: Callable[..., T]) -> asyncio.Future[T]:
        """Ask for something. Everything that is asked for in one round of the loop is handed over, and carried out, together:
        handed over one by one, the first would have a commit for itself while all others wait for the next."""
        loop = asyncio.get_running_loop()
        job = Job(request, loop)
        gathered = self._gathered.get(loop)
        if gathered is None:
            gathered = self._gathered[loop] = []
            loop.call_soon(self.hand_over, loop)
        gathered.append(job)
        return job.future

    def hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the thread what this loop has asked for."""
        jobs = self._gathered.pop(loop, None)
        if jobs:
            self._waiting.put(jobs)

    def stop(self) -> None:
        """Carry out what waits, then end. Blocks."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        going = True
        while going:
            batch, going = self._next_batch()
            if not batch:
                continue
            try:
                self._carry_out(batch)
            except BaseException as error:  # noqa: BLE001 - the thread must outlive a bug: each caller is told instead
                for job in batch:
                    job.error = StoreUnavailable(f"The store failed in a way nobody foresaw ({error!r}).")
            _deliver(batch)
            if going:
                self._use_the_pause()

    def _use_the_pause(self) -> None:
        try:
            while self._waiting.empty() and self._between():
                pass
        except Exception as error:  # noqa: BLE001 - what nobody waits for must not end the thread that everybody waits for
            _log.error("What the store does between two writes failed and is given up", exc_info=error)
            self._between = lambda: False

    def _next_batch(self) -> tuple[list[Job], bool]:
        batch: list[Job] = []
        jobs = self._waiting.get()
        while jobs is not None:
            batch += jobs
            if len(batch) >= _LARGEST_BATCH:
                return batch, True
            try:
                jobs = self._waiting.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False


def _deliver(batch: Sequence[Job]) -> None:
    loops = {job.loop for job in batch}
    for loop in loops:
        mine = batch if len(loops) == 1 else [job for job in batch if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_resolve, mine)
        except RuntimeError:
            # The loop was closed while we worked: nobody waits there any more.
            continue


def _resolve(batch: Sequence[Job]) -> None:
    for job in batch:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.outcome)
