"""How quick a knowledge base of 100,000 synthetic records is, what it keeps in memory, and how it holds an event loop.

`python -m benchmarks.knowledge_speed STAGE FOLDER OUT` is a process that does one thing: `import` makes a file of JSON lines
and takes it in as `handrail kb import` does; `vectors` puts vectors beside the records; `full text` and `hybrid` search them
through the tool `kb_search` under the pipeline, as a server would, and are watched from the first opening on; `first full text`
and `first hybrid` search at once, without opening. Memory is that of the process, at the moment that is named.
HANDRAIL_BENCH_RECORDS makes the base smaller.
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
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import handrail_reference
from benchmarks.holds import Holds, watched_loop
from benchmarks.report import Result
from handrail.cli.output import progress_for
from handrail.testing import open_tools
from handrail_reference.services.embeddings import Embedder, import_packages, open_embedder
from handrail_reference.services.kb.database import KnowledgeDatabase
from handrail_reference.services.kb.files import find_sources
from handrail_reference.services.kb.importing import ImportOutcome, import_sources
from handrail_reference.services.kb.record_writes import space_id
from handrail_reference.services.kb.service import KnowledgeBase

_RECORDS = int(os.environ.get("HANDRAIL_BENCH_RECORDS", "100_000"))
_BESIDE = max(1_000, _RECORDS // 10)
"""The number of records that are imported while searches continue."""
_QUERIES, _WORDS = 300, 30_000
_SYLLABLES = ("ba", "ke", "lo", "mi", "nu", "ra", "se", "ti", "vo", "du", "pra", "ster", "lin", "gor", "fen", "mal")
Make = Callable[[Path], KnowledgeBase]
_FILTERS: dict[str, dict[str, Any]] = {
    "one record in a thousand fits": {"tags": ["t7"]},
    "every second record fits": {"type": "person"},
    "no record fits": {"tags": ["nobody-has-this"]},
}


def main(stage: str, side: Path, out: Path) -> None:
    results = _STAGES[stage](side)
    out.write_text(json.dumps([asdict(result) for result in results]), encoding="utf-8")


def embedder_here() -> Embedder | None:
    return open_embedder("auto", models=_models())


def _models() -> Path:
    named = Path(os.environ.get("HANDRAIL_SERVICES_KB_MODELS_DIRECTORY") or "build/models")
    return named if named.is_dir() else Path("build/models")


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


# ------------------------------------------------------------------------------------------------------------ filling it


def _import(side: Path) -> list[Result]:
    """Taken in from a file, and the same file once more; the file is made beforehand."""
    lines = _write_lines(side / "large.jsonl", _Language(1), "r", _RECORDS)
    before = _memory()
    took = [_taken_in(side / "large.db", lines) for _ in range(2)]
    size = (side / "large.db").stat().st_size
    note = f"{_RECORDS} records of 30 to 120 words, {lines.stat().st_size / 1e6:.0f} MB of JSON lines, words only"
    return [
        Result("import", _RECORDS / took[0], "records/s", None, note),
        Result("import, everything is there already", _RECORDS / took[1], "records/s"),
        Result("size on disk", size / 1e6, "MB", None, "without vectors"),
        Result("memory, import", _memory().most, "MB", None, f"at most; {before.now:.0f} MB before it began"),
    ]


def _write_lines(path: Path, language: _Language, prefix: str, count: int) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            words = language.say(35, 125)
            record = {
                "id": f"{('doc', 'person')[number % 2]}:{prefix}{number}",
                "title": " ".join(words[:5]),
                "text": " ".join(words[5:]),
                "tags": [f"t{number % 1000}"],
            }
            file.write(json.dumps(record) + "\n")
    return path


def _taken_in(path: Path, lines: Path) -> float:
    """The seconds that the command takes from its first look at the files to the tally."""
    kb = KnowledgeBase(path)
    started = time.perf_counter()
    _import_file(kb, lines)
    took = time.perf_counter() - started
    kb.close_now()
    return took


def _import_file(kb: KnowledgeBase, lines: Path) -> ImportOutcome:
    sources, passed = find_sources([lines])
    outcome = import_sources(
        kb.database, sources, passed, progress=progress_for(f"Importing {lines.name} (bytes)"), on_problem=_no_problem
    )
    assert not outcome.skipped
    return outcome


def _no_problem(place: str, problem: str) -> None:
    raise AssertionError(f"{place}: {problem}")


def _vectors(side: Path) -> list[Result]:
    """Vectors for all pieces that have none, at random: how long they take to compare does not depend on what they say."""
    import numpy as np  # noqa: PLC0415  # an extra

    from handrail_reference.services.kb.vectors import packed  # noqa: PLC0415  # needs it

    embedder, path = embedder_here(), side / "large.db"
    assert embedder is not None
    kb = KnowledgeBase(path)
    bare = "SELECT id FROM piece WHERE id NOT IN (SELECT piece FROM vector)"
    pieces = [row[0] for row in kb.database.read_now(lambda db: db.execute(bare).fetchall())]
    space = kb.database.write_now(lambda db: space_id(db, embedder.name, embedder.dimensions))
    numbers = np.random.default_rng(1)
    for start in range(0, len(pieces), 5_000):
        some = pieces[start : start + 5_000]
        made = numbers.standard_normal((len(some), embedder.dimensions), dtype=np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        vectors = [(piece, packed(vector)) for piece, vector in zip(some, made, strict=True)]
        kb.database.write_now(lambda db, vectors=vectors: db.put_vectors(space, vectors))  # type: ignore[misc]
    kb.close_now()
    return [Result("size on disk with vectors", path.stat().st_size / 1e6, "MB", None, "half precision")]


# ---------------------------------------------------------------------------------------------------------- searching it


def _full_text(side: Path) -> list[Result]:
    return asyncio.run(_searched(side, "full text", _words, 50.0, _memory()))


def _first_full_text(side: Path) -> list[Result]:
    return asyncio.run(_begun(side, "full text", _words))


def _hybrid(side: Path) -> list[Result]:
    before = _memory()
    import_packages("auto", models=_models())
    return asyncio.run(_searched(side, "hybrid", _words_and_meaning, 80.0, before))


def _first_hybrid(side: Path) -> list[Result]:
    import_packages("auto", models=_models())
    return asyncio.run(_begun(side, "hybrid", _words_and_meaning))


def _words(path: Path) -> KnowledgeBase:
    return KnowledgeBase(path, with_starter=True)


def _words_and_meaning(path: Path) -> KnowledgeBase:
    """As `handrail serve` has it: the packages are imported before there is a loop, the model is loaded beside it."""
    return KnowledgeBase(path, embedder=embedder_here, with_starter=True)


async def _searched(side: Path, name: str, make: Make, limit: float, before: _Memory) -> list[Result]:
    """From the first opening on: every moment at which the loop is held counts."""
    language = _Language(2)
    queries = [" ".join(language.say(2, 7)) for _ in range(_QUERIES)]
    results = []
    async with _at_hand(side, make(side / "large.db")) as desk:
        async with watched_loop() as holds:
            await desk.kb.warm_up()
        results.append(_hold(f"{name}, opening", holds))
        results += await _cases(desk, name, queries, language, limit)
        now = _memory()
        note = (
            f"{before.now:.0f} MB before it was opened; of the rest {now.pages - before.pages:.0f} MB are pages of files, which"
            f" the system may take back; {now.most:.0f} MB at most"
        )
        results.append(Result(f"memory, {name}", now.now, "MB", None, note))
        results += await _beside_imports(side, desk, name, queries)
    return results


async def _begun(side: Path, name: str, make: Make) -> list[Result]:
    """A search of the large base that nobody has opened, and of a new one, which is given its starter pages."""
    results = []
    query = " ".join(_Language(2).say(3, 3))
    for what, path in (("a base that was not opened", side / "large.db"), ("a new base", side / f"{name}-new.db")):
        async with _at_hand(side, make(path)) as desk:
            with _settled():
                async with watched_loop() as holds:
                    took = await desk.search(query)
            results.append(
                Result(f"kb_search, {name}, first search of {what}", took, "ms", None, "loads what it needs")
            )
            results.append(_hold(f"{name}, first search of {what}", holds))
    return results


async def _cases(desk: _Desk, name: str, queries: list[str], language: _Language, limit: float) -> list[Result]:
    """The ordinary queries have a limit; the others show where a search is slower, and how much."""
    common = [" ".join(language.say_common(3)) for _ in range(_QUERIES // 3)]
    results = _figures(name, await desk.search_all(queries), limit)
    results += _figures(f"{name}, common words only", await desk.search_all(common), None)
    for what, filters in _FILTERS.items():
        found = await desk.search_all(queries[: _QUERIES // 3], filters=filters)
        results += _figures(f"{name}, {what}", found, None)
    return results + _figures(f"{name}, eight at once", await desk.search_all(queries, at_once=8), None)


async def _beside_imports(side: Path, desk: _Desk, name: str, queries: list[str]) -> list[Result]:
    """While records come in: from the command, which is another process, and from a thread of this one; then vectors."""
    ways = {"an import by the command": _by_the_command, "an import by a thread": _by_a_thread}
    if desk.kb.embedder is not None:
        ways["vectors that come in"] = _by_embedding
    results = []
    for number, (what, run) in enumerate(ways.items()):
        prefix = f"{name.replace(' ', '')}{number}"
        lines = _write_lines(side / f"{prefix}.jsonl", _Language(3), prefix, _BESIDE)
        found = await desk.search_all(queries, beside=lambda run=run, lines=lines: run(desk.kb, lines))  # type: ignore[misc]
        results += _figures(f"{name}, beside {what}", found, None)
    return results


async def _by_the_command(kb: KnowledgeBase, lines: Path) -> None:
    assert isinstance(kb.database, KnowledgeDatabase)
    environment = {**os.environ, "HANDRAIL_SERVICES_KB_PATH": str(kb.database.path)}
    words = ("-m", "handrail", "kb", "import", lines.name, "--no-embeddings")
    command = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=lines.parent, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    assert await command.wait() == 0


async def _by_a_thread(kb: KnowledgeBase, lines: Path) -> None:
    await asyncio.to_thread(_import_file, kb, lines)


async def _by_embedding(kb: KnowledgeBase, lines: Path) -> None:
    """Vectors of what the other two have brought, made by another process as `handrail kb embed` is."""
    words = ("-m", "benchmarks.knowledge_speed", "vectors", str(lines.parent), os.devnull)
    assert await (await asyncio.create_subprocess_exec(sys.executable, *words)).wait() == 0


@dataclass
class _Found:
    """Milliseconds of each search, and of a processor's time for each on average; how the loop was held meanwhile."""

    times: list[float]
    processor: float
    holds: Holds


class _Desk:
    """The tool `kb_search` in sessions of a runtime."""

    def __init__(self, kb: KnowledgeBase, sessions: list[Any]) -> None:
        self.kb = kb
        self._sessions = sessions

    async def search(self, query: str, filters: dict[str, Any] | None = None, number: int = 0) -> float:
        session = self._sessions[number]
        await session.begin_turn()
        started = time.perf_counter()
        answer = await session.call("kb_search", {"query": query, **({"filters": filters} if filters else {})})
        assert answer.ok, answer
        return 1000 * (time.perf_counter() - started)

    async def search_all(
        self,
        queries: list[str],
        *,
        filters: dict[str, Any] | None = None,
        at_once: int = 1,
        beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> _Found:
        """Each query through the tool, or one after the other for as long as something else runs."""
        if beside is None:
            for query in queries[:20]:
                await self.search(query, filters)

        async def work(number: int) -> list[float]:
            return [await self.search(query, filters, number) for query in waiting]

        with _settled():
            async with watched_loop() as holds:
                running = asyncio.ensure_future(beside()) if beside is not None else None
                waiting = iter(queries) if running is None else _until(running, queries)
                before = time.process_time()
                times = [one for some in await asyncio.gather(*map(work, range(at_once))) for one in some]
                processor = 1000 * (time.process_time() - before) / len(times)
                if running is not None:
                    await running
        return _Found(times, processor, holds)


def _until(running: asyncio.Future[None], queries: list[str]) -> Iterator[str]:
    for query in itertools.cycle(queries):
        yield query
        if running.done():
            return


@asynccontextmanager
async def _at_hand(side: Path, kb: KnowledgeBase) -> AsyncIterator[_Desk]:
    tools = side / "tools"
    shutil.copytree(
        Path(handrail_reference.__file__).parent / "tools" / "kb-search", tools / "kb-search", dirs_exist_ok=True
    )
    with open_tools(tools, capabilities={"kb": kb}) as kit:
        async with kit.runtime(policy={"text": {"retrieval_calls": 0}, "identical_calls": 100_000}) as runtime:
            yield _Desk(kb, [await runtime.open_session() for _ in range(8)])
        await kb.close()


@contextmanager
def _settled() -> Iterator[None]:
    """As `handrail serve` does when it has started: what is loaded by then is left alone by the garbage collector."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _figures(name: str, found: _Found, limit: float | None) -> list[Result]:
    times, processor = sorted(found.times), f"{found.processor:.1f} ms of a processor each"
    return [
        Result(f"kb_search, {name}, p50", times[len(times) // 2], "ms", None, f"through the pipeline; {processor}"),
        Result(f"kb_search, {name}, p95", times[int(0.95 * len(times))], "ms", limit),
        _hold(name, found.holds),
    ]


def _hold(name: str, holds: Holds) -> Result:
    return Result(f"longest hold of the event loop, {name}", holds.longest, "ms", 10.0, holds.note)


# ---------------------------------------------------------------------------------------------------------------- memory


@dataclass(frozen=True)
class _Memory:
    """Megabytes of this process that are in memory now, those of them that are pages of files, and the most so far."""

    now: float
    pages: float
    most: float


def _memory() -> _Memory:
    """What the system says of this process; where it has no such file, the most so far must do."""
    found = _status()
    most = found.get("VmHWM", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return _Memory(found.get("VmRSS", most), found.get("RssFile", 0.0), most)


def _status() -> dict[str, float]:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    return {
        name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines) if "kB" in rest
    }


_STAGES: dict[str, Callable[[Path], list[Result]]] = {
    "import": _import,
    "full text": _full_text,
    "first full text": _first_full_text,
    "vectors": _vectors,
    "hybrid": _hybrid,
    "first hybrid": _first_hybrid,
}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
