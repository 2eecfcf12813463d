"""What is read: records by key, id or filter, and the numbers of `kb stats`. Every function takes a connection that reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

import orjson

from handrail_reference.services.kb.connection import KnowledgeConnection
from handrail_reference.services.kb.query_words import query_terms
from handrail_reference.services.kb.record import KnowledgeRecord

RECORD_COLUMNS = """r.id, r.type, r.title, r.text, r.tags, s.namespace, s.owner, s.tenant, r.source_type, r.source, r.url,
    r.metadata, r.last_updated FROM record r JOIN scope s ON s.id = r.scope"""
_NEAR_LIMIT = 500
_NEAR_LENGTH = 100
_NEAR = 0.75
_NAMED_LIMIT = 500


def readable_scopes(db: KnowledgeConnection, tenant: str, namespaces: Sequence[str], user: str | None) -> list[int]:
    """The scopes that a user may read: of their tenant, in these namespaces, everybody's or their own."""
    marks = ", ".join("?" * len(namespaces))
    rows = db.execute(
        f"SELECT id FROM scope WHERE tenant = ? AND namespace IN ({marks}) AND owner IN ('', ?) ORDER BY id",  # noqa: S608
        (tenant, *namespaces, user or ""),
    )
    return [row[0] for row in rows]


def record_of(row: Sequence[Any]) -> KnowledgeRecord:
    return KnowledgeRecord(
        id=row[0], type=row[1], title=row[2], text=row[3], tags=tuple(orjson.loads(row[4])), namespace=row[5],
        owner=row[6], tenant=row[7], source_type=row[8], source=row[9], url=row[10], metadata=orjson.loads(row[11]),
        last_updated=row[12],
    )  # fmt: skip


def records_by_key(db: KnowledgeConnection, keys: Sequence[int]) -> dict[int, KnowledgeRecord]:
    marks = ", ".join("?" * len(keys))
    rows = db.execute(f"SELECT r.key, {RECORD_COLUMNS} WHERE r.key IN ({marks})", list(keys))
    return {row[0]: record_of(row[1:]) for row in rows}


def titles_by_key(db: KnowledgeConnection, keys: Sequence[int]) -> dict[int, str]:
    marks = ", ".join("?" * len(keys))
    return dict(db.execute(f"SELECT key, title FROM record WHERE key IN ({marks})", list(keys)))  # noqa: S608


def records_by_id(db: KnowledgeConnection, scopes: Sequence[int], ids: Sequence[str]) -> dict[str, KnowledgeRecord]:
    """Readable records by id. Where one's own and everybody's have the same id, one's own is meant."""
    return {record.id: record for record in records_with_ids(db, scopes, ids)}


def records_with_ids(db: KnowledgeConnection, scopes: Sequence[int], ids: Sequence[str]) -> list[KnowledgeRecord]:
    """Every readable record with one of these ids; several namespaces may have the same."""
    marks, places = ", ".join("?" * len(scopes)), ", ".join("?" * len(ids))
    rows = db.execute(
        f"SELECT {RECORD_COLUMNS} WHERE r.scope IN ({marks}) AND r.id IN ({places}) ORDER BY s.owner, r.key",
        (*scopes, *ids),
    )
    return [record_of(row) for row in rows]


def nearest_ids(db: KnowledgeConnection, scopes: Sequence[int], wanted: Sequence[str], limit: int) -> list[str]:
    """Readable ids that look like the wanted ones. A few hundred are compared, however many there are."""
    share = _NEAR_LIMIT // max(1, len(wanted))
    near: list[tuple[float, str]] = []
    for one in wanted:
        compared = SequenceMatcher(None, "", one[:_NEAR_LENGTH], autojunk=False)
        for known in _like(db, scopes, one, share):
            compared.set_seq1(known[:_NEAR_LENGTH])
            if compared.real_quick_ratio() >= _NEAR and compared.quick_ratio() >= _NEAR:
                near.append((-compared.ratio(), known))
    return list(dict.fromkeys(known for ratio, known in sorted(near) if -ratio >= _NEAR))[:limit]


def _like(db: KnowledgeConnection, scopes: Sequence[int], wanted: str, limit: int) -> list[str]:
    """Ids worth comparing: those that begin alike, the neighbours in the alphabet, and those whose titles share a word."""
    kind, _, name = wanted.partition(":")
    found: dict[str, None] = {}
    each = max(1, limit // (4 * max(1, len(scopes))))
    for scope in scopes:
        for condition, order, start in (
            ("id >= ?", "id", wanted),
            ("id < ?", "id DESC", wanted),
            ("id >= ?", "id", f"{kind}:{name[:2]}"),
        ):
            sql = f"SELECT id FROM record WHERE scope = ? AND {condition} ORDER BY {order} LIMIT ?"  # noqa: S608
            found.update(dict.fromkeys(row[0] for row in db.execute(sql, (scope, start, each))))
    terms = query_terms(name.replace("_", " ").replace("-", " "))
    if terms and scopes:
        for groups in ([[term] for term in terms], [terms]):
            keys = db.words.titled(scopes, groups, max(1, limit // 8))
            found.update(dict.fromkeys(record.id for record in records_by_key(db, keys).values()))
    return list(found)[:limit]


def records_named(db: KnowledgeConnection, scopes: Sequence[int], terms: Sequence[str]) -> list[KnowledgeRecord]:
    """Readable records whose title has all of these terms, as the full-text index compares them."""
    if not terms or not scopes:
        return []
    return list(records_by_key(db, db.words.titled(scopes, [[term] for term in terms], _NAMED_LIMIT)).values())


def all_records(
    db: KnowledgeConnection, namespace: str | None = None, source: str | None = None
) -> Iterator[KnowledgeRecord]:
    """Every record, in an order that depends on nothing but their ids."""
    asked = [("s.namespace = ?", namespace), ("r.source = ?", source)]
    conditions = " AND ".join(["r.key > 0", *(condition for condition, value in asked if value is not None)])
    rows = db.stream(
        f"SELECT {RECORD_COLUMNS} WHERE {conditions} ORDER BY s.tenant, s.namespace, s.owner, r.id",
        [value for _, value in asked if value is not None],
    )
    for row in rows:
        yield record_of(row)


def statistics(db: KnowledgeConnection) -> dict[str, Any]:
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
        "bytes": db.bytes_used(),
    }
