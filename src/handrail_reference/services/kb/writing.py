"""What is written: records with their words and pieces, vectors, deletions. Every function runs inside one transaction.

A record that changed is removed and put in again under a new key, so that whoever holds pieces in memory only ever has to
add some and to drop some.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from handrail_reference.services.kb.database import KnowledgeConnection
from handrail_reference.services.kb.pausing import unhurried
from handrail_reference.services.kb.pieces import Piece, lead_of, pieces_of
from handrail_reference.services.kb.reading import RECORD_COLUMNS, record_of
from handrail_reference.services.kb.record import KnowledgeRecord, moment_of, tag_word
from handrail_reference.services.kb.words import INDEX_VERSION, prepared

_DROPPED_KEPT = 100_000


@dataclass(slots=True)
class Tally:
    """What became of the records of a batch."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    scopes: dict[tuple[str, str, str], int] = field(default_factory=dict, repr=False)

    @property
    def touched(self) -> int:
        return self.added + self.changed + self.removed


def put_records(db: KnowledgeConnection, records: Iterable[KnowledgeRecord], tally: Tally) -> None:
    """Store what is new or changed; the same content again costs one look."""
    scopes = dict(tally.scopes)
    for record in unhurried(records, db.is_searched_beside):
        scope = _scope(db, record, scopes)
        content = record.content_hash
        old = db.execute("SELECT key, hash FROM record WHERE scope = ? AND id = ?", (scope, record.id)).fetchone()
        if old is not None and old[1] == content:
            tally.unchanged += 1
            continue
        if old is None:
            tally.added += 1
        else:
            remove_records(db, [old[0]])
            tally.changed += 1
        _insert(db, record, scope, content)
    tally.scopes = scopes


def remove_records(db: sqlite3.Connection, keys: Iterable[int]) -> int:
    """Remove records by their keys, with everything that was made from them."""
    removed = 0
    for key in keys:
        row = db.execute(f"SELECT r.scope, {RECORD_COLUMNS} WHERE r.key = ?", (key,)).fetchone()
        if row is None:
            continue
        _unindex(db, key, row[0], record_of(row[1:]))
        db.execute("INSERT INTO dropped (piece) SELECT id FROM piece WHERE record = ?", (key,))
        db.execute("DELETE FROM vector WHERE piece IN (SELECT id FROM piece WHERE record = ?)", (key,))
        for statement in ("piece WHERE record", "tag WHERE record", "record WHERE key"):
            db.execute(f"DELETE FROM {statement} = ?", (key,))  # noqa: S608 - the three words above
        removed += 1
    if removed:
        db.execute("DELETE FROM dropped WHERE seq <= (SELECT max(seq) FROM dropped) - ?", (_DROPPED_KEPT,))
    return removed


def forget_owner(db: sqlite3.Connection, tenant: str, owner: str) -> int:
    """Remove the records of one user, their words from the index as well, and that there was such a user; how many."""
    found = db.execute(
        """SELECT record.key FROM record JOIN scope ON scope.id = record.scope
           WHERE scope.tenant = ? AND scope.owner = ?""",
        (tenant, owner),
    ).fetchall()
    removed = remove_records(db, [row[0] for row in found])
    if removed:
        optimize(db)  # else the words would stay in older segments of the index
    db.execute("DELETE FROM scope WHERE tenant = ? AND owner = ?", (tenant, owner))
    return removed


def keep_index_current(db: sqlite3.Connection) -> None:
    """Make the word index anew where another version of the preparation has made it."""
    if get_fact(db, "index") == INDEX_VERSION:
        return
    for table in ("head_words", "piece_words"):
        db.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")  # noqa: S608 - the two names above
    for key, scope in db.execute("SELECT key, scope FROM record ORDER BY key").fetchall():
        record = record_of(db.execute(f"SELECT {RECORD_COLUMNS} WHERE r.key = ?", (key,)).fetchone())
        rows = db.execute("SELECT id, start, stop FROM piece WHERE record = ? ORDER BY id", (key,)).fetchall()
        _index_head(db, key, scope, record)
        for number, start, stop in rows:
            _index_piece(db, number, scope, record, Piece(start, stop))
    set_fact(db, "index", INDEX_VERSION)


def optimize(db: sqlite3.Connection) -> None:
    """One segment for each index: the quickest to read. Worth its seconds after a large import."""
    for table in ("head_words", "piece_words"):
        db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608 - the two names above


def put_vectors(db: sqlite3.Connection, space: int, vectors: Sequence[tuple[int, bytes]]) -> int:
    """Store vectors of pieces that still exist; how many."""
    stored = 0
    for piece, data in vectors:
        stored += db.execute(
            "INSERT OR REPLACE INTO vector (piece, space, data) SELECT id, ?, ? FROM piece WHERE id = ?",
            (space, data, piece),
        ).rowcount
    return stored


def space_id(db: sqlite3.Connection, name: str, dimensions: int) -> int:
    db.execute("INSERT OR IGNORE INTO space (name, dimensions) VALUES (?, ?)", (name, dimensions))
    return int(db.execute("SELECT id FROM space WHERE name = ?", (name,)).fetchone()[0])


def get_fact(db: sqlite3.Connection, name: str) -> str | None:
    row = db.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_fact(db: sqlite3.Connection, name: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))


def scope_word(scope: int) -> str:
    """The word by which the index knows who may read a row. It stands in a column that no query of a user reaches."""
    return f"zq{scope}"


def _scope(db: sqlite3.Connection, record: KnowledgeRecord, known: dict[tuple[str, str, str], int]) -> int:
    whose = (record.tenant, record.namespace, record.owner)
    if whose not in known:
        db.execute("INSERT OR IGNORE INTO scope (tenant, namespace, owner) VALUES (?, ?, ?)", whose)
        found = db.execute("SELECT id FROM scope WHERE tenant = ? AND namespace = ? AND owner = ?", whose).fetchone()
        known[whose] = int(found[0])
    return known[whose]


def _insert(db: sqlite3.Connection, record: KnowledgeRecord, scope: int, content: str) -> None:
    moment = moment_of(record.last_updated) if record.last_updated else None
    values: tuple[Any, ...] = (
        scope, record.id, record.type, record.title, record.text, orjson.dumps(record.tags).decode(),
        record.source_type, record.source, record.url,
        orjson.dumps(record.metadata, option=orjson.OPT_SORT_KEYS).decode(), record.last_updated,
        None if moment is None else moment.timestamp(), content,
    )  # fmt: skip
    key = db.execute(
        """INSERT INTO record (scope, id, type, title, text, tags, source_type, source, url, metadata, last_updated,
           updated, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        values,
    ).lastrowid
    assert key is not None
    db.executemany("INSERT OR IGNORE INTO tag VALUES (?, ?)", [(tag_word(tag), key) for tag in record.tags])
    _index_head(db, key, scope, record)
    for piece in pieces_of(record.text):
        number = db.execute("INSERT INTO piece (record, start, stop) VALUES (?, ?, ?)", (key, *piece)).lastrowid
        assert number is not None
        _index_piece(db, number, scope, record, piece)


def _index_head(db: sqlite3.Connection, key: int, scope: int, record: KnowledgeRecord) -> None:
    db.execute(
        "INSERT INTO head_words (rowid, scope, title, tags, lead) VALUES (?, ?, ?, ?, ?)",
        (key, *_head(scope, record)),
    )


def _index_piece(db: sqlite3.Connection, number: int, scope: int, record: KnowledgeRecord, piece: Piece) -> None:
    db.execute(
        "INSERT INTO piece_words (rowid, scope, body) VALUES (?, ?, ?)",
        (number, scope_word(scope), _body(record, piece)),
    )


def _unindex(db: sqlite3.Connection, key: int, scope: int, record: KnowledgeRecord) -> None:
    db.execute(
        "INSERT INTO head_words (head_words, rowid, scope, title, tags, lead) VALUES ('delete', ?, ?, ?, ?, ?)",
        (key, *_head(scope, record)),
    )
    pieces = db.execute("SELECT id, start, stop FROM piece WHERE record = ?", (key,)).fetchall()
    db.executemany(
        "INSERT INTO piece_words (piece_words, rowid, scope, body) VALUES ('delete', ?, ?, ?)",
        [(row[0], scope_word(scope), _body(record, Piece(row[1], row[2]))) for row in pieces],
    )


def _head(scope: int, record: KnowledgeRecord) -> tuple[str, str, str, str]:
    tags = " ".join(record.tags)
    return scope_word(scope), prepared(record.title), prepared(tags), prepared(lead_of(record.text))


def _body(record: KnowledgeRecord, piece: Piece) -> str:
    return prepared(record.text[piece.start : piece.stop])
