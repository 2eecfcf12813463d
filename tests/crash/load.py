"""Processes that deliver the same writing calls to one store, all of them to each, while something is done to the server, to
the network or to the processes; and what must hold afterwards.

Each delivery is what the runtime does: claim, start, finish; a claim that was not answered is made again under its own id, and an
outcome that was not acknowledged is sent again. What happened is in a journal that outlives everybody.
"""

import asyncio
import json
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.crash.effects import Journal
from tests.crash.run import processes_of
from tests.crash.worker import DatabaseWithoutLedger, FileWithoutLedger
from tests.stores.values import claim, session

from handrail.contract.store import ClaimVerdict, Finish, LedgerRow, LedgerState, Store, StoreUnavailable
from handrail.stores import open_store
from handrail.stores.postgres import PostgresStore

SESSIONS = 4
_FILE = "sqlite:///"
_PROCESSES = processes_of("tests.crash.load")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one process is to do: deliver `calls` calls in an order of its own, `at_once` at a time."""

    number: int
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


def deliver(job: Delivery) -> None:
    """The entry of the process."""
    logging.basicConfig(filename=job.journal.with_suffix(".log"))
    if job.ahead_seconds:
        _set_clock(job.ahead_seconds)
    asyncio.run(_Deliverer(job).run())


def _set_clock(ahead: float) -> None:
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + ahead
    time.time_ns = lambda: right_ns() + int(ahead * 1e9)


class _Deliverer:
    def __init__(self, job: Delivery) -> None:
        self.job = job
        self.random = random.Random(job.seed)
        self.journal = Journal(job.journal)
        self.owner = f"{job.number}-{os.getpid()}"
        self.store = _store(job.url) if job.ledger else _store_without_ledger(job.url)
        self.until = time.monotonic() + job.patience

    async def run(self) -> None:
        await self._answered(self.store.open)
        await self._answered(lambda: self.store.register_owner(self.owner))
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
            self.journal.write("verdict", key=key, verdict=result.verdict)
            if result.verdict is ClaimVerdict.CLAIMED:
                await self._carry_out(key, result.fence)
                return
            if result.verdict in (ClaimVerdict.SETTLED, ClaimVerdict.UNKNOWN):
                self.journal.write("replayed", key=key, receipt=result.row.envelope, state=result.row.state)
                return
            assert result.verdict is ClaimVerdict.RUNNING, result
            await asyncio.sleep(0.05)

    async def _carry_out(self, key: str, fence: int) -> None:
        receipt = json.dumps({"receipt": f"{self.owner}-{self.random.getrandbits(64):x}"})
        self.journal.write("start", key=key, owner=self.owner, receipt=receipt)
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
    deliveries: int = 0
    unknown: int = 0
    away: int = 0
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Acknowledged, or started, and not in the ledger as that."""
    inconsistent: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, list[str]]:
        found = {name: getattr(self, name) for name in ("doubled", "lost", "inconsistent", "unanswered")}
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


def start(jobs: list[Delivery]) -> list[Any]:
    processes = [_PROCESSES.Process(target=deliver, args=(job,)) for job in jobs]
    for process in processes:
        process.start()
    return processes


def run(
    url: str, folder: Path, disturb: Callable[[list[Any]], None], *, judge_at: str | None = None, **how: Any
) -> Outcome:
    """Two processes deliver while `disturb` does its worst; then a third, which nothing disturbs, delivers everything again."""
    journal = folder / f"journal-{time.monotonic_ns()}.jsonl"
    urls = how.pop("urls", (url, url))
    ahead = how.pop("ahead", (0.0, 0.0))
    asyncio.run(make_sessions(judge_at or url))
    jobs = [
        Delivery(number=number, seed=number, url=one, journal=journal, ahead_seconds=wrong, **how)
        for number, (one, wrong) in enumerate(zip(urls, ahead, strict=True))
    ]
    processes = start(jobs)
    patience = 60 + how.get("patience", 60.0)
    try:
        disturb(processes)
        for process in processes:
            process.join(patience)
    finally:
        for process in processes:
            if process.exitcode is None:
                process.kill()
                process.join()
    last = Delivery(number=99, seed=99, url=judge_at or url, journal=journal, **how)
    (again,) = start([last])
    again.join(patience)
    assert again.exitcode == 0
    return asyncio.run(_judge(judge_at or url, journal, how["calls"], ledger=how.get("ledger", True)))


async def _judge(url: str, journal: Path, calls: int, *, ledger: bool) -> Outcome:
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    starts = [line for line in lines if line["kind"] == "start"]
    outcome = Outcome(
        starts=len(starts),
        acknowledged=sum(line["kind"] == "acknowledged" for line in lines),
        replayed=sum(line["kind"] == "replayed" for line in lines),
        deliveries=sum(line["kind"] == "verdict" for line in lines),
        away=sum(line["kind"] == "away" for line in lines),
        doubled=sorted(key for key, times in Counter(line["key"] for line in starts).items() if times > 1),
    )
    if not ledger:
        return outcome
    store = _store(url)
    await store.open()
    rows: dict[str, LedgerRow | None] = {f"call-{n}": await store.ledger_row(f"call-{n}") for n in range(calls)}
    await store.close()
    outcome.unknown = sum(row is not None and row.state is LedgerState.UNKNOWN for row in rows.values())
    outcome.lost = sorted({line["key"] for line in starts if rows[line["key"]] is None})
    final = (LedgerState.SUCCEEDED, LedgerState.UNKNOWN)
    outcome.unanswered = sorted(key for key, row in rows.items() if row is None or row.state not in final)
    receipts = {line["key"]: line["receipt"] for line in starts}
    for line in lines:
        row = rows.get(line.get("key", ""))
        if line["kind"] == "acknowledged" and (row is None or row.envelope != line["receipt"]):
            outcome.lost.append(line["key"])
        if line["kind"] == "replayed" and line["receipt"] not in (None, receipts.get(line["key"])):
            outcome.inconsistent.append(line["key"])
    return outcome
