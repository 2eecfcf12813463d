"""Another host, as a process of these tests: nothing that it knows of its machine is true of ours, and its clock may be wrong.
A module of its own, because a spawned process imports it by name."""

import asyncio
import time
from multiprocessing.connection import Connection
from pathlib import Path

from handrail import Registry, Runtime
from handrail.stores import owners


def call_elsewhere(
    artifact: Path, url: str, ahead_seconds: float, wait_seconds: float, session: tuple[str, str], orders: Connection
) -> None:
    """Resume the session, and call each tool that is sent under the id c1; tell what was answered."""
    now = time.time
    time.time = lambda: now() + ahead_seconds  # type: ignore[assignment]
    owners._boot = lambda: "another machine"  # type: ignore[assignment]

    async def run() -> None:
        registry = Registry.load(artifact)
        registry.lock()
        policy = {"text": {"wait_seconds": wait_seconds}}
        async with Runtime(registry, store=url, policy=policy) as runtime:
            resumed = await runtime.resume_session(session[0], token=session[1])
            orders.send("resumed")
            while (tool := await asyncio.to_thread(orders.recv)) != "end":
                answer = await resumed.call(tool, {"q": "a"}, call_id="c1")
                error = answer.error and answer.error.type.value
                orders.send((error, answer.data, bool(answer.meta.get("replayed"))))

    asyncio.run(run())
