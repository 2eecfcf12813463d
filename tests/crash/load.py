"""Processes that deliver the same writing calls to one store, all of them to each, while something is done to the server, to
the network or to the processes; and what must hold afterwards.

Each delivery is what the runtime does: claim, start, finish; a claim that was not answered is made again under its own id, and an
outcome that was not acknowledged is sent again. It counts once, when it has its answer, however often it had to ask. What
happened is in a journal that outlives everybody.
"""

import asyncio
import json
import logging
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.crash.clocks import set_clock
from tests.crash.effects import Journal
from tests.crash.run import warm_processes
from tests.crash.worker import DatabaseWithoutLedger, FileWithoutLedger
from tests.stores.values import claim, session

from handrail.contract.store import ClaimVerdict, Finish, LedgerRow, LedgerState, Store, StoreUnavailable
from handrail.stores import open_store
from handrail.stores.postgres import PostgresStore

SESSIONS = 4
_FILE = "sqlite:///"
_PROCESSES = warm_processes()


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one process is to do: deliver `calls` calls in an order of its own, `at_once` at a time."""

    place: int
    """Two deliver at the same time. Whoever comes after a killed one takes its place."""
    seed: int
    url: str
    journal: Path
    calls: int
    at_once: int = 8
    ledger: bool = True
    ahead_seconds: float = 0.0
    """By how much the clock of this machine is wrong."""
    patience: float = 60.0
    lease_ms: int = 400
    copies: int = 1
    """How often each call is delivered, at the same time."""
    together: Any = None
    """A barrier: nobody begins before the others can."""


def deliver(job: Delivery) -> None:
    """The entry of the process."""
    logging.basicConfig(filename=job.journal.with_suffix(".log"))
    if job.ahead_seconds:
        set_clock(job.ahead_seconds)
    asyncio.run(_Deliverer(job).run())


class _Deliverer:
    def __init__(self, job: Delivery) -> None:
        self.job = job
        self.random = random.Random(job.seed)
        self.journal = Journal(job.journal)
        self.owner = f"{job.place}-{os.getpid()}"
        self.store = _store(job.url) if job.ledger else _store_without_ledger(job.url)
        self.until = time.monotonic() + job.patience

    async def run(self) -> None:
        await self._answered(self.store.open)
        await self._answered(lambda: self.store.register_owner(self.owner))
        if self.job.together is not None:
            self.job.together.wait(self.job.patience)
        order = list(range(self.job.calls))
        self.random.shuffle(order)
        waiting = iter(order)

        async def one_after_another() -> None:
            for number in waiting:
                await asyncio.gather(*(self._deliver(number) for _ in range(self.job.copies)))

        await asyncio.gather(*(one_after_another() for _ in range(self.job.at_once)))
        await self.store.close()

    async def _deliver(self, number: int) -> None:
        key = f"call-{number}"
        wish = claim(
            key, args_digest=key, session_id=f"s{number % SESSIONS}", owner=self.owner, lease_ms=self.job.lease_ms
        )
        wish = replace(wish, claim_id=f"{self.owner}-{self.random.getrandbits(64):x}")
        while time.monotonic() < self.until:
            result = await self._answered(lambda: self.store.claim(wish))
            if result.verdict is ClaimVerdict.CLAIMED:
                await self._carry_out(key, result.fence)
                return
            if result.verdict in (ClaimVerdict.SETTLED, ClaimVerdict.UNKNOWN):
                self.journal.write("replayed", key=key, receipt=result.row.envelope, state=result.row.state)
                return
            assert result.verdict is ClaimVerdict.RUNNING, result
            await asyncio.sleep(0.05)
        self.journal.write("gave_up", key=key)

    async def _carry_out(self, key: str, fence: int) -> None:
        receipt = json.dumps({"receipt": f"{self.owner}-{self.random.getrandbits(64):x}"})
        self.journal.write("start", key=key, place=self.job.place, receipt=receipt)
        await asyncio.sleep(self.random.random() * 0.02)
        finish = Finish(key=key, fence=fence, state=LedgerState.SUCCEEDED, envelope=receipt)
        row = await self._answered(lambda: self.store.finish(finish))
        self.journal.write("acknowledged", key=key, receipt=receipt, stored=row.envelope)

    async def _answered(self, ask: Callable[[], Any]) -> Any:
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                self.journal.write("away")
                if time.monotonic() > self.until:
                    raise
                await asyncio.sleep(0.02 + self.random.random() * 0.05)


@dataclass(slots=True)
class Outcome:
    """What became of a run; each list must be empty."""

    starts: int = 0
    acknowledged: int = 0
    replayed: int = 0
    unknown: int = 0
    away: int = 0
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Acknowledged, or started, and not in the ledger as that."""
    inconsistent: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Processes that ended with an error, or never started a call: the others alone show little."""

    @property
    def deliveries(self) -> int:
        """Those that have their answer."""
        return self.acknowledged + self.replayed

    @property
    def faults(self) -> dict[str, list[str]]:
        found = {name: getattr(self, name) for name in ("doubled", "lost", "inconsistent", "unanswered", "failed")}
        return {name: keys for name, keys in found.items() if keys}


def _store(url: str) -> Store:
    return open_store(url) if url.startswith(_FILE) else PostgresStore(url, limit_seconds=4)


def _store_without_ledger(url: str) -> Store:
    if url.startswith(_FILE):
        return FileWithoutLedger(Path(url.removeprefix(_FILE)))
    return DatabaseWithoutLedger(url, limit_seconds=4)


async def make_sessions(url: str) -> None:
    store = _store(url)
    await store.open()
    for number in range(SESSIONS):
        await store.create_session(session(f"s{number}"))
    await store.close()


class Load:
    """Two processes that deliver the same calls, and what whoever disturbs them has to know of them."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        urls: tuple[str, str] | None = None,
        ahead: tuple[float, float] = (0.0, 0.0),
        **how: Any,
    ) -> None:
        self.journal = folder / f"journal-{time.monotonic_ns()}.jsonl"
        self.failed: list[str] = []
        self.how = how
        self.patience = 60 + how.get("patience", 60.0)
        both = _PROCESSES.Barrier(2)
        self._jobs = [
            Delivery(place=place, seed=place, url=one, journal=self.journal, ahead_seconds=wrong, together=both, **how)
            for place, (one, wrong) in enumerate(zip(urls or (url, url), ahead, strict=True))
        ]
        self.processes = [_started(job) for job in self._jobs]
        self._read_to = 0
        self.acknowledged = 0

    @property
    def goes_on(self) -> bool:
        return any(process.exitcode is None for process in self.processes)

    def until_acknowledged(self, more: int, seconds: float = 60.0) -> bool:
        """Wait until this many more outcomes are there; False if nobody delivers any more, or after these seconds."""
        self._count()
        goal, ends = self.acknowledged + more, time.monotonic() + seconds
        while self.acknowledged < goal:
            if not self.goes_on or time.monotonic() > ends:
                return False
            time.sleep(0.002)
            self._count()
        return True

    def replace(self, place: int) -> None:
        """SIGKILL one of them, and start another in its place."""
        process, job = self.processes[place], self._jobs[place]
        _kill(process)
        self._end(process, -signal.SIGKILL, 0)
        self._jobs[place] = replace(job, seed=job.seed + 2, together=None)
        self.processes[place] = _started(self._jobs[place])

    def finish(self, url: str) -> None:
        """When they have delivered everything, another does once more, alone."""
        for process in self.processes:
            self._end(process, 0)
        self._end(_started(Delivery(place=99, seed=99, url=url, journal=self.journal, **self.how)), 0)

    def kill(self) -> None:
        for process in self.processes:
            _kill(process)

    def _end(self, process: BaseProcess, *right: int) -> None:
        process.join(self.patience)
        if process.exitcode is None:
            _kill(process)
        if process.exitcode not in right:
            self.failed.append(f"a process ended with {process.exitcode}")

    def _count(self) -> None:
        if not self.journal.exists():
            return
        with self.journal.open("rb") as stream:
            stream.seek(self._read_to)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to += len(whole)
        self.acknowledged += whole.count(b'{"kind": "acknowledged"')


def _started(job: Delivery) -> BaseProcess:
    process = _PROCESSES.Process(target=deliver, args=(job,))
    process.start()
    return process


def _kill(process: BaseProcess) -> None:
    with suppress(ProcessLookupError):  # it has just ended by itself
        process.kill()
    process.join()


def leave_alone(load: Load) -> None:
    """What disturbs nobody."""


def run(
    url: str, folder: Path, disturb: Callable[[Load], None] = leave_alone, *, judge_at: str | None = None, **how: Any
) -> Outcome:
    """Two processes deliver while `disturb` does its worst; then a third, which nothing disturbs, delivers everything again."""
    asyncio.run(make_sessions(judge_at or url))
    load = Load(url, folder, **how)
    try:
        disturb(load)
        load.finish(judge_at or url)
    finally:
        load.kill()
    outcome = asyncio.run(_judge(judge_at or url, load.journal, how["calls"], ledger=how.get("ledger", True)))
    outcome.failed += load.failed
    return outcome


async def _judge(url: str, journal: Path, calls: int, *, ledger: bool) -> Outcome:
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    starts = [line for line in lines if line["kind"] == "start"]
    outcome = Outcome(
        starts=len(starts),
        acknowledged=sum(line["kind"] == "acknowledged" for line in lines),
        replayed=sum(line["kind"] == "replayed" for line in lines),
        away=sum(line["kind"] == "away" for line in lines),
        doubled=sorted(key for key, times in Counter(line["key"] for line in starts).items() if times > 1),
    )
    idle = {0, 1} - {line["place"] for line in starts}
    outcome.failed += [f"the process at place {place} started nothing" for place in sorted(idle)]
    if not ledger:
        return outcome
    store = _store(url)
    await store.open()
    rows: dict[str, LedgerRow | None] = {f"call-{n}": await store.ledger_row(f"call-{n}") for n in range(calls)}
    await store.close()
    outcome.unknown = sum(row is not None and row.state is LedgerState.UNKNOWN for row in rows.values())
    outcome.lost = sorted({line["key"] for line in starts if rows[line["key"]] is None})
    final = (LedgerState.SUCCEEDED, LedgerState.UNKNOWN)
    gave_up = {line["key"] for line in lines if line["kind"] == "gave_up"}
    outcome.unanswered = sorted(gave_up | {key for key, row in rows.items() if row is None or row.state not in final})
    receipts = {line["key"]: line["receipt"] for line in starts}
    for line in lines:
        row = rows.get(line.get("key", ""))
        if line["kind"] == "acknowledged" and (row is None or row.envelope != line["receipt"]):
            outcome.lost.append(line["key"])
        if line["kind"] == "replayed" and line["receipt"] not in (None, receipts.get(line["key"])):
            outcome.inconsistent.append(line["key"])
    return outcome
