"""What is found on real documents: 698 pages of a bank's help centre without their titles, asked for by title."""

import json
from pathlib import Path

import pytest
from tests.services.kb.test_hnsw import BY_INDEX, scans

from handrail_reference.services.embeddings import open_embedder
from handrail_reference.services.kb.importing import embed_missing
from handrail_reference.services.kb.postgres import PostgresKnowledgeBase, connection
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_writes import Tally, put_records
from handrail_reference.services.kb.service import KnowledgeBase

DATA = Path(__file__).parents[2] / "data" / "banking_kb_dev.json"
MODELS = Path(__file__).parents[3] / "build" / "models"


@pytest.fixture
def kind():
    return "sqlite"


@pytest.fixture
def bank(open_base):
    data = json.loads(DATA.read_text(encoding="utf-8"))
    documents = [{"id": f"doc:{document['id']}", "text": document["content"]} for document in data["documents"]]
    queries = [(query["query"], f"doc:{query['id']}") for query in data["title_queries"]]

    def make(among=None, opened=None, **options):
        """A base of all documents, or of some of them; in a file, or as `opened` opens it."""
        chosen = [one for one in documents if among is None or one["id"] in among]
        return open_base(*chosen, **options) if opened is None else opened(chosen, **options)

    return make, queries


class Once:
    """An embedder that makes the vector of a text once, however many bases want it."""

    def __init__(self, embedder):
        self._embedder, self._made = embedder, {}
        self.name, self.dimensions = embedder.name, embedder.dimensions

    def embed(self, texts):
        missing = [text for text in dict.fromkeys(texts) if text not in self._made]
        if missing:
            self._made.update(zip(missing, self._embedder.embed(missing), strict=True))
        return [self._made[text] for text in texts]


@pytest.fixture
def minilm():
    embedder = open_embedder("auto", models=MODELS)
    if embedder is None:
        pytest.skip("MiniLM is not installed in build/models")
    return Once(embedder)


@pytest.fixture
def in_postgres(postgres):
    """`in_postgres(records, embedder)`: a base of these records in PostgreSQL."""
    opened = []

    def make(records, embedder=None):
        kb = KnowledgeBase(
            PostgresKnowledgeBase(postgres.new_database(empty=True) + BY_INDEX),
            embedder=None if embedder is None else lambda: embedder,
        )
        opened.append(kb)
        kb.database.write_now(lambda db: put_records(db, [make_record(record) for record in records], Tally()))
        if embedder is not None:
            embed_missing(kb.database, embedder)
        return kb

    yield make
    for kb in opened:
        kb.close_now()


def _first_five(kb, query) -> list[str]:
    return [one.record.id for one in kb.search_now(query, namespaces=["studio"])]


def _in_the_first_five(kb, queries) -> float:
    hits = [right in _first_five(kb, query) for query, right in queries]
    return sum(hits) / len(hits)


def test_who_started_the_company_is_found_by_meaning_where_no_word_of_it_stands(open_base, minilm, tmp_path):
    records = [
        {"id": "doc:history", "text": "Ana Kovač founded the studio in 2019, with two friends and a borrowed desk."},
        {"id": "doc:lunch", "text": "Lunch is at noon; the kitchen orders before ten."},
        {"id": "doc:leave", "text": "Holidays are asked for two weeks before, in the calendar of the team."},
        {"id": "doc:keys", "text": "Lost keys are replaced at the reception, on the same day."},
    ]
    asked = "who started the company"
    assert _first_five(open_base(*records, path=tmp_path / "words.db"), asked) == []
    assert _first_five(open_base(*records, embedder=minilm, path=tmp_path / "meaning.db"), asked)[:1] == ["doc:history"]


def test_full_text_finds_at_least_64_of_100_and_the_same_in_postgresql(bank, in_postgres):
    make, queries = bank
    found = _in_the_first_five(make(), queries)
    assert found >= 0.64
    assert _in_the_first_five(make(opened=in_postgres), queries) == pytest.approx(found, abs=0.02)


def test_the_hybrid_finds_what_words_miss_and_keeps_what_they_find(bank, minilm, tmp_path, in_postgres, monkeypatch):
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

    both = {*missed, *found}
    same = make(rivals, opened=in_postgres, embedder=minilm)
    assert _in_the_first_five(same, both) == pytest.approx(_in_the_first_five(hybrid, both), abs=0.02)
    monkeypatch.setattr(connection, "HNSW_ROWS", 1)  # as if it were a large one
    same.database.write_now(lambda db: db.index_vectors(1, minilm.dimensions))
    before = scans(same)
    assert _in_the_first_five(same, both) == pytest.approx(_in_the_first_five(hybrid, both), abs=0.02)
    assert scans(same) - before >= len(both), "it went by the index"


@pytest.mark.long
def test_the_hybrid_finds_at_least_72_of_100_and_the_same_in_postgresql(bank, minilm, in_postgres, monkeypatch):
    make, queries = bank
    found = _in_the_first_five(make(embedder=minilm), queries)
    assert found >= 0.72
    same = make(opened=in_postgres, embedder=minilm)
    exact = _in_the_first_five(same, queries)
    monkeypatch.setattr(connection, "HNSW_ROWS", 1)
    same.database.write_now(lambda db: db.index_vectors(1, minilm.dimensions))
    before = scans(same)
    assert (exact, _in_the_first_five(same, queries)) == pytest.approx((found, found), abs=0.02)
    assert scans(same) - before >= len(queries)
