"""One worker: a process that resumes a session of the shared store, plays the model's part from where it was cut off, and
may be killed at any instant. Everything that the harness has to know of it is in the journal.
"""

import asyncio
import logging
import os
import random
import signal
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.crash.effects import LOGICAL, Journal, prepare

from handrail import Registry, Runtime, Session, ToolResponse
from handrail.contract.store import Claim, ClaimResult, ClaimVerdict, Finish, LedgerRow
from handrail.stores import SqliteStore
from handrail.stores.postgres import PostgresStore

POLICY = {
    # Short leases, so that what a dead owner left is soon known to be unknown. They lapse between two heartbeats: that a
    # living owner is left alone must not hang on them.
    "lease_ms": 150,
    "refusals": 10_000,
    "identical_calls": 10_000,
    "text": {"wait_seconds": 3},
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that the scripted model really asked for. Two of them may look the same."""

    logical: str
    tool: str
    args: dict[str, object]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn as a connection of the model delivers it."""

    input_id: str
    calls: tuple[Wanted, ...]
    restored: tuple[str, ...]
    """The ids of the first calls, which the model still remembers."""
    sent: tuple[str | None, ...]
    """For each call, an id under which it was sent before and is sent again; None: the model makes a new one."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker is to do."""

    number: int
    seed: int
    folder: Path
    session_id: str
    token: str
    turns: tuple[Turn, ...]
    """Each of them on a connection of its own."""
    id_scope: str
    database: str | None = None
    """The URL of a PostgreSQL database; None: a file in the folder."""
    ledger: bool = True
    dies_at: tuple[str, int] | None = None
    """The crash point at which it kills itself, and the how manieth time; beside being killed from outside."""
    patient: bool = False
    """Whether it continues until every call has its outcome."""


def work(job: Job) -> None:
    """The entry of the process."""
    logging.basicConfig(filename=job.folder / "workers.log")
    worker = _Worker(job)
    try:
        asyncio.run(worker.run())
    except Exception:  # noqa: BLE001  # whatever it is, the harness must hear of it
        worker.journal.write("failed", worker=job.number, why=traceback.format_exc())
        raise SystemExit(1) from None


class _Worker:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.random = random.Random(job.seed)
        self.passed = 0
        """How often it was at the point where it is to die."""
        self.unanswered: list[Wanted] = []
        """Calls of this connection whose first execution took too long. An identical one after them would be their retry, and not
        a second wish, whatever its id."""
        self.journal = Journal(job.folder / "journal.jsonl")
        prepare(self.journal, job.number, job.seed)

    async def run(self) -> None:
        job = self.job
        registry = Registry.load(job.folder / "tool_registry.json")
        store = store_of(job.folder, job.database, ledger=job.ledger)
        crash = self._perhaps_die if job.dies_at is not None else None
        runtime = Runtime(registry, store=store, policy=POLICY, crash=crash)
        await runtime.open()
        self.journal.write("owner", worker=job.number, owner=runtime.owner)
        for number, turn in enumerate(job.turns):
            session = await runtime.resume_session(job.session_id, token=job.token, restored_calls=turn.restored)
            await session.begin_turn(turn.input_id)
            self.unanswered = []
            for position, wanted in enumerate(turn.calls):
                if any((wanted.tool, wanted.args) == (one.tool, one.args) for one in self.unanswered):
                    continue
                new_id = f"call_{job.number}_{number}_{position}"
                if not await self._deliver(session, turn, position, wanted, new_id):
                    break  # the model is connected elsewhere by now
        await runtime.close()

    async def _deliver(self, session: Session, turn: Turn, position: int, wanted: Wanted, new_id: str) -> bool:
        """One call, now and then in duplicate; whether the connection is still ours."""
        job = self.job
        remembered = position < len(turn.restored)
        if remembered:
            # The network may deliver it again, if the id still means it on this connection.
            if job.id_scope != "session" or self.random.random() < 0.7:
                return True
            call_id = turn.restored[position]
        else:
            call_id = turn.sent[position] or new_id
        self.journal.write("sent", worker=job.number, logical=wanted.logical, id=call_id)
        LOGICAL.set(wanted.logical)
        copies = self.random.choice((1, 1, 2, 3))
        ours = await asyncio.gather(*(self._until_answered(session, wanted, call_id) for _ in range(copies)))
        return all(ours)

    async def _until_answered(self, session: Session, wanted: Wanted, call_id: str) -> bool:
        """A delivery has one line in the journal, however often it has to ask."""
        for _ in range(20 if self.job.patient else 3):
            answer = await session.call(wanted.tool, wanted.args, call_id=call_id, id_scope=self.job.id_scope)
            kind = kind_of(answer)
            if kind != "later":
                break
            await asyncio.sleep(0.05)
        if kind == "later":
            self.unanswered.append(wanted)
        receipt = answer.data["receipt"] if answer.ok else None
        self.journal.write(
            "answer", worker=self.job.number, logical=wanted.logical, id=call_id, outcome=kind, receipt=receipt
        )
        return kind != "stale"

    def _perhaps_die(self, point: str) -> None:
        assert self.job.dies_at is not None
        self.passed += point == self.job.dies_at[0]
        if self.passed == self.job.dies_at[1]:
            self.journal.write("died", worker=self.job.number, point=point)
            os.kill(os.getpid(), signal.SIGKILL)


def kind_of(answer: ToolResponse) -> str:
    if answer.ok:
        return "done"
    assert answer.error is not None
    if answer.error.type == "CONFLICT":
        if answer.error.partial_side_effects:
            return "unknown"
        if "connection" in answer.error.message:
            return "stale"
    if answer.error.type in ("IN_PROGRESS", "STORE_UNAVAILABLE"):
        return "later"
    return f"refused: {answer.error.type}: {answer.error.message}"


class WithoutLedger:
    """The control: everything as it is, but whoever asks for a claim gets it, and nobody remembers."""

    async def claim(self, claim: Claim) -> ClaimResult:
        return ClaimResult(verdict=ClaimVerdict.CLAIMED, fence=1)

    async def finish(self, finish: Finish) -> LedgerRow:
        return LedgerRow(
            key=finish.key,
            tenant="",
            session_id="",
            user=None,
            turn=0,
            ordinal=1,
            tool="",
            tool_hash="",
            registry_version="",
            args_digest="",
            args="",
            effects="unsafe",
            state=finish.state,
            fence=finish.fence,
            owner="",
            lease_until=0,
            created_at=0,
            finished_at=0,
            envelope=finish.envelope,
            evicted=False,
            hold_id=None,
        )


class FileWithoutLedger(WithoutLedger, SqliteStore):
    pass


class DatabaseWithoutLedger(WithoutLedger, PostgresStore):
    pass


def store_of(folder: Path, database: str | None = None, *, ledger: bool = True) -> SqliteStore | PostgresStore:
    if database is not None:
        return PostgresStore(database) if ledger else DatabaseWithoutLedger(database)
    path = folder / "handrail.db"
    return SqliteStore(path) if ledger else FileWithoutLedger(path)
