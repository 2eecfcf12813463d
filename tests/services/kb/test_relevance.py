"""What is found on real documents: 698 pages of a bank's help centre without their titles, asked for by title."""

import json
from pathlib import Path

import pytest

from handrail_reference.services.embeddings import open_embedder

DATA = Path(__file__).parents[2] / "data" / "banking_kb_dev.json"
MODELS = Path(__file__).parents[3] / "build" / "models"


@pytest.fixture
def bank(open_base):
    data = json.loads(DATA.read_text(encoding="utf-8"))
    documents = [{"id": f"doc:{document['id']}", "text": document["content"]} for document in data["documents"]]
    queries = [(query["query"], f"doc:{query['id']}") for query in data["title_queries"]]

    def make(among=None, **options):
        """A base of all documents, or of some of them."""
        return open_base(*(one for one in documents if among is None or one["id"] in among), **options)

    return make, queries


@pytest.fixture
def minilm():
    embedder = open_embedder("auto", models=MODELS)
    if embedder is None:
        pytest.skip("MiniLM is not installed in build/models")
    return embedder


def _first_five(kb, query) -> list[str]:
    return [one.record.id for one in kb.search_now(query, namespaces=["studio"])]


def _in_the_first_five(kb, queries) -> float:
    hits = [right in _first_five(kb, query) for query, right in queries]
    return sum(hits) / len(hits)


def test_full_text_finds_at_least_64_of_100(bank):
    make, queries = bank
    assert _in_the_first_five(make(), queries) >= 0.64


def test_the_hybrid_finds_what_words_miss_and_keeps_what_they_find(bank, minilm, tmp_path):
    """The promise below in little, for every run: some queries that full text fails, among the very documents that it prefers."""
    make, queries = bank
    whole = make()
    chosen = {query: _first_five(whole, query) for query, _ in queries}
    missed = [(query, right) for query, right in queries if right not in chosen[query]][::4]
    rivals = {right for _, right in missed} | {one for query, _ in missed for one in chosen[query]}
    words = make(rivals, path=tmp_path / "words.db")
    found = [(query, right) for query, right in queries if right in rivals and right in _first_five(words, query)]
    hybrid = make(rivals, embedder=minilm, path=tmp_path / "hybrid.db")

    assert len(missed) >= 10
    assert _in_the_first_five(words, missed) < 0.15
    assert _in_the_first_five(hybrid, missed) >= 0.25
    assert len(found) >= 8
    assert _in_the_first_five(hybrid, found) >= 0.8


@pytest.mark.long
def test_the_hybrid_finds_at_least_72_of_100(bank, minilm):
    make, queries = bank
    assert _in_the_first_five(make(embedder=minilm), queries) >= 0.72
