"""PostgreSQL, the network to it and the machines fail under load: nothing runs twice, nothing that was acknowledged is lost.

Each run has two processes that deliver the same calls, and something that disturbs them. The control is the same without the
ledger, and does double. `HANDRAIL_TEST_PROFILE=long` does more of each.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.crash.clocks import (
    SHORT_LEASE_MS,
    WINDOW_MS,
    claim_by_a_wrong_clock,
    claim_within_limit,
    claims_on_leases,
    set_clock,
)
from tests.crash.load import Load, Outcome, run
from tests.crash.proxy import NetworkProxy
from tests.postgres_server import PostgresServer, postgres_server, standby_of
from tests.stores.processes import Racer, hold_claims
from tests.stores.values import claim, done, session

from handrail.contract.store import ClaimVerdict, LedgerState, StoreUnavailable
from handrail.stores.base import system_clock
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


def test_without_the_ledger_the_same_load_doubles(url, tmp_path):
    outcome = run(url, tmp_path, calls=30, ledger=False)
    assert len(outcome.doubled) == 30


def test_processes_that_do_not_deliver_are_noticed(url, tmp_path):
    nowhere = "postgresql://nobody@/nothing?host=/nowhere"
    outcome = run(url, tmp_path, calls=3, urls=(nowhere, nowhere), patience=0.1)
    assert sum("started nothing" in line for line in outcome.failed) == 2
    assert sum("ended with 1" in line for line in outcome.failed) >= 2


def test_clocks_an_hour_apart_change_nothing_for_those_who_deliver(url, tmp_path):
    outcome = run(url, tmp_path, calls=CALLS, ahead=(3_600.0, -3_600.0))
    assert outcome.faults == {}
    assert (outcome.starts, outcome.unknown) == (CALLS, 0)


@pytest.mark.parametrize("ahead", [3_600.0, -3_600.0], ids=["ahead", "behind"])
@pytest.mark.parametrize("clock", [None, system_clock], ids=["the server's clock", "control: local clocks"])
async def test_a_frozen_process_is_judged_by_one_whose_clock_is_two_hours_off(url, monkeypatch, clock, ahead):
    """What a frozen owner has left: a lease that is over, one that is not, and a limit whose window is not."""
    other = Racer.start(claim_by_a_wrong_clock, url, ahead, clock)
    assert await asyncio.to_thread(other.told) == "claimed"
    os.kill(other.process.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(SHORT_LEASE_MS / 1_000)
        set_clock(-ahead, monkeypatch.setattr)
        monkeypatch.setattr(heartbeat, "_FRESH_MS", 0)  # as if nothing had been heard of it for ten seconds
        store = PostgresStore(url, clock=clock)
        await store.open()
        await store.register_owner("o1")
        met = [await store.claim(wish) for wish in (*claims_on_leases("o1"), claim_within_limit("o1", "second"))]
        await store.close()
    finally:
        other.kill()
    verdicts = [one.verdict for one in met]
    right = [ClaimVerdict.TAKEN_OVER, ClaimVerdict.RUNNING, ClaimVerdict.RATE_LIMITED]
    if clock is not None:
        assert verdicts[2] is ClaimVerdict.CLAIMED, "the window of the other clock is not seen"
        assert (verdicts[0], verdicts[1]) != (right[0], right[1])
        return
    assert verdicts == right
    assert 0 < met[2].retry_after_ms <= WINDOW_MS


def test_a_server_that_crashes_under_load_doubles_and_loses_nothing(own_server, tmp_path):
    def crash(load: Load) -> None:
        for number in range(40 if LONG else 3):
            if not load.until_acknowledged(20):
                assert number, "nobody delivers anything"
                assert not load.goes_on, "those who deliver wait for something"
                break  # all is delivered
            own_server.stop(signal.SIGQUIT)
            own_server.start()
            if number % 3 == 1:
                load.replace(0)

    outcome = run(own_server.new_database(), tmp_path, crash, calls=CALLS)
    assert outcome.faults == {}
    assert outcome.away > 0, "nobody noticed"


def test_a_network_that_cuts_delays_and_swallows_doubles_and_loses_nothing(postgres, url, tmp_path):
    proxy = NetworkProxy(url, postgres.folder)

    def disturb(load: Load) -> None:
        for number in range(30 if LONG else 4):
            if not load.until_acknowledged(20):
                assert number, "nobody delivers anything"
                assert not load.goes_on, "those who deliver wait for something"
                break  # all is delivered
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


def test_a_failover_to_a_standby_that_lags_loses_nothing_only_if_it_is_synchronous(tmp_path):
    """The standby of the first failover is asynchronous, which is the control; that of the second is not."""
    with postgres_server("fsync=off") as first:  # the machines stay on
        database = first.new_database()
        with _followed(first) as (second, line):
            control = _fail_over(database, (first, second), line, tmp_path, kills=True)
            with _followed(second) as (third, line):
                second.require_synchronous()
                outcome = _fail_over(second.new_database(), (second, third), line, tmp_path)
    assert control.lost, "an asynchronous standby lost nothing, so this test would not see it"
    assert outcome.faults == {}
    assert outcome.away > 0, "nobody noticed"
    assert outcome.acknowledged == outcome.starts


@contextmanager
def _followed(primary: PostgresServer) -> Iterator[tuple[PostgresServer, NetworkProxy]]:
    """A standby, and the line over which it hears of the primary."""
    with closing(NetworkProxy(primary.url("postgres"), primary.folder)) as line, standby_of(primary, line.url) as one:
        yield one, line


def _fail_over(
    database: str, servers: tuple[PostgresServer, PostgresServer], line: NetworkProxy, folder: Path, kills: bool = False
) -> Outcome:
    primary, standby = servers
    both = PostgresServer.url_of_either(database, primary, standby)

    def fail_over(load: Load) -> None:
        assert load.until_acknowledged(30)
        line.swallows = True
        # Who waits for the standby now acknowledges nothing more, and the others do not know that it lags.
        load.until_acknowledged(30, seconds=1.0)
        primary.stop(signal.SIGQUIT)  # and it never comes back
        line.refuses = True
        line.cut()
        line.swallows = False  # what it had swallowed goes nowhere
        standby.promote()
        if kills:  # who lives and has finished what is lost keeps everybody waiting
            load.kill()

    return run(both, folder, fail_over, calls=CALLS, judge_at=both)


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
