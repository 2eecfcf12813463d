"""What must happen in time but on nobody's call: leases renewed, counters and audit lines written, blocks and switches of
other processes learnt, approvals given elsewhere carried out, room given back. One thing that fails does not keep the others
from happening.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from handrail.contract.store import StoreUnavailable
from handrail.runtime.retention import DailyPruning

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore
    from handrail.runtime.session import Session

TICK_SECONDS = 0.25
IDLE_SECONDS = 900.0
CONNECTION_SECONDS = 0.75
"""So often, and a tick later at most: what another process changed reaches reads within a second."""


class Housekeeper:
    """The housekeeper of one runtime."""

    __slots__ = ("_beat", "_busy", "_looked", "core", "pruning")

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core
        self._beat = 0.0
        self._looked = 0.0
        self._busy = asyncio.Lock()
        self.pruning = DailyPruning(core.store, core.clock, core.audit, core.policy)

    async def work(self) -> None:
        # Leases first: whatever the others take, no claim of this process may run out meanwhile.
        chores: tuple[Callable[[], Awaitable[None]], ...] = (
            self.renew,
            self._flush,
            self.core.audit_recovery.checkpoint_in_time,
            self.write_behind,
            self.learn,
            self.learn_connections,
            self.core.claims.store_unstored,
            self.core.aliases.store_unstored,
            self.core.approvals.carry_out_unconfirmed,
            self._carry_out_granted,
            self._store_usage,
            self._forget_idle,
            self.pruning.step,
        )
        away = False
        attending = asyncio.ensure_future(self._attend())
        try:
            while True:
                await self.core.clock.sleep(TICK_SECONDS)
                self._beat += TICK_SECONDS
                away = await self._do(chores, away)
        finally:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)
            self.pruning.leave()

    async def _attend(self) -> None:
        """Between the ticks: what another process says that it has changed."""
        changed = self.core.store.changed()
        while True:
            await changed
            # Before the look, so that nothing that changes during it is missed.
            changed = self.core.store.changed()
            await self._do((self.learn, self._carry_out_granted), was_away=True)

    async def _do(self, chores: Sequence[Callable[[], Awaitable[None]]], was_away: bool) -> bool:
        """Each of the chores; whether the store is away, which is told once."""
        away = False
        # A round that a notice set off and one of the clock do not run at the same time: both write the same counters.
        async with self._busy:
            for chore in chores:
                try:
                    await chore()
                except StoreUnavailable as error:
                    if not (away or was_away):
                        self.core.log.warning("The store is away: %s", error)
                    away = True
                except Exception:
                    self.core.log.exception("A round of the housekeeper failed; it tries again in the next one")
        return away

    async def write_behind(self) -> None:
        core = self.core
        dirty = [session for session in core.sessions.values() if session.dirty]
        for session in dirty:
            session.dirty = False
        try:
            # Cleared above, before the store is asked: what is counted while it answers makes its session dirty again.
            if dirty:
                for session in dirty:
                    await core.turns.store(session)
                await core.save(*dirty)
            await core.rates.synchronise(core.store)
        except StoreUnavailable:
            for session in dirty:
                session.dirty = True
            raise

    async def write_last(self) -> None:
        """At the end, when nothing more is added."""
        await self.write_behind()
        await self.core.rates.write_all(self.core.store)

    async def release(self, session: Session) -> bool:
        """Let go of a session that makes no call, without ending it: whoever comes back to it resumes it from the store.
        False if it was used meanwhile, and is kept."""
        core = self.core
        session.dirty = False
        try:
            await core.turns.store(session)
            await core.save(session)
        except BaseException:
            session.dirty = True
            raise
        # It was used while the store answered.
        if session.dirty or session.running or not core.has_connection(session):
            return False
        core.sessions.pop(session.id)
        core.metrics.session_closed(session.id)  # for the statistics it continues when it is resumed
        session.events_queue.close()
        return True

    async def learn(self) -> None:
        """Blocks and switches that operators and other processes have set."""
        core = self.core
        operating = await core.store.operating()
        # A number that only grows: whether somebody was forgotten costs nothing to find out.
        if operating.forgettings != core.forgettings:
            await core.drop_forgotten()
            core.forgettings = operating.forgettings
        core.blocks, core.switches = {**operating.blocks, **core.unsaved_blocks}, operating.switches
        await core.save_blocks()  # last: a block that could not be stored yet must not bring a forgotten name back

    async def learn_connections(self) -> None:
        """Which of the sessions in use were resumed in another process: their reads are refused here from now on."""
        now = perf_counter()
        if now < self._looked + CONNECTION_SECONDS:
            return
        # Only those in use: a session that nobody calls learns it from the store when it is used again.
        since, self._looked = self._looked, now
        used = [one for one in self.core.sessions.values() if one.last_used >= since and not one.is_taken_over]
        current = await self.core.store.connections([session.id for session in used])
        for session in used:
            if current.get(session.id, session.connection) > session.connection:
                await self.core.lost_connection(session, session.connection)

    async def renew(self) -> None:
        core = self.core
        # After a third of the lease, so that two renewals may fail before it ends.
        if self._beat * 3000 < core.policy.lease_ms:
            return
        self._beat = 0.0
        claims = list(core.own_claims.fences.items())
        if claims:
            for lost in await core.store.renew(claims, core.policy.lease_ms):
                if lost in core.own_claims.fences:  # else it has settled meanwhile
                    core.log.warning("The claim %s is no longer ours", lost)

    async def give_up_leases(self) -> None:
        """What was left at a stop is nobody's from now on: the next process need not wait for a lease to end."""
        claims = list(self.core.own_claims.fences.items())
        if claims:
            await self.core.store.renew(claims, 0)

    async def _flush(self) -> None:
        # In a thread: hashing and writing a busy quarter of a second takes milliseconds that calls should not wait for.
        self.core.metrics.fold()
        await asyncio.to_thread(self.core.audit.flush)

    async def _store_usage(self) -> None:
        core = self.core
        if core.usage is not None:
            await core.usage.store(core.store.usage, now=core.clock.monotonic())

    async def _carry_out_granted(self) -> None:
        for session in [session for session in self.core.sessions.values() if session.holds]:
            await self.core.approvals.carry_out_granted(session)

    async def _forget_idle(self) -> None:
        """A session that has been idle for long gives the memory of its replays back."""
        oldest = perf_counter() - IDLE_SECONDS
        for session in self.core.sessions.values():
            if session.last_used < oldest and len(session.replays):
                session.replays.drop_settled()
