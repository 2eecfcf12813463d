"""A connection to PostgreSQL as a knowledge base uses it."""

# ruff: noqa: S608 - what is put into SQL are our own names and numbers

from __future__ import annotations

import re
import struct
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from math import isfinite
from typing import Any, TypeVar

import psycopg
from psycopg import pq, sql

from handrail_reference.services.kb.connection import ComputeTurn, ResultRows
from handrail_reference.services.kb.postgres.full_text import PostgresWords, Stems

T = TypeVar("T")
HNSW_ROWS = 20_000
"""With this many vectors, searches go by an index (HNSW) that finds nearly all of the closest; with fewer all are compared."""
_MAX_HNSW_DIMENSIONS = 4_000
_MAX_REMEMBERED = 50_000
_CANCEL_SECONDS = 2.0
_IDLE = pq.TransactionStatus.IDLE


class PostgresKnowledge:
    """A connection that remembers what is dear to count, until the base changes. It waits for the server most of its time, so
    that threads need not take turns."""

    batch = 100

    def __init__(self, connection: psycopg.Connection[Any], *, title: str, schema: str, stems: Stems) -> None:
        self.connection = connection
        self.title = title
        self.schema = schema
        self.turn = ComputeTurn(threading.Lock())
        self.is_searched_beside: Callable[[], bool] = lambda: False
        self.words = PostgresWords(self, stems)
        self._remembered: dict[object, Any] = {}
        self._version: str | None = None
        self._is_snapshot = False
        self._cancelling = threading.Lock()
        self.set_search_path()

    def set_search_path(self) -> None:
        """Our schema, then the one that pgvector is in."""
        found = self.one(
            "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
        )
        names = [sql.Identifier(name) for name in dict.fromkeys([self.schema, found or "public"])]
        self.connection.execute(sql.SQL("SET search_path TO {}").format(sql.SQL(", ").join(names)))

    def one(self, statement: str, *values: Any) -> Any:
        """The first value of the first row; None where there is none."""
        row = self.connection.execute(statement.encode(), values or None).fetchone()
        return None if row is None else row[0]

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> ResultRows:
        return self.connection.execute(_translated(statement), [_storable(value) for value in values])

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        given = [[_storable(value) for value in row] for row in rows]
        if given:
            self.connection.cursor().executemany(_translated(statement), given)

    def each(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[Any]:
        given = [[_storable(value) for value in row] for row in rows]
        found = list[Any]()
        if given:
            cursor = self.connection.cursor()
            cursor.executemany(_translated(statement), given, returning=True)
            found.append(cursor.fetchone())
            while cursor.nextset():
                found.append(cursor.fetchone())
        return found

    def insert_each(self, statement: str, number: str, rows: Iterable[Sequence[Any]]) -> list[int]:
        return [int(row[0]) for row in self.each(f"{statement} RETURNING {number}", rows)]

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        with self.connection.transaction(), self.connection.cursor(name="handrail_kb") as cursor:
            cursor.execute(_translated(statement), [_storable(value) for value in values])
            yield from cursor

    def remembered(self, what: object, find: Callable[[], T]) -> T:
        if not self._is_snapshot:
            self._look_at_version()
        if what not in self._remembered:
            self._remembered[what] = find()
        found: T = self._remembered[what]
        return found

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            self._look_at_version()
            self._is_snapshot = True
            yield
        finally:
            self._is_snapshot = False
            self.end()

    def begin(self) -> None:
        """A transaction that writes. They follow each other, as in SQLite: the numbers of rows are in the order of commits."""
        self.connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        self.connection.execute("LOCK TABLE fact IN EXCLUSIVE MODE")

    def commit(self) -> None:
        self.connection.execute("UPDATE fact SET value = (value::bigint + 1)::text WHERE name = 'changes'")
        self.connection.execute("COMMIT")

    def end(self) -> None:
        """Leave whatever transaction there is."""
        if not self.connection.closed and self.connection.info.transaction_status is not _IDLE:
            with suppress(psycopg.Error):
                self.connection.execute("ROLLBACK")

    # Vectors

    def holds_halfvec(self) -> bool:
        """Whether vectors are kept in pgvector's type."""
        kind = (
            "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = 'vector'::regclass AND attname = 'data'"
        )
        return str(self.one(kind)).endswith("halfvec")

    @staticmethod
    def as_halfvec(data: bytes) -> str | None:
        """Half precision as pgvector reads it; None where that is no vector. A number that is none is close to nothing."""
        if len(data) % 2:
            return None
        numbers = struct.unpack(f"<{len(data) // 2}e", data)
        whole = all(isfinite(number) for number in numbers)
        return "[" + ",".join(f"{number:.8g}" if whole else "0" for number in numbers) + "]" if numbers else None

    def put_vectors(self, space: int, vectors: Sequence[tuple[int, bytes]]) -> int:
        size = 2 * int(self.one("SELECT dimensions FROM space WHERE id = %s", space))
        good = [(piece, data) for piece, data in vectors if len(data) == size]
        kind, convert = ("halfvec", self.as_halfvec) if self.holds_halfvec() else ("bytea", bytes)
        cursor = self.connection.cursor()
        cursor.executemany(
            f"""INSERT INTO vector (piece, record, scope, space, data)
                SELECT p.id, p.record, r.scope, %s, %s::{kind} FROM piece p JOIN record r ON r.key = p.record WHERE p.id = %s
                ON CONFLICT (piece) DO UPDATE SET id = excluded.id, space = excluded.space, data = excluded.data""".encode(),
            [(space, convert(data), piece) for piece, data in good],
        )
        return cursor.rowcount if good else 0

    def index_vectors(self, space: int, dimensions: int) -> None:
        """The index of a space that has become large. Whoever may not make it, as only the owner of a table may, does without."""
        is_large = int(self.one("SELECT count(*) FROM vector WHERE space = %s", space)) >= HNSW_ROWS
        if not is_large or dimensions > _MAX_HNSW_DIMENSIONS or self.hnsw_index(space) or not self.holds_halfvec():
            return
        statement = f"""CREATE INDEX {_index_name(space)} ON vector USING hnsw ((data::halfvec({dimensions:d})) halfvec_ip_ops)
            WHERE space = {space:d}"""
        with suppress(psycopg.errors.InsufficientPrivilege), self.connection.transaction():
            self.connection.execute("SET LOCAL statement_timeout = 0")
            self.connection.execute("SET LOCAL maintenance_work_mem = '256MB'")
            self.connection.execute(statement.encode())
            # Before the server has counted how many vectors each scope has, it takes them for few, and compares all.
            self.connection.execute("ANALYZE vector")

    def hnsw_index(self, space: int) -> bool:
        return bool(self.one("SELECT to_regclass(%s) IS NOT NULL", _index_name(space)))

    def bytes_used(self) -> int:
        sizes = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'"
        return int(self.one(sizes, f'"{self.schema}"') or 0)

    def interrupt(self) -> None:
        # It takes a connection of its own, for which nobody here may wait.
        if self._cancelling.acquire(blocking=False):
            threading.Thread(target=self._cancel, name="handrail-kb-cancel", daemon=True).start()

    def _cancel(self) -> None:
        try:
            with suppress(psycopg.Error):
                self.connection.cancel_safe(timeout=_CANCEL_SECONDS)
        finally:
            self._cancelling.release()

    def _look_at_version(self) -> None:
        version = str(self.one("SELECT value FROM fact WHERE name = 'changes'"))
        if version != self._version or len(self._remembered) > _MAX_REMEMBERED:
            self._version, self._remembered = version, {}


def _index_name(space: int) -> str:
    return f"vector_near_{space:d}"


@lru_cache(maxsize=500)
def _translated(statement: str) -> bytes:
    """A statement that was written for SQLite."""
    return re.sub(r"\bIN \(\)", "IN (NULL)", statement).replace("%", "%%").replace("?", "%s").encode()


def _storable(value: Any) -> Any:
    """What PostgreSQL takes. What it cannot keep as text it does not have either, so nothing is found by it."""
    if isinstance(value, str):
        return value if value.isascii() and "\0" not in value else _as_text(value)
    return list(value) if isinstance(value, array | Mapping) else value


def _as_text(value: str) -> str:
    return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
