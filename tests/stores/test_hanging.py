"""A disk that hangs: whoever waits is told in bounds, and what was committed unheard is recognised."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stores.processes import Racer, hold_locked
from tests.stores.values import claim, done, session

from handrail.contract.conversations import StoredConversation
from handrail.contract.store import ClaimVerdict, LedgerState, StoreUnavailable
from handrail.stores import SqliteStore
from handrail.stores.worker import Worker

LIMIT = 0.4
"""Short for a commit on a busy machine: whoever does not want to be told so asks until it is answered."""


class HangingStore(SqliteStore):
    """Its writer, or its reader, hangs when told: before the change, or after it was committed."""

    def __init__(self, path: Path, limit: float) -> None:
        super().__init__(path, limit_seconds=limit)
        self.hang_before, self.hang_after, self.hang_reader = (threading.Event() for _ in range(3))
        self.hangs, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def _commit(self, *given: Any) -> None:
        self._hang(self.hang_before)
        super()._commit(*given)
        self._hang(self.hang_after)

    def _look(self, *given: Any) -> None:
        self._hang(self.hang_reader)
        super()._look(*given)

    def _hang(self, wish: threading.Event) -> None:
        if wish.is_set():
            self.hangs.set()
            self.go_on.wait(60)

    def begin(self, wish: threading.Event) -> None:
        self.go_on.clear()
        wish.set()

    def end(self) -> None:
        for wish in (self.hang_before, self.hang_after, self.hang_reader):
            wish.clear()
        self.go_on.set()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def hanging(path: Path, limit: float = LIMIT) -> HangingStore:
    quick = SqliteStore(path)
    await quick.open()
    await quick.create_session(session())
    await quick.close()
    store = HangingStore(path, limit)
    await store.open()
    return store


async def answers_again(ask: Callable[[], Any]) -> Any:
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("moment", ["hang_before", "hang_after"])
async def test_a_commit_that_hangs_is_told_in_bounds_and_recognised_afterwards(
    path: Path, moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = await hanging(path)
    store.begin(getattr(store, moment))
    mine = claim(claim_id="c1")
    with pytest.raises(StoreUnavailable, match=r'"store\.db" has not answered for 0\.4 seconds'):
        await store.claim(mine)
    assert store.hangs.is_set()
    with pytest.raises(StoreUnavailable, match="has not answered"):
        await store.claim(claim("k2", args_digest="d2"))  # at once
    assert store.load().timeouts == 2
    assert await answers_again(lambda: store.load_session("s1")) is not None, "reads continue"
    store.end()
    told = await answers_again(lambda: store.claim(mine))
    assert told.verdict is ClaimVerdict.CLAIMED, "ours, once"
    assert [row.key for row in await answers_again(store.ledger_rows)] == ["k1"]
    assert [record.levelname for record in caplog.records][:2] == ["ERROR", "WARNING"], "once each"
    await store.close()


async def test_what_waits_behind_a_commit_that_hangs_is_never_carried_out(path: Path) -> None:
    store = await hanging(path, 2.0)  # long enough for all of them to come in time
    store.begin(store.hang_before)
    first = asyncio.create_task(store.claim(claim()))
    await asyncio.to_thread(store.hangs.wait, 60)
    behind = [asyncio.create_task(store.claim(claim(f"b{n}", args_digest=f"b{n}"))) for n in range(5)]
    await asyncio.sleep(0)
    assert store.load().waiting == 6
    told = await asyncio.gather(first, *behind, return_exceptions=True)
    assert {type(one) for one in told} == {StoreUnavailable}
    store.end()
    assert (await answers_again(store.operating)).blocks == {}
    await answers_again(lambda: store.switch("other", "off"))
    assert [row.key for row in await answers_again(store.ledger_rows)] == ["k1"], "it had been begun"
    assert store.load().waiting == 0
    await store.close()


async def test_reads_that_hang_are_told_in_bounds_and_writes_go_on(path: Path) -> None:
    store = await hanging(path)
    store.begin(store.hang_reader)
    with pytest.raises(StoreUnavailable, match="has not answered"):
        await store.operating()
    told = await answers_again(lambda: store.claim(claim(claim_id="c1")))
    assert told.verdict is ClaimVerdict.CLAIMED
    store.end()
    assert await answers_again(lambda: store.load_session("s1")) is not None
    await store.close()


async def test_a_store_that_hangs_is_closed_in_bounds(path: Path) -> None:
    store = await hanging(path)
    store.begin(store.hang_before)
    with pytest.raises(StoreUnavailable, match="has not answered"):
        await store.claim(claim())
    left, writing = store._connections, store._writer._thread
    await store.close()
    store.end()
    assert store.load().timeouts == 1
    # What a thread still uses is left to the end of the process; this one continues.
    await asyncio.to_thread(writing.join)
    for db in left:
        db.close()


async def test_a_file_that_another_process_keeps_locked_is_told_in_bounds(path: Path) -> None:
    await (await hanging(path)).close()
    store = SqliteStore(path, busy_ms=600_000, limit_seconds=LIMIT)
    await store.open()
    racer = Racer.start(hold_locked, str(path))
    assert await asyncio.to_thread(racer.told) == "locked"
    mine = claim(claim_id="c1")
    with pytest.raises(StoreUnavailable, match="has not answered"):
        await store.claim(mine)
    racer.pipe.send("end")
    await asyncio.to_thread(racer.end)
    assert (await answers_again(lambda: store.claim(mine))).verdict is ClaimVerdict.CLAIMED
    assert (await answers_again(lambda: store.finish(done()))).state is LedgerState.SUCCEEDED
    await store.close()


async def test_conversations_that_hang_are_told_in_bounds(path: Path) -> None:
    store, go_on = SqliteStore(path, limit_seconds=LIMIT), threading.Event()
    await store.open()
    kept = StoredConversation(session_id="s", tenant="", user=None, passing=False, document={})
    stuck = asyncio.create_task(store._write(lambda _: go_on.wait(60)))
    with pytest.raises(StoreUnavailable, match="has not answered"):
        await stuck
    with pytest.raises(StoreUnavailable, match="has not answered"):
        await store.conversations.create(kept, owner="o1")
    go_on.set()
    await answers_again(lambda: store.conversations.create(kept, owner="o1"))
    await store.close()


def test_requests_of_a_loop_that_was_closed_are_forgotten(path: Path) -> None:
    async def write() -> None:
        await answers_again(lambda: store.switch("other", "off"))

    store = asyncio.run(hanging(path))
    for _ in range(3):
        asyncio.run(write())
    assert store._writer is not None
    assert len(store._writer._watched) == 1
    asyncio.run(store.close())


async def test_who_was_frozen_with_the_store_does_not_blame_it_when_it_wakes():
    goes_on = threading.Event()

    def carry_out(batch):
        goes_on.wait(60)
        for job in batch:
            job.outcome = "done"

    worker = Worker("frozen", carry_out, limit=0.5)
    asked = worker.submit(lambda: None)
    await asyncio.sleep(0)
    time.sleep(1)
    asyncio.get_running_loop().call_later(0.3, goes_on.set)
    assert await asked == "done"
    assert worker.timeouts == 0
    goes_on.clear()
    with pytest.raises(StoreUnavailable, match=r"has not answered for 0\.5 seconds"):
        await worker.submit(lambda: None)
    goes_on.set()
    worker.stop()


async def test_a_loop_that_is_late_again_and_again_hears_all_the_same_that_the_store_hangs():
    goes_on = threading.Event()
    worker = Worker("hung", lambda batch: goes_on.wait(60), limit=0.2)

    async def hold_the_loop_up():
        while True:
            time.sleep(0.7)
            await asyncio.sleep(0.001)

    asked = worker.submit(lambda: None)
    busy = asyncio.create_task(hold_the_loop_up())
    try:
        with pytest.raises(StoreUnavailable, match="has not answered"):
            await asyncio.wait_for(asked, 20)
    finally:
        busy.cancel()
        goes_on.set()
        worker.stop()
