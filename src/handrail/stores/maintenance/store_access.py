"""The database of a store as maintenance uses it: one connection, without the threads and owners of a store that runs calls.
A database is only read, or had alone: whoever copies locks it, and looks for living owners after that."""

# ruff: noqa: S608 - what is put into SQL are the names of our own tables and columns

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores import owners
from handrail.stores.failures import unusable
from handrail.stores.maintenance.tables import MIGRATION_TABLE, Table
from handrail.stores.open_files import connect_to_read, real_path
from handrail.stores.owners import OwnerLocks
from handrail.stores.statements.transaction import Life

Row = tuple[Any, ...]
_BUSY_SECONDS = 5.0


class StoreAccess(ABC):
    """Statements are written so that SQLite and PostgreSQL both understand them; what differs is a method."""

    title: str
    """`The store "handrail.db"`, as the subject of a sentence."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def fetch(self, statement: str) -> list[Row]:
        """All rows of a small answer."""

    @abstractmethod
    def columns(self) -> dict[str, set[str]]:
        """The tables that are there, and their columns."""

    @abstractmethod
    def indexes(self) -> set[str]:
        """The indexes that are there and can be used."""

    @abstractmethod
    def damage(self) -> str:
        """What the database itself finds wrong with its files; empty if nothing is."""

    @abstractmethod
    def living_owners(self) -> list[str]: ...

    @abstractmethod
    def alone(self, tables: Sequence[Table]) -> AbstractContextManager[None]:
        """A transaction in which nobody else writes these tables; committed at its end, undone after an error."""

    @abstractmethod
    def rows(self, table: Table) -> Generator[Row, None, None]:
        """Every row, in an order that is the same for the same rows in every database."""

    @abstractmethod
    def insert(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows, in this order."""

    @abstractmethod
    def clear(self, table: Table) -> None: ...

    def version(self) -> int:
        """The number of its newest migration; 0 for a database without tables. `UsageError` if it is another program's."""
        there = self.columns()
        if MIGRATION_TABLE in there:
            return int(self.fetch(f"SELECT coalesce(max(version), 0) FROM {MIGRATION_TABLE}")[0][0])
        if there:
            raise UsageError(f"{self.title} is a database of another program; name one of its own for the store.")
        return 0

    def count(self, table: Table) -> int:
        return int(self.fetch(f'SELECT count(*) FROM "{table.name}"')[0][0])


class SqliteAccess(StoreAccess):
    """A store in a file."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self._path = real_path(path)
        self.title = f'The store "{path.name}"'
        if not self._path.is_file():
            raise UsageError(f'There is no store "{path}"; name the file of one.')
        try:
            self._db = connect_to_read(self._path, timeout=_BUSY_SECONDS) if read_only else self._writing()
            self._db.execute("SELECT 1 FROM sqlite_master")
        except sqlite3.Error as error:
            raise unusable(self._path.name, error) from None

    def _writing(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        return db

    def close(self) -> None:
        self._db.close()

    def fetch(self, statement: str) -> list[Row]:
        with self._explained():
            return self._db.execute(statement).fetchall()

    def columns(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for table, column in self.fetch(
            """SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c
               WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'"""
        ):
            found.setdefault(table, set()).add(column)
        return found

    def indexes(self) -> set[str]:
        return {name for (name,) in self.fetch("SELECT name FROM sqlite_master WHERE type = 'index'")}

    def damage(self) -> str:
        try:
            found = str(self._db.execute("PRAGMA integrity_check(1)").fetchone()[0])
        except sqlite3.Error as error:
            found = str(error)
        return "" if found == "ok" else found

    def living_owners(self) -> list[str]:
        locks = OwnerLocks(self._path.with_name(self._path.name + ".owners"))
        names = [name for (name,) in self.fetch("SELECT owner FROM owner ORDER BY owner")]
        return [name for name in names if locks.life(name, owners.process_of(self._db, name)) is Life.ALIVE]

    @contextmanager
    def alone(self, tables: Sequence[Table]) -> Iterator[None]:
        with self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def rows(self, table: Table) -> Generator[Row, None, None]:
        order = "rowid" if table.keeps_order else ", ".join(f'"{name}"' for name in table.key)
        with self._explained():
            yield from self._db.execute(f'SELECT {_listed(table)} FROM "{table.name}" ORDER BY {order}')

    def insert(self, table: Table, rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(table.columns))
        with self._explained():
            self._db.executemany(f'INSERT INTO "{table.name}" ({_listed(table)}) VALUES ({marks})', rows)

    def clear(self, table: Table) -> None:
        with self._explained():
            self._db.execute(f'DELETE FROM "{table.name}"')

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise unusable(self._path.name, error) from None


def _listed(table: Table) -> str:
    return ", ".join(f'"{name}"' for name in table.columns)


def refuse_living_owners(store: StoreAccess) -> None:
    """`StoreUnavailable` while a process uses the store."""
    living = store.living_owners()
    if living:
        raise StoreUnavailable(
            f'{store.title} is used by a process that runs ("{living[0]}"); stop every process that uses it, and try again.'
        )
