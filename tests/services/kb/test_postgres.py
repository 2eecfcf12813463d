"""The base in PostgreSQL: where it is, what it does without pgvector, and each thing that can be wrong as one sentence."""

import asyncio
import logging
import os
import signal
import threading

import psycopg
import pytest
from tests.postgres_server import postgres_server

from handrail.errors import ConfigError, UsageError
from handrail_reference.services.kb.importing import embed_missing
from handrail_reference.services.kb.opening import open_kb
from handrail_reference.services.kb.port import KbTooSlow, KbUnavailable
from handrail_reference.services.kb.postgres import PostgresKnowledgeBase
from handrail_reference.services.kb.postgres.tables import MIGRATIONS
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_queries import statistics
from handrail_reference.services.kb.record_writes import Tally, put_records
from handrail_reference.services.kb.service import KnowledgeBase
from handrail_reference.services.kb.threads import READERS

RECORDS = [
    {"id": "person:doctor", "text": "the doctor helps patients"},
    {"id": "doc:oak", "text": "an oak grows slowly"},
]


@pytest.fixture
def url(postgres):
    return postgres.new_database(empty=True)


@pytest.fixture
def opened():
    """`opened(url, …)`: a base there; closed after the test."""
    bases = []

    def make(url, *records, embedder=None, schema=""):
        kb = KnowledgeBase(
            PostgresKnowledgeBase(url, schema=schema), embedder=None if embedder is None else lambda: embedder
        )
        bases.append(kb)
        if records:
            kb.database.write_now(lambda db: put_records(db, [make_record(one) for one in records], Tally()))
        if embedder is not None and records:
            embed_missing(kb.database, embedder)
        return kb

    yield make
    for kb in bases:
        kb.close_now()


def _as_role(url, role, *grants):
    """The URL for a role without rights but these."""
    with psycopg.connect(url, autocommit=True) as db:
        if not db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
            db.execute(f"CREATE ROLE {role} LOGIN")
        for grant in grants:
            db.execute(f"GRANT {grant} TO {role}")
    return url.replace("postgres@", f"{role}@")


async def test_a_base_that_is_searched_and_written_takes_the_four_connections_that_the_page_names(url, opened):
    base = opened(url, *RECORDS).database
    all_read = threading.Barrier(READERS, timeout=60)
    await asyncio.gather(*(base.read(lambda _: all_read.wait()) for _ in range(READERS)))
    with psycopg.connect(url) as db:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        assert db.execute(query).fetchone() == (4,)


def _sentence(caught, *words):
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    for word in words:
        assert word in text
    return text


# Where it is


def test_the_base_follows_the_store(url, tmp_path):
    kb = open_kb(tmp_path, store_url=url, embeddings="none")
    assert kb.search_now("What is Handrail?", namespaces=["studio"])[0].record.id == "doc:handrail_overview"
    said = kb.check()
    kb.close_now()
    assert "in the database" in said
    assert not (tmp_path / "kb.db").exists()
    with psycopg.connect(url) as db:
        (count,) = db.execute("SELECT count(*) FROM handrail_kb.record").fetchone()
    assert count > 10


def test_a_file_stays_a_file_where_that_is_asked_for(url, tmp_path):
    kb = open_kb(tmp_path, store_url=url, database="file", embeddings="none", starter=False)
    kb.search_now("x", namespaces=["studio"])
    kb.close_now()
    assert (tmp_path / "kb.db").is_file()


def test_another_database_than_the_stores_may_be_named(url, tmp_path):
    kb = open_kb(tmp_path, store_url="sqlite:///x.db", database=url, schema="shelf", embeddings="none", starter=False)
    kb.search_now("x", namespaces=["studio"])
    kb.close_now()
    with psycopg.connect(url) as db:
        assert db.execute("SELECT to_regclass('shelf.record')::text").fetchone() == ("shelf.record",)


def test_what_is_no_place_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='must be "auto", "file" or'):
        open_kb(tmp_path, database="mysql://x")
    with pytest.raises(ConfigError, match='the address of a database stands in "database"') as caught:
        open_kb(tmp_path, path="postgresql://me:hunter2@x/y")
    assert "hunter2" not in str(caught.value)


def test_two_stores_in_one_database_have_two_bases(url, opened):
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE SCHEMA shop")
    opened(url, RECORDS[0])
    other = opened(f"{url}&options=-c%20search_path%3Dshop", RECORDS[1])
    assert other.database.read_now(statistics)["records"] == 1
    with psycopg.connect(url) as db:
        assert db.execute("SELECT id FROM shop_kb.record").fetchall() == [("doc:oak",)]


def test_the_store_and_the_base_share_a_database(postgres, opened):
    """The store refuses a schema with tables of others; the base is in a schema of its own."""
    kb = opened(postgres.new_database(), RECORDS[0])
    assert kb.search_now("doctor", namespaces=["studio"])


# pgvector


def test_without_the_right_to_install_pgvector_vectors_are_compared_all_the_same(url, opened, embedder, caplog):
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    theirs = _as_role(url, "kb_plain", f"CREATE ON DATABASE {name}")
    kb = opened(theirs, *RECORDS, embedder=embedder)
    with caplog.at_level(logging.WARNING, logger="handrail.kb"):
        assert [one.record.id for one in kb.search_now("physician", namespaces=["studio"])] == ["person:doctor"]
    assert "an administrator run `CREATE EXTENSION vector`" in caplog.text
    assert "without pgvector" in kb.check()

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE EXTENSION vector")
    again = opened(theirs, embedder=embedder)
    assert [one.record.id for one in again.search_now("physician", namespaces=["studio"])] == ["person:doctor"]
    assert again.database.read_now(lambda db: db.holds_halfvec()), "what was there is kept in pgvector's type now"
    assert "pgvector 0." in again.check()


def test_a_server_without_pgvector_is_said_to_have_none(url, opened, embedder, caplog):
    nowhere = f"{url}&options=-c%20extension_control_path%3D/nowhere"
    kb = opened(nowhere, *RECORDS, embedder=embedder)
    with caplog.at_level(logging.WARNING, logger="handrail.kb"):
        assert [one.record.id for one in kb.search_now("physician", namespaces=["studio"])] == ["person:doctor"]
    assert "the server does not have pgvector" in caplog.text


def test_a_pgvector_that_is_too_old_is_named_and_vectors_are_compared_all_the_same(url, opened, embedder, caplog):
    with psycopg.connect(url, autocommit=True) as db:
        # As a server has it that was never upgraded: the type came with 0.7.
        db.execute("CREATE EXTENSION vector")
        (now,) = db.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
        db.execute("ALTER TYPE halfvec RENAME TO of_a_later_version")
        db.execute("UPDATE pg_extension SET extversion = '0.6.2' WHERE extname = 'vector'")
    assert "pgvector" not in opened(url).check()
    kb = opened(url, *RECORDS, embedder=embedder)
    with caplog.at_level(logging.WARNING, logger="handrail.kb"):
        assert [one.record.id for one in kb.search_now("physician", namespaces=["studio"])] == ["person:doctor"]
    assert "has pgvector 0.6.2, and 0.7 or newer is needed" in caplog.text
    assert "without pgvector" in kb.check()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("ALTER TYPE of_a_later_version RENAME TO halfvec")
        db.execute("UPDATE pg_extension SET extversion = %s WHERE extname = 'vector'", (now,))
    again = opened(url, embedder=embedder)
    assert [one.record.id for one in again.search_now("physician", namespaces=["studio"])] == ["person:doctor"]
    assert again.database.read_now(lambda db: db.holds_halfvec()), "what was there is kept in pgvector's type now"


# What can be wrong


def test_a_database_that_is_not_there_is_named_without_the_password(url, opened):
    away = url.replace("postgres@/", "postgres:geheim@/").replace("/test_", "/no_test_")
    with pytest.raises(KbUnavailable) as caught:
        opened(away).search_now("x", namespaces=["studio"])
    assert "geheim" not in _sentence(caught, "is not there")


def test_a_url_that_cannot_be_read_is_no_base():
    with pytest.raises(UsageError, match="URL of the knowledge base cannot be read"):
        PostgresKnowledgeBase("postgresql://user:pa/ss@host/db")


def test_a_newer_base_is_refused_and_left_as_it_is(url, opened):
    opened(url, RECORDS[0]).close_now()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE handrail_kb.fact SET value = %s WHERE name = 'version'", (str(len(MIGRATIONS) + 1),))
    with pytest.raises(UsageError) as caught:
        opened(url).search_now("x", namespaces=["studio"])
    _sentence(caught, "newer Handrail")


def test_a_schema_of_another_program_is_refused(url, opened):
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE SCHEMA theirs")
        db.execute("CREATE TABLE theirs.mine (x int)")
    with pytest.raises(UsageError) as caught:
        opened(url, schema="theirs").search_now("x", namespaces=["studio"])
    _sentence(caught, "tables of another program")


def test_a_role_that_may_not_create_is_told_what_it_needs(url, opened):
    theirs = _as_role(url, "kb_nobody")
    with pytest.raises(UsageError) as caught:
        opened(theirs).search_now("x", namespaces=["studio"])
    _sentence(caught, "may not make them", "grant it CREATE")


def test_a_role_that_may_only_read_can_search(url, opened, embedder):
    opened(url, *RECORDS, embedder=embedder).search_now("x", namespaces=["studio"])
    theirs = _as_role(url, "kb_reader", "USAGE ON SCHEMA handrail_kb", "SELECT ON ALL TABLES IN SCHEMA handrail_kb")
    kb = opened(theirs, embedder=embedder)
    assert [one.record.id for one in kb.search_now("physician", namespaces=["studio"])] == ["person:doctor"]
    with pytest.raises(KbUnavailable) as caught:
        kb.database.write_now(lambda db: put_records(db, [make_record(RECORDS[0])], Tally()))
    _sentence(caught, "does not let this role do that")


def test_a_database_that_may_only_be_read_can_be_searched(url, opened):
    opened(url, *RECORDS).search_now("x", namespaces=["studio"])
    kb = opened(f"{url}&options=-c%20default_transaction_read_only%3Don")
    assert kb.search_now("doctor", namespaces=["studio"])
    with pytest.raises(KbUnavailable) as caught:
        kb.database.write_now(lambda db: put_records(db, [make_record(RECORDS[0])], Tally()))
    _sentence(caught, "may only be read")


async def test_a_search_past_its_time_is_stopped_on_the_server(url, opened):
    kb = opened(url, *RECORDS)
    with pytest.raises(KbTooSlow, match="did not answer within"):
        await kb.database.read(lambda db: db.execute("SELECT pg_sleep(60)").fetchone(), 0.2)
    for _ in range(4):
        assert await kb.search("doctor", user=None, tenant="")
    with psycopg.connect(url) as db:
        active = db.execute("SELECT query FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()")
        assert not [query for (query,) in active if "pg_sleep(60)" in query]


def test_a_connection_that_dies_at_each_statement_loses_nothing_and_is_made_again(url, opened, embedder):
    kb = opened(url, *RECORDS, embedder=embedder)
    kb.search_now("physician", namespaces=["studio"])
    statements = []

    def dying(at):
        """Let the server end the connection of whoever sends the `at`th statement, just before it does."""

        def run(db):
            send, left = db.connection.execute, [at]

            def execute(*given, **options):
                left[0] -= 1
                statements.append(given[0])
                if left[0] == 0:
                    with psycopg.connect(url, autocommit=True) as other:
                        other.execute("SELECT pg_terminate_backend(%s, 5000)", (db.connection.info.backend_pid,))
                return send(*given, **options)

            db.connection.execute = execute
            try:
                return put_records(db, [make_record({"id": f"doc:n{at}", "text": "a new doctor"})], Tally())
            finally:
                db.connection.execute = send

        return run

    for at in range(1, 4):
        before = kb.database.read_now(statistics)["records"]
        statements.clear()
        with pytest.raises(KbUnavailable) as caught:
            kb.database.write_now(dying(at))
        _sentence(caught)
        assert len(statements) >= at
        assert kb.database.read_now(statistics)["records"] == before, "all of it or nothing"
    with psycopg.connect(url, autocommit=True) as other:  # every connection that is idle
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    assert kb.search_now("physician", namespaces=["studio"])[0].record.id == "person:doctor"
    kb.database.write_now(lambda db: put_records(db, [make_record({"id": "doc:last", "text": "x"})], Tally()))


def test_a_server_that_stops_is_one_sentence_and_is_found_again(opened):
    with postgres_server() as server:
        kb = opened(server.new_database(empty=True), *RECORDS)
        assert kb.search_now("doctor", namespaces=["studio"])
        server.stop(signal.SIGQUIT)
        with pytest.raises(KbUnavailable) as caught:
            kb.search_now("doctor", namespaces=["studio"])
        _sentence(caught)
        server.start()
        assert kb.search_now("doctor", namespaces=["studio"])
        kb.close_now()


async def test_forgetting_a_user_leaves_none_of_their_rows(url, opened):
    own = {"id": "doc:diary", "text": "marmalade", "namespace": "personal", "owner": "u1"}
    kb = opened(url, *RECORDS, own)
    assert await kb.forget_user("u1", "") == {"records": 1}
    with psycopg.connect(url) as db:
        for table in ("record", "piece", "piece_words", "head_words", "scope"):
            rows = db.execute(f"SELECT t::text FROM handrail_kb.{table} t").fetchall()
            assert not [row for row in rows if "marmalad" in row[0] or "u1" in row[0]], table


def test_no_password_is_shown_by_the_base_itself(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    assert "geheim" not in repr(PostgresKnowledgeBase("postgresql://u:geheim@localhost/kb"))
