"""Statements of a claim, an outcome or a turn, as one trip: what the server refuses, loses or has no letters for."""

import asyncio
import os

import psycopg
import pytest
from tests.stores.values import claim, done, session

from handrail.contract.errors import UsageError
from handrail.contract.store import ClaimVerdict, StoreUnavailable
from handrail.stores.postgres import PostgresStore
from handrail.stores.postgres.connection import ServerAddress
from handrail.stores.postgres.prepared import BEGIN, COMMIT, PreparedStatement, run_pipeline

DOUBLED = PreparedStatement("doubled", "SELECT 2 * value::int FROM json_array_elements_text(%s::json) AS value")
FAILS = PreparedStatement("fails", "SELECT 1 / (%s::json ->> 0)::int")
SILENT = PreparedStatement("silent", "SELECT pg_sleep((%s::json ->> 0)::float)")


@pytest.fixture
def db(postgres):
    database = ServerAddress(postgres.new_database(empty=True)).connect(5)
    yield database
    database.connection.close()


def test_each_statement_answers_in_its_place(db):
    answers = run_pipeline(db, [(BEGIN, None), (DOUBLED, [1, 2]), (DOUBLED, []), (COMMIT, None)])
    assert answers == [[], [("2",), ("4",)], [], []]
    assert not db.in_transaction


def test_after_one_that_fails_nothing_is_carried_out_and_the_next_trip_is_as_good_as_the_first(db):
    db.execute("CREATE TABLE kept (value INT)")
    keeps = PreparedStatement("keeps", "INSERT INTO kept SELECT (%s::json ->> 0)::int")
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero):
            run_pipeline(db, [(BEGIN, None), (keeps, [1]), (FAILS, [0]), (keeps, [2]), (COMMIT, None)])
        assert db.in_transaction
        db.roll_back()
        assert not db.in_transaction
    assert run_pipeline(db, [(BEGIN, None), (keeps, [3]), (FAILS, [1]), (COMMIT, None)])[2] == [("1",)]
    assert db.execute("SELECT value FROM kept").fetchall() == [(3,)]


@pytest.mark.parametrize("before", range(2, 9))
def test_after_a_transaction_of_psycopg_that_failed_the_next_is_as_good_as_the_first(db, before):
    db.execute("CREATE TABLE kept (value INT PRIMARY KEY)")

    def insert(value):
        db.execute("BEGIN")
        with db.connection.pipeline():  # as the store does with what is not in one of our own
            db.execute("INSERT INTO kept VALUES (?)", (value,))
            db.connection.execute("COMMIT")

    for value in range(before):
        insert(value)
        assert run_pipeline(db, [(DOUBLED, [value])]) == [[(f"{2 * value}",)]]
    with pytest.raises(psycopg.errors.UniqueViolation):
        insert(0)
    db.roll_back()
    insert(100)
    assert run_pipeline(db, [(DOUBLED, [1])]) == [[("2",)]]


@pytest.mark.parametrize("before", range(2, 6))
async def test_a_write_that_waited_in_vain_for_a_lock_breaks_none_after_it(postgres, before):
    url = postgres.new_database()
    store = PostgresStore(url, limit_seconds=5)
    await store.open()
    for number in range(before):
        await store.switch(f"t{number}", "off")
    with psycopg.connect(url) as other:
        other.execute("INSERT INTO switch VALUES ('x', 'off')")
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.switch("x", "off")
        other.rollback()
    await store.switch("y", "off")
    assert set((await store.operating()).switches) == {*(f"t{number}" for number in range(before)), "y"}
    await store.close()


async def test_half_a_surrogate_pair_is_refused_by_a_sentence(postgres):
    store = PostgresStore(postgres.new_database(), limit_seconds=5)
    await store.open()
    await store.register_owner("o1")
    with pytest.raises(UsageError, match="no Unicode text"):
        await store.connect("\ud800", registry_version="r", owner="o1")
    with pytest.raises(UsageError, match="no Unicode text"):
        await store.begin_turn("\ud800", connection=1, input_id="m1")
    with pytest.raises(UsageError, match="no Unicode text"):
        await store.claim(claim(session_id="\ud800"))
    await store.close()


def test_what_cannot_be_written_down_is_refused_before_anything_is_sent(db):
    with pytest.raises(TypeError):
        run_pipeline(db, [(BEGIN, None), (DOUBLED, ["\ud800"]), (COMMIT, None)])
    assert not db.in_transaction
    assert run_pipeline(db, [(DOUBLED, [1])]) == [[("2",)]]


def test_more_than_any_buffer_holds_is_sent_and_answered(db):
    repeated = PreparedStatement("repeated", "SELECT value FROM json_array_elements_text(%s::json) AS value")
    words = [f"{number} {'x' * 60_000}" for number in range(300)]
    asked = [(repeated, words), (repeated, words)]
    assert run_pipeline(db, asked) == [[(word,) for word in words]] * 2


def test_a_server_process_that_is_killed_meanwhile_loses_the_connection_and_not_the_thread(db, postgres):
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as other:
        kills = PreparedStatement("kills", "SELECT pg_terminate_backend(pg_backend_pid()), %s::json")
        with pytest.raises(psycopg.OperationalError):
            run_pipeline(db, [(BEGIN, None), (kills, []), (SILENT, [10]), (COMMIT, None)])
        assert other.execute("SELECT 1").fetchone() == (1,)


async def test_a_store_whose_server_process_was_killed_during_a_claim_goes_on_with_a_new_one(postgres):
    url = postgres.new_database()
    store = PostgresStore(url, limit_seconds=5)
    await store.open()
    await store.register_owner("o1")
    await store.create_session(session())
    assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.CLAIMED
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM session FOR UPDATE")  # so that the claim waits
        asked = asyncio.ensure_future(store.claim(claim("k2", args_digest="d2", claim_id="c2")))
        waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        while not (found := other.execute(waits).fetchall()):
            await asyncio.sleep(0.02)
        other.execute("SELECT pg_terminate_backend(%s)", found[0])
        with pytest.raises(StoreUnavailable):
            await asked
        other.execute("ROLLBACK")
    assert (await store.claim(claim("k2", args_digest="d2", claim_id="c2"))).verdict is ClaimVerdict.CLAIMED
    assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.RUNNING
    await store.close()


async def test_a_database_of_another_alphabet_keeps_its_letters_and_refuses_others_by_a_sentence(postgres):
    name = f"latin_{os.getpid()}"
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    store = PostgresStore(postgres.url(name), limit_seconds=5)
    await store.open()
    await store.register_owner("o1")
    await store.create_session(session())
    row = (await store.claim(claim("k1", args='{"to": "Zoë Müller"}'))).row
    await store.finish(done("k1", claimed=row, envelope='{"said": "für"}'))
    kept = await store.ledger_row("k1")
    assert kept is not None
    assert (kept.args, kept.envelope) == ('{"to": "Zoë Müller"}', '{"said": "für"}')
    with pytest.raises(UsageError, match="cannot keep this value"):
        await store.claim(claim("k2", args='{"to": "東京"}', args_digest="d2"))
    await store.close()
