"""The index of a large base in PostgreSQL (HNSW): that searches go by it, and that it finds what comparing all vectors finds."""

import asyncio
import threading

import pytest

from handrail_reference.services.kb.importing import embed_missing
from handrail_reference.services.kb.port import Filter
from handrail_reference.services.kb.postgres import PostgresKnowledgeBase, connection
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_queries import readable_scopes
from handrail_reference.services.kb.record_writes import Tally, put_records
from handrail_reference.services.kb.service import KnowledgeBase
from handrail_reference.services.kb.threads import READERS

SIZES = {"north": 12_000, "south": 9_000, "east": 4_000}
QUERIES, CLOSEST = 100, 20
BY_INDEX = "&options=-c%20enable_sort%3Doff"
"""Of a few vectors, the server would compare and sort all, whatever index there is."""
EVERYTHING = Filter()


class Points:
    """An embedder of texts that are the numbers of points: in a few hundred clusters, as texts about the same things are."""

    name = "points"
    dimensions = 128

    def __init__(self, count: int) -> None:
        np = pytest.importorskip("numpy")
        chance = np.random.default_rng(7)
        clusters = chance.normal(size=(400, self.dimensions))
        made = clusters[chance.integers(400, size=count)] + chance.normal(size=(count, self.dimensions))
        self.points = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)

    def embed(self, texts):
        return self.points[[int(text.split()[-1]) for text in texts]]


@pytest.fixture(scope="module")
def base(postgres):
    """`base(sizes)`: a base of points in these namespaces, and `QUERIES` more that are in none."""
    opened = []

    def make(sizes, options=""):
        points = Points(sum(sizes.values()) + QUERIES)
        kb = KnowledgeBase(PostgresKnowledgeBase(postgres.new_database(empty=True) + options), embedder=lambda: points)
        opened.append(kb)
        namespaces = [name for name, size in sizes.items() for _ in range(size)]
        records = [
            make_record({"id": f"{'person' if number % 3 else 'doc'}:{number}", "text": f"{number}", "namespace": name})
            for number, name in enumerate(namespaces)
        ]
        kb.database.write_now(lambda db: put_records(db, records, Tally()))
        kb.database.write_now(lambda db: db.words.optimize())  # as an import does
        embed_missing(kb.database, points)
        return kb, points

    yield make
    for kb in opened:
        kb.close_now()


@pytest.fixture(scope="module")
def base_of_25_000(base):
    return base(SIZES)


def closest(kb, vector, namespaces, wanted=EVERYTHING):
    """The records that are closest to a vector, the closest first."""
    search = kb.database.vector_search(Points.name, Points.dimensions)

    def look(db):
        search.catch_up(db)
        with db.snapshot():
            return search.search(db, vector, readable_scopes(db, "", namespaces, None), wanted).scores

    scores = kb.database.read_now(look)
    return sorted(scores, key=scores.__getitem__, reverse=True)[:CLOSEST]


def scans(kb):
    """How often searches have gone by the index. Each connection hands in what it has counted first."""
    all_read = threading.Barrier(READERS, timeout=60)

    def hand_in(db):
        all_read.wait()
        db.connection.execute("SELECT pg_stat_force_next_flush()")

    async def every_reader():
        await asyncio.gather(*(kb.database.read(hand_in) for _ in range(READERS)))

    asyncio.run(every_reader())
    counted = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'vector_near_1'"
    return kb.database.read_now(lambda db: db.one(counted))


def test_a_search_goes_by_the_index_and_says_what_it_would_without(base, monkeypatch):
    kb, points = base({"north": 300, "south": 200}, BY_INDEX)
    exact = [closest(kb, vector, ["north"]) for vector in points.points[-10:]]
    monkeypatch.setattr(connection, "HNSW_ROWS", 1)  # as if it were a large one
    kb.database.write_now(lambda db: db.index_vectors(1, points.dimensions))
    before = scans(kb)
    assert [closest(kb, vector, ["north"]) for vector in points.points[-10:]] == exact
    assert scans(kb) - before == 10


@pytest.mark.long
@pytest.mark.parametrize("namespaces", [["north", "south", "east"], ["north", "south"]], ids="+".join)
@pytest.mark.parametrize("wanted", [EVERYTHING, Filter(type="person")], ids=["everything", "of a type"])
def test_of_25_000_vectors_the_index_finds_98_of_100_that_are_closest(
    base_of_25_000, monkeypatch, namespaces, wanted, record_figures
):
    kb, points = base_of_25_000
    asked = points.points[-QUERIES:]
    before = scans(kb)
    found = [closest(kb, vector, namespaces, wanted) for vector in asked]
    assert scans(kb) - before == QUERIES, "nobody had to tell the server to go by it"
    monkeypatch.setattr(connection, "HNSW_ROWS", 10**9)
    exact = [closest(kb, vector, namespaces, wanted) for vector in asked]
    assert scans(kb) - before == QUERIES
    assert {len(one) for one in exact} == {CLOSEST}
    share = sum(len({*one} & {*right}) for one, right in zip(found, exact, strict=True)) / (QUERIES * CLOSEST)
    record_figures(f"{share:.3f} of the {CLOSEST} closest were found by the index")
    assert share >= 0.98
