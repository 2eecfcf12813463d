"""Thousands of killed processes, hundreds of crashes of the server and a million duplicates, in pieces of about a minute. Each
piece that is over is written down, so that a run that was stopped continues with the next:

    python -m tests.crash.long_run --minutes 30

What was done so far is in `build/long-run.json`. A piece that shows a fault ends the run with its seed.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.crash.harness import Harness
from tests.crash.load import run
from tests.crash.run import room
from tests.postgres_server import PostgresServer, postgres_server

KILLS, STOPS, DELIVERIES = 10_000, 500, 1_000_000
_PROGRESS = Path(__file__).parents[2] / "build" / "long-run.json"


@dataclass(slots=True)
class Progress:
    """What all pieces together have done."""

    pieces: int = 0
    kills_sqlite: int = 0
    kills_postgres: int = 0
    stops: int = 0
    deliveries_sqlite: int = 0
    deliveries_postgres: int = 0
    starts: int = 0
    unknown: int = 0
    seconds: float = 0.0

    @property
    def is_done(self) -> bool:
        return (
            self.kills_sqlite + self.kills_postgres >= KILLS
            and self.stops >= STOPS
            and self.deliveries_sqlite + self.deliveries_postgres >= DELIVERIES
        )


def _kill(progress: Progress, server: PostgresServer, folder: Path, seed: int) -> dict[str, Any]:
    on_postgres = progress.kills_postgres <= progress.kills_sqlite
    database = server.new_database() if on_postgres else None
    figures = Harness(folder / "run", seed=seed, kills=200, seconds=60, database=database).run()
    if on_postgres:
        progress.kills_postgres += figures.kills
    else:
        progress.kills_sqlite += figures.kills
    progress.starts += figures.starts
    progress.unknown += figures.unknown
    return figures.faults


def _crash(progress: Progress, server: PostgresServer, folder: Path, seed: int) -> dict[str, Any]:
    stops = 0

    def crash(processes: list[Any]) -> None:
        nonlocal stops
        while stops < 25 and any(process.exitcode is None for process in processes):
            time.sleep(0.05 + (seed + stops) % 7 * 0.03)
            server.stop(signal.SIGQUIT)
            server.start()
            stops += 1

    outcome = run(server.new_database(), folder, crash, calls=3_000, at_once=16, patience=300.0)
    progress.stops += stops
    progress.deliveries_postgres += outcome.deliveries
    progress.starts += outcome.starts
    progress.unknown += outcome.unknown
    return outcome.faults


def _duplicate(progress: Progress, server: PostgresServer, folder: Path, seed: int) -> dict[str, Any]:
    on_postgres = progress.deliveries_postgres <= progress.deliveries_sqlite
    url = server.new_database() if on_postgres else f"sqlite:///{folder / 'store.db'}"
    outcome = run(url, folder, lambda processes: None, calls=800, copies=12, at_once=8, patience=300.0)
    if on_postgres:
        progress.deliveries_postgres += outcome.deliveries
    else:
        progress.deliveries_sqlite += outcome.deliveries
    progress.starts += outcome.starts
    return outcome.faults


def _next(progress: Progress) -> Callable[[Progress, PostgresServer, Path, int], dict[str, Any]]:
    """Whatever is furthest from its end."""
    left = {
        _kill: (progress.kills_sqlite + progress.kills_postgres) / KILLS,
        _crash: progress.stops / STOPS,
        _duplicate: (progress.deliveries_sqlite + progress.deliveries_postgres) / DELIVERIES,
    }
    return min(left, key=lambda piece: left[piece])


def advance(seconds: float, path: Path = _PROGRESS) -> tuple[Progress, dict[str, Any]]:
    """Pieces for this long, or until everything is done; what was done, and the faults of the last piece."""
    progress = Progress(**json.loads(path.read_text())) if path.exists() else Progress()
    ends = time.monotonic() + seconds
    with postgres_server("fsync=off", "max_connections=300") as server:
        while not progress.is_done and time.monotonic() < ends:
            piece, started, seed = _next(progress), time.monotonic(), progress.pieces + 1
            with room() as folder:
                faults = piece(progress, server, Path(folder), seed)
            progress.pieces = seed
            progress.seconds += time.monotonic() - started
            if faults:
                return progress, {"piece": piece.__name__, "seed": seed, **faults}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".new").write_text(json.dumps(asdict(progress), indent=2) + "\n")
            path.with_suffix(".new").replace(path)
            print(f"{piece.__name__[1:]}: {progress}", flush=True)
    return progress, {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    reached, wrong = advance(parser.parse_args().minutes * 60)
    print(wrong or reached)
    sys.exit(bool(wrong))
