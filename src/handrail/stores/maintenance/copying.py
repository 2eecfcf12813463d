"""Copy a store into an empty one, on the same or another kind of database, while nobody uses either.

All rows are written in one transaction of the target and read back in it: whatever breaks, the target stays empty. Each row
counts into a digest of its table, which must be the same on both sides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from handrail.contract.errors import HandrailError, UsageError
from handrail.stores.maintenance.store_access import Row, StoreAccess, refuse_living_owners
from handrail.stores.maintenance.tables import Table, declared_tables
from handrail.stores.migrations import MIGRATIONS

Progress = Callable[[int, int], None]


class CopyFailed(HandrailError):
    """The target has not what the source has; nothing was kept of it."""


@dataclass(frozen=True, slots=True)
class CopiedTable:
    name: str
    rows: int
    digest: str


def copy_store(source: StoreAccess, target: StoreAccess, progress: Progress) -> list[CopiedTable]:
    """Both have the tables of this release. `progress` is called with (rows done, rows in all); each is read and read back."""
    for store in (source, target):
        _refuse_other_version(store)
    tables = declared_tables()
    with source.alone(tables), target.alone(tables):
        for store in (source, target):
            refuse_living_owners(store)
        _refuse_filled(target, tables)
        meter = _Meter(progress, 2 * sum(source.count(table) for table in tables))
        copied = []
        for table in tables:
            if table.first_rows:
                target.clear(table)
            read = _Digest()
            with closing(source.rows(table)) as rows:
                target.insert(table, meter.counting(read.following(rows)))
            copied.append(CopiedTable(table.name, read.rows, read.value()))
        for table, expected in zip(tables, copied, strict=True):
            found = _Digest()
            for _ in meter.counting(found.following(target.rows(table))):
                pass
            if (found.rows, found.value()) != (expected.rows, expected.digest):
                raise CopyFailed(
                    f'The rows of "{table.name}" came out differently ({expected.rows} were read, {found.rows} are there); '
                    "nothing was copied."
                )
    return copied


def _refuse_other_version(store: StoreAccess) -> None:
    version, newest = store.version(), MIGRATIONS[-1].version
    if version > newest:
        raise UsageError(
            f"{store.title} was written by a newer Handrail (its tables have version {version}; this one knows {newest}); "
            "upgrade Handrail."
        )
    if version < newest:
        raise UsageError(
            f"{store.title} has tables of version {version}, and this release has {newest}; run `handrail store migrate` "
            "on it first."
        )


def _refuse_filled(target: StoreAccess, tables: Sequence[Table]) -> None:
    for table in tables:
        rows = target.count(table)
        if rows > table.first_rows:
            raise UsageError(
                f'{target.title} is not empty ("{table.name}" has {rows} rows); a store is copied into an empty one only.'
            )


class _Meter:
    """How far the copy is."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def counting(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            yield row
            self._done += 1
            self._progress(self._done, self._total)


class _Digest:
    """A SHA-256 over rows in their order, in a form that is the same for the values of every database."""

    def __init__(self) -> None:
        self.rows = 0
        self._hash = hashlib.sha256()

    def following(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self._hash.update(b"".join(map(_encoded, row)) + b"\n")
            self.rows += 1
            yield row

    def value(self) -> str:
        return self._hash.hexdigest()


def _encoded(value: Any) -> bytes:
    """Length before content, so that no two rows look the same."""
    if value is None:
        return b"-"
    kind = type(value).__name__
    content = value if isinstance(value, bytes) else str(value).encode()
    return f"{kind}:{len(content)}:".encode() + content
