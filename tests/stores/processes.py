"""Child processes of the tests, and what they do. A module of its own, because a spawned process imports it by name."""

import asyncio
import os
import signal
import sqlite3
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.stores.values import claim, done

from handrail.contract.store import ClaimVerdict, StoreUnavailable
from handrail.stores import SqliteStore
from handrail.stores.postgres import PostgresStore

SPAWN = get_context("spawn")


@dataclass
class Racer:
    process: BaseProcess
    pipe: Any

    @classmethod
    def start(cls, target: Any, *args: object) -> "Racer":
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=target, args=(*args, theirs))
        process.start()
        theirs.close()
        return cls(process, ours)

    def told(self) -> Any:
        assert self.pipe.poll(60)
        return self.pipe.recv()

    def ask(self, order: object) -> Any:
        self.pipe.send(order)
        return self.told()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(60)
        self.process.close()
        self.pipe.close()

    def end(self) -> None:
        self.process.join(60)
        assert self.process.exitcode == 0
        self.process.close()
        self.pipe.close()


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


def obey(path: str, owner: str, orders: Connection) -> None:
    """Open the store, then claim each key that is sent and tell the verdict, or the sentence of a refusal, until the end."""

    async def run() -> None:
        store = SqliteStore(Path(path))
        await store.open()
        await store.register_owner(owner)
        orders.send("open")
        while True:
            order = await asyncio.to_thread(orders.recv)
            if order == "end":
                break
            try:
                wish = claim(order, owner=owner, args_digest=order, lease_ms=0, effects="idempotent")
                orders.send((await store.claim(wish)).verdict.value)
            except StoreUnavailable as error:
                orders.send(str(error))
        await store.close()

    asyncio.run(run())


def come_and_go(path: str, times: int, orders: Connection) -> None:
    """Open, write and close, as commands beside a server do."""

    async def run() -> None:
        for number in range(times):
            store = SqliteStore(Path(path))
            await store.open()
            await store.switch(f"tool{number}", "broken")
            await store.close()

    asyncio.run(run())
    orders.send("done")


def hold_locked(path: str, orders: Connection) -> None:
    """Keep the file locked, as a program does that hangs in the middle of a write."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    orders.send("locked")
    orders.recv()
    db.execute("ROLLBACK")
    db.close()


def checkpoint(path: str, mode: str, orders: Connection) -> None:
    """Move the log to the main file, as `sqlite3` on the command line or a backup program does."""
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    orders.send("done")
    db.close()


def checkpoint_often(path: str, orders: Connection) -> None:
    """Write and checkpoint in every way while others write."""
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    for number in range(60):
        for mode in ("PASSIVE", "FULL", "RESTART", "TRUNCATE"):
            db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        db.execute("INSERT OR REPLACE INTO switch (tool, reason) VALUES (?, 'x')", (f"tool{number}",))
    db.close()
    orders.send("done")


def wait_for_changes(url: str, answers: Connection) -> None:
    """Wait as often as the parent wishes until the store says that something has changed; tell what is switched off then."""

    async def run() -> None:
        store = PostgresStore(url)
        await store.open()
        answers.send("open")
        for _ in iter(answers.recv, "end"):
            changed = store.changed()
            answers.send("waits")
            async with asyncio.timeout(60):
                await changed
            answers.send(dict((await store.operating()).switches))
        await store.close()

    asyncio.run(run())


def hold_claims(url: str, answers: Connection) -> None:
    """Claim a call that may run again and one that may not, with short leases; finish both when told, and tell what is stored."""

    async def run() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.register_owner("frozen")
        for effects, key in (("idempotent", "safe"), ("unsafe", "unsafe")):
            await store.claim(claim(key, effects=effects, args_digest=key, owner="frozen", lease_ms=200))
        answers.send("claimed")
        answers.recv()
        rows = [await store.finish(done(key, envelope='{"by":"frozen"}')) for key in ("safe", "unsafe")]
        answers.send({row.key: (row.state.value, row.fence, row.envelope) for row in rows})
        await store.close()

    asyncio.run(run())
