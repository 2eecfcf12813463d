"""A catalogue made ready for picking: the index of its words and, with an embedder, of its meanings.

Made once per catalogue. Every pick then scores all tools, drops those of another mode or below the least score, puts those
that are always wanted first, and takes the best as long as there is room.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from heapq import nlargest
from threading import Lock
from typing import Literal, NamedTuple, get_args

from handrail.contract.definition import Mode
from handrail.contract.errors import UsageError
from handrail.picking.embedding_index import EmbedsTexts, MeaningIndex
from handrail.picking.entry import CatalogueEntry, Tool, entry_of
from handrail.picking.keyword_index import KeywordIndex, query_terms

Scorer = Literal["keywords", "embeddings", "hybrid"]

_LOG = logging.getLogger("handrail.picking")
_WORDS_SHARE = 0.075
"""What one rare word that both have adds to the closeness of meanings."""
_LEAST: dict[Scorer, float] = {"keywords": 0.01, "embeddings": 0.18, "hybrid": 0.18}
"""Below it a tool has nothing to do with the request. Low on purpose: a tool too many costs less than the right one missing."""


class RankedTool(NamedTuple):
    """A tool's place in an answer. Scores compare within one scorer: from 0, nothing in common, to 1."""

    tool_id: str
    score: float


@dataclass(frozen=True, slots=True)
class _Scores:
    values: Sequence[float]
    full: float
    """The value that is a score of 1."""
    least: float

    def score(self, position: int) -> float:
        return round(max(0.0, min(1.0, self.values[position] / self.full)), 4)


class ToolIndex:
    """A catalogue that requests are matched with. Safe to use from several threads."""

    def __init__(self, definitions: Iterable[Tool], *, embedder: EmbedsTexts | None = None) -> None:
        entries = _distinct(entry_of(tool) for tool in definitions)
        # In the order of ids, so that equals come out by id, whatever order they came in.
        self._entries = sorted(entries, key=lambda entry: entry.tool_id)
        self._places = {entry.tool_id: place for place, entry in enumerate(self._entries)}
        self._words = KeywordIndex(self._entries)
        self._embedder = embedder
        self._meanings: MeaningIndex | None = None
        self._making = Lock()
        self._tokens: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tool_ids(self) -> tuple[str, ...]:
        """Every tool, by name."""
        return tuple(self._places)

    def prepare(self) -> None:
        """Make the tools' vectors now rather than at the first pick. Blocks; do it in a thread, before a session connects."""
        if self._embedder is not None and self._entries:
            self._of_meanings(self._embedder)

    def pick(
        self,
        query: str,
        k: int = 8,
        *,
        scorer: Scorer | None = None,
        mode: Mode | None = None,
        always: Sequence[str] = (),
        token_budget: int | None = None,
        min_score: float | None = None,
    ) -> list[RankedTool]:
        """At most `k` tools: those of `always` first, then the best for the query, best first; equals by id.

        Empty where none fits. `always` is kept whole, even beyond `k` and the budget, but for tools of another mode.
        """
        _check(query, k, mode, token_budget, min_score)
        kept = self._always(always, mode)
        room = None if token_budget is None else token_budget - sum(map(self._cost, kept))
        scores = self._scores(query, self._chosen(scorer), min_score, insisted=scorer is not None)
        best = self._best(scores, mode, k if room is None else len(self), set(kept)) if scores is not None else iter(())
        found = list(kept)
        for place in best:
            if len(found) >= k:
                break
            if room is not None:
                if self._cost(place) > room:
                    continue
                room -= self._cost(place)
            found.append(place)
        return [
            RankedTool(self._entries[place].tool_id, scores.score(place) if scores is not None else 0.0)
            for place in found
        ]

    def tokens(self, tool_ids: Iterable[str]) -> int:
        """About how many tokens the declarations of these tools cost."""
        return sum(self._cost(self._place(tool_id)) for tool_id in tool_ids)

    def _chosen(self, scorer: Scorer | None) -> Scorer:
        if scorer is None:
            return "keywords" if self._embedder is None else "hybrid"
        if scorer not in get_args(Scorer):
            raise UsageError(f'There is no scorer "{scorer}"; choose {", ".join(get_args(Scorer))}.')
        if scorer != "keywords" and self._embedder is None:
            raise UsageError(f'The scorer "{scorer}" needs an embedder; pass `embedder=`, or use "keywords".')
        return scorer

    def _scores(self, query: str, scorer: Scorer, least: float | None, *, insisted: bool) -> _Scores | None:
        """What each tool gets; None where nothing can fit."""
        terms = query_terms(query)
        if not self._entries or not terms:
            return None
        if scorer != "keywords" and self._embedder is not None:
            try:
                close = self._of_meanings(self._embedder).closeness(query)
            except Exception as error:  # an embedder may be anybody's, and words still work without it
                if insisted:
                    raise
                _LOG.warning("Tools are picked by keywords only: %s", error)
            else:
                return self._by_meaning(terms, close, scorer, _LEAST[scorer] if least is None else least)
        found = self._words.scores(terms)
        if found is None:
            return None
        return _Scores(found.sums, found.possible, _LEAST["keywords"] if least is None else least)

    def _by_meaning(self, terms: Mapping[str, float], close: list[float], scorer: Scorer, least: float) -> _Scores:
        found = self._words.scores(terms) if scorer == "hybrid" else None
        if found is not None:
            share = _WORDS_SHARE / self._words.scale
            close = [value + share * words for value, words in zip(close, found.sums, strict=True)]
        return _Scores(close, 1.0, least)

    def _of_meanings(self, embedder: EmbedsTexts) -> MeaningIndex:
        if self._meanings is None:
            with self._making:
                if self._meanings is None:
                    self._meanings = MeaningIndex(self._entries, embedder)
        return self._meanings

    def _best(self, scores: _Scores, mode: Mode | None, count: int, taken: set[int]) -> Iterator[int]:
        """The places of the tools that fit, best first. `nlargest` keeps equals in their order, which is that of ids."""
        least = scores.least * scores.full
        values = scores.values
        fitting = [
            place for place, value in enumerate(values) if value > 0.0 and value >= least and self._allowed(place, mode)
        ]
        return (place for place in nlargest(count, fitting, key=values.__getitem__) if place not in taken)

    def _allowed(self, place: int, mode: Mode | None) -> bool:
        modes = self._entries[place].modes
        return mode is None or modes is None or mode in modes

    def _always(self, always: Sequence[str], mode: Mode | None) -> list[int]:
        if isinstance(always, str):
            raise UsageError(f'`always` is a list of tool ids; write ["{always}"].')
        places = dict.fromkeys(self._place(tool_id) for tool_id in always)
        return [place for place in places if self._allowed(place, mode)]

    def _place(self, tool_id: str) -> int:
        place = self._places.get(tool_id)
        if place is None:
            near = get_close_matches(str(tool_id), self._places, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else "."
            raise UsageError(f'There is no tool "{tool_id}" to pick from{hint}')
        return place

    def _cost(self, place: int) -> int:
        cost = self._tokens.get(place)
        if cost is None:
            cost = self._tokens[place] = self._entries[place].tokens()
        return cost


def _distinct(entries: Iterable[CatalogueEntry]) -> list[CatalogueEntry]:
    """Each tool once; two that share a name and differ are an error, because a model could not tell them apart."""
    found: dict[str, CatalogueEntry] = {}
    for entry in entries:
        known = found.setdefault(entry.tool_id, entry)
        if known is not entry and known != entry:
            raise UsageError(f'Two different tools are called "{entry.tool_id}"; rename one or leave one out.')
    return list(found.values())


def _check(query: object, k: object, mode: object, token_budget: object, min_score: object) -> None:
    if not isinstance(query, str):
        raise UsageError(f"The query is a text, not {type(query).__name__}.")
    if not _is_count(k):
        raise UsageError(f"`k` is how many tools to pick, 0 or more, not {k!r}.")
    if mode is not None and mode not in get_args(Mode):
        raise UsageError(f'There is no mode "{mode}"; it is {" or ".join(get_args(Mode))}.')
    if token_budget is not None and not _is_count(token_budget):
        raise UsageError(f"`token_budget` is a number of tokens, 0 or more, not {token_budget!r}.")
    if min_score is not None and not (isinstance(min_score, (int, float)) and 0 <= min_score <= 1):
        raise UsageError(f"`min_score` is a number from 0 to 1, not {min_score!r}.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
