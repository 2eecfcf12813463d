"""The heartbeat of a process that was frozen, or cut off from the server for a moment: what it knows of itself, and of others."""

import asyncio

import psycopg
import pytest
from tests.stores.test_postgres import machines

from handrail.stores.postgres import heartbeat


@pytest.fixture
def url(postgres) -> str:
    return postgres.new_database()


async def _beaten(store) -> None:
    before = store._heartbeat._beaten_at
    async with asyncio.timeout(60):
        while store._heartbeat._beaten_at == before:
            await asyncio.sleep(0.01)


async def test_a_beat_that_failed_is_tried_again_before_anybody_can_take_its_owner_for_dead(url, caplog):
    async with machines(url, "o1") as (store,):
        beat, read = store._heartbeat, store._server_clock.read
        reasons = ["the network is away", "the network is away", "the network is away", "the server starts"]
        wait, waited = beat._ends.wait, []

        def read_later(db):
            if reasons:
                waited.append("failed")
                raise psycopg.OperationalError(reasons.pop(0))
            read(db)

        def note(seconds):
            waited.append(seconds)
            return wait(0.01)

        beat._ends.wait = note
        store._server_clock.read = read_later
        async with asyncio.timeout(60):
            while "failed" not in waited or waited[-1] != heartbeat._BEAT_SECONDS:
                await asyncio.sleep(0.01)
        beat._ends.wait = wait
        again = heartbeat._AGAIN_SECONDS
        first = waited.index("failed")
        assert waited[first : first + 9] == ["failed", again] * 4 + [heartbeat._BEAT_SECONDS]
        assert heartbeat._BEAT_SECONDS + again < heartbeat._FRESH_MS / 2_000
    assert caplog.text.count("does not take the heartbeat (the network is away)") == 1, "once for each reason"
    assert caplog.text.count("does not take the heartbeat (the server starts)") == 1


async def test_a_process_knows_without_asking_whether_others_may_have_taken_it_for_dead(url):
    async with machines(url, "o1") as (store,):
        assert store.is_heard()
        await _beaten(store)
        assert store.is_heard()
        store._heartbeat._beaten_at -= 6  # it did nothing for six seconds
        assert not store.is_heard()
        await _beaten(store)
        assert store.is_heard()


async def test_a_process_that_was_frozen_takes_nobody_for_dead_who_may_have_been_frozen_with_it(url):
    async with machines(url, "o1", "o2") as (here, there):
        await _beaten(here)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("INSERT INTO heartbeat VALUES ('elsewhere', 0)")
        assert not await here.owner_lives("elsewhere")
        await _beaten(here)
        here._heartbeat._beaten_at -= 12
        assert await here.owner_lives("elsewhere")
        await _beaten(here)
        assert await here.owner_lives("elsewhere"), "it has no time to beat"
        assert not await there.owner_lives("elsewhere"), "who was awake has seen that it does not"
