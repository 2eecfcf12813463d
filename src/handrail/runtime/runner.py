"""Running a handler: with its deadline, cancellable, plain functions in a bounded pool of threads.

A coroutine that never waits is driven to its end directly; only one that waits pays for a timer. A plain function cannot
be stopped: after its deadline its late result is recorded by whoever asked for it, and not delivered.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from handrail.registry.handlers import Handler
from handrail.runtime.attempt import Attempt
from handrail.runtime.context import Context


class DeadlinePassed(TimeoutError):
    """The handler ran into its deadline. Its own `TimeoutError`s are something else."""


class NotStarted(DeadlinePassed):
    """The deadline passed before a worker was free: the handler has done nothing, and will not."""


Started = tuple[bool, Any]
"""What came of starting a handler: (True, what it returned), or (False, an awaitable of that)."""
OnLate = Callable[[Attempt, "asyncio.Future[Any]"], None]


class Runner:
    """Invokes handlers for one runtime. `on_late` is told of a plain function that goes on after it was given up."""

    __slots__ = ("_on_late", "_pool", "_workers")

    def __init__(self, workers: int, on_late: OnLate) -> None:
        self._workers = workers
        self._on_late = on_late
        self._pool: ThreadPoolExecutor | None = None

    def start(self, attempt: Attempt, context: Context) -> Started:
        """(True, what the handler returned), or (False, an awaitable of that) if it waits or fails.

        Only the awaitable raises: the handler's own exception, or `DeadlinePassed`.
        """
        execute = attempt.plan.start
        try:
            if execute is not None:
                coroutine = execute(attempt.args, context)
            else:
                handler = attempt.plan.tool.handler
                if not handler.is_async:
                    return False, self._in_thread(attempt, handler, context)
                coroutine = _coroutine(handler, attempt.args, context)
            waiting = coroutine.send(None)
        except StopIteration as done:
            return True, done.value
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is raised where the outcome is awaited
            return self.failed(error)
        return self.waits(attempt, coroutine, waiting)

    def waits(self, attempt: Attempt, coroutine: Coroutine[Any, Any, Any], waiting: Any) -> Started:
        """A handler that has taken its first step, and waits for this."""
        return False, self._rest(attempt, _resume(coroutine, waiting))

    def failed(self, error: BaseException) -> Started:
        """A handler that has raised this in its first step."""
        return False, _raised(error)

    async def call_hook(self, hook: Callable[..., Any], args: Any, context: Context, seconds: float) -> Any:
        """A tool's `preview` or `reconcile`; `TimeoutError` if it takes longer than this."""
        async with asyncio.timeout(seconds):
            if inspect.iscoroutinefunction(hook):
                return await hook(args, context)
            return await asyncio.get_running_loop().run_in_executor(self.pool, hook, args, context)

    @property
    def pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="handrail-tool")
        return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, attempt: Attempt, handler: Handler, context: Context) -> Any:
        assert handler.execute is not None
        execute, args = handler.execute, attempt.args
        if handler.kind == "directory":
            job: Callable[[], Any] = lambda: execute(args, context)  # noqa: E731
        elif handler.takes_context:
            job = lambda: execute(**args, ctx=context)  # noqa: E731
        else:
            job = lambda: execute(**args)  # noqa: E731
        work = self.pool.submit(job)
        future = asyncio.wrap_future(work)
        try:
            # The thread goes on whatever happens to us; shielding keeps its late result from being thrown away unseen.
            result = await self._rest(attempt, asyncio.shield(future))
            # A plain wrapper around a coroutine function gives back a coroutine: the work is still to be done.
            return await self._rest(attempt, result) if inspect.isawaitable(result) else result
        except (TimeoutError, asyncio.CancelledError) as error:
            if future.done() and not future.cancelled():
                raise  # what the function itself raised
            if work.cancel():
                if isinstance(error, DeadlinePassed):
                    raise NotStarted from None
            else:
                self._on_late(attempt, future)
            raise

    async def _rest(self, attempt: Attempt, waiting: Any) -> Any:
        running = attempt.session.running
        task = running[attempt] = asyncio.current_task()
        limit = asyncio.timeout(attempt.plan.timeout)
        try:
            async with limit:
                result = await waiting
        except TimeoutError as error:
            if limit.expired() and type(error) is TimeoutError:
                raise DeadlinePassed from error
            raise
        finally:
            running.pop(attempt, None)
        if attempt.interrupted and task is not None and task.cancelling():
            task.uncancel()  # the handler has heard of the interruption, and finished all the same
        return result


async def _raised(error: BaseException) -> Any:
    raise error


def _coroutine(handler: Handler, args: dict[str, Any], context: Context) -> Coroutine[Any, Any, Any]:
    if handler.component is not None:
        component = handler.component(args)
        component.ctx = context
        return component.run(args)
    assert handler.execute is not None
    if handler.kind == "directory":
        made: Coroutine[Any, Any, Any] = handler.execute(args, context)
    elif handler.takes_context:
        made = handler.execute(**args, ctx=context)
    else:
        made = handler.execute(**args)
    return made


@types.coroutine
def _resume(coroutine: Coroutine[Any, Any, Any], waiting: Any) -> Generator[Any, Any, Any]:
    """The rest of a coroutine whose first step was taken already, as something to await."""
    while True:
        try:
            sent = yield waiting
        except BaseException as error:  # noqa: BLE001  # whatever the loop throws goes on to the handler
            try:
                waiting = coroutine.throw(error)
            except StopIteration as done:
                return done.value
        else:
            try:
                waiting = coroutine.send(sent)
            except StopIteration as done:
                return done.value
