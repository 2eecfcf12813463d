"""Full text: which records the words of a query find, and how well (BM25).

A record's score is that of its best piece, plus a share for its head: title, tags and the beginning of its text. Ranking a
row costs microseconds, so on a large base the rare words choose the rows and the common ones only add to their scores.
How common a word is, is counted among the rows that the reader may read, and among no others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from handrail_reference.services.kb.connection import Groups, KnowledgeConnection, Reach, Scored, TextPart
from handrail_reference.services.kb.filtered import few_keys
from handrail_reference.services.kb.port import Filter

HEAD_SHARE = 0.8
CANDIDATES = 200
ROW_BUDGET = 1_500
"""The largest number of rows that are ranked for a query, in each of the two indexes, and as many again for its common words."""
SMALL_BASE = 5_000
"""With no more pieces than this, every row that has any of the words is ranked."""
_TOO_COMMON = 0.25
"""A word in more than this part of the rows says next to nothing beside a rare one."""
_FEW = 0.2
"""Scopes with at most this part of the records are searched by their word; for larger ones looking at each row is quicker."""


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
    for number, record, score in _ranked(db, TextPart.PIECES, terms, reach, limit, counts):
        if score > hits.scores.get(record, -1.0):
            hits.scores[record] = score
            hits.pieces[record] = number
    for _, record, score in _ranked(db, TextPart.HEADS, terms, reach, limit, counts):
        hits.scores[record] = hits.scores.get(record, 0.0) + HEAD_SHARE * score
    if hits.scores:
        best = min(hits.scores, key=lambda record: (-hits.scores[record], record))
        hits.coverage = _coverage(db, best, hits.pieces.get(best), counts, reach.rows)
    return hits


def _coverage(db: KnowledgeConnection, record: int, piece: int | None, counts: Mapping[str, int], rows: int) -> float:
    weights = {term: math.log(1 + (rows + 0.5) / (count + 0.5)) for term, count in counts.items()}
    has = db.words.terms_of(TextPart.HEADS, record, list(counts))
    if piece is not None:
        has |= db.words.terms_of(TextPart.PIECES, piece, [term for term in counts if term not in has])
    return sum(weight for term, weight in weights.items() if term in has) / sum(weights.values())


def _ranked(
    db: KnowledgeConnection, part: TextPart, terms: Sequence[str], reach: Reach, limit: int, known: dict[str, int]
) -> list[Scored]:
    """(row, record, score) of the best rows of one index, best first."""
    max_rows = max(ROW_BUDGET, int(_TOO_COMMON * reach.rows)) + 1  # how common a common word is does not matter
    counts = db.words.counts(part, terms, reach, max_rows)
    known.update({term: max(count, known[term]) for term, count in counts.items()})
    by_count = sorted((term for term in terms if counts[term]), key=lambda term: (counts[term], term))
    if not by_count:
        return []

    def best(groups: Groups) -> list[Scored]:
        return db.words.best(part, groups, reach, counts, CANDIDATES)

    def newest(groups: Groups) -> list[Scored]:
        """The best of the newest rows, and no more than can be ranked."""
        rows = db.words.newest(part, groups, reach, counts, ROW_BUDGET)
        return sorted(rows, key=lambda row: (-row[2], row[0]))[:CANDIDATES]

    telling = [term for term in by_count if counts[term] <= _TOO_COMMON * reach.rows]
    if reach.keys is not None:
        # Few records fit the filter: all of them that have a telling word; where that is too few, any word.
        few = best([telling]) if telling and reach.rows > SMALL_BASE else []
        enough = len({row[1] for row in few}) >= limit or (bool(few) and len(telling) == len(by_count))
        return few if enough else best([by_count])
    rare = _rare(by_count, counts)
    if reach.rows <= SMALL_BASE or (len(rare) == len(by_count) and sum(counts.values()) <= ROW_BUDGET):
        return best([by_count])
    found: dict[int, Scored] = {}
    if counts[rare[0]] > ROW_BUDGET:
        # Every word is common: rows that have several of them together, then rows that have any.
        for together in sorted({len(by_count), 3, 2}, reverse=True):
            if 1 < together <= len(by_count):
                found = {row[0]: row for row in newest([[term] for term in by_count[:together]])} | found
            if len({row[1] for row in found.values()}) >= limit:
                return _first(found)
        return _first({row[0]: row for row in newest([by_count])} | found)
    found = {row[0]: row for row in best([rare])}
    more = [term for term in telling if term not in rare]
    if more:
        found |= {row[0]: row for row in best([rare, more])}
    if len({row[1] for row in found.values()}) < limit:
        # The rare words were not enough, or stood in records that the filter leaves out.
        found = {row[0]: row for row in newest([by_count])} | found
    return _first(found)


def _first(found: Mapping[int, Scored]) -> list[Scored]:
    return sorted(found.values(), key=lambda row: (-row[2], row[0]))[:CANDIDATES]


def _rare(by_count: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    rare, total = [by_count[0]], counts[by_count[0]]
    for term in by_count[1:]:
        total += counts[term]
        if total > ROW_BUDGET:
            break
        rare.append(term)
    return rare


def _reach(db: KnowledgeConnection, scopes: Sequence[int], wanted: Filter) -> Reach | None:
    """Which rows are the reader's; None where nothing fits the filter."""
    keys = few_keys(db, scopes, wanted) if wanted else None
    if keys == []:
        return None
    sizes: dict[int, int] = db.remembered(
        "scopes", lambda: dict(db.execute("SELECT scope, count(*) FROM record GROUP BY scope").fetchall())
    )
    mine, every = sum(sizes.get(scope, 0) for scope in scopes), sum(sizes.values())
    return Reach(
        scopes=scopes,
        wanted=wanted,
        rows=db.words.pieces_in(scopes, is_all=mine >= every),
        is_all=mine >= every,
        is_little=mine < every and mine <= _FEW * every,
        keys=keys,
    )
