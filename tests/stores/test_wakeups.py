"""Processes that tell each other what has changed; and what holds when they cannot."""

import asyncio
import os
import resource
import threading
from contextlib import ExitStack, asynccontextmanager, contextmanager
from types import SimpleNamespace

import psycopg
import pytest
from tests.postgres_server import PostgresServer
from tests.stores.processes import Racer, wait_for_changes
from tests.stores.values import claim, done, held, session

from handrail.contract.store import Block, HoldState
from handrail.stores import MemoryStore
from handrail.stores.postgres import PostgresStore, heartbeat, wakeups


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@asynccontextmanager
async def two_stores(url: str):
    stores = [PostgresStore(url) for _ in range(2)]
    for store in stores:
        await store.open()
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


async def _listening(url: str, number: int) -> list[int]:
    """The server's processes for the connections that listen, once there are this many."""
    with psycopg.connect(url, autocommit=True) as db:
        async with asyncio.timeout(60):
            while True:
                found = db.execute(
                    """SELECT pid FROM pg_stat_activity WHERE datname = current_database()
                       AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%') AND pid <> pg_backend_pid()"""
                ).fetchall()
                if len(found) == number:
                    return [pid for (pid,) in found]
                await asyncio.sleep(0.01)


async def test_another_process_is_woken_by_a_switch(url):
    store = PostgresStore(url)
    await store.open()
    other = Racer.start(wait_for_changes, url)
    assert await asyncio.to_thread(other.told) == "open"
    await _listening(url, 2)
    for reason in ("on fire", "still on fire"):
        assert await asyncio.to_thread(other.ask, "wait") == "waits"
        await store.switch("pay", reason)
        assert await asyncio.to_thread(other.told) == {"pay": reason}
    other.pipe.send("end")
    await asyncio.to_thread(other.end)
    await store.close()


async def test_whoever_waits_for_a_held_call_is_woken_by_what_becomes_of_it(url):
    async with two_stores(url) as (here, there):
        await _listening(url, 2)
        await here.register_owner("o1")
        await here.create_session(session())
        await here.hold(held("h1", expires_at=2**50), "token")

        async def told(work):
            changed, anything, another = there.changed("h1"), there.changed(), there.changed("h2")
            await work
            async with asyncio.timeout(60):
                await asyncio.gather(changed, anything)
            assert not another.done()
            another.cancel()

        await told(here.move_hold("h1", HoldState.APPROVED, expected=[HoldState.PENDING]))
        await told(here.claim(claim(hold_id="h1")))
        row = await there.ledger_row("k1")
        await told(here.finish(done("k1", claimed=row)))


async def test_blocks_and_forgotten_users_are_told(url):
    async with two_stores(url) as (here, there):
        await _listening(url, 2)
        block = Block(tenant="t", user="u", until=2**50)
        for work in (lambda: here.block(block), lambda: here.unblock("t", "u"), lambda: here.forget_user("t", "u")):
            changed = there.changed()
            await work()
            async with asyncio.timeout(60):
                await changed


async def test_a_connection_that_is_cut_listens_again_and_whoever_waits_looks_for_what_was_missed(url):
    async with two_stores(url) as (here, there):
        before = await _listening(url, 2)
        changed = there.changed("h1")
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) AS pid", (before,))
        async with asyncio.timeout(60):
            await changed
        assert set(await _listening(url, 2)).isdisjoint(before)
        changed = there.changed()
        await here.switch("pay", "off")
        async with asyncio.timeout(60):
            await changed


@contextmanager
def _many_descriptors():
    """As many open files as it takes, so that every one that is opened next has a number above those that `select` takes."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2_048, max(2_048, before[1])))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        while (number := os.open(os.devnull, os.O_RDONLY)) < 1_024:
            opened.callback(os.close, number)
        opened.callback(os.close, number)
        yield


async def test_a_process_with_a_thousand_clients_is_woken_and_wakes_others(url):
    with _many_descriptors():
        async with two_stores(url) as (here, there):
            await _listening(url, 2)
            changed = there.changed()
            await here.switch("pay", "off")
            async with asyncio.timeout(60):
                await changed


async def test_a_thread_that_meets_what_nobody_foresaw_says_so_and_goes_on(url, monkeypatch, caplog):
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.05)
    async with two_stores(url) as (here, there):
        await here.register_owner("o1")
        await _listening(url, 2)
        read = here._server_clock.read
        exchange = here._wakeups._exchange
        failed = SimpleNamespace(beats=0, exchanges=0)

        def fail_to_read(db):
            failed.beats += 1
            if failed.beats < 3:
                raise ValueError("a clock of wax")
            read(db)

        def fail_to_exchange(connection):
            failed.exchanges += 1
            if failed.exchanges < 3:
                raise ValueError("a bell of wax")
            exchange(connection)

        monkeypatch.setattr(here._server_clock, "read", fail_to_read, raising=False)
        monkeypatch.setattr(here._wakeups, "_exchange", fail_to_exchange)
        here._tell("anything")
        async with asyncio.timeout(60):
            while failed.beats < 5 or failed.exchanges < 3:
                await asyncio.sleep(0.01)
        assert await there.owner_lives("o1")
        await _listening(url, 2)
        changed = there.changed("h1")
        here._tell("h1")
        async with asyncio.timeout(60):
            await changed
    assert "does not take the heartbeat (a clock of wax)" in caplog.text
    assert "wakes nobody until it is back (a bell of wax)" in caplog.text


async def test_what_a_server_that_is_away_is_not_told_is_bounded(url, monkeypatch):
    store = PostgresStore(url)
    await store.open()
    is_away = threading.Event()

    def exchange(_):
        is_away.set()
        store._wakeups._ends.wait(60)

    monkeypatch.setattr(store._wakeups, "_exchange", exchange)
    store._tell("first")  # it may wait for something still, on the way that was
    assert await asyncio.to_thread(is_away.wait, 60)
    for number in range(3 * wakeups._MAX_QUEUED):
        store._tell(str(number))
    assert len(store._wakeups._queued) == wakeups._MAX_QUEUED
    await store.close()


async def test_more_changes_than_one_message_holds_are_all_told(url):
    async with two_stores(url) as (here, there):
        await _listening(url, 2)
        names = [f"{number}-{'x' * 200}" for number in range(200)]
        changed = [there.changed(name) for name in names]
        for name in names:
            here._tell(name)
        async with asyncio.timeout(60):
            await asyncio.gather(*changed)


async def test_a_store_that_cannot_tell_lets_nobody_believe_that_something_changed():
    store = MemoryStore()
    await store.open()
    changed = store.changed()
    await store.switch("pay", "off")
    await asyncio.sleep(0)
    assert not changed.done()
