"""Which processes may have answered calls whose audit lines are not written yet."""

import asyncio
import signal
import sys

import pytest

from handrail.contract.store import AuditPosition
from handrail.stores import open_store

KILLED = """
import asyncio, os, signal, sys
from handrail.stores import open_store

async def main():
    store = open_store(sys.argv[1])
    await store.open()
    await store.register_owner("killed")
    await store.begin_audit("killed")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def abandoned(store):
    return [(left.owner, left.audited_until) for left in await store.abandoned_audits("o1")]


async def test_a_process_that_was_taken_for_dead_and_lives_on_is_listed_again(store):
    """Another has written its lines and ended its audit while it was frozen. What it answers since then needs lines too."""
    await store.begin_audit("frozen")
    assert [owner for owner, _ in await abandoned(store)] == ["frozen"]
    await store.end_audit("frozen")
    assert await abandoned(store) == []
    chain = AuditPosition("chain", "file", 1, "head")
    await store.save_audit_checkpoint(
        chain, seal=lambda covered: "", after=None, follows=True, owner="frozen", audited_until=7
    )
    assert await abandoned(store) == [("frozen", 7)]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_what_a_killed_process_left_is_found_by_the_very_next(kind, tmp_path, postgres):
    """Its heartbeat is fresh, and its process is known to be gone only for as long as the store knows which one it was."""
    url = f"sqlite:///{tmp_path / 's.db'}" if kind == "sqlite" else postgres.new_database()
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, url)
    assert await killed.wait() == -signal.SIGKILL
    store = open_store(url)
    await store.open()
    try:
        await store.register_owner("next")
        assert [left.owner for left in await store.abandoned_audits("next")] == ["killed"]
    finally:
        await store.close()
