"""What is read: records by key, id or filter, and the numbers of `kb stats`. Every function takes a connection that reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import orjson

from handrail.services.kb.record import Record

RECORD_COLUMNS = """r.id, r.type, r.title, r.text, r.tags, s.namespace, s.owner, s.tenant, r.source_type, r.source, r.url,
    r.metadata, r.last_updated FROM record r JOIN scope s ON s.id = r.scope"""
_NEAR_LIMIT = 20_000
_NAMED_LIMIT = 500


def readable_scopes(db: sqlite3.Connection, tenant: str, namespaces: Sequence[str], user: str | None) -> list[int]:
    """The scopes that a user may read: of their tenant, in these namespaces, everybody's or their own."""
    marks = ", ".join("?" * len(namespaces))
    rows = db.execute(
        f"SELECT id FROM scope WHERE tenant = ? AND namespace IN ({marks}) AND owner IN ('', ?) ORDER BY id",  # noqa: S608
        (tenant, *namespaces, user or ""),
    )
    return [row[0] for row in rows]


def record_of(row: Sequence[Any]) -> Record:
    return Record(
        id=row[0], type=row[1], title=row[2], text=row[3], tags=tuple(orjson.loads(row[4])), namespace=row[5],
        owner=row[6], tenant=row[7], source_type=row[8], source=row[9], url=row[10], metadata=orjson.loads(row[11]),
        last_updated=row[12],
    )  # fmt: skip


def records_by_key(db: sqlite3.Connection, keys: Sequence[int]) -> dict[int, Record]:
    marks = ", ".join("?" * len(keys))
    rows = db.execute(f"SELECT r.key, {RECORD_COLUMNS} WHERE r.key IN ({marks})", list(keys))
    return {row[0]: record_of(row[1:]) for row in rows}


def titles_by_key(db: sqlite3.Connection, keys: Sequence[int]) -> dict[int, str]:
    marks = ", ".join("?" * len(keys))
    return dict(db.execute(f"SELECT key, title FROM record WHERE key IN ({marks})", list(keys)))  # noqa: S608


def records_by_id(db: sqlite3.Connection, scopes: Sequence[int], ids: Sequence[str]) -> dict[str, Record]:
    """Readable records by id. Where one's own and everybody's have the same id, one's own is meant."""
    found: dict[str, Record] = {}
    marks, places = ", ".join("?" * len(scopes)), ", ".join("?" * len(ids))
    rows = db.execute(
        f"SELECT {RECORD_COLUMNS} WHERE r.scope IN ({marks}) AND r.id IN ({places}) ORDER BY s.owner, r.key",
        (*scopes, *ids),
    )
    for row in rows:
        found[row[0]] = record_of(row)
    return found


def nearest_ids(db: sqlite3.Connection, scopes: Sequence[int], wanted: str, limit: int) -> list[str]:
    """Readable ids that look like the wanted one: those of its type first, else any."""
    kind = wanted.partition(":")[0]
    marks = ", ".join("?" * len(scopes))
    for condition, value in ((" AND type = ?", [kind]), ("", [])):
        rows = db.execute(
            f"SELECT id FROM record WHERE scope IN ({marks}){condition} ORDER BY id LIMIT {_NEAR_LIMIT}",  # noqa: S608
            (*scopes, *value),
        )
        near = get_close_matches(wanted, [row[0] for row in rows], n=limit, cutoff=0.6)
        if near:
            return near
    return []


def records_named(db: sqlite3.Connection, scopes: Sequence[int], terms: Sequence[str]) -> list[Record]:
    """Readable records whose title has all of these terms, as the full-text index compares them."""
    if not terms:
        return []
    marks = ", ".join("?" * len(scopes))
    rows = db.execute(
        f"""SELECT {RECORD_COLUMNS} JOIN head_words ON head_words.rowid = r.key
            WHERE r.scope IN ({marks}) AND head_words MATCH ? LIMIT {_NAMED_LIMIT}""",
        (*scopes, f"title : ({' AND '.join(terms)})"),
    )
    return [record_of(row) for row in rows]


def all_records(db: sqlite3.Connection, namespace: str | None = None, source: str | None = None) -> Iterator[Record]:
    """Every record, in an order that depends on nothing but their ids."""
    rows = db.execute(
        f"""SELECT {RECORD_COLUMNS} WHERE (?1 IS NULL OR s.namespace = ?1) AND (?2 IS NULL OR r.source = ?2)
            ORDER BY s.tenant, s.namespace, s.owner, r.id""",
        (namespace, source),
    )
    for row in rows:
        yield record_of(row)


def statistics(db: sqlite3.Connection) -> dict[str, Any]:
    """The numbers that an operator asks for."""

    def one(sql: str) -> int:
        return int(db.execute(sql).fetchone()[0])

    def groups(sql: str) -> dict[str, int]:
        return {str(name): int(count) for name, count in db.execute(sql)}

    return {
        "records": one("SELECT count(*) FROM record"),
        "pieces": one("SELECT count(*) FROM piece"),
        "vectors": groups("SELECT s.name, count(*) FROM vector v JOIN space s ON s.id = v.space GROUP BY 1 ORDER BY 1"),
        "namespaces": groups(
            "SELECT s.namespace, count(*) FROM record r JOIN scope s ON s.id = r.scope GROUP BY 1 ORDER BY 1"
        ),
        "types": groups("SELECT type, count(*) FROM record GROUP BY 1 ORDER BY 1"),
        "sources": groups("SELECT source, count(*) FROM record GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20"),
        "bytes": one("PRAGMA page_count") * one("PRAGMA page_size"),
    }
