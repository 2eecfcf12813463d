"""`handrail doctor` on PostgreSQL: each fact that the promises rest on in one sentence, seen with servers that really are so."""

import json
import os
import shutil
import signal
import tempfile
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.loopback_proxy import Pooler
from tests.postgres_server import PostgresServer, postgres_server

from handrail.stores.maintenance import server_checks


@pytest.fixture
def facts(project, handrail, monkeypatch):
    """`facts(url)`: what doctor says of this store, by name."""

    def look(url):
        monkeypatch.setenv("HANDRAIL_STORE_URL", url)
        told = json.loads(handrail("doctor", "--json").out)
        return {
            one["name"].removeprefix("store "): (one["ok"], one["message"])
            for one in told
            if one["name"].startswith("store")
        }

    return look


@pytest.fixture
def url(postgres):
    return postgres.new_database()


def run(url, *statements):
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement)


def database_of(url):
    return conninfo_to_dict(url)["dbname"]


@pytest.fixture
def role(url):
    """A role that may connect and nothing else, and the URL under which it does."""
    name = f"role_{database_of(url)}"
    run(url, f"CREATE ROLE {name} LOGIN PASSWORD 'right'")
    yield name
    run(url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def as_role(url, name, password="right"):
    return url.replace("postgres@", f"{name}:{password}@", 1)


def test_a_server_that_is_well_has_one_sentence_for_each_fact(facts, url):
    found = facts(url)
    assert list(found) == [
        *("store", "version", "pooler", "transport", "writable", "durability", "replication", "clock", "privileges"),
        "migrations",
    ]
    assert [name for name, (ok, _) in found.items() if not ok] == ["durability"]  # fsync is off in the tests
    assert found["version"][1].startswith("PostgreSQL 18.")
    assert found["transport"] == (True, "a socket of this machine")
    assert "before there is one that may take over, set synchronous_standby_names" in found["replication"][1]
    assert "is a superuser; one that owns the tables is enough" in found["privileges"][1]
    assert found["migrations"][1].endswith("which is this release's")
    assert all("\n" not in message for _, message in found.values())


def test_a_look_makes_no_tables(facts, postgres):
    empty = postgres.new_database(empty=True)
    assert facts(empty)["migrations"] == (
        True,
        "no tables yet; `handrail store migrate` makes them, and so does the first start",
    )
    with psycopg.connect(empty) as db:
        assert db.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchone() == (
            0,
        )


def test_a_role_without_rights_is_told_which(facts, url, role):
    ok, message = facts(as_role(url, role))["privileges"]
    assert not ok
    assert f'the role "{role}" lacks SELECT on "' in message
    assert "more; grant it, or let the owner of the tables connect" in message
    run(url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    assert facts(as_role(url, role))["privileges"] == (
        True,
        f'the role "{role}" reads and writes; upgrades need the owner of the tables (`handrail store migrate`)',
    )
    run(url, f"REVOKE DELETE ON rate FROM {role}")
    assert facts(as_role(url, role))["privileges"][1].startswith(f'the role "{role}" lacks DELETE on "rate"; grant it')


def test_a_role_that_may_not_make_tables_is_told_so(facts, postgres, url, role):
    empty = postgres.new_database(empty=True)
    ok, message = facts(as_role(empty, role))["privileges"]
    assert not ok
    assert f'the role "{role}" lacks CREATE on the schema "public"' in message
    run(empty, f"ALTER DATABASE {database_of(empty)} OWNER TO {role}")
    assert facts(as_role(empty, role))["privileges"] == (
        True,
        f'the role "{role}" owns its tables, and is no superuser',
    )
    run(
        empty,
        f"ALTER DATABASE {database_of(empty)} OWNER TO postgres",
        f"REVOKE ALL ON SCHEMA public FROM {role}, public",
    )
    assert "has no schema; grant it USAGE on one" in facts(as_role(empty, role))["privileges"][1]


def test_a_wrong_password_is_one_sentence_without_it(facts, postgres, url, role):
    rules = Path(_setting(url, "hba_file"))
    before = rules.read_text()
    rules.write_text(f"local all {role} scram-sha-256\n{before}")
    try:
        run(url, "SELECT pg_reload_conf()")
        assert facts(as_role(url, role))["store"][0]
        assert facts(as_role(url, role, "wrong")) == {
            "store": (False, f'The store "{database_of(url)}" does not take this password.')
        }
    finally:
        rules.write_text(before)
        run(url, "SELECT pg_reload_conf()")


def _setting(url, name):
    with psycopg.connect(url) as db:
        return db.execute(f"SHOW {name}").fetchone()[0]


def test_a_database_or_server_that_is_not_there_is_one_sentence(facts, url):
    assert facts(url.replace(database_of(url), "nowhere")) == {
        "store": (False, 'The store "nowhere" is not there, or its role is not; create them, or name others.')
    }
    [(ok, message)] = facts("postgresql://nobody@127.0.0.1:1/x").values()
    assert not ok
    assert message.startswith('The store "x" cannot be reached')


def test_tables_of_a_newer_release_and_of_another_program_are_named(facts, postgres, url):
    run(url, "INSERT INTO handrail_migration VALUES (9999, 'later', 0)")
    ok, message = facts(url)["migrations"]
    assert not ok
    assert message.startswith("a newer Handrail wrote this (version 9999; this release knows ")
    other = postgres.new_database(empty=True)
    run(other, "CREATE TABLE theirs (a int)")
    ok, message = facts(other)["migrations"]
    assert not ok
    assert "is a database of another program" in message


def test_older_tables_are_no_failure_and_name_the_command(facts, url):
    run(url, "DELETE FROM handrail_migration WHERE version > 9")
    ok, message = facts(url)["migrations"]
    assert ok
    assert message.startswith("version 9 of ")
    assert "`handrail store migrate`" in message


@pytest.mark.parametrize(
    ("setting", "name", "words"),
    [
        ("default_transaction_read_only = on", "writable", "default_transaction_read_only is on for this role"),
        ("synchronous_commit = off", "durability", "synchronous_commit = off: calls that were answered may be lost"),
        ("synchronous_commit = local", "durability", "synchronous_commit = local"),
    ],
)
def test_a_setting_that_breaks_the_promise_is_named(facts, url, setting, name, words):
    run(url, f"ALTER DATABASE {database_of(url)} SET {setting}")
    ok, message = facts(url)[name]
    assert not ok
    assert words in message


def test_a_clock_that_is_far_off_is_told(facts, url, monkeypatch):
    assert facts(url)["clock"][0]
    monkeypatch.setattr(server_checks, "time", SimpleNamespace(time=lambda: time.time() + 3600))
    ok, message = facts(url)["clock"]
    assert not ok
    assert message.startswith("this machine's clock is 36")
    assert message.endswith("s ahead of the server's, which counts; set the clocks by NTP")


def test_a_server_that_is_too_old_is_told(facts, url, monkeypatch):
    monkeypatch.setattr(server_checks, "_OLDEST", 990_000)
    ok, message = facts(url)["version"]
    assert not ok
    assert "(14 or newer is needed)" in message


def test_a_pooler_is_recognised(facts, url):
    folder = conninfo_to_dict(url)["host"]
    with closing(Pooler(f"{folder}/.s.PGSQL.5432")) as pooler:
        found = facts(f"postgresql://postgres@127.0.0.1:{pooler.port}/{database_of(url)}?sslmode=disable")
    assert found["pooler"] == (
        False,
        "a connection pooler is between, which loses locks; name the PostgreSQL server itself",
    )
    assert found["transport"] == (True, "not encrypted; sslmode=verify-full in the URL asks for TLS")


@pytest.fixture(scope="module")
def primary():
    with postgres_server() as server:
        yield server


def standby_of(primary, folder):
    server = PostgresServer(folder)
    if os.geteuid() == 0:
        os.chown(folder, 65_534, 65_534)
    server.run("pg_basebackup", "-D", server._data, "-R", "-d", primary.url("postgres"), "--checkpoint=fast")
    server.start()
    return server


def wait_for_standbys(url, number):
    deadline = time.monotonic() + 60
    with psycopg.connect(url, autocommit=True) as db:
        query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        while db.execute(query).fetchone() != (number,):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_standbys_are_seen_and_whether_they_know_every_answered_call(facts, primary):
    url = primary.new_database()
    assert facts(url)["durability"] == (True, "fsync is on, synchronous_commit is on")
    folder = Path(tempfile.mkdtemp(prefix="hr-pg-"))
    standby = standby_of(primary, folder)
    try:
        wait_for_standbys(url, 1)
        ok, message = facts(url)["replication"]
        assert not ok
        assert message.startswith("1 standbys, none of them synchronous: a failover may run calls twice")
        there = facts(standby.url(database_of(url)))
        assert there["writable"] == (False, "the server is in recovery: it is a standby; name the primary")
        run(url, "CREATE ROLE stranger LOGIN")
        assert "grant it pg_read_all_stats" in facts(as_role(url, "stranger"))["replication"][1]
        run(url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        _until(lambda: facts(url)["replication"] == (True, "1 of 1 standbys are synchronous"))
    finally:
        standby.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)
    wait_for_standbys(url, 0)
    ok, message = facts(url)["replication"]
    assert not ok
    assert message.startswith("no synchronous standby is connected, so commits wait")


def _until(happened):
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
