"""What a call costs PostgreSQL, as `docs/scaling.md` says it, in counts; and the simulation that the page draws from them."""

from dataclasses import replace

import pytest
from benchmarks.capacity import Cost, Costs, Load, fitted, measure, simulate

COSTS = Costs(trips=Cost(1.5, 2.1), server_cpu=Cost(0.0006, 0.0001), client_cpu=Cost(0.0008, 0.0002))


async def test_a_call_costs_the_trips_and_connections_that_the_page_names(postgres, tmp_path):
    found = await measure(postgres.new_database(), tmp_path, idle_seconds=2, alone=100, rounds=5)
    figures = {name: value for name, (value, _) in found.items()}
    assert figures["connections of a process"] == 4
    assert figures["read-only call: round trips"] < 0.5  # none of its own; what it counts is written behind
    assert 2 <= figures["writing call, one at a time: commits"] < 2.5
    assert 2 <= figures["writing call, one at a time: round trips"] < 5
    assert figures["writing call, 64 sessions: commits"] < 0.5
    assert figures["writing call, 64 sessions: round trips"] < 2
    assert figures["writing call, 64 sessions: bytes to the server"] < 3_000
    assert figures["writing call, one at a time: bytes of the server's log"] < 12_000
    assert 3 <= figures["turn with a writing call, one at a time: commits"] < 3.5
    assert figures["turn with a writing call, one at a time: round trips"] < 16
    costs = fitted(found)
    assert costs.trips.of(3) > 0


def test_the_same_load_meets_the_same():
    load = Load(sessions=5_000, processes=4, simulated_seconds=3)
    assert simulate(COSTS, load) == simulate(COSTS, load)
    assert simulate(COSTS, load) != simulate(COSTS, load, seed=2)


def test_every_turn_ends_and_none_sooner_than_three_commits():
    load = Load(sessions=2_000, processes=2, simulated_seconds=5)
    met = simulate(COSTS, load)
    assert met.turns_per_second == pytest.approx(100, rel=0.15)
    assert met.median >= 3 * load.commit_seconds
    assert 0 < met.writers_busy <= 1
    assert met.commits_per_second <= 3.01 * met.turns_per_second


def test_a_writer_that_cannot_keep_up_is_seen():
    load = Load(sessions=100_000, processes=2, simulated_seconds=3)
    met = simulate(COSTS, load)
    assert met.writers_busy > 0.99
    assert met.turns_per_second < 0.5 * load.sessions / load.seconds_between_turns
    assert simulate(COSTS, replace(load, processes=64)).p99 < met.p99 / 10
