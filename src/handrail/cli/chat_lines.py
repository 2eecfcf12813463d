"""The lines that a person types, or a program pipes in, without holding the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from threading import Thread

MOST_LINE_BYTES = 256 * 1024


class Lines:
    """Lines of standard input, or of `given`. `next` is None at the end."""

    def __init__(self, given: Iterable[str] | None = None) -> None:
        self._given = None if given is None else list(given)
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._reader: Thread | None = None
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
        return await self._queue.get()

    def _read(self, loop: asyncio.AbstractEventLoop, source: int) -> None:
        pending = b""
        while True:
            try:
                raw = os.read(source, 65_536)
            except OSError:
                raw = b""
            pending += raw
            *whole, pending = pending.split(b"\n")
            if len(pending) > MOST_LINE_BYTES:
                whole, pending = [*whole, pending], b""
            if not raw and pending:
                whole.append(pending)
            for line in whole:
                self._put(loop, line.decode("utf-8", "replace").rstrip("\r"))
            if not raw:
                self._put(loop, None)
                return

    def _put(self, loop: asyncio.AbstractEventLoop, line: str | None) -> None:
        try:
            loop.call_soon_threadsafe(self._queue.put_nowait, line)
        except RuntimeError:
            return  # the conversation is over
