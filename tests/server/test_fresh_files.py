"""The files of a project: two processes may make them at the same moment, and one that is gone is noticed."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stores.processes import SPAWN, Racer

from handrail.contract.conversations import StoredConversation
from handrail.contract.store import StoreUnavailable
from handrail.stores import SqliteStore
from handrail_reference.services.calendar.database import CalendarDatabase as Calendar
from handrail_reference.services.kb.database import KnowledgeDatabase as KnowledgeBase

ROUNDS = 10


async def use_store(path: Path, name: str) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.register_owner(name)
    await store.switch(name, "broken")
    await store.close()


async def use_calendar(path: Path, name: str) -> None:
    calendar = Calendar(path)
    await calendar.write(lambda db: db.execute("INSERT INTO calendar (tenant, name) VALUES ('', ?)", (name,)))
    await calendar.read(lambda db: db.execute("SELECT 1").fetchone())
    await calendar.close()


async def use_knowledge(path: Path, name: str) -> None:
    kb = KnowledgeBase(path)
    await kb.read(lambda db: db.execute("SELECT 1").fetchone())
    await kb.write(lambda db: db.execute("INSERT INTO fact VALUES (?, '')", (name,)))
    await kb.close()


USES: tuple[Callable[[Path, str], Any], ...] = (use_store, use_calendar, use_knowledge)


def conversation(name: str) -> StoredConversation:
    return StoredConversation(session_id=name, tenant="", user=None, passing=False, document={})


async def at_once(work: Any) -> None:
    """Begin with the next hundredth of a second, by the clock that all processes share."""
    begin = time.monotonic() // 0.01 * 0.01 + 0.01
    while time.monotonic() < begin:
        pass
    await work


def make_files(folder: str, name: str, barrier: Any, answers: Any) -> None:
    """Make every file of many projects, each at the same moment as another process does, and tell what went wrong."""
    wrong = []
    for number in range(ROUNDS):
        for use in USES:
            barrier.wait(120)
            try:
                asyncio.run(at_once(use(Path(folder) / f"{use.__name__}-{number}.db", name)))
            except Exception as error:  # noqa: BLE001 - whatever it is, the test says so
                wrong.append(f"{use.__name__}: {error}")
    answers.send(wrong)


def come_once(use: str, path: str, answers: Any) -> None:
    asyncio.run(next(one for one in USES if one.__name__ == use)(Path(path), "other"))
    answers.send("done")


def test_two_processes_may_make_every_file_of_a_project_at_the_same_moment(tmp_path: Path) -> None:
    barrier = SPAWN.Barrier(2)
    racers = [Racer.start(make_files, str(tmp_path), name, barrier) for name in ("a", "b")]
    assert [racer.told() for racer in racers] == [[], []]
    for racer in racers:
        racer.end()


@pytest.mark.parametrize("use", USES)
async def test_a_new_file_that_another_process_is_making_is_waited_for(tmp_path: Path, use: Any) -> None:
    path = tmp_path / "file.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # as the other is for a moment: SQLite then refuses at once to begin a log
    opening = asyncio.create_task(use(path, "this"))
    await asyncio.wait({opening}, timeout=0.3)
    assert not opening.done()
    other.execute("ROLLBACK")
    other.close()
    await opening


@pytest.mark.parametrize("use", ["use_calendar", "use_knowledge"])
async def test_another_process_that_closes_a_file_leaves_its_log_to_those_who_use_it(tmp_path: Path, use: str) -> None:
    path = tmp_path / "file.db"
    await next(one for one in USES if one.__name__ == use)(path, "before")
    opened: Any = (Calendar if use == "use_calendar" else KnowledgeBase)(path)
    # The second of these opens the file again, which must not give up the locks of the first.
    await opened.read(lambda db: db.execute("SELECT 1").fetchone())
    await opened.write(lambda db: db.execute("SELECT 1").fetchone())
    log = path.with_name("file.db-wal").stat()
    racer = Racer.start(come_once, use, str(path))
    assert await asyncio.to_thread(racer.told) == "done"
    racer.end()
    assert os.path.samestat(log, path.with_name("file.db-wal").stat())
    await opened.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_conversations_are_not_written_to_a_file_that_is_gone(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.open()
    await store.conversations.create(conversation("before"), owner="")
    path.with_name(path.name + suffix).unlink()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="deleted or replaced while in use"):
            await store.conversations.create(conversation("after"), owner="")
    with pytest.raises(StoreUnavailable, match="deleted or replaced while in use"):
        await store.conversations.load("before")
    await store.close()
