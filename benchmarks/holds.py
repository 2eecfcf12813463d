"""How long an event loop is held: a task that wants to run every millisecond notices when it cannot.

On a busy machine it also waits for a processor, which is nobody's fault here. Where the system counts that wait for each thread
(Linux, schedstat), it is taken off. Beside it, a process that does nothing else ticks in the same way and shows what the
machine does to everybody.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_TICK = 0.001


@dataclass
class Holds:
    """Milliseconds beyond each tick: `seen` on the clock, `own` without the wait for a processor; and the idle process's most.

    `used` is what the whole process computed in that time. A long hold in which it computed little was a thread that had the
    interpreter and waited for a processor itself, or somebody who waited for a disk.
    """

    seen: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    idle: float = 0.0

    @property
    def longest(self) -> float:
        return max(self.own, default=0.0)

    @property
    def note(self) -> str:
        seen = max(self.seen, default=0.0)
        used = max(zip(self.own, self.used, strict=True), default=(0.0, 0.0))[1]
        return (
            f"{seen:.1f} ms with the waits for a processor; in the longest {used:.1f} ms were computed; an idle process saw "
            f"{self.idle:.1f} ms"
        )


@asynccontextmanager
async def watched_loop() -> AsyncIterator[Holds]:
    """Ticks in the running loop, and in an idle process, as long as the body runs."""
    holds = Holds()
    idle = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.holds", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert idle.stdout is not None
    await idle.stdout.readline()  # it ticks
    over = asyncio.Event()
    ticking = asyncio.create_task(_tick(holds, over))
    await asyncio.sleep(0)  # it has begun when the body does
    try:
        yield holds
    finally:
        over.set()
        await ticking  # to the end of a tick: a hold at the last moment counts as well
        out, _ = await idle.communicate(b"")  # closes its input, at which it ends
        holds.idle = float(out)


async def _tick(holds: Holds, over: asyncio.Event) -> None:
    waited = _run_delay()
    while not over.is_set():
        before, computed, started = waited(), time.process_time(), time.perf_counter()
        await asyncio.sleep(_TICK)
        late = 1000 * (time.perf_counter() - started - _TICK)
        holds.seen.append(late)
        holds.own.append(late - (waited() - before))
        holds.used.append(1000 * (time.process_time() - computed))


def _run_delay() -> Callable[[], float]:
    """A function that tells how many milliseconds this thread has waited for a processor so far; 0 where nobody counts."""
    try:
        file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    except OSError:
        return lambda: 0.0
    return lambda: int(os.pread(file, 100, 0).split()[1]) / 1e6


def _idle() -> None:
    """Tick until nobody listens any more, then say what was the most."""
    print("ticking", flush=True)
    most = 0.0
    while not select.select([sys.stdin], [], [], 0)[0]:
        started = time.perf_counter()
        time.sleep(_TICK)
        most = max(most, 1000 * (time.perf_counter() - started - _TICK))
    print(most)


if __name__ == "__main__":
    _idle()
