"""Writing calls and turns on SQLite against bare commits of the same durability, in pairs: one after the other, again and again.

What a disk takes for a commit changes from minute to minute, so that only what was measured side by side is compared, and the
median of many pairs is reported.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from benchmarks.catalogue import write_tools
from benchmarks.report import Result
from handrail import Session
from handrail.testing import open_tools

_PAIRS, _EACH = 21, 50
_SESSIONS, _CALLS_OF_EACH = 64, 6
_WARM_UP = 300
"""Calls before the first pair: the store has made room in its log by then."""


def run() -> list[Result]:
    return asyncio.run(_run())


class _BareCommits:
    """Commits as the store makes them, WAL and synchronous FULL, into a log that is already as long as it gets."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA wal_autocheckpoint=8000")
        self.db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
        self.db.execute("PRAGMA synchronous=OFF")
        self.seconds(4_000)
        self.db.execute("PRAGMA wal_checkpoint(RESTART)")
        self.db.execute("PRAGMA synchronous=FULL")

    def seconds(self, count: int = _EACH) -> float:
        """How long one commit takes, as the mean of several."""
        started = time.perf_counter()
        for _ in range(count):
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("INSERT INTO t (body) VALUES (?)", ("x" * 400,))
            self.db.execute("COMMIT")
        return (time.perf_counter() - started) / count


async def _run() -> list[Result]:
    with tempfile.TemporaryDirectory() as side:
        folder = Path(side)
        bare = _BareCommits(folder / "bare.db")
        with open_tools(write_tools(folder / "tools", 1, writes=True)) as tools:
            async with tools.runtime(store=f"sqlite:///{folder / 'store.db'}", audit=folder / "audit") as runtime:
                sessions = [await runtime.open_session(user=f"u{number}") for number in range(_SESSIONS)]
                for session in sessions:
                    await session.begin_turn()
                await _one_at_a_time(sessions[0], "warm-up", _WARM_UP)
                alone, turns, speedups, gains, tails = [], [], [], [], []
                for pair in range(_PAIRS):
                    await sessions[0].begin_turn()
                    commit = bare.seconds()
                    call = await _one_at_a_time(sessions[0], str(pair))
                    alone.append(call / (2 * commit))
                    turn = await _turns(sessions[1])
                    turns.append(turn / bare.seconds())
                    commit = bare.seconds()
                    rate, times = await _at_once(sessions, pair)
                    speedups.append(rate * 2 * commit)
                    gains.append(rate * call)
                    tails += times
        bare.db.close()
    return [
        Result("writing call, one at a time / two bare commits into a log with room", median(alone), "x", 3.5),
        Result("beginning a turn / one bare commit into a log with room", median(turns), "x", 3.0),
        Result("64 sessions: calls per second / one pair of commits at a time", median(speedups), "x"),
        Result("64 sessions: shortfall against 3.8 pairs", 3.8 / median(speedups), "x", 1.0),
        Result("64 sessions: calls per second / writing calls one at a time", median(gains), "x"),
        Result("64 sessions: p99 of a call", quantiles(tails, n=100)[98] * 1000, "ms"),
    ]


async def _one_at_a_time(session: Session, name: str, count: int = _EACH) -> float:
    """What one writing call takes."""
    started = time.perf_counter()
    for index in range(count):
        await session.call("tool_00000", {"query": f"{name} {index}"}, call_id=f"w{name}-{index}")
    return (time.perf_counter() - started) / count


async def _turns(session: Session) -> float:
    """What beginning a turn takes, each with an input of its own."""
    started = time.perf_counter()
    for _ in range(_EACH):
        await session.begin_turn(f"input {time.perf_counter_ns()}")
    return (time.perf_counter() - started) / _EACH


async def _at_once(sessions: list[Session], pair: int) -> tuple[float, list[float]]:
    """Calls per second of all sessions together, and what each took."""
    times: list[float] = []

    async def calls_of(session: Session) -> None:
        for index in range(_CALLS_OF_EACH):
            started = time.perf_counter()
            await session.call("tool_00000", {"query": f"m{pair} {index}"}, call_id=f"m{pair}-{index}")
            times.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(calls_of(session) for session in sessions))
    return len(sessions) * _CALLS_OF_EACH / (time.perf_counter() - started), times
