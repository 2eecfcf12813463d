"""Thousands of killed processes, hundreds of crashes of the server and a million duplicates, in pieces of about a minute. Each
piece that is over is written down, so that a run that was stopped continues with the next:

    python -m tests.crash.long_run --minutes 30

Without `--minutes` it continues until everything is done, which takes two cores that do nothing else about three quarters of an
hour; then it prints the table of what was done, as `--table` does at any time. `build/long-run.json` has the same figures with
the commit: pieces of another commit do not count. A piece that shows a fault ends the run with its seed; the next run plays
that piece again. A control without the ledger comes first on each store, and has to double: else nobody could have seen a
double in the pieces after it.
"""

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.crash import repeated_calls
from tests.crash.harness import Harness
from tests.crash.load import Load, Outcome, run
from tests.crash.run import room
from tests.postgres_server import PostgresServer, postgres_server

STOPS = 500
"""Of the database server."""
GOALS = {
    "sqlite": {"kills": 6_000, "deliveries": 600_000, "deliveries_by_id": 170_000},
    "postgres": {"kills": 4_000, "deliveries": 30_000, "deliveries_by_id": 200_000},
}
_ROOT = Path(__file__).parents[2]
_PROGRESS = _ROOT / "build" / "long-run.json"
_PLAYED = (
    "src",
    "tests/crash",
    "tests/loopback_proxy.py",
    "tests/postgres_server.py",
    "tests/runtime/kit.py",
    "tests/server",
)
"""The code that a run depends on."""


@dataclass(slots=True)
class OnStore:
    """What all pieces together have done on one store. Faults are not counted: the first one ends the run."""

    controls: int = 0
    doubled_in_controls: int = 0
    kills: int = 0
    kills_after_start: int = 0
    """Of processes that had started an effect: the others died before, or while they replayed."""
    stops: int = 0
    """Of the server, each after outcomes that were acknowledged since the one before."""
    stops_with_kill: int = 0
    """Those in which one who delivered was killed too."""
    deliveries: int = 0
    """By keys that were made before; each once, when it has its answer."""
    deliveries_by_id: int = 0
    """Through `Session.call`, where ids and arguments decide what is the same call; those of killed processes among them."""
    held: int = 0
    """Of these: told to wait for a person."""
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

    commit: str = ""
    pieces: int = 0
    seconds: float = 0.0
    sqlite: OnStore = field(default_factory=OnStore)
    postgres: OnStore = field(default_factory=OnStore)

    @classmethod
    def read(cls, path: Path, commit: str) -> "Progress":
        stored: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        if stored.get("commit") != commit or not stored.keys() <= {item.name for item in fields(cls)}:
            return cls(commit=commit)
        stores = {name: OnStore(**stored[name]) for name in GOALS}
        return cls(commit=commit, pieces=stored["pieces"], seconds=stored["seconds"], **stores)

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
            f"{' + '.join(str(one.kills) for one in both)} kills, {self.postgres.stops} stops, "
            f"{' + '.join(str(one.deliveries + one.deliveries_by_id) for one in both)} deliveries "
            "(SQLite + PostgreSQL), 0 faults"
        )

    def table(self) -> str:
        """Every figure on each store and on both."""
        names = [item.name for item in fields(OnStore)]
        rows = [("", "SQLite", "PostgreSQL", "both")]
        for name in names:
            here, there = getattr(self.sqlite, name), getattr(self.postgres, name)
            rows.append((name.replace("_", " "), f"{here:,}", f"{there:,}", f"{here + there:,}"))
        lines = [f"{name:<22}{here:>12}{there:>12}{both:>12}" for name, here, there, both in rows]
        about = f"commit {self.commit}, {self.pieces} pieces, {self.seconds / 60:.0f} minutes, {_share(self):.0%} of the goal"
        return "\n".join([about, *lines, "0 doubled, 0 lost, 0 wrongly merged, 0 unanswered"])


def current_commit(root: Path = _ROOT) -> str:
    """That of the code that runs. What has changes, or no commit at all, is told apart by what its files hold."""
    try:
        head = _git(root, "rev-parse", "HEAD")
        changes = _git(root, "status", "--porcelain", "--", *_PLAYED)
    except (OSError, subprocess.CalledProcessError):
        return f"none, files {_digest(root)}"
    return f"{head} with changes {_digest(root)}" if changes else head


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def _digest(root: Path) -> str:
    """Of every file that is played."""
    found = hashlib.sha256()
    for place in (root / name for name in _PLAYED):
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            content = path.read_bytes() if path.exists() else b""
            found.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


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
    piece.done.deliveries_by_id += figures.sent
    piece.done.starts += figures.starts
    piece.done.unknown += figures.unknown
    return figures.faults


def _stop(piece: Piece) -> Faults:
    """The server is stopped at once, again and again, while two processes deliver the same calls; now and then one of them is
    killed while it is away."""
    chance = random.Random(piece.seed)
    stops = kills = 0

    def crash(load: Load) -> None:
        nonlocal stops, kills
        while stops < 25 and load.until_acknowledged(5):
            time.sleep(chance.uniform(0.0, 0.03))
            piece.server.stop(signal.SIGQUIT)
            stops += 1
            if stops % 3 == 0:
                load.replace(chance.randrange(2))
                kills += 1
            piece.server.start()

    outcome = run(piece.url, piece.folder, crash, calls=1_200, at_once=16, patience=300.0)
    piece.done.stops += stops
    piece.done.stops_with_kill += kills
    piece.done.add(outcome)
    return outcome.faults


def _duplicate(piece: Piece) -> Faults:
    """Three processes deliver every call many times, at the same time."""
    calls, copies, at_once = (400, 50, 16) if piece.store == "sqlite" else (500, 4, 4)
    outcome = run(piece.url, piece.folder, calls=calls, copies=copies, at_once=at_once)
    piece.done.add(outcome)
    return outcome.faults


def _repeat(piece: Piece) -> Faults:
    """Two processes make every call many times, by its id, and after a resume by another."""
    outcome = repeated_calls.run(piece.folder, piece.database, sessions=20, copies=30)
    piece.done.deliveries_by_id += outcome.deliveries
    piece.done.held += outcome.held
    piece.done.starts += outcome.starts
    return outcome.faults


def _control(piece: Piece) -> Faults:
    """Without the ledger each kind of piece doubles."""
    kills = Harness(
        piece.folder / "run", seed=piece.seed, kills=40, least=20, seconds=20, ledger=False, database=piece.database
    ).run()
    delivered = run(piece.url, piece.folder, calls=30, ledger=False)
    repeated = repeated_calls.run(piece.folder / "repeated", piece.database, sessions=2, copies=2, ledger=False)
    doubled = {
        "killed": len(kills.doubled_calls),
        "delivered": len(delivered.doubled),
        "repeated": len(repeated.doubled),
    }
    piece.done.controls += 1
    piece.done.doubled_in_controls += sum(doubled.values())
    return {} if all(doubled.values()) else {"nothing doubled without the ledger": doubled}


Play = Callable[[Piece], Faults]


def _parts(progress: Progress) -> list[tuple[float, Play, str]]:
    """How much of each part of the goal is done, how to continue with it, and on which store."""
    plays = {"kills": _kill, "deliveries": _duplicate, "deliveries_by_id": _repeat}
    parts: list[tuple[float, Play, str]] = [(progress.postgres.stops / STOPS, _stop, "postgres")]
    for store, goals in GOALS.items():
        done = progress.on(store)
        parts.append((float(done.controls), _control, store))
        parts += [(getattr(done, name) / goal, plays[name], store) for name, goal in goals.items()]
    return parts


def _share(progress: Progress) -> float:
    parts = [min(1.0, share) for share, _, _ in _parts(progress)]
    return sum(parts) / len(parts)


def _next(progress: Progress) -> tuple[float, Play, str]:
    """Whatever is furthest from its end, controls before anything else."""
    return min(_parts(progress), key=lambda part: (part[0], part[1] is not _control))


def advance(seconds: float, path: Path = _PROGRESS) -> tuple[Progress, Faults]:
    """Pieces for this long, or until everything is done; what was done, and the faults of the last piece."""
    progress = Progress.read(path, current_commit())
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--table", action="store_true", help="only print what was done so far, at whichever commit")
    chosen = parser.parse_args()
    if chosen.table:
        commit = json.loads(_PROGRESS.read_text()).get("commit", "") if _PROGRESS.exists() else ""
        print(Progress.read(_PROGRESS, commit).table())
        return 0
    # Whoever stops it stops its server and its processes too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reached, wrong = advance(chosen.minutes * 60)
    print(json.dumps(wrong, indent=2) if wrong else reached.table())
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
