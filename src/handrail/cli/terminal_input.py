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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from handrail.cli.output import warn

try:
    import termios
except ImportError:  # Windows has no terminal of this kind
    termios = None  # type: ignore[assignment]

QUIET_SECONDS = 0.5
"""Nobody has read a question sooner than this; what comes earlier was on its way before."""
PATIENCE_SECONDS = 10.0
"""Input that goes on for so long is no person who is about to answer."""
_LOOK_SECONDS = 0.02
_READ_BYTES = 65_536
_MAX_READS = 64
"""At one look, so that a flood does not hold the event loop."""
NOT_ASKED = "Input goes on and on, so the question is not asked and the answer is no."
DROPPED = "(What was typed before this question is dropped.)"
MORE_CAME = "(More was typed right after the answer, as in a paste, so it does not count.)"


def is_yes(answer: str) -> bool:
    return answer.strip().lower() in ("y", "yes")


def confirm(question: str) -> bool:
    """Ask on the terminal; for commands that run no event loop."""
    return asyncio.run(ask_person("", question))


async def ask_person(shown: str, question: str) -> bool:
    """Show a text, ask a question about it on standard error, and wait for the answer: whether it is yes."""
    source = sys.stdin.fileno()
    while True:
        if shown:
            warn(shown)
        sys.stderr.flush()
        if not await drop_until_quiet(source, lambda: drain(source)):
            warn(NOT_ASKED)
            return False
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if not is_yes(sys.stdin.readline()):
            return False
        if not await follows_at_once(source, lambda: drain(source)):
            return True
        warn(MORE_CAME)


async def drop_until_quiet(source: int, take: Callable[[], int]) -> bool:
    """Wait until nothing has come for half a second; False if that does not happen. `take` drops what has come meanwhile, and
    says how many bytes it was."""
    now = asyncio.get_running_loop().time
    begun = last = now()
    with _every_key(source):
        while now() - last < QUIET_SECONDS:
            if now() - begun > PATIENCE_SECONDS:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
            if take():
                last = now()
        take()
    return True


async def follows_at_once(source: int, take: Callable[[], int]) -> bool:
    """Whether more comes faster than a person types, after an answer."""
    with _every_key(source):
        await asyncio.sleep(5 * _LOOK_SECONDS)
        return take() > 0


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
