"""Meaning: the vectors of all pieces in one matrix in memory, compared with the query's at once. numpy is imported here only.

The matrix follows the file: before each search, vectors that are new since are added, and those of removed pieces dropped.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from handrail_reference.services.kb.connection import KnowledgeConnection
from handrail_reference.services.kb.filtered import keys_of
from handrail_reference.services.kb.port import Filter

CANDIDATES = 100
_LOAD_ROWS = 2_000
_LEAST_CAPACITY = 1_024
Floats = NDArray[np.float32]


@dataclass(slots=True)
class VectorHits:
    """Records by closeness, the cosine of their best piece, and that piece."""

    scores: dict[int, float]
    cosines: dict[int, float]
    pieces: dict[int, int]


def packed(vector: Floats) -> bytes:
    """A vector as it is stored: half precision, which changes a cosine by less than a thousandth."""
    return bytes(np.asarray(vector, dtype="<f2").tobytes())


class VectorSearch(Protocol):
    """Finds the records whose vectors are close to a query's."""

    @property
    def dimensions(self) -> int: ...

    def __len__(self) -> int:
        """How many vectors there are to compare with."""
        ...

    def catch_up(self, db: KnowledgeConnection) -> None:
        """Take in what was written since the last time."""
        ...

    def search(self, db: KnowledgeConnection, query: Floats, scopes: Sequence[int], wanted: Filter) -> VectorHits:
        """The closest readable records. Half of a record's closeness is its best piece's, half the mean of all its pieces'."""
        ...


class VectorIndex:
    """The vectors of one space. Safe to use from several threads; following the file is done by one at a time."""

    def __init__(self, space: str, dimensions: int) -> None:
        self.space = space
        self.dimensions = dimensions
        self._lock = threading.Lock()
        self._rows = _VectorRows(dimensions)
        self._vector = 0
        self._dropped = 0

    @property
    def memory_bytes(self) -> int:
        return int(self._rows.matrix.nbytes)

    def __len__(self) -> int:
        return self._rows.count

    def catch_up(self, db: KnowledgeConnection) -> None:
        """Take in what was written since the last time."""
        newest = "(SELECT coalesce(max(id), 0) FROM vector), (SELECT coalesce(max(seq), 0) FROM dropped)"
        if db.execute(f"SELECT {newest}").fetchone() == (self._vector, self._dropped):
            return
        with self._lock:
            known = self._dropped == 0 or self._is_still_listed(db)
            if not known or self._rows.dead > len(self) // 3 + _LEAST_CAPACITY:
                self._rows, self._vector, self._dropped = _VectorRows(self.dimensions), 0, 0
            self._drop(db)
            self._add(db)

    def search(self, db: KnowledgeConnection, query: Floats, scopes: Sequence[int], wanted: Filter) -> VectorHits:
        """The closest readable records. Half of a record's closeness is its best piece's, half the mean of all its pieces'."""
        rows = self._rows
        count, records = rows.count, rows.records
        if not count or not scopes:
            return VectorHits({}, {}, {})
        cosines = rows.matrix[:count] @ np.asarray(query, dtype=np.float32)
        owner = rows.owner[:count]
        best = np.full(records, -1.0, dtype=np.float32)
        np.maximum.at(best, owner, cosines)
        pieces = np.bincount(owner, minlength=records)
        mean = np.bincount(owner, weights=cosines, minlength=records) / np.maximum(pieces, 1)
        close = (best + mean) / 2
        allowed = self._allowed(db, rows, records, scopes, wanted)
        close[~allowed] = -2.0
        top = (
            np.flatnonzero(allowed) if allowed.sum() <= CANDIDATES else np.argpartition(-close, CANDIDATES)[:CANDIDATES]
        )
        top = top[np.lexsort((rows.key[top], -close[top]))]
        keys = rows.key[top].tolist()
        return VectorHits(
            dict(zip(keys, close[top].tolist(), strict=True)),
            dict(zip(keys, best[top].tolist(), strict=True)),
            dict(zip(keys, self._best_pieces(rows, owner, cosines, top), strict=True)),
        )

    @staticmethod
    def _best_pieces(
        rows: _VectorRows, owner: NDArray[np.int32], cosines: Floats, slots: NDArray[np.intp]
    ) -> list[int]:
        """Of each of these records the closest piece; the first of equals."""
        wanted = np.zeros(rows.records, dtype=np.bool_)
        wanted[slots] = True
        theirs = np.flatnonzero(wanted[owner])
        theirs = theirs[np.argsort(-cosines[theirs], kind="stable")]
        known, first = np.unique(owner[theirs], return_index=True)
        pieces: list[int] = rows.piece[theirs[first[np.searchsorted(known, slots)]]].tolist()
        return pieces

    @staticmethod
    def _allowed(
        db: KnowledgeConnection, rows: _VectorRows, records: int, scopes: Sequence[int], wanted: Filter
    ) -> NDArray[np.bool_]:
        allowed: NDArray[np.bool_] = rows.alive[:records] & np.isin(rows.scope[:records], list(scopes))
        if wanted:
            keys = np.frombuffer(keys_of(db, scopes, wanted), dtype=np.int64)
            allowed &= np.isin(rows.key[:records], keys)
        return allowed

    def _is_still_listed(self, db: KnowledgeConnection) -> bool:
        """Whether the list of removed pieces still reaches back to where we stand; it is cut from time to time."""
        first = db.execute("SELECT min(seq) FROM dropped").fetchone()[0]
        return first is not None and first <= self._dropped + 1

    def _drop(self, db: KnowledgeConnection) -> None:
        for seq, piece in db.execute("SELECT seq, piece FROM dropped WHERE seq > ? ORDER BY seq", (self._dropped,)):
            self._rows.drop(piece)
            self._dropped = seq

    def _add(self, db: KnowledgeConnection) -> None:
        newest, count = db.execute("SELECT coalesce(max(id), 0), count(*) FROM vector").fetchone()
        if not len(self):
            self._rows.make_room(count)
        while True:
            found = db.execute(
                """SELECT v.id, v.piece, v.data, p.record, r.scope FROM vector v JOIN space s ON s.id = v.space
                   JOIN piece p ON p.id = v.piece JOIN record r ON r.key = p.record
                   WHERE v.id > ? AND s.name = ? ORDER BY v.id LIMIT ?""",
                (self._vector, self.space, _LOAD_ROWS),
            ).fetchall()
            if not found:
                self._vector = max(self._vector, newest)
                return
            self._rows.add(found)
            self._vector = found[-1][0]


class _VectorRows:
    """Vectors by row, records by slot. It only grows; what is gone is marked dead and forgotten when it is made anew.

    All of it is arrays, and dicts of plain numbers: a list for each record would be walked by every full garbage collection,
    which holds up the whole process. So does a large dict when it grows, therefore there are many.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self.matrix: Floats = np.zeros((0, dimensions), dtype=np.float32)
        self.owner: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.piece: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.key: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.scope: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.count = 0
        self.records = 0
        self.dead = 0
        self._slot = _Numbers()
        self._row = _Numbers()

    def add(self, found: Sequence[Sequence[Any]]) -> None:
        good = [row for row in found if len(row[2]) == 2 * self._dimensions]
        self.make_room(len(good))
        first, slots = self.records, []
        new: list[tuple[int, int]] = []
        for row, (_, piece, _, record, scope) in enumerate(good, self.count):
            slot = self._slot.part_of(record).setdefault(record, first + len(new))
            if slot == first + len(new):
                new.append((record, scope))
            slots.append(slot)
            self._row.part_of(piece)[piece] = row
        mine, theirs = slice(first, first + len(new)), slice(self.count, self.count + len(good))
        self.key[mine], self.scope[mine], self.alive[mine] = [one[0] for one in new], [one[1] for one in new], True
        self.owner[theirs], self.piece[theirs] = slots, [row[1] for row in good]
        raw = np.frombuffer(b"".join(row[2] for row in good), dtype="<f2")
        vectors = raw.reshape(len(good), self._dimensions).astype(np.float32)
        vectors[~np.isfinite(vectors).all(axis=1)] = 0  # a damaged one is close to nothing, and spoils no other
        self.matrix[theirs] = vectors
        self.records += len(new)
        self.count += len(good)  # last: a search in another thread sees only rows that are whole

    def drop(self, piece: int) -> None:
        row = self._row.part_of(piece).pop(piece, None)
        if row is not None:
            self.alive[self.owner[row]] = False
            self.dead += 1

    def make_room(self, more: int) -> None:
        """So that nothing needs to move while this many rows are added."""
        needed = self.count + more
        if needed > len(self.matrix):
            capacity = max(_LEAST_CAPACITY, needed, len(self.matrix) + len(self.matrix) // 2)
            for name in ("matrix", "owner", "piece", "key", "scope", "alive"):
                old = getattr(self, name)
                new = np.zeros((capacity, *old.shape[1:]), dtype=old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)


class _Numbers:
    """Numbers by number, in dicts of a few thousand that follow each other: one for all would move its 100,000 entries at once to
    grow, some ten milliseconds in which no other thread runs."""

    def __init__(self) -> None:
        self._parts: defaultdict[int, dict[int, int]] = defaultdict(dict)

    def part_of(self, number: int) -> dict[int, int]:
        return self._parts[number >> 12]
