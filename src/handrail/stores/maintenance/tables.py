"""The tables that the migrations declare: read from an empty database in memory, to which all of them were applied."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter

from handrail.stores.migrations import migrate

MIGRATION_TABLE = "handrail_migration"


@dataclass(frozen=True, slots=True)
class Reference:
    """Rows of a table name rows of another."""

    column: str
    table: str
    key: str


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[str, ...]
    texts: frozenset[str]
    """The columns of text, which databases sort differently unless told."""
    key: tuple[str, ...]
    keeps_order: bool
    """Its rows have an order, that in which they were made; others are ordered by their key."""
    references: tuple[Reference, ...]
    first_rows: int
    """Rows that are there in an empty store."""
    indexes: frozenset[str]


@cache
def declared_tables() -> tuple[Table, ...]:
    """Each after those that it refers to."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, "declared", 0)
        found = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        tables = {name: _table(db, name, made) for name, made in found.fetchall() if name != MIGRATION_TABLE}
    parents = {name: {one.table for one in table.references} - {name} for name, table in tables.items()}
    return tuple(tables[name] for name in TopologicalSorter(parents).static_order())


def _table(db: sqlite3.Connection, name: str, made: str) -> Table:
    columns = db.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
    key = tuple(column for column, _, _ in sorted((one for one in columns if one[2]), key=lambda one: one[2]))
    numbered = len(key) == 1 and (key[0], "INTEGER") in {(column, kind) for column, kind, _ in columns}
    references = db.execute('SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (name,)).fetchall()
    return Table(
        name=name,
        columns=tuple(column for column, _, _ in columns),
        texts=frozenset(column for column, kind, _ in columns if kind == "TEXT"),
        key=key,
        keeps_order=not numbered and not re.search(r"\bWITHOUT ROWID\b", made),
        references=tuple(Reference(column, table, to or _key_of(db, table)) for column, table, to in references),
        first_rows=int(db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]),  # noqa: S608 - a name of ours
        indexes=frozenset(
            index
            for (index,) in db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", (name,)
            )
        ),
    )


def _key_of(db: sqlite3.Connection, table: str) -> str:
    return str(db.execute("SELECT name FROM pragma_table_info(?) WHERE pk = 1", (table,)).fetchone()[0])
