"""The lines that a person types, or a program pipes in, without holding the event loop.

An answer to a question must have been given after it was shown (`terminal_input`). So what was typed, pasted or read before can
be dropped: in the terminal's own buffer, in a line that is not complete, and among the lines that wait here.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Iterable
from threading import Lock, Thread

from handrail.cli import terminal_input

MAX_LINE_BYTES = 256 * 1024
MAX_TIMES = 5
"""So often a request whose facts keep changing is approved by `--yes`."""


class Lines:
    """Lines of standard input, or of `given`. `next` is None at the end."""

    def __init__(self, given: Iterable[str] | None = None) -> None:
        self._given = None if given is None else list(given)
        self._queue: asyncio.Queue[tuple[int, str | None]] = asyncio.Queue()
        self._reader: Thread | None = None
        self._reading = Lock()
        """Held while something is read or dropped."""
        self._pending = b""
        self._arrived = 0
        """Bytes that were read since the last look."""
        self._dropped = 0
        """How often what was there was dropped: a line that was read before the last time does not count."""
        self.terminal = given is None and sys.stdin.isatty()

    async def next(self) -> str | None:
        """The next line, without its end; None if there is no more."""
        if self._given is not None:
            return self._given.pop(0) if self._given else None
        if self._reader is None:
            loop = asyncio.get_running_loop()
            # A daemon that reads the descriptor itself: it holds no lock when the process ends in the middle of a line.
            self._reader = Thread(target=self._read, args=(loop, sys.stdin.fileno()), daemon=True)
            self._reader.start()
        while True:
            dropped, line = await self._queue.get()
            if line is None or dropped == self._dropped:
                return line

    async def drop_until_quiet(self) -> tuple[bool, bool]:
        """Drop what was typed on the terminal, until nothing has come for a moment: whether that happened, and whether something
        was dropped that was seen."""
        waited = self._drop()
        source = sys.stdin.fileno()
        is_quiet = await terminal_input.drop_until_quiet(source, self._take)
        return is_quiet, self._drop() or waited

    async def more_follows(self) -> bool:
        """Whether more is typed right after the last line, faster than a person types."""
        self._take()
        return not self._queue.empty() or await terminal_input.follows_at_once(sys.stdin.fileno(), self._take)

    def _take(self) -> int:
        """How many bytes have come since the last look. Those that nobody has read yet are dropped."""
        with self._reading:
            arrived, self._arrived = self._arrived + terminal_input.drain(sys.stdin.fileno()), 0
        return arrived

    def _drop(self) -> bool:
        """Drop what was read until now; whether there was anything."""
        with self._reading:
            had_some = bool(self._pending)
            self._pending = b""
            self._dropped += 1
        ended = False
        while not self._queue.empty():
            _, line = self._queue.get_nowait()
            had_some, ended = had_some or bool(line), ended or line is None
        if ended:
            self._queue.put_nowait((self._dropped, None))
        return had_some

    def _read(self, loop: asyncio.AbstractEventLoop, source: int) -> None:
        while True:
            if self.terminal:
                select.select([source], [], [])
            with self._reading:
                if self.terminal and not select.select([source], [], [], 0)[0]:
                    continue  # it was dropped
                try:
                    raw = os.read(source, 65_536)
                except OSError:
                    raw = b""
                self._arrived += len(raw)
                *whole, self._pending = (self._pending + raw).split(b"\n")
                if len(self._pending) > MAX_LINE_BYTES or (not raw and self._pending):
                    whole, self._pending = [*whole, self._pending], b""
                for line in whole:
                    self._put(loop, line.decode("utf-8", "replace").rstrip("\r"))
            if not raw:
                self._put(loop, None)
                return

    def _put(self, loop: asyncio.AbstractEventLoop, line: str | None) -> None:
        try:
            loop.call_soon_threadsafe(self._queue.put_nowait, (self._dropped, line))
        except RuntimeError:
            return  # the conversation is over
