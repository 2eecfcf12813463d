"""Work that must happen in the order in which it was asked for, beside the path of sound: turns, connections, calls' starts.

What the model tells is heard without waiting, but a turn has to be stored before a call of it starts, and a connection be known
to the session before a call that was made on it. So those steps stand in one line, and sound does not stand in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Step: TypeAlias = Callable[[], Awaitable[None]]


class OrderedSteps:
    """One line of steps. `failed` is told of a step that raised; the line goes on."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._steps: deque[Step] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.get_running_loop().create_task(self._work())

    def put(self, step: Step) -> None:
        self._steps.append(step)
        self._idle.clear()
        self._arrived.set()

    async def empty(self) -> None:
        """Wait until all steps are done."""
        await self._idle.wait()

    async def close(self) -> None:
        """Stop; steps that wait are not done any more."""
        self._task.cancel()
        if self._task is not asyncio.current_task():
            await asyncio.gather(self._task, return_exceptions=True)
        self._steps.clear()
        self._idle.set()

    async def _work(self) -> None:
        while True:
            while self._steps:
                step = self._steps.popleft()
                try:
                    await step()
                except Exception as error:  # noqa: BLE001  # whatever it is, the conversation decides
                    self._failed(error)
            self._idle.set()
            self._arrived.clear()
            await self._arrived.wait()
