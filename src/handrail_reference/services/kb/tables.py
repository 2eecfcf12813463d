"""The tables of a knowledge base, as numbered steps that only go forward; each is one transaction that records itself."""

from __future__ import annotations

import sqlite3

from handrail.errors import UsageError

_TOKENS = "tokenize = 'porter unicode61 remove_diacritics 2'"

# The index keeps no copy of the texts (content = ''): what goes in, and out again, is made from the record.
_FIRST = (
    """CREATE TABLE scope (
        id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, namespace TEXT NOT NULL, owner TEXT NOT NULL,
        UNIQUE (tenant, namespace, owner))""",
    """CREATE TABLE record (
        key INTEGER PRIMARY KEY AUTOINCREMENT, scope INTEGER NOT NULL REFERENCES scope, id TEXT NOT NULL,
        type TEXT NOT NULL, hash TEXT NOT NULL, updated REAL, title TEXT NOT NULL, tags TEXT NOT NULL,
        source_type TEXT NOT NULL, source TEXT NOT NULL, url TEXT NOT NULL, metadata TEXT NOT NULL,
        last_updated TEXT NOT NULL, text TEXT NOT NULL, UNIQUE (scope, id))""",
    "CREATE INDEX record_source ON record (source)",
    """CREATE TABLE tag (
        tag TEXT NOT NULL, record INTEGER NOT NULL REFERENCES record, PRIMARY KEY (tag, record)) WITHOUT ROWID""",
    """CREATE TABLE piece (
        id INTEGER PRIMARY KEY AUTOINCREMENT, record INTEGER NOT NULL REFERENCES record, start INTEGER NOT NULL,
        stop INTEGER NOT NULL)""",
    "CREATE INDEX piece_record ON piece (record)",
    f"CREATE VIRTUAL TABLE head_words USING fts5 (scope, title, tags, lead, content = '', {_TOKENS})",
    f"CREATE VIRTUAL TABLE piece_words USING fts5 (scope, body, content = '', {_TOKENS})",
    "CREATE TABLE space (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL)",
    """CREATE TABLE vector (
        id INTEGER PRIMARY KEY AUTOINCREMENT, piece INTEGER NOT NULL UNIQUE REFERENCES piece,
        space INTEGER NOT NULL REFERENCES space, data BLOB NOT NULL)""",
    # Processes that hold vectors in memory learn here which pieces are gone.
    "CREATE TABLE dropped (seq INTEGER PRIMARY KEY AUTOINCREMENT, piece INTEGER NOT NULL)",
    "CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)
# Filters by type and date without reading the texts.
_SECOND = (
    "CREATE INDEX record_type ON record (scope, type)",
    "CREATE INDEX record_updated ON record (scope, updated)",
)
MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND)


def migrate(db: sqlite3.Connection, name: str, migrations: tuple[tuple[str, ...], ...] = MIGRATIONS) -> None:
    """Bring the file to the newest version that is known; `UsageError` if it is newer still, or another program's."""
    while True:
        # Read again inside each transaction: another process may have taken the step meanwhile.
        db.execute("BEGIN IMMEDIATE")
        try:
            version = checked_version(db, name, len(migrations))
            done = version == len(migrations)
            if not done:
                for statement in migrations[version]:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {version + 1}")
                db.execute(f"PRAGMA application_id = {_OURS}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        if done:
            return


def checked_version(db: sqlite3.Connection, name: str, known: int = len(MIGRATIONS)) -> int:
    """The version of the tables, 0 for an empty file; `UsageError` if it is newer than what is known. Only reads."""
    version = _version(db, name)
    if version > known:
        raise UsageError(
            f'The knowledge base "{name}" was written by a newer Handrail (its tables have version {version}; '
            f"this one knows {known}); upgrade Handrail, or name another file."
        )
    return version


def is_current(db: sqlite3.Connection, name: str) -> bool:
    """Whether there is nothing to migrate. Only reads, so that whoever writes meanwhile is not waited for."""
    return _version(db, name) == len(MIGRATIONS)


_OURS = 0x48_52_4B_42  # "HRKB"


def _version(db: sqlite3.Connection, name: str) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    ours = db.execute("PRAGMA application_id").fetchone()[0] == _OURS
    used = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    if used and not ours:
        raise UsageError(f'"{name}" is a database of another program; name a file of its own for the knowledge base.')
    return version if ours else 0
