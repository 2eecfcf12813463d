"""The calendar's SQLite file: one thread that writes, one that reads, opened when it is first needed.

The event loop never waits for the disk. Nothing of `sqlite3` leaves this module but rows.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from handrail.errors import ToolError
from handrail.sqlite_files import check_writable, look, make_private
from handrail_reference.services.calendar.failures import closed, from_sqlite, overloaded, unusable
from handrail_reference.services.calendar.tables import checked_version, migrate

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
_MAX_WAITING = 256
_BUSY_MS = 5_000


class CalendarDatabase:
    """Work is a function of a connection; each write is one transaction, committed or rolled back as a whole."""

    def __init__(self, path: Path, *, busy_ms: int = _BUSY_MS) -> None:
        self._path = path.absolute()  # the process may change its folder later
        self._busy_ms = busy_ms
        self._lock = threading.Lock()
        self._closed = False
        self._waiting = 0
        self._writer = _Lane("handrail-calendar-writer", self._open_writer)
        self._reader = _Lane("handrail-calendar-reader", self._open_reader)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def is_there(self) -> bool:
        """Whether the file has been made; the first that is asked of it makes it."""
        return self._path.exists()

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Once begun it is finished, even if whoever asked has gone."""
        return await self._run(self._writer, lambda db: _in_transaction(db, "BEGIN IMMEDIATE", work))

    async def prepare(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read on the thread that writes, without the lock: what takes long is done before others have to wait."""
        return await self._run(self._writer, lambda db: _in_transaction(db, "BEGIN", work))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._run(self._reader, lambda db: _in_transaction(db, "BEGIN", work))

    async def close(self) -> None:
        """Wait for what was asked for, then let go of the file."""
        self._closed = True
        for lane in (self._writer, self._reader):
            await asyncio.to_thread(lane.close)

    def look(self) -> None:
        """Raise what a command would say of a file that cannot be used. Changes nothing; a file that is not there is right."""
        self._check_place()
        if not self._path.exists():
            return
        self._touch(check_writable)
        try:
            look(self._path, lambda db: checked_version(db, self.name))
        except sqlite3.Error as error:
            raise from_sqlite(self.name, error) from None

    async def _run(self, lane: _Lane, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise closed()
        if self._waiting >= _MAX_WAITING:
            raise overloaded()
        self._waiting += 1
        try:
            # Shielded: a cancelled caller must not make the pool forget a write that is about to run half the way.
            return await asyncio.shield(asyncio.wrap_future(lane.submit(lambda: self._guarded(lane, work))))
        finally:
            self._waiting -= 1

    def _guarded(self, lane: _Lane, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(lane.connection())
        except sqlite3.Error as error:
            raise from_sqlite(self.name, error) from None

    def _open_writer(self) -> sqlite3.Connection:
        with self._lock:
            return self._opened()

    def _open_reader(self) -> sqlite3.Connection:
        db = self._open_writer()  # the file must be there, with its tables, before anybody reads
        db.execute("PRAGMA query_only = ON")
        return db

    def _check_place(self) -> None:
        if not self._path.parent.is_dir():
            raise self._unusable(
                f'The calendar "{self.name}" cannot be made, because its folder is not there; make the folder, or name another.'
            )
        if self._path.is_dir():
            raise self._unusable(f'The calendar "{self.name}" is a folder; name a file for it.')

    def _touch(self, touch: Callable[[Path], None]) -> None:
        try:
            # What somebody does all day is nobody else's business. SQLite gives its side files the same rights.
            touch(self._path)
        except OSError as error:
            text = f'The calendar "{self.name}" cannot be opened for writing ({error.strerror}).'
            raise self._unusable(text) from None

    def _opened(self) -> sqlite3.Connection:
        self._check_place()
        self._touch(make_private)
        deadline = time.monotonic() + 2 * self._busy_ms / 1_000
        while True:
            try:
                return self._connect()
            except sqlite3.OperationalError as error:
                # Turning a new file to WAL fails at once, without the busy timeout, when another process is at it too.
                busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def _unusable(self, text: str) -> ToolError:
        """Where the file lies is for those who read the log: what a tool says, a model hears."""
        _LOG.warning('The calendar "%s" is looked for at %s.', self.name, self._path)
        return unusable(text)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=self._busy_ms / 1_000, isolation_level=None, check_same_thread=False)
        try:
            checked_version(db, self.name)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
                db.execute(f"PRAGMA {pragma}")
            migrate(db, self.name)
        except BaseException:
            db.close()
            raise
        return db


class _Lane:
    """A thread with a connection of its own. A connection that could not be opened is tried again at the next request."""

    def __init__(self, name: str, opener: Callable[[], sqlite3.Connection]) -> None:
        self._name = name
        self._opener = opener
        self._pool: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        return self._pool.submit(work)

    def connection(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = self._opener()
        return self._db

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self._db is not None:
            self._db.close()
            self._db = None


def _in_transaction(db: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
    db.execute(begin)
    try:
        outcome = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return outcome
