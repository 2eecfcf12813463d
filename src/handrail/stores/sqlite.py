"""The store in one SQLite file, for any number of processes of one machine. A writer thread commits everything that
waits in one transaction (group commit); a reader thread has a connection of its own, and never waits for a commit.

Claims and finishes that wait together are one statement of each kind: what a claim changes in several tables is done by a
trigger of a view. Where only one kind waits, that statement is the whole transaction, and SQLite is gone to once for all of
them, commit included. Only what no precondition refuses goes this way, which is nearly everything. Whatever else comes, each
request is carried out by the function of `statements` that says what it means. Requests that wait at the same time have no
order, but whatever else waits between them keeps its place.
"""

# ruff: noqa: S608 - what is put into SQL are our own columns, and question marks

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import (
    Claim,
    ClaimResult,
    ClaimVerdict,
    Finish,
    LedgerRow,
    StoreUnavailable,
)
from handrail.stores import owners
from handrail.stores.base import Group, ThreadedStore, grouped
from handrail.stores.failures import is_busy, unavailable, unusable
from handrail.stores.migrations import migrate
from handrail.stores.open_files import (
    LOG_PAGES,
    OpenFiles,
    WalPreallocation,
    check_names,
    identity,
    make_private,
    real_path,
)
from handrail.stores.owners import OwnerLocks, Process
from handrail.stores.statements import Clock, Transaction
from handrail.stores.statements.ledger import OUTCOME, SETTLED, ClaimRequest, FinishRequest, finish
from handrail.stores.statements.transaction import Database, Life, claimed, to_json
from handrail.stores.worker import LIMIT_SECONDS, Job, Worker

_OLDEST = (3, 35, 0)
_START_PATIENCE = 5
"""How many times longer a start waits: other processes may start too, and each holds the file for a moment."""
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Statements are made for these numbers of rows, and kept; rows that are left over are empty, and nothing comes of them."""
_LEDGER = (
    *("key", "tenant", "session_id", "user", "turn", "ordinal", "tool", "tool_hash", "registry_version"),
    *("args_digest", "args", "effects", "owner", "claim_id", "lease_until", "created_at"),
)
_ALIAS = ("call_id", "call_tool", "raw_digest", "hold_id")
_WISH = (*_LEDGER, "connection", "counters", *_ALIAS)
_TRIGGER = f"""
    CREATE TEMP TRIGGER claimed INSTEAD OF INSERT ON wish WHEN NEW.key IS NOT NULL BEGIN
        SELECT RAISE(ABORT, 'a precondition failed')
        WHERE NOT EXISTS (SELECT 1 FROM session WHERE session_id = NEW.session_id AND active
                          AND connection = NEW.connection)
           OR EXISTS (SELECT 1 FROM ledger WHERE session_id = NEW.session_id AND turn = NEW.turn AND tool = NEW.tool
                      AND args_digest = NEW.args_digest AND state IN ('running', 'unknown'))
           OR EXISTS (SELECT 1 FROM switch WHERE tool = NEW.tool)
           OR EXISTS (SELECT 1 FROM block WHERE tenant = NEW.tenant AND user = NEW.user AND until > NEW.created_at);
        INSERT INTO ledger ({", ".join(_LEDGER)}, state, fence)
        VALUES ({", ".join(f"NEW.{name}" for name in _LEDGER)}, 'running', 1);
        INSERT INTO alias SELECT NEW.session_id, NEW.call_id, NEW.call_tool, NEW.raw_digest, NEW.key, NEW.hold_id
        WHERE NEW.call_id IS NOT NULL;
        UPDATE session SET counters = NEW.counters WHERE session_id = NEW.session_id AND NEW.counters IS NOT NULL;
    END"""


class SqliteStore(ThreadedStore):
    """See the module's docstring."""

    def __init__(
        self, path: Path, *, clock: Clock | None = None, busy_ms: int = 2_000, limit_seconds: float | None = None
    ) -> None:
        """`busy_ms` is waited for another process that writes, and `limit_seconds` for a disk that does not answer."""
        self._path = real_path(path)
        # One request may wait for others several times.
        limit = limit_seconds or max(LIMIT_SECONDS, 3 * busy_ms / 1_000)
        super().__init__(clock, title=f'The store "{self._path.name}"', limit=limit)
        self._busy_ms = busy_ms
        self._owners = OwnerLocks(self._path.with_name(self._path.name + ".owners"))
        self._files: OpenFiles | None = None
        self._preallocation: WalPreallocation | None = None
        self._connections: tuple[sqlite3.Connection, ...] = ()

    @property
    def path(self) -> Path:
        return self._path

    async def _start(self) -> tuple[Worker, Worker]:
        files = self._files = await self._opened()
        writing, reading = self._connections = files.connections
        preallocation = self._preallocation = WalPreallocation(self._path, files, self._busy_ms)
        make = partial(Worker, title=self._title, limit=self._limit)
        commit, look = partial(self._commit, writing, files), partial(self._look, reading, files)
        writer = make("handrail-store-writer", commit, between=partial(preallocation.make, writing))
        return writer, make("handrail-store-reader", look)

    async def register_owner(self, owner: str) -> None:
        await self._read(lambda _: self._owners.take(owner))
        try:
            # The lock first, then the row: an owner that stands in the store without a lock would be taken for dead.
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

    async def _opened(self) -> OpenFiles:
        # Each of the two connections waits for others that start.
        limit = self._limit + 2 * _START_PATIENCE * self._busy_ms / 1_000
        try:
            return await asyncio.wait_for(asyncio.to_thread(self._open_file), limit)
        except TimeoutError:
            raise StoreUnavailable(f"{self._title} could not be opened within {limit:g} seconds.") from None

    # On the threads
    def _commit(self, db: sqlite3.Connection, files: OpenFiles, batch: Sequence[Job]) -> None:
        try:
            # The file may have been replaced since the last commit, by a restored copy for instance.
            files.check(db, untouched=True)
            requests = [job.request for job in batch]
            begins = ClaimRequest in map(type, requests)
            if begins and any(identity(path) != known for path, known in list(self._owners.identities.items())):
                batch = self._without_claims(batch)
                requests = [job.request for job in batch]
            groups = grouped(requests, _SIZES[-1])
            outcomes = None
            # The common case, at one commit without BEGIN and COMMIT: a statement on its own is a transaction.
            if len(groups) == 1 and (groups[0].claims or groups[0].finishes):
                outcomes = _in_one_statement(Transaction(db, self._clock(), self._life), groups[0])
            if outcomes is not None:
                for job, outcome in zip(batch, outcomes, strict=True):
                    job.outcome = outcome
            elif groups:
                self._in_transaction(db, batch, groups)
            # Again: what was committed to a log that is gone is lost with this process, and must not be relied on.
            files.check(db)
        except (sqlite3.Error, StoreUnavailable) as error:
            for job in batch:
                # An exception of its own for each: they are raised in different tasks.
                job.error = self._failure(error)
        finally:
            if db.in_transaction:
                # If it fails, the next BEGIN says what is wrong, to somebody who waits for it.
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")

    def _without_claims(self, batch: Sequence[Job]) -> Sequence[Job]:
        """What of it may be carried out: while others cannot see that this process lives, no call is begun, because they would
        take it for abandoned. Those that run may still be settled."""
        others = [job for job in batch if not isinstance(job.request, ClaimRequest)]
        for job in batch:
            if job not in others:
                job.error = StoreUnavailable(self._owners.lock_lost())
        return others

    def _in_transaction(self, db: sqlite3.Connection, batch: Sequence[Job], groups: Sequence[Group]) -> None:
        db.execute("BEGIN IMMEDIATE")
        tx = Transaction(db, self._clock(), self._life)
        try:
            # Without savepoints, which cost as much as a statement each. Nearly always nothing fails.
            outcomes = [outcome for group in groups for outcome in _carry_out(tx, group)]
        # One that fails spoils the transaction of all others, which is why they are then done one by one.
        except Exception:  # whatever it is, it comes again where it is looked at
            if not db.in_transaction:
                raise
            outcomes = []
        if len(outcomes) < len(batch):
            # Again from the start, each on its own, so that one that fails undoes nothing but itself.
            db.execute("ROLLBACK")
            db.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._carry_out(db, job)
        else:
            for job, outcome in zip(batch, outcomes, strict=True):
                job.outcome = outcome
        db.execute("COMMIT")

    def _life(self, db: Database, owner: str) -> Life:
        if self._owners.holds(owner):
            return Life.ALIVE
        return self._owners.life(owner, owners.process_of(db, owner))

    def _carry_out(self, db: sqlite3.Connection, job: Job) -> None:
        """One request of a batch: if it fails, it undoes what it did and nothing else."""
        db.execute("SAVEPOINT request")
        try:
            job.outcome = job.request(Transaction(db, self._clock(), self._life))
        except Exception as error:
            job.error = self._failure(error)
            if not db.in_transaction:
                # A full disk or a failing one ends the whole transaction, not only this request.
                raise
            db.execute("ROLLBACK TO request")
        db.execute("RELEASE request")

    def _look(self, db: sqlite3.Connection, files: OpenFiles, batch: Sequence[Job]) -> None:
        try:
            files.check(db, content=False)
        except StoreUnavailable as error:
            for job in batch:
                job.error = self._failure(error)
            return
        for job in batch:
            try:
                job.outcome = job.request(Transaction(db, self._clock(), self._life))
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to the one that asked
                job.error = self._failure(error)

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error):
            return unavailable(self._path.name, error)
        if isinstance(error, StoreUnavailable):
            return StoreUnavailable(*error.args)
        return error

    def _open_file(self) -> OpenFiles:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise UsageError(f"A store in a file needs SQLite 3.35 or newer; this Python has {sqlite3.sqlite_version}.")
        self._make_file()
        # The writer first: it makes the tables that the reader looks for.
        opened = [self._patiently(self._open_writer)]
        try:
            # It reads at once: a connection opens the log that is there when it first reads.
            opened.append(self._patiently(lambda: self._connect("PRAGMA query_only = ON", "PRAGMA schema_version")))
            return OpenFiles(self._path, self._title, *opened)
        except HandrailError:
            for db in opened:
                db.close()
            raise

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
            # An answer may be given only for what a power cut does not take back; NORMAL would lose the last commits.
            "PRAGMA synchronous = FULL",
            "PRAGMA foreign_keys = ON",
            f"PRAGMA wal_autocheckpoint = {LOG_PAGES}",
            "PRAGMA cache_size = -16000",
            "PRAGMA temp_store = MEMORY",
            # What people said is overwritten when it is deleted, also where SQLite was built without that.
            "PRAGMA secure_delete = ON",
        )
        try:
            migrate(db, self._path.name, self._clock())
            # A view and its trigger, which belong to this connection and are nowhere in the file.
            db.execute(f"CREATE TEMP VIEW wish AS SELECT {', '.join(f'NULL AS {name}' for name in _WISH)}")
            db.execute(_TRIGGER)
        except BaseException:
            db.close()
            raise
        return db

    def _connect(self, *pragmas: str) -> sqlite3.Connection:
        # `isolation_level=None`: transactions are begun here and nowhere else, not by the module before some statements.
        db = sqlite3.connect(self._path, timeout=self._busy_ms / 1_000, isolation_level=None, check_same_thread=False)
        try:
            for pragma in pragmas:
                db.execute(pragma)
        except BaseException:
            db.close()
            raise
        return db

    def _stop(self, writer: Worker, reader: Worker) -> None:
        # Both are stopped, whatever became of the first.
        ended = [worker.stop() for worker in (writer, reader)]
        files = self._files
        if not all(ended) or (files is not None and files.is_damaged):
            # What a thread still uses is left to the end of the process. So are damaged files.
            self._owners.release_all()
            return
        with contextlib.suppress(sqlite3.Error):
            # Whoever is left in there is taken for alive as long as this process is, which is no more than late.
            tx = Transaction(self._connections[0], self._clock(), self._life)
            owners.release(tx, self._owners.held)
        for db in self._connections:
            db.close()
        self._owners.release_all()


def _in_one_statement(tx: Transaction, group: Group) -> Sequence[Any] | None:
    """The outcomes, committed; None, and no claim made, if they cannot go this way. Outside of a transaction.

    `sqlite3.OperationalError`: the store cannot be written, whichever way is taken."""
    try:
        if len(group.claims) == len(group.requests):
            return _claim_all(tx, group.claims)
        if len(group.finishes) == len(group.requests):
            return _finish_all(tx, group.finishes)
    except sqlite3.OperationalError:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, it comes again where each is looked at
        return None
    return None


def _carry_out(tx: Transaction, group: Group) -> list[Any]:
    """The outcomes, in a transaction that was begun. What one raises is raised, and the transaction is good for nothing
    more."""
    # Finishes first: a claim then meets what is known at this moment.
    finished = iter(_finish_all(tx, group.finishes) if group.finishes else ())
    made = iter(_claim_all(tx, group.claims) if group.claims else ())
    kinds = {ClaimRequest: made, FinishRequest: finished} if group.claims or group.finishes else {}
    return [next(kinds[type(request)]) if type(request) in kinds else request(tx) for request in group.requests]


def _claim_all(tx: Transaction, claims: Sequence[Claim]) -> list[ClaimResult]:
    now, values = tx.now, list[Any]()
    for one in claims:
        values += (one.key, one.tenant, one.session_id, one.user, one.turn, one.ordinal, one.tool, one.tool_hash)
        values += (one.registry_version, one.args_digest, one.args, one.effects, one.owner, one.claim_id)
        counters = None if one.counters is None else to_json(one.counters, '"counters" of a claim')
        values += (now + one.lease_ms, now, one.connection, counters)
        alias = one.alias
        values += (None,) * 4 if alias is None else (alias.call_id, alias.tool, alias.raw_digest, alias.hold_id)
    size = _SIZES[bisect_left(_SIZES, len(claims))]
    # Filled up to one of a few sizes, so that the statement is one that the connection has prepared before.
    values += (None,) * (len(_WISH) * (size - len(claims)))
    tx.db.execute(_insert_requests(size), values)
    return [claimed(one, now, ClaimVerdict.CLAIMED, 1, now) for one in claims]


def _finish_all(tx: Transaction, finishes: Sequence[Finish]) -> list[LedgerRow]:
    now, values = tx.now, list[Any]()
    for one in finishes:
        values += (one.key, one.fence, one.state, one.envelope, now if one.state in SETTLED else None)
    size = _SIZES[bisect_left(_SIZES, len(finishes))]
    values += (None,) * (5 * (size - len(finishes)))
    if tx.db.execute(_outcomes(size), values).rowcount < len(finishes):
        # Some were fenced out, are settled already, or are not there: the function for one says which. To those that were
        # stored just now, it tells just that.
        return [finish(tx, one) for one in finishes]
    return [
        one.claimed._replace(state=one.state, envelope=one.envelope, finished_at=now if one.state in SETTLED else None)
        for one in finishes
        if one.claimed is not None
    ]


@cache
def _insert_requests(rows: int) -> str:
    return f"INSERT INTO wish {_values(rows, len(_WISH))}"


@cache
def _outcomes(rows: int) -> str:
    # Not as WITH: then Python would not tell how many rows were changed.
    return f"""UPDATE ledger SET state = done.column3, {OUTCOME.format("done.column4")}, finished_at = done.column5
        FROM ({_values(rows, 5)}) AS done
        WHERE key = done.column1 AND fence = done.column2 AND state IN ('running', 'unknown')"""


@cache
def _values(rows: int, columns: int) -> str:
    return "VALUES " + ", ".join([f"({', '.join('?' * columns)})"] * rows)
