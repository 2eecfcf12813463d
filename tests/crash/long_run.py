"""Thousands of killed processes, hundreds of crashes of the server and a million duplicates, in pieces of about a minute. Each
piece that is over is written down, so that a run that was stopped continues with the next:

    python -m tests.crash.long_run --minutes 30

Without `--minutes` it goes on until everything is done, which takes two cores about an hour. What was done so far is in
`build/long-run.json`. A piece that shows a fault ends the run with its seed; the next run plays that piece again. A control
without the ledger comes first on each store, and has to double: else nobody could have seen a double in the pieces after it.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.crash.harness import Harness
from tests.crash.load import Outcome, run
from tests.crash.run import room
from tests.postgres_server import PostgresServer, postgres_server

KILLS, STOPS = 5_000, 500
"""Kills on each store; stops are those of the database server."""
DELIVERIES = {"sqlite": 800_000, "postgres": 200_000}
_PROGRESS = Path(__file__).parents[2] / "build" / "long-run.json"


@dataclass(slots=True)
class OnStore:
    """What all pieces together have done on one store. Faults are not counted: the first one ends the run."""

    controls: int = 0
    doubled_in_controls: int = 0
    kills: int = 0
    kills_after_start: int = 0
    """Of processes that had started an effect: the others died before, or while they replayed."""
    stops: int = 0
    deliveries: int = 0
    starts: int = 0
    unknown: int = 0
    """Calls that nobody can know the outcome of; each of them is in the list that an operator sees."""

    def add(self, outcome: Outcome) -> None:
        self.deliveries += outcome.deliveries
        self.starts += outcome.starts
        self.unknown += outcome.unknown


@dataclass(slots=True)
class Progress:
    """What all pieces together have done."""

    pieces: int = 0
    seconds: float = 0.0
    sqlite: OnStore = field(default_factory=OnStore)
    postgres: OnStore = field(default_factory=OnStore)

    @classmethod
    def read(cls, path: Path) -> "Progress":
        stored: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        if not stored.keys() <= {item.name for item in fields(cls)}:
            stored = {}  # of an earlier form of this run
        stores = {name: OnStore(**stored.get(name, {})) for name in DELIVERIES}
        return cls(pieces=stored.get("pieces", 0), seconds=stored.get("seconds", 0.0), **stores)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text(json.dumps(asdict(self), indent=2) + "\n")
        path.with_suffix(".new").replace(path)

    def on(self, store: str) -> OnStore:
        return self.sqlite if store == "sqlite" else self.postgres

    def __str__(self) -> str:
        both = (self.sqlite, self.postgres)
        return (
            f"{self.pieces} pieces, {self.seconds:.0f} s: "
            f"{' + '.join(str(one.kills) for one in both)} kills, "
            f"{self.postgres.stops} stops, {' + '.join(str(one.deliveries) for one in both)} deliveries "
            "(SQLite + PostgreSQL), 0 faults"
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a piece is played, and by which seed."""

    store: str
    seed: int
    server: PostgresServer
    folder: Path
    done: OnStore

    @property
    def database(self) -> str | None:
        """A new database on the server; None: a file in the folder."""
        return self.server.new_database() if self.store == "postgres" else None

    @property
    def url(self) -> str:
        return self.database or f"sqlite:///{self.folder / 'store.db'}"


Faults = Mapping[str, Any]


def _kill(piece: Piece) -> Faults:
    """Processes that run calls are killed at random moments, and their calls come again."""
    figures = Harness(
        piece.folder / "run", seed=piece.seed, kills=250, least=20, seconds=120, database=piece.database, at_once=8
    ).run()
    piece.done.kills += figures.kills
    piece.done.kills_after_start += figures.kills_after_start
    piece.done.deliveries += figures.sent
    piece.done.starts += figures.starts
    piece.done.unknown += figures.unknown
    return figures.faults


def _stop(piece: Piece) -> Faults:
    """The server is stopped at once, again and again, while two processes deliver the same calls."""
    stops = 0

    def crash(processes: list[Any]) -> None:
        nonlocal stops
        while stops < 25 and any(process.exitcode is None for process in processes):
            time.sleep(0.05 + (piece.seed + stops) % 7 * 0.03)
            piece.server.stop(signal.SIGQUIT)
            piece.server.start()
            stops += 1

    outcome = run(piece.url, piece.folder, crash, calls=3_000, at_once=16, patience=300.0)
    piece.done.stops += stops
    piece.done.add(outcome)
    return outcome.faults


def _duplicate(piece: Piece) -> Faults:
    """Three processes deliver every call many times, at the same time."""
    calls, copies = (600, 50) if piece.store == "sqlite" else (1_000, 4)
    outcome = run(piece.url, piece.folder, _nothing, calls=calls, copies=copies, at_once=16, patience=300.0)
    piece.done.add(outcome)
    return outcome.faults


def _control(piece: Piece) -> Faults:
    """Without the ledger both kinds of piece double."""
    kills = Harness(
        piece.folder / "run", seed=piece.seed, kills=40, least=20, seconds=20, ledger=False, database=piece.database
    ).run()
    outcome = run(piece.url, piece.folder, _nothing, calls=30, ledger=False)
    doubled = {"killed": len(kills.doubled_calls), "delivered": len(outcome.doubled)}
    piece.done.controls += 1
    piece.done.doubled_in_controls += sum(doubled.values())
    return {} if all(doubled.values()) else {"nothing doubled without the ledger": doubled}


def _nothing(processes: list[Any]) -> None:
    """Leave them alone."""


Play = Callable[[Piece], Faults]


def _next(progress: Progress) -> tuple[float, Play, str]:
    """Whatever is furthest from its end: how much of it is done, what to play, and where."""
    left: list[tuple[float, Play, str]] = [(progress.postgres.stops / STOPS, _stop, "postgres")]
    for store, deliveries in DELIVERIES.items():
        done = progress.on(store)
        if not done.controls:
            return 0.0, _control, store
        left += [(done.kills / KILLS, _kill, store), (done.deliveries / deliveries, _duplicate, store)]
    return min(left, key=lambda one: one[0])


def advance(seconds: float, path: Path = _PROGRESS) -> tuple[Progress, Faults]:
    """Pieces for this long, or until everything is done; what was done, and the faults of the last piece."""
    progress = Progress.read(path)
    ends = time.monotonic() + seconds
    with postgres_server("fsync=off", "max_connections=300") as server:
        while time.monotonic() < ends:
            share, play, store = _next(progress)
            if share >= 1.0:
                break
            started, seed = time.monotonic(), progress.pieces + 1
            with room() as folder:
                faults = play(Piece(store, seed, server, Path(folder), progress.on(store)))
            if faults:
                return progress, {"piece": play.__name__[1:], "store": store, "seed": seed, **faults}
            progress.pieces = seed
            progress.seconds += time.monotonic() - started
            progress.write(path)
            print(f"{play.__name__[1:]} on {store}, {time.monotonic() - started:.0f} s. {progress}", flush=True)
    return progress, {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    # Whoever stops it stops its server and its processes too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reached, wrong = advance(parser.parse_args().minutes * 60)
    print(wrong or json.dumps(asdict(reached), indent=2))
    sys.exit(bool(wrong))
