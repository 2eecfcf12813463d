"""Two servers on one store under random SIGKILLs, with clients that jump between them and others that only look.

The controls are the same servers without the ledger, servers that take whatever session they are asked for, and servers that
write no audit lines for the killed. Were they not to double, to steal and to miss lines, the run could not have seen it in the
real servers either. `HANDRAIL_CRASH_SEED` chooses the seed; a failure prints it.
"""

import os
import random

import pytest
from tests.conftest import RecordFigures
from tests.crash.two_servers import run


def check(record_figures: RecordFigures, seed: int, seconds: float, database: str | None = None) -> None:
    figures = run(seed, seconds, database=database)
    record_figures(figures)
    assert figures.faults == {}, figures
    assert figures.kills > 0
    assert figures.messages > 0
    assert figures.effects > 0


# Two halves of a minute, so that two workers of pytest share it.
@pytest.mark.parametrize("half", [0, 1])
def test_killed_servers_lose_double_and_steal_nothing(half, record_figures):
    check(record_figures, int(os.environ.get("HANDRAIL_CRASH_SEED", "20260401")) + half, 30)


def test_servers_on_postgresql_that_are_killed_lose_double_and_steal_nothing(postgres, record_figures):
    check(record_figures, int(os.environ.get("HANDRAIL_CRASH_SEED", "20260421")), 20, postgres.new_database())


@pytest.mark.long
def test_servers_killed_for_ten_minutes_lose_double_and_steal_nothing(record_figures):
    check(record_figures, int(os.environ.get("HANDRAIL_CRASH_SEED", random.SystemRandom().getrandbits(31))), 600)


@pytest.mark.parametrize(
    ("control", "fault"),
    [
        ({"ledger": False, "steals": True}, "doubled"),
        ({"steals": True}, "stolen"),
        ({"recovers": False}, "unaudited"),
    ],
)
def test_the_run_sees_what_a_server_without_its_guards_does(control, fault, record_figures):
    for seed in range(20260401, 20260411):
        figures = run(seed, 4, kills=4, **control)
        record_figures(f"control {control}, {figures}")
        if figures.faults.get(fault):
            return
    raise AssertionError(f"without {control} nothing was {fault}, so this test would not see it")
