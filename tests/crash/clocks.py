"""Processes whose clocks are wrong, and the claims by which it is seen whose clock counts: leases and the window of a limit."""

import asyncio
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests.stores.values import claim, session

from handrail.contract.store import Claim, RateCharge
from handrail.stores.base import Clock
from handrail.stores.postgres import PostgresStore

SHORT_LEASE_MS = 200
WINDOW_MS = _LONG_LEASE_MS = 600_000


def set_clock(ahead: float, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """From now on the clock of this machine is wrong by this number of seconds, as far as this process sees it."""
    right, right_ns = time.time, time.time_ns
    put(time, "time", lambda: right() + ahead)
    put(time, "time_ns", lambda: right_ns() + int(ahead * 1e9))


def claims_on_leases(owner: str) -> tuple[Claim, Claim]:
    """Calls that may run again: one whose lease is soon over, and one whose lease is not."""
    leases = (("short", SHORT_LEASE_MS), ("long", _LONG_LEASE_MS))
    short, long = (
        claim(key, args_digest=key, effects="idempotent", owner=owner, lease_ms=lease) for key, lease in leases
    )
    return short, long


def claim_within_limit(owner: str, key: str) -> Claim:
    """One of a kind of which the window takes a single one."""
    return claim(key, args_digest=key, owner=owner, rate=RateCharge(scope="pay", limit=1, window_ms=WINDOW_MS))


def claim_by_a_wrong_clock(url: str, ahead: float, clock: Clock | None, answers: Connection) -> None:
    """The entry of a process that claims all of them, and then waits to be frozen. `clock` is the store's."""
    set_clock(ahead)

    async def run() -> None:
        store = PostgresStore(url, clock=clock)
        await store.open()
        await store.register_owner("frozen")
        await store.create_session(session())
        for wish in (*claims_on_leases("frozen"), claim_within_limit("frozen", "first")):
            await store.claim(wish)
        answers.send("claimed")
        answers.recv()

    asyncio.run(run())
