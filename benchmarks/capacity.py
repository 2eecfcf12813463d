"""What a call costs PostgreSQL, in counts that no busy machine changes: round trips, bytes, log, commits, connections, and
processor time. Then what many sessions would meet, simulated with these figures.

A proxy on a socket between the store and the server counts what passes. `docs/scaling.md` explains the model.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from heapq import heappop, heappush
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from tests.loopback_proxy import LoopbackProxy, Streams
from tests.postgres_server import postgres_server

from benchmarks.catalogue import write_tools
from benchmarks.report import Result
from handrail import Session
from handrail.testing import open_tools

_SESSIONS, _ROUNDS = 64, 20
_ALONE = 300
_IDLE_SECONDS = 8.0
_TICKS = os.sysconf("SC_CLK_TCK")
_LARGEST_BATCH = 512
_REQUESTS = 3
"""Of a turn with one writing call to the writer: the turn begins, the call is claimed, its outcome is kept."""
LOADS = ((1_000, 2), (10_000, 4), (100_000, 16), (100_000, 32), (100_000, 64))


def run() -> list[Result]:
    with postgres_server("max_connections=50") as server, tempfile.TemporaryDirectory() as side:
        figures = asyncio.run(measure(server.new_database(), Path(side)))
    results = [Result(name, value, unit) for name, (value, unit) in figures.items()]
    costs = fitted(figures)
    for sessions, processes in LOADS:
        met = simulate(costs, Load(sessions=sessions, processes=processes))
        title = f"simulated: {sessions:,} sessions, {processes} processes"
        results += [
            Result(f"{title}: turns a second", met.turns_per_second, ""),
            Result(f"{title}: median of what a turn waits", met.median * 1000, "ms"),
            Result(f"{title}: p99 of what a turn waits", met.p99 * 1000, "ms"),
            Result(f"{title}: time that a writer is at work", met.writers_busy * 100, "%"),
            Result(f"{title}: cores of the server in use", met.server_cores, ""),
            Result(f"{title}: commits a second", met.commits_per_second, ""),
        ]
    return results


# Counting
@dataclass
class Traffic:
    """What passed a meter."""

    sent: int = 0
    received: int = 0
    trips: int = 0
    """How often the client waited for an answer: what it sends in one go is answered in one."""

    commits: int = 0

    def since(self, before: Traffic) -> Traffic:
        return Traffic(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


class _Meter(LoopbackProxy):  # type: ignore[misc]  # the tests are not typed from here
    """A proxy on a socket in a folder of its own."""

    def __init__(self, folder: Path, server: str) -> None:
        self._server = server
        self._of_connections: dict[object, Traffic] = {}
        """By what is read from the server; beside it, by what is written to it."""
        self._asked: dict[object, Traffic] = {}
        self._unanswered: set[int] = set()
        super().__init__(folder / ".s.PGSQL.5432")

    async def connect(self, head: asyncio.StreamReader) -> Streams:
        reader, writer = await asyncio.open_unix_connection(self._server)
        self._of_connections[reader] = self._asked[writer] = Traffic()
        return reader, writer

    async def up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        traffic = self._asked[writer]
        while data := await reader.read(1 << 16):
            traffic.sent += len(data)
            self._unanswered.add(id(traffic))
            writer.write(data)

    async def down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        traffic = self._of_connections[reader]
        while data := await reader.read(1 << 16):
            traffic.received += len(data)
            traffic.commits += data.count(b"COMMIT\0")
            traffic.trips += id(traffic) in self._unanswered
            self._unanswered.discard(id(traffic))
            writer.write(data)

    @property
    def all(self) -> Traffic:
        return sum(self._of_connections.values(), Traffic())

    @property
    def writer(self) -> Traffic:
        """That of the connection that writes: what the others ask for depends on the time that passes, not on calls."""
        return replace(max(self._of_connections.values(), key=lambda one: one.commits))


@contextmanager
def metered(url: str) -> Iterator[tuple[str, _Meter]]:
    """The URL of the same database through a meter."""
    parts = conninfo_to_dict(url)
    # The path of a socket may not be long.
    with tempfile.TemporaryDirectory(prefix="hr-meter-") as folder:
        meter = _Meter(Path(folder), f"{parts['host']}/.s.PGSQL.5432")
        try:
            yield f"postgresql://{parts['user']}@/{parts['dbname']}?host={quote(folder, safe='')}", meter
        finally:
            meter.close()


class _Server:
    """What the server itself counts."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)

    def number(self, statement: str) -> int:
        row = self._db.execute(statement.encode()).fetchone()
        return int(row[0]) if row else 0

    def log_bytes(self) -> int:
        return self.number("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")

    def cpu(self) -> float:
        """Seconds of processor time of the backends that serve us."""
        return sum(_cpu_of(pid) for (pid,) in self._db.execute(_OURS).fetchall())

    def connections(self) -> int:
        return len(self._db.execute(_OURS).fetchall())

    def close(self) -> None:
        self._db.close()


_OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'handrail' AND datname = current_database()"


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


Figures = dict[str, tuple[float, str]]


async def measure(
    url: str, folder: Path, *, idle_seconds: float = _IDLE_SECONDS, alone: int = _ALONE, rounds: int = _ROUNDS
) -> Figures:
    """Each cost with its unit: of `alone` calls in one session, and of `rounds` in each of 64."""
    found: Figures = {}
    server = _Server(url)
    with metered(url) as (through, meter), open_tools(_both_tools(folder)) as tools:
        async with tools.runtime(store=through, audit=folder / "audit") as runtime:
            sessions = [await runtime.open_session(user=f"u{number}") for number in range(_SESSIONS)]
            for session in sessions:
                await session.begin_turn()
            found["connections of a process"] = (server.connections(), "")
            before = meter.all
            await asyncio.sleep(idle_seconds)
            idle = meter.all.since(before)
            found["a process that does nothing: round trips"] = (idle.trips / idle_seconds, "/s")
            found["a process that does nothing: bytes"] = ((idle.sent + idle.received) / idle_seconds, "/s")
            before = meter.writer
            for number in range(alone):
                await sessions[0].call("read_00000", {"query": f"r{number}"}, call_id=f"r{number}")
            found["read-only call: round trips"] = (meter.writer.since(before).trips / alone, "")
            await _calls(sessions[:1], alone)  # the first ones prepare the statements
            for title, calls in (("writing call", _calls), ("turn with a writing call", _turns)):
                found |= await _costs(f"{title}, one at a time", alone, meter, server, calls(sessions[:1], alone))
                at_once = calls(sessions, rounds)
                found |= await _costs(f"{title}, 64 sessions", _SESSIONS * rounds, meter, server, at_once)
    server.close()
    return found


def _both_tools(folder: Path) -> Path:
    home = write_tools(folder / "tools", 1, writes=True)
    read = write_tools(folder / "readers", 1)
    [reader] = read.iterdir()
    text = (reader / "schema.json").read_text().replace("tool_00000", "read_00000")
    target = home / "read-00000"
    reader.rename(target)
    (target / "schema.json").write_text(text)
    return home


async def _costs(title: str, calls: int, meter: _Meter, server: _Server, work: Any) -> Figures:
    log, cpu, ours = server.log_bytes(), server.cpu(), time.process_time()
    before = meter.writer
    await work
    traffic, ours = meter.writer.since(before), time.process_time() - ours
    return {
        f"{title}: round trips": (traffic.trips / calls, ""),
        f"{title}: bytes to the server": (traffic.sent / calls, ""),
        f"{title}: bytes from the server": (traffic.received / calls, ""),
        f"{title}: bytes of the server's log": ((server.log_bytes() - log) / calls, ""),
        f"{title}: commits": (traffic.commits / calls, ""),
        f"{title}: processor time of the server": ((server.cpu() - cpu) / calls * 1e6, "us"),
        f"{title}: processor time of the process": (ours / calls * 1e6, "us"),
    }


async def _calls(sessions: list[Session], number: int) -> None:
    async def calls_of(session: Session) -> None:
        for index in range(number):
            await session.call(
                "tool_00000", {"query": f"{index} {time.perf_counter_ns()}"}, call_id=f"{time.perf_counter_ns()}"
            )

    await asyncio.gather(*(calls_of(session) for session in sessions))


async def _turns(sessions: list[Session], number: int) -> None:
    async def turns_of(session: Session) -> None:
        for index in range(number):
            await session.begin_turn(f"turn {time.perf_counter_ns()}")
            await session.call(
                "tool_00000", {"query": f"{index} {time.perf_counter_ns()}"}, call_id=f"{time.perf_counter_ns()}"
            )

    await asyncio.gather(*(turns_of(session) for session in sessions))


# Simulating
@dataclass(frozen=True)
class Cost:
    """What a transaction takes: so much by itself, and so much more for each request in it."""

    each: float
    request: float

    def of(self, requests: int) -> float:
        return self.each + self.request * requests


@dataclass(frozen=True)
class Costs:
    trips: Cost
    server_cpu: Cost
    """In seconds, as that of the process is."""
    client_cpu: Cost


def fitted(figures: Figures) -> Costs:
    """The line through what a turn cost alone, a transaction for each request, and among 64, a transaction for many."""

    def line(name: str, unit: float = 1.0) -> Cost:
        points = []
        for title in ("turn with a writing call, one at a time", "turn with a writing call, 64 sessions"):
            commits = figures[f"{title}: commits"][0]
            points.append((_REQUESTS / commits, figures[f"{title}: {name}"][0] * unit / commits))
        (few, low), (many, high) = points
        request = max(0.0, (high - low) / (many - few))
        return Cost(max(0.0, low - request * few), request)

    return Costs(
        trips=line("round trips"),
        server_cpu=line("processor time of the server", 1e-6),
        client_cpu=line("processor time of the process", 1e-6),
    )


@dataclass(frozen=True)
class Load:
    """What is assumed, which no small machine can measure."""

    sessions: int
    processes: int
    seconds_between_turns: float = 20.0
    """Of one session: a person reads and thinks. Each turn has one writing call."""
    handler_seconds: float = 0.2
    trip_seconds: float = 0.0005
    commit_seconds: float = 0.002
    """A synchronous standby in the same region included."""
    server_cores: int = 16
    simulated_seconds: float = 10.0


@dataclass(frozen=True)
class Met:
    """What the turns met; their times without that of handlers."""

    turns_per_second: float
    median: float
    p99: float
    writers_busy: float
    server_cores: float
    commits_per_second: float


class _Process:
    """One writer: everything that waits goes in one transaction."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, int]] = deque()
        self.busy = False


class _Simulation:
    """Turns begin at random moments. Each asks the writer of its process three times: to begin it, to claim its call, and to keep
    the outcome, with the handler in between. A writer sends what waits as one transaction, which takes its trips, its turn
    on a core of the server, and a commit."""

    def __init__(self, costs: Costs, load: Load, seed: int) -> None:
        self._costs, self._load = costs, load
        self._chance = random.Random(seed)
        self._processes = [_Process() for _ in range(load.processes)]
        self._cores = [0.0] * load.server_cores
        self._events: list[tuple[float, int, str, Any]] = []
        self._order = 0
        self._began: dict[int, float] = {}
        self._waited: list[float] = []
        self._server_seconds = self._writer_seconds = 0.0
        self._commits = 0

    def run(self) -> Met:
        load = self._load
        self._next_turn(0.0, 0)
        now = 0.0
        while self._events:
            now, _, kind, what = heappop(self._events)
            if kind == "turn":
                self._began[what] = now
                self._ask(now, self._processes[what % load.processes], (what, 0))
                if now < load.simulated_seconds:
                    self._next_turn(now, what + 1)
            elif kind == "handled":
                process, turn = what
                self._ask(now, process, (turn, 2))
            else:
                self._committed(now, *what)
        cuts, seconds = quantiles(self._waited, n=100), now
        return Met(
            turns_per_second=len(self._waited) / seconds,
            median=cuts[49],
            p99=cuts[98],
            writers_busy=self._writer_seconds / seconds / load.processes,
            server_cores=self._server_seconds / seconds,
            commits_per_second=self._commits / seconds,
        )

    def _push(self, at: float, kind: str, what: Any) -> None:
        self._order += 1
        heappush(self._events, (at, self._order, kind, what))

    def _next_turn(self, now: float, number: int) -> None:
        rate = self._load.sessions / self._load.seconds_between_turns
        self._push(now + self._chance.expovariate(rate), "turn", number)

    def _ask(self, now: float, process: _Process, request: tuple[int, int]) -> None:
        process.waiting.append(request)
        if not process.busy:
            self._send(now, process)

    def _send(self, now: float, process: _Process) -> None:
        batch = [process.waiting.popleft() for _ in range(min(len(process.waiting), _LARGEST_BATCH))]
        process.busy = bool(batch)
        if not batch:
            return
        costs, load, requests = self._costs, self._load, len(batch)
        work = costs.server_cpu.of(requests)
        prepared = now + costs.client_cpu.of(requests) + costs.trips.of(requests) * load.trip_seconds
        started = max(prepared, heappop(self._cores))
        heappush(self._cores, started + work)
        ended = started + work + load.commit_seconds
        self._server_seconds, self._commits = self._server_seconds + work, self._commits + 1
        self._writer_seconds += ended - now
        self._push(ended, "committed", (process, batch))

    def _committed(self, now: float, process: _Process, batch: list[tuple[int, int]]) -> None:
        for turn, step in batch:
            if step == 0:
                process.waiting.append((turn, 1))
            elif step == 1:
                self._push(now + self._load.handler_seconds, "handled", (process, turn))
            else:
                self._waited.append(now - self._began.pop(turn) - self._load.handler_seconds)
        self._send(now, process)


def simulate(costs: Costs, load: Load, seed: int = 1) -> Met:
    return _Simulation(costs, load, seed).run()
