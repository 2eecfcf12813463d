"""Every named crash point, hit on purpose: what the next process finds, and how often the handler starts in the end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.accidents import Flaky, die
from tests.runtime.kit import PAID, asked, confirmed, kind, next_event, writing

from handrail.testing import CrashAt, Crashed
from handrail.testing.crash import POINTS

QUICK = {"lease_ms": 20}
INTENT = """
async def execute(args, ctx):
    mark(args)
    return {"ok": True, "data": 1, "intents": [{"type": "SET_PENDING_MESSAGE", "message": "hi"}]}
"""
# Point → how often an unsafe handler starts in the end, and what redelivery of the same id is told.
WRITING = {
    "before_claim": (1, None),
    "after_claim": (0, "CONFLICT"),
    "before_handler": (0, "CONFLICT"),
    "after_handler": (1, "CONFLICT"),
    "before_finish": (1, "CONFLICT"),
    "after_finish": (1, None),
    "before_intents": (1, None),
    "before_delivery": (1, None),
}
HELD = ("before_hold", "after_hold", "before_approve", "after_approve")


def test_there_are_at_least_twelve_points_and_each_is_hit_here():
    assert len(POINTS) >= 12
    assert set(POINTS) == {*WRITING, *HELD, "between_claims"}
    with pytest.raises(ValueError, match="before_claim"):
        CrashAt("before_lunch")


async def crash(world, point, work, session_facts=None, crash=None):
    runtime = world.runtime(crash=crash or CrashAt(point), policy=QUICK)
    session = await world.session(runtime=runtime, **(session_facts or {}))
    with pytest.raises(Crashed):
        await work(session)
    assert runtime.crash.passed[-1] == point
    await die(world, runtime)
    return session


async def next_process(world, session):
    return await world.runtime(policy=QUICK).resume_session(session.id, token=session.token)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("point", WRITING)
async def test_a_writing_call_starts_at_most_once_wherever_it_crashes(make_tools, store, point):
    starts, told = WRITING[point]
    async with make_tools({"pay": (writing(), INTENT)}, store=store) as world:
        session = await crash(world, point, lambda session: session.call("pay", {"q": "a"}, call_id="c1"))
        session = await next_process(world, session)
        assert kind(await session.call("pay", {"q": "a"}, call_id="c1")) == told
        assert world.starts == starts
        # Intents are stored with the outcome: they are there, and are not applied again.
        assert session.state.get("pendingMessage") == ("hi" if told is None else None)


async def test_a_claim_that_nobody_heard_of_does_not_run_twice(make_tools):
    async with make_tools({"pay": (writing(), PAID)}, store=Flaky()) as world:

        async def unheard(session):
            world.store.deaf, world.store.only = 1, "claim"
            await session.call("pay", {"q": "a"}, call_id="c1")

        session = await crash(world, "between_claims", unheard)
        session = await next_process(world, session)
        assert kind(await session.call("pay", {"q": "a"}, call_id="c1")) == "CONFLICT"
        assert world.starts == 0


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("point", HELD)
async def test_a_held_call_survives_wherever_it_crashes_and_runs_once(make_tools, store, point):
    async with make_tools({"pay": (confirmed(), PAID)}, store=store) as world:

        async def hold_and_approve(session):
            await session.call("pay", {"q": "a"}, call_id="c1")
            hold_id, token = await asked(session)
            await session.core.approve(hold_id, token=token)

        session = await crash(world, point, hold_and_approve)
        session = await next_process(world, session)
        assert world.starts == 0
        if point == "before_hold":
            assert kind(await session.call("pay", {"q": "a"}, call_id="c1")) == "CONFIRMATION_REQUIRED"
        if point != "after_approve":
            hold_id, token = await asked(session)
            assert (await session.core.approve(hold_id, token=token)).ok
        # What was approved runs by itself, because the person's yes was stored.
        event = await asyncio.wait_for(next_event(session, "envelope"), 30)
        assert (event.data["callId"], event.data["envelope"]["ok"]) == ("c1", True)
        assert (await session.call("pay", {"q": "a"}, call_id="c1")).meta["replayed"]
        assert world.starts == 1


SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from handrail import Registry, Runtime
from handrail.testing import CrashAt

async def main(artifact, store, point, tool, told):
    registry = Registry.load(artifact); registry.lock()
    runtime = Runtime(registry, store=store, policy={"lease_ms": 20}, crash=CrashAt(point, kill=True))
    session = await runtime.open_session()
    await session.begin_turn("m1")
    Path(told).write_text(json.dumps([session.id, session.token]))
    await session.call(tool, {"q": "a"}, call_id="c1")
    async for event in session.events():
        await runtime.approve(event.data["id"], token=event.data["token"])

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("point", "tool", "starts", "told"),
    [
        ("before_claim", "pay", 1, None),
        ("after_claim", "pay", 0, "CONFLICT"),
        ("after_handler", "pay", 1, "CONFLICT"),
        ("after_handler", "set", 2, None),
        ("after_finish", "pay", 1, None),
        ("after_approve", "send", 1, None),
    ],
)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_process_that_is_really_killed_leaves_the_same(make_tools, tmp_path, store, point, tool, starts, told):
    tools = {"pay": (writing(), PAID), "set": (writing(idempotent=True), PAID), "send": (confirmed(), PAID)}
    async with make_tools(tools, store=store) as world:
        note = tmp_path / "session.json"
        command = [sys.executable, "-c", SCRIPT, str(world.tools.artifact), world.url, point, tool, str(note)]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False, env={**os.environ})
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        session_id, token = json.loads(Path(note).read_text())
        await asyncio.sleep(0.05)
        session = await world.runtime(policy=QUICK).resume_session(session_id, token=token)
        if tool == "send":
            await asyncio.wait_for(next_event(session, "envelope"), 30)
        assert kind(await session.call(tool, {"q": "a"}, call_id="c1")) == told
        assert world.starts == starts
