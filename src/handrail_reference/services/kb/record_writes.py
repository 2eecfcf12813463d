"""What is written: records with their words and pieces, vectors, deletions. Every function runs inside one transaction.

A record that changed is removed and put in again under a new key, so that whoever holds pieces in memory only ever has to
add some and to drop some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from handrail_reference.services.kb.connection import Indexed, KnowledgeConnection
from handrail_reference.services.kb.pausing import unhurried
from handrail_reference.services.kb.pieces import Piece, pieces_of
from handrail_reference.services.kb.query_words import INDEX_VERSION
from handrail_reference.services.kb.record import KnowledgeRecord, moment_of, tag_word
from handrail_reference.services.kb.record_queries import RECORD_COLUMNS, record_of, records_by_key

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
    batch: dict[tuple[int, str], KnowledgeRecord] = {}
    for record in unhurried(records, db.is_searched_beside):
        whose = (_scope(db, record, scopes), record.id)
        if len(batch) >= db.batch or whose in batch:
            _put(db, batch, tally)
            batch = {}
        batch[whose] = record
    _put(db, batch, tally)
    tally.scopes = scopes


def _put(db: KnowledgeConnection, batch: Mapping[tuple[int, str], KnowledgeRecord], tally: Tally) -> None:
    hashes = [record.content_hash for record in batch.values()]
    old = db.each("SELECT key, hash FROM record WHERE scope = ? AND id = ?", batch)
    new, replaced = list[tuple[int, KnowledgeRecord, str]](), list[int]()
    for (scope, _), record, content, row in zip(batch, batch.values(), hashes, old, strict=True):
        if row is not None and row[1] == content:
            tally.unchanged += 1
            continue
        if row is None:
            tally.added += 1
        else:
            replaced.append(row[0])
            tally.changed += 1
        new.append((scope, record, content))
    remove_records(db, replaced)
    _insert(db, new)


def remove_records(db: KnowledgeConnection, keys: Iterable[int]) -> int:
    """Remove records by their keys, with everything that was made from them."""
    wanted, removed = list(keys), 0
    for start in range(0, len(wanted), db.batch):
        some = wanted[start : start + db.batch]
        marks = ", ".join("?" * len(some))
        rows = db.execute(f"SELECT r.key, r.scope, {RECORD_COLUMNS} WHERE r.key IN ({marks})", some).fetchall()
        db.words.remove([Indexed(row[0], row[1], record_of(row[2:]), ()) for row in rows])
        theirs = f"SELECT id FROM piece WHERE record IN ({marks})"  # noqa: S608
        db.execute(f"INSERT INTO dropped (piece) {theirs}", some)
        db.execute(f"DELETE FROM vector WHERE piece IN ({theirs})", some)  # noqa: S608
        for statement in ("piece WHERE record", "tag WHERE record", "record WHERE key"):
            db.execute(f"DELETE FROM {statement} IN ({marks})", some)  # noqa: S608 - the three words above
        removed += len(rows)
    if removed:
        db.execute("DELETE FROM dropped WHERE seq <= (SELECT max(seq) FROM dropped) - ?", (_DROPPED_KEPT,))
    return removed


def forget_owner(db: KnowledgeConnection, tenant: str, owner: str) -> int:
    """Remove the records of one user, their words from the index as well, and that there was such a user; how many."""
    found = db.execute(
        """SELECT record.key FROM record JOIN scope ON scope.id = record.scope
           WHERE scope.tenant = ? AND scope.owner = ?""",
        (tenant, owner),
    ).fetchall()
    removed = remove_records(db, [row[0] for row in found])
    if removed:
        db.words.optimize()  # else the words would stay in older segments of the index
    db.execute("DELETE FROM scope WHERE tenant = ? AND owner = ?", (tenant, owner))
    return removed


def keep_index_current(db: KnowledgeConnection) -> None:
    """Make the word index anew where another version of the preparation has made it."""
    if get_fact(db, "index") == INDEX_VERSION:
        return
    db.words.clear()
    every = db.execute("SELECT key, scope FROM record ORDER BY key").fetchall()
    for start in range(0, len(every), db.batch):
        some = every[start : start + db.batch]
        records = records_by_key(db, [key for key, _ in some])
        pieces: dict[int, list[tuple[int, Piece]]] = {key: [] for key, _ in some}
        marks = ", ".join("?" * len(some))
        sql = f"SELECT record, id, start, stop FROM piece WHERE record IN ({marks}) ORDER BY id"  # noqa: S608
        for key, number, *place in db.execute(sql, list(pieces)):
            pieces[key].append((number, Piece(*place)))
        db.words.put([Indexed(key, scope, records[key], pieces[key]) for key, scope in some])
    set_fact(db, "index", INDEX_VERSION)


def space_id(db: KnowledgeConnection, name: str, dimensions: int) -> int:
    db.execute("INSERT INTO space (name, dimensions) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, dimensions))
    return int(db.execute("SELECT id FROM space WHERE name = ?", (name,)).fetchone()[0])


def get_fact(db: KnowledgeConnection, name: str) -> str | None:
    row = db.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_fact(db: KnowledgeConnection, name: str, value: str) -> None:
    db.execute(
        "INSERT INTO fact (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _scope(db: KnowledgeConnection, record: KnowledgeRecord, known: dict[tuple[str, str, str], int]) -> int:
    whose = (record.tenant, record.namespace, record.owner)
    if whose not in known:
        db.execute("INSERT INTO scope (tenant, namespace, owner) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", whose)
        found = db.execute("SELECT id FROM scope WHERE tenant = ? AND namespace = ? AND owner = ?", whose).fetchone()
        known[whose] = int(found[0])
    return known[whose]


def _insert(db: KnowledgeConnection, new: Sequence[tuple[int, KnowledgeRecord, str]]) -> None:
    keys = db.insert_each(
        """INSERT INTO record (scope, id, type, title, text, tags, source_type, source, url, metadata, last_updated,
           updated, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        "key",
        (_values(*one) for one in new),
    )
    records = [(key, scope, record) for key, (scope, record, _) in zip(keys, new, strict=True)]
    tags = [(word, key) for key, _, record in records for word in dict.fromkeys(map(tag_word, record.tags))]
    db.executemany("INSERT INTO tag (tag, record) VALUES (?, ?)", tags)
    cut = [(key, piece) for key, _, record in records for piece in pieces_of(record.text)]
    numbers = db.insert_each(
        "INSERT INTO piece (record, start, stop) VALUES (?, ?, ?)", "id", ((key, *piece) for key, piece in cut)
    )
    pieces: dict[int, list[tuple[int, Piece]]] = {key: [] for key, _, _ in records}
    for (key, piece), number in zip(cut, numbers, strict=True):
        pieces[key].append((number, piece))
    db.words.put([Indexed(key, scope, record, pieces[key]) for key, scope, record in records])


def _values(scope: int, record: KnowledgeRecord, content: str) -> tuple[Any, ...]:
    moment = moment_of(record.last_updated) if record.last_updated else None
    return (
        scope, record.id, record.type, record.title, record.text, orjson.dumps(record.tags).decode(),
        record.source_type, record.source, record.url,
        orjson.dumps(record.metadata, option=orjson.OPT_SORT_KEYS).decode(), record.last_updated,
        None if moment is None else moment.timestamp(), content,
    )  # fmt: skip
