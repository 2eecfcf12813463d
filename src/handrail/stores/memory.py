"""The store that ends with the process: for tests, trials and one-off calls. It runs the statements of the file store
on a database in memory, inline in the event loop, on any clock; so it differs in durability and in nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
import weakref
from contextlib import closing
from functools import cache
from typing import TypeVar

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreLoad, StoreUnavailable
from handrail.stores.base import StatementStore
from handrail.stores.failures import unavailable
from handrail.stores.migrations import migrate
from handrail.stores.statements import Clock, Transaction
from handrail.stores.statements.transaction import NO_LOCKS, Database, Life, Locks, Request

T = TypeVar("T")
_NAME = "memory:"


@cache
def _empty_database() -> bytes:
    """A database that has every table, made once: two hundred statements would cost each store more than its tests do."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, _NAME, 0)
        return db.serialize()


class MemoryStore(StatementStore):
    """Several runtimes may share one object, each opening and closing it. What it holds lives as long as the object: a
    test may close a runtime and start the next one on the same store."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._owners: set[str] = set()
        self._users = 0
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._db.close)
        self._db.deserialize(_empty_database())
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute("UPDATE handrail_migration SET applied_at = ?", (self._clock(),))

    async def open(self) -> None:
        self._users += 1

    async def close(self) -> None:
        self._users = max(0, self._users - 1)
        if not self._users:
            self._owners.clear()

    def load(self) -> StoreLoad:
        return StoreLoad(waiting=0, timeouts=0)

    async def register_owner(self, owner: str) -> None:
        if owner in self._owners:
            raise UsageError(f'The owner "{owner}" is registered already; each runtime needs a name of its own.')
        self._owners.add(owner)

    async def release_owner(self, owner: str) -> None:
        """The owner is gone: ended in order, or, for a test, died."""
        self._owners.discard(owner)

    def _life(self, _: Database, owner: str) -> Life:
        return Life.ALIVE if owner in self._owners else Life.ENDED

    async def _write(self, request: Request[T], locks: Locks = NO_LOCKS) -> T:
        del locks  # nobody else is at it
        self._check_open()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            outcome = request(Transaction(self._db, self._clock(), self._life))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise unavailable(_NAME, error) from None
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        # Other tasks get their turn after each change, as they do while a disk writes: a race shows itself here too.
        await asyncio.sleep(0)
        return outcome

    async def _read(self, request: Request[T]) -> T:
        return await self._write(request)

    def _check_open(self) -> None:
        if not self._users:
            raise StoreUnavailable('The store "memory:" is not open; call open() first.')
