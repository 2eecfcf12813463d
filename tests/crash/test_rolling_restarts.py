"""Rolling restarts of two servers on one PostgreSQL behind a round-robin proxy.

The control is the same run without the ledger, and with servers that take whatever session they are asked for: were nothing
doubled in it, the run could not have seen it in the real servers either.
"""

import os
import random

import pytest
from tests.crash.rolling_restarts import run


def test_clients_behind_a_dumb_proxy_lose_nothing_when_servers_are_restarted_in_turn(postgres, record_figures):
    seed = int(os.environ.get("HANDRAIL_CRASH_SEED", "20260501"))
    figures = run(seed, 6, clients=20, every=2, think=1, restarts=2, database=postgres.new_database())
    record_figures(figures)
    assert figures.faults == {}, figures
    assert figures.stops >= 2
    assert figures.approvals > 0
    assert all(figures.shares)


def test_the_run_sees_what_servers_without_their_guards_do(postgres, record_figures):
    for seed in range(20260501, 20260506):
        figures = run(
            seed, 3, clients=10, every=1, think=0.2, restarts=1, database=postgres.new_database(),
            ledger=False, steals=True,
        )  # fmt: skip
        record_figures(f"control: {figures}")
        if figures.faults.get("doubled"):
            return
    raise AssertionError("without ledger and owners nothing was doubled, so this test would not see it")


@pytest.mark.long
def test_500_clients_lose_nothing_when_servers_are_restarted_every_twenty_seconds(postgres, record_figures):
    seed = int(os.environ.get("HANDRAIL_CRASH_SEED", random.SystemRandom().getrandbits(31)))
    figures = run(seed, 120, clients=500, every=20, think=20, restarts=4, database=postgres.new_database())
    record_figures(figures)
    assert figures.faults == {}, figures
