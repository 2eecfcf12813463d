"""What is found on real documents: 698 pages of a bank's help centre without their titles, asked for by title."""

import json
from pathlib import Path

import pytest

from handrail.services.embeddings import open_embedder
from handrail.services.kb.importing import embed_missing

DATA = Path(__file__).parents[4] / "shared" / "data" / "banking_kb_dev.json"
MODELS = Path(__file__).parents[3] / "build" / "models"


@pytest.fixture
def bank(open_base):
    if not DATA.is_file():
        pytest.skip(f"{DATA.name} is not beside the project")
    data = json.loads(DATA.read_text(encoding="utf-8"))
    documents = [{"id": f"doc:{document['id']}", "text": document["content"]} for document in data["documents"]]
    queries = [(query["query"], f"doc:{query['id']}") for query in data["title_queries"]]
    return (lambda **options: open_base(*documents, **options)), queries


def _in_the_first_five(kb, queries) -> float:
    hits = [right in [one.record.id for one in kb.search_now(query, namespaces=["studio"])] for query, right in queries]
    return sum(hits) / len(hits)


def test_full_text_finds_at_least_64_of_100(bank):
    make, queries = bank
    assert _in_the_first_five(make(), queries) >= 0.64


@pytest.mark.long
def test_the_hybrid_finds_at_least_72_of_100(bank):
    make, queries = bank
    embedder = open_embedder("auto", models=MODELS)
    if embedder is None:
        pytest.skip("MiniLM is not installed in build/models")
    kb = make(embedder=embedder)
    embed_missing(kb.database, embedder)
    assert _in_the_first_five(kb, queries) >= 0.72
