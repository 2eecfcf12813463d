"""Full text in SQLite (FTS5): ranked by its BM25. The index keeps no copy of the texts; what goes in, and out again, is made from
the record."""

# ruff: noqa: S608 - what is put into SQL are our own names; terms are quoted, and travel as parameters

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from handrail_reference.services.kb.connection import Groups, Indexed, Reach, Scored, TextPart
from handrail_reference.services.kb.pieces import Piece, lead_of
from handrail_reference.services.kb.query_words import prepared
from handrail_reference.services.kb.record import KnowledgeRecord

if TYPE_CHECKING:
    from handrail_reference.services.kb.database import SqliteKnowledge


class _FtsTable(NamedTuple):
    """One of the two indexes: the columns that a query reaches, their weights, and the way to the record."""

    name: str
    columns: str
    weights: str
    join: str
    record: str
    rows_of_keys: str


_TABLES = {
    TextPart.HEADS: _FtsTable(
        "head_words",
        "{title tags lead}",
        "0.0, 2.0, 1.0, 1.0",
        "r.key = head_words.rowid",
        "head_words.rowid",
        "SELECT value FROM json_each(?)",
    ),
    TextPart.PIECES: _FtsTable(
        "piece_words",
        "body",
        "0.0, 1.0",
        "r.key = p.record",
        "p.record",
        "SELECT piece.id FROM json_each(?) CROSS JOIN piece ON piece.record = json_each.value",
    ),
}


class Fts5Index:
    """The index of one connection. The words of the scope in a query only make it quick; a condition on the record guards it."""

    def __init__(self, db: SqliteKnowledge) -> None:
        self._db = db

    def pieces_in(self, scopes: Sequence[int], *, is_all: bool) -> int:
        db, words = self._db, _mine(scopes)
        if is_all:
            return db.remembered("pieces", lambda: int(db.execute("SELECT count(*) FROM piece").fetchone()[0]))
        sql = "SELECT count(*) FROM piece_words WHERE piece_words MATCH ?"
        return db.remembered(("pieces", words), lambda: int(db.execute(sql, (words,)).fetchone()[0]))

    def counts(self, part: TextPart, terms: Sequence[str], reach: Reach, max_rows: int) -> dict[str, int]:
        mine = "" if reach.is_all else _mine(reach.scopes)
        return {term: self._count(_TABLES[part], _query(_TABLES[part], mine, [[term]]), max_rows) for term in terms}

    def best(self, part: TextPart, groups: Groups, reach: Reach, counts: Mapping[str, int], limit: int) -> list[Scored]:
        return self._run(part, groups, reach, f"ORDER BY 3, 1 LIMIT {limit:d}")

    def newest(
        self, part: TextPart, groups: Groups, reach: Reach, counts: Mapping[str, int], limit: int
    ) -> list[Scored]:
        return self._run(part, groups, reach, f"ORDER BY {part.value}.rowid DESC LIMIT {limit:d}")

    def terms_of(self, part: TextPart, row: int, terms: Sequence[str]) -> set[str]:
        table = _TABLES[part]
        sql = f"SELECT 1 FROM {table.name} WHERE {table.name} MATCH ? AND rowid = ?"
        return {term for term in terms if self._db.execute(sql, (f"{table.columns} : {term}", row)).fetchone()}

    def titled(self, scopes: Sequence[int], groups: Groups, limit: int) -> list[int]:
        marks = ", ".join("?" * len(scopes))
        query = " AND ".join(f"title : ({' OR '.join(group)})" for group in groups)
        sql = f"""SELECT r.key FROM head_words CROSS JOIN record r ON r.key = head_words.rowid AND r.scope IN ({marks})
            WHERE head_words MATCH ? LIMIT ?"""
        return [row[0] for row in self._db.execute(sql, (*scopes, query, limit))]

    # Writing

    def put(self, rows: Sequence[Indexed]) -> None:
        for key, scope, record, pieces in rows:
            self._db.execute(
                "INSERT INTO head_words (rowid, scope, title, tags, lead) VALUES (?, ?, ?, ?, ?)",
                (key, *_head(scope, record)),
            )
            self._db.executemany(
                "INSERT INTO piece_words (rowid, scope, body) VALUES (?, ?, ?)", _bodies(scope, record, pieces)
            )

    def remove(self, rows: Sequence[Indexed]) -> None:
        for key, scope, record, _ in rows:
            self._db.execute(
                "INSERT INTO head_words (head_words, rowid, scope, title, tags, lead) VALUES ('delete', ?, ?, ?, ?, ?)",
                (key, *_head(scope, record)),
            )
            stored = self._db.execute("SELECT id, start, stop FROM piece WHERE record = ?", (key,)).fetchall()
            self._db.executemany(
                "INSERT INTO piece_words (piece_words, rowid, scope, body) VALUES ('delete', ?, ?, ?)",
                _bodies(scope, record, [(number, Piece(*place)) for number, *place in stored]),
            )

    def clear(self) -> None:
        self._command("delete-all")

    def optimize(self) -> None:
        """One segment for each index: the quickest to read."""
        self._command("optimize")

    def _command(self, command: str) -> None:
        for part in TextPart:
            self._db.execute(f"INSERT INTO {part.value} ({part.value}) VALUES (?)", (command,))

    def _count(self, table: _FtsTable, query: str, max_rows: int) -> int:
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {table.name} WHERE {table.name} MATCH ? LIMIT ?)"
        return self._db.remembered(
            (table.name, query, max_rows), lambda: int(self._db.execute(sql, (query, max_rows)).fetchone()[0])
        )

    def _run(self, part: TextPart, groups: Groups, reach: Reach, tail: str) -> list[Scored]:
        # CROSS keeps the order of the tables: begun with the records, each of them would mean a full-text search of its own.
        table = _TABLES[part]
        pieces = "CROSS JOIN piece p ON p.id = piece_words.rowid" if part is TextPart.PIECES else ""
        condition, values = reach.wanted.as_sql()
        few, keys = "", list[str]()
        if reach.keys is not None:
            # With the plus sign rows are compared with the set, not looked up one by one.
            few, keys = f" AND +{table.name}.rowid IN ({table.rows_of_keys})", [json.dumps(reach.keys)]
            condition, values = "", []
        marks = ", ".join("?" * len(reach.scopes))
        sql = f"""SELECT {table.name}.rowid, {table.record}, bm25({table.name}, {table.weights}) FROM {table.name} {pieces}
            CROSS JOIN record r ON {table.join} AND r.scope IN ({marks}){condition}
            WHERE {table.name} MATCH ?{few} {tail}"""
        query = _query(table, _mine(reach.scopes) if reach.is_little else "", groups)
        return [(row[0], row[1], -row[2]) for row in self._db.execute(sql, (*reach.scopes, *values, query, *keys))]


def _query(table: _FtsTable, scopes: str, groups: Groups) -> str:
    words = " AND ".join(f"{table.columns} : ({' OR '.join(group)})" for group in groups)
    return f"({scopes}) AND {words}" if scopes else words


def _mine(scopes: Sequence[int]) -> str:
    return " OR ".join(f'scope : "{_scope_word(scope)}"' for scope in scopes)


def _scope_word(scope: int) -> str:
    """The word by which the index knows who may read a row. It stands in a column that no query of a user reaches."""
    return f"zq{scope}"


def _head(scope: int, record: KnowledgeRecord) -> tuple[str, str, str, str]:
    tags = " ".join(record.tags)
    return _scope_word(scope), prepared(record.title), prepared(tags), prepared(lead_of(record.text))


def _bodies(scope: int, record: KnowledgeRecord, pieces: Sequence[tuple[int, Piece]]) -> list[tuple[int, str, str]]:
    word = _scope_word(scope)
    return [(number, word, prepared(record.text[piece.start : piece.stop])) for number, piece in pieces]
