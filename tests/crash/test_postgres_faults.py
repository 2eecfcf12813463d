"""PostgreSQL, the network to it and the machines fail under load: nothing runs twice, nothing that was acknowledged is lost.

Each run has two processes that deliver the same calls, and something that disturbs them. The control is the same without the
ledger, and does double. `HANDRAIL_TEST_PROFILE=long` does more of each.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.load import run
from tests.crash.proxy import NetworkProxy
from tests.postgres_server import PostgresServer, postgres_server, standby_of
from tests.stores.processes import Racer, hold_claims
from tests.stores.values import claim, done, session

from handrail.contract.store import ClaimVerdict, LedgerState, StoreUnavailable
from handrail.stores.postgres import PostgresStore, heartbeat

LONG = os.environ.get("HANDRAIL_TEST_PROFILE") == "long"
CALLS = 2_000 if LONG else 150


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def _nothing(processes) -> None:
    """Leave them alone."""


def _until_it_runs(url_journal: Path, lines: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = list(url_journal.glob("journal-*.jsonl"))
        if found and sum(len(path.read_bytes().splitlines()) for path in found) >= lines:
            return
        time.sleep(0.01)


def test_without_the_ledger_the_same_load_doubles(url, tmp_path):
    outcome = run(url, tmp_path, _nothing, calls=30, ledger=False)
    assert len(outcome.doubled) == 30


def test_clocks_an_hour_apart_change_nothing(url, tmp_path):
    outcome = run(url, tmp_path, _nothing, calls=CALLS, ahead=(3_600.0, -3_600.0))
    assert outcome.faults == {}
    assert (outcome.starts, outcome.unknown) == (CALLS, 0)


def test_a_server_that_crashes_under_load_doubles_and_loses_nothing(own_server, tmp_path):
    def crash(processes) -> None:
        for number in range(40 if LONG else 3):
            _until_it_runs(tmp_path, 50 * (number + 1))
            own_server.stop(signal.SIGQUIT)
            own_server.start()

    outcome = run(own_server.new_database(), tmp_path, crash, calls=CALLS)
    assert outcome.faults == {}
    assert outcome.away > 0, "nobody noticed"


def test_a_network_that_cuts_delays_and_swallows_doubles_and_loses_nothing(postgres, url, tmp_path):
    proxy = NetworkProxy(url, postgres.folder)

    def disturb(processes) -> None:
        for number in range(30 if LONG else 4):
            _until_it_runs(tmp_path, 40 * (number + 1))
            proxy.delay = (0.0, 0.005)[number % 2]
            proxy.cut()
            proxy.swallows = True
            time.sleep(0.2)
            proxy.swallows = False
        proxy.delay = 0.0

    outcome = run(url, tmp_path, disturb, calls=CALLS, urls=(proxy.url, url))
    proxy.close()
    assert outcome.faults == {}
    assert outcome.away > 0, "nobody noticed"


def test_a_failover_to_a_synchronous_standby_under_load_doubles_and_loses_nothing(tmp_path):
    with postgres_server("wal_level=replica", "max_wal_senders=4") as primary:
        database = primary.new_database()
        with standby_of(primary) as standby:
            primary.require_synchronous()
            both = PostgresServer.url_of_either(database, primary, standby)

            def fail_over(processes) -> None:
                _until_it_runs(tmp_path, 100)
                primary.stop(signal.SIGQUIT)  # and it never comes back
                standby.promote()

            outcome = run(both, tmp_path, fail_over, calls=CALLS, judge_at=both)
    assert outcome.faults == {}
    assert outcome.away > 0, "nobody noticed"
    assert outcome.acknowledged == outcome.starts


# One connection, cut at each message
@pytest.mark.parametrize("before_server", [True, False], ids=["before the server", "after the server"])
async def test_a_connection_that_is_cut_at_any_message_starts_a_call_once(postgres, url, before_server):
    proxy = NetworkProxy(url, postgres.folder)
    store = PostgresStore(proxy.url, limit_seconds=5)
    await store.open()
    await store.register_owner("o1")
    await store.create_session(session())
    proxy.before_server = before_server
    for number in range(12):
        wish = claim(f"k{number}", args_digest=f"d{number}", claim_id=f"c{number}")
        proxy.cut_at = proxy.messages + 1 + number % 6
        claimed = await _until_answered(lambda: store.claim(wish))  # noqa: B023
        assert claimed.verdict is ClaimVerdict.CLAIMED, "ours, whether or not the server had heard of it"
        row = await _until_answered(lambda: store.finish(done(wish.key, claimed=claimed.row)))  # noqa: B023
        assert (row.state, row.fence) == (LedgerState.SUCCEEDED, 1)
        proxy.cut_at = None
        assert (await _until_answered(lambda: store.claim(claim(wish.key, args_digest=wish.args_digest)))).verdict is (  # noqa: B023
            ClaimVerdict.SETTLED
        )
    await store.close()
    proxy.close()


async def _until_answered(ask):
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(0.01)


async def _not_running(store, wish):
    """What becomes of a claim once the lease of the one before it is over."""
    async with asyncio.timeout(60):
        while (result := await store.claim(wish)).verdict is ClaimVerdict.RUNNING:
            await asyncio.sleep(0.05)
    return result


async def test_a_process_that_is_frozen_past_its_lease_is_fenced_when_it_wakes(url, monkeypatch):
    store = PostgresStore(url)
    await store.open()
    await store.register_owner("o1")
    await store.create_session(session())
    other = Racer.start(hold_claims, url)
    assert await asyncio.to_thread(other.told) == "claimed"
    os.kill(other.process.pid, signal.SIGSTOP)
    # As if ten seconds had passed: its heartbeat is old, and its process is there.
    monkeypatch.setattr(heartbeat, "_FRESH_MS", 0)
    taken = await _not_running(store, claim("safe", effects="idempotent", args_digest="safe", owner="o1"))
    assert (taken.verdict, taken.fence) == (ClaimVerdict.TAKEN_OVER, 2)
    assert (await _not_running(store, claim("unsafe", args_digest="unsafe"))).verdict is ClaimVerdict.UNKNOWN
    os.kill(other.process.pid, signal.SIGCONT)
    late = await asyncio.to_thread(other.ask, "finish")
    # The one was taken over: what it did is not stored. Of the other nobody else knows better.
    assert late == {"safe": ("running", 2, None), "unsafe": ("succeeded", 1, '{"by":"frozen"}')}
    row = await store.finish(done("safe", fence=2, envelope='{"by":"o1"}'))
    assert (row.state, row.envelope) == (LedgerState.SUCCEEDED, '{"by":"o1"}')
    assert (await store.ledger_row("safe")).envelope == '{"by":"o1"}'
    await asyncio.to_thread(other.end)
    await store.close()
