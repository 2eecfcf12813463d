"""The store in one SQLite file, for any number of processes of one machine. A writer thread commits everything that
waits in one transaction (group commit); a reader thread has a connection of its own, and never waits for a commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import StoreLoad, StoreUnavailable
from handrail.stores import owners
from handrail.stores.base import Request, StatementStore
from handrail.stores.failures import is_busy, unavailable, unusable
from handrail.stores.migrations import migrate
from handrail.stores.open_files import OpenFiles, check_names, make_private, real_path
from handrail.stores.owners import OwnerLocks, Process
from handrail.stores.statements import Clock, Transaction
from handrail.stores.statements.grouped import carry_out, in_one_statement, prepare
from handrail.stores.statements.ledger import ClaimRequest
from handrail.stores.statements.transaction import Life
from handrail.stores.wal_preallocation import LOG_PAGES, LogRoom
from handrail.stores.worker import LIMIT_SECONDS, Job, Worker

T = TypeVar("T")
_OLDEST = (3, 35, 0)
_START_PATIENCE = 5
"""How many times longer a start waits: other processes may start too, and each holds the file for a moment."""


class SqliteStore(StatementStore):
    """See the module's docstring. Several runtimes may share one object, each opening and closing it."""

    def __init__(
        self, path: Path, *, clock: Clock | None = None, busy_ms: int = 2_000, limit_seconds: float | None = None
    ) -> None:
        """`busy_ms` is waited for another process that writes, and `limit_seconds` for a disk that does not answer."""
        super().__init__(clock)
        self._path = real_path(path)
        self._title = f'The store "{self._path.name}"'
        self._busy_ms = busy_ms
        # One request may wait for others several times.
        self._limit = limit_seconds or max(LIMIT_SECONDS, 3 * busy_ms / 1_000)
        self._timeouts = 0
        self._owners = OwnerLocks(self._path.with_name(self._path.name + ".owners"))
        self._files: OpenFiles | None = None
        self._room: LogRoom | None = None
        self._users = 0
        self._turnstile = asyncio.Lock()
        self._connections: tuple[sqlite3.Connection, ...] = ()
        self._writer: Worker | None = None
        self._reader: Worker | None = None

    @property
    def path(self) -> Path:
        return self._path

    async def open(self) -> None:
        async with self._turnstile:
            if not self._users:
                writer, reader = self._connections = await self._opened()
                room = self._room = LogRoom(self._path, self._busy_ms)
                self._writer = Worker(
                    "handrail-store-writer",
                    lambda batch: self._commit(writer, batch),
                    between=lambda: room.is_wanted() and self._is_whole(writer) and room.make(writer),
                    title=self._title,
                    limit=self._limit,
                )
                self._reader = Worker(
                    "handrail-store-reader",
                    lambda batch: self._look(reader, batch),
                    title=self._title,
                    limit=self._limit,
                )
            self._users += 1

    async def close(self) -> None:
        """Wait for what was asked for, then let go of the file and of every owner that was registered here."""
        async with self._turnstile:
            self._users = max(0, self._users - 1)
            if self._users or self._writer is None or self._reader is None:
                return
            writer, reader, self._writer, self._reader = self._writer, self._reader, None, None
            for worker in (writer, reader):
                worker.hand_over(asyncio.get_running_loop())
            await asyncio.to_thread(self._close_file, writer, reader)

    def load(self) -> StoreLoad:
        workers = [worker for worker in (self._writer, self._reader) if worker is not None]
        return StoreLoad(
            waiting=self._writer.waiting if self._writer is not None else 0,
            timeouts=self._timeouts + sum(worker.timeouts for worker in workers),
        )

    async def register_owner(self, owner: str) -> None:
        await self._read(lambda _: self._owners.take(owner))
        try:
            needed = await self._write(partial(owners.register, owner=owner, process=Process.this()))
            await self._read(lambda _: self._owners.sweep(needed))
        except BaseException:
            self._owners.release(owner)
            raise

    async def release_owner(self, owner: str) -> None:
        try:
            await self._write(partial(owners.release, names=[owner]))
        finally:
            await self._read(lambda _: self._owners.release(owner))

    async def _write(self, request: Request[T]) -> T:
        if self._writer is None:
            raise self._not_open()
        return await self._writer.submit(request)

    async def _read(self, request: Request[T]) -> T:
        if self._reader is None:
            raise self._not_open()
        return await self._reader.submit(request)

    async def _opened(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        # Each of the two connections waits for others that start.
        limit = self._limit + 2 * _START_PATIENCE * self._busy_ms / 1_000
        try:
            return await asyncio.wait_for(asyncio.to_thread(self._open_file), limit)
        except TimeoutError:
            raise StoreUnavailable(f"{self._title} could not be opened within {limit:g} seconds.") from None

    # On the threads
    def _commit(self, db: sqlite3.Connection, batch: Sequence[Job]) -> None:
        try:
            self._check_content(db)
            batch = self._with_a_lock(batch)
            outcomes = in_one_statement(self._transaction(db), [job.request for job in batch])
            if outcomes is None:
                self._in_transaction(db, batch)
            else:
                for job, outcome in zip(batch, outcomes, strict=True):
                    job.outcome = outcome
            # Again: what was committed to a log that is gone is lost with this process, and must not be relied on.
            self._check_content(db)
        except (sqlite3.Error, StoreUnavailable) as error:
            for job in batch:
                # An exception of its own for each: they are raised in different tasks.
                job.error = self._failure(error)
        finally:
            if db.in_transaction:
                self._roll_back(db)

    def _with_a_lock(self, batch: Sequence[Job]) -> Sequence[Job]:
        """What of it may be carried out: while others cannot see that this process lives, no call is begun, because they would
        take it for abandoned. Those that run may still be settled."""
        try:
            self._owners.check()
        except StoreUnavailable as error:
            begun = [job for job in batch if not isinstance(job.request, ClaimRequest)]
            for job in batch:
                if job not in begun:
                    job.error = self._failure(error)
            return begun
        return batch

    def _in_transaction(self, db: sqlite3.Connection, batch: Sequence[Job]) -> None:
        db.execute("BEGIN IMMEDIATE")
        if not self._all_went_well(db, batch):
            # Again from the start, each on its own, so that one that fails undoes nothing but itself.
            db.execute("ROLLBACK")
            db.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._carry_out(db, job)
        db.execute("COMMIT")

    def _all_went_well(self, db: sqlite3.Connection, batch: Sequence[Job]) -> bool:
        """Carry everything out without savepoints, which cost as much as a statement each. Nearly always nothing fails."""
        try:
            begin = partial(self._transaction, db)
            for job, outcome in zip(batch, carry_out(begin, [job.request for job in batch]), strict=True):
                job.outcome = outcome
        except Exception:  # whatever it is, it comes again where it is looked at
            if not db.in_transaction:
                raise
            return False
        return True

    def _transaction(self, db: sqlite3.Connection) -> Transaction:
        return Transaction(db, self._clock(), self._life)

    def _life(self, db: sqlite3.Connection, owner: str) -> Life:
        if self._owners.holds(owner):
            return Life.ALIVE
        return self._owners.life(owner, owners.process_of(db, owner))

    def _carry_out(self, db: sqlite3.Connection, job: Job) -> None:
        """One request of a batch: if it fails, it undoes what it did and nothing else."""
        db.execute("SAVEPOINT request")
        try:
            job.outcome = job.request(self._transaction(db))
        except Exception as error:
            job.error = self._failure(error)
            if not db.in_transaction:
                # A full disk or a failing one ends the whole transaction, not only this request.
                raise
            db.execute("ROLLBACK TO request")
        db.execute("RELEASE request")

    def _look(self, db: sqlite3.Connection, batch: Sequence[Job]) -> None:
        try:
            self._check_files(db)
        except StoreUnavailable as error:
            for job in batch:
                job.error = self._failure(error)
            return
        for job in batch:
            try:
                job.outcome = job.request(self._transaction(db))
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to the one that asked
                job.error = self._failure(error)

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error):
            return unavailable(self._path.name, error)
        if isinstance(error, StoreUnavailable):
            return StoreUnavailable(*error.args)
        return error

    def _roll_back(self, db: sqlite3.Connection) -> None:
        # If it fails, the next BEGIN says what is wrong, to somebody who waits for it.
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")

    def _check_files(self, db: sqlite3.Connection) -> None:
        if self._files is not None:
            self._files.check(db)

    def _check_content(self, db: sqlite3.Connection) -> None:
        if self._files is not None:
            self._files.check_content(db)

    def _is_whole(self, db: sqlite3.Connection) -> bool:
        try:
            self._check_content(db)
        except (sqlite3.Error, StoreUnavailable):
            return False
        return True

    def _open_file(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise UsageError(f"A store in a file needs SQLite 3.35 or newer; this Python has {sqlite3.sqlite_version}.")
        self._make_file()
        opened = [self._patiently(self._open_writer)]
        try:
            # It reads at once: a connection opens the log that is there when it first reads.
            opened.append(self._patiently(lambda: self._connect("PRAGMA query_only = ON", "PRAGMA schema_version")))
            self._files = OpenFiles(self._path, self._title, *opened)
        except HandrailError:
            for db in opened:
                db.close()
            raise
        return opened[0], opened[1]

    def _make_file(self) -> None:
        if not self._path.parent.is_dir():
            raise UsageError(
                f'The folder "{self._path.parent}" of the store is not there; make it, or name another file.'
            )
        if self._path.is_dir():
            raise UsageError(f'"{self._path}" is a folder; name a file for the store.')
        check_names(self._path, ".owners")
        try:
            # Arguments and outcomes of calls are nobody else's business. SQLite gives its side files the same rights.
            make_private(self._path)
        except OSError as error:
            raise StoreUnavailable(
                f'The store "{self._path}" cannot be opened for writing ({error.strerror}).'
            ) from None

    def _patiently(self, attempt: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        # Turning a new file to WAL fails at once, without the busy timeout, when another process is at it too.
        deadline = time.monotonic() + _START_PATIENCE * self._busy_ms / 1_000
        while True:
            try:
                return attempt()
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise unusable(self._path.name, error) from None
            time.sleep(0.02)

    def _open_writer(self) -> sqlite3.Connection:
        db = self._connect(
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "PRAGMA foreign_keys = ON",
            f"PRAGMA wal_autocheckpoint = {LOG_PAGES}",
            "PRAGMA cache_size = -16000",
            "PRAGMA temp_store = MEMORY",
        )
        try:
            migrate(db, self._path.name, self._clock())
            prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _connect(self, *pragmas: str) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=self._busy_ms / 1_000, isolation_level=None, check_same_thread=False)
        try:
            for pragma in pragmas:
                db.execute(pragma)
        except BaseException:
            db.close()
            raise
        return db

    def _close_file(self, writer: Worker, reader: Worker) -> None:
        ended = [worker.stop() for worker in (writer, reader)]
        self._timeouts += writer.timeouts + reader.timeouts
        files = self._files
        if not all(ended) or (files is not None and (files.is_inherited or files.is_damaged)):
            # What a thread or the parent process still uses is left to the end of the process. So are damaged files.
            self._owners.release_all()
            return
        with contextlib.suppress(sqlite3.Error):
            # Whoever is left in there is taken for alive as long as this process is, which is no more than late.
            owners.release(self._transaction(self._connections[0]), self._owners.held)
        for db in self._connections:
            db.close()
        self._owners.release_all()

    def _not_open(self) -> StoreUnavailable:
        return StoreUnavailable(f'The store "{self._path.name}" is not open; call open() first.')
