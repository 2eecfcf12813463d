"""A task is the same task at another process of its server, and after the process that began it was killed."""

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.mcp.served_project import TASKS, Served, send, served
from tests.mcp.test_conformance import PROJECT

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
        async with asyncio.timeout(30):  # a process that was killed is known to be gone once its lease is over
            while (await about(other, "tasks/get", again))["status"] == "working":
                await asyncio.sleep(0.1)
        result = (await about(other, "tasks/get", again))["result"]
        assert result["structuredContent"]["data"] == "computed twice"
        await about(other, "tasks/cancel", dropped)
        assert (await about(other, "tasks/get", dropped))["status"] == "cancelled"
        assert "b.txt" in str((await reached(other, orphans[0], "input_required"))["inputRequests"])
        for task, name in zip(orphans, ("b.txt", "c.txt"), strict=True):  # the second was never looked at here
            await about(other, "tasks/update", task, inputResponses=YES)
            done = await reached(other, task, "completed")
            assert done["result"]["content"][0]["text"] == f"accept {name}"
        assert (await about(other, "tasks/get", dropped))["status"] == "cancelled"
