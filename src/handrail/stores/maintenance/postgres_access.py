"""The database of a store on PostgreSQL, as maintenance uses it."""

# ruff: noqa: S608 - what is put into SQL are the names of our own tables and columns

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores.maintenance.store_access import Row, StoreAccess
from handrail.stores.maintenance.tables import Table
from handrail.stores.postgres.connection import ServerAddress
from handrail.stores.postgres.failures import first_line, unavailable
from handrail.stores.postgres.heartbeat import life_of
from handrail.stores.postgres.locking import MIGRATION_LOCK
from handrail.stores.statements.transaction import Life
from handrail.stores.worker import LIMIT_SECONDS

_BATCH = 500


class PostgresAccess(StoreAccess):
    """A store in a database of PostgreSQL."""

    def __init__(self, url: str, *, read_only: bool) -> None:
        self._database = ServerAddress(url).connect(LIMIT_SECONDS)
        self._db: psycopg.Connection[Any] = self._database.connection
        self._name = self._db.info.dbname
        self.title = f'The store "{self._name}"'
        with self._explained():
            # Whoever maintains a store has time; only for locks nobody waits long.
            self._db.execute("SET statement_timeout = 0")
            self._db.execute("SET idle_in_transaction_session_timeout = 0")
            if read_only:
                self._db.execute("SET default_transaction_read_only = on")

    @property
    def connection(self) -> psycopg.Connection[Any]:
        return self._db

    def close(self) -> None:
        self._db.close()

    def fetch(self, statement: str) -> list[Row]:
        with self._explained():
            return self._db.execute(statement.encode()).fetchall()

    def columns(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for table, column in self.fetch(
            """SELECT c.relname, a.attname FROM pg_class AS c
               LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
               WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')"""
        ):
            found.setdefault(table, set()).add(column)
        return found

    def indexes(self) -> set[str]:
        return {
            name
            for (name,) in self.fetch(
                """SELECT c.relname FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid
                   WHERE c.relnamespace = current_schema()::regnamespace AND indisvalid AND indisready"""
            )
        }

    def damage(self) -> str:
        """The server's own checksums are checked whenever it reads a page; here every page of every table is read."""
        try:
            for table in sorted(self.columns()):
                self._db.execute(f'SELECT count(t.*) FROM "{table}" AS t'.encode())
            unchecked = self._db.execute(
                """SELECT conname FROM pg_constraint
                   WHERE connamespace = current_schema()::regnamespace AND NOT convalidated"""
            ).fetchone()
        except psycopg.Error as error:
            return first_line(error)
        return f'the constraint "{unchecked[0]}" was not checked' if unchecked else ""

    def living_owners(self) -> list[str]:
        with self._explained():
            names = [
                name
                for (name,) in self._db.execute("SELECT owner FROM owner UNION SELECT owner FROM heartbeat ORDER BY 1")
            ]
            return [name for name in names if life_of(self._database, name) is Life.ALIVE]

    @contextmanager
    def alone(self, tables: Sequence[Table]) -> Iterator[None]:
        with self._explained():
            # A process that starts waits for this lock before it makes its tables, and registers as an owner after that.
            had = self._db.execute("SELECT pg_try_advisory_lock(%s)", (MIGRATION_LOCK,)).fetchone()
            if had is None or not had[0]:
                raise StoreUnavailable(f"{self.title} is being upgraded or copied by another process; try again.")
            try:
                with self._db.transaction():
                    names = ", ".join(f'"{table.name}"' for table in tables)
                    self._db.execute(f"LOCK TABLE {names} IN EXCLUSIVE MODE".encode())
                    yield
            finally:
                if not self._db.closed:
                    self._db.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))

    def rows(self, table: Table) -> Generator[Row, None, None]:
        order = "rowid" if table.keeps_order else ", ".join(_sorted(table, name) for name in table.key)
        with self._explained(), self._db.cursor(name="handrail_rows") as cursor:
            cursor.itersize = _BATCH
            cursor.execute(f'SELECT {_listed(table)} FROM "{table.name}" ORDER BY {order}'.encode())
            yield from cursor

    def insert(self, table: Table, rows: Iterable[Row]) -> None:
        with (
            self._explained(),
            self._db.cursor() as cursor,
            cursor.copy(f'COPY "{table.name}" ({_listed(table)}) FROM STDIN'.encode()) as copy,
        ):
            for row in rows:
                if any(isinstance(value, str) and "\0" in value for value in row):
                    raise UsageError(
                        f'A row of "{table.name}" has a text with the character U+0000, which PostgreSQL cannot keep.'
                    )
                copy.write_row(row)

    def clear(self, table: Table) -> None:
        with self._explained():
            self._db.execute(f'DELETE FROM "{table.name}"'.encode())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise unavailable(self.title, error) from None


def _listed(table: Table) -> str:
    return ", ".join(f'"{name}"' for name in table.columns)


def _sorted(table: Table, column: str) -> str:
    """As SQLite sorts: texts by their bytes, whatever the language of the database is."""
    return f'"{column}" COLLATE "C"' if column in table.texts else f'"{column}"'
