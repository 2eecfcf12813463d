"""The knowledge base: what it finds on real documents, and how quick it is with 100,000 records.

Found: 698 pages of a bank's help centre, imported without their titles; the query is the title. Quick: synthetic records and
vectors, searched through the tool `kb_search` under the pipeline; the query's own embedding is real where MiniLM is installed.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import handrail
from benchmarks.holds import Holds, watched_loop
from benchmarks.report import Result
from handrail.services.embeddings import Embedder, open_embedder
from handrail.services.kb.files import Source
from handrail.services.kb.importing import embed_missing, import_sources
from handrail.services.kb.record import make_record
from handrail.services.kb.service import KnowledgeBase
from handrail.services.kb.writing import Tally, optimize, put_records, put_vectors, space_id
from handrail.testing import open_tools

_DATA = Path(__file__).parents[2] / "shared" / "data" / "banking_kb_dev.json"
_RECORDS, _QUERIES, _WORDS, _DIMENSIONS = 100_000, 300, 30_000, 384
_SYLLABLES = ("ba", "ke", "lo", "mi", "nu", "ra", "se", "ti", "vo", "du", "pra", "ster", "lin", "gor", "fen", "mal")


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as side:
        embedder = _embedder()
        results = _relevance(Path(side), embedder) if _DATA.is_file() else []
        if not results:
            print(f"The documents are not there ({_DATA.name}); relevance is left out.")
        return results + _speed(Path(side), embedder)


def _embedder() -> Embedder | None:
    named = os.environ.get("HANDRAIL_MODELS_DIRECTORY")
    for folder in (Path(named) if named else None, Path("build/models")):
        found = open_embedder("auto", models=folder) if folder is not None else None
        if found is not None:
            return found
    print("MiniLM is not installed here; the hybrid is measured without it where that is possible.")
    return None


# ------------------------------------------------------------------------------------------------------- what is found


def _relevance(side: Path, embedder: Embedder | None) -> list[Result]:
    data = json.loads(_DATA.read_text(encoding="utf-8"))
    lines = side / "bank.jsonl"
    with lines.open("w", encoding="utf-8") as file:
        for document in data["documents"]:
            file.write(json.dumps({"id": f"doc:{document['id']}", "text": document["content"]}) + "\n")
    path = side / "bank.db"
    words = KnowledgeBase(path)
    import_sources(words.database, [Source(lines, lines.name, lines.stat().st_size)], ())
    queries = [(query["query"], f"doc:{query['id']}") for query in data["title_queries"]]
    table = {"full text": _found(lambda query: _ids(words, query), queries)}
    if embedder is not None:
        both = KnowledgeBase(path, embedder=lambda: embedder)
        embed_missing(both.database, embedder)
        table["embeddings"] = _found(lambda query: _closest(both, embedder, query), queries)
        table["hybrid"] = _found(lambda query: _ids(both, query), queries)
        both.database.close_now()
    words.database.close_now()
    print(f"{'698 documents, 150 queries':<28} first  first five")
    for name, (first, five) in table.items():
        print(f"{name:<28} {first:.3f}  {five:.3f}")
    wanted = {"full text": 0.64, "hybrid": 0.72}
    return [
        Result(
            f"{name}: the right document is not in the first five",
            1 - five,
            "share",
            round(1 - wanted[name], 2) if name in wanted else None,
            f"found first {first:.3f}, in the first five {five:.3f}",
        )
        for name, (first, five) in table.items()
    ]


def _ids(kb: KnowledgeBase, query: str) -> list[str]:
    return [one.record.id for one in kb.search_now(query, namespaces=["studio"], limit=5)]


def _closest(kb: KnowledgeBase, embedder: Embedder, query: str) -> list[str]:
    """By meaning alone."""
    from handrail.services.kb.port import Filter  # noqa: PLC0415
    from handrail.services.kb.reading import records_by_key  # noqa: PLC0415
    from handrail.services.kb.vectors import VectorIndex  # noqa: PLC0415

    index = VectorIndex(embedder.name, embedder.dimensions)

    def look(db: Any) -> list[str]:
        index.follow(db)
        keys = list(index.search(db, embedder.embed([query])[0], [1], Filter()).scores)[:5]
        records = records_by_key(db, keys)
        return [records[key].id for key in keys]

    return kb.database.read_now(look)


def _found(search: Callable[[str], list[str]], queries: list[tuple[str, str]]) -> tuple[float, float]:
    first = five = 0
    for query, right in queries:
        ids = search(query)
        first += ids[:1] == [right]
        five += right in ids
    return first / len(queries), five / len(queries)


# ----------------------------------------------------------------------------------------------------------- how quick


class _Language:
    """Made-up words, as unevenly used as real ones are."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        words: dict[str, None] = {}
        while len(words) < _WORDS:
            words["".join(self._random.choices(_SYLLABLES, k=self._random.randint(2, 4)))] = None
        self._words = list(words)
        self._weights = list(itertools.accumulate(1 / (place + 2.7) for place in range(_WORDS)))

    def say_common(self, count: int) -> list[str]:
        """Words that are in nearly every text, or in very many."""
        return self._random.sample(self._words[:30], count)

    def say(self, least: int, most: int) -> list[str]:
        return self._random.choices(self._words, cum_weights=self._weights, k=self._random.randint(least, most))


def _speed(side: Path, embedder: Embedder | None) -> list[Result]:
    path = side / "large.db"
    language = _Language(1)
    before = _memory()
    seconds = _import_synthetic(path, language)
    plain_size = path.stat().st_size
    queries = [" ".join(language.say(2, 7)) for _ in range(_QUERIES)]
    results = [
        Result("import", _RECORDS / seconds, "records/s", None, f"{_RECORDS} records of 30 to 120 words, words only"),
        Result("size on disk", plain_size / 1e6, "MB", None, "without vectors"),
    ]
    common = [" ".join(language.say_common(3)) for _ in range(_QUERIES // 3)]
    results += _cases(side, "full text", lambda: KnowledgeBase(path), queries, common, 50.0)
    if embedder is not None:
        _add_vectors(path, embedder)
        both = lambda: KnowledgeBase(path, embedder=lambda: embedder)  # noqa: E731
        results += _cases(side, "hybrid", both, queries, common, 80.0)
        results.append(Result("size on disk with vectors", path.stat().st_size / 1e6, "MB", None, "half precision"))
    results.append(
        Result(
            "memory",
            (_memory() - before) / 1e6,
            "MB",
            None,
            "the most that the process took on, with pages of the file",
        )
    )
    return results


_FILTERS: dict[str, dict[str, Any]] = {
    "one record in a thousand fits": {"tags": ["t7"]},
    "every second record fits": {"type": "person"},
    "no record fits": {"tags": ["nobody-has-this"]},
}


def _cases(
    side: Path, name: str, make: Callable[[], KnowledgeBase], queries: list[str], common: list[str], limit: float
) -> list[Result]:
    """The ordinary queries have a limit; the others show where a search is slower, and how much."""
    results = _figures(name, asyncio.run(_search(side, make(), queries)), limit)
    results += _figures(f"{name}, common words only", asyncio.run(_search(side, make(), common)), None)
    for what, filters in _FILTERS.items():
        found = asyncio.run(_search(side, make(), queries[: _QUERIES // 3], filters=filters))
        results += _figures(f"{name}, {what}", found, None)
    found = asyncio.run(_search(side, make(), queries, at_once=8))
    return results + _figures(f"{name}, eight at once", found, None)


@dataclass
class _Found:
    """Milliseconds of each search, and of a processor's time for each on average; how the loop was held meanwhile."""

    times: list[float]
    processor: float
    holds: Holds


def _figures(name: str, found: _Found, limit: float | None) -> list[Result]:
    times, processor = sorted(found.times), f"{found.processor:.1f} ms of a processor each"
    return [
        Result(f"kb_search, {name}, p50", times[len(times) // 2], "ms", None, f"through the pipeline; {processor}"),
        Result(f"kb_search, {name}, p95", times[int(0.95 * len(times))], "ms", limit),
        Result(f"longest hold of the event loop, {name}", found.holds.longest, "ms", 10.0, found.holds.note),
    ]


def _import_synthetic(path: Path, language: _Language) -> float:
    kb = KnowledgeBase(path)
    records = (
        make_record(
            {
                "id": f"{('doc', 'person')[number % 2]}:r{number}",
                "title": " ".join(words[:5]),
                "text": " ".join(words[5:]),
                "tags": [f"t{number % 1000}"],
            }
        )
        for number, words in enumerate(language.say(35, 125) for _ in range(_RECORDS))
    )
    started = time.perf_counter()
    tally = Tally()
    for batch in _batches(records):
        kb.database.write_now(lambda db, batch=batch: put_records(db, batch, tally))  # type: ignore[misc]
    kb.database.write_now(optimize)
    kb.database.close_now()
    return time.perf_counter() - started


def _batches(records: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(records, 1_000)):
        yield batch


def _add_vectors(path: Path, embedder: Embedder) -> None:
    """Vectors at random: how long they take to compare does not depend on what they say."""
    import numpy as np  # noqa: PLC0415

    from handrail.services.kb.vectors import packed  # noqa: PLC0415

    kb = KnowledgeBase(path)
    pieces = [row[0] for row in kb.database.read_now(lambda db: db.execute("SELECT id FROM piece").fetchall())]
    space = kb.database.write_now(lambda db: space_id(db, embedder.name, embedder.dimensions))
    numbers = np.random.default_rng(1)
    for start in range(0, len(pieces), 5_000):
        some = pieces[start : start + 5_000]
        made = numbers.standard_normal((len(some), embedder.dimensions), dtype=np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        vectors = [(piece, packed(vector)) for piece, vector in zip(some, made, strict=True)]
        kb.database.write_now(lambda db, vectors=vectors: put_vectors(db, space, vectors))  # type: ignore[misc]
    kb.database.close_now()


async def _search(
    side: Path, kb: KnowledgeBase, queries: list[str], *, filters: dict[str, Any] | None = None, at_once: int = 1
) -> _Found:
    """Each query through the tool, while every moment at which the loop is held is noticed."""
    tools = side / "tools"
    shutil.copytree(Path(handrail.__file__).parent / "tools" / "kb-search", tools / "kb-search", dirs_exist_ok=True)
    with open_tools(tools, capabilities={"kb": kb}) as kit:
        async with kit.runtime(policy={"text": {"retrieval_calls": 0}, "identical_calls": 1000}) as runtime:
            sessions = [await runtime.open_session() for _ in range(at_once)]
            await kb.open()
            for query in queries[:20]:
                await _one(sessions[0], query, filters)
            waiting = iter(queries)

            async def work(session: Any) -> list[float]:
                return [await _one(session, query, filters) for query in waiting]

            with _settled():
                async with watched_loop() as holds:
                    before = time.process_time()
                    times = [one for some in await asyncio.gather(*map(work, sessions)) for one in some]
                    processor = 1000 * (time.process_time() - before) / len(queries)
        await kb.close()
    return _Found(times, processor, holds)


@contextmanager
def _settled() -> Iterator[None]:
    """As `handrail serve` does when it has started: what is loaded by then is left alone by the garbage collector."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _one(session: Any, query: str, filters: dict[str, Any] | None) -> float:
    await session.begin_turn()
    started = time.perf_counter()
    answer = await session.call("kb_search", {"query": query, **({"filters": filters} if filters else {})})
    assert answer.ok, answer
    return 1000 * (time.perf_counter() - started)


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
