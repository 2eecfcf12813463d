"""The store in a file: files that are not as they should be, older and newer ones, and several processes on one."""

import asyncio
import errno
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.stores.processes import SPAWN, Racer, claim_and_die, claim_and_wait, race
from tests.stores.values import LEASE, StillClock, claim, done, session

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import ClaimVerdict, LedgerState, StoreUnavailable
from handrail.stores import MemoryStore, SqliteStore, migrations, open_store, sqlite
from handrail.stores.failures import unavailable
from handrail.stores.migrations import MIGRATIONS, Migration, migrate
from handrail.stores.open_files import WalPreallocation
from handrail.stores.owners import OwnerLocks
from handrail.stores.statements.transaction import Life


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[OwnerLocks]:
    made = OwnerLocks(tmp_path / "owners")
    yield made
    made.release_all()


async def opened(path: Path, **options: Any) -> SqliteStore:
    store = SqliteStore(path, **options)
    await store.open()
    return store


async def with_session(path: Path, **options: Any) -> SqliteStore:
    store = await opened(path, **options)
    await store.create_session(session())
    return store


def commits_in(path: Path) -> int:
    """How many transactions the file beside the store holds: the last page of each says how large the store is then."""
    log = path.with_name(path.name + "-wal").read_bytes()
    page_size = int.from_bytes(log[8:12])
    frames = range(32, len(log), 24 + page_size)
    return sum(int.from_bytes(log[start + 4 : start + 8]) > 0 for start in frames)


# URLs


def test_a_url_names_a_store_in_memory_or_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store("memory:"), MemoryStore)
    for url, expected in (("sqlite:///a/b.db", tmp_path / "a/b.db"), ("sqlite:////a/b c.db", Path("/a/b c.db"))):
        store = open_store(url)
        assert isinstance(store, SqliteStore)
        assert store.path == expected


@pytest.mark.parametrize("url", ["", "store.db", "sqlite:", "sqlite:///", "sqlite:///:memory:", "mysql://u:secret@h/d"])
def test_any_other_url_is_refused_with_what_is_possible(url: str) -> None:
    with pytest.raises(UsageError, match=r'"memory:".*sqlite:////absolute\.db') as raised:
        open_store(url)
    assert "secret" not in str(raised.value)


# Files


async def test_a_missing_file_is_made_for_its_user_only_with_full_durability(path: Path) -> None:
    store = await opened(path)
    assert path.stat().st_mode & 0o777 == 0o600
    writer = store._connections[0]
    told = [writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys")]
    assert told == ["wal", 2, 1]
    await store.close()


async def test_what_was_stored_is_there_after_a_restart(path: Path) -> None:
    store = await with_session(path)
    await store.claim(claim())
    await store.finish(done())
    await store.close()
    store = await opened(path)
    assert await store.load_session("s1") == session()
    assert (await store.claim(claim())).verdict is ClaimVerdict.SETTLED
    await store.close()


async def refusal(path: Path, kind: type[HandrailError]) -> str:
    store = SqliteStore(path, busy_ms=50)
    with pytest.raises(kind) as raised:
        await store.open()
    assert raised.value.__cause__ is None
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.operating()
    return str(raised.value)


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "no") in await refusal(tmp_path / "no" / "store.db", UsageError)


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "is a folder" in await refusal(tmp_path, UsageError)


async def test_a_file_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    assert "cannot be opened for writing" in await refusal(Path("/proc/handrail-store.db"), StoreUnavailable)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
async def test_a_file_that_may_only_be_read_is_told(path: Path) -> None:
    path.touch(0o400)
    assert "cannot be opened for writing" in await refusal(path, StoreUnavailable)


async def test_a_text_file_is_not_a_database(path: Path) -> None:
    path.write_text("this is not a database, whatever its name says\n" * 100)
    assert "is not a SQLite database" in await refusal(path, UsageError)
    assert path.read_text().startswith("this is not")


async def test_a_damaged_file_is_told(path: Path) -> None:
    await (await with_session(path)).close()
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)
    assert "is damaged" in await refusal(path, UsageError)


async def test_another_programs_database_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE customer (name)")
    db.close()
    assert "another program" in await refusal(path, UsageError)


async def test_a_file_that_another_process_locks_is_waited_for_in_bounds_and_then_used(path: Path) -> None:
    store = await with_session(path, busy_ms=100)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked by another process"):
        await asyncio.wait_for(store.claim(claim()), 30)
    assert {one.execute("PRAGMA busy_timeout").fetchone() for one in store._connections} == {(100,)}
    assert await store.load_session("s1") is not None
    other.execute("ROLLBACK")
    other.close()
    assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED
    await store.close()


async def test_a_locked_file_is_told_at_the_start(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert "locked by another process" in await refusal(path, StoreUnavailable)
    other.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_was_deleted_or_replaced_is_not_written_into_the_void(path: Path, replaced: bool) -> None:
    store = await with_session(path)
    path.rename(path.with_suffix(".old"))
    if replaced:
        path.touch()
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.claim(claim())
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.load_session("s1")
    path.with_suffix(".old").rename(path)
    assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED
    await store.close()


async def test_a_full_disk_is_told_and_nothing_of_the_call_is_stored(path: Path) -> None:
    store = await with_session(path)
    writer = store._connections[0]
    used = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {used}")
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await store.claim(claim(args="x" * 100_000))
    writer.execute("PRAGMA max_page_count = 1000000")
    assert await store.ledger_row("k1") is None
    assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED
    await store.close()


async def test_a_commit_that_fails_fails_every_call_of_its_batch(path: Path) -> None:
    store = await with_session(path)
    writer = store._connections[0]
    # Deferred, so that only COMMIT notices: the moment at which a real disk fails.
    writer.execute("CREATE TABLE late (x REFERENCES session DEFERRABLE INITIALLY DEFERRED)")
    writer.execute("CREATE TRIGGER fail AFTER INSERT ON ledger BEGIN INSERT INTO late VALUES ('nobody'); END")
    told = await asyncio.gather(
        *(store.claim(claim(f"k{n}", args_digest=f"d{n}")) for n in range(5)), return_exceptions=True
    )
    assert all(isinstance(outcome, HandrailError) for outcome in told)
    assert len({id(outcome) for outcome in told}) == 5
    writer.execute("DROP TRIGGER fail")
    assert await store.ledger_rows() == []
    assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED
    await store.close()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (sqlite3.SQLITE_READONLY, "may only be read"),
        (sqlite3.SQLITE_READONLY | 4 << 8, "may only be read"),
        (sqlite3.SQLITE_IOERR | 3 << 8, "disk reports an error"),
        (sqlite3.SQLITE_CORRUPT, "is damaged"),
        (sqlite3.SQLITE_NOMEM, "did not answer"),
        (None, "did not answer"),
    ],
)
def test_what_the_database_says_is_told_in_a_sentence(code: int | None, told: str) -> None:
    error = sqlite3.OperationalError("words of SQLite")
    if code is not None:
        error.sqlite_errorcode = code
    failure = unavailable("store.db", error)
    assert isinstance(failure, StoreUnavailable)
    assert str(failure).startswith('The store "store.db" ')
    assert told in str(failure)


async def test_the_event_loop_goes_on_while_the_disk_waits(path: Path) -> None:
    store = await with_session(path, busy_ms=20_000)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(store.claim(claim()))
    for _ in range(10):
        await asyncio.sleep(0.01)
    assert not waiting.done()
    other.execute("ROLLBACK")
    assert (await waiting).verdict is ClaimVerdict.CLAIMED
    other.close()
    await store.close()


async def test_what_waits_at_once_is_committed_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WalPreallocation, "make", lambda *_: False)  # which commits too
    store = await with_session(path)
    before = commits_in(path)
    await asyncio.gather(*(store.claim(claim(f"k{n}", args_digest=f"d{n}")) for n in range(100)))
    assert 1 <= commits_in(path) - before <= 10
    await store.close()


@pytest.mark.parametrize("count", [1, 2, 64, 513, 1_100])
async def test_claims_and_outcomes_that_nothing_stands_against_are_never_carried_out_one_by_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    store = await with_session(path)
    alone: list[object] = []
    monkeypatch.setattr(SqliteStore, "_carry_out", lambda *_: alone.append("one"))
    given = await asyncio.gather(*(store.claim(claim(f"k{n}", args_digest=f"d{n}")) for n in range(count)))
    await asyncio.gather(*(store.finish(done(f"k{n}", claimed=result.row)) for n, result in enumerate(given)))
    assert alone == []
    assert {row.state for row in await store.ledger_rows(limit=2_000)} == {LedgerState.SUCCEEDED}
    await store.close()


async def test_closing_waits_for_what_was_asked(path: Path) -> None:
    store = await with_session(path)
    tasks = [asyncio.create_task(store.claim(claim(f"k{n}", args_digest=f"d{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert {result.verdict for result in await asyncio.gather(*tasks)} == {ClaimVerdict.CLAIMED}


def test_a_store_serves_one_event_loop_after_another(path: Path) -> None:
    store = asyncio.run(with_session(path))
    assert asyncio.run(store.claim(claim())).verdict is ClaimVerdict.CLAIMED
    asyncio.run(store.close())


# Migrations
ALL_VERSIONS = [(step.version, step.name) for step in MIGRATIONS]


def versions(path: Path) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(path)
    rows = db.execute("SELECT version, name FROM handrail_migration ORDER BY version").fetchall()
    db.close()
    return rows


async def test_an_older_file_is_brought_forward_and_keeps_its_content(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await with_session(path)
    await old.claim(claim())
    await old.close()
    added = Migration(
        len(MIGRATIONS) + 1, "notes", ("ALTER TABLE session ADD COLUMN note TEXT", "CREATE TABLE extra (x)")
    )
    monkeypatch.setattr(sqlite, "migrate", lambda db, name, now: migrate(db, name, now, (*MIGRATIONS, added)))
    store = await opened(path)
    assert (await store.claim(claim(owner="o2"))).verdict is ClaimVerdict.RUNNING
    await store.close()
    assert versions(path) == [*ALL_VERSIONS, (added.version, "notes")]


async def test_a_file_of_which_only_the_table_of_versions_was_made_is_completed(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE handrail_migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER)")
    db.close()
    store = await with_session(path)
    await store.close()
    assert versions(path) == ALL_VERSIONS


async def test_a_step_that_fails_leaves_the_version_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await with_session(path)).close()
    broken = Migration(len(MIGRATIONS) + 1, "broken", ("CREATE TABLE half (x)", "CREATE TABLE session (again)"))
    monkeypatch.setattr(sqlite, "migrate", lambda db, name, now: migrate(db, name, now, (*MIGRATIONS, broken)))
    with pytest.raises(StoreUnavailable):
        await SqliteStore(path).open()
    assert versions(path) == ALL_VERSIONS
    monkeypatch.undo()
    store = await opened(path)
    assert await store.load_session("s1") == session()
    await store.close()


async def test_a_start_is_tried_again_while_others_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    def busy_at_first(db: sqlite3.Connection, name: str, now: int) -> None:
        attempts.append(name)
        if len(attempts) < 3:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        migrate(db, name, now)

    monkeypatch.setattr(sqlite, "migrate", busy_at_first)
    store = await with_session(path)
    assert len(attempts) == 3
    await store.close()


async def test_a_newer_file_is_refused_in_one_sentence_and_left_as_it_is(path: Path) -> None:
    await (await with_session(path)).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO handrail_migration VALUES (99, 'from the future', 0)")
    db.close()
    told = f"newer Handrail (its tables have version 99; this one knows {len(MIGRATIONS)})"
    assert told in await refusal(path, UsageError)
    assert versions(path)[-1] == (99, "from the future")


def test_migrations_are_numbered_without_gaps() -> None:
    assert [step.version for step in migrations.MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


# Owners


def test_an_owner_lives_in_the_eyes_of_another_until_it_is_released(locks: OwnerLocks, tmp_path: Path) -> None:
    other = OwnerLocks(tmp_path / "owners")
    assert other.life("o1", None) is Life.ENDED
    locks.take("o1")
    assert other.life("o1", None) is Life.ALIVE
    assert locks.life("o1", None) is Life.ALIVE
    locks.release("o1")
    assert other.life("o1", None) is Life.ENDED


def test_an_owners_name_may_hold_anything(locks: OwnerLocks, tmp_path: Path) -> None:
    for name in ("host:12/../../x", "", ".hidden", "ü" * 300):
        locks.take(name)
        assert OwnerLocks(tmp_path / "owners").life(name, None) is Life.ALIVE
    assert len(list((tmp_path / "owners").iterdir())) == 4


def test_a_name_that_another_holds_is_refused(locks: OwnerLocks, tmp_path: Path) -> None:
    locks.take("o1")
    with pytest.raises(UsageError, match="registered already"):
        OwnerLocks(tmp_path / "owners").take("o1")


def test_files_of_dead_owners_are_swept_and_those_of_living_ones_left(locks: OwnerLocks, tmp_path: Path) -> None:
    locks.take("living")
    (tmp_path / "owners" / "dead.lock").touch()
    other = OwnerLocks(tmp_path / "owners")
    other.take("new")
    other.sweep([])
    assert sorted(path.name for path in (tmp_path / "owners").iterdir()) == ["living.lock", "new.lock"]
    assert locks.life("living", None) is Life.ALIVE
    other.release_all()


def test_a_lock_on_a_file_that_was_swept_meanwhile_is_taken_again(
    locks: OwnerLocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, swept = tmp_path / "owners" / "o1.lock", os.open, []

    def swept_in_between(file: Any, flags: int, mode: int = 0o777) -> int:
        descriptor = real(file, flags, mode)
        if Path(file) == path and not swept:
            swept.append(path.unlink())
        return descriptor

    monkeypatch.setattr("handrail.stores.owners.os.open", swept_in_between)
    locks.take("o1")
    monkeypatch.undo()
    assert OwnerLocks(tmp_path / "owners").life("o1", None) is Life.ALIVE


def test_in_doubt_an_owner_lives(locks: OwnerLocks, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> int:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr("handrail.stores.owners.os.open", forbidden)
    assert locks.life("somebody", None) is Life.ALIVE


async def test_owners_of_two_stores_in_one_process_see_each_other(path: Path) -> None:
    clock = StillClock()
    first, second = await with_session(path, clock=clock), await opened(path, clock=clock)
    await first.register_owner("o1")
    await first.claim(claim(effects="idempotent"))
    clock.pass_ms(LEASE + 1)
    assert (await second.claim(claim(effects="idempotent", owner="o2"))).verdict is ClaimVerdict.RUNNING
    await first.close()
    assert (await second.claim(claim(effects="idempotent", owner="o2"))).verdict is ClaimVerdict.TAKEN_OVER
    await second.close()


# Processes


def test_processes_that_start_on_one_new_file_and_race_for_its_keys_claim_each_once(path: Path) -> None:
    racers = [Racer.start(race, str(path), f"p{n}", 150) for n in range(4)]
    assert [racer.told() for racer in racers] == ["ready"] * 4

    async def begin() -> None:
        await (await with_session(path)).close()

    asyncio.run(begin())
    for racer in racers:
        racer.pipe.send("go")
    won = Counter(key for racer in racers for key in racer.told())
    for racer in racers:
        racer.end()
    assert won == {f"k{n}": 1 for n in range(150)}

    async def outcomes() -> set[LedgerState]:
        store = await opened(path)
        rows = await store.ledger_rows(limit=1_000)
        await store.close()
        return {row.state for row in rows}

    assert asyncio.run(outcomes()) == {LedgerState.SUCCEEDED}


async def test_calls_of_a_killed_process_become_unknown_or_are_taken_over(path: Path) -> None:
    store = await with_session(path)
    await store.register_owner("o1")
    process = SPAWN.Process(target=claim_and_die, args=(str(path), "victim"))
    process.start()
    await asyncio.to_thread(process.join, 60)
    assert process.exitcode == -9
    await asyncio.sleep(0.1)
    assert (await store.claim(claim("unsafe"))).verdict is ClaimVerdict.UNKNOWN
    taken = await store.claim(claim("safe", args_digest="d2", effects="idempotent"))
    assert (taken.verdict, taken.fence) == (ClaimVerdict.TAKEN_OVER, 2)
    await store.close()


async def test_a_clock_that_jumps_takes_nothing_from_a_living_process(path: Path) -> None:
    clock = StillClock()
    store = await with_session(path, clock=clock)
    racer = Racer.start(claim_and_wait, str(path), "living")
    assert await asyncio.to_thread(racer.told) == "claimed"
    clock.now = 4_000_000_000_000
    mine = claim(owner="o1", effects="idempotent")
    assert (await store.claim(mine)).verdict is ClaimVerdict.RUNNING
    racer.pipe.send("end")
    racer.end()
    assert (await store.claim(mine)).verdict is ClaimVerdict.TAKEN_OVER
    await store.close()


def test_without_file_locks_an_owner_is_refused_in_a_sentence(
    locks: OwnerLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handrail.stores.owners.fcntl", None)
    with pytest.raises(UsageError, match="file locks"):
        locks.take("o1")


async def test_an_old_sqlite_is_refused_in_a_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(sqlite_version_info=(3, 34, 1), sqlite_version="3.34.1", Error=sqlite3.Error)
    monkeypatch.setattr(sqlite, "sqlite3", old)
    assert "3.34.1" in await refusal(path, UsageError)
