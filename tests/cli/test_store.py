"""`handrail store`: what it says, its exit codes, and that a look or a dry run changes nothing."""

import json
import sqlite3
from contextlib import closing

import pytest

from handrail.stores.migrations import MIGRATIONS, migrate

NEWEST = MIGRATIONS[-1].version


@pytest.fixture
def old(project):
    """The project's store as an older release left it."""
    with closing(sqlite3.connect(project / "handrail.db", isolation_level=None)) as db:
        migrate(db, "handrail.db", 0, MIGRATIONS[:9])
    return project / "handrail.db"


def version_of(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT max(version) FROM handrail_migration").fetchone()[0]


def test_migrate_says_from_where_to_where_and_which_steps(old, handrail):
    said = handrail("store", "migrate", "--dry-run")
    assert said.code == 0
    assert f"The tables would go from version 9 to {NEWEST}. Nothing was changed." in said.out
    assert f"  11  {MIGRATIONS[10].name}" in said.out
    assert version_of(old) == 9
    assert f"The tables went from version 9 to {NEWEST}." in handrail("store", "migrate").out
    assert version_of(old) == NEWEST
    assert handrail("store", "migrate").out == f"The tables are at version {NEWEST}, which is this release's.\n"


def test_migrate_tells_programs_the_same(old, handrail):
    told = json.loads(handrail("store", "migrate", "--dry-run", "--json").out)
    assert (told["from"], told["to"], told["done"]) == (9, NEWEST, False)
    assert [step["version"] for step in told["steps"]] == list(range(10, NEWEST + 1))


def test_a_dry_run_makes_no_file(project, handrail):
    assert f"would go from version 0 to {NEWEST}" in handrail("store", "migrate", "--dry-run").out
    assert not (project / "handrail.db").exists()
    assert handrail("store", "migrate").code == 0
    assert (project / "handrail.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("words", [["migrate"], ["migrate", "--dry-run"]])
def test_tables_of_a_newer_release_are_left_alone(old, handrail, words):
    assert handrail("store", "migrate").code == 0
    with closing(sqlite3.connect(old, isolation_level=None)) as db:
        db.execute("INSERT INTO handrail_migration VALUES (9999, 'later', 0)")
    said = handrail("store", *words)
    assert said.code == 2
    assert "was written by a newer Handrail (its tables have version 9999" in said.err


def test_check_has_an_exit_code(built, handrail):
    assert handrail("call", "lookup_order", "--args", '{"id": "A-1001"}').code == 0
    said = handrail("store", "check")
    assert said.code == 0, said.out
    assert "FAIL" not in said.out
    assert "ok    orphans    every row that is referred to is there" in said.out
    with closing(sqlite3.connect(built / "handrail.db", isolation_level=None)) as db:
        db.execute("UPDATE session SET pruned = 1, active = 1")
    said = handrail("store", "check", "--json")
    assert said.code == 1
    assert [one["message"] for one in json.loads(said.out) if not one["ok"]] == [
        'a session that has lost calls stays closed: 1 of "session" break it'
    ]


def test_check_of_tables_of_an_older_release_names_the_command(old, handrail):
    said = handrail("store", "check")
    assert said.code == 1
    assert "`handrail store migrate` brings it to this release" in said.out


def test_copy_to_postgresql_and_on_with_it(built, handrail, postgres, monkeypatch):
    assert handrail("call", "lookup_order", "--args", '{"id": "A-1001"}').code == 0
    url = postgres.new_database(empty=True)
    said = handrail("store", "copy", "sqlite:///handrail.db", url)
    assert said.code == 0, said.err
    assert "copied and verified" in said.out
    monkeypatch.setenv("HANDRAIL_STORE_URL", url)
    assert handrail("store", "check").code == 0
    assert handrail("audit", "verify").code == 0
    assert handrail("call", "lookup_order", "--args", '{"id": "A-1001"}').code == 0
    again = handrail("store", "copy", "sqlite:///handrail.db", url)
    assert again.code == 2
    assert "is not empty" in again.err


def test_copy_tells_programs_each_table_with_its_digest(built, handrail):
    assert handrail("call", "lookup_order", "--args", '{"id": "A-1001"}').code == 0
    told = json.loads(handrail("store", "copy", "sqlite:///handrail.db", "sqlite:///other.db", "--json").out)
    assert told["rows"] == sum(table["rows"] for table in told["tables"])
    [session] = [table for table in told["tables"] if table["name"] == "session"]
    assert (session["rows"], len(session["sha256"])) == (1, 64)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["copy", "sqlite:///a.db", "sqlite:///a.db"], "cannot be copied to itself"),
        (["copy", "sqlite:///none.db", "sqlite:///b.db"], "There is no store"),
        (["copy", "redis://:secret@x", "sqlite:///b.db"], '"redis" is neither'),
        (["check", "memory:"], "kept in memory"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(project, handrail, words, said):
    done = handrail("store", *words)
    assert done.code == 2
    assert said in done.err
    assert "secret" not in done.err
    assert not list(project.glob("*.db"))
