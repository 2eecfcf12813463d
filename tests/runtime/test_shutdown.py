"""Stopping a runtime: what still runs is waited for until its own deadline, and what is known is recorded."""

import asyncio
import logging
import re

import pytest
from tests.runtime.kit import PATIENT, asked, confirmed, kind, until, writing

from handrail.contract.store import LedgerState, StoreUnavailable
from handrail.stores import SqliteStore

SHORT = {"timeout_ms": 50, "lease_ms": 20}


async def running(world, call):
    task = asyncio.create_task(call)
    await until(lambda: world.starts)
    return task


@pytest.fixture
def reopened(tmp_path):
    """A store on the same file, as the next process opens it."""
    return lambda: SqliteStore(tmp_path / "stopped.db")


@pytest.mark.parametrize("approved", [False, True])
async def test_a_write_may_take_its_own_time_though_that_of_the_policy_is_shorter(
    make_tools, reopened, caplog, approved
):
    fields = (confirmed if approved else writing)(timeoutMs=60_000)
    async with make_tools({"pay": (fields, PATIENT)}) as world:
        runtime = world.runtime(store=reopened(), policy=SHORT)
        session = await world.session(runtime=runtime)
        call = session.call("pay", {"q": "a"}, call_id="c1")
        if approved:
            await call
            hold_id, token = await asked(session)
            call = runtime.approve(hold_id, token=token)
        task = await running(world, call)
        with caplog.at_level(logging.WARNING, logger="handrail.runtime"):
            stop = asyncio.create_task(runtime.close())
            await until(lambda: "waits up to" in caplog.text)
            (seconds,) = re.findall(r"waits up to (\d+) s for writes that run: pay", caplog.text)
            assert 5 < int(seconds) <= 65
            await asyncio.sleep(0.2)  # longer than the policy's limit
            assert not stop.done()
            world.go()
            await asyncio.wait_for(stop, 30)
        assert (await task).ok
        after = world.runtime(store=reopened())
        resumed = await after.resume_session(session.id, token=session.token)
        assert [row.state for row in await after.store.ledger_rows()] == [LedgerState.SUCCEEDED]
        assert (await resumed.call("pay", {"q": "a"}, call_id="c1")).ok
        assert world.starts == 1


async def test_a_write_that_begins_while_the_stop_waits_is_waited_for_too(make_tools, reopened):
    async with make_tools({"pay": (writing(timeoutMs=60_000), PATIENT)}) as world:
        runtime = world.runtime(store=reopened(), policy=SHORT)
        session = await world.session(runtime=runtime)
        first = await running(world, session.call("pay", {"q": "a"}, call_id="c1"))
        stop = asyncio.create_task(runtime.close())
        await asyncio.sleep(0)
        second = asyncio.create_task(session.call("pay", {"q": "b"}, call_id="c2"))
        await until(lambda: world.starts == 2)
        world.go()
        await asyncio.wait_for(stop, 30)
        assert (await first).ok
        assert (await second).ok
        after = world.runtime(store=reopened())
        await after.open()
        assert {row.state for row in await after.store.ledger_rows()} == {LedgerState.SUCCEEDED}


async def test_a_runtime_that_is_stopping_says_so_takes_a_no_and_can_be_opened_again(make_tools, reopened):
    tools = {"pay": (writing(timeoutMs=60_000), PATIENT), "ask": (confirmed(), PATIENT)}
    async with make_tools(tools) as world:
        runtime = world.runtime(store=reopened(), policy=SHORT)
        session = await world.session(runtime=runtime)
        await session.call("ask", {"q": "a"}, call_id="c1")
        hold_id, token = await asked(session)
        write = await running(world, session.call("pay", {"q": "a"}, call_id="c2"))
        stop = asyncio.create_task(runtime.close())
        await asyncio.sleep(0)
        for late in (runtime.approve(hold_id, token=token), runtime.open_session(), runtime.open()):
            with pytest.raises(StoreUnavailable, match="stopping, and begins nothing new"):
                await late
        assert kind(await runtime.decline(hold_id, token=token)) == "DECLINED"
        world.go()
        await asyncio.wait_for(stop, 30)
        assert (await write).ok
        await runtime.open()
        assert world.starts == 1


async def test_a_handler_past_its_deadline_does_not_keep_the_runtime_open(make_tools, reopened, caplog, monkeypatch):
    monkeypatch.setattr("handrail.runtime.shutdown.GRACE_SECONDS", 0.05)
    stubborn = """
async def execute(args, ctx):
    mark(args)
    for _ in range(1000):
        if (MARKS.parent / "go").exists():
            break
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            pass
    return {"ok": True, "data": 1}
"""
    async with make_tools({"pay": (writing(timeoutMs=50), stubborn)}) as world:
        runtime = world.runtime(store=reopened(), policy=SHORT)
        session = await world.session(runtime=runtime)
        task = await running(world, session.call("pay", {"q": "a"}, call_id="c1"))
        await asyncio.wait_for(runtime.close(), 30)
        assert f"these calls still run: pay (call c1 of session {session.id})" in caplog.text
        world.go()
        await asyncio.gather(task, return_exceptions=True)
        after = world.runtime(store=reopened())
        resumed = await after.resume_session(session.id, token=session.token)
        assert kind(await resumed.call("pay", {"q": "a"}, call_id="c1")) == "CONFLICT"
        assert world.starts == 1


async def test_a_stop_does_not_wait_for_a_write_whose_answer_was_given(make_tools, caplog):
    async with make_tools({"pay": (writing(), PATIENT)}) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime)
        world.go()
        assert (await session.call("pay", {"q": "a"}, call_id="c1")).ok
        assert not runtime.claims.tasks
        with caplog.at_level(logging.WARNING, logger="handrail.runtime"):
            await runtime.close()
        assert "waits up to" not in caplog.text
