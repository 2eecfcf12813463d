"""Limits per window of time, counted in memory and, for limits per user, over all processes through the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.contract.definition import RateLimit
from handrail.contract.ports import Clock
from handrail.contract.store import RateCharge, Store

if TYPE_CHECKING:
    from handrail.runtime.session import Session

Window = tuple[str, int]


class Rates:
    """All windows that this process knows of."""

    __slots__ = ("_clock", "_pending", "_used")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[Window, int] = {}
        self._pending: dict[Window, int] = {}

    def charge(self, session: Session, tool: str, limit: RateLimit) -> float | None:
        """Take one unit; or the seconds until the window is over, if none is left."""
        now = int(self._clock.time() * 1000)
        window = (scope_of(session, tool, limit), now - now % limit.window_ms)
        used = self._used.get(window, 0)
        if used >= limit.calls:
            return max(0.001, (window[1] + limit.window_ms - now) / 1000)
        self._used[window] = used + 1
        if len(self._used) > 10_000:
            self._forget_old(now)
        return None

    def write_behind(self, session: Session, tool: str, limit: RateLimit) -> None:
        """Let other processes know of a unit that no claim carries to the store."""
        if limit.scope == "user":
            now = int(self._clock.time() * 1000)
            window = (scope_of(session, tool, limit), now - now % limit.window_ms)
            self._pending[window] = self._pending.get(window, 0) + 1

    async def synchronise(self, store: Store) -> None:
        """Write what is pending, and learn what others have used."""
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        try:
            totals = await store.count_rates(pending)
        except Exception:
            for window, units in pending.items():
                self._pending[window] = self._pending.get(window, 0) + units
            raise
        for window, total in totals.items():
            self._used[window] = max(total, self._used.get(window, 0))

    def _forget_old(self, now: int) -> None:
        hour = 3_600_000
        self._used = {window: used for window, used in self._used.items() if window[1] > now - hour}


def scope_of(session: Session, tool: str, limit: RateLimit) -> str:
    if limit.scope == "user" and session.user is not None:
        return f"user:{session.tenant}:{session.user}:{tool}"
    return f"session:{session.id}:{tool}"


def claim_charge(session: Session, tool: str, limit: RateLimit | None) -> RateCharge | None:
    """The unit that a claim takes in its own transaction, for a limit that is counted over all processes."""
    if limit is None or limit.scope != "user":
        return None
    return RateCharge(scope=scope_of(session, tool, limit), limit=limit.calls, window_ms=limit.window_ms)
