"""Full text in PostgreSQL: rows are found by a GIN index over their stems, and ranked by BM25 as SQLite ranks them.

Words are told apart here, not by PostgreSQL's parser, so that both databases find the same; the stems are PostgreSQL's (Porter's,
as SQLite has them). A row keeps its stems as a `tsvector`, and beside it how often those occur that occur more than once. Two
kinds of marks stand among the stems, which no word can be: `#7` for the scope, and `@name` for a word of the title.
"""

# ruff: noqa: S608 - what is put into SQL are our own names and numbers; words travel as parameters

from __future__ import annotations

import json
import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from handrail_reference.services.kb.connection import Groups, Indexed, Reach, Scored, TextPart
from handrail_reference.services.kb.pieces import lead_of
from handrail_reference.services.kb.query_words import is_unspaced, prepared
from handrail_reference.services.kb.record import KnowledgeRecord

if TYPE_CHECKING:
    from handrail_reference.services.kb.postgres.connection import PostgresKnowledge

_TITLE_WEIGHT = 2
_MAX_WORD = 100
_MAX_STEMS = 200_000
_PLAIN_WORD = re.compile(r"[a-z0-9]+")
_K1, _B = 1.2, 0.75
"""What SQLite takes for BM25."""
_ROWS = {TextPart.PIECES: "piece", TextPart.HEADS: "record"}


class Stems:
    """The stems of words, asked of the server once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, db: PostgresKnowledge, words: Iterable[str]) -> Mapping[str, str]:
        wanted = set(words)
        missing = sorted(wanted - self._known.keys())
        found = {word: self._known.get(word, word) for word in wanted}
        if missing:
            rows = db.connection.execute(
                "SELECT word, (ts_lexize('porter', word))[1] FROM unnest(%s::text[]) AS word", (missing,)
            ).fetchall()
            found |= {word: stem or word for word, stem in rows}
            with self._lock:
                if len(self._known) > _MAX_STEMS:
                    self._known = {}
                self._known.update({word: found[word] for word in missing})
        return found


class _Scale(NamedTuple):
    """Of the rows that a reader may read: how many there are, and how many words they have in the mean."""

    rows: int
    length: float


class _Head(NamedTuple):
    """The words of a record's head."""

    title: list[str]
    rest: list[str]

    @classmethod
    def of(cls, record: KnowledgeRecord) -> _Head:
        return cls(_stemmable(record.title), [*_stemmable(" ".join(record.tags)), *_stemmable(lead_of(record.text))])

    @property
    def length(self) -> int:
        return len(self.title) + len(self.rest)

    def counted(self, stems: Mapping[str, str]) -> tuple[Counter[str], list[str], int]:
        """How often each stem counts, the marks of the title, and the length."""
        counts = Counter(stems[word] for word in self.rest)
        for word in self.title:
            counts[stems[word]] += _TITLE_WEIGHT
        return counts, [f"@{stems[word]}" for word in self.title], self.length


class PostgresWords:
    """The index of one connection."""

    def __init__(self, db: PostgresKnowledge, stems: Stems) -> None:
        self._db = db
        self._stems = stems

    def pieces_in(self, scopes: Sequence[int], *, is_all: bool) -> int:
        return self._scale(TextPart.PIECES, scopes).rows

    def counts(self, part: TextPart, terms: Sequence[str], reach: Reach, max_rows: int) -> dict[str, int]:
        stems = self._stems_of(terms)
        known: dict[tuple[object, ...], int] = self._db.remembered("counts", dict)
        which = {term: (part, tuple(reach.scopes), max_rows, *stems[term]) for term in terms}
        asked = [term for term in terms if which[term] not in known and stems[term]]
        if asked:
            rows = self._db.execute(
                f"""SELECT t.place, (SELECT count(*) FROM (
                        SELECT FROM {part.value} w WHERE w.words @@ t.query::tsquery AND w.scope = ANY(?) LIMIT ?) AS found)
                    FROM unnest(?::text[]) WITH ORDINALITY AS t (query, place)""",
                (list(reach.scopes), max_rows, [_query([[term]], stems) for term in asked]),
            ).fetchall()
            known.update({which[asked[place - 1]]: count for place, count in rows})
        return {term: known.get(which[term], 0) for term in terms}

    def best(self, part: TextPart, groups: Groups, reach: Reach, counts: Mapping[str, int], limit: int) -> list[Scored]:
        sql, values = self._search(part, groups, reach, counts)
        return self._db.execute(f"{sql} ORDER BY 3 DESC, 1 LIMIT ?", (*values, limit)).fetchall()

    def newest(
        self, part: TextPart, groups: Groups, reach: Reach, counts: Mapping[str, int], limit: int
    ) -> list[Scored]:
        sql, values = self._search(part, groups, reach, counts)
        return self._db.execute(f"{sql} ORDER BY 1 DESC LIMIT ?", (*values, limit)).fetchall()

    def terms_of(self, part: TextPart, row: int, terms: Sequence[str]) -> set[str]:
        stems = self._stems_of(terms)
        asked = [term for term in terms if stems[term]]
        rows = self._db.execute(
            f"""SELECT t.place FROM {part.value} w, unnest(?::text[]) WITH ORDINALITY AS t (query, place)
                WHERE w.{_ROWS[part]} = ? AND w.words @@ t.query::tsquery""",
            ([_query([[term]], stems) for term in asked], row),
        )
        return {asked[place - 1] for (place,) in rows}

    def titled(self, scopes: Sequence[int], groups: Groups, limit: int) -> list[int]:
        stems = self._stems_of([term for group in groups for term in group])
        if not any(stems[term] for group in groups for term in group):
            return []
        rows = self._db.execute(
            "SELECT record FROM head_words WHERE words @@ ?::tsquery AND scope = ANY(?) ORDER BY record LIMIT ?",
            (_query(groups, stems, "@"), list(scopes), limit),
        )
        return [row[0] for row in rows]

    # Writing

    def put(self, rows: Sequence[Indexed]) -> None:
        heads = [_Head.of(row.record) for row in rows]
        bodies = [[_stemmable(row.record.text[piece.start : piece.stop]) for _, piece in row.pieces] for row in rows]
        every = {word for head in heads for word in head.title + head.rest} | {
            word for some in bodies for body in some for word in body
        }
        stems = self._stems.of(self._db, every)
        columns = "scope, words, often, length) VALUES (?, ?, array_to_tsvector(?::text[]), ?::jsonb, ?)"
        self._db.executemany(
            f"INSERT INTO head_words (record, {columns}",
            [(row.key, *_row(row.scope, *head.counted(stems))) for row, head in zip(rows, heads, strict=True)],
        )
        self._db.executemany(
            f"INSERT INTO piece_words (piece, record, {columns.replace('(?, ?', '(?, ?, ?')}",
            [
                (number, row.key, *_row(row.scope, Counter(stems[word] for word in body), (), len(body)))
                for row, some in zip(rows, bodies, strict=True)
                for (number, _), body in zip(row.pieces, some, strict=True)
            ],
        )
        totals: dict[int, Counter[str]] = {}
        for row, head, some in zip(rows, heads, bodies, strict=True):
            sizes = {"heads": 1, "words_in_heads": head.length + 1, "pieces": len(some)}
            totals.setdefault(row.scope, Counter()).update(
                {**sizes, "words_in_pieces": sum(len(body) + 1 for body in some)}
            )
        for scope, total in totals.items():
            self._count(scope, total["heads"], total["words_in_heads"], total["pieces"], total["words_in_pieces"])

    def remove(self, rows: Sequence[Indexed]) -> None:
        keys = [row.key for row in rows]
        gone = {
            part: self._db.execute(
                f"""WITH gone AS (DELETE FROM {part.value} WHERE record = ANY(?) RETURNING scope, length)
                    SELECT scope, count(*), sum(length)::bigint FROM gone GROUP BY scope""",
                (keys,),
            ).fetchall()
            for part in TextPart
        }
        for scope, heads, words in gone[TextPart.HEADS]:
            self._count(scope, -heads, -words, 0, 0)
        for scope, pieces, words in gone[TextPart.PIECES]:
            self._count(scope, 0, 0, -pieces, -words)

    def clear(self) -> None:
        for part in TextPart:
            self._db.execute(f"DELETE FROM {part.value}")
        self._db.execute("UPDATE scope SET heads = 0, words_in_heads = 0, pieces = 0, words_in_pieces = 0")

    def optimize(self) -> None:
        """Let the server know how large the tables have become."""
        for table in ("record", "tag", "piece", "head_words", "piece_words", "vector"):
            self._db.execute(f"ANALYZE {table}")

    def _count(self, scope: int, *more: int) -> None:
        self._db.execute(
            """UPDATE scope SET heads = heads + ?, words_in_heads = words_in_heads + ?, pieces = pieces + ?,
               words_in_pieces = words_in_pieces + ? WHERE id = ?""",
            (*more, scope),
        )

    def _scale(self, part: TextPart, scopes: Sequence[int]) -> _Scale:
        name = "pieces" if part is TextPart.PIECES else "heads"

        def find() -> _Scale:
            sql = f"SELECT coalesce(sum({name}), 0), coalesce(sum(words_in_{name}), 0) FROM scope WHERE id = ANY(?)"
            rows, words = self._db.execute(sql, (list(scopes),)).fetchone()
            return _Scale(int(rows), max(1.0, float(words) / max(1, int(rows))))

        return self._db.remembered(("scale", name, tuple(scopes)), find)

    def _search(
        self, part: TextPart, groups: Groups, reach: Reach, counts: Mapping[str, int]
    ) -> tuple[str, tuple[object, ...]]:
        stems, scale = self._stems_of(list(counts)), self._scale(part, reach.scopes)
        frequency = _FREQUENCY.format(length=scale.length)
        scores, values = list[str](), list[object]()
        for term, count in counts.items():
            if count:
                rarity = max(1e-6, math.log((scale.rows - count + 0.5) / (count + 0.5))) if count < scale.rows else 1e-6
                scores.append(f"CASE WHEN w.words @@ ?::tsquery THEN {rarity!r} * {frequency} ELSE 0 END")
                values += [_query([[term]], stems), stems[term][0], stems[term][0]]
        condition, more = reach.wanted.as_sql()
        if reach.keys is not None:
            condition, more = " AND r.key = ANY(?)", [reach.keys]
        query = _query(groups, stems)
        if reach.is_little:
            query = f"({' | '.join(_quoted(_scope_mark(scope)) for scope in reach.scopes)}) & {query}"
        sql = f"""SELECT w.{_ROWS[part]}, w.record, {" + ".join(scores) or "0.0"} FROM {part.value} w
            JOIN record r ON r.key = w.record{condition} WHERE w.words @@ ?::tsquery AND w.scope = ANY(?)"""
        return sql, (*values, *more, query, list(reach.scopes))

    def _stems_of(self, terms: Sequence[str]) -> dict[str, list[str]]:
        """The stems that a row must have for each term; none for a term without letters."""
        words = {term: _words(term) for term in terms}
        stems = self._stems.of(self._db, {word for some in words.values() for word in some})
        return {
            term: _pairs(some) or [stems[word] for word in some] if len(some) > 1 else [stems[word] for word in some]
            for term, some in words.items()
        }


_FREQUENCY = (
    "coalesce((w.often ->> ?)::float8, 1.0) / (coalesce((w.often ->> ?)::float8, 1.0) + "
    + f"{_K1} * ({1 - _B} + {_B} * w.length / "
    + "{length!r}))"
)
"""How much the frequency of a word counts: less with each time, and less in a long text."""


def _query(groups: Groups, stems: Mapping[str, Sequence[str]], mark: str = "") -> str:
    def one(term: str) -> str:
        return "(" + " & ".join(_quoted(mark + stem) for stem in stems[term]) + ")"

    return " & ".join("(" + " | ".join(one(term) for term in group if stems[term]) + ")" for group in groups)


def _quoted(stem: str) -> str:
    return f"'{stem}'"  # letters and digits, and our own marks


def _scope_mark(scope: int) -> str:
    return f"#{scope:d}"


def _row(scope: int, stems: Counter[str], marks: Sequence[str], length: int) -> tuple[int, list[str], str, int]:
    often = {stem: count for stem, count in stems.items() if count > 1}
    return scope, sorted({*stems, *marks, _scope_mark(scope)}), json.dumps(often), length + 1


def _words(text: str) -> list[str]:
    """The words of a text, without case and accents; what is neither letter nor digit separates them."""
    plain = prepared(text).lower()
    if plain.isascii():
        return [word[:_MAX_WORD] for word in _PLAIN_WORD.findall(plain)]
    bare = (char for char in unicodedata.normalize("NFD", plain) if unicodedata.category(char)[0] != "M")
    kept = "".join(char if unicodedata.category(char)[0] in "LN" else " " for char in bare)
    return [word[:_MAX_WORD] for word in kept.split()]


def _stemmable(text: str) -> list[str]:
    """The words of a text as they are kept; in scripts without spaces its characters, and their pairs."""
    words = _words(text)
    return words if text.isascii() else [*words, *_pairs(words)]


def _pairs(words: Sequence[str]) -> list[str]:
    return [one + other for one, other in pairwise(words) if is_unspaced(one) and is_unspaced(other)]
