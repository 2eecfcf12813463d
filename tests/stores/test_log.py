"""The log of a store in a file is given its length while nobody waits, so that commits need not lengthen it."""

import asyncio
import shutil
import sqlite3
import threading
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.stores.values import claim, done, session

from handrail.contract.store import ClaimVerdict
from handrail.stores import SqliteStore, open_files
from handrail.stores.worker import Worker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def length(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


async def written(store: SqliteStore) -> None:
    """As much as makes room worth it."""
    while store._preallocation is None or store._preallocation._left is None:
        await store.switch("another", "broken")


async def has_room(store: SqliteStore) -> None:
    while store._preallocation is None or not store._preallocation.is_made:
        await asyncio.sleep(0.005)


async def with_room(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    await store.create_session(session())
    await written(store)
    await has_room(store)
    return store


async def test_a_commit_does_not_lengthen_the_log(path: Path) -> None:
    store = await with_room(path)
    long = length(path)
    assert long >= open_files.LOG_PAGES * 4_096
    for number in range(60):
        result = await store.claim(claim(f"k{number}", args_digest=f"d{number}"))
        assert result.verdict is ClaimVerdict.CLAIMED
        await store.finish(done(f"k{number}", claimed=result.row))
    assert length(path) == long
    assert len(await store.ledger_rows()) == 60
    await store.close()
    again = SqliteStore(path)
    await again.open()
    assert len(await again.ledger_rows()) == 60
    await again.close()


async def test_what_is_committed_afterwards_is_on_the_disk(path: Path) -> None:
    store = await with_room(path)
    writer = store._connections[0]
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,), "FULL, as it was"
    assert writer.execute("PRAGMA busy_timeout").fetchone() == (2_000,)
    await store.close()


async def test_a_store_that_is_only_read_makes_no_room(path: Path) -> None:
    await (await with_room(path)).close()
    store = SqliteStore(path)
    await store.open()
    assert await store.load_session("nobody") is None
    await store.close()
    assert store._preallocation is not None
    assert not store._preallocation.is_made


async def test_a_store_that_is_hardly_written_to_makes_no_room(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    for _ in range(10):
        await store.switch("another", "broken")
    await store.close()
    assert store._preallocation is not None
    assert store._preallocation._left is None


async def test_a_log_that_is_long_enough_is_left_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process, or this one earlier, has lengthened it."""
    first = await with_room(path)
    pages: list[object] = []
    monkeypatch.setattr(open_files, "commit_unchanged_page", lambda *given: pages.append(given))
    second = SqliteStore(path)
    await second.open()
    await written(second)
    await has_room(second)
    await second.close()
    await first.close()
    assert pages == []


async def test_a_disk_without_room_is_told_to_those_who_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(open_files, "commit_unchanged_page", full)
    store = await with_room(path)
    assert length(path) < open_files.LOG_PAGES * 4_096
    assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.CLAIMED
    await store.close()


async def test_a_disk_that_is_nearly_full_is_left_to_those_who_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=8 * 1024 * 1024))
    store = await with_room(path)
    assert length(path) < open_files.LOG_PAGES * 4_096
    await store.close()


async def test_however_large_the_pages_no_more_are_written_than_the_log_will_hold(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sqlite3.connect(path)
    made.execute("PRAGMA page_size = 1024")
    made.execute("VACUUM")
    made.close()
    write, lengths = open_files.commit_unchanged_page, []

    def counted(*given: Any) -> None:
        lengths.append(length(path))
        write(*given)

    monkeypatch.setattr(open_files, "commit_unchanged_page", counted)
    store = await with_room(path)
    await store.close()
    with_header = 1024 + 24
    taken = lengths[0] // with_header  # by the tables and the first writes
    assert taken + len(lengths) == open_files.LOG_PAGES
    assert [after - before for before, after in pairwise(lengths)] == [with_header] * (len(lengths) - 1)


async def test_another_process_that_writes_is_given_way_to(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, met = open_files.commit_unchanged_page, asyncio.Event()
    loop = asyncio.get_running_loop()

    enough = threading.Event()

    def watched(*given: Any) -> None:
        if enough.is_set():
            raise OSError
        try:
            write(*given)
        except sqlite3.OperationalError:
            loop.call_soon_threadsafe(met.set)
            raise

    monkeypatch.setattr(open_files, "commit_unchanged_page", watched)
    monkeypatch.setattr(open_files, "LOG_PAGES", 1 << 40)
    store = SqliteStore(path, busy_ms=600_000)
    await store.open()
    await store.create_session(session())
    await written(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    await asyncio.wait_for(met.wait(), 60)  # and not after ten minutes
    other.execute("COMMIT")
    other.close()
    assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.CLAIMED
    assert store._preallocation is not None
    assert not store._preallocation.is_made, "it continues"
    enough.set()
    await has_room(store)
    await store.close()


async def test_whoever_waits_comes_first() -> None:
    happened: list[str] = []
    go, begun = threading.Event(), threading.Event()

    def between() -> bool:
        happened.append("between")
        begun.set()
        go.wait()
        return len(happened) < 4

    def carry_out(batch: object) -> None:
        happened.append("batch")

    worker = Worker("test", carry_out, between)
    await worker.submit(lambda: None)
    await asyncio.to_thread(begun.wait)
    waiting = worker.submit(lambda: None)
    await asyncio.sleep(0)  # handed over
    go.set()
    await waiting
    await asyncio.to_thread(worker.stop)
    assert happened[:3] == ["batch", "between", "batch"]


async def test_nothing_is_done_between_when_the_end_was_asked_for() -> None:
    happened: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def carry_out(batch: object) -> None:
        happened.append("batch")
        begun.set()
        go.wait()

    def between() -> bool:
        happened.append("between")
        return len(happened) < 100

    worker = Worker("test", carry_out, between)
    first = worker.submit(lambda: None)
    await asyncio.to_thread(begun.wait)
    second = worker.submit(lambda: None)
    await asyncio.sleep(0)  # handed over
    stopping = asyncio.create_task(asyncio.to_thread(worker.stop))
    while worker._waiting.qsize() < 2:
        await asyncio.sleep(0.005)
    go.set()
    await asyncio.gather(first, second, stopping)
    assert happened == ["batch", "batch"]


async def test_a_fault_between_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    begun = threading.Event()

    def between() -> bool:
        begun.set()
        raise RuntimeError("nobody foresaw it")

    batches: list[object] = []
    worker = Worker("test", batches.append, between)
    for _ in range(3):
        await worker.submit(lambda: None)
        assert await asyncio.to_thread(begun.wait, 30)
    await asyncio.to_thread(worker.stop)
    assert len(batches) == 3
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_requests_that_come_one_at_a_time_do_not_wait_for_others() -> None:
    begun = threading.Event()
    worker = Worker("test", lambda batch: begun.set())
    for _ in range(2):
        begun.clear()
        waiting = worker.submit(lambda: None)
        assert begun.wait(30), "handed over in the same round of the loop, which does not turn here"
        await waiting
    await asyncio.to_thread(worker.stop)


async def test_requests_that_come_together_are_carried_out_together() -> None:
    sizes: list[int] = []
    worker = Worker("test", lambda batch: sizes.append(len(batch)))
    for _ in range(3):
        await asyncio.gather(*(worker.submit(lambda: None) for _ in range(4)))
    await asyncio.to_thread(worker.stop)
    assert sum(sizes) == 12
    assert sizes[-2:] == [4, 4], "after the first of all, none goes alone"
