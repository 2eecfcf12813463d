"""Picking tools: how often the right one is found, how fast, and how many tokens it saves.

The quality is that of the 199 tools and 401 queries of MetaTool, where the data lies beside the project; the embedding rows
need the model of `make models`. The times at 1,000 tools are of made-up ones.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from benchmarks.catalogue import parameters
from benchmarks.report import Result
from handrail.picking import EmbedsTexts, Scorer, ToolIndex, pick_tools
from handrail_reference.services.embeddings import open_embedder

_DATA = Path(__file__).parents[1] / "tests" / "data" / "metatool_dev.json"
_MODELS = Path(__file__).parents[1] / "build" / "models"
_FIRST = 5
_LARGE = 1_000
_MISSED: dict[Scorer, float | None] = {"keywords": 33.0, "embeddings": None, "hybrid": 16.0}
_SLOWEST: dict[Scorer, float] = {"keywords": 1.0, "embeddings": 15.0, "hybrid": 15.0}


@dataclass
class _Row:
    """One scorer at the data set."""

    scorer: Scorer
    first: float
    first_five: float
    milliseconds: float
    saved: float


class _KnownTools:
    """The real model for requests, made-up vectors for a catalogue: the time of a pick does not depend on their values."""

    def __init__(self, embedder: EmbedsTexts) -> None:
        self._embedder = embedder

    def embed(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        if len(texts) <= 2:
            return self._embedder.embed(texts)
        return np.random.default_rng(7).standard_normal((len(texts), 384), dtype=np.float32)


def _measured(index: ToolIndex, queries: Sequence[dict[str, str]], scorer: Scorer) -> _Row:
    everything = index.tokens(index.tool_ids)
    first = found = 0
    saved, times = 0.0, []
    index.pick("warm up", 1, scorer=scorer)
    for item in queries:
        started = time.perf_counter()
        picked = index.pick(item["query"], _FIRST, scorer=scorer)
        times.append(time.perf_counter() - started)
        names = [one.tool_id for one in picked]
        first += names[:1] == [item["tool"]]
        found += item["tool"] in names
        saved += 1 - index.tokens(names) / everything
    count = len(queries)
    return _Row(scorer, 100 * first / count, 100 * found / count, 1_000 * median(times), 100 * saved / count)


def _words() -> list[str]:
    """Running English: the words of this project's pages, in their order."""
    pages = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    return re.findall(r"\b[a-z]{1,14}\b", " ".join(page.read_text(encoding="utf-8") for page in pages))


def _made_up(count: int, words: Sequence[str], chance: random.Random) -> list[dict[str, Any]]:
    """Tools of eighteen words each, with six arguments."""
    return [
        {
            "toolId": f"{'_'.join(chance.sample(words, 2))}_{number}",
            "description": " ".join(chance.sample(words, 18)),
            "parameters": parameters(number),
        }
        for number in range(count)
    ]


def _time_of_large(scorer: Scorer, embedder: EmbedsTexts | None) -> Result:
    """The median milliseconds of a request of twelve words to a thousand tools, through `pick_tools`."""
    words = _words()
    chance = random.Random(scorer)  # other requests for each: an embedder remembers what it was asked
    tools = _made_up(_LARGE, words, chance)
    times, processor = [], []
    for _ in range(101):
        start = chance.randrange(len(words) - 12)
        query = " ".join(words[start : start + 12])
        started, before = time.perf_counter(), time.process_time()
        pick_tools(query, tools, _FIRST, embedder=embedder, scorer=scorer)
        times.append(1_000 * (time.perf_counter() - started))
        processor.append(1_000 * (time.process_time() - before))
    note = f"{median(processor[1:]):.2f} ms of a processor; 95 of 100 within {sorted(times[1:])[94]:.1f} ms"
    return Result(f"one of 1,000 tools, {scorer}", median(times[1:]), "ms", _SLOWEST[scorer], note)


def _show(rows: Sequence[_Row]) -> None:
    print(f"{'199 tools':<12} {'first':>7} {'first 5':>8} {'ms':>8} {'tokens saved':>13}")
    for row in rows:
        print(
            f"{row.scorer:<12} {row.first:>6.1f}% {row.first_five:>7.1f}% {row.milliseconds:>8.2f} {row.saved:>12.1f}%"
        )


def run() -> list[Result]:
    embedder = open_embedder("auto", models=_MODELS)
    scorers: tuple[Scorer, ...] = get_args(Scorer) if embedder is not None else ("keywords",)
    if embedder is None:
        print("MiniLM is not in build/models, so keywords only; `make models` brings it.")
    results = []
    if _DATA.exists():
        data = json.loads(_DATA.read_text(encoding="utf-8"))
        tools = [{"toolId": name, "description": text} for name, text in data["tools"].items()]
        index = ToolIndex(tools, embedder=embedder)
        started = time.perf_counter()
        index.prepare()
        made = time.perf_counter() - started
        rows = [_measured(index, data["single_tool_queries"], scorer) for scorer in scorers]
        _show(rows)
        results += [
            Result(
                f"right tool not among the first five, {row.scorer}",
                100 - row.first_five,
                "%",
                _MISSED[row.scorer],
                f"first {row.first:.1f} %, first five {row.first_five:.1f} %, {row.saved:.1f} % of the tokens saved",
            )
            for row in rows
        ]
        if embedder is not None:
            results.append(Result("vectors of 199 tools, once", made, "s"))
    else:
        print("The MetaTool data is not beside the project, so times only.")
    for scorer in scorers:
        known = _KnownTools(embedder) if embedder is not None and scorer != "keywords" else None
        results.append(_time_of_large(scorer, known))
    return results
