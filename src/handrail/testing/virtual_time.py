"""A whole conversation in virtual time: an event loop that jumps to the next moment at which there is something to do.

`run_virtually` plays a coroutine so. Whatever waits on the loop (`asyncio.sleep`, timeouts, `LoopClock`) takes no time and keeps
its order, so that the same play gives the same result each time. It is for plays without sockets: nobody outside lives in
that time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_START = 1_800_000_000.0
_ROUND = 1e-9


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing: what the loop would have waited is added to its time instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("Everything waits for something that cannot happen in virtual time.")
        # A round takes some time too, or whoever waits for less than the clock can tell would wait for ever.
        self.now += max(timeout, _ROUND)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module's docstring. Work for threads is done at once, in the loop's own: threads know no virtual time."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever waits for it is told
            done.set_exception(error)
        return done


class LoopClock:
    """The runtime's clock on the time of the running loop."""

    def __init__(self, start: float = _START) -> None:
        self._start = start

    def time(self) -> float:
        return self._start + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def milliseconds(self) -> int:
        """For a memory store."""
        return int(self.time() * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtually(play: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(play)
