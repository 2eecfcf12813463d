"""The file: one connection that writes, on a thread of its own, and a few that read, each on the thread that uses it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from handrail.errors import HandrailError, UsageError
from handrail.sqlite_files import look, make_private
from handrail_reference.services.kb.errors import as_sentence, is_interrupted
from handrail_reference.services.kb.port import KbTooSlow, KbUnavailable
from handrail_reference.services.kb.tables import checked_version, is_current, migrate

T = TypeVar("T")
Request = Callable[["KnowledgeConnection"], T]
READERS = 3
_BUSY_SECONDS = 5.0
_START_SECONDS = 10.0
_STOP_SECONDS = 0.05
_OLDEST = (3, 35, 0)
_READING = ("PRAGMA query_only = ON", "PRAGMA mmap_size = 268435456")
_MAX_REMEMBERED = 50_000
_TURN_SECONDS = 0.25
"""A search takes a few hundredths of a second; whoever has waited so long waits for one that is stuck."""


class ComputeTurn:
    """One thread computes at a time. They share one interpreter: several at once are no quicker together, and the event loop
    would have to wait for each of them in its turn. Whoever waits for something else gives the turn away meanwhile."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._is_mine = False

    def take(self) -> None:
        """Wait for it, and go on without it after a while."""
        self._is_mine = self._lock.acquire(timeout=_TURN_SECONDS)

    def give(self) -> None:
        if self._is_mine:
            self._is_mine = False
            self._lock.release()


class KnowledgeConnection(sqlite3.Connection):
    """A connection that remembers what is dear to count, until the file changes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.turn = ComputeTurn(threading.Lock())
        self.is_searched_beside: Callable[[], bool] = lambda: False
        """Whether another thread of this process searches at this moment."""
        self._version = -1
        self._remembered: dict[object, Any] = {}

    def remembered(self, what: object, find: Callable[[], T]) -> T:
        """What `find` gives, asked for once for each state of the file."""
        version = self.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or len(self._remembered) > _MAX_REMEMBERED:
            self._version = version
            self._remembered = {}
        if what not in self._remembered:
            self._remembered[what] = find()
        found: T = self._remembered[what]
        return found


class KnowledgeDatabase:
    """A knowledge base on disk. Nothing is opened before it is used; an exception of `sqlite3` never leaves it."""

    def __init__(self, path: Path, *, busy_seconds: float = _BUSY_SECONDS) -> None:
        self.path = path.absolute()
        self._busy = busy_seconds
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="handrail-kb-writer")
        self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="handrail-kb-reader")
        self._writer: KnowledgeConnection | None = None
        self._mine = threading.local()
        self._readers: list[KnowledgeConnection] = []
        self._lock = threading.Lock()
        self._computing = threading.Lock()
        self._closed = False

    # From the event loop

    async def read(self, request: Request[T], seconds: float | None = None) -> T:
        """What `request` reads, off the loop; past its time, or cancelled, the statement is stopped where it is."""
        job = _Stoppable(request)
        work = asyncio.wrap_future(self._submit(self._reading, lambda: self._read(job)))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(work)
        except TimeoutError:
            _stop(job, work)
            work.add_done_callback(_forget)
            raise KbTooSlow(f"The knowledge base did not answer within {seconds:g} seconds.") from None
        except asyncio.CancelledError:
            _stop(job, work)
            work.add_done_callback(_forget)
            raise

    async def write(self, request: Request[T]) -> T:
        return await asyncio.wrap_future(self.write_soon(request))

    async def close(self) -> None:
        await asyncio.to_thread(self.close_now)

    # From plain code, such as the commands

    def read_now(self, request: Request[T]) -> T:
        return self._submit(self._reading, lambda: self._read(request)).result()

    def write_now(self, request: Request[T]) -> T:
        """One transaction: all of what `request` does, or nothing."""
        return self.write_soon(request).result()

    def write_soon(self, request: Request[T]) -> Future[T]:
        return self._submit(self._writing, lambda: self._write(request))

    def close_now(self) -> None:
        """Wait for what runs, then let go of the file."""
        self._closed = True
        self._writing.shutdown(wait=True)
        self._reading.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            connections = [*self._readers, *([self._writer] if self._writer else [])]
            self._readers, self._writer = [], None
        for db in connections:
            db.close()

    def look(self) -> None:
        """Raise what a command would say of a file that cannot be used. Changes nothing; a file that is not there is right."""
        self._check_place()
        if not self.path.exists():
            return
        try:
            look(self.path, lambda db: checked_version(db, self.path.name))
        except sqlite3.Error as error:
            raise as_sentence(self.path.name, error) from None

    # On the threads

    def _submit(self, pool: ThreadPoolExecutor, job: Callable[[], T]) -> Future[T]:
        try:
            return pool.submit(job)
        except RuntimeError:
            raise KbUnavailable("The knowledge base was closed.") from None

    def _read(self, request: Request[T]) -> T:
        try:
            db = getattr(self._mine, "db", None)
            if db is None:
                db = self._mine.db = self._open_reader()
                db.turn = ComputeTurn(self._computing)
                with self._lock:
                    self._readers.append(db)
            db.turn.take()
            try:
                return request(db)
            finally:
                db.turn.give()
        except sqlite3.Error as error:
            if is_interrupted(error):
                raise KbTooSlow("The search was stopped because it was past its time.") from None
            raise as_sentence(self.path.name, error) from None

    def _write(self, request: Request[T]) -> T:
        db = self._open_writer()
        try:
            db.execute("BEGIN IMMEDIATE")
            result = request(db)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise as_sentence(self.path.name, error) from None
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
        return result

    def _open_reader(self) -> KnowledgeConnection:
        """A connection that reads. Tables that are missing or old are made by the writer first, so that they are made once;
        a file that is as it should be is read whoever holds its lock, and where this user may not write it."""
        for read_only in (False, True):
            db = self._current(read_only=read_only)
            if db is not None:
                return db
        self._submit(self._writing, self._open_writer).result()
        return self._connect(*_READING)

    def _current(self, *, read_only: bool) -> KnowledgeConnection | None:
        """A connection to a file that is current; None where the writer has to look at it."""
        try:
            if not self.path.is_file() or (read_only and not self._is_settled()):
                return None
        except OSError:
            return None  # not even to be looked at; the writer says why
        try:
            db = self._connect(*_READING, read_only=read_only)
        except sqlite3.Error:
            return None
        try:
            if is_current(db, self.path.name):
                return db
        except (sqlite3.Error, UsageError):
            pass  # the writer finds the same, and says it
        db.close()
        return None

    def _is_settled(self) -> bool:
        """Whether we may not write the file, and nobody else has written what is not in it yet."""
        waiting = self.path.with_name(self.path.name + "-wal")
        return not os.access(self.path, os.W_OK) and not waiting.exists()

    def _open_writer(self) -> KnowledgeConnection:
        if self._writer is None:
            self._make_file()
            self._writer = self._patiently()
            self._writer.is_searched_beside = self._computing.locked
        return self._writer

    def _check_place(self) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise UsageError(f"A knowledge base needs SQLite 3.35 or newer; this Python has {sqlite3.sqlite_version}.")
        if not self.path.parent.is_dir():
            raise UsageError(f'The folder "{self.path.parent.name}" of the knowledge base is not there; make it first.')
        if self.path.is_dir():
            raise UsageError(f'"{self.path.name}" is a folder; name a file for the knowledge base.')

    def _make_file(self) -> None:
        self._check_place()
        try:
            # Personal records are nobody else's business. SQLite gives its side files the same rights.
            make_private(self.path)
        except OSError as error:
            raise KbUnavailable(
                f'The knowledge base "{self.path.name}" cannot be opened for writing ({error.strerror}).'
            ) from None

    def _patiently(self) -> KnowledgeConnection:
        # Turning a new file to WAL fails at once, without the busy timeout, when another process is at it too.
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                db = self._connect(
                    "PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", "PRAGMA cache_size = -65536"
                )
                try:
                    migrate(db, self.path.name)
                except BaseException:
                    db.close()
                    raise
                return db
            except sqlite3.Error as error:
                sentence = as_sentence(self.path.name, error)
                if "locked" not in str(sentence) or time.monotonic() > deadline:
                    raise sentence from None
            time.sleep(0.02)

    def _connect(self, *pragmas: str, read_only: bool = False) -> KnowledgeConnection:
        # In a folder that may not be written, SQLite reads only a file of which it is told that it stays as it is.
        place = f"{self.path.as_uri()}?mode=ro&immutable=1" if read_only else self.path
        db = sqlite3.connect(
            place,
            timeout=self._busy,
            isolation_level=None,
            check_same_thread=False,
            factory=KnowledgeConnection,
            uri=read_only,
        )
        try:
            for pragma in pragmas:
                db.execute(pragma)
        except BaseException:
            db.close()
            raise
        return db


class _Stoppable(Generic[T]):
    """A request that another thread may stop: before it has begun, or in the middle of a statement."""

    def __init__(self, request: Request[T]) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._db: KnowledgeConnection | None = None
        self._stopped = False

    def __call__(self, db: KnowledgeConnection) -> T:
        with self._lock:
            if self._stopped:
                raise KbTooSlow("The search was stopped before it began.")
            self._db = db
        try:
            return self._request(db)
        finally:
            with self._lock:
                self._db = None

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._db is not None:
                self._db.interrupt()


def _stop(job: _Stoppable[Any], work: asyncio.Future[Any]) -> None:
    """A stop between two statements is lost, so the job is told again until it has ended."""
    if not work.done():
        job.stop()
        asyncio.get_running_loop().call_later(_STOP_SECONDS, _stop, job, work)


def _forget(work: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more; its error was told already."""
    if not work.cancelled():
        error = work.exception()
        if error is not None and not isinstance(error, HandrailError):
            raise error
