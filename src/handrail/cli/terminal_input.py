"""Questions to the person at the terminal, which only input given after them answers.

Text that is pasted may hold an answer to a question that nobody has read yet, and a terminal hands over a long paste in many
pieces. So whatever arrives is dropped until nothing has come for half a second, and only then the question is asked. A terminal
normally hands over whole lines, so meanwhile it is switched to hand over every key.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress

from handrail.cli.output import warn

try:
    import termios
except ImportError:  # Windows has no terminal of this kind
    termios = None  # type: ignore[assignment]

QUIET_SECONDS = 0.5
"""Nobody has read a question sooner than this; what comes earlier was on its way before."""
PATIENCE_SECONDS = 10.0
"""Input that continues for so long is no person who is about to answer."""
_LOOK_SECONDS = 0.02
_FOLLOWING_LOOKS = 20
"""No person types another line within these 0.4 seconds, and a busy machine hands over the rest of a paste."""
_READ_BYTES = 65_536
_MAX_READS = 64
"""At one look, so that a flood does not hold the event loop."""
NOT_ASKED = "Input does not stop coming, so the question is not asked and the answer is no."
DROPPED = "(What was typed before this question is dropped.)"
MORE_CAME = "(More was typed right after the answer, as in a paste, so it does not count.)"


def is_yes(answer: str) -> bool:
    return answer.strip().lower() in ("y", "yes")


def confirm(question: str, shown: str = "") -> bool:
    """Show a text, ask a question about it on standard error, and wait for the answer: whether it is yes. Nothing else runs on
    this thread meanwhile."""
    source = sys.stdin.fileno()

    def take() -> int:
        return drain(source)

    while True:
        if shown:
            warn(shown)
        sys.stderr.flush()
        if not _finish(_dropping(source, take)):
            warn(NOT_ASKED)
            return False
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if not is_yes(sys.stdin.readline()):
            return False
        if not _finish(_following(source, take)):
            return True
        warn(MORE_CAME)


async def drop_until_quiet(source: int, take: Callable[[], int]) -> bool:
    """Wait until nothing has come for half a second; False if that does not happen. `take` drops what has come meanwhile, and
    says how many bytes it was."""
    return await _finish_beside_others(_dropping(source, take))


async def follows_at_once(source: int, take: Callable[[], int]) -> bool:
    """Whether more comes faster than a person types, after an answer."""
    return await _finish_beside_others(_following(source, take))


# Each gives the seconds that it waits for, because some callers wait in an event loop and some have none.
_Waiting = Generator[float, None, bool]


def _dropping(source: int, take: Callable[[], int]) -> _Waiting:
    begun = last = time.monotonic()
    with _every_key(source):
        while time.monotonic() - last < QUIET_SECONDS:
            if time.monotonic() - begun > PATIENCE_SECONDS:
                return False
            yield _LOOK_SECONDS
            if take():
                last = time.monotonic()
        take()
    return True


def _following(source: int, take: Callable[[], int]) -> _Waiting:
    with _every_key(source):
        for _ in range(_FOLLOWING_LOOKS):
            yield _LOOK_SECONDS
            if take():
                return True
        return False


def _finish(waiting: _Waiting) -> bool:
    with closing(waiting):
        while True:
            try:
                time.sleep(next(waiting))
            except StopIteration as end:
                return bool(end.value)


async def _finish_beside_others(waiting: _Waiting) -> bool:
    with closing(waiting):
        while True:
            try:
                seconds = next(waiting)
            except StopIteration as end:
                return bool(end.value)
            await asyncio.sleep(seconds)


def drain(source: int) -> int:
    """Read what waits on a terminal, and drop it; how many bytes it was."""
    total = 0
    for _ in range(_MAX_READS):
        if not select.select([source], [], [], 0)[0]:
            break
        try:
            read = len(os.read(source, _READ_BYTES))
        except OSError:
            break
        if not read:
            break
        total += read
    return total


@contextmanager
def _every_key(source: int) -> Iterator[None]:
    """The terminal hands over each key at once and does not show it; Ctrl-C still works."""
    if termios is None or not os.isatty(source):
        yield
        return
    try:
        before = termios.tcgetattr(source)
        changed = [*before[:3], before[3] & ~(termios.ICANON | termios.ECHO), *before[4:]]
        termios.tcsetattr(source, termios.TCSANOW, changed)
    except termios.error:  # the terminal is gone
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal went away; there is nothing to restore
            termios.tcsetattr(source, termios.TCSANOW, before)
