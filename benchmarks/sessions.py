"""Many open sessions in one process: what each takes, and whether calls get slower."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import tracemalloc
from pathlib import Path
from statistics import median

from benchmarks.catalogue import write_tools
from benchmarks.report import Result
from handrail.testing import open_tools

_SESSIONS, _CALLS = 10_000, 500


def run() -> list[Result]:
    return asyncio.run(_run())


async def _run() -> list[Result]:
    with tempfile.TemporaryDirectory() as side, open_tools(write_tools(Path(side) / "tools", 1)) as tools:
        policy = {"text": {"retrieval_calls": 0}}
        async with tools.runtime(policy=policy) as few, tools.runtime(policy=policy) as many:
            alone = [await few.open_session() for _ in range(10)]
            gc.collect()
            tracemalloc.start()
            crowd = [await many.open_session() for _ in range(_SESSIONS)]
            many.audit.flush()
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            ratios = []
            for number in range(9):
                first = await _calls(alone[0], number)
                second = await _calls(crowd[_SESSIONS // 2], number)
                ratios.append(second / first)
    return [
        Result(
            "memory per open session",
            size / _SESSIONS / 1024,
            "KiB",
            8.0,
            "before its first call, its row in the store included",
        ),
        Result("a call among 10,000 sessions / among 10", median(ratios), "x", 1.25),
    ]


async def _calls(session, number: int) -> float:  # type: ignore[no-untyped-def]
    await session.begin_turn()
    started = time.perf_counter()
    for index in range(_CALLS):
        await session.call("tool_00000", {"query": f"{number} {index}"}, call_id=f"{number}-{index}")
    return (time.perf_counter() - started) / _CALLS
