"""The store: a writer thread that commits everything that waits in one transaction, a reader thread with a connection of its own,
and one more each for the heartbeat and for wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
import psycopg
from psycopg import errors

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores import owners
from handrail.stores.base import Group, ThreadedStore, grouped
from handrail.stores.migrations import migrate
from handrail.stores.owners import Process
from handrail.stores.postgres.batches import carry_out_group, commit_group
from handrail.stores.postgres.connection import (
    PostgresDatabase,
    ReconnectingDatabase,
    ServerAddress,
    check_durability,
    check_server,
    plan_by_index,
    read_only,
    warn_of_lost_writes,
    warn_of_transport,
)
from handrail.stores.postgres.dialect import BEGIN
from handrail.stores.postgres.failures import DEADLOCKS, loses_connection, unavailable
from handrail.stores.postgres.heartbeat import Heartbeat, ServerClock, life_of
from handrail.stores.postgres.locking import MIGRATION_LOCK, lock
from handrail.stores.postgres.wakeups import Wakeups, listen
from handrail.stores.statements import Clock, Transaction
from handrail.stores.statements.transaction import Life, Request
from handrail.stores.worker import LIMIT_SECONDS, Job, Worker

_MAX_GROUP = 512
_ATTEMPTS = 5
"""How often a transaction that met a deadlock is tried. Rows are locked in one order, so that hardly any does."""
_ADVICE = "check that the server runs and can be reached, and what holds locks in it"


class PostgresStore(ThreadedStore):
    """See the docstring of the package."""

    _takes_locks = True

    def __init__(self, url: str, *, clock: Clock | None = None, limit_seconds: float = LIMIT_SECONDS) -> None:
        """`limit_seconds` is waited for a server that does not answer; `clock` is for tests."""
        self._address = ServerAddress(url)
        self._server_clock = ServerClock()
        super().__init__(clock or self._server_clock, title=self._address.title, limit=limit_seconds)
        self._heartbeat: Heartbeat | None = None
        self._wakeups: Wakeups | None = None
        self._databases: tuple[ReconnectingDatabase, ...] = ()
        self._warned = False

    def __repr__(self) -> str:
        return f'PostgresStore("{self._address.database}")'

    async def _start(self) -> tuple[Worker, Worker]:
        # The heartbeat's connection makes the tables, so that the others find them.
        connect = partial(self._address.connect, self._limit)
        heartbeat = Heartbeat(ReconnectingDatabase(connect, self._prepare), self._server_clock, self._title)
        try:
            await asyncio.wait_for(asyncio.to_thread(heartbeat.start), 3 * self._limit)
        except TimeoutError:
            heartbeat.give_up()
            raise StoreUnavailable(f"{self._title} could not be opened within {3 * self._limit:g} seconds.") from None
        except psycopg.Error as error:
            raise unavailable(self._title, error) from None
        self._heartbeat = heartbeat
        writing = ReconnectingDatabase(connect, self._prepare_writer)
        reading = ReconnectingDatabase(connect, partial(read_only, title=self._title))
        self._databases = (writing, reading)
        self._wakeups = Wakeups(ReconnectingDatabase(connect, listen), self._title)
        make = partial(Worker, title=self._title, advice=_ADVICE, limit=self._limit)
        return (
            make("handrail-store-writer", lambda batch: self._commit(writing, batch)),
            make("handrail-store-reader", lambda batch: self._look(reading, batch)),
        )

    def _stop(self, writer: Worker, reader: Worker) -> None:
        for worker, database in zip((writer, reader), self._databases, strict=True):
            if worker.stop():
                database.close()
        heartbeat, self._heartbeat = self._opened(), None
        heartbeat.stop()
        if self._wakeups is not None:
            self._wakeups.stop()
            self._wakeups = None

    def _tell(self, topic: str) -> None:
        if self._wakeups is not None:
            self._wakeups.tell(topic)

    def changed(self, hold_id: str | None = None) -> asyncio.Future[None]:
        return super().changed() if self._wakeups is None else self._wakeups.changed(hold_id)

    async def register_owner(self, owner: str) -> None:
        heartbeat = self._opened()
        try:
            await asyncio.to_thread(heartbeat.add, owner)
        except psycopg.Error as error:
            raise unavailable(self._title, error) from None
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

    def is_heard(self) -> bool:
        return self._heartbeat is not None and self._heartbeat.is_heard()

    # On the threads
    def _commit(self, database: ReconnectingDatabase, batch: Sequence[Job]) -> None:
        # Those that have no answer yet: what is answered is committed, and never carried out again.
        left = list(batch)
        try:
            self._check_refusal()
            db = database.get()
            groups = grouped([job.request for job in left], _MAX_GROUP)
            # Otherwise a later group could overtake the request that cannot go this way.
            if all(group.is_together for group in groups):
                self._in_one_trip(db, left, groups)
            if len(left) > 1:
                self._together(db, left)
            self._one_by_one(db, left)
        except Exception as error:  # noqa: BLE001 - the connection is in nobody knows what state
            database.close()
            for job in left:
                # An exception of its own for each: they are raised in different tasks.
                job.error = self._failure(error)

    def _check_refusal(self) -> None:
        """A connection that was there before may still take what the heartbeat has learned not to write."""
        if self._heartbeat is not None and self._heartbeat.refusal:
            raise StoreUnavailable(self._heartbeat.refusal)

    def _in_one_trip(self, db: PostgresDatabase, left: list[Job], groups: Sequence[Group]) -> None:
        """Commit what no precondition refuses, each group with one trip to the server."""
        jobs = {id(job.request): job for job in left}
        for group in groups:
            try:
                # An answer that does not come leaves open whether it was committed. The job stays in `left` and fails; the
                # claim id finds out.
                outcomes = commit_group(db, group, self._clock())
            except Exception as error:
                if loses_connection(error):
                    raise
                db.roll_back()  # whatever it is, it comes again where each is looked at
                return  # and what comes after it does not overtake it
            for request, outcome in zip(group.requests, outcomes, strict=True):
                if outcome is not None:
                    job = jobs[id(request)]
                    job.outcome = outcome
                    left.remove(job)
            if None in outcomes:
                return  # what comes after it waits until it is decided

    def _together(self, db: PostgresDatabase, left: list[Job]) -> None:
        """All in one transaction. If one fails nothing is done, and each is tried on its own."""
        # Whoever asked has had the answer that nothing is known of it; it must not happen after that.
        left[:] = [job for job in left if not job.withdrawn]
        try:
            requests = [job.request for job in left]
            self._begin(db, requests)
            outcomes = list[Any]()
            with db.connection.pipeline():
                tx = Transaction(db, self._clock(), self._life)
                for group in grouped(requests, _MAX_GROUP):
                    made = carry_out_group(db, group, tx.now) if len(group.requests) > 1 else [None]
                    for request, outcome in zip(group.requests, made, strict=True):
                        outcomes.append(request(tx) if outcome is None else outcome)
                db.connection.execute("COMMIT")
        except Exception as error:
            if loses_connection(error):
                raise
            db.roll_back()
            return
        for job, outcome in zip(left, outcomes, strict=True):
            job.outcome = outcome
        left.clear()

    def _begin(self, db: PostgresDatabase, requests: Sequence[Request[Any]], *settings: str) -> None:
        """Begin a transaction that has the locks of these requests. Its time is read after that."""
        with db.connection.pipeline():
            db.connection.execute(BEGIN)
            for setting in settings:
                db.connection.execute(setting.encode())
            lock(db, requests)

    def _one_by_one(self, db: PostgresDatabase, left: list[Job]) -> None:
        waits = True
        while left:
            job = left[0]
            # A deadlock is nobody's mistake: the server has undone the transaction, and it can be tried again as it was.
            for attempt in range(_ATTEMPTS):
                if job.withdrawn:
                    break  # nobody waits for it any more
                try:
                    self._begin(db, [job.request], *(() if waits else ("SET LOCAL lock_timeout = 100",)))
                    with db.connection.pipeline():
                        outcome = job.request(Transaction(db, self._clock(), self._life))
                        db.connection.execute("COMMIT")
                except Exception as error:
                    if loses_connection(error):
                        raise
                    db.roll_back()
                    job.error = self._failure(error)
                    # Who has waited once for somebody else's lock has kept the others waiting long enough.
                    waits = waits and not isinstance(error, errors.LockNotAvailable)
                    if attempt < _ATTEMPTS - 1 and isinstance(error, DEADLOCKS):
                        continue
                else:
                    job.outcome, job.error = outcome, None
                break
            left.pop(0)

    def _look(self, database: ReconnectingDatabase, batch: Sequence[Job]) -> None:
        for place, job in enumerate(batch):
            try:
                db = database.get()
            except Exception as error:  # noqa: BLE001 - whatever it is, it keeps everybody from looking
                for left in batch[place:]:  # and nobody waits until each of the others has tried as well
                    left.error = self._failure(error)
                return
            try:
                job.outcome = job.request(Transaction(db, self._clock(), self._life))
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to the one that asked
                job.error = self._failure(error)
                if isinstance(error, psycopg.Error):
                    database.close()

    def _life(self, db: Any, owner: str) -> Life:
        own = self._heartbeat
        if own is not None and own.has(owner):
            return Life.ALIVE
        return life_of(db, owner, in_doubt=own is not None and own.failed_lately())

    def _prepare_writer(self, db: PostgresDatabase) -> None:
        check_durability(db, self._title)
        plan_by_index(db)

    def _prepare(self, db: PostgresDatabase) -> None:
        """Make or upgrade the tables, one process at a time."""
        check_server(db, self._title)
        check_durability(db, self._title, UsageError)
        if not self._warned:
            warn_of_transport(db, self._title)
            warn_of_lost_writes(db, self._title)
            self._warned = True
        # Others may be at an upgrade, which takes its time.
        db.connection.execute("SET lock_timeout = 60000")
        db.connection.execute("SET statement_timeout = 60000")
        # Servers start at the same time. One upgrades, the others wait and find the tables as they should be.
        db.connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
        try:
            migrate(db, self._address.database, self._clock(), on_postgres=True)
        finally:
            db.roll_back()
            db.connection.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))
            db.connection.execute("RESET lock_timeout")
            db.connection.execute("RESET statement_timeout")

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, psycopg.Error):
            return unavailable(self._title, error)
        if isinstance(error, StoreUnavailable):
            return StoreUnavailable(*error.args)
        if isinstance(error, (UnicodeError, orjson.JSONEncodeError)):
            return UsageError(f"{self._title} cannot keep this value: it is no Unicode text.")
        return error

    def _opened(self) -> Heartbeat:
        if self._heartbeat is None:
            raise self._not_open()
        return self._heartbeat
