"""Writing calls on SQLite against bare commits of the same durability."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from benchmarks.catalogue import write_tools
from benchmarks.report import Result
from handrail.testing import open_tools

_ONE, _MANY, _SESSIONS, _ROUNDS = 150, 12, 64, 5


def run() -> list[Result]:
    return asyncio.run(_run())


class _Bare:
    """Commits as the store makes them: WAL, synchronous FULL. `room` for a log that is as long already as it gets: commits
    that lengthen it take about twice as long, and those of the store need not."""

    def __init__(self, path: Path, *, room: bool = False) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
        if room:
            self.db.execute("PRAGMA synchronous=OFF")
            self.commits(2_000)
            self.db.execute("PRAGMA wal_checkpoint(RESTART)")
        self.db.execute("PRAGMA synchronous=FULL")

    def commits(self, count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("INSERT INTO t (body) VALUES (?)", ("x" * 400,))
            self.db.execute("COMMIT")
        return (time.perf_counter() - started) / count


async def _run() -> list[Result]:
    with tempfile.TemporaryDirectory() as side:
        folder = Path(side)
        bare, long = _Bare(folder / "bare.db"), _Bare(folder / "long.db", room=True)
        with open_tools(write_tools(folder / "tools", 1, writes=True)) as tools:
            async with tools.runtime(store=f"sqlite:///{folder / 'store.db'}", audit=folder / "audit") as runtime:
                sessions = [await runtime.open_session(user=f"u{number}") for number in range(_SESSIONS)]
                for session in sessions:
                    await session.begin_turn()
                ratios, with_room, speedups, against, tails = [], [], [], [], []
                for number in range(_ROUNDS):
                    commit = bare.commits(_ONE)
                    started = time.perf_counter()
                    for index in range(_ONE):
                        await sessions[0].call(
                            "tool_00000", {"query": f"{number} {index}"}, call_id=f"w{number}-{index}"
                        )
                    alone = (time.perf_counter() - started) / _ONE
                    ratios.append(alone / (2 * commit))
                    with_room.append(alone / (2 * long.commits(_ONE)))
                    rate, times = await _at_once(sessions, number)
                    speedups.append(rate * 2 * commit)
                    against.append(rate * alone)
                    tails += times
        for one in (bare, long):
            one.db.close()
    return [
        Result("writing call, one at a time / two bare commits", median(ratios), "x", 2.0),
        Result("writing call, one at a time / two bare commits into a log with room", median(with_room), "x"),
        Result(
            "64 sessions: calls per second / one pair of commits at a time",
            median(speedups),
            "x",
            None,
            "must be at least 3.5",
        ),
        Result("64 sessions: shortfall against 3.5", 3.5 / median(speedups), "x", 1.0),
        Result("64 sessions: calls per second / writing calls one at a time", median(against), "x"),
        Result("64 sessions: p99 of a call", quantiles(tails, n=100)[98] * 1000, "ms"),
    ]


async def _at_once(sessions: list, number: int) -> tuple[float, list[float]]:  # type: ignore[type-arg]
    times: list[float] = []

    async def one(session) -> None:  # type: ignore[no-untyped-def]
        for index in range(_MANY):
            started = time.perf_counter()
            await session.call("tool_00000", {"query": f"m{number} {index}"}, call_id=f"m{number}-{index}")
            times.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(one(session) for session in sessions))
    return len(sessions) * _MANY / (time.perf_counter() - started), times
