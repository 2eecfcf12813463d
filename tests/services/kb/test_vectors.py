"""Meaning: vectors follow the file, obey the filters, and without them words must do."""

import asyncio
import logging
import threading

import pytest

from handrail.contract.errors import ConfigError
from handrail_reference.services.embeddings import EmbeddingError
from handrail_reference.services.kb import connection, filtered, meaning
from handrail_reference.services.kb.importing import embed_missing, missing_vectors
from handrail_reference.services.kb.meaning import Meaning
from handrail_reference.services.kb.port import Filter
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_writes import Tally, put_records, remove_records, space_id

pytest.importorskip("numpy")
from handrail_reference.services.kb.vectors import VectorIndex, _VectorRows, packed

RECORDS = [
    {"id": "person:doctor", "text": "the doctor helps patients"},
    {"id": "doc:car", "text": "a car needs fuel", "tags": ["wheels"]},
    {"id": "doc:tree", "text": "an oak grows slowly"},
]


def test_a_record_without_any_of_the_words_is_found_by_meaning(open_base, ids, embedder):
    assert ids(open_base(*RECORDS), "physician") == []
    assert ids(open_base(*RECORDS, embedder=embedder), "physician") == ["person:doctor"]


def test_what_is_about_something_else_is_not_given(open_base, ids, embedder):
    assert ids(open_base(*RECORDS, embedder=embedder), "zeppelin quokka marmalade") == []


def test_filters_hold_for_vectors_too(open_base, ids, embedder):
    kb = open_base(*RECORDS, embedder=embedder)
    assert ids(kb, "physician", wanted=Filter(type="doc")) == []
    assert ids(kb, "automobile", wanted=Filter(tags=("wheels",))) == ["doc:car"]


def test_what_another_process_writes_is_found_and_what_it_deletes_is_gone(open_base, ids, embedder):
    kb = open_base(*RECORDS, embedder=embedder)
    assert ids(kb, "physician") == ["person:doctor"]
    other = open_base({"id": "person:second", "text": "doctor number two"}, embedder=embedder)
    assert set(ids(kb, "physician")) == {"person:doctor", "person:second"}

    key = other.database.read_now(lambda db: db.execute("SELECT key FROM record WHERE id = 'person:doctor'").fetchone())
    other.database.write_now(lambda db: remove_records(db, key))
    assert ids(kb, "physician") == ["person:second"]

    changed = [make_record({"id": "person:second", "text": "an oak in the garden"})]
    other.database.write_now(lambda db: put_records(db, changed, Tally()))
    embed_missing(other.database, embedder)
    assert ids(kb, "physician") == []


def test_a_list_of_deletions_that_was_cut_is_no_trouble(open_base, ids, embedder):
    kb = open_base(*RECORDS, embedder=embedder)
    assert ids(kb, "physician")
    other = open_base()
    keys = other.database.read_now(lambda db: [row[0] for row in db.execute("SELECT key FROM record ORDER BY key")])
    other.database.write_now(lambda db: remove_records(db, keys[1:2]))
    assert ids(kb, "automobile") == []
    other.database.write_now(lambda db: remove_records(db, keys[:1]))
    other.database.write_now(lambda db: db.execute("DELETE FROM dropped"))
    other.database.write_now(lambda db: db.execute("INSERT INTO dropped (piece) VALUES (999)"))
    assert ids(kb, "physician") == []


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_many_changes_do_not_make_the_matrix_grow_for_ever(open_base, ids, embedder):
    kb = open_base(*RECORDS, embedder=embedder)
    for number in range(8):
        records = [make_record({"id": f"doc:n{n}", "text": f"car number {n} of {number}"}) for n in range(300)]
        kb.database.write_now(lambda db, records=records: put_records(db, records, Tally()))
        embed_missing(kb.database, embedder, batch=300)
        assert "person:doctor" in ids(kb, "physician", limit=50)
    assert len(kb._index) < 2_000


def test_words_and_meaning_together_beat_one_of_them(open_base, ids, embedder):
    kb = open_base(
        {"id": "doc:words", "text": "drives home often when the weather is bad and rainy"},
        {"id": "doc:meaning", "text": "a doctor sleeps"},
        {"id": "doc:both", "text": "the doctor drives"},
        *({"id": f"doc:n{number}", "text": f"something else {number}"} for number in range(20)),
        embedder=embedder,
    )
    assert ids(kb, "physician drives")[0] == "doc:both"
    assert set(ids(kb, "physician drives")) == {"doc:words", "doc:meaning", "doc:both"}


def test_vectors_of_another_space_are_not_compared(open_base, embedder):
    kb = open_base(*RECORDS, embedder=embedder)

    class Other(type(embedder)):
        name = "other-space"

    assert kb.database.read_now(lambda db: missing_vectors(db, "other-space")) == 3
    other = open_base(embedder=Other())
    assert kb.database.read_now(lambda db: missing_vectors(db, "other-space")) == 0
    assert [one.record.id for one in other.search_now("physician", namespaces=["studio"])] == ["person:doctor"]


async def test_an_embedder_that_fails_leaves_the_words(open_base, embedder, caplog):
    kb = open_base(*RECORDS, embedder=embedder)
    await kb.warm_up()

    def broken(texts):
        raise EmbeddingError("The embedding service is away.")

    embedder.embed = broken
    with caplog.at_level(logging.WARNING, logger="handrail.kb"):
        found = await kb.search("doctor", user=None, tenant="")
    assert [one.record.id for one in found] == ["person:doctor"]
    assert "keywords alone" in caplog.text


async def test_without_embeddings_it_says_so_once(open_base, caplog):
    kb = open_base(*RECORDS)
    kb.meaning = Meaning(lambda: None)
    with caplog.at_level(logging.INFO, logger="handrail.kb"):
        for _ in range(3):
            await kb.search("doctor", user=None, tenant="")
    assert caplog.text.count("keywords alone") == 1
    assert not [record for record in caplog.records if record.levelno > logging.INFO], "nothing is wrong"


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "damaged", [b"\0", b"\xff\x7f" * 2048, b"\0\x7c" * 2048], ids=["short", "no number", "endless"]
)
def test_damaged_vectors_are_left_out(open_base, ids, embedder, damaged):
    kb = open_base(*RECORDS, embedder=embedder)
    kb.database.write_now(lambda db: db.execute("UPDATE vector SET data = ? WHERE piece = 1", (damaged,)))
    assert ids(kb, "physician") == []
    assert ids(kb, "automobile") == ["doc:car"]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_the_closest_piece_of_each_record_is_the_one_that_is_shown(open_base):
    """Against the plain way: 150 records with one to six vectors each, in no order, some of them equal."""
    numpy = pytest.importorskip("numpy")
    numbers = numpy.random.default_rng(3)
    kb = open_base(*({"id": f"doc:n{number}", "text": "word " * 180 * (1 + number % 6)} for number in range(150)))
    owners = kb.database.read_now(lambda db: dict(db.execute("SELECT id, record FROM piece").fetchall()))
    made = numbers.standard_normal((len(owners), 8)).round(1).astype("f4")
    made[5::7] = made[4::7][: len(made[5::7])]
    made /= numpy.linalg.norm(made, axis=1, keepdims=True)
    vectors = dict(zip(owners, made.astype("f2").astype("f4"), strict=True))
    shuffled = numbers.permutation(list(owners)).tolist()
    space = kb.database.write_now(lambda db: space_id(db, "eight", 8))
    for some in (shuffled[:300], shuffled[300:]):
        kb.database.write_now(
            lambda db, some=some: db.put_vectors(space, [(one, packed(vectors[one])) for one in some])
        )
    query = vectors[shuffled[0]]
    index = VectorIndex("eight", 8)

    def look(db):
        index.catch_up(db)
        return index.search(db, query, [1], Filter())

    hits = kb.database.read_now(look)
    theirs: dict[int, list[tuple[float, int]]] = {}
    for piece in shuffled:
        theirs.setdefault(owners[piece], []).append((float(vectors[piece] @ query), piece))
    close = {key: (max(rows)[0] + sum(row[0] for row in rows) / len(rows)) / 2 for key, rows in theirs.items()}
    assert list(hits.scores) == sorted(close, key=lambda key: (-hits.scores.get(key, -2), key))[:100]
    assert hits.scores == pytest.approx({key: close[key] for key in hits.scores}, abs=1e-5)
    assert min(hits.scores.values()) >= sorted(close.values())[-101] - 1e-5
    for key, piece in hits.pieces.items():
        best = max(row[0] for row in theirs[key])
        assert {row[1]: row[0] for row in theirs[key]}[piece] == pytest.approx(best, abs=1e-5)
        assert hits.cosines[key] == pytest.approx(best, abs=1e-5)


def test_what_was_deleted_takes_nobodys_place(open_base, ids, embedder):
    many = [{"id": f"person:n{number}", "text": "doctor"} for number in range(120)]
    kb = open_base(*many, {"id": "person:last", "text": "doctor and more words"}, embedder=embedder)
    assert len(ids(kb, "physician", limit=50)) == 50
    keys = kb.database.read_now(
        lambda db: [row[0] for row in db.execute("SELECT key FROM record ORDER BY key LIMIT 120")]
    )
    kb.database.write_now(lambda db: remove_records(db, keys))
    assert ids(kb, "physician", limit=1) == ["person:last"]


async def test_a_model_without_vectors_to_compare_is_told_of_once(open_base, embedder, caplog):
    kb = open_base(embedder=embedder)
    await kb.search("physician", user=None, tenant="")
    assert caplog.text == ""  # nothing is there, so nothing is missing
    put = [make_record(record) for record in RECORDS]
    kb.database.write_now(lambda db: put_records(db, put, Tally()))
    for _ in range(3):
        assert await kb.search("physician", user=None, tenant="") == []
    assert caplog.text.count("`handrail kb embed`") == 1
    embed_missing(kb.database, embedder)
    assert [one.record.id for one in await kb.search("physician", user=None, tenant="")] == ["person:doctor"]


async def test_pages_of_handrail_without_vectors_are_no_cause_for_a_warning(open_base, embedder, caplog):
    kb = open_base(embedder=embedder, with_starter=True)
    await kb.search("handrail", user=None, tenant="")
    assert "`handrail kb embed`" not in caplog.text
    kb.database.write_now(lambda db: put_records(db, [make_record(RECORDS[0])], Tally()))
    await kb.search("handrail", user=None, tenant="")
    assert caplog.text.count("`handrail kb embed`") == 1


async def test_a_model_that_cannot_be_loaded_means_keywords_and_is_said_once(open_base, caplog):
    kb = open_base(*RECORDS)

    def damaged():
        raise ConfigError("The weights are damaged; install them again.")

    kb.meaning = Meaning(damaged)
    for _ in range(3):
        assert [one.record.id for one in await kb.search("doctor", user=None, tenant="")] == ["person:doctor"]
    assert caplog.text.count("keywords alone: The weights are damaged") == 1
    assert kb.meaning.problem == "The weights are damaged; install them again."


async def test_a_slow_server_is_not_waited_for_and_asked_again_later(open_base, embedder, caplog, monkeypatch):
    monkeypatch.setattr(meaning, "QUERY_SECONDS", 0.02)
    kb = open_base(*RECORDS, embedder=embedder)
    now, hanging, embed = 100.0, threading.Event(), embedder.embed
    asked = []

    def slow(texts):
        asked.append(texts)
        hanging.wait(20)
        return embed(texts)

    kb.meaning = Meaning(lambda: embedder, clock=lambda: now)
    embedder.embed = slow
    for _ in range(4):
        assert [one.record.id for one in await kb.search("doctor", user=None, tenant="")] == ["person:doctor"]
        assert set(await kb.get(["doc:car"], user=None, tenant="")) == {"doc:car"}
    assert len(asked) == 1
    assert caplog.text.count("took longer than") == 1
    hanging.set()
    embedder.embed = embed
    monkeypatch.setattr(meaning, "QUERY_SECONDS", 20.0)
    now += meaning.PAUSE_SECONDS
    assert [one.record.id for one in await kb.search("physician", user=None, tenant="")] == ["person:doctor"]


async def test_others_search_while_a_server_makes_the_vector_of_a_query(open_base, embedder, monkeypatch):
    monkeypatch.setattr(connection, "_TURN_SECONDS", 30.0)
    kb = open_base(*RECORDS, embedder=embedder)
    assert await kb.search("doctor", user=None, tenant="")
    hanging, asked, embed = threading.Event(), threading.Event(), embedder.embed

    def slow(texts):
        asked.set()
        hanging.wait(20)
        return embed(texts)

    embedder.embed = slow
    searching = asyncio.create_task(kb.search("physician", user=None, tenant=""))
    await asyncio.to_thread(asked.wait, 20)
    async with asyncio.timeout(10):
        assert set(await kb.get(["doc:car"], user=None, tenant="")) == {"doc:car"}
    assert not searching.done()
    hanging.set()
    assert [one.record.id for one in await searching] == ["person:doctor"]


async def test_opening_a_search_asks_no_server_for_its_dimensions(open_base, embedder):
    open_base(*RECORDS, embedder=embedder)

    class Away(type(embedder)):
        @property
        def dimensions(self):
            raise EmbeddingError("The server is away.")

        def embed(self, texts):
            return embedder.embed(texts)

    kb = open_base()
    kb.meaning = Meaning(Away)
    assert [one.record.id for one in await kb.search("physician", user=None, tenant="")] == ["person:doctor"]


async def test_a_model_that_changed_its_length_is_left_out(open_base, embedder, caplog):
    open_base(*RECORDS, embedder=embedder)

    class Other(type(embedder)):
        dimensions = 100

    kb = open_base()
    kb.meaning = Meaning(Other)
    assert [one.record.id for one in await kb.search("doctor", user=None, tenant="")] == ["person:doctor"]
    assert "other vectors than those that are stored" in caplog.text


def test_filters_are_found_once_for_each_state_of_the_file(open_base, ids, embedder):
    kb = open_base(*RECORDS, embedder=embedder)
    wanted = Filter(type="person")
    assert ids(kb, "physician", wanted=wanted) == ["person:doctor"]
    open_base({"id": "person:second", "text": "doctor number two"}, embedder=embedder)
    assert set(ids(kb, "physician", wanted=wanted)) == {"person:doctor", "person:second"}
    for number in range(30):
        ids(kb, "physician", wanted=Filter(start=float(number)))
    assert kb.database.read_now(lambda db: len(db.remembered("filters", dict))) <= 8


@pytest.mark.parametrize("few", [0, 5000], ids=["many fit", "few fit"])
def test_words_find_the_same_whether_many_or_few_fit_a_filter(open_base, ids, monkeypatch, few):
    monkeypatch.setattr(filtered, "FEW", few)
    kb = open_base(*RECORDS, {"id": "doc:other", "text": "fuel for a doctor"})
    assert ids(kb, "fuel doctor", wanted=Filter(type="doc")) == ["doc:other", "doc:car"]
    assert ids(kb, "fuel", wanted=Filter(tags=("wheels",))) == ["doc:car"]
    assert ids(kb, "fuel", wanted=Filter(type="lab")) == []


def test_no_dict_is_so_large_that_its_growing_would_hold_up_other_threads():
    rows = _VectorRows(4)
    vector = bytes(8)
    for start in range(1, 30_000, 2_000):
        rows.add([(number, 7 * number, vector, number // 2, 1) for number in range(start, start + 2_000)])
    assert (rows.count, rows.records) == (30_000, 15_001)
    for numbers in (rows._slot, rows._row):
        assert max(map(len, numbers._parts.values())) <= 4_096
    rows.drop(7 * 29_999)
    assert not rows.alive[14_999]
    assert rows.alive[:14_999].all()
