"""Meaning in PostgreSQL with pgvector. Up to some thousand readable vectors each is compared; of more, an index (HNSW) finds the
closest pieces, and the records that these belong to are then compared in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from handrail_reference.services.kb.connection import KnowledgeConnection
from handrail_reference.services.kb.filtered import few_keys
from handrail_reference.services.kb.port import Filter
from handrail_reference.services.kb.postgres import connection, tables
from handrail_reference.services.kb.vectors import CANDIDATES, Floats, VectorHits

if TYPE_CHECKING:
    from handrail_reference.services.kb.postgres.connection import PostgresKnowledge

_CLOSEST_PIECES = 400
_ITERATIVE_SINCE = (0, 8)
"""Before that version of pgvector, an index gives no more where a condition leaves out what it found."""
_CLOSE = """WITH near AS (
        SELECT v.id, v.record, v.piece, -(v.data <#> ?::halfvec) AS cosine
        FROM vector v JOIN record r ON r.key = v.record{condition}
        WHERE v.space = ? AND v.scope = ANY(?){some})
    SELECT record, (max(cosine) + avg(cosine)) / 2, max(cosine), (array_agg(piece ORDER BY cosine DESC, id))[1]
    FROM near GROUP BY record ORDER BY 2 DESC, 1 LIMIT ?"""
_CLOSEST = """SELECT DISTINCT record FROM (
        SELECT v.record FROM vector v JOIN record r ON r.key = v.record{condition} WHERE v.space = {space:d} AND v.scope = ANY(?)
        ORDER BY v.data::halfvec({dimensions:d}) <#> ?::halfvec LIMIT ?) AS found"""


class PgvectorSearch:
    """The vectors of one space, which stay in the database."""

    def __init__(self, space: str, dimensions: int) -> None:
        self.space = space
        self.dimensions = dimensions
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def catch_up(self, db: KnowledgeConnection) -> None:
        sql = "SELECT count(*) FROM vector v JOIN space s ON s.id = v.space WHERE s.name = ?"
        self._count = db.remembered(("vectors", self.space), lambda: int(db.execute(sql, (self.space,)).fetchone()[0]))

    def search(self, db: KnowledgeConnection, query: Floats, scopes: Sequence[int], wanted: Filter) -> VectorHits:
        space = db.remembered(("space", self.space), lambda: _space_of(db, self.space))
        if space is None or not scopes:
            return VectorHits({}, {}, {})
        asked = "[" + ",".join(f"{number:.8g}" for number in query.tolist()) + "]"
        condition, values = wanted.as_sql()
        keys = few_keys(db, scopes, wanted) if wanted else None
        if keys is None and self._is_large(cast("PostgresKnowledge", db), space, scopes):
            keys = self._closest(cast("PostgresKnowledge", db), asked, space, scopes, wanted)
        some: list[Any] = []
        if keys is not None:
            condition, values, some = "", [], [keys]
        sql = _CLOSE.format(condition=condition, some=" AND v.record = ANY(?)" if some else "")
        rows = db.execute(sql, (asked, *values, space, list(scopes), *some, CANDIDATES)).fetchall()
        return VectorHits(
            {row[0]: float(row[1]) for row in rows},
            {row[0]: float(row[2]) for row in rows},
            {row[0]: row[3] for row in rows},
        )

    def _is_large(self, db: PostgresKnowledge, space: int, scopes: Sequence[int]) -> bool:
        if not db.remembered(("hnsw", space), lambda: db.hnsw_index(space)):
            return False
        return db.words.pieces_in(scopes, is_all=False) >= connection.HNSW_ROWS

    def _closest(
        self, db: PostgresKnowledge, asked: str, space: int, scopes: Sequence[int], wanted: Filter
    ) -> list[int]:
        """The records of the closest pieces that are readable and fit the filter."""
        db.connection.execute(f"SET LOCAL hnsw.ef_search = {_CLOSEST_PIECES:d}".encode())
        version = db.remembered("pgvector", lambda: tables.pgvector_version(db)) or ""
        if tables.release_of(version) >= _ITERATIVE_SINCE:
            db.connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        condition, values = wanted.as_sql()
        sql = _CLOSEST.format(condition=condition, space=space, dimensions=self.dimensions)
        rows = db.execute(sql, (*values, list(scopes), asked, _CLOSEST_PIECES))
        return [row[0] for row in rows]


def _space_of(db: KnowledgeConnection, name: str) -> int | None:
    row = db.execute("SELECT id FROM space WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])
