"""What a handler says while it runs, on its way to the client: bounded, sent by one writer, and never waited for for long.

A handler may speak from any thread, and faster than its client reads. Of what is not sent yet the newest is kept: one note on
the progress, which stands for all before it, and a few lines for the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Lock

_MAX_LINES = 20
_AT_ONCE, _PAUSE_SECONDS = 20, 0.1
"""How many notes are sent at once; then one after each pause."""
_LAST_SECONDS = 1.0
"""How long an answer waits for what was said before it."""
_LOG = logging.getLogger("handrail.mcp")


@dataclass(frozen=True, slots=True)
class ClientNote:
    """One thing to send. Of those that are `progress`, only the newest counts."""

    send: Callable[[], Awaitable[None]]
    is_progress: bool


class ClientNotes:
    """The notes of one call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = Lock()
        self._waiting: list[ClientNote] = []
        self._is_woken = False
        self._left = _AT_ONCE
        self._ending = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    def say(self, note: ClientNote) -> None:
        """From any thread, without waiting."""
        with self._lock:
            if self._ending.is_set():
                return
            same = [one for one in self._waiting if one.is_progress is note.is_progress]
            if len(same) >= (1 if note.is_progress else _MAX_LINES):
                self._waiting.remove(same[0])
            self._waiting.append(note)
            if self._is_woken:
                return
            self._is_woken = True
        self._loop.call_soon_threadsafe(self._wake)

    async def flush(self) -> None:
        """Send what was said until now, as far as the client takes it in time; what comes later is not sent."""
        with self._lock:
            self._ending.set()
            if not self._is_woken:
                return
        self._wake()
        writer = self._writer
        assert writer is not None
        try:
            await asyncio.wait({writer}, timeout=_LAST_SECONDS)
        finally:
            writer.cancel()
            with self._lock:  # what is said after `resume` has a writer of its own
                self._waiting.clear()
                self._is_woken, self._writer = False, None

    def resume(self) -> None:
        """Another request continues the call."""
        with self._lock:
            self._ending.clear()

    def _wake(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = self._loop.create_task(self._write())

    async def _write(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_woken = False
                    return
                note = self._waiting.pop(0)
            try:
                await note.send()
            except Exception as error:  # noqa: BLE001  # a client that has gone is no reason for its call to end
                _LOG.debug("A notification was not delivered: %s", error)
            await self._rest()

    async def _rest(self) -> None:
        if self._left > 0:
            self._left -= 1
            return
        try:
            async with asyncio.timeout(_PAUSE_SECONDS):
                await self._ending.wait()
        except TimeoutError:
            pass
