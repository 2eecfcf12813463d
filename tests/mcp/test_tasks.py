"""A task is the same task at another process of its server, and after the process that began it was killed."""

import asyncio
import re
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.mcp.served_project import TASKS, Served, effects, project, send, served
from tests.mcp.test_clients import answered
from tests.mcp.test_conformance import PROJECT

from handrail.server.stored_keys import add_key
from handrail.stores import open_store

ASKS = {**TASKS, "io.modelcontextprotocol/clientCapabilities": {
    **TASKS["io.modelcontextprotocol/clientCapabilities"], "elicitation": {}}}  # fmt: skip
YES = {"confirm": {"action": "accept", "content": {"confirm": True}}}


async def begun(server: Served, tool: str, **arguments: Any) -> str:
    made = await send(server, "tools/call", tool, ASKS, name=tool, arguments=arguments)
    return str(made["result"]["taskId"])


async def about(server: Served, method: str, task: str, **more: Any) -> dict[str, Any]:
    answer = await send(server, method, task, ASKS, taskId=task, **more)
    result: dict[str, Any] = answer["result"]
    return result


async def reached(server: Served, task: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while (now := await about(server, "tasks/get", task))["status"] != status:
            assert now["status"] in ("working", "input_required"), now
            await asyncio.sleep(0.1)
    return now


async def ended(server: Served, task: str) -> dict[str, Any]:
    """What became of a task whose process was killed, which is known to be gone once its lease is over."""
    async with asyncio.timeout(60):
        while (now := await about(server, "tasks/get", task))["status"] == "working":
            await asyncio.sleep(0.1)
    return now


async def test_a_task_is_asked_answered_and_cancelled_anywhere_and_survives_who_began_it(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with served(folder) as other:
        with served(folder) as first:
            asking = await begun(first, "confirm_delete", filename="a.txt")
            asked = await reached(other, asking, "input_required")
            assert "a.txt" in asked["inputRequests"]["confirm"]["params"]["message"]
            await about(other, "tasks/update", asking, inputResponses=YES)
            done = await reached(first, asking, "completed")
            assert done["result"]["content"][0]["text"] == "accept a.txt"

            slow = await begun(first, "slow_compute", seconds=60, label="elsewhere")
            await about(other, "tasks/cancel", slow)
            await reached(first, slow, "cancelled")

            left = [await begun(first, "slow_compute", seconds=1, label=label) for label in ("twice", "dropped")]
            orphans = [await begun(first, "confirm_delete", filename=name) for name in ("b.txt", "c.txt")]
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
        again, dropped = left
        result = (await ended(other, again))["result"]
        assert result["structuredContent"]["data"] == "computed twice"
        await about(other, "tasks/cancel", dropped)
        assert (await about(other, "tasks/get", dropped))["status"] == "cancelled"
        assert "b.txt" in str((await reached(other, orphans[0], "input_required"))["inputRequests"])
        for task, name in zip(orphans, ("b.txt", "c.txt"), strict=True):  # the second was never looked at here
            await about(other, "tasks/update", task, inputResponses=YES)
            done = await reached(other, task, "completed")
            assert done["result"]["content"][0]["text"] == f"accept {name}"
        assert (await about(other, "tasks/get", dropped))["status"] == "cancelled"


async def test_a_write_whose_process_was_killed_is_unknown_and_a_held_call_is_carried_out_elsewhere(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path / "notes")
    store = open_store(f"sqlite:///{folder / 'handrail.db'}")
    await store.open()
    _, laptop = await add_key(store.keys, name="laptop", role="user", user="ana")
    await store.close()
    with served(folder, HANDRAIL_MCP_TASK_SECONDS="1") as other:
        other.key = laptop
        with served(folder, HANDRAIL_MCP_TASK_SECONDS="1") as first:
            first.key = laptop
            held = await begun(first, "pay", amount=5)
            writing = await begun(first, "send_note", text="cut")
            assert effects(folder) == ["cut"]
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
        unknown = (await ended(other, writing))["result"]["structuredContent"]
        assert (unknown["error"]["type"], unknown["error"]["partialSideEffects"]) == ("CONFLICT", True)
        waiting = await about(other, "tasks/get", held)
        assert waiting["status"] == "working"
        found = re.search(r"confirmation\.html#([\w-]+)", waiting["statusMessage"])
        assert found is not None
        await answered(other, found[1])
        done = await reached(other, held, "completed")
        assert done["result"]["structuredContent"]["data"] == "paid 5"
        assert await ended(other, held) == done
    assert effects(folder) == ["cut", "paid 5"]


BROKEN = '''
@tool(category="action", side_effects="writes", idempotent=False, capabilities=("client",))
async def lose(text: str, ctx) -> str:
    """Break after the effect.

    Args:
        text: What it says.
    """
    ctx.client.defer()
    _note(text)
    await asyncio.sleep(0.1)
    raise RuntimeError("broken on purpose")

@tool(category="retrieval", side_effects="read_only", capabilities=("client",))
async def fail(ctx) -> str:
    """Break."""
    ctx.client.defer()
    await asyncio.sleep(0.1)
    raise RuntimeError("broken on purpose")
'''


async def test_a_task_that_broke_says_whether_its_write_may_have_happened(tmp_path: Path) -> None:
    folder = project(tmp_path)
    with (folder / "notes.py").open("a") as module:
        module.write(BROKEN)
    with served(folder) as server:
        lost = await reached(server, await begun(server, "lose", text="written"), "failed")
        failed = await reached(server, await begun(server, "fail"), "failed")
    assert effects(folder) == ["written"]
    for task, partial in ((lost, True), (failed, False)):
        told = task["error"]["data"]["error"]
        assert (told["type"], told["partialSideEffects"]) == ("INTERNAL", partial)
        assert task["error"]["message"] == told["message"]
