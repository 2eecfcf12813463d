"""`timeoutMs` is hard: the answer goes out whatever the handler does, and handlers that hang do not take others with them."""

import asyncio
import json
import subprocess
import sys
import textwrap
from threading import Timer

import pytest
from tests.runtime.kit import FOUND, PATIENT_IN_A_THREAD, audited, begins_at_once, kind, reading, until, writing

from handrail.contract.store import LedgerState

MAX_STOP_SECONDS = 15
# Each continues after its cancellation until the test says so, in its own way.
SWALLOWS = """
async def execute(args, ctx):
    mark(args)
    while not (MARKS.parent / "go").exists():
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            pass
    return {"ok": True, "data": "late"}
"""
AWAITS_A_TASK = """
async def work():
    while not (MARKS.parent / "go").exists():
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            pass
    return "late"

async def execute(args, ctx):
    mark(args)
    return {"ok": True, "data": await asyncio.create_task(work())}
"""
GATHERS = AWAITS_A_TASK.replace("await asyncio.create_task(work())", "(await asyncio.gather(work(), work()))[0]")
CLEANS_UP = """
async def execute(args, ctx):
    mark(args)
    try:
        await asyncio.Event().wait()
    finally:
        while not (MARKS.parent / "go").exists():
            await asyncio.sleep(0.005)
        mark("cleaned up")
"""
THREAD = PATIENT_IN_A_THREAD.replace('args.get("q", "")', '"late"')
STUBBORN = {"swallows": SWALLOWS, "awaits a task": AWAITS_A_TASK, "gathers": GATHERS, "a thread": THREAD}


@pytest.mark.parametrize("source", [*STUBBORN.values(), CLEANS_UP], ids=[*STUBBORN, "cleans up"])
async def test_a_handler_that_does_not_end_at_its_deadline_is_answered_for_all_the_same(make_tools, source):
    """It can only end once the call was answered: were the answer to wait for it, the test would hang."""
    async with make_tools({"look": (reading(timeoutMs=50), source)}) as world:
        session = await world.session()
        begins_at_once(session.core)
        async with asyncio.timeout(30):
            assert kind(await session.call("look", {}, call_id="c1")) == "TIMEOUT"
        assert not (world.tools.root / "go").exists()
        world.go()
        await until(lambda: audited(session.core, "late_result"))
        assert kind(await session.call("look", {}, call_id="c1")) == "TIMEOUT", "what came late is not delivered"
        if source is CLEANS_UP:
            assert world.tools.started() == [{}, "cleaned up"]


@pytest.mark.parametrize("source", [SWALLOWS, AWAITS_A_TASK, THREAD], ids=["swallows", "awaits a task", "a thread"])
async def test_what_a_write_comes_to_after_its_deadline_is_in_the_ledger(make_tools, source):
    async with make_tools({"pay": (writing(timeoutMs=50), source)}, store="sqlite") as world:
        session = await world.session()
        begins_at_once(session.core)
        first = await session.call("pay", {"q": "a"}, call_id="c1")
        assert kind(first) == "TIMEOUT"
        assert first.error.partial_side_effects
        assert kind(await session.call("pay", {"q": "a"}, call_id="c2")) == "CONFLICT"
        assert [row.state for row in await world.store.ledger_rows()] == [LedgerState.UNKNOWN]
        world.go()
        await until(lambda: audited(session.core, "late_result"))
        while [row.state for row in await world.store.ledger_rows()] == [LedgerState.UNKNOWN]:
            await asyncio.sleep(0.005)
        assert (await session.call("pay", {"q": "a"}, call_id="c1")).data in ("late", {"done": "late"})
        assert world.starts == 1


@pytest.mark.parametrize("source", [SWALLOWS, THREAD], ids=["coroutine", "thread"])
async def test_handlers_that_hang_are_counted_and_logged_and_their_tool_alone_is_refused(make_tools, source, caplog):
    plain = FOUND.replace("async ", "")
    tools = {"hang": (reading(timeoutMs=50), source), "look": (reading(), plain), "find": (reading(), FOUND)}
    async with make_tools(tools) as world:
        runtime = world.runtime(policy={"workers": 4})
        sessions = [await world.session(runtime=runtime) for _ in range(6)]

        def numbers():
            return runtime.metrics.to_json()["tools"].get("hang", {}).get("stragglers")

        begins_at_once(runtime)
        assert kind(await sessions[0].call("hang", {}, call_id="c1")) == "TIMEOUT"
        await until(lambda: numbers() == {"running": 1, "total": 1})
        assert 'handrail_tool_stragglers{tool="hang"} 1' in runtime.metrics.to_prometheus()
        assert "hang still runs after its deadline of 50 ms (call c1 of session" in caplog.text
        refused = await sessions[1].call("hang", {}, call_id="c1")
        assert kind(refused) == "UNAVAILABLE"
        assert refused.error.retryable
        assert refused.error.retry_after > 0
        assert not refused.error.partial_side_effects
        assert "still run after their deadline" in refused.error.message
        assert world.starts == 1
        for name in ("look", "find"):
            assert (await sessions[2].call(name, {"q": "a"}, call_id=name)).ok
        world.go()
        await until(lambda: numbers() == {"running": 0, "total": 1})
        assert 'handrail_tool_stragglers{tool="hang"} 0' in runtime.metrics.to_prometheus()
        said = [record.message for record in caplog.records if record.message.startswith("hang ")]
        assert [message.split("(")[0] for message in said] == [
            "hang still runs after its deadline of 50 ms ",
            "hang takes no further calls until one of its 1 stragglers ends",
            "hang takes calls again",
        ]
        plan = sessions[3].plans["hang"]
        plan.timeout = 60.0  # the handler ends at once now, and how busy the machine is must not matter
        assert (await sessions[3].call("hang", {}, call_id="c1")).ok
        assert world.starts == 4, "two of its own, and those of the other tools in between"


async def test_threads_that_hang_do_not_keep_other_plain_tools_from_running(make_tools):
    """As many as the pool has places, each of another tool, so that none of them is refused."""
    names = [f"hang{number}" for number in range(3)]
    tools = {name: (reading(timeoutMs=50), THREAD) for name in names}
    plain = FOUND.replace("async ", "")
    async with make_tools({**tools, "look": (reading(timeoutMs=60_000), plain)}) as world:
        runtime = world.runtime(policy={"workers": 3})
        for name in names:
            begins_at_once(runtime)
            assert kind(await (await world.session(runtime=runtime)).call(name, {})) == "TIMEOUT"
        async with asyncio.timeout(30):
            answers = await asyncio.gather(
                *[(await world.session(runtime=runtime)).call("look", {"q": str(number)}) for number in range(6)]
            )
        assert all(answer.ok for answer in answers)
        world.go()


def test_a_program_ends_though_its_handlers_hang(make_tools, tmp_path):
    """Neither a thread nor a coroutine that does not obey keeps a process alive, once its runtime is closed."""
    world = make_tools({"hang": (reading(timeoutMs=50), SWALLOWS), "stall": (reading(timeoutMs=50), THREAD)})
    program = f"""
    import asyncio, json, logging
    from handrail import Registry, Runtime
    logging.basicConfig()

    async def main():
        async with Runtime(Registry.load({str(world.tools.artifact)!r}), store="memory:") as runtime:
            session = await runtime.open_session()
            answers = [await session.call(name, {{}}, call_id=name) for name in ("hang", "stall")]
            print(json.dumps([answer.error.type for answer in answers]), flush=True)

    asyncio.run(main())
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        watch = Timer(60, running.kill)
        watch.start()
        assert json.loads(running.stdout.readline()) == ["TIMEOUT", "TIMEOUT"]
        watch.cancel()
        try:
            _, log = running.communicate(timeout=MAX_STOP_SECONDS)
        finally:
            running.kill()
    assert running.returncode == 0
    assert "these calls still run: hang (call hang of session" in log
    assert "stall (call stall of session" in log
    assert "destroyed" not in log
