"""The file: what can be wrong with it is one sentence, and nothing is lost or written by half."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing

import pytest

from handrail.contract.errors import HandrailError, UsageError
from handrail_reference.services.kb import connection, query_words, tables
from handrail_reference.services.kb.database import KnowledgeDatabase
from handrail_reference.services.kb.port import KbTooSlow, KbUnavailable
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_queries import statistics
from handrail_reference.services.kb.record_writes import Tally, put_records
from handrail_reference.services.kb.service import KnowledgeBase
from handrail_reference.services.kb.tables import MIGRATIONS, migrate


@pytest.fixture
def kind():
    return "sqlite"


def _sentence(path, kind=HandrailError):
    database = KnowledgeDatabase(path)
    try:
        with pytest.raises(kind) as caught:
            database.read_now(statistics)
    finally:
        database.close_now()
    message = str(caught.value)
    assert path.name in message or path.parent.name in message
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path):
    path = tmp_path / "kb.db"
    path.write_bytes(b"this is my diary, not a database " * 50)
    assert "is not a SQLite database" in _sentence(path, UsageError)
    assert path.read_bytes().startswith(b"this is my diary")


def test_a_damaged_file_says_so(tmp_path, open_base):
    path = tmp_path / "broken.db"
    kb = open_base(*({"id": f"doc:{n}", "text": f"some words {n} " * 50} for n in range(200)), path=path)
    kb.database.write_now(lambda db: None)
    kb.database.close_now()
    raw = bytearray(path.read_bytes())
    for place in range(4096, len(raw) - 4096, 4096):
        raw[place : place + 200] = os.urandom(200)
    path.write_bytes(bytes(raw))
    assert "is damaged" in _sentence(path, UsageError)


def test_the_database_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    assert "another program" in _sentence(path, UsageError)


def test_a_newer_file_is_refused(tmp_path, open_base):
    kb = open_base()
    kb.database.write_now(lambda db: db.execute("PRAGMA user_version = 99").fetchall())
    kb.database.close_now()
    assert "newer Handrail" in _sentence(tmp_path / "kb.db", UsageError)


def test_a_folder_and_a_missing_folder_are_named(tmp_path):
    assert "is a folder" in _sentence(tmp_path, UsageError)
    assert "is not there" in _sentence(tmp_path / "nowhere" / "kb.db", UsageError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_says_so(tmp_path):
    path = tmp_path / "kb.db"
    path.touch()
    path.chmod(0)
    assert "cannot be opened" in _sentence(path)


def test_only_the_owner_may_read_the_file(open_base, tmp_path):
    open_base()
    assert stat.S_IMODE((tmp_path / "kb.db").stat().st_mode) == 0o600


def test_a_locked_file_is_said_to_be_locked_and_keeps_what_it_has(open_base, tmp_path):
    kb = open_base({"id": "doc:a", "text": "x"})
    kb.database.write_now(lambda db: None)
    hasty = KnowledgeDatabase(tmp_path / "kb.db", busy_seconds=0.05)
    hasty.write_now(lambda db: None)
    other = sqlite3.connect(tmp_path / "kb.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(KbUnavailable, match="locked"):
        hasty.write_now(lambda db: None)
    assert hasty.read_now(statistics)["records"] == 1
    other.close()
    hasty.write_now(lambda db: None)
    hasty.close_now()


def test_a_full_disk_loses_nothing(open_base):
    kb = open_base({"id": "doc:a", "text": "x"})

    def fill(db):
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages + 1}")
        db.executemany("INSERT INTO fact VALUES (?, ?)", ((f"f{n}", "x" * 3000) for n in range(100)))

    with pytest.raises(KbUnavailable, match="disk is full"):
        kb.database.write_now(fill)
    kb.database.write_now(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchall())
    assert kb.database.read_now(lambda db: db.execute("SELECT count(*) FROM fact WHERE name LIKE 'f%'").fetchone()) == (
        0,
    )
    assert kb.database.read_now(statistics)["records"] == 1


def test_migrations_go_forward_one_by_one(tmp_path):
    db = sqlite3.connect(tmp_path / "kb.db", isolation_level=None)
    migrate(db, "kb.db", MIGRATIONS)
    migrate(db, "kb.db", (*MIGRATIONS, ("CREATE TABLE later (x)",)))
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, "kb.db", (*MIGRATIONS, ("x",), ("CREATE TABLE half (x)", "not sql")))
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    with pytest.raises(UsageError, match="newer"):
        migrate(db, "kb.db", tables.MIGRATIONS)
    db.close()


async def test_an_index_of_another_version_is_made_anew(open_base, monkeypatch):
    kb = open_base({"id": "doc:a", "title": "Marmalade", "text": "In the cellar."})
    await kb.warm_up()
    kb.database.write_now(lambda db: db.execute("INSERT INTO piece_words (piece_words) VALUES ('delete-all')"))
    kb.database.write_now(lambda db: db.execute("UPDATE fact SET value = '0/old' WHERE name = 'index'"))
    again = open_base()
    found = await again.search("cellar", user=None, tenant="")
    assert [one.record.id for one in found] == ["doc:a"]
    assert again.database.read_now(lambda db: db.execute("SELECT value FROM fact").fetchone()) == (
        query_words.INDEX_VERSION,
    )


_SLOW = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"


async def test_what_takes_too_long_is_stopped_and_the_next_search_runs(open_base):
    kb = open_base({"id": "doc:a", "text": "x"})
    with pytest.raises(KbTooSlow, match="did not answer within"):
        await kb.database.read(lambda db: db.execute(_SLOW).fetchone(), 0.05)
    for _ in range(6):
        assert await kb.search("x", user=None, tenant="")


async def test_a_cancelled_search_gives_its_thread_back(open_base):
    kb = open_base({"id": "doc:a", "text": "x"})
    for _ in range(5):
        task = asyncio.create_task(kb.database.read(lambda db: db.execute(_SLOW).fetchone()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await kb.search("x", user=None, tenant="")


async def test_a_search_that_is_cancelled_between_two_statements_is_stopped_in_the_next(open_base):
    kb = open_base({"id": "doc:a", "text": "x"})
    begun, cancelled, ended = threading.Event(), threading.Event(), threading.Event()
    used = []

    def two_statements(db):
        used.append(db)
        begun.set()
        cancelled.wait()
        try:
            db.execute(_SLOW).fetchone()
        finally:
            ended.set()

    task = asyncio.create_task(kb.database.read(two_statements))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cancelled.set()
    try:
        assert await asyncio.to_thread(ended.wait, 30)
    finally:
        used[0].interrupt()


async def test_the_loop_runs_on_while_the_file_is_read(open_base):
    """The reader waits for what only the loop can give it: were the loop held, it would wait in vain."""
    kb = open_base({"id": "doc:a", "text": "x"})
    entered, given = threading.Event(), threading.Event()

    def wait(db):
        entered.set()
        return given.wait(10)

    async def give():
        while not entered.is_set():
            await asyncio.sleep(0.001)
        given.set()

    giving = asyncio.create_task(give())
    assert await kb.database.read(wait) is True
    await giving


async def test_one_reader_computes_at_a_time(open_base, monkeypatch):
    monkeypatch.setattr(connection, "_TURN_SECONDS", 30.0)
    kb = open_base({"id": "doc:a", "text": "x"})
    computing, most = [], []

    def compute(db):
        computing.append(db)
        most.append(len(computing))
        time.sleep(0.005)
        computing.remove(db)

    await asyncio.gather(*(kb.database.read(compute) for _ in range(12)))
    assert most == [1] * 12


async def test_a_reader_that_is_stuck_does_not_keep_the_others(open_base):
    kb = open_base({"id": "doc:a", "text": "x"})
    given = threading.Event()
    stuck = asyncio.create_task(kb.database.read(lambda db: given.wait(30)))
    await asyncio.sleep(0.01)
    assert await kb.search("x", user=None, tenant="")
    assert not stuck.done()
    given.set()
    assert await stuck is True


async def test_a_search_needs_no_lock_of_a_base_that_is_as_it_should_be(open_base, tmp_path):
    kb = open_base(with_starter=True)
    await kb.warm_up()
    await kb.close()
    other = sqlite3.connect(tmp_path / "kb.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    again = KnowledgeBase(tmp_path / "kb.db", with_starter=True)
    again.database._busy = 0.05  # whoever waits for the lock is told that it is locked
    again.database.write_soon = again.database.write_now = None
    found = await again.search("What is Handrail?", user=None, tenant="")
    assert found[0].record.id == "doc:handrail_overview"
    await again.close()
    other.close()


async def test_starter_pages_that_cannot_be_renewed_are_searched_as_they_are(open_base, tmp_path, caplog):
    kb = open_base(with_starter=True)
    await kb.warm_up()
    kb.database.write_now(lambda db: db.execute("UPDATE fact SET value = 'old' WHERE name = 'starter'"))
    other = sqlite3.connect(tmp_path / "kb.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    again = KnowledgeBase(tmp_path / "kb.db", with_starter=True)
    again.database = KnowledgeDatabase(tmp_path / "kb.db", busy_seconds=0.05)
    assert await again.search("What is Handrail?", user=None, tenant="")
    assert "older Handrail" in caplog.text
    other.close()
    await again.close()


@pytest.mark.skipif(os.name != "posix", reason="rights as on Unix")
def test_a_base_that_may_only_be_read_can_be_searched(tmp_path):
    """In a process of its own without the rights of root, which may write everywhere."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    kb = KnowledgeBase(folder / "kb.db")
    kb.database.write_now(lambda db: put_records(db, [make_record({"id": "doc:a", "text": "marmalade"})], Tally()))
    kb.search_now("x", namespaces=["studio"])
    kb.close_now()
    assert not (folder / "kb.db-wal").exists()
    (folder / "kb.db").chmod(0o444)
    folder.chmod(0o555)
    ours = [parent for parent in (tmp_path, *tmp_path.parents) if parent.is_relative_to(tempfile.gettempdir())][:-1]
    for parent in ours:
        parent.chmod(parent.stat().st_mode | 0o055)
    code = f"""
import os, sys
from pathlib import Path
from handrail_reference.services.kb.service import KnowledgeBase
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
kb = KnowledgeBase(Path({str(folder)!r}) / "kb.db", with_starter=True)
print([one.record.id for one in kb.search_now("marmalade", namespaces=["studio"])])
kb.close_now()
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    folder.chmod(0o755)
    if "PermissionError" in said.stderr and "kb.db" not in said.stderr:
        pytest.skip("the project or Python itself is readable for its owner only")
    assert said.stdout == "['doc:a']\n", said.stderr


async def test_a_closed_base_says_so(open_base):
    kb = open_base()
    await kb.close()
    await kb.close()
    with pytest.raises(KbUnavailable, match="closed"):
        await kb.search("x", user=None, tenant="")
