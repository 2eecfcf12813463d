"""Which owners live: by their locks and processes, not by the clock, and whatever became of the files."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.stores.processes import Racer, obey
from tests.stores.values import LEASE, StillClock, claim, done, session

from handrail.contract.store import ClaimVerdict, LedgerState, StoreUnavailable
from handrail.stores import SqliteStore

FORKING = """
import asyncio, ctypes, os, sys
from pathlib import Path
from tests.stores.values import claim
from handrail.contract.errors import HandrailError
from handrail.stores import SqliteStore

async def begin():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    await store.register_owner("parent")
    await store.claim(claim(owner="parent", effects="idempotent", lease_ms=-1))
    return store

async def tried(store, name):
    try:
        await asyncio.wait_for(getattr(store, name)(*([claim("other")] if name == "claim" else [])), 30)
        return f"{name}: done"
    except HandrailError as error:
        return f"{name}: {error}"

store = asyncio.run(begin())
by_python = sys.argv[2] == "python"
if os.fork() if by_python else ctypes.CDLL(None).fork():
    sys.stdin.read()  # the parent waits to be killed
    os._exit(0)
told = [asyncio.run(tried(store, name)) for name in ("claim", "operating", "close")] if by_python else []
told += [asyncio.run(tried(SqliteStore(Path(sys.argv[1])), "open"))] if by_python else []
print(os.getpid(), *told, "", sep="\\n", flush=True)
sys.stdin.read()  # and the child lives on until the test ends
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextlib.contextmanager
def forked(path: Path, by: str) -> Iterator[list[str]]:
    """A process with a claim was killed; a child that it had forked lives on. What the child could do with the store."""
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(path), by],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    child = int(parent.stdout.readline())
    told = list(iter(lambda: parent.stdout.readline().strip(), ""))
    parent.kill()
    parent.wait(60)
    os.kill(child, 0)  # it lives
    try:
        yield told
    finally:
        parent.stdin.close()
        parent.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


async def with_session(path: Path, **options: Any) -> SqliteStore:
    store = SqliteStore(path, **options)
    await store.open()
    await store.create_session(session())
    return store


async def test_a_forked_child_keeps_neither_its_parents_life_nor_its_store(path: Path) -> None:
    store = await with_session(path)
    with forked(path, "python") as told:
        assert (await store.claim(claim(effects="idempotent", owner="o2"))).verdict is ClaimVerdict.TAKEN_OVER
        for line in (*told[:2], told[3]):
            assert "the process that this one was forked from" in line
        assert told[2] == "close: done"
    # The child has closed nothing that others use.
    assert (await store.finish(done(fence=2))).state is LedgerState.SUCCEEDED
    await store.close()


async def test_a_child_that_was_forked_behind_pythons_back_does_not_keep_its_parent_alive(path: Path) -> None:
    store = await with_session(path)
    with forked(path, "another library"):
        assert (await store.claim(claim(effects="idempotent", owner="o2"))).verdict is ClaimVerdict.TAKEN_OVER
    await store.close()


@pytest.mark.parametrize("gone", ["folder", "file"])
async def test_a_living_owner_whose_lock_was_removed_lives_and_begins_nothing_new(path: Path, gone: str) -> None:
    store = await with_session(path)
    racer = Racer.start(obey, str(path), "other")
    assert await asyncio.to_thread(racer.told) == "open"
    assert await asyncio.to_thread(racer.ask, "k1") == "claimed"
    locks = path.with_name("store.db.owners")
    if gone == "folder":
        shutil.rmtree(locks)
    else:
        (locks / "other.lock").unlink()
    mine = claim("k1", args_digest="k1", effects="idempotent", owner="o1")
    assert (await store.claim(mine)).verdict is ClaimVerdict.RUNNING
    await store.register_owner("o1")  # a new one, which makes the folder anew and sweeps
    assert (await store.claim(mine)).verdict is ClaimVerdict.RUNNING
    assert "was deleted or replaced" in await asyncio.to_thread(racer.ask, "k2")
    await asyncio.to_thread(racer.kill)
    assert (await store.claim(mine)).verdict is ClaimVerdict.TAKEN_OVER
    await store.close()


async def test_what_runs_may_be_settled_though_the_lock_is_gone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await with_session(path)
    await store.register_owner("o1")
    await store.claim(claim())
    shutil.rmtree(path.with_name("store.db.owners"))
    told = await asyncio.gather(
        store.finish(done()), store.claim(claim("k2", args_digest="d2")), store.renew([("k1", 1)], LEASE),
        return_exceptions=True,
    )  # fmt: skip
    assert not isinstance(told[0], BaseException)
    assert told[0].state is LedgerState.SUCCEEDED
    assert isinstance(told[1], StoreUnavailable)
    assert not isinstance(told[2], BaseException)
    with pytest.raises(StoreUnavailable, match="no writing call is begun until a restart"):
        await store.claim(claim("k3", args_digest="d3"))
    assert [record.levelname for record in caplog.records] == ["ERROR"], "once"
    await store.close()


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
async def test_a_clock_that_is_set_keeps_no_dead_owner_alive_and_no_living_one_dies(path: Path, jump: int) -> None:
    clock = StillClock()
    store = await with_session(path, clock=clock)
    await store.register_owner("o1")
    racer = Racer.start(obey, str(path), "other")  # on the clock of the machine
    assert await asyncio.to_thread(racer.told) == "open"
    for key in ("safe", "unsafe"):
        clock.now = 10**13  # whatever the clock was when it renewed the lease
        await store.claim(claim(key, args_digest=key, owner="other", effects="unsafe" if key == "unsafe" else "none"))
    clock.now += jump
    wishes = [
        claim(key, args_digest=key, effects="unsafe" if key == "unsafe" else "none") for key in ("safe", "unsafe")
    ]
    assert [(await store.claim(wish)).verdict for wish in wishes] == [ClaimVerdict.RUNNING] * 2
    row = await store.ledger_row("unsafe")
    assert row is not None
    assert row.state is LedgerState.RUNNING
    await asyncio.to_thread(racer.kill)
    row = await store.ledger_row("safe")
    assert row is not None
    assert row.lease_until < clock.now, "it may be taken over"
    assert [row.state.value for row in await store.ledger_rows(state=LedgerState.UNKNOWN)] == ["unknown"]
    assert [(await store.claim(wish)).verdict for wish in wishes] == [ClaimVerdict.TAKEN_OVER, ClaimVerdict.UNKNOWN]
    await store.close()


async def test_owners_that_are_over_are_forgotten_once_no_call_depends_on_them(path: Path) -> None:
    store = await with_session(path)
    for name in ("first", "second"):
        racer = Racer.start(obey, str(path), name)
        assert await asyncio.to_thread(racer.told) == "open"
        if name == "first":
            assert await asyncio.to_thread(racer.ask, "k1") == "claimed"
        await asyncio.to_thread(racer.kill)
    await store.register_owner("o1")

    def known() -> set[str]:
        rows = store._connections[1].execute("SELECT owner FROM owner").fetchall()
        files = {file.stem for file in path.with_name("store.db.owners").iterdir()}
        assert {row[0] for row in rows} == files
        return files

    assert known() == {"o1", "first"}
    taken = await store.claim(claim("k1", args_digest="k1", effects="idempotent"))
    assert taken.verdict is ClaimVerdict.TAKEN_OVER
    await store.register_owner("o2")
    assert known() == {"o1", "o2"}
    await store.release_owner("o2")
    assert known() == {"o1"}
    await store.close()
