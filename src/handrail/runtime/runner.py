"""Running a handler: with its deadline, cancellable, plain functions in a bounded pool of threads.

A coroutine that never waits is driven to its end directly; only one that waits pays for a timer. The deadline is hard: the
answer goes out then, whether or not the handler obeys its cancellation. One that still runs is left to itself: a coroutine in a
task of its own, a plain function in its thread. What it comes to is recorded by whoever asked for it, and not delivered. Such
stragglers are counted, and a tool that has too many takes no further calls until one of them ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextvars import copy_context
from time import perf_counter
from typing import Any

from handrail.registry.handlers import Handler
from handrail.runtime.call_attempt import Attempt
from handrail.runtime.context import Context
from handrail.runtime.workers import Workers

_LOG = logging.getLogger("handrail.runtime")
_GRACE_SECONDS = 0.1
"""So long after its deadline a handler may still be ending, before it counts as one that continues."""
_MAX_HUNG_HOOKS = 2
"""Of one hook: each of them keeps a thread."""


class DeadlinePassed(TimeoutError):
    """The handler ran into its deadline. Its own `TimeoutError`s are something else."""


class NotStarted(DeadlinePassed):
    """The deadline passed before a worker was free: the handler has done nothing, and will not."""


OnLate = Callable[[Attempt, "asyncio.Future[Any]"], None]
OnStraggler = Callable[[str, int], None]
"""Told of a tool and how many of its handlers continue after their deadlines, whenever that number changes."""
_Leave = Callable[[Any, Coroutine[Any, Any, Any], Any], None]
_NEW: Any = object()
"""In place of what a coroutine waits for: its first step was not taken yet."""


class Runner:
    """Invokes handlers for one runtime. `on_late` is told of a handler that continues after it was given up."""

    __slots__ = (
        "_hung_hooks",
        "_limit",
        "_on_late",
        "_on_straggler",
        "_outliving",
        "_pool",
        "_stragglers",
        "_workers",
        "crowded",
    )

    def __init__(self, workers: int, on_late: OnLate, on_straggler: OnStraggler) -> None:
        self._workers = workers
        self._on_late = on_late
        self._on_straggler = on_straggler
        self._pool: Workers | None = None
        self._hung_hooks: dict[Callable[..., Any], set[Future[Any]]] = {}
        # A quarter of the workers: two or three tools that hang leave threads for the others.
        self._limit = max(1, workers // 4)
        self._outliving: dict[asyncio.Future[Any], Attempt] = {}
        """Handlers that continue although nobody waits for them any more."""
        self._stragglers: dict[str, int] = {}
        """How many of each tool do so after their deadlines."""
        self.crowded: dict[str, int] = {}
        """Tools of which as many handlers as may be continue after their deadlines, and how many those are."""

    def start(self, attempt: Attempt, context: Context) -> Awaitable[Any]:
        """What a handler returns that is no coroutine function, or could not be loaded before."""
        handler = attempt.plan.tool.handler
        if handler.is_async:
            return self.waits(attempt, handler.execute(attempt.args, context), _NEW)
        return self._in_thread(attempt, handler, context)

    def waits(self, attempt: Attempt, coroutine: Coroutine[Any, Any, Any], waiting: Any) -> Awaitable[Any]:
        """The rest of a handler that has taken its first step, and waits for this."""
        return self._rest(attempt, coroutine, waiting, attempt.plan.timeout)

    def failed(self, error: BaseException) -> Awaitable[Any]:
        """What is left of a handler that has raised this in its first step."""
        return _raised(error)

    async def call_hook(self, hook: Callable[..., Any], args: Any, context: Context, seconds: float) -> Any:
        """A tool's `preview` or `reconcile`; `TimeoutError` if it takes longer than this, whatever it does then, or at once if
        several of its earlier calls still hang in threads, which other tools need, too."""
        limit = asyncio.timeout(seconds)
        if inspect.iscoroutinefunction(hook):
            async with limit:
                return await _resume(hook(args, context), _NEW, limit, _leave_hook, hook)
        hung = self._hung_hooks[hook] = {one for one in self._hung_hooks.get(hook, ()) if not one.done()}
        if len(hung) >= _MAX_HUNG_HOOKS:
            raise TimeoutError(f"{len(hung)} earlier calls of it still hang")
        # A plain function holds its thread until it ends, whatever the limit says; so such calls are counted above.
        work = self.pool.submit(hook, args, context)
        try:
            async with limit:
                return await asyncio.wrap_future(work)
        finally:
            self.pool.give_up(work)
            if not work.done():
                hung.add(work)

    @property
    def pool(self) -> Workers:
        if self._pool is None:
            self._pool = Workers(self._workers)
        return self._pool

    def outliving(self) -> list[Attempt]:
        """The calls whose handlers continue although nobody waits for them any more."""
        return list(self._outliving.values())

    def close(self) -> None:
        """Nothing is begun any more, and nothing that continues keeps the loop or the process from ending."""
        if self._pool is not None:
            self._pool.shutdown()
        for future in self._outliving:
            if isinstance(future, asyncio.Task):
                # Otherwise `asyncio.run` would wait for, or warn of, a task that by its nature does not end.
                asyncio._unregister_task(future)  # documented, for those who keep tasks of their own
                future._log_destroy_pending = False  # type: ignore[attr-defined]  # whoever closes us has named it

    async def _in_thread(self, attempt: Attempt, handler: Handler, context: Context) -> Any:
        execute, args = handler.execute, attempt.args
        started, seconds = perf_counter(), attempt.plan.timeout
        # In the caller's context, so that what the function traces or logs belongs to this call.
        run = copy_context().run
        work = self.pool.submit(lambda: run(execute, args, context))
        future = asyncio.wrap_future(work)
        try:
            # The thread continues whatever happens to us; shielding keeps its late result from being thrown away unseen.
            result = await self._rest(attempt, _awaited(asyncio.shield(future)), _NEW, seconds)
        except (TimeoutError, asyncio.CancelledError) as error:
            if future.done() and not future.cancelled():
                raise  # what the function itself raised
            # Still in the queue: nothing has happened, which is another answer than that of a deadline.
            if work.cancel():
                if isinstance(error, DeadlinePassed):
                    raise NotStarted from None
            else:
                self._outlives(attempt, future, lambda: self.pool.give_up(work))
            raise
        if not inspect.isawaitable(result):
            return result
        # A plain wrapper around a coroutine function gives back a coroutine: the work is still to be done.
        return await self._rest(attempt, _awaited(result), _NEW, seconds - (perf_counter() - started))

    async def _rest(self, attempt: Attempt, coroutine: Coroutine[Any, Any, Any], waiting: Any, seconds: float) -> Any:
        running = attempt.session.running
        task = running[attempt] = asyncio.current_task()
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                result = await _resume(coroutine, waiting, limit, self._leave, attempt)
        except TimeoutError as error:
            # A handler's own `TimeoutError`, from a request that it made, is no deadline of ours.
            if limit.expired() and type(error) is TimeoutError:
                raise DeadlinePassed from error
            raise
        finally:
            running.pop(attempt, None)
        if attempt.interrupted and task is not None and task.cancelling():
            task.uncancel()  # the handler has heard of the interruption, and finished all the same
        return result

    def _leave(self, attempt: Attempt, coroutine: Coroutine[Any, Any, Any], waiting: Any) -> None:
        """A coroutine that does not end at its deadline continues in a task of its own."""
        self._outlives(attempt, asyncio.get_running_loop().create_task(_alone(coroutine, waiting)))

    def _outlives(
        self, attempt: Attempt, future: asyncio.Future[Any], give_up: Callable[[], None] = lambda: None
    ) -> None:
        self._outliving[future] = attempt
        future.add_done_callback(self._outliving.pop)
        self._on_late(attempt, future)
        # A moment of grace after the deadline: most handlers end at once when they are cancelled, and are no stragglers.
        left = attempt.plan.timeout - (perf_counter() - attempt.started)
        asyncio.get_running_loop().call_later(max(0.0, left) + _GRACE_SECONDS, self._count, attempt, future, give_up)

    def _count(self, attempt: Attempt, future: asyncio.Future[Any], give_up: Callable[[], None]) -> None:
        if future.done():
            return
        give_up()
        tool = attempt.plan.tool_id
        running = self._stragglers[tool] = self._stragglers.get(tool, 0) + 1
        future.add_done_callback(lambda _: self._ended(tool))
        _LOG.warning(
            "%s still runs after its deadline of %g ms (call %s of session %s); %d of its handlers do so now",
            tool,
            attempt.plan.timeout * 1000,
            attempt.call.call_id,
            attempt.session.id,
            running,
        )
        if running >= self._limit:
            if tool not in self.crowded:
                _LOG.error("%s takes no further calls until one of its %d stragglers ends", tool, running)
            self.crowded[tool] = running
        self._on_straggler(tool, running)

    def _ended(self, tool: str) -> None:
        running = self._stragglers[tool] = self._stragglers[tool] - 1
        if running < self._limit and self.crowded.pop(tool, None) is not None:
            _LOG.warning("%s takes calls again", tool)
        self._on_straggler(tool, running)
        if not running:
            del self._stragglers[tool]


async def _raised(error: BaseException) -> Any:
    raise error


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


async def _alone(coroutine: Coroutine[Any, Any, Any], waiting: Any) -> Any:
    return await _resume(coroutine, waiting)


def _leave_hook(hook: Callable[..., Any], coroutine: Coroutine[Any, Any, Any], waiting: Any) -> None:
    """A hook that does not end in time continues; nobody asks what it came to."""
    _LOG.warning("%s of %s still runs after its time", hook.__name__, hook.__module__)
    task = asyncio.get_running_loop().create_task(_alone(coroutine, waiting))
    _HOOKS.add(task)
    task.add_done_callback(_hook_ended)


def _hook_ended(task: asyncio.Task[Any]) -> None:
    _HOOKS.discard(task)
    if not task.cancelled() and task.exception() is not None:
        _LOG.info("A hook that had not ended in time has failed: %r", task.exception())


_HOOKS: set[asyncio.Task[Any]] = set()
"""Those that continue; a loop holds its tasks weakly."""
_Future = asyncio.Future


@types.coroutine
def _resume(
    coroutine: Coroutine[Any, Any, Any],
    waiting: Any,
    limit: asyncio.Timeout | None = None,
    leave: _Leave | None = None,
    subject: Any = None,
) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that waits for this, as something to await.

    One that `limit` has cancelled, and that waits for something all the same, is given to `leave`. What it waits for may not
    obey a cancellation at once either, as a task may not; so tasks are waited for through a future of ours, which does.
    """
    try:
        if waiting is _NEW:
            waiting = coroutine.send(None)
        while True:
            direct = type(waiting) is _Future or not isinstance(waiting, _Future)
            try:
                sent = (yield waiting) if direct else (yield from _over(waiting))
            except BaseException as error:  # whatever the loop throws is passed on to the handler
                if direct or not isinstance(error, asyncio.CancelledError):
                    waiting = coroutine.throw(error)
                else:
                    # The handler hears of the cancellation when what it waits for has ended, as it would without us.
                    waiting.cancel()
                if limit is not None and leave is not None and limit.expired():
                    leave(subject, coroutine, waiting)
                    raise
            else:
                waiting = coroutine.send(sent)
    except StopIteration as done:
        return done.value


def _over(waiting: asyncio.Future[Any]) -> Generator[Any, Any, Any]:
    """Until this has ended, without taking part in its cancellation."""
    waiting._asyncio_future_blocking = False  # as the task does that is given it
    ended = waiting.get_loop().create_future()

    def wake(_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    waiting.add_done_callback(wake)
    try:
        yield from ended
    finally:
        waiting.remove_done_callback(wake)
