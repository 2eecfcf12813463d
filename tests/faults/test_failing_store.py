"""What a call meets when the files or the server of the store go away, or its disk hangs: no handler starts that could not be
recorded."""

import asyncio
import shutil
import signal
import threading

import pytest
from tests.postgres_server import postgres_server
from tests.runtime.kit import FOUND, PAID, kind, reading, writing

from handrail.contract.store import StoreUnavailable
from handrail.stores import SqliteStore
from handrail.stores.postgres import PostgresStore

TOOLS = {"pay": (writing(), PAID), "look": (reading(), FOUND)}


class HangingStore(SqliteStore):
    """Its next commit hangs, after it was made, until it may continue."""

    def __init__(self, *place, **options):
        super().__init__(*place, **options)
        self.hang, self.go_on = threading.Event(), threading.Event()

    def _commit(self, *given):
        super()._commit(*given)
        if self.hang.is_set():
            self.go_on.wait(60)


@pytest.mark.parametrize("gone", ["store.db", "store.db-wal", "store.db-shm", "store.db.owners"])
async def test_no_writing_call_starts_once_a_file_of_the_store_is_gone(make_tools, tmp_path, gone):
    async with make_tools(TOOLS, store=SqliteStore(tmp_path / "store.db")) as world:
        session = await world.session()
        assert (await session.call("pay", {"q": "a"}, call_id="c1")).ok
        file = tmp_path / gone
        shutil.rmtree(file) if file.is_dir() else file.unlink()
        for _ in range(2):
            answer = await session.call("pay", {"q": "b"}, call_id="c2")
            assert kind(answer) == "STORE_UNAVAILABLE"
            assert not answer.error.partial_side_effects
        assert (await session.call("look", {"q": "a"})).ok, "reads continue"
        assert world.starts == 2  # one of each that was answered


async def test_a_claim_whose_commit_hung_starts_nothing_until_it_is_asked_for_again(make_tools, tmp_path):
    store = HangingStore(tmp_path / "store.db", limit_seconds=0.5)
    async with make_tools(TOOLS, store=store) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime)
        await begun(session)
        store.hang.set()
        answer = await session.call("pay", {"q": "a"}, call_id="c1")
        assert kind(answer) == "STORE_UNAVAILABLE"
        assert (await session.call("look", {"q": "a"})).ok, "reads continue"
        starts = world.starts
        assert "handrail_store_timeouts_total 0" not in runtime.metrics.to_prometheus()
        assert "handrail_store_waiting " in runtime.metrics.to_prometheus()
        store.hang.clear()
        store.go_on.set()
        row = None
        async with asyncio.timeout(60):
            while row is None:
                try:
                    row = next(iter(await store.ledger_rows()), None)
                except StoreUnavailable:
                    await asyncio.sleep(0.01)
        await runtime.approvals.carry_out_unconfirmed()  # as the housekeeper does
        assert world.starts == starts, "committed unheard, and nobody has asked again"
        async with asyncio.timeout(60):
            while not (answer := await session.call("pay", {"q": "a"}, call_id="c1")).ok:
                assert kind(answer) in ("STORE_UNAVAILABLE", "IN_PROGRESS")
                await asyncio.sleep(0.01)
        assert world.starts == starts + 1


async def test_a_server_that_crashes_refuses_writes_until_it_is_back_while_reads_go_on(make_tools):
    with postgres_server() as server:
        async with make_tools(TOOLS, store=PostgresStore(server.new_database(), limit_seconds=5)) as world:
            session = await world.session()
            assert (await session.call("pay", {"q": "a"}, call_id="c1")).ok
            server.stop(signal.SIGQUIT)
            for number in range(3):
                answer = await session.call("pay", {"q": "b"}, call_id="c2")
                assert kind(answer) == "STORE_UNAVAILABLE"
                assert not answer.error.partial_side_effects
                assert (await session.call("look", {"q": f"while it is away {number}"})).ok
            server.start()
            async with asyncio.timeout(60):
                while not (answer := await session.call("pay", {"q": "b"}, call_id="c2")).ok:
                    assert kind(answer) == "STORE_UNAVAILABLE"
                    await asyncio.sleep(0.05)
            assert (await session.call("look", {"q": "once it is back"})).ok
            assert (await session.call("pay", {"q": "a"}, call_id="c1")).meta["replayed"]
            paid = [args["q"] for args in world.tools.started() if len(args["q"]) == 1]
            assert paid == ["a", "b"]


async def begun(session):
    """The turn is stored, so that the claim is the next that is written."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await session.begin_turn()
            except StoreUnavailable:
                await asyncio.sleep(0.01)
