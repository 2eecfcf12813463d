"""Two processes that deliver the calls of many sessions again and again through `Session.call`: many times at once under one id,
after a resume at the other process under the ids that it remembers, and under new ids by a model that has forgotten them.

Where `load` claims by keys that it has made itself, here ids and arguments decide what is the same call. Among the calls are two
that look the same and are both wanted, one that a person has to approve, and one whose id comes again with other arguments.
"""

import asyncio
import json
import logging
import secrets
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.effects import LOGICAL, Journal, prepare
from tests.crash.run import build_effects, warm_processes
from tests.crash.worker import POLICY, Wanted, kind_of, store_of

from handrail import Registry, Runtime, Session

_PROCESSES = warm_processes()
_FINAL = ("done", "unknown")
_CHANGED = 1_000_000
"""An amount that nobody has asked for."""
_AT_ONCE = 8
"""Sessions."""


@dataclass(frozen=True, slots=True)
class Repeater:
    """What one process is to do."""

    place: int
    folder: Path
    database: str | None
    sessions: int
    copies: int
    ledger: bool
    together: Any
    """A barrier: nobody resumes a session before the other is done with it."""

    @property
    def ours(self) -> Path:
        return self.folder / f"sessions-{self.place}.json"

    @property
    def of_the_other(self) -> Path:
        return self.folder / f"sessions-{1 - self.place}.json"


@dataclass(frozen=True, slots=True)
class Opened:
    session_id: str
    token: str
    calls: tuple[Wanted, ...]

    @property
    def ids(self) -> list[str]:
        return [wanted.logical for wanted in self.calls]


def repeat(job: Repeater) -> None:
    """The entry of the process."""
    logging.basicConfig(filename=job.folder / "repeaters.log")
    asyncio.run(_Repeater(job).run())


class _Repeater:
    def __init__(self, job: Repeater) -> None:
        self.job = job
        self.journal = Journal(job.folder / "journal.jsonl")
        prepare(self.journal, job.place, job.place)

    async def run(self) -> None:
        job = self.job
        store = store_of(job.folder, job.database, ledger=job.ledger)
        registry = Registry.load(job.folder / "tool_registry.json")
        async with Runtime(registry, store=store, policy=POLICY) as self.runtime:
            job.together.wait(60)
            opened = await self._of_all([self._begin() for _ in range(job.sessions)])
            job.ours.write_text(json.dumps([[one.session_id, one.token, one.ids] for one in opened]))
            job.together.wait(600)
            theirs = [
                Opened(session_id, token, tuple(map(_call, ids)))
                for session_id, token, ids in json.loads(job.of_the_other.read_text())
            ]
            await self._of_all([self._go_on(one) for one in theirs])

    async def _of_all(self, work: list[Any]) -> list[Any]:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(part: Any) -> Any:
            async with limit:
                return await part

        return await asyncio.gather(*map(one, work))

    async def _begin(self) -> Opened:
        session = await self.runtime.open_session(user="somebody")
        name = secrets.token_hex(6)
        calls = tuple(_call(f"{name}-{number}") for number in range(6))
        await session.begin_turn("turn")
        await asyncio.gather(
            *(self._deliver(session, wanted, wanted.logical) for wanted in calls for _ in range(self.job.copies))
        )
        await self._deliver_changed(session, calls[0])
        await self._approve(session, calls[-1])
        return Opened(session.id, session.token, calls)

    async def _go_on(self, opened: Opened) -> None:
        """The session continues here: its model remembers all of its calls, and then none."""
        for remembered in (opened.ids, []):
            session = await self.runtime.resume_session(
                opened.session_id, token=opened.token, restored_calls=remembered
            )
            await session.begin_turn("turn")
            for wanted in opened.calls:
                call_id = wanted.logical if remembered else f"{wanted.logical}-new"
                await asyncio.gather(*(self._deliver(session, wanted, call_id) for _ in range(self.job.copies)))

    async def _deliver(self, session: Session, wanted: Wanted, call_id: str) -> None:
        LOGICAL.set(wanted.logical)
        ends = time.monotonic() + 60
        while True:
            answer = await session.call(wanted.tool, wanted.args, call_id=call_id)
            outcome = kind_of(answer)
            if outcome != "later" or time.monotonic() > ends:
                break
            await asyncio.sleep(0.02)
        if outcome.startswith("refused: CONFIRMATION_REQUIRED") and wanted.tool == "transfer":
            outcome = "held"
        receipt = answer.data["receipt"] if answer.ok else None
        self.journal.write("answer", logical=wanted.logical, outcome=outcome, receipt=receipt)

    async def _deliver_changed(self, session: Session, wanted: Wanted) -> None:
        args = {**wanted.args, "amount": _CHANGED}
        answer = await session.call(wanted.tool, args, call_id=wanted.logical)
        self.journal.write("changed", logical=wanted.logical, outcome=kind_of(answer))

    async def _approve(self, session: Session, wanted: Wanted) -> None:
        """Twice at the same time, as two people may; who is asked to try again does."""
        LOGICAL.set(wanted.logical)
        event = await anext(event async for event in session.events() if event.type == "confirmation")
        confirmation, token = event.data["id"], event.data["token"]

        async def say_yes() -> None:
            ends = time.monotonic() + 60
            while True:
                answer = await self.runtime.approve(confirmation, token=token)
                again = answer.error is not None and answer.error.retryable and time.monotonic() < ends
                self.journal.write("approval", logical=wanted.logical, outcome=kind_of(answer), again=again)
                if not again:
                    break
                await asyncio.sleep(0.02)

        await asyncio.gather(*(say_yes() for _ in range(2)))


def _call(logical: str) -> Wanted:
    """By its number: two alike, two others, one that may be repeated, and one that waits for a person."""
    number = int(logical.rpartition("-")[2])
    tool = {4: "set_address", 5: "transfer"}.get(number, "charge_card")
    # An approved call is run by whoever sees the yes first, also by the process itself: so its account has its name.
    return Wanted(logical, tool, {"account": logical if tool == "transfer" else "a1", "amount": max(1, number)})


def _started(line: dict[str, Any]) -> str:
    """Which call a start is of."""
    return str(line["account"] if line["tool"] == "transfer" else line["logical"])


@dataclass(slots=True)
class Outcome:
    """What became of a run; each list must be empty."""

    deliveries: int = 0
    held: int = 0
    """Deliveries that were told to wait for a person."""
    starts: int = 0
    unknown: int = 0
    doubled: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    """Calls that were given each other's outcome, or an outcome for other arguments."""
    inconsistent: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, list[str]]:
        names = ("doubled", "merged", "inconsistent", "unanswered", "failed")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


def run(home: str | Path, database: str | None, *, sessions: int, copies: int, ledger: bool = True) -> Outcome:
    """`sessions` of each process; in the end both have delivered the calls of all."""
    folder = Path(home) / "run"
    build_effects(folder)
    together = _PROCESSES.Barrier(2)
    processes = [
        _PROCESSES.Process(target=repeat, args=(Repeater(place, folder, database, sessions, copies, ledger, together),))
        for place in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
        process.kill()
    outcome = _judge([json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()])
    outcome.failed = [f"a process ended with {process.exitcode}" for process in processes if process.exitcode != 0]
    return outcome


def _judge(lines: list[dict[str, Any]]) -> Outcome:
    starts = [line for line in lines if line["kind"] == "start"]
    answers = [line for line in lines if line["kind"] == "answer"]
    counted = Counter(map(_started, starts))
    receipts: dict[str, set[str]] = defaultdict(set)
    stand_for: dict[str, set[str]] = defaultdict(set)
    for line in answers:
        if line["outcome"] == "done":
            receipts[line["logical"]].add(line["receipt"])
            stand_for[line["receipt"]].add(line["logical"])
    of_other_arguments = [line["logical"] for line in lines if line["kind"] == "changed" and line["outcome"] == "done"]
    return Outcome(
        deliveries=sum(line["outcome"] in (*_FINAL, "held") for line in answers),
        held=sum(line["outcome"] == "held" for line in answers),
        starts=len(starts),
        unknown=sum(line["outcome"] == "unknown" for line in answers),
        doubled=sorted(name for name, times in counted.items() if times > 1),
        merged=[" = ".join(sorted(names)) for names in stand_for.values() if len(names) > 1]
        + of_other_arguments
        + [_started(line) for line in starts if line["amount"] == _CHANGED],
        inconsistent=sorted(name for name, given in receipts.items() if len(given) > 1),
        unanswered=[
            f"{line['logical']}: {line['outcome']}" for line in answers if line["outcome"] not in (*_FINAL, "held")
        ]
        + [
            f"{line['logical']}: approved, {line['outcome']}"
            for line in lines
            if line["kind"] == "approval" and not line["again"] and line["outcome"] not in _FINAL
        ]
        + sorted({line["logical"] for line in answers} - counted.keys()),
    )
