"""What a call costs PostgreSQL, as `docs/scaling.md` says it, in counts; and the simulation that the page draws from them."""

import asyncio
from dataclasses import replace

import pytest
from benchmarks.capacity import Cost, Costs, Load, fitted, measure, metered, simulate
from tests.stores.values import claim, done, held, session

from handrail.contract.store import ClaimVerdict, HoldState
from handrail.stores.postgres import PostgresStore

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
    assert figures["turn with a writing call, one at a time: round trips"] < 6
    assert figures["turn with a writing call, 64 sessions: round trips"] < 2
    costs = fitted(found)
    assert costs.trips.of(3) > 0


async def test_each_request_of_a_turn_makes_the_trips_that_the_page_names(postgres):
    with metered(postgres.new_database()) as (through, meter):
        store = PostgresStore(through)
        await store.open()
        await store.register_owner("o1")
        for number in range(3):
            await store.create_session(session(f"s{number}"))
        trips = {}

        async def ask(name, *asked):
            before = meter.writer
            told = await asyncio.gather(*asked)
            trips[name] = meter.writer.since(before).trips
            return told[0]

        await ask("turn", store.begin_turn("s0", connection=1, input_id="m1"))
        # After requests that came one at a time, the first of several does not wait for the others; after several it does.
        for message in ("m2", "m3"):
            left = (int(message[1]) - 1, {"total": 1})
            turns = [store.begin_turn(f"s{n}", connection=1, input_id=message, left=left) for n in range(3)]
            await ask("three turns", *turns)
        row = (await ask("claim", store.claim(claim(session_id="s0")))).row
        await ask("outcome", store.finish(done("k1", claimed=row)))
        await ask("question", store.hold(held("h1", session_id="s1", expires_at=2**50), "token"))
        await ask("answer", store.move_hold("h1", HoldState.APPROVED, expected=[HoldState.PENDING]))
        granted = claim("k2", args_digest="d2", session_id="s1", hold_id="h1")
        assert (await ask("granted claim", store.claim(granted))).verdict is ClaimVerdict.CLAIMED
        calls = [store.claim(claim(f"k{n}", args_digest=f"{n}", session_id=f"s{n % 3}", turn=9)) for n in range(10, 30)]
        await ask("twenty claims and something else", *calls, store.switch("other", "off"))
        await store.close()
    assert trips.pop("twenty claims and something else") <= 4  # fewer where they arrive together
    assert trips == {
        "turn": 1,
        "three turns": 1,
        "claim": 1,
        "outcome": 1,
        "question": 4,
        "answer": 4,
        "granted claim": 6,
    }


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
