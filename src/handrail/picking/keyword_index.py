"""The keyword scorer: BM25 over a tool's id, description, summary, tags and parameters, each with its own weight.

Everything that does not depend on the query is worked out once: each term keeps the tools it is in, with what it adds to
their score. A query then only adds numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from operator import add

from handrail.picking.entry import CatalogueEntry
from handrail.picking.word_splitting import ASKING, COMMON, joined_words, split_words, stem

# Compared on halves of the queries of two public sets (docs/picking-tools.md); values near these do as well.
_SATURATION = 1.2
_LENGTH = 0.5
_IN_ID = 2.0
_IN_DESCRIPTION = 1.0
_IN_SUMMARY = 0.5
_IN_TAGS = 1.0
_IN_PARAMETER_NAME = 0.5
_IN_PARAMETER_TEXT = 0.3
_ASKED = 0.3
_MAX_CHARACTERS = 4_000
_MAX_TERMS = 64
_SHORTEST_JOINED = 6


@dataclass(frozen=True, slots=True)
class _Term:
    """One term of the index: how much it tells, and what it adds to which tools."""

    weight: float
    tools: list[int]
    adds: list[float]
    everywhere: list[float] | None
    """For a term of most tools, what it adds to each of all tools: adding two lists is faster than picking places."""


@dataclass(frozen=True, slots=True)
class WordScores:
    """What the words of one query say of each tool, in the order of the index."""

    sums: list[float]
    possible: float
    """What a tool would get that had every word of the query, and nothing else."""


def query_terms(query: str) -> dict[str, float]:
    """The terms of a request, each with its weight: asking words count little beside others. None: nothing is asked for."""
    words = [word for word in split_words(shortened(query)) if word not in COMMON]
    terms: dict[str, float] = {}
    for word in words:
        weight = _ASKED if word in ASKING else 1.0
        term = stem(word)
        terms[term] = max(weight, terms.get(term, 0.0))
        if len(terms) >= _MAX_TERMS:
            break
    return terms


def shortened(query: str) -> str:
    """A query's beginning and end: what is asked for stands before or after what was pasted in."""
    if len(query) <= _MAX_CHARACTERS:
        return query
    half = _MAX_CHARACTERS // 2
    return f"{query[:half]} {query[-half:]}"


class KeywordIndex:
    """The words of a catalogue. Made once, never changed."""

    def __init__(self, entries: Sequence[CatalogueEntry]) -> None:
        self._size = len(entries)
        counts = _counted(entries)
        self._unknown = log(1 + (self._size + 0.5) / 0.5)
        """How much a word tells that no tool has: as if it stood in none."""
        self._terms = self._weighted(counts)

    @property
    def scale(self) -> float:
        """What one rare word adds to a score, about; so that scores of small and large catalogues compare."""
        return self._unknown

    def scores(self, terms: Mapping[str, float]) -> WordScores | None:
        """What each tool gets for the terms of a query; None where no tool has any of them."""
        sums: list[float] | None = None
        possible = 0.0
        for name, weight in terms.items():
            term = self._terms.get(name)
            possible += weight * (_SATURATION + 1) * (term.weight if term else self._unknown)
            if term is None:
                continue
            if sums is None:
                sums = [0.0] * self._size
            if term.everywhere is not None and weight == 1.0:
                sums = list(map(add, sums, term.everywhere))
            else:
                for tool, value in zip(term.tools, term.adds, strict=True):
                    sums[tool] += weight * value
        return WordScores(sums, possible) if sums is not None else None

    def _weighted(self, counts: Sequence[Mapping[str, float]]) -> dict[str, _Term]:
        lengths = [sum(count.values()) for count in counts]
        average = sum(lengths) / len(lengths) if any(lengths) else 1.0
        tools: dict[str, list[int]] = {}
        for tool, count in enumerate(counts):
            for name in count:
                tools.setdefault(name, []).append(tool)
        penalties = [_SATURATION * (1 - _LENGTH + _LENGTH * length / average) for length in lengths]
        return {name: self._term(name, having, counts, penalties) for name, having in tools.items()}

    def _term(
        self, name: str, having: list[int], counts: Sequence[Mapping[str, float]], penalties: Sequence[float]
    ) -> _Term:
        weight = log(1 + (self._size - len(having) + 0.5) / (len(having) + 0.5))
        adds = []
        for tool in having:
            often = counts[tool][name]
            adds.append(weight * often * (_SATURATION + 1) / (often + penalties[tool]))
        everywhere = None
        if len(having) * 2 > self._size:
            everywhere = [0.0] * self._size
            for tool, value in zip(having, adds, strict=True):
                everywhere[tool] = value
        return _Term(weight, having, adds, everywhere)


def _counted(entries: Sequence[CatalogueEntry]) -> list[dict[str, float]]:
    """How often each tool has each term, the places where it has it weighted."""
    known = {word for entry in entries for word in split_words(f"{entry.said} {entry.summary}") if len(word) > 2}
    counts = []
    for entry in entries:
        count: dict[str, float] = {}
        _add(count, _words_of_id(entry.tool_id, known), _IN_ID)
        _add(count, split_words(entry.said), _IN_DESCRIPTION)
        _add(count, split_words(entry.summary), _IN_SUMMARY)
        _add(count, split_words(entry.tags), _IN_TAGS)
        _add(count, split_words(entry.parameter_names), _IN_PARAMETER_NAME)
        _add(count, split_words(entry.parameter_texts), _IN_PARAMETER_TEXT)
        counts.append(count)
    return counts


def _words_of_id(tool_id: str, known: set[str]) -> list[str]:
    """The words of a name. One that was written together ("carpark") is cut where the catalogue's own words say so."""
    words = split_words(tool_id)
    for word in list(words):
        if len(word) >= _SHORTEST_JOINED:
            words += [part for part in joined_words(word, known) if part not in words]
    return words


def _add(count: dict[str, float], words: Iterable[str], weight: float) -> None:
    for word in words:
        if word not in COMMON:
            term = stem(word)
            count[term] = count.get(term, 0.0) + weight
