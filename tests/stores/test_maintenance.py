"""A store is brought to this release, checked and copied: from SQLite to PostgreSQL and back, verified, and all or nothing."""

import asyncio
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from tests.stores.filled import fill, nothing_runs_again
from tests.stores.values import session

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores import open_store
from handrail.stores.maintenance import open_access
from handrail.stores.maintenance.checking import check_store
from handrail.stores.maintenance.copying import CopyFailed, copy_store
from handrail.stores.maintenance.tables import declared_tables
from handrail.stores.migrations import MIGRATIONS

KINDS = ("sqlite", "postgres")
WAYS = (("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres"))


@pytest.fixture
def new_url(tmp_path, postgres):
    """`new_url("sqlite", "a")`: the URL of a store that is not there yet."""

    def make(kind, name):
        return f"sqlite:///{tmp_path / f'{name}.db'}" if kind == "sqlite" else postgres.new_database(empty=True)

    return make


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory, postgres):
    """For each kind of store one that was filled, and what was done to it."""
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(f"filled-{kind}")
            url = f"sqlite:///{folder / 'store.db'}" if kind == "sqlite" else postgres.new_database(empty=True)
            with ThreadPoolExecutor(1) as thread:  # a test runs in a loop of its own
                made[kind] = url, thread.submit(asyncio.run, fill(url, folder / "project")).result()
        return made[kind]

    return make


@pytest.fixture
def filled_store(tmp_path, postgres, filled_once):
    """`filled_store("sqlite")`: the URL of a copy of it, made by the database's own means, and what was done."""

    def make(kind):
        url, filled = filled_once(kind)
        if kind == "postgres":
            return postgres.clone(url), filled
        shutil.copy(url.removeprefix("sqlite:///"), tmp_path / "source.db")
        return f"sqlite:///{tmp_path / 'source.db'}", filled

    return make


async def make_tables(url):
    store = open_store(url)
    await store.open()
    await store.close()


def copy(source, target, progress=lambda done, total: None):
    with closing(open_access(source, read_only=False)) as one, closing(open_access(target, read_only=False)) as other:
        return copy_store(one, other, progress)


def findings(url):
    with closing(open_access(url, read_only=True)) as store:
        return list(check_store(store))


def problems(url):
    return [f"{one.name}: {one.message}" for one in findings(url) if not one.ok]


def change(url, statement):
    """What nobody but a person with a tool of the database could do."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as db:
            db.execute(statement)
    else:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("SET session_replication_role = replica")  # no foreign key is looked at
            db.execute(statement)


def is_empty(url):
    with closing(open_access(url, read_only=True)) as store:
        return all(store.count(table) == table.first_rows for table in declared_tables())


# Copying
@pytest.mark.parametrize(("kind", "other"), WAYS)
async def test_a_session_goes_on_in_a_copied_store_and_no_call_runs_again(new_url, filled_store, kind, other):
    (source, filled), target = filled_store(kind), new_url(other, "target")
    await make_tables(target)
    reported = []
    copied = await asyncio.to_thread(copy, source, target, lambda done, total: reported.append((done, total)))
    rows = sum(table.rows for table in copied)
    assert reported[-1] == (2 * rows, 2 * rows)
    assert {table.name: table.rows for table in copied if table.rows}.keys() >= {
        *("session", "ledger", "hold", "hold_token", "alias", "block", "forgetting", "turn_input", "owner", "switch"),
    }
    assert problems(target) == []
    await nothing_runs_again(target, filled)
    assert problems(target) == []


async def test_a_store_that_went_to_postgresql_and_back_is_the_same(new_url, filled_store):
    (first, filled), there, back = filled_store("sqlite"), new_url("postgres", "there"), new_url("sqlite", "back")
    await make_tables(there)
    await make_tables(back)
    copied = await asyncio.to_thread(copy, first, there)
    assert await asyncio.to_thread(copy, there, back) == copied
    await nothing_runs_again(back, filled)


async def _rows_in_order(url):
    store = open_store(url)
    await store.open()
    try:
        return await store.ledger_rows(limit=1000), await store.audit_checkpoints()
    finally:
        await store.close()


async def test_the_newest_calls_are_still_the_newest(new_url, filled_store):
    (source, _), target = filled_store("sqlite"), new_url("postgres", "target")
    change(source, "DELETE FROM ledger WHERE rowid % 7 = 0 AND state = 'succeeded'")  # room between the rows
    await make_tables(target)
    await asyncio.to_thread(copy, source, target)
    assert await _rows_in_order(source) == await _rows_in_order(target)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_that_a_process_uses_is_not_copied(new_url, kind, side):
    urls = {"source": new_url(kind, "source"), "target": new_url(kind, "target")}
    for url in urls.values():
        await make_tables(url)
    used = open_store(urls[side])
    await used.open()
    try:
        await used.register_owner("living")
        with pytest.raises(StoreUnavailable, match=r'is used by a process that runs \("living"\); stop every process'):
            await asyncio.to_thread(copy, urls["source"], urls["target"])
    finally:
        await used.close()
    await asyncio.to_thread(copy, urls["source"], urls["target"])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_process_that_starts_during_a_copy_waits_and_writes_nothing_into_it(new_url, filled_store, kind):
    (source, _), target = filled_store(kind), new_url(kind, "target")
    await make_tables(target)
    begun = []

    async def start(url):
        store = open_store(url)
        await store.open()
        await store.create_session(session("late"))
        await store.close()

    def during(done, total):
        if not begun:
            begun.extend(asyncio.run_coroutine_threadsafe(start(url), loop) for url in (source, target))
        if done == total:
            assert not any(one.done() for one in begun)

    loop = asyncio.get_running_loop()
    copied = await asyncio.to_thread(copy, source, target, during)
    for one in begun:
        await asyncio.wrap_future(one)
    rows = {table.name: table.rows for table in copied}
    with closing(open_access(target, read_only=True)) as store:
        [table] = [one for one in declared_tables() if one.name == "session"]
        assert store.count(table) == rows["session"] + 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_that_is_not_empty_is_not_copied_into(new_url, tmp_path, kind):
    source, target = new_url("sqlite", "source"), new_url(kind, "target")
    for url in (source, target):
        await make_tables(url)
    change(target, "INSERT INTO switch VALUES ('pay', 'off')")
    with pytest.raises(UsageError, match=r'is not empty \("switch" has 1 rows\)'):
        await asyncio.to_thread(copy, source, target)


_KILLED = """
import os, signal, sys
from handrail.stores.maintenance import open_access
from handrail.stores.maintenance.copying import copy_store

def die(done, total):
    if done == int(sys.argv[3]) * total // 10:
        os.kill(os.getpid(), signal.SIGKILL)

copy_store(open_access(sys.argv[1], read_only=False), open_access(sys.argv[2], read_only=False), die)
"""


@pytest.mark.parametrize("tenth", [1, 5, 10])
@pytest.mark.parametrize(("kind", "other"), WAYS[:2])
async def test_a_copy_that_is_killed_leaves_the_target_empty(new_url, filled_store, kind, other, tenth):
    (source, filled), target = filled_store(kind), new_url(other, "target")
    await make_tables(target)
    killed = subprocess.run([sys.executable, "-c", _KILLED, source, target, str(tenth)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert is_empty(target)
    await asyncio.to_thread(copy, source, target)
    await nothing_runs_again(target, filled)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_row_that_came_out_differently_undoes_the_copy(new_url, filled_store, monkeypatch, kind):
    (source, _), target = filled_store("sqlite"), new_url(kind, "target")
    await make_tables(target)
    with closing(open_access(source, read_only=False)) as one, closing(open_access(target, read_only=False)) as other:
        insert = other.insert

        def damaged(table, rows):
            at = table.columns.index("tool") if table.name == "ledger" else None
            insert(table, rows if at is None else ((*row[:at], "other", *row[at + 1 :]) for row in rows))

        monkeypatch.setattr(other, "insert", damaged)
        with pytest.raises(CopyFailed, match='The rows of "ledger" came out differently'):
            copy_store(one, other, lambda done, total: None)
    assert is_empty(target)


async def test_a_text_that_postgresql_cannot_keep_is_named_and_undoes_the_copy(new_url):
    source, target = new_url("sqlite", "source"), new_url("postgres", "target")
    for url in (source, target):
        await make_tables(url)
    change(source, "INSERT INTO switch VALUES ('pay', 'a' || char(0) || 'b')")
    with pytest.raises(UsageError, match='A row of "switch" has a text with the character U'):
        await asyncio.to_thread(copy, source, target)
    assert is_empty(target)


async def test_tables_of_another_release_are_not_copied(new_url):
    source, target = new_url("sqlite", "source"), new_url("postgres", "target")
    await make_tables(source)
    with pytest.raises(UsageError, match=r"has tables of version 0, .* run `handrail store migrate` on it first"):
        await asyncio.to_thread(copy, source, target)
    await make_tables(target)
    change(target, "INSERT INTO handrail_migration VALUES (9999, 'later', 0)")
    with pytest.raises(UsageError, match="was written by a newer Handrail"):
        await asyncio.to_thread(copy, source, target)


# Checking
@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_filled_by_calls_has_no_problem_and_is_not_changed_by_the_look(filled_store, tmp_path, kind):
    url, _ = filled_store(kind)
    before = sorted(tmp_path.iterdir())
    found = findings(url)
    assert [one.message for one in found if not one.ok] == []
    assert {one.name for one in found} == {"migrations", "tables", "integrity", "orphans", "rule"}
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM handrail_migration WHERE version = 3", "migrations: of its migrations, these are not"),
        ("INSERT INTO handrail_migration VALUES (9999, 'later', 0)", "migrations: a newer Handrail wrote this"),
        ("DROP TABLE rate", 'tables: missing: the table "rate"; restore the store from a backup'),
        ("DROP INDEX ledger_open", 'tables: missing: the index "ledger_open"'),
        ("ALTER TABLE hold DROP COLUMN approver", 'tables: missing: the column "approver" of "hold"'),
        ("DELETE FROM session", 'orphans: .* rows of ".*" name rows of "session" that are not there'),
        ("UPDATE ledger SET finished_at = NULL", "rule: settled calls know when they ended"),
        ("UPDATE ledger SET finished_at = 1 WHERE state = 'unknown'", "rule: settled calls know when they ended"),
        ("UPDATE ledger SET envelope = NULL", "rule: settled calls keep their outcome"),
        ("UPDATE ledger SET fence = 2 WHERE state = 'unknown'", "rule: no call with unsafe effects was started twice"),
        (
            "UPDATE ledger SET hold_id = (SELECT hold_id FROM hold WHERE state = 'pending')",
            "rule: a call that needed a confirmation consumed it",
        ),
        ("UPDATE hold SET state = 'consumed'", "rule: a consumed confirmation names its call"),
        ("DELETE FROM ledger", "rule: call ids name calls that are there"),
        ("UPDATE session SET active = 1", "rule: a session that has lost calls stays closed"),
    ],
)
async def test_what_is_wrong_is_found(filled_store, kind, statement, problem):
    url, _ = filled_store(kind)
    change(url, statement)
    found = "\n".join(problems(url))
    assert re.search(problem, found), found


async def test_a_damaged_file_is_found(filled_store, tmp_path):
    url, _ = filled_store("sqlite")
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as db:
        [(page, size)] = db.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master WHERE name = 'ledger'"
        )
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    [problem] = problems(url)
    assert problem.startswith("integrity: ")


def test_what_is_no_store_is_said(new_url, tmp_path, postgres):
    for url, words in (
        (f"sqlite:///{tmp_path / 'none.db'}", "There is no store"),
        ("memory:", '"memory" is neither'),
        ("postgresql://nobody@127.0.0.1:1/x", "cannot be reached"),
    ):
        with pytest.raises(HandrailError, match=words):
            open_access(url, read_only=True)
    url = new_url("postgres", "other")
    change(url, "CREATE TABLE theirs (a int)")
    with pytest.raises(UsageError, match="is a database of another program"):
        findings(url)


def test_the_declared_tables_are_those_of_the_migrations():
    names = [table.name for table in declared_tables()]
    assert names.index("session") < names.index("ledger")
    assert names.index("hold") < names.index("hold_token")
    made = " ".join(statement for step in MIGRATIONS for statement in step.statements)
    assert all(name in made for name in names)
    assert len(names) == len(set(names))
