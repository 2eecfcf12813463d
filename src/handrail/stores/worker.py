"""A thread that carries out what coroutines ask for, everything that waits at once: the group in group commit. The
event loop never waits for the disk or the server, and is woken once for a whole batch.

A disk or a server may hang. Whoever has waited for `limit` seconds gets an error; until the thread is free again everybody else
is told at once. What had not been begun is then never carried out; of what had been begun it is not known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVar

from handrail.contract.store import StoreUnavailable

T = TypeVar("T")
_log = logging.getLogger("handrail.stores")
LIMIT_SECONDS = 10.0
_LATE_SECONDS = 0.25
_SECOND_CHANCE_SECONDS = 1.0
"""Who looks so late was frozen, and the thread with it: what it waits for may be there already."""
_LARGEST_BATCH = 512
"""From here on no more is added: it bounds how long the first waits for the last, and what one failed commit takes with it."""


class _AnswerFuture(asyncio.Future[Any]):
    """What a coroutine waits for. A task that does is continued as soon as the answer is there: a plain future would have it
    continue in the next round of the loop, and a round costs about as much as a statement."""

    task: tuple[Callable[[_AnswerFuture], object], Context] | None = None
    """How the task that waits is continued, and in which context."""

    def add_done_callback(self, fn: Callable[[_AnswerFuture], object], /, *, context: Context | None = None) -> None:
        # Of those that wait for futures, only tasks name the context.
        if context is None or self.task is not None or self.done():
            super().add_done_callback(fn, context=context)
        else:
            self.task = fn, context

    def cancel(self, msg: Any | None = None) -> bool:
        # Its task continues in the loop's next round, as with any future: whoever cancels it may be a task that runs now.
        if self.task is not None:
            (wake, context), self.task = self.task, None
            super().add_done_callback(wake, context=context)
        return super().cancel(msg)


@dataclass(slots=True, eq=False)
class Job:
    """One request, and what became of it."""

    request: Callable[..., Any]
    answer: _AnswerFuture
    outcome: Any = None
    error: BaseException | None = None
    withdrawn: bool = False


@dataclass(slots=True, eq=False)
class _JobBatch:
    """What was asked for in one round of a loop."""

    jobs: list[Job]
    deadline: float
    is_answered: bool = False
    has_second_chance: bool = False
    """Its deadline was put off once, because the loop itself was late."""


class Worker:
    """Hands batches of jobs to `carry_out`, which fills in the outcome or the error of each."""

    def __init__(
        self,
        name: str,
        carry_out: Callable[[Sequence[Job]], None],
        between: Callable[[], bool] = lambda: False,
        *,
        title: str = "The store",
        advice: str = "check its disk, and who else has it open",
        limit: float = LIMIT_SECONDS,
    ) -> None:
        """`between` is one short step of something else, for when nobody waits; whether there is more of it to do. `title`
        begins the sentences about it; `advice` ends the one that it does not answer."""
        self._carry_out = carry_out
        self._between = between
        self._title = title
        self._limit = limit
        self._hung: _JobBatch | None = None
        """The newest round that was given up. As long as it has no answer, the thread hangs."""
        self._unavailable = f"{title} has not answered for {limit:g} seconds; {advice}."
        self.timeouts = 0
        """How many requests were answered with that they took too long."""
        self._any_withdrawn = False
        self._last: _JobBatch | None = None
        """What was handed over last. One request in it, and answered: requests come one at a time."""
        self._waiting: queue.SimpleQueue[_JobBatch | None] = queue.SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        self._watched: dict[asyncio.AbstractEventLoop, deque[_JobBatch]] = {}
        # A daemon: a process that ends without `close()` ends, and loses only what nobody believes to be stored.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        _ALL.add(self)

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        rounds = [one for watched in list(self._watched.values()) for one in list(watched)]
        gathered = sum(len(jobs) for jobs in list(self._gathered.values()))
        return gathered + sum(len(one.jobs) for one in rounds if not one.is_answered)

    def submit(self, request: Callable[..., T]) -> asyncio.Future[T]:
        """Ask for something. Everything that is asked for in one round of the loop is handed over, and carried out, together:
        handed over one by one, the first would have a commit for itself while all others wait for the next."""
        if self._hung is not None and not self._hung.is_answered:
            self.timeouts += 1
            raise StoreUnavailable(self._unavailable)
        loop = asyncio.get_running_loop()
        job = Job(request, _AnswerFuture(loop=loop))
        # Others ask in the same round of the loop. They share the commit that the first of them has called for.
        gathered = self._gathered.get(loop)
        if gathered is not None:
            gathered.append(job)
            return job.answer
        self._gathered[loop] = [job]
        last = self._last
        if last is None or (last.is_answered and len(last.jobs) == 1):
            self.hand_over(loop)  # nobody asks at the same time, so there is nothing to wait for
        else:
            loop.call_soon(self.hand_over, loop)
        return job.answer

    def hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the thread what this loop has asked for."""
        jobs = self._gathered.pop(loop, None)
        if not jobs:
            return
        asked = self._last = _JobBatch(jobs, time.monotonic() + self._limit)
        watched = self._watched.get(loop)
        if watched is None:
            # A loop that was closed, by `asyncio.run` for instance, never calls `_watch`, and would stay here.
            for closed in [one for one in self._watched if one.is_closed()]:
                del self._watched[closed]
            watched = self._watched[loop] = deque()
            loop.call_later(self._limit, self._watch, loop, asked.deadline)
        while watched and watched[0].is_answered:
            watched.popleft()
        watched.append(asked)
        self._waiting.put(asked)

    def stop(self) -> bool:
        """Carry out what waits, then end; whether it did within the limit. Blocks."""
        self._waiting.put(None)
        hangs = self._hung is not None and not self._hung.is_answered
        self._thread.join(0 if hangs else self._limit)
        if self._thread.is_alive():
            _log.error("%s is left unclosed: what was asked of it last has no answer", self._title)
            return False
        return True

    def _watch(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """In the loop: tell those who have waited too long, and look again when the next would have."""
        watched = self._watched[loop]
        now = time.monotonic()
        if now > due + _LATE_SECONDS:
            for asked in watched:
                if not asked.has_second_chance:
                    asked.has_second_chance = True
                    asked.deadline = max(asked.deadline, now + _SECOND_CHANCE_SECONDS)
        try:
            while watched and (watched[0].is_answered or watched[0].deadline <= now):
                asked = watched.popleft()
                if not asked.is_answered:
                    self._give_up(asked)
        finally:  # a task that gets its answer may end this round of the loop
            if watched:
                loop.call_later(watched[0].deadline - now, self._watch, loop, watched[0].deadline)
            else:
                del self._watched[loop]

    def _give_up(self, asked: _JobBatch) -> None:
        if self._hung is None:
            _log.error("%s", self._unavailable)
        self._hung, self._any_withdrawn = asked, True
        for job in asked.jobs:
            # The caller has its answer, which says that nothing is known; what is not begun yet must not happen after it.
            job.withdrawn = True
        late = [job for job in asked.jobs if not job.answer.done()]
        self.timeouts += len(late)
        # The thread may yet fill in what became of them.
        _settle(iter([Job(job.request, job.answer, error=StoreUnavailable(self._unavailable)) for job in late]))

    def leave(self) -> None:
        """In a forked child, which has no such thread."""
        self._unavailable = (
            f"{self._title} was opened by the process that this one was forked from, and cannot be used here; "
            "start processes by spawning them."
        )
        self._hung = _JobBatch([], 0)
        self._gathered, self._watched = {}, {}

    def _work(self) -> None:
        going = True
        while going:
            rounds: list[_JobBatch] = []
            asked, size = self._waiting.get(), 0
            while asked is not None:
                rounds.append(asked)
                size += len(asked.jobs)
                if size >= _LARGEST_BATCH or self._waiting.empty():  # nobody else takes from it
                    break
                asked = self._waiting.get()
            going = asked is not None
            batch = rounds[0].jobs if len(rounds) == 1 else [job for asked in rounds for job in asked.jobs]
            if self._any_withdrawn:
                batch = [job for job in batch if not job.withdrawn]
            if batch:
                try:
                    self._carry_out(batch)
                except BaseException as error:  # noqa: BLE001 - the thread must outlive a bug: each caller gets an error instead
                    for job in batch:
                        job.error = StoreUnavailable(f"The store failed in a way nobody foresaw ({error!r}).")
            for asked in rounds:
                asked.is_answered = True
            # One wake-up for each loop and batch: waking a loop costs a write to its pipe.
            loops = {asked.jobs[0].answer.get_loop() for asked in rounds}
            for loop in loops:
                mine = batch if len(loops) == 1 else [job for job in batch if job.answer.get_loop() is loop]
                with contextlib.suppress(RuntimeError):  # it was closed while we worked: nobody waits there any more
                    loop.call_soon_threadsafe(_settle, iter(mine))
            if self._hung is not None and self._hung.is_answered:
                self._hung = None
                _log.warning("%s answers again", self._title)
            try:
                # Only after a commit and while nobody waits, one short step at a time.
                while going and batch and self._waiting.empty() and self._between():
                    pass
            except Exception as error:  # noqa: BLE001 - what nobody waits for must not end the thread that everybody waits for
                _log.error("What the store does between two writes failed and is given up", exc_info=error)
                self._between = lambda: False


def _settle(jobs: Iterator[Job]) -> None:
    """In their loop, outside of any task: those who wait and have no answer yet get it."""
    for job in jobs:
        answer = job.answer
        if answer.done():
            continue
        if job.error is not None:
            answer.set_exception(job.error)
        else:
            answer.set_result(job.outcome)
        if answer.task is None:
            continue
        (wake, context), answer.task = answer.task, None
        try:
            context.run(wake, answer)
        except BaseException:
            # What a task passes on ends this round of the loop; the others have their answers in the next one.
            answer.get_loop().call_soon(_settle, jobs)
            raise


_ALL: weakref.WeakSet[Worker] = weakref.WeakSet()


def _in_forked_child() -> None:
    for worker in list(_ALL):
        worker.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
