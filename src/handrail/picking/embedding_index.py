"""The embedding scorer: how close a request's meaning lies to what a tool says of itself.

A tool has one vector for all that it says and one for each clause. A description that lists many things ("shows, movies,
books") is close to a request for one of them only in a clause. The vectors are made once; a request costs one call of the
embedder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from handrail.contract.errors import HandrailError
from handrail.picking.entry import CatalogueEntry
from handrail.picking.keyword_index import shortened
from handrail.picking.word_splitting import name_as_words, telling_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

_CLAUSE_SHARE = 0.5
_CLAUSE = re.compile(r"(?<=[.!?;:])\s+|,\s+|\s+(?:and|or|&|-|–|—)\s+|\n")
_MAX_CLAUSES = 16
_SHORTEST_CLAUSE = 4
_LONGEST_PAIR = 100
"""A short request is embedded as it was said and by its telling words, and the two are added: alone, few words mislead. A
longer one is embedded by its telling words alone, because the time grows with the length."""


class EmbedsTexts(Protocol):
    """All that picking needs of an embedder: texts in, one row of numbers a text."""

    def embed(self, texts: Sequence[str], /) -> Vectors: ...


class MeaningIndex:
    """The vectors of a catalogue. Making it blocks while every tool is embedded: do that in a thread."""

    def __init__(self, entries: Sequence[CatalogueEntry], embedder: EmbedsTexts) -> None:
        self._embedder = embedder
        self._size = len(entries)
        clauses = [_clauses(entry) for entry in entries]
        texts = [_whole(entry) for entry in entries] + [clause for of_one in clauses for clause in of_one]
        vectors = _embedded(embedder, texts)
        self._whole, self._parts = vectors[: self._size], vectors[self._size :]
        self._starts = [0]
        for of_one in clauses[:-1]:
            self._starts.append(self._starts[-1] + len(of_one))

    def closeness(self, query: str) -> list[float]:
        """For each tool from about 0 (about something else) to 1 (says just that)."""
        import numpy as np  # noqa: PLC0415  # only where there is an embedder

        text = shortened(query).encode("utf-8", "replace").decode()
        telling = telling_words(text)
        asked = [telling] if len(text) > _LONGEST_PAIR or telling == text else [text, telling]
        meaning = _embedded(self._embedder, asked).sum(axis=0)
        meaning /= max(float(np.linalg.norm(meaning)), 1e-9)
        nearest = np.maximum.reduceat(self._parts @ meaning, self._starts)
        close: list[float] = ((1 - _CLAUSE_SHARE) * (self._whole @ meaning) + _CLAUSE_SHARE * nearest).tolist()
        return close


def _whole(entry: CatalogueEntry) -> str:
    said = " ".join(part for part in (entry.said, entry.summary, entry.tags) if part)
    return f"{name_as_words(entry.tool_id)}: {said}".encode("utf-8", "replace").decode()


def _clauses(entry: CatalogueEntry) -> list[str]:
    """What a tool says, in pieces; at least one, its name if it says nothing."""
    text = f"{entry.said}\n{entry.summary}".encode("utf-8", "replace").decode()
    pieces = [piece.strip() for piece in _CLAUSE.split(text)]
    kept = list(dict.fromkeys(piece for piece in pieces if len(piece) >= _SHORTEST_CLAUSE))[:_MAX_CLAUSES]
    return kept or [name_as_words(entry.tool_id) or entry.tool_id]


def _embedded(embedder: EmbedsTexts, texts: Sequence[str]) -> Vectors:
    """The texts' vectors, brought to length 1."""
    import numpy as np  # noqa: PLC0415  # only where there is an embedder

    vectors = np.asarray(embedder.embed(texts), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise HandrailError(
            f"The embedder gave vectors of the shape {vectors.shape} for {len(texts)} texts; it must give one row of "
            "finite numbers for each."
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = vectors / np.maximum(lengths, 1e-9)
    return unit
