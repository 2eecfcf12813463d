"""Two processes on one PostgreSQL: what one changes reaches the other at once by a wake-up, and by looking where none comes."""

import asyncio

import pytest
from tests.runtime.kit import PAID, audited, confirmed, next_event, reading
from tests.runtime.test_confirmation import held

from handrail.runtime import housekeeper
from handrail.stores.postgres import PostgresStore

TOOLS = {"pay": (confirmed(), PAID), "look": (reading(), PAID)}


@pytest.fixture
def other_store(postgres):
    return lambda world: PostgresStore(postgres.url(world.store._address.database))


async def _sees(runtime, switches) -> None:
    async with asyncio.timeout(60):
        while dict(runtime.switches) != switches:
            await asyncio.sleep(0.005)


async def test_approvals_and_switches_reach_the_other_process_without_its_looking(make_tools, other_store, monkeypatch):
    monkeypatch.setattr(housekeeper, "TICK_SECONDS", 3_600.0)
    async with make_tools(TOOLS, store="postgres") as world:
        session = await world.session()
        other = world.runtime(store=other_store(world))
        await other.open()
        _, hold_id, token = await held(session, "c1")
        answer = await other.approve(hold_id, token=token)
        assert answer.ok
        assert world.starts == 1
        event = await asyncio.wait_for(next_event(session, "envelope"), 60)
        assert event.data["envelope"]["data"] == answer.data
        assert not audited(other, "execution"), "the process with the connection ran it"
        await other.store.switch("look", "off for a test")
        await _sees(session.core, {"look": "off for a test"})


async def test_without_wakeups_they_are_seen_by_looking(make_tools, other_store):
    async with make_tools(TOOLS, store="postgres") as world:
        session = await world.session()
        other = world.runtime(store=other_store(world))
        await other.open()
        for store in (world.store, other.store):
            await asyncio.to_thread(store._wakeups.stop)
        _, hold_id, token = await held(session, "c1")
        answer = await other.approve(hold_id, token=token)
        assert answer.ok
        assert world.starts == 1
        assert not audited(other, "execution"), "the process with the connection ran it"
        await other.store.switch("look", "off for a test")
        await _sees(session.core, {"look": "off for a test"})
