"""Full text: which records the words of a query find, and how well (BM25 by SQLite's FTS5).

A record's score is that of its best piece, plus a share for its head: title, tags and the beginning of its text. Ranking a
row costs microseconds, so on a large base the rare words choose the rows and the common ones only add to their scores.
How common a word is, is counted among the rows that the reader may read, and among no others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from handrail_reference.services.kb.database import KnowledgeConnection
from handrail_reference.services.kb.filtered import few_keys
from handrail_reference.services.kb.port import Filter
from handrail_reference.services.kb.writing import scope_word

HEAD_SHARE = 0.8
CANDIDATES = 200
ROW_BUDGET = 1_500
"""So many rows are ranked for a query at most, in each of the two indexes, and as many again for its common words."""
SMALL_BASE = 5_000
"""With no more pieces than this, every row that has any of the words is ranked."""
_TOO_COMMON = 0.25
"""A word in more than this part of the rows says next to nothing beside a rare one."""
_FEW = 0.2
"""Scopes with at most this part of the records are searched by their word; for larger ones looking at each row is quicker."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The rows that a search reaches. `mine` stands for the scopes in a count, `quick` in a search that it makes quicker;
    both are empty where every row is the reader's. With `keys` only these records count, whatever else is wanted."""

    scopes: Sequence[int]
    wanted: Filter
    rows: int
    mine: str
    quick: str
    keys: str | None


@dataclass(frozen=True, slots=True)
class Index:
    """One of the two indexes: its table, the columns that a query reaches, their weights, and the way to the record."""

    table: str
    columns: str
    weights: str
    join: str
    record: str
    rows_of_keys: str


HEADS = Index(
    "head_words",
    "{title tags lead}",
    "0.0, 2.0, 1.0, 1.0",
    "r.key = head_words.rowid",
    "head_words.rowid",
    "SELECT value FROM json_each(?)",
)
PIECES = Index(
    "piece_words",
    "body",
    "0.0, 1.0",
    "r.key = p.record",
    "p.record",
    "SELECT piece.id FROM json_each(?) CROSS JOIN piece ON piece.record = json_each.value",
)


@dataclass(slots=True)
class WordHits:
    """Records by score, their best pieces, and which part of the query's words the best record has, rare ones counting more."""

    scores: dict[int, float] = field(default_factory=dict)
    pieces: dict[int, int] = field(default_factory=dict)
    coverage: float = 0.0


def search_words(
    db: KnowledgeConnection, terms: Sequence[str], scopes: Sequence[int], wanted: Filter, limit: int
) -> WordHits:
    """The records that have any of the terms; the scores are comparable within one answer."""
    hits = WordHits()
    if not terms or not scopes:
        return hits
    reach = _reach(db, scopes, wanted)
    if reach is None:
        return hits
    counts: dict[str, int] = dict.fromkeys(terms, 0)
    for number, record, score in _ranked(db, PIECES, terms, reach, limit, counts):
        if score > hits.scores.get(record, -1.0):
            hits.scores[record] = score
            hits.pieces[record] = number
    for _, record, score in _ranked(db, HEADS, terms, reach, limit, counts):
        hits.scores[record] = hits.scores.get(record, 0.0) + HEAD_SHARE * score
    if hits.scores:
        best = min(hits.scores, key=lambda record: (-hits.scores[record], record))
        hits.coverage = _coverage(db, best, hits.pieces.get(best), counts, reach.rows)
    return hits


def _coverage(db: KnowledgeConnection, record: int, piece: int | None, counts: Mapping[str, int], rows: int) -> float:
    weights = {term: math.log(1 + (rows + 0.5) / (count + 0.5)) for term, count in counts.items()}
    has = sum(
        weight
        for term, weight in weights.items()
        if _has(db, HEADS, term, record) or (piece is not None and _has(db, PIECES, term, piece))
    )
    return has / sum(weights.values())


def _has(db: KnowledgeConnection, index: Index, term: str, row: int) -> bool:
    sql = f"SELECT 1 FROM {index.table} WHERE {index.table} MATCH ? AND rowid = ?"  # noqa: S608
    return db.execute(sql, (f"{index.columns} : {term}", row)).fetchone() is not None


def _ranked(
    db: KnowledgeConnection, index: Index, terms: Sequence[str], reach: Reach, limit: int, known: dict[str, int]
) -> list[tuple[int, int, float]]:
    """(row, record, score) of the best rows of one index, best first."""
    row_limit = max(ROW_BUDGET, int(_TOO_COMMON * reach.rows)) + 1
    counts = {term: _count(db, index, _query(index, reach.mine, [term]), row_limit) for term in terms}
    known.update({term: max(count, known[term]) for term, count in counts.items()})
    by_count = sorted((term for term in terms if counts[term]), key=lambda term: (counts[term], term))
    if not by_count:
        return []
    telling = [term for term in by_count if counts[term] <= _TOO_COMMON * reach.rows]
    if reach.keys is not None:
        return _among_few(db, index, telling if reach.rows > SMALL_BASE else (), by_count, reach, limit)
    rare = _rare(by_count, counts)
    every = _query(index, reach.quick, by_count)
    if reach.rows <= SMALL_BASE or (len(rare) == len(by_count) and sum(counts.values()) <= ROW_BUDGET):
        return _best(db, index, every, reach)
    if counts[rare[0]] > ROW_BUDGET:
        return _common(db, index, by_count, reach, limit)
    found = {row[0]: row for row in _best(db, index, _query(index, reach.quick, rare), reach)}
    more = [term for term in telling if term not in rare]
    if more:
        both = f"({_query(index, reach.quick, rare)}) AND {index.columns} : ({' OR '.join(more)})"
        found |= {row[0]: row for row in _best(db, index, both, reach)}
    if len({row[1] for row in found.values()}) < limit:
        # The rare words were not enough, or stood in records that the filter leaves out.
        found = {row[0]: row for row in _newest(db, index, every, reach)} | found
    return sorted(found.values(), key=lambda row: (-row[2], row[0]))[:CANDIDATES]


def _among_few(
    db: KnowledgeConnection, index: Index, telling: Sequence[str], terms: Sequence[str], reach: Reach, limit: int
) -> list[tuple[int, int, float]]:
    """Few records fit the filter: all of them that have a telling word; where that is too few, any word."""
    found = _best(db, index, _query(index, reach.quick, telling), reach) if telling else []
    if len({row[1] for row in found}) >= limit or len(telling) == len(terms):
        return found
    return _best(db, index, _query(index, reach.quick, terms), reach)


def _common(
    db: KnowledgeConnection, index: Index, terms: Sequence[str], reach: Reach, limit: int
) -> list[tuple[int, int, float]]:
    """Every word is common: rows that have several of them together, then rows that have any."""
    found: dict[int, tuple[int, int, float]] = {}
    for together in sorted({len(terms), 3, 2}, reverse=True):
        if 1 < together <= len(terms):
            query = _query(index, reach.quick, terms[:together], " AND ")
            found = {row[0]: row for row in _newest(db, index, query, reach)} | found
        if len({row[1] for row in found.values()}) >= limit:
            break
    else:
        found = {row[0]: row for row in _newest(db, index, _query(index, reach.quick, terms), reach)} | found
    return sorted(found.values(), key=lambda row: (-row[2], row[0]))[:CANDIDATES]


def _rare(by_count: Sequence[str], counts: dict[str, int]) -> list[str]:
    rare, total = [by_count[0]], counts[by_count[0]]
    for term in by_count[1:]:
        total += counts[term]
        if total > ROW_BUDGET:
            break
        rare.append(term)
    return rare


def _reach(db: KnowledgeConnection, scopes: Sequence[int], wanted: Filter) -> Reach | None:
    """Which rows are the reader's; None where nothing fits the filter. The guard is the condition in `_run`."""
    keys = few_keys(db, scopes, wanted) if wanted else None
    if keys == []:
        return None
    sizes: dict[int, int] = db.remembered(
        "scopes", lambda: dict(db.execute("SELECT scope, count(*) FROM record GROUP BY scope").fetchall())
    )
    mine, every = sum(sizes.get(scope, 0) for scope in scopes), sum(sizes.values())
    words = " OR ".join(f'scope : "{scope_word(scope)}"' for scope in scopes) if mine < every else ""
    return Reach(
        scopes=scopes,
        wanted=wanted,
        rows=_pieces(db, words),
        mine=words,
        quick=words if mine <= _FEW * every else "",
        keys=None if keys is None else str(keys),
    )


def _pieces(db: KnowledgeConnection, words: str) -> int:
    if not words:
        return db.remembered("pieces", lambda: int(db.execute("SELECT count(*) FROM piece").fetchone()[0]))
    sql = "SELECT count(*) FROM piece_words WHERE piece_words MATCH ?"
    return db.remembered(("pieces", words), lambda: int(db.execute(sql, (words,)).fetchone()[0]))


def _query(index: Index, scopes: str, terms: Sequence[str], joined: str = " OR ") -> str:
    words = f"{index.columns} : ({joined.join(terms)})"
    return f"({scopes}) AND {words}" if scopes else words


def _count(db: KnowledgeConnection, index: Index, query: str, row_limit: int) -> int:
    """How many rows a word is in; `most`, if it is in more: how common a common word is does not matter."""
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {index.table} WHERE {index.table} MATCH ? LIMIT ?)"  # noqa: S608
    return db.remembered(
        (index.table, query, row_limit), lambda: int(db.execute(sql, (query, row_limit)).fetchone()[0])
    )


def _best(db: KnowledgeConnection, index: Index, query: str, reach: Reach) -> list[tuple[int, int, float]]:
    return _run(db, index, query, reach, f"ORDER BY 3, 1 LIMIT {CANDIDATES}")


def _newest(db: KnowledgeConnection, index: Index, query: str, reach: Reach) -> list[tuple[int, int, float]]:
    """The newest rows, and no more than can be ranked."""
    rows = _run(db, index, query, reach, f"ORDER BY {index.table}.rowid DESC LIMIT {ROW_BUDGET}")
    return sorted(rows, key=lambda row: (-row[2], row[0]))[:CANDIDATES]


def _run(db: KnowledgeConnection, index: Index, query: str, reach: Reach, tail: str) -> list[tuple[int, int, float]]:
    # Words of the scope in the query only make it quick; the condition on the record is what guards it. CROSS keeps the
    # order of the tables: begun with the records, each of them would mean a full-text search of its own.
    pieces = "CROSS JOIN piece p ON p.id = piece_words.rowid" if index is PIECES else ""
    condition, values = reach.wanted.as_sql()
    few = ""
    if reach.keys is not None:
        # With the plus sign rows are compared with the set, not looked up one by one.
        few = f" AND +{index.table}.rowid IN ({index.rows_of_keys})"
        condition, values = "", []
    marks = ", ".join("?" * len(reach.scopes))
    sql = f"""SELECT {index.table}.rowid, {index.record}, bm25({index.table}, {index.weights}) FROM {index.table} {pieces}
        CROSS JOIN record r ON {index.join} AND r.scope IN ({marks}){condition}
        WHERE {index.table} MATCH ?{few} {tail}"""  # noqa: S608
    given = (*reach.scopes, *values, query, *([reach.keys] if few else []))
    return [(row[0], row[1], -row[2]) for row in db.execute(sql, given)]
