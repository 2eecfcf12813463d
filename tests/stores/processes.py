"""What the child processes of the tests do. A module of its own, because a spawned process imports it by name."""

import asyncio
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from tests.stores.values import claim, done

from handrail.contract.store import ClaimVerdict
from handrail.stores import SqliteStore


def race(path: str, owner: str, keys: int, answers: Connection) -> None:
    """Open the file at the same time as others do, claim every key, and tell which were given."""

    async def run() -> list[str]:
        store = SqliteStore(Path(path), busy_ms=10_000)
        await store.open()
        await store.register_owner(owner)
        answers.send("ready")
        answers.recv()
        claims = [claim(f"k{n}", args_digest=f"d{n}", owner=owner, claim_id=f"{owner}{n}") for n in range(keys)]
        given = await asyncio.gather(*(store.claim(one) for one in claims))
        won = [one.key for one, result in zip(claims, given, strict=True) if result.verdict is ClaimVerdict.CLAIMED]
        await asyncio.gather(*(store.finish(done(key)) for key in won))
        await store.close()
        return won

    answers.send(asyncio.run(run()))


def claim_and_die(path: str, owner: str) -> None:
    """Claim one unsafe and one idempotent call, then die as a process does that runs out of memory."""

    async def run() -> None:
        store = SqliteStore(Path(path))
        await store.open()
        await store.register_owner(owner)
        await store.claim(claim("unsafe", owner=owner, lease_ms=50))
        await store.claim(claim("safe", owner=owner, lease_ms=50, args_digest="d2", effects="idempotent"))
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(run())


def claim_and_wait(path: str, owner: str, answers: Connection) -> None:
    """Claim an idempotent call with a lease that ends at once, and live until told."""

    async def run() -> None:
        store = SqliteStore(Path(path))
        await store.open()
        await store.register_owner(owner)
        await store.claim(claim(owner=owner, lease_ms=0, effects="idempotent"))
        answers.send("claimed")
        await asyncio.to_thread(answers.recv)
        await store.close()

    asyncio.run(run())
