"""Knowledge bases for tests: small, in a file of their own, with an embedder that is made of arithmetic."""

import zlib
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import psycopg
import pytest

from handrail_reference.services.kb.importing import embed_missing
from handrail_reference.services.kb.postgres import PostgresKnowledgeBase
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_writes import Tally, put_records
from handrail_reference.services.kb.service import KnowledgeBase

SYNONYMS = {"physician": "doctor", "automobile": "car", "cars": "car"}


class HashingEmbedder:
    """Each word has a direction of its own; a few words share one, so that meaning can differ from spelling."""

    name = "hashing-test"
    dimensions = 2048

    def __init__(self) -> None:
        self.texts = 0

    def embed(self, texts: Sequence[str]):
        np = pytest.importorskip("numpy")
        self.texts += len(texts)
        made = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                word = word.strip(".,?!")
                made[row, zlib.crc32(SYNONYMS.get(word, word).encode()) % self.dimensions] += 1
        return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)


@pytest.fixture
def embedder():
    pytest.importorskip("numpy")
    return HashingEmbedder()


_NUMBERS = count(1)
_POSTGRES = dict[int, str]()
"""The database of each server that bases are made in, each in a schema of its own."""


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request) -> str:
    """The two databases that a base may be in. `@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)`: one alone."""
    return request.param


@pytest.fixture
def place_of(kind, request):
    """`place_of(path)`: where the base of this name is, in the database of the test's kind; the same for the same path."""
    if kind == "sqlite":
        yield lambda path: path
        return
    server = request.getfixturevalue("postgres")
    url = _POSTGRES.setdefault(id(server), "") or server.new_database(empty=True)
    _POSTGRES[id(server)] = url
    schemas: dict[Path, str] = {}
    yield lambda path: PostgresKnowledgeBase(url, schema=schemas.setdefault(path, f"kb_{next(_NUMBERS)}"))
    with psycopg.connect(url, autocommit=True) as db:
        for schema in schemas.values():
            db.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def open_base(tmp_path, place_of):
    """`open_base({...record}, …)`: a base with these records; `embedder=` gives their pieces vectors, too."""
    opened = []

    def make(*records: dict, embedder=None, path: Path | None = None, **options) -> KnowledgeBase:
        kb = KnowledgeBase(
            place_of(path or tmp_path / "kb.db"), embedder=None if embedder is None else lambda: embedder, **options
        )
        opened.append(kb)
        checked = [make_record(record) for record in records]
        kb.database.write_now(lambda db: put_records(db, checked, Tally()))
        if embedder is not None:
            embed_missing(kb.database, embedder)
        return kb

    yield make
    for kb in opened:
        kb.database.close_now()


@pytest.fixture
def ids():
    """`ids(kb, "query")`: what everybody's search finds, by id."""

    def search(kb: KnowledgeBase, query: str, **options) -> list[str]:
        namespaces = options.pop("namespaces", ["studio"])
        return [one.record.id for one in kb.search_now(query, namespaces=namespaces, **options)]

    return search
