"""Retention: the space used by expired rows is given back in small batches, because all other writes wait behind each. It is
the same work whoever does it, so several processes may do it at once, and what one began, another ends.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from handrail.contract.ports import AuditPort, Clock
from handrail.contract.store import Evicted, Store
from handrail.runtime.policy import Policy

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore
    from handrail.runtime.session import Session

PAUSE_SECONDS = 0.02
"""Between two batches where nothing else happens, so that the other processes come to write."""
_FIRST_SECONDS = 600.0
_EVERY_SECONDS = 86_400.0
_AWAY_SECONDS = 60.0
_DAY_MS = 86_400_000
_MAX_DAYS = 500_000
"""Calendars go no further back; it keeps everything."""


async def end_detached(core: RuntimeCore, session: Session) -> None:
    """End a session that nobody continues with: only of ended ones is everything given back. If somebody has taken it up since it
    was made from the store, this is no longer its connection, and it stays as it is."""
    if session.is_active:
        session.state.set("isActive", False)
        await core.save(session)
        core.trail.audit_session("session_end", session)


class Pruning:
    """One walk through a store. Whatever it drops, no call can be run a second time for it."""

    __slots__ = ("_bodies_before", "_left_at", "_rows_before", "is_over", "results", "rows")

    def __init__(self, now: int, *, results_days: int, calls_days: int) -> None:
        self.results = self.rows = 0
        self.is_over = False
        self._bodies_before = max(0, now - results_days * _DAY_MS)
        self._rows_before = max(0, now - calls_days * _DAY_MS)
        self._left_at: str | None = None

    async def step(self, store: Store) -> None:
        """A batch. One that is broken off is in the store's hands already, so it is waited for and counts too."""
        batch = asyncio.ensure_future(
            store.evict(bodies_before=self._bodies_before, rows_before=self._rows_before, left_at=self._left_at)
        )
        try:
            await asyncio.shield(batch)
        finally:
            await asyncio.wait([batch])
            if batch.exception() is None:
                self._count(batch.result())

    def _count(self, gone: Evicted) -> None:
        self.results += gone.results
        self.rows += gone.rows
        self._left_at, self.is_over = gone.left_at, gone.left_at is None

    def gone(self) -> dict[str, int]:
        """How much was dropped so far, for the audit."""
        return {"results": self.results, "rows": self.rows}


class DailyPruning:
    """When the housekeeper prunes: some time after the start, so that short-lived processes never do, and then once a day."""

    __slots__ = ("_audit", "_clock", "_due", "_policy", "_pruning", "_store")

    def __init__(self, store: Store, clock: Clock, audit: AuditPort, policy: Policy) -> None:
        self._store = store
        self._clock = clock
        self._audit = audit
        self._policy = policy
        self._due: float | None = None
        self._pruning: Pruning | None = None

    async def step(self) -> None:
        """A batch, if it is time for one."""
        now = self._clock.monotonic()
        due = self._due = now + _FIRST_SECONDS if self._due is None else self._due
        if now < due:
            return
        self._due = now + _AWAY_SECONDS  # if the store is away
        pruning = self._pruning = self._pruning or await self._begin()
        await pruning.step(self._store)
        self._due = due
        if pruning.is_over:
            await self._prune_usage()
            self._due = now + _EVERY_SECONDS
            self.leave()

    async def _prune_usage(self) -> None:
        first = datetime.fromtimestamp(await self._store.now() / 1000, UTC) - timedelta(
            self._policy.keep_statistics_days
        )
        await self._store.usage.prune(before=first.date().isoformat())

    def leave(self) -> None:
        """The walk is over, or breaks off because the runtime stops: what it has dropped is audited."""
        pruning, self._pruning = self._pruning, None
        if pruning is not None and any(pruning.gone().values()):
            self._audit.emit("pruned", pruning.gone())

    async def _begin(self) -> Pruning:
        now, policy = await self._store.now(), self._policy
        return Pruning(now, results_days=policy.keep_results_days, calls_days=policy.keep_calls_days)
