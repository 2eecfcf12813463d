"""The store in a PostgreSQL database, for any number of processes on any number of machines. A writer thread commits
everything that waits in one transaction; a reader thread has a connection of its own, and so has the heartbeat.

The rules are the functions of `statements`, the same as on SQLite. What differs is here: how their SQL is read by PostgreSQL
(`_translated`), what is locked before they look (`_lock`), whose clock counts (`_ServerClock`), and who lives
(`_Heartbeat`). Claims and finishes that wait together are one statement of each kind, and the whole transaction is one trip
to the server.
"""

# ruff: noqa: S608 - what is put into SQL are our own columns

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import Claim, ClaimVerdict, Finish, LedgerRow, StoreLoad, StoreUnavailable
from handrail.stores import owners
from handrail.stores.base import Group, Request, StatementStore, grouped
from handrail.stores.migrations import migrate
from handrail.stores.owners import Process
from handrail.stores.statements import Clock, Transaction, auditing, evicting
from handrail.stores.statements.ledger import OUTCOME, SETTLED, ClaimRequest, FinishRequest
from handrail.stores.statements.transaction import Life, claimed, to_json
from handrail.stores.worker import LIMIT_SECONDS, Job, Worker

T = TypeVar("T")
_log = logging.getLogger("handrail.stores")
_OLDEST = 140_000
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Whatever the role's default is: each statement must see what was committed before its locks were had."""
_SETTINGS = "-c statement_timeout={} -c lock_timeout=2000 -c idle_in_transaction_session_timeout=10000 -c timezone=UTC"
"""A process that is frozen inside a transaction must not keep its locks for ever."""
_BEAT_SECONDS = 2.0
_FRESH_MS = 10_000
"""A heartbeat that is younger shows that its owner lives. One that has lost its lock must have beaten within half of it."""
_LOCKS = 0x68616E64
"""The first half of our advisory locks, "hand" in ASCII; the second is a hash of the owner, or the number of a purpose."""
_OWN_TABLES = ("CREATE TABLE IF NOT EXISTS heartbeat (owner TEXT PRIMARY KEY, seen_at BIGINT NOT NULL)",)
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_LEDGER = {
    "key": "text", "tenant": "text", "session_id": "text", "user": "text", "turn": "bigint", "ordinal": "bigint",
    "tool": "text", "tool_hash": "text", "registry_version": "text", "args_digest": "text", "args": "text",
    "effects": "text", "owner": "text", "claim_id": "text", "lease_until": "bigint", "created_at": "bigint",
}  # fmt: skip
_WISH = {
    **_LEDGER, "connection": "bigint", "counters": "text", "call_id": "text", "call_tool": "text", "raw_digest": "text",
    "hold_id": "text",
}  # fmt: skip
_CLAIMS = f"""
    WITH wish AS MATERIALIZED (
        SELECT * FROM unnest({", ".join(f"%s::{kind}[]" for kind in _WISH.values())})
        WITH ORDINALITY AS wish ({", ".join(_WISH)}, place)
    ), free AS MATERIALIZED (
        SELECT wish.* FROM wish JOIN session USING (session_id)
        WHERE session.active <> 0 AND session.connection = wish.connection
        AND NOT EXISTS (SELECT 1 FROM ledger WHERE ledger.key = wish.key)
        AND NOT EXISTS (SELECT 1 FROM ledger WHERE ledger.session_id = wish.session_id AND ledger.turn = wish.turn
                        AND ledger.tool = wish.tool AND ledger.args_digest = wish.args_digest
                        AND ledger.state IN ('running', 'unknown'))
        AND NOT EXISTS (SELECT 1 FROM alias WHERE alias.session_id = wish.session_id AND alias.call_id = wish.call_id)
        AND NOT EXISTS (SELECT 1 FROM switch WHERE switch.tool = wish.tool)
        AND NOT EXISTS (SELECT 1 FROM block WHERE block.tenant = wish.tenant AND block.user = wish.user
                        AND block.until > wish.created_at)
    ), claimed AS (
        INSERT INTO ledger ({", ".join(_LEDGER)}, state, fence)
        SELECT {", ".join(_LEDGER)}, 'running', 1 FROM free
    ), named AS (
        INSERT INTO alias SELECT session_id, call_id, call_tool, raw_digest, key, hold_id FROM free
        WHERE call_id IS NOT NULL
    ), counted AS (
        UPDATE session SET counters = newest.counters
        FROM (SELECT DISTINCT ON (session_id) session_id, counters FROM free WHERE counters IS NOT NULL
              ORDER BY session_id, place DESC) AS newest
        WHERE session.session_id = newest.session_id
    )
    SELECT key FROM free""".replace("user", '"user"')
_FINISHES = f"""
    UPDATE ledger SET state = done.state, {OUTCOME.format("done.envelope").replace("user", '"user"')},
        finished_at = done.finished_at
    FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[], %s::bigint[])
        AS done (key, fence, state, envelope, finished_at)
    WHERE ledger.key = done.key AND ledger.fence = done.fence AND ledger.state IN ('running', 'unknown')
    RETURNING ledger.key"""


class PostgresStore(StatementStore):
    """See the module's docstring. Several runtimes may share one object, each opening and closing it."""

    def __init__(self, url: str, *, clock: Clock | None = None, limit_seconds: float = LIMIT_SECONDS) -> None:
        """`limit_seconds` is waited for a server that does not answer; `clock` is for tests."""
        self._server_clock = _ServerClock()
        super().__init__(clock or self._server_clock)
        try:
            self._address = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # What psycopg says of it may hold the password.
            raise UsageError("The URL of the store cannot be read; write postgresql://USER@HOST/DATABASE.") from None
        if "@" in str(self._address.get("dbname", "")) or not str(self._address.get("port", "0")).isdecimal():
            # A password with a slash in it, which would be shown as the name of a database.
            raise UsageError("The URL of the store cannot be read; write postgresql://USER@HOST/DATABASE.")
        self.url = url
        self._name = str(self._address.get("dbname") or self._address.get("user") or "postgres")
        self._title = f'The store "{self._name}"'
        self._limit = limit_seconds
        self._timeouts = 0
        self._users = 0
        self._process = os.getpid()
        self._turnstile = asyncio.Lock()
        self._heartbeat: _Heartbeat | None = None
        self._lines: tuple[_Line, ...] = ()
        self._writer: Worker | None = None
        self._reader: Worker | None = None

    async def open(self) -> None:
        async with self._turnstile:
            if not self._users:
                await self._start()
            self._users += 1

    async def _start(self) -> None:
        # The heartbeat's connection makes the tables, so that the others find them.
        heartbeat = _Heartbeat(_Line(self._connect, self._prepare), self._server_clock, self._title)
        try:
            await asyncio.wait_for(asyncio.to_thread(heartbeat.start), 3 * self._limit)
        except TimeoutError:
            heartbeat.give_up()
            raise StoreUnavailable(f"{self._title} could not be opened within {3 * self._limit:g} seconds.") from None
        except psycopg.Error as error:
            raise _unavailable(self._title, error) from None
        self._heartbeat = heartbeat
        self._process = os.getpid()
        writing, reading = _Line(self._connect), _Line(self._connect, _read_only)
        make = partial(Worker, title=self._title, limit=self._limit)
        self._lines = (writing, reading)
        self._writer = make("handrail-store-writer", lambda batch: self._commit(writing, batch))
        self._reader = make("handrail-store-reader", lambda batch: self._look(reading, batch))

    async def close(self) -> None:
        """Wait for what was asked for, then let go of the connections and of every owner that was registered here."""
        async with self._turnstile:
            self._users = max(0, self._users - 1)
            if self._process != os.getpid():
                return  # forked: the connections are those of the process that opened them
            if self._users or self._writer is None or self._reader is None or self._heartbeat is None:
                return
            workers, self._writer, self._reader = (self._writer, self._reader), None, None
            heartbeat, self._heartbeat = self._heartbeat, None
            for worker in workers:
                worker.hand_over(asyncio.get_running_loop())
            await asyncio.to_thread(self._stop, workers, heartbeat)
            self._timeouts += sum(worker.timeouts for worker in workers)

    def _stop(self, workers: Sequence[Worker], heartbeat: _Heartbeat) -> None:
        for worker, line in zip(workers, self._lines, strict=True):
            if worker.stop():
                line.close()
        heartbeat.stop()

    def load(self) -> StoreLoad:
        workers = [worker for worker in (self._writer, self._reader) if worker is not None]
        return StoreLoad(
            waiting=self._writer.waiting if self._writer is not None else 0,
            timeouts=self._timeouts + sum(worker.timeouts for worker in workers),
        )

    async def register_owner(self, owner: str) -> None:
        heartbeat = self._opened()
        try:
            await asyncio.to_thread(heartbeat.add, owner)
        except psycopg.Error as error:
            raise _unavailable(self._title, error) from None
        try:
            await self._write(partial(owners.register, owner=owner, process=Process.this()))
        except BaseException:
            await asyncio.to_thread(heartbeat.remove, owner)
            raise

    async def release_owner(self, owner: str) -> None:
        heartbeat = self._opened()
        try:
            await self._write(partial(owners.release, names=[owner]))
        finally:
            await asyncio.to_thread(heartbeat.remove, owner)

    async def _write(self, request: Request[T]) -> T:
        if self._writer is None:
            raise self._not_open()
        return await self._writer.submit(request)

    async def _read(self, request: Request[T]) -> T:
        if self._reader is None:
            raise self._not_open()
        return await self._reader.submit(request)

    # On the threads
    def _commit(self, line: _Line, batch: Sequence[Job]) -> None:
        # Those that have no answer yet: what is answered is committed, and never carried out again.
        left = list(batch)
        try:
            db = line.get()
            if all(isinstance(job.request, ClaimRequest | FinishRequest) for job in batch):
                self._in_one_trip(db, left)
            if len(left) > 1:
                self._together(db, left)
            self._one_by_one(db, left)
        except Exception as error:  # noqa: BLE001 - the connection is in nobody knows what state
            line.close()
            for job in left:
                # An exception of its own for each: they are raised in different tasks.
                job.error = self._failure(error)

    def _in_one_trip(self, db: _Database, left: list[Job]) -> None:
        """Commit what nothing stands against, each group with one trip to the server."""
        jobs = {id(job.request): job for job in left}
        for group in grouped([job.request for job in left], _LARGEST):
            if not group.claims and not group.finishes:
                continue
            try:
                done = self._carry_out_group(db, group)
            except Exception as error:
                if isinstance(error, psycopg.OperationalError) and not isinstance(error, _PASSING):
                    raise
                db.roll_back()  # whatever it is, it comes again where each is looked at
                continue
            for request in group.requests:
                job = jobs[id(request)]
                job.outcome = done.get(_key_of(request))
                if job.outcome is not None:
                    left.remove(job)

    def _carry_out_group(self, db: _Database, group: Group) -> dict[str, Any]:
        now, done = self._clock(), dict[str, Any]()
        wishes, ends = _columns_of_claims(group.claims, now), _columns_of_finishes(group.finishes, now)
        names = {claim.session_id for claim in group.claims}
        names |= {end.claimed.session_id for end in group.finishes if end.claimed is not None}
        with db.connection.pipeline():
            # Each statement sees what was committed before it began, so the claims see what was stored before their locks.
            db.connection.execute(_BEGIN)
            _lock_sessions(db, names)
            finished = db.connection.execute(_FINISHES, ends) if ends else None
            made = db.connection.execute(_CLAIMS, wishes) if wishes else None
            db.connection.execute("COMMIT")
        if finished is not None:
            stored = {key for (key,) in finished}
            done |= {one.key: _finished(one, now) for one in group.finishes if one.key in stored}
        if made is not None:
            free = {key for (key,) in made}
            done |= {
                one.key: claimed(one, now, ClaimVerdict.CLAIMED, 1, now) for one in group.claims if one.key in free
            }
        return done

    def _together(self, db: _Database, left: list[Job]) -> None:
        """All in one transaction. If one fails nothing is done, and each is tried on its own."""
        left[:] = [job for job in left if not job.withdrawn]
        try:
            db.connection.execute(_BEGIN)
            _lock(db, [job.request for job in left])
            tx = Transaction(db, self._clock(), self._life)
            outcomes = [job.request(tx) for job in left]
            db.connection.execute("COMMIT")
        except Exception as error:
            if isinstance(error, psycopg.OperationalError) and not isinstance(error, _PASSING):
                raise
            db.roll_back()
            return
        for job, outcome in zip(left, outcomes, strict=True):
            job.outcome = outcome
        left.clear()

    def _one_by_one(self, db: _Database, left: list[Job]) -> None:
        waits = True
        while left:
            job = left[0]
            for attempt in range(_ATTEMPTS):
                if job.withdrawn:
                    break  # nobody waits for it any more
                try:
                    db.connection.execute(_BEGIN)
                    if not waits:
                        db.connection.execute("SET LOCAL lock_timeout = 100")
                    _lock(db, [job.request])
                    outcome = job.request(Transaction(db, self._clock(), self._life))
                    db.connection.execute("COMMIT")
                except Exception as error:
                    if isinstance(error, psycopg.OperationalError) and not isinstance(error, _PASSING):
                        raise
                    db.roll_back()
                    job.error = self._failure(error)
                    # Who has waited once for somebody else's lock has kept the others waiting long enough.
                    waits = waits and not isinstance(error, errors.LockNotAvailable)
                    if attempt < _ATTEMPTS - 1 and isinstance(error, _AGAIN):
                        continue
                else:
                    job.outcome, job.error = outcome, None
                break
            left.pop(0)

    def _look(self, line: _Line, batch: Sequence[Job]) -> None:
        for job in batch:
            try:
                job.outcome = job.request(Transaction(line.get(), self._clock(), self._life))
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to the one that asked
                job.error = self._failure(error)
                if isinstance(error, psycopg.Error):
                    line.close()

    def _life(self, db: Any, owner: str) -> Life:
        if self._heartbeat is not None and self._heartbeat.has(owner):
            return Life.ALIVE
        return _life_of(db, owner)

    def _prepare(self, db: _Database) -> None:
        """Make or upgrade the tables, one process at a time."""
        if db.connection.info.server_version < _OLDEST:
            raise UsageError(
                f"{self._title} is on PostgreSQL {db.connection.info.server_version // 10_000}; 14 or newer is needed."
            )
        pid = db.connection.execute("SELECT pg_backend_pid()").fetchone()
        if pid is None or pid[0] != db.connection.info.backend_pid:
            raise UsageError(
                f"{self._title} is reached through a connection pooler, which loses locks between transactions; "
                "name the PostgreSQL server itself."
            )
        (durable,) = db.connection.execute("SHOW synchronous_commit").fetchone() or ("on",)
        if durable in ("off", "local"):
            raise UsageError(
                f'{self._title} has synchronous_commit = {durable}, which loses calls that were answered; set it to "on".'
            )
        # Others may be at an upgrade, which takes its time.
        db.connection.execute("SET lock_timeout = 60000")
        db.connection.execute("SET statement_timeout = 60000")
        db.connection.execute("SELECT pg_advisory_lock(%s, 0)", (_LOCKS,))
        try:
            migrate(db, self._name, self._clock(), tables=_TABLES)
            for statement in _OWN_TABLES:
                db.connection.execute(statement)
        finally:
            db.roll_back()
            db.connection.execute("SELECT pg_advisory_unlock(%s, 0)", (_LOCKS,))
            db.connection.execute("RESET lock_timeout")
            db.connection.execute("RESET statement_timeout")

    def _connect(self) -> _Database:
        wanted: dict[str, Any] = {
            "connect_timeout": max(2, int(self._limit)),
            "application_name": "handrail",
            "options": _SETTINGS.format(int(self._limit * 1_000)),
            "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000,
        }  # fmt: skip
        if "options" in self._address:
            wanted["options"] = f"{wanted['options']} {self._address['options']}"
        try:
            connection = psycopg.connect(**{**wanted, **self._address, "options": wanted["options"]}, autocommit=True)
        except psycopg.Error as error:
            raise _unreachable(self._title, error) from None
        return _Database(connection)

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, psycopg.Error):
            return _unavailable(self._title, error)
        if isinstance(error, StoreUnavailable):
            return StoreUnavailable(*error.args)
        if isinstance(error, UnicodeError):
            return UsageError(f"{self._title} cannot keep this value: it is no Unicode text.")
        return error

    def _opened(self) -> _Heartbeat:
        if self._heartbeat is None:
            raise self._not_open()
        return self._heartbeat

    def _not_open(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._title} is not open; call open() first.")


_LARGEST = 512
_ATTEMPTS = 5
"""How often a transaction that met a deadlock is tried. Rows are locked in one order, so that hardly any does."""
_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
_PASSING = (*_AGAIN, errors.LockNotAvailable, errors.QueryCanceled)
"""Errors of one transaction, after which the connection is good."""


class _ServerClock:
    """Milliseconds since 1970 on the server's clock: read at every heartbeat, and counted on by this machine's monotonic clock,
    which nobody can set."""

    def __init__(self) -> None:
        self._ahead = time.time() * 1_000 - time.monotonic() * 1_000
        self._error = float("inf")
        """How wrong it may be, in milliseconds: the reading took twice as long."""

    def __call__(self) -> int:
        return int(time.monotonic() * 1_000 + self._ahead)

    def read(self, db: _Database) -> None:
        before = time.monotonic()
        (now,) = db.connection.execute(f"SELECT {_NOW}").fetchone() or (0,)
        after = time.monotonic()
        ahead, error = now - (before + after) * 500, (after - before) * 500 + 1
        # A reading that was slow tells nothing new if it fits to a quicker one.
        if error <= self._error or abs(ahead - self._ahead) > error + self._error:
            self._ahead, self._error = ahead, error


class _Database:
    """A connection as the functions of `statements` use it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> psycopg.Cursor[Any]:
        given: Any = (
            {name: _without_types(value) for name, value in values.items()}
            if isinstance(values, Mapping)
            else [_without_types(value) for value in values]
        )
        return self.connection.execute(_translated(statement), given)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.execute(statement, row)

    @property
    def in_transaction(self) -> bool:
        return self.connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE

    def roll_back(self) -> None:
        if not self.connection.closed and self.in_transaction:
            self.connection.rollback()


class _Line:
    """A connection that is made when it is first needed, and again after it was lost; not more often than once in a while."""

    def __init__(self, connect: Callable[[], _Database], prepare: Callable[[_Database], None] | None = None) -> None:
        self._connect = connect
        self._prepare = prepare
        self._db: _Database | None = None
        self._wait = 0.0
        self._not_before = 0.0

    @property
    def is_open(self) -> bool:
        return self._db is not None and not self._db.connection.closed

    def get(self) -> _Database:
        if self._db is None or self._db.connection.closed:
            time.sleep(max(0.0, min(self._not_before - time.monotonic(), 1.0)))
            self._wait = min(self._wait * 2 + 0.05, 2.0)
            self._not_before = time.monotonic() + self._wait
            db = self._connect()
            try:
                if self._prepare is not None:
                    self._prepare(db)
            except BaseException:
                db.connection.close()
                raise
            self._db, self._wait = db, 0.0
        return self._db

    def close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(psycopg.Error):
                self._db.connection.close()
            self._db = None


class _Heartbeat:
    """Shows that the owners of this process live: by an advisory lock on a connection of its own, which the server frees when
    the connection ends, and by a row that is written again and again, which a frozen process cannot."""

    def __init__(self, line: _Line, clock: _ServerClock, title: str) -> None:
        self._line = line
        self._clock = clock
        self._title = title
        self._owners: dict[str, bool] = {}
        self._guard = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="handrail-store-heartbeat", daemon=True)

    def start(self) -> None:
        with self._guard:
            self._clock.read(self._line.get())
            if self._ends.is_set():
                self._line.close()  # nobody waited for it
                return
        self._thread.start()

    def give_up(self) -> None:
        self._ends.set()

    def stop(self) -> None:
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join(_BEAT_SECONDS * 3)
        with contextlib.suppress(StoreUnavailable), self._guarded():
            # Over a connection that is there: nobody waits for a server that is away just to say good-bye.
            with contextlib.suppress(psycopg.Error):
                for owner in self._owners if self._line.is_open else ():
                    self._line.get().execute("DELETE FROM heartbeat WHERE owner = ?", (owner,))
                    self._line.get().execute("DELETE FROM owner WHERE owner = ?", (owner,))
            self._owners = {}
            self._line.close()

    def has(self, owner: str) -> bool:
        return owner in self._owners

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """A server that hangs holds the beat; nobody else waits for it longer than this."""
        if not self._guard.acquire(timeout=_BEAT_SECONDS * 3):
            raise StoreUnavailable(f"{self._title} does not answer.")
        try:
            yield
        finally:
            self._guard.release()

    def add(self, owner: str) -> None:
        with self._guarded():
            try:
                if owner in self._owners or not self._take(owner):
                    raise UsageError(
                        f'The owner "{owner}" is registered already; each runtime needs a name of its own.'
                    )
                self._write([owner])
                # What crashed owners left, long after their leases.
                self._line.get().execute(f"DELETE FROM heartbeat WHERE seen_at < {_NOW} - 86400000")
            except psycopg.Error:
                self._line.close()
                raise
            self._owners[owner] = True

    def remove(self, owner: str) -> None:
        with self._guarded():
            if self._owners.pop(owner, None) is None:
                return
            with contextlib.suppress(psycopg.Error, HandrailError):
                db = self._line.get()
                db.execute("DELETE FROM heartbeat WHERE owner = ?", (owner,))
                db.execute("SELECT pg_advisory_unlock(?, hashtext(?))", (_LOCKS, owner))

    def _beat(self) -> None:
        while not self._ends.wait(_BEAT_SECONDS):
            with self._guard:
                try:
                    self._clock.read(self._line.get())
                    for owner in self._owners:
                        self._take(owner)
                    self._write(list(self._owners))
                except (psycopg.Error, HandrailError) as error:
                    # The others are told by what they wait for; here it is only noted.
                    _log.warning("%s does not take the heartbeat (%s)", self._title, _first_line(error))
                    self._line.close()

    def _take(self, owner: str) -> bool:
        db = self._line.get()
        held = db.execute(
            """SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND classid::bigint = ?
               AND objid::bigint = hashtext(?)::bigint & 4294967295""",
            (_LOCKS, owner),
        ).fetchone()
        if held is not None:
            return True
        taken = db.execute("SELECT pg_try_advisory_lock(?, hashtext(?))", (_LOCKS, owner)).fetchone()
        return bool(taken and taken[0])

    def _write(self, names: Sequence[str]) -> None:
        for owner in names:
            self._line.get().execute(
                f"INSERT INTO heartbeat VALUES (?, {_NOW}) ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at",
                (owner,),
            )


def _life_of(db: Any, owner: str) -> Life:
    """An owner whose process is known to be gone has died. Of one on another machine only its heartbeat is known: while that is
    fresh it lives; after that its leases count, because what it began may still run."""
    row = db.execute(
        f"""SELECT {_NOW} - seen_at, EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND classid::bigint = ? AND objid::bigint = hashtext(owner)::bigint & 4294967295)
            FROM heartbeat WHERE owner = ?""",
        (_LOCKS, owner),
    ).fetchone()
    age, has_lock = row or (None, False)
    process = owners.process_of(db, owner)
    if not has_lock and process is not None and process.is_gone():
        return Life.DIED
    if age is None:
        return Life.ENDED
    return Life.ALIVE if age < (_FRESH_MS if has_lock else _FRESH_MS // 2) else Life.ENDED


def _read_only(db: _Database) -> None:
    db.connection.execute("SET default_transaction_read_only = on")


# What is locked before a request looks: it decides by what it reads, and nobody may change that before it has written.
def _lock(db: _Database, requests: Sequence[Request[Any]]) -> None:
    """The rows of the sessions that these requests are about, in one order everywhere, so that no two processes wait for each
    other; then the limits and the chains that they share."""
    names: set[str] = set()
    shared: set[str] = set()
    for request in requests:
        work = request.func if isinstance(request, partial) else None
        if work in (evicting.evict, evicting.forget_user):
            # Rare, and about any number of sessions: everybody else who writes waits for it, and it for them.
            db.connection.execute("LOCK TABLE session IN EXCLUSIVE MODE")
        elif work in (auditing.save_audit_checkpoint, auditing.abandoned_audits):
            shared.add("audit")
        else:
            names.update(_sessions_of(db, request))
        if isinstance(request, ClaimRequest) and request.claim.rate is not None:
            shared.add(f"limit {request.claim.rate.scope}")
    _lock_sessions(db, names)
    for name in sorted(shared):
        db.connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", (name, _LOCKS))


def _lock_sessions(db: _Database, names: Collection[str]) -> None:
    if names:
        db.connection.execute(
            "SELECT FROM session WHERE session_id = ANY(%s) ORDER BY session_id FOR NO KEY UPDATE", (sorted(names),)
        )


def _sessions_of(db: _Database, request: Request[Any]) -> list[str]:
    if isinstance(request, ClaimRequest):
        return [request.claim.session_id]
    if isinstance(request, FinishRequest):
        return _owning(db, "ledger", "key", request.finish.key)
    given: Mapping[str, Any] = request.keywords if isinstance(request, partial) else {}
    if "session_id" in given:
        return [given["session_id"]]
    if "hold" in given:
        return [given["hold"].session_id]
    if "hold_id" in given:
        return _owning(db, "hold", "hold_id", given["hold_id"])
    if "key" in given:
        return _owning(db, "ledger", "key", given["key"])
    if "saves" in given:
        return [session_id for session_id, _, _ in given["saves"]]
    if "tenant" in given and "user" in given:
        mine = db.execute(
            "SELECT session_id FROM session WHERE tenant = ? AND user = ?", (given["tenant"], given["user"])
        )
        return [session_id for (session_id,) in mine]
    return []


def _owning(db: _Database, table: str, column: str, key: str) -> list[str]:
    """The session that a row belongs to, which never changes."""
    return [name for (name,) in db.execute(f"SELECT session_id FROM {table} WHERE {column} = ?", (key,))]


# Claims and finishes in one trip
def _key_of(request: Any) -> str:
    key: str = request.claim.key if isinstance(request, ClaimRequest) else request.finish.key
    return key


def _columns_of_claims(claims: Sequence[Claim], now: int) -> list[list[Any]]:
    rows = []
    for one in claims:
        counters = None if one.counters is None else to_json(one.counters, '"counters" of a claim')
        alias = one.alias
        named = (None,) * 4 if alias is None else (alias.call_id, alias.tool, alias.raw_digest, alias.hold_id)
        rows.append(
            (
                *(one.key, one.tenant, one.session_id, one.user, one.turn, one.ordinal, one.tool, one.tool_hash),
                *(one.registry_version, one.args_digest, one.args, one.effects, one.owner, one.claim_id),
                *(now + one.lease_ms, now, one.connection, counters, *named),
            )
        )
    return [list(column) for column in zip(*rows, strict=True)]


def _columns_of_finishes(finishes: Sequence[Finish], now: int) -> list[list[Any]]:
    rows = [
        (one.key, one.fence, one.state.value, one.envelope, now if one.state in SETTLED else None) for one in finishes
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _finished(one: Finish, now: int) -> LedgerRow | None:
    settled_at = now if one.state in SETTLED else None
    return one.claimed and one.claimed._replace(state=one.state, envelope=one.envelope, finished_at=settled_at)


# The language
_WORDS = (
    # PostgreSQL takes it for the role that is connected.
    (re.compile(r'(?<![\w"])user(?![\w"])'), '"user"'),
    (re.compile(r"\bIS \?"), "IS NOT DISTINCT FROM ?"),
    (re.compile(r"SELECT value FROM json_each\(\?\)"), "SELECT jsonb_array_elements_text(?::jsonb)"),
    (re.compile(r"\bINDEXED BY \w+"), ""),
    (re.compile(r"ifnull\(length\(CAST\((\w+) AS BLOB\)\), 0\)"), r"coalesce(octet_length(\1), 0)"),
    (re.compile(r"\bWITHOUT ROWID\b"), ""),
    (re.compile(r"\bINTEGER\b"), "BIGINT"),
    (re.compile(r"\bBLOB\b"), "BYTEA"),
    (
        re.compile(r"randomblob\(32\)"),
        "decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex')",
    ),
    (re.compile(r"CAST\(strftime\('%s', 'now'\) AS BIGINT\) \* 1000"), _NOW),
    (re.compile(r"\bBEGIN IMMEDIATE\b"), _BEGIN),
)
_NAMED = re.compile(r"(?<![:\w]):(\w+)")


@lru_cache(maxsize=500)
def _translated(statement: str) -> bytes:
    """A statement as PostgreSQL reads it."""
    makes = re.match(r"\s*CREATE TABLE ", statement)
    if makes and not re.search(r"\bWITHOUT ROWID\b", statement):
        # What SQLite has by itself: the order in which rows were made.
        statement = f"{statement.rstrip()[:-1]}, rowid BIGINT GENERATED ALWAYS AS IDENTITY)"
    for pattern, replacement in _WORDS:
        statement = pattern.sub(replacement, statement)
    return _NAMED.sub(r"%(\1)s", statement.replace("%", "%%")).replace("?", "%s").encode()


def _without_types(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return int(value) if isinstance(value, bool) else value


# Failures
_SENTENCES: Mapping[type[psycopg.Error], str] = {
    errors.ReadOnlySqlTransaction: "may only be read; it is a standby, or set to read-only",
    errors.DiskFull: "cannot be written because its disk is full; make room and try again",
    errors.InsufficientPrivilege: "does not let this role do that; grant it the rights that the documentation lists",
    errors.LockNotAvailable: "is locked by another process for longer than we wait; try again",
    errors.QueryCanceled: "did not answer in time; try again",
    errors.CannotConnectNow: "is starting up or shutting down; try again",
    errors.AdminShutdown: "was shut down; try again when it is up",
    errors.TooManyConnections: "takes no more connections; raise max_connections or run fewer processes",
    errors.InvalidPassword: "does not take this password",
    errors.InvalidAuthorizationSpecification: "does not let this role in",
    errors.InvalidCatalogName: "is not there; create the database, or name another",
}


def _unavailable(title: str, error: psycopg.Error) -> HandrailError:
    """What to raise when an operation failed with `error`."""
    if isinstance(error, psycopg.IntegrityError):
        return UsageError(f"{title} refused this: what it refers to is not there, or is there already.")
    if isinstance(error, psycopg.DataError):
        return UsageError(f"{title} cannot keep this value ({_first_line(error)}).")
    said = next((words for kind, words in _SENTENCES.items() if isinstance(error, kind)), None)
    return StoreUnavailable(f"{title} {said or f'did not answer ({_first_line(error)})'}.")


def _unreachable(title: str, error: psycopg.Error) -> HandrailError:
    text = str(error)
    for sign, words in (
        ("password authentication failed", _SENTENCES[errors.InvalidPassword]),
        ("no password supplied", "asks for a password; put it into PGPASSWORD or a password file"),
        ("does not exist", "is not there, or its role is not; create them, or name others"),
        ("too many clients", _SENTENCES[errors.TooManyConnections]),
        ("starting up", _SENTENCES[errors.CannotConnectNow]),
        ("recovery", "is in recovery; try again"),
    ):
        if sign in text:
            return StoreUnavailable(f"{title} {words}.")
    return StoreUnavailable(f"{title} cannot be reached ({_first_line(error)}).")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


__all__ = ["PostgresStore"]
