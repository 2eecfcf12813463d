"""Kills worker processes at random while they deliver writing calls, in duplicate and again under new ids after a resume.

The harness is the model and the network: it knows which calls were really asked for, which of them a restored model still
remembers, and under which ids each was sent. Most workers are killed once they have started an effect, which is where something
could be doubled: at a chosen point after the claim, or soon after the start. The workers are real runtimes on one SQLite file, or
on one PostgreSQL database. By hand:

    python -m tests.crash.harness --kills 500 --seed 7
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.crash.run import RunFigures, build_effects, room, warm_processes
from tests.crash.worker import POLICY, Job, Turn, Wanted, store_of, work

from handrail import Registry, Runtime
from handrail.contract.store import LedgerRow, LedgerState

TURNS = 3
PATIENCE = 60.0
"""Seconds after which a worker that nobody kills is taken for stuck."""
_MAX_CALL_SECONDS = 1.0
_OPEN = ("after_claim", "before_handler", "after_handler", "before_finish")
_POINTS = (*_OPEN, *_OPEN, "before_claim", "after_finish", "before_delivery")
"""Where workers kill themselves; most often where a claim is open."""
FINAL = ("done", "unknown")
Pair = tuple[str, int, str, str]


@dataclass(slots=True)
class Conversation:
    """One session as the scripted model lives it."""

    session_id: str
    token: str
    id_scope: str
    turns: list[tuple[Wanted, ...]]
    turn: int = 0
    remembered: list[str] = field(default_factory=list)
    """The ids of the turn's first calls, as the model knew them when its latest connection began."""
    latest: int | None = None
    """The worker that has, or had, the latest connection."""
    done: bool = False

    @property
    def calls(self) -> tuple[Wanted, ...]:
        return self.turns[self.turn]


@dataclass(slots=True)
class Figures(RunFigures):
    kills_at_points: int = 0
    kills_after_start: int = 0
    """Of processes that had started an effect."""
    workers: int = 0
    sent: int = 0
    asked: int = 0
    starts: int = 0
    unknown: int = 0
    doubled_keys: list[str] = field(default_factory=list)
    doubled_calls: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    inconsistent: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    strange_unknowns: list[str] = field(default_factory=list)
    failed_workers: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.kills} kills ({self.kills_at_points} at crash points, "
            f"{self.kills_after_start} after a start) of {self.workers} workers, "
            f"{self.sent} deliveries of {self.asked} calls, {self.starts} starts, {self.unknown} unknown, "
            f"{len(self.doubled_keys)} doubled keys, {len(self.doubled_calls)} doubled calls, {len(self.merged)} merged, "
            f"{self.seconds:.0f} s"
        )


class Harness:
    """One run in one folder: until there were `kills`, or at least `least` of them and the time is over."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        kills: int,
        seconds: float,
        least: int = 0,
        ledger: bool = True,
        database: str | None = None,
        at_once: int = 3,
    ) -> None:
        """`at_once` workers live at a time, on two conversations more than that."""
        self.at_once = at_once
        self.folder = folder
        self.random = random.Random(seed)
        self.kills = kills
        self.least = least
        self.seconds = seconds
        self.ledger = ledger
        self.database = database
        self.figures = Figures(seed=seed)
        self.conversations: list[Conversation] = []
        self.live: dict[int, BaseProcess] = {}
        self.waits_for: dict[int, tuple[str, float]] = {}
        """After which line of a worker it is killed, and how much later."""
        self.deadlines: dict[int, float] = {}
        self.sent_at: dict[int, float] = {}
        """When each worker that lives had sent its first call, until that was answered."""
        self.call_seconds = 0.02
        """How long a first call takes here, about: kills are spread over a bit more, however slow the store is."""
        self.killed: set[int] = set()
        self.seen: set[int] = set()
        """Those that have sent a call."""
        self.lines: list[dict[str, Any]] = []
        self.sent_ids: dict[str, list[str]] = defaultdict(list)
        self._read_to = 0
        self._spawn = warm_processes()

    def run(self) -> Figures:
        started = time.monotonic()
        build_effects(self.folder)
        try:
            while self.figures.kills < self.kills and (
                self.figures.kills < self.least or time.monotonic() - started < self.seconds
            ):
                self._reap()
                if len(self.live) < self.at_once:
                    self._launch(self._pick())
                time.sleep(0.003)
        finally:
            for process in self.live.values():
                with suppress(ProcessLookupError):
                    process.kill()
            while self.live:
                self._reap()
        self._finish_everything()
        self.figures.seconds = time.monotonic() - started
        return self._judge()

    # The disorder

    def _pick(self) -> Conversation:
        open_ones = [one for one in self.conversations if not one.done][: self.at_once + 2]
        if len(open_ones) < self.at_once + 2:
            self.conversations += asyncio.run(self._open_sessions(8))
            return self._pick()
        return self.random.choice(open_ones)

    def _launch(self, one: Conversation) -> None:
        known = self._known_to_model(one)
        if len(known) == len(one.calls) and self.random.random() < 0.85:
            # The model has every answer and the user continues.
            if one.turn + 1 == len(one.turns):
                one.done = True
                return
            one.turn, known = one.turn + 1, []
        elif self.random.random() < 0.3:
            # It is restored from an older state, and does not know the last of its calls any more.
            known = known[: self.random.randint(0, len(known))]
        self._start(one, [self._delivery(one, one.turn, known)], known)

    def _known_to_model(self, one: Conversation) -> list[str]:
        """The ids of the turn's first calls that were answered: what it was restored with, and what came since."""
        known = list(one.remembered)
        answers = {
            line["logical"]: line["id"]
            for line in self.lines
            if line["kind"] == "answer" and line["worker"] == one.latest and line["outcome"] in FINAL
        }
        for wanted in one.calls[len(known) :]:
            if wanted.logical not in answers:
                break
            known.append(answers[wanted.logical])
        return known

    def _delivery(self, one: Conversation, turn: int, known: list[str], *, fresh: bool = False) -> Turn:
        """Where ids last as long as the session, some of the calls come again under an id that they had before."""
        calls = one.turns[turn]
        again = one.id_scope == "session" and not fresh
        sent = [
            self.sent_ids[wanted.logical][-1]
            if again and self.sent_ids[wanted.logical] and self.random.random() < 0.35
            else None
            for wanted in calls
        ]
        return Turn(input_id=f"turn-{turn}", calls=calls, restored=tuple(known), sent=tuple(sent))

    def _start(self, one: Conversation, turns: list[Turn], known: list[str], *, patient: bool = False) -> None:
        number = self.figures.workers = self.figures.workers + 1
        dies = (
            None if patient or self.random.random() < 0.6 else (self.random.choice(_POINTS), self.random.randint(1, 2))
        )
        job = Job(
            number=number,
            seed=self.random.getrandbits(32),
            folder=self.folder,
            session_id=one.session_id,
            token=one.token,
            turns=tuple(turns),
            id_scope=one.id_scope,
            database=self.database,
            ledger=self.ledger,
            dies_at=dies,
            patient=patient,
        )
        process = self._spawn.Process(target=work, args=(job,))
        process.start()
        one.remembered, one.latest = known, number
        self.live[number] = process
        self.deadlines[number] = time.monotonic() + PATIENCE
        if patient:
            return
        # A few are killed while they open the store, or before anything has started.
        (waits_for,) = self.random.choices(("start", "sent", "owner", "launch"), (88, 5, 4, 3))
        self.waits_for[number] = waits_for, self.random.uniform(0.0, 1.5 * self.call_seconds)
        self._happened(number, "launch")

    def _happened(self, number: int, what: str) -> None:
        """Whoever waited for this line of a worker kills it soon."""
        waits_for, delay = self.waits_for.get(number, ("", 0.0))
        if waits_for == what:
            del self.waits_for[number]
            self.deadlines[number] = time.monotonic() + delay

    def _reap(self) -> None:
        self._read()
        for number, process in list(self.live.items()):
            if process.exitcode is None and time.monotonic() > self.deadlines[number]:
                with suppress(ProcessLookupError):  # it has just died by itself
                    process.kill()
                process.join()
            if process.exitcode is None:
                continue
            if process.exitcode == -signal.SIGKILL:
                self.killed.add(number)
                self.figures.kills += 1
                if self.sent_at.pop(number, None) is not None:
                    # Too early for an answer. Were it so for all, nothing would ever be known of how long one takes.
                    self.call_seconds = min(self.call_seconds * 1.05, _MAX_CALL_SECONDS)
            elif process.exitcode:
                self._read()
                why = [line["why"] for line in self.lines if line["kind"] == "failed" and line["worker"] == number]
                self.figures.failed_workers.append(f"worker {number}, exit {process.exitcode}: {why[-1:]}")
            process.close()
            del self.live[number]

    def _finish_everything(self) -> None:
        """Now nobody is killed: every call is answered, and then once more to a model that has forgotten everything."""
        for one in [one for one in self.conversations if one.latest is not None]:
            known = self._known_to_model(one)
            again = [self._delivery(one, turn, [], fresh=True) for turn in range(one.turn + 1)]
            self._start(one, [self._delivery(one, one.turn, known), *again], known, patient=True)
            self._wait(self.at_once)
        self._wait(1)
        self._read()

    def _wait(self, below: int) -> None:
        while len(self.live) >= below:
            self._reap()
            time.sleep(0.003)

    async def _open_sessions(self, count: int) -> list[Conversation]:
        store = store_of(self.folder, self.database, ledger=self.ledger)
        async with Runtime(Registry.load(self.folder / "tool_registry.json"), store=store, policy=POLICY) as runtime:
            sessions = [await runtime.open_session(user=f"user-{number}") for number in range(count)]
        return [self._conversation(session.id, session.token) for session in sessions]

    def _conversation(self, session_id: str, token: str) -> Conversation:
        scope = self.random.choice(("session", "session", "session", "connection", "message", "none"))
        name = f"c{len(self.lines)}-{self.random.getrandbits(24):06x}"
        return Conversation(session_id, token, scope, [self._turn(f"{name}/t{n}", scope) for n in range(TURNS)])

    def _turn(self, name: str, scope: str) -> tuple[Wanted, ...]:
        """Three to eight calls. Where ids tell them apart, over a crash too, some of them are wanted twice."""
        looks = []
        for number in range(self.random.randint(3, 5)):
            tool = "charge_card" if self.random.random() < 0.75 else "set_address"
            look = (tool, {"account": "a1", "amount": number})
            looks += [look, look] if scope not in ("message", "none") and self.random.random() < 0.5 else [look]
        self.random.shuffle(looks)
        return tuple(Wanted(f"{name}/{number}", tool, dict(args)) for number, (tool, args) in enumerate(looks))

    # The verdict

    def _read(self) -> None:
        path = self.folder / "journal.jsonl"
        if not path.exists():
            return
        with path.open("rb") as stream:
            stream.seek(self._read_to)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to += len(whole)
        now = time.monotonic()
        for line in map(json.loads, whole.splitlines()):
            self.lines.append(line)
            if line["kind"] in ("owner", "sent", "start"):
                self._happened(line["worker"], line["kind"])
            if line["kind"] == "sent" and line["worker"] not in self.seen:
                self.seen.add(line["worker"])
                self.sent_at[line["worker"]] = now
            if line["kind"] == "answer" and (sent := self.sent_at.pop(line["worker"], None)) is not None:
                self.call_seconds = min(0.9 * self.call_seconds + 0.1 * (now - sent), _MAX_CALL_SECONDS)
            if line["kind"] == "sent" and line["id"] not in self.sent_ids[line["logical"]]:
                self.sent_ids[line["logical"]].append(line["id"])

    def _judge(self) -> Figures:
        figures = self.figures
        rows = asyncio.run(self._unknown_rows()) if self.ledger else []
        pairs = self._pairs()
        starts = [line for line in self.lines if line["kind"] == "start"]
        answers = [line for line in self.lines if line["kind"] == "answer"]
        unsafe = [line for line in starts if line["tool"] == "charge_card"]
        receipts: dict[str, set[str]] = defaultdict(set)
        owners: dict[str, set[str]] = defaultdict(set)
        last: dict[str, str] = {}
        for line in answers:
            last[line["logical"]] = line["outcome"]
            if line["outcome"] == "done":
                receipts[line["logical"]].add(line["receipt"])
                owners[line["receipt"]].add(line["logical"])
        started = {line["worker"] for line in starts}
        figures.kills_after_start = len(self.killed & started)
        figures.kills_at_points = sum(line["kind"] == "died" for line in self.lines)
        figures.sent = sum(line["outcome"] in FINAL for line in answers)
        figures.asked = len({line["logical"] for line in self.lines if line["kind"] == "sent"})
        figures.starts = len(starts)
        figures.unknown = len(rows)
        figures.doubled_keys = _more_than_once(line["key"] for line in unsafe)
        figures.doubled_calls = _more_than_once(line["logical"] for line in unsafe)
        figures.merged = sorted(" = ".join(sorted(one)) for one in owners.values() if len(one) > 1)
        figures.inconsistent = sorted(logical for logical, given in receipts.items() if len(given) > 1)
        figures.refused = sorted({line["outcome"] for line in answers if line["outcome"].startswith("refused")})
        figures.unanswered = sorted(
            line["logical"] for line in self.lines if line["kind"] == "sent" and last.get(line["logical"]) not in FINAL
        )
        dead = {line["owner"] for line in self.lines if line["kind"] == "owner" and line["worker"] in self.killed}
        figures.strange_unknowns = [f"{row.key}: its owner was not killed" for row in rows if row.owner not in dead]
        unknown_pairs = {_pair_of(row) for row in rows}
        told_unknown = {line["logical"] for line in answers if line["outcome"] == "unknown"}
        figures.strange_unknowns += sorted(one for one in told_unknown if pairs[one] not in unknown_pairs)
        return figures

    def _pairs(self) -> dict[str, Pair]:
        return {
            wanted.logical: (one.session_id, turn, wanted.tool, json.dumps(wanted.args, sort_keys=True))
            for one in self.conversations
            for turn, calls in enumerate(one.turns, 1)
            for wanted in calls
        }

    async def _unknown_rows(self) -> list[LedgerRow]:
        store = store_of(self.folder, self.database)
        await store.open()
        try:
            return await store.ledger_rows(state=LedgerState.UNKNOWN, limit=1_000_000)
        finally:
            await store.close()


def _pair_of(row: LedgerRow) -> Pair:
    return row.session_id, row.turn, row.tool, json.dumps(json.loads(row.args), sort_keys=True)


def _more_than_once(values: Any) -> list[str]:
    return sorted(value for value, times in Counter(values).items() if times > 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--control", action="store_true", help="without the ledger: it must double")
    chosen = parser.parse_args()
    with room() as folder:
        figures = Harness(
            Path(folder) / "run",
            seed=chosen.seed,
            kills=chosen.kills,
            seconds=chosen.seconds,
            ledger=not chosen.control,
        ).run()
    figures.report()
    return int(not figures.doubled_keys if chosen.control else bool(figures.faults))


if __name__ == "__main__":
    sys.exit(main())
