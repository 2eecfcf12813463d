"""The knowledge base: what it finds on real documents, and how quick it is with 100,000 records.

Found: 698 pages of a bank's help centre, imported without their titles; the query is the title. Quick: synthetic records, in
processes of their own (`knowledge_speed`), so that the memory of each is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.knowledge_speed import embedder_here
from benchmarks.report import Result
from handrail_reference.services.embeddings import Embedder
from handrail_reference.services.kb.files import Source
from handrail_reference.services.kb.importing import embed_missing, import_sources
from handrail_reference.services.kb.port import Filter
from handrail_reference.services.kb.record_queries import records_by_key
from handrail_reference.services.kb.service import KnowledgeBase

_DATA = Path(__file__).parents[1] / "tests" / "data" / "banking_kb_dev.json"


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as side:
        embedder = embedder_here()
        if embedder is None:
            print("MiniLM is not installed here; the hybrid is measured without it where that is possible.")
        results = _relevance(Path(side), embedder) if _DATA.is_file() else []
        if not results:
            print(f"The documents are not there ({_DATA.name}); relevance is left out.")
        more = ("vectors", "hybrid", "first hybrid") if embedder is not None else ()
        for stage in ("import", "full text", "first full text", *more):
            results += _in_a_process_of_its_own(stage, Path(side))
        return results


def _in_a_process_of_its_own(stage: str, side: Path) -> list[Result]:
    out = side / "results.json"
    subprocess.run([sys.executable, "-m", "benchmarks.knowledge_speed", stage, str(side), str(out)], check=True)
    return [Result(**one) for one in json.loads(out.read_text(encoding="utf-8"))]


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
    from handrail_reference.services.kb.vectors import VectorIndex  # noqa: PLC0415  # needs numpy, which is an extra

    index = VectorIndex(embedder.name, embedder.dimensions)

    def look(db: Any) -> list[str]:
        index.catch_up(db)
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
