"""A log, a store or a lock that is gone or replaced is noticed before anything relies on it."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.stores.processes import Racer, checkpoint, checkpoint_often, come_and_go, obey
from tests.stores.values import claim, done, session

from handrail.contract.errors import UsageError
from handrail.contract.store import ClaimVerdict, LedgerState, StoreUnavailable
from handrail.stores import SqliteStore, sqlite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def with_session(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    await store.create_session(session())
    return store


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def deleted(file: Path) -> None:
    file.unlink()


def replaced(file: Path) -> None:
    copy = file.with_suffix(".copy")
    shutil.copy(file, copy)
    copy.replace(file)


def linked(file: Path) -> None:
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


@pytest.mark.parametrize("happens", [deleted, replaced, linked])
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
async def test_a_log_that_is_gone_or_replaced_is_noticed_before_the_next_claim(
    path: Path, suffix: str, happens: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    store = await with_session(path)
    happens(beside(path, suffix))
    for _ in range(2):
        with pytest.raises(
            StoreUnavailable, match=rf'"store\.db{suffix}" was deleted or replaced while in use; restart'
        ):
            await store.claim(claim())
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            await store.operating()
    assert [record.levelname for record in caplog.records] == ["ERROR"], "once"
    await store.close()


@pytest.mark.parametrize("happens", [deleted, replaced, linked])
async def test_it_is_noticed_too_in_a_folder_that_was_left_alone_for_long(
    path: Path, happens: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handrail.stores.open_files.SETTLED_NS", 50_000_000)
    store = await with_session(path)
    async with asyncio.timeout(60):
        while store._files is None or store._files._settled is None:
            await store.operating()
    before = path.parent.stat()
    happens(beside(path, "-wal"))
    os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a program does that restores copies
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.claim(claim())
    await store.close()


async def test_a_log_that_is_lost_by_a_reader_is_lost_for_writers_too(path: Path) -> None:
    store = await with_session(path)
    beside(path, "-wal").rename(path.with_suffix(".aside"))
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.operating()
    path.with_suffix(".aside").rename(beside(path, "-wal"))
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.claim(claim())
    await store.close()


async def test_a_commit_into_a_log_that_is_gone_is_not_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await with_session(path)
    commit = sqlite._claim_all

    def too_late(*given: Any) -> Any:
        beside(path, "-wal").unlink()
        return commit(*given)

    monkeypatch.setattr(sqlite, "_claim_all", too_late)
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.claim(claim())
    await store.close()


def test_a_killed_process_whose_log_was_deleted_leaves_every_call_that_it_began(path: Path) -> None:
    asyncio.run(_begin(path))
    victim = Racer.start(obey, str(path), "victim")
    assert victim.told() == "open"
    assert victim.ask("before") == "claimed"
    beside(path, "-wal").unlink()
    assert "deleted or replaced" in victim.ask("after")
    victim.kill()

    async def met() -> list[ClaimVerdict]:
        store = SqliteStore(path)
        await store.open()
        unsafe = [claim(key, args_digest=key) for key in ("before", "after")]
        verdicts = [(await store.claim(one)).verdict for one in unsafe]
        await store.close()
        return verdicts

    assert asyncio.run(met()) == [ClaimVerdict.UNKNOWN, ClaimVerdict.CLAIMED]


async def _begin(path: Path) -> None:
    await (await with_session(path)).close()


@pytest.mark.parametrize("other", ["nothing", "empty", "written"])
async def test_a_lost_log_is_saved_unless_somebody_has_written_another(
    path: Path, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = await with_session(path)
    await store.claim(claim())
    beside(path, "-wal").unlink()
    if other != "nothing":
        beside(path, "-wal").write_bytes(b"" if other == "empty" else b"frames of another process")
    with pytest.raises(StoreUnavailable):
        await store.finish(done())
    saved = other != "written"
    assert ("Everything that was committed is in" in caplog.text) is saved
    assert ("is lost" in caplog.text) is not saved
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    db = sqlite3.connect(f"{copy.as_uri()}?immutable=1", uri=True)
    found = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'ledger'").fetchone()[0]
    assert bool(found) is saved
    if saved:
        assert db.execute("SELECT key, state FROM ledger").fetchall() == [("k1", "running")]
    db.close()
    await store.close()


async def test_processes_that_come_and_go_are_no_reason_for_alarm(path: Path) -> None:
    store = await with_session(path)
    await store.register_owner("o1")
    racers = [Racer.start(come_and_go, str(path), 15) for _ in range(2)]
    number = 0
    while not all(racer.pipe.poll() for racer in racers):
        number += 1
        wish = claim(f"k{number}", args_digest=f"d{number}")
        assert (await store.claim(wish)).verdict is ClaimVerdict.CLAIMED
        await asyncio.sleep(0.005)
    for racer in racers:
        assert racer.told() == "done"
        racer.end()
    await store.close()


async def test_a_second_opening_in_one_process_leaves_the_log_to_the_first(path: Path) -> None:
    """Whoever opens and closes the file itself would give up the locks that keep others from deleting its log."""
    first = await with_session(path)
    second = SqliteStore(path)
    await second.open()
    log = beside(path, "-wal").stat()
    racer = Racer.start(come_and_go, str(path), 1)
    assert await asyncio.to_thread(racer.told) == "done"
    racer.end()
    assert os.path.samestat(log, beside(path, "-wal").stat())
    assert (await first.claim(claim())).verdict is ClaimVerdict.CLAIMED
    await second.close()
    await first.close()


# Changed in place


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1_000)


def overwritten(file: Path) -> None:
    with file.open("r+b") as content:
        content.write(os.urandom(64))


@pytest.mark.parametrize("happens", [emptied, cut_short, overwritten])
def test_a_log_that_is_changed_in_place_is_noticed_before_the_next_claim(
    path: Path, happens: Callable[[Path], None]
) -> None:
    asyncio.run(_begin(path))
    victim = Racer.start(obey, str(path), "victim")
    assert victim.told() == "open"
    assert victim.ask("before") == "claimed"
    happens(beside(path, "-wal"))
    for order in ("after", "later"):
        assert '"store.db-wal" was truncated or overwritten while in use' in victim.ask(order)
    victim.kill()

    async def met() -> ClaimVerdict:
        store = SqliteStore(path)
        await store.open()
        verdict = (await store.claim(claim("after", args_digest="after"))).verdict
        await store.close()
        return verdict

    assert asyncio.run(met()) is ClaimVerdict.CLAIMED, "the refused claim left nothing"


async def test_a_commit_into_a_log_that_was_emptied_just_before_is_not_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = await with_session(path)
    await store.claim(claim("k0", args_digest="d0"))
    commit = sqlite._claim_all

    def too_late(*given: Any) -> Any:
        emptied(beside(path, "-wal"))
        return commit(*given)

    monkeypatch.setattr(sqlite, "_claim_all", too_late)
    with pytest.raises(StoreUnavailable, match="truncated or overwritten"):
        await store.claim(claim())
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    before = path.read_bytes()
    await store.close()
    assert path.read_bytes() == before, "what is left of the log is not copied over the main file"


async def test_a_commit_into_an_overwritten_log_is_not_acknowledged_whatever_its_time_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits are faster than the ticks in which a file's time is kept, and some file systems keep seconds."""
    store = await with_session(path)
    with beside(path, "-wal").open("r+b") as log:
        log.truncate(1_000_000)  # so that a commit does not change its length
    look = os.fstat

    def timeless(descriptor: int) -> Any:
        found = look(descriptor)
        same = {name: getattr(found, name) for name in ("st_dev", "st_ino", "st_size", "st_mode", "st_nlink")}
        return SimpleNamespace(**same, st_mtime_ns=0, st_ctime_ns=0)

    monkeypatch.setattr(os, "fstat", timeless)
    assert (await store.claim(claim("k0", args_digest="d0"))).verdict is ClaimVerdict.CLAIMED
    overwritten(beside(path, "-wal"))
    with pytest.raises(StoreUnavailable, match="truncated or overwritten"):
        await store.claim(claim())
    monkeypatch.undo()
    await store.close()


async def test_a_store_that_is_overwritten_in_place_is_noticed(path: Path) -> None:
    store = await with_session(path)
    await store.close()
    backup = path.with_suffix(".backup")
    shutil.copy(path, backup)
    store = SqliteStore(path)
    await store.open()
    for number in range(100):
        await store.claim(claim(f"k{number}", args_digest=f"d{number}"))
    _checkpoint(path, "PASSIVE")
    await store.claim(claim("before", args_digest="before"))
    shutil.copyfile(backup, path)
    with pytest.raises(StoreUnavailable, match=r'"store\.db" was truncated or overwritten'):
        await store.claim(claim("after", args_digest="after"))
    await store.close()


def _checkpoint(path: Path, mode: str) -> None:
    """In a process of its own: a connection of this one that is closed would drop the store's locks."""
    racer = Racer.start(checkpoint, str(path), mode)
    assert racer.told() == "done"
    racer.end()


@pytest.mark.parametrize("mode", ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
async def test_checkpoints_of_other_processes_are_no_reason_for_alarm(path: Path, mode: str) -> None:
    store = await with_session(path)
    other = Racer.start(obey, str(path), "other")
    assert await asyncio.to_thread(other.told) == "open"
    for number in range(3):
        wish = claim(f"k{number}", args_digest=f"d{number}")
        assert (await store.claim(wish)).verdict is ClaimVerdict.CLAIMED
        await asyncio.to_thread(_checkpoint, path, mode)
        assert await asyncio.to_thread(other.ask, f"o{number}") == "claimed"
        os.utime(path)
        os.utime(beside(path, "-wal"))
    assert (await store.claim(claim("last", args_digest="last"))).verdict is ClaimVerdict.CLAIMED
    await asyncio.to_thread(other.pipe.send, "end")
    other.end()
    await store.close()


async def test_checkpoints_under_load_are_no_reason_for_alarm(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handrail.stores.sqlite.LOG_PAGES", 20)
    store = await with_session(path)
    racers = [Racer.start(checkpoint_often, str(path)) for _ in range(2)]
    number = 0
    while not all(racer.pipe.poll() for racer in racers):
        number += 1
        wish = claim(f"k{number}", args_digest=f"d{number}")
        assert (await store.claim(wish)).verdict is ClaimVerdict.CLAIMED
    for racer in racers:
        assert racer.told() == "done"
        racer.end()
    await store.close()


# Links


@pytest.mark.parametrize("suffix", ["-wal", "-shm", ".owners"])
async def test_a_file_beside_the_store_that_is_a_link_is_refused_at_the_start(path: Path, suffix: str) -> None:
    await _begin(path)
    beside(path, suffix).symlink_to(path.with_suffix(".elsewhere"))
    with pytest.raises(UsageError, match=rf'"store\.db{suffix}" is a link'):
        await SqliteStore(path).open()


async def test_a_store_with_two_names_is_refused_at_the_start(path: Path) -> None:
    await _begin(path)
    os.link(path, path.with_suffix(".too"))
    for name in (path, path.with_suffix(".too")):
        with pytest.raises(UsageError, match=r"has 2 names \(hard links\)"):
            await SqliteStore(name).open()


async def test_a_store_that_is_mounted_alone_is_refused_at_the_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = path.with_suffix(".mounts")
    mounts.write_text(f"36 35 98:0 /x/store.db {path} rw,noatime shared:1 - ext4 /dev/sda rw\n")
    monkeypatch.setattr("handrail.stores.open_files._MOUNTS", mounts)
    with pytest.raises(UsageError, match="mounted as a single file"):
        await SqliteStore(path).open()


async def test_a_living_owner_lives_whichever_link_the_store_is_reached_through(path: Path, tmp_path: Path) -> None:
    store = await with_session(path)
    await store.register_owner("o1")
    await store.claim(claim(lease_ms=-1))
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    other = SqliteStore(link)
    await other.open()
    assert (await other.claim(claim(owner="o2"))).verdict is ClaimVerdict.RUNNING
    row = await other.ledger_row("k1")
    assert row is not None
    assert row.state is LedgerState.RUNNING
    await other.close()
    await store.close()


async def test_a_link_to_a_store_that_is_not_there_yet_makes_it_where_it_points(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    await (await with_session(link)).close()
    assert path.is_file()
