"""Random SIGKILLs, duplicates, new ids after a resume: nothing runs twice, nothing is merged, and the control does double.

The control is the same runtime, script and disorder without the ledger. Were it not to double, the harness could not have
seen a double in the real run either. `HANDRAIL_CRASH_SEED` chooses the seed; a failure prints it.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RecordFigures
from tests.crash.harness import Figures, Harness
from tests.crash.run import room
from tests.postgres_server import PostgresServer


def kill(seed: int, *, kills: int, least: int, seconds: float, **how: Any) -> Figures:
    with room() as folder:
        return Harness(Path(folder) / "run", seed=seed, kills=kills, least=least, seconds=seconds, **how).run()


def check(
    record_figures: RecordFigures,
    seed: int,
    *,
    kills: int,
    least: int,
    seconds: float,
    server: PostgresServer | None = None,
) -> None:
    database, empty = (server.new_database(), server.new_database()) if server is not None else (None, None)
    real = kill(seed, kills=kills, least=least, seconds=seconds, database=database)
    control = kill(seed, kills=max(20, kills // 20), least=8, seconds=seconds / 5, ledger=False, database=empty)
    record_figures(f"{real}\ncontrol without the ledger, {control}")

    assert real.kills >= least
    assert real.faults == {}, f"seed {seed}"
    assert real.kills_after_start > real.kills // 4, "most were killed where nothing was under way"
    assert control.doubled_keys, f"seed {seed}: without the ledger nothing doubled, so this test would not see it"
    assert control.doubled_calls


def test_killed_workers_double_nothing_and_merge_nothing(record_figures: RecordFigures) -> None:
    seed = int(os.environ.get("HANDRAIL_CRASH_SEED", "20260331"))

    check(record_figures, seed, kills=400, least=20, seconds=8)


def test_killed_workers_on_postgresql_double_nothing_and_merge_nothing(
    postgres: PostgresServer, record_figures: RecordFigures
) -> None:
    seed = int(os.environ.get("HANDRAIL_CRASH_SEED", "20260401"))

    check(record_figures, seed, kills=400, least=20, seconds=8, server=postgres)


@pytest.mark.long
def test_a_thousand_killed_workers_double_nothing_and_merge_nothing(record_figures: RecordFigures) -> None:
    seed = int(os.environ.get("HANDRAIL_CRASH_SEED", random.SystemRandom().getrandbits(31)))

    check(record_figures, seed, kills=1_200, least=1_000, seconds=600)
