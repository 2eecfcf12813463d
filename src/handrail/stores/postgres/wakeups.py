"""Wake-ups between processes: whoever has changed what others wait for says so by NOTIFY, and the others look at once instead of
at their next turn. It is a hint and never the truth: it is sent after the commit, may be lost with either connection, and
everybody who waits for it looks again after a while all the same.

It is sent on the connection that listens, in a transaction that writes nothing: PostgreSQL lets only one transaction that
notifies commit at a time, and calls must not wait for each other's disks because of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import socket
import threading
from collections import deque
from typing import Any

import psycopg

from handrail.stores.postgres.connection import PostgresDatabase, ReconnectingDatabase
from handrail.stores.postgres.failures import first_line

_log = logging.getLogger("handrail.stores")
_CHANNEL = "handrail"
_MAX_PAYLOAD = 7_900
_MAX_QUEUED = 10_000
"""As many topics wait for a server that is away; then the oldest is dropped, which is no more than a hint."""
_MAX_PAUSE_SECONDS = 2.0
_LOOK_SECONDS = 5.0
"""A connection that died without a word is found out by asking it something this often."""


class Wakeups:
    """Tells other processes of changes, and wakes those who wait here, on a thread and a connection of its own."""

    def __init__(self, database: ReconnectingDatabase, title: str) -> None:
        """`listen` must have been done with each connection of `database`."""
        self._database = database
        self._title = title
        self._queued: deque[str] = deque(maxlen=_MAX_QUEUED)
        self._waiting: dict[str | None, list[asyncio.Future[None]]] = {}
        self._guard = threading.Lock()
        self._ends = threading.Event()
        self._hears, self._bell = socket.socketpair()
        self._hears.setblocking(False)
        self._bell.setblocking(False)
        self._thread = threading.Thread(target=self._work, name="handrail-store-wakeups", daemon=True)
        self._thread.start()

    def tell(self, topic: str) -> None:
        """Let all processes know, soon, that this has changed."""
        self._queued.append(topic)
        self._ring()

    def changed(self, topic: str | None) -> asyncio.Future[None]:
        """Done when this has changed, or, for None, anything; or nobody knows, because the connection was lost meanwhile."""
        future = asyncio.get_running_loop().create_future()
        with self._guard:
            waiting = self._waiting.setdefault(topic, [])
            waiting[:] = [one for one in waiting if not one.done() and not one.get_loop().is_closed()]
            waiting.append(future)
        return future

    def stop(self) -> None:
        self._ends.set()
        self._ring()
        self._thread.join(_LOOK_SECONDS)
        self._database.close()
        if not self._thread.is_alive():
            self._close_bell()

    def _close_bell(self) -> None:
        self._hears.close()
        self._bell.close()

    def _ring(self) -> None:
        # A bell that is full has rung.
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def _work(self) -> None:
        pause = 0.0
        while not self._ends.wait(pause):
            try:
                if not self._database.is_open:
                    self._database.get()
                    self._wake_all()  # nobody knows what was missed
                self._exchange(self._database.get().connection)
                pause = 0.0
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread continues: nobody else would hear or tell
                self._database.close()
                if not pause and not self._ends.is_set():
                    _log.warning("%s wakes nobody until it is back (%s)", self._title, first_line(error))
                pause = min(pause * 2 + 0.05, _MAX_PAUSE_SECONDS)
        with contextlib.suppress(Exception):
            if self._database.is_open:
                self._send(self._database.get().connection)
        # A server that hung may have kept this thread longer than anybody waited for it.
        self._database.close()
        self._close_bell()

    def _exchange(self, connection: psycopg.Connection[Any]) -> None:
        # No `select`: it cannot take a descriptor above 1,023, which a process with many clients has.
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._hears, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(_LOOK_SECONDS)}
        if self._hears in ready:
            with contextlib.suppress(BlockingIOError):
                self._hears.recv(4_096)
        self._send(connection)
        if not ready:
            connection.execute("SELECT 1")
        for notified in connection.notifies(timeout=0):
            topics = notified.payload.split("\n")
            self._wake({*topics, None})

    def _send(self, connection: psycopg.Connection[Any]) -> None:
        while self._queued:
            payload = self._queued.popleft()
            while self._queued and len(payload) + len(self._queued[0]) < _MAX_PAYLOAD:
                payload += "\n" + self._queued.popleft()
            connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, payload))

    def _wake_all(self) -> None:
        with self._guard:
            topics = set(self._waiting)
        self._wake(topics)

    def _wake(self, topics: set[str | None]) -> None:
        with self._guard:
            woken = [future for topic in topics for future in self._waiting.pop(topic, ())]
        for future in woken:
            with contextlib.suppress(RuntimeError):  # its loop was closed: nobody waits there any more
                future.get_loop().call_soon_threadsafe(_finish, future)


def listen(db: PostgresDatabase) -> None:
    db.connection.execute(f"LISTEN {_CHANNEL}")


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
