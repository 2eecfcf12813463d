"""One order out of two: words and meaning are brought to the same scale and added, each with half of the say.

Chosen by measuring on half of the queries of a public set and looking at the other half; the table is made by
`python -m benchmarks knowledge`. See docs/decisions for what else was tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from handrail_reference.services.kb.keywords import WordHits
from handrail_reference.services.kb.query_words import plain_words, query_terms

CANDIDATES = 100
MEANING_SHARE = 0.55
LEAST_COSINE = 0.25
"""A record that has none of the words must at least be this close; what is further is about something else."""
TITLES_LOOKED_AT = 200
"""A word that is in nearly every record ranks them hardly at all; the one that is called so must still be among these."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A record's place in the answer: its key, its score from 0 to 1, and the piece to show."""

    key: int
    score: float
    piece: int | None


def ranked(
    words: WordHits,
    closeness: Mapping[int, float],
    cosines: Mapping[int, float],
    pieces: Mapping[int, int],
    limit: int,
) -> list[Ranked]:
    """The best records, best first; equals in the order of their keys, so that the same base gives the same answer."""
    by_words = _scaled(words.scores, floor=bool(closeness))
    by_meaning = _scaled(closeness, floor=True)
    share = MEANING_SHARE if closeness else 0.0
    candidates = set(by_words) | {key for key in by_meaning if cosines.get(key, 0.0) >= LEAST_COSINE}
    sums = {key: (1 - share) * by_words.get(key, 0.0) + share * by_meaning.get(key, 0.0) for key in candidates}
    best = sorted(sums, key=lambda key: (-sums[key], key))[:limit]
    strength = _strength(words, cosines)
    return [
        Ranked(key, round(min(1.0, strength * sums[key]), 4), words.pieces.get(key, pieces.get(key))) for key in best
    ]


def with_titles(best: Sequence[Ranked], titles: Mapping[int, str], query: str, limit: int) -> list[Ranked]:
    """The same records once more: who is called exactly what was asked for comes first, and a like name helps a little."""
    asked = _stems(query)
    sums = {one.key: one.score + _likeness(asked, titles.get(one.key, "")) ** 2 for one in best}
    again = sorted(best, key=lambda one: (-sums[one.key], one.key))[:limit]
    return [Ranked(one.key, round(min(1.0, sums[one.key]), 4), one.piece) for one in again]


def _stems(text: str) -> set[str]:
    words = plain_words(" ".join(query_terms(text)))
    return {word.rstrip("s") if len(word) > 3 else word for word in words}


def _likeness(asked: set[str], title: str) -> float:
    if title.isascii() and not any(word in title.lower() for word in asked):
        return 0.0  # most titles: not worth taking apart
    words = _stems(title)
    return len(asked & words) / len(asked | words) if asked and words else 0.0


def _scaled(scores: Mapping[int, float], *, floor: bool) -> dict[int, float]:
    """From 1 for the best down to 0 for the last of the best hundred; without `floor`, for no score at all."""
    order = sorted(scores.values(), reverse=True)
    if not order or order[0] <= 0:
        return dict.fromkeys(scores, 1.0) if order else {}
    low = order[CANDIDATES - 1] if floor and len(order) >= CANDIDATES else 0.0
    span = order[0] - low
    return {key: max(0.0, (score - low) / span) if span > 0 else 1.0 for key, score in scores.items()}


def _strength(words: WordHits, cosines: Mapping[int, float]) -> float:
    """How good the best is by itself: it has the words of the query, or it is close in meaning."""
    return max(words.coverage, *cosines.values()) if cosines else words.coverage
