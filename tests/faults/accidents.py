"""Accidents for tests: a process that dies, a store that goes away, a clock that jumps."""

import asyncio
from typing import Any

from handrail import Runtime
from handrail.contract.store import StoreUnavailable
from handrail.stores import MemoryStore, SqliteStore
from handrail.stores.postgres import PostgresStore
from handrail.testing import VirtualClock, settle


async def die(world: Any, runtime: Runtime) -> None:
    """The process is gone without a word: its tasks stop where they are, and its lock is free."""
    for task in (runtime._housekeeper, *runtime.claims.tasks, *runtime._tasks):
        if task is not None:
            task.cancel()
    await asyncio.sleep(0)
    await world.store.release_owner(runtime.owner)
    await world.store.close()
    if runtime in world.runtimes:
        world.runtimes.remove(runtime)
    await asyncio.sleep(0.03)  # longer than the lease of these tests


class Accidents:
    """Before any store: it can be made to fail, before the change (`down`), or after it, so that nobody hears of it (`deaf`). Its
    threads take real time, in which a virtual clock should stand still (`working`)."""

    working = 0

    def __init__(self, *place: Any, **options: Any) -> None:
        super().__init__(*place, **options)
        self.down = 0
        self.deaf = 0
        self.only: str | None = None
        self.failing, self.may_fail = asyncio.Event(), asyncio.Event()
        self.may_fail.set()

    def hold_failures_back(self) -> None:
        """The next failure tells that it comes (`failing`), and waits until it may (`may_fail`)."""
        self.failing.clear()
        self.may_fail.clear()

    async def claim(self, claim: Any) -> Any:
        return await self._perhaps("claim", super().claim(claim))

    async def finish(self, finish: Any) -> Any:
        return await self._perhaps("finish", super().finish(finish))

    async def _perhaps(self, name: str, work: Any) -> Any:
        if self.only in (None, name):
            if self.down > 0:
                self.down -= 1
                work.close()
                await self._fail("The store is down.")
            if self.deaf > 0:
                self.deaf -= 1
                await work
                await self._fail("The store did not answer.")
        return await work

    async def _fail(self, words: str) -> None:
        self.failing.set()
        await self.may_fail.wait()
        raise StoreUnavailable(words)

    async def _write(self, request: Any, *locks: Any) -> Any:
        return await self._counted(super()._write(request, *locks))

    async def _read(self, request: Any) -> Any:
        return await self._counted(super()._read(request))

    async def _counted(self, work: Any) -> Any:
        self.working += 1
        try:
            return await work
        finally:
            self.working -= 1


class Flaky(Accidents, MemoryStore): ...


class FlakyFile(Accidents, SqliteStore): ...


class FlakyPostgres(Accidents, PostgresStore): ...


class PatientClock(VirtualClock):
    """Virtual time that does not pass while the store is at work: nobody's patience ends because a disk is slow."""

    store: Accidents | None = None

    async def advance(self, seconds: float) -> None:
        await settle()
        while self.store is not None and self.store.working:
            await asyncio.sleep(0.001)
            await settle()
        await super().advance(seconds)


class JumpingClock:
    """Milliseconds for a store, which jump when told."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def milliseconds(self) -> int:
        self.now += 1
        return self.now
