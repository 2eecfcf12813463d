"""A backup is taken in the middle of load and restored elsewhere: no call that it knows runs again, and whoever starts on it
says that it is older than the audit log."""

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing

import pytest
from tests.runtime.kit import PAID, Tools, writing

from handrail import Runtime
from handrail.observe.audit import AuditLog
from handrail.registry import Registry
from handrail.stores.maintenance import open_access
from handrail.stores.maintenance.checking import check_store

SESSIONS = 4
CALLS = 10_000
_LOAD = """
import asyncio, json, sys
from pathlib import Path
from handrail import Runtime
from handrail.observe.audit import AuditLog
from handrail.registry import Registry

async def main():
    artifact, url, audit, sessions, calls = sys.argv[1:]
    registry = Registry.load(artifact)
    registry.lock()
    runtime = Runtime(registry, store=url, audit=AuditLog(Path(audit)))
    opened = [await runtime.open_session(user=f"u{number}") for number in range(int(sessions))]
    print(json.dumps([(one.id, one.token) for one in opened]), flush=True)

    async def work(number, session):
        await session.begin_turn("m1")
        for call in range(int(calls)):
            await session.call("pay", {"q": f"{number}-{call}"}, call_id=f"c{call}")

    await asyncio.gather(*(work(number, session) for number, session in enumerate(opened)))

asyncio.run(main())
"""


@pytest.fixture
def tools(tmp_path):
    kit = Tools(tmp_path / "project")
    kit.write({"pay": (writing(), PAID)})
    kit.build()
    return kit


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """The URL of a store, and `backup()`, which gives the URL of another that holds what this one held at a moment."""
    if request.param == "sqlite":
        path, copy = tmp_path / "store.db", tmp_path / "elsewhere.db"

        def backup():
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
            return f"sqlite:///{copy}"

        return f"sqlite:///{path}", backup
    server = request.getfixturevalue("postgres")
    url = server.new_database(empty=True)

    def dump_and_restore():
        dump = server.run("pg_dump", "--format=custom", "-d", url)
        restored = server.new_database(empty=True)
        server.run("pg_restore", "--exit-on-error", "-d", restored, given=dump)
        return restored

    return url, dump_and_restore


def lines(tools):
    return tools.marks.read_bytes().count(b"\n") if tools.marks.exists() else 0


def started(tools):
    return Counter(one["q"] for one in tools.started())


def load_with_a_backup(tools, place, audit):
    """Calls until a process is killed, and a backup from the middle; the sessions and where the backup was restored."""
    url, backup = place
    words = [sys.executable, "-c", _LOAD, tools.artifact, url, audit, SESSIONS, CALLS]
    with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        sessions = json.loads(process.stdout.readline())
        _until(lambda: lines(tools) > 100, process)
        restored = backup()
        before = lines(tools)
        _until(lambda: lines(tools) > before + 100, process)
        process.kill()
    return sessions, restored


def _until(happened, process):
    while not happened():
        assert process.poll() is None
        time.sleep(0.05)


async def deliver_again(runtime, sessions, tools):
    """Every call that was ever begun, under the id that it had."""
    asked = [tuple(map(int, q.split("-"))) for q in started(tools)]
    for number, (session_id, token) in enumerate(sessions):
        session = await runtime.resume_session(session_id, token=token)
        await session.begin_turn("m1")
        for _, call in sorted(one for one in asked if one[0] == number):
            await session.call("pay", {"q": f"{number}-{call}"}, call_id=f"c{call}")


async def test_no_call_that_a_restored_backup_knows_runs_again(tools, place, tmp_path, caplog):
    audit = tmp_path / "audit"
    sessions, restored = await asyncio.to_thread(load_with_a_backup, tools, place, audit)
    with closing(open_access(restored, read_only=True)) as access:
        assert [one.message for one in check_store(access) if not one.ok] == []
        known = {json.loads(args)["q"] for (args,) in access.fetch("SELECT args FROM ledger")}
    once = set(started(tools))
    assert known < once, "the backup is older than the last calls"
    registry = Registry.load(tools.artifact)
    registry.lock()
    with caplog.at_level(logging.ERROR, "handrail"):
        async with Runtime(registry, store=restored, audit=AuditLog(audit)) as runtime:
            assert caplog.text.count("The store is older than its audit log: it does not know the ") == 1
            await deliver_again(runtime, sessions, tools)
    starts = started(tools)
    assert {q for q in known if starts[q] != 1} == set()
    # What the backup does not know nobody could keep from running again: so the calls really were delivered.
    assert {q for q in once - known if starts[q] != 2} == set()


async def test_a_store_that_was_not_restored_is_not_called_older_than_its_log(tools, place, tmp_path, caplog):
    audit = tmp_path / "audit"
    sessions, _ = await asyncio.to_thread(load_with_a_backup, tools, place, audit)
    registry = Registry.load(tools.artifact)
    registry.lock()
    with caplog.at_level(logging.WARNING, "handrail"):
        for session_id, token in sessions:
            async with Runtime(registry, store=place[0], audit=AuditLog(audit)) as runtime:
                await (await runtime.resume_session(session_id, token=token)).close()
        async with Runtime(registry, store=place[0], audit=AuditLog(audit)) as runtime:
            await runtime.store.evict(bodies_before=2**50, rows_before=2**50, batch_size=10_000)
        async with Runtime(registry, store=place[0], audit=AuditLog(audit)):
            pass
    assert "older than" not in caplog.text


async def test_a_new_store_beside_the_log_of_another_is_not_called_older(tools, place, tmp_path, caplog):
    audit = tmp_path / "audit"
    await asyncio.to_thread(load_with_a_backup, tools, place, audit)
    registry = Registry.load(tools.artifact)
    registry.lock()
    with caplog.at_level(logging.WARNING, "handrail"):
        for _ in range(3):
            async with Runtime(registry, store=f"sqlite:///{tmp_path / 'new.db'}", audit=AuditLog(audit)) as runtime:
                session = await runtime.open_session(user="ana")
                await session.begin_turn("m1")
                assert (await session.call("pay", {"q": "0-0"}, call_id="c1")).ok
    assert "older than" not in caplog.text


async def test_what_was_restored_is_still_called_older_after_it_went_on(tools, tmp_path, caplog):
    """As long as the chain whose end it does not know is among the newest."""
    audit, store, copy = tmp_path / "audit", tmp_path / "store.db", tmp_path / "copy.db"
    registry = Registry.load(tools.artifact)
    registry.lock()

    async def work(runtime, call):
        session = await runtime.open_session(user="ana")
        await session.begin_turn("m1")
        assert (await session.call("pay", {"q": f"0-{call}"}, call_id="c1")).ok

    async with Runtime(registry, store=f"sqlite:///{store}", audit=AuditLog(audit)) as runtime:
        await work(runtime, 1)
        await runtime.audit_recovery.checkpoint()
        with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        await work(runtime, 2)
    for call in (3, 4):
        caplog.clear()
        async with Runtime(registry, store=f"sqlite:///{copy}", audit=AuditLog(audit)) as runtime:
            await work(runtime, call)
        assert "The store is older than its audit log: it does not know the " in caplog.text
