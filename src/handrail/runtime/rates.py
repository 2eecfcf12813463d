"""Limits per window of time: counted in memory, and through the store over processes and restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.contract.definition import RateLimit
from handrail.contract.ports import Clock
from handrail.contract.store import RateCharge, Store

if TYPE_CHECKING:
    from handrail.runtime.session import Session

Window = tuple[str, int]
_MANY = 10_000
_IDLE_MS = 60_000
"""A window that nobody has asked for in this time is no longer kept up to date."""


class Rates:
    """All windows that this process knows of."""

    __slots__ = ("_clock", "_ends", "_many", "_pending", "_used", "_watched")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[Window, int] = {}
        self._ends: dict[Window, int] = {}
        self._pending: dict[Window, int] = {}
        self._watched: dict[tuple[str, int], int] = {}
        """Limits that other processes may use up, by scope and window length; and when somebody last cared."""
        self._many = _MANY

    def charge(self, session: Session, tool: str, limit: RateLimit) -> float | None:
        """Take one unit; or the seconds until the window is over, if none is left."""
        now = self._now()
        window = _window(session, tool, limit, now)
        used = self._used.get(window, 0)
        if used >= limit.calls:
            return max(0.001, (window[1] + limit.window_ms - now) / 1000)
        self._used[window] = used + 1
        self._ends[window] = window[1] + limit.window_ms
        if len(self._used) > self._many:
            self._forget_old(now)
        return None

    def give_back(self, session: Session, tool: str, limit: RateLimit) -> None:
        """The call did not come to a run."""
        window = _window(session, tool, limit, self._now())
        if self._used.get(window, 0) > 0:
            self._used[window] -= 1

    def write_behind(self, session: Session, tool: str, limit: RateLimit) -> None:
        """Let the store know of a unit that no claim carries to it."""
        window = _window(session, tool, limit, self._now())
        self._pending[window] = self._pending.get(window, 0) + 1

    async def learn(self, store: Store, session: Session, limits: list[tuple[str, RateLimit]]) -> None:
        """Know what of these limits was used before, or elsewhere; and keep knowing it while the session is in use."""
        now = self._now()
        for tool, limit in limits:
            self._watched[(scope_of(session, tool, limit), limit.window_ms)] = now
        await self.synchronise(store)

    async def synchronise(self, store: Store) -> None:
        """Write what is pending, and learn what others have used."""
        now = self._now()
        self._watched = {key: since for key, since in self._watched.items() if since > now - _IDLE_MS}
        pending, self._pending = self._pending, {}
        wanted = {(scope, now - now % length): 0 for scope, length in self._watched}
        ends = {(scope, now - now % length): now - now % length + length for scope, length in self._watched}
        if not pending and not wanted:
            return
        try:
            totals = await store.count_rates({**wanted, **pending})
        except Exception:
            for window, units in pending.items():
                self._pending[window] = self._pending.get(window, 0) + units
            raise
        for window, total in totals.items():
            known = total + self._pending.get(window, 0)
            if known > self._used.get(window, 0):
                self._used[window] = known
                self._ends.setdefault(window, ends.get(window, now + _IDLE_MS))

    def _now(self) -> int:
        return int(self._clock.time() * 1000)

    def _forget_old(self, now: int) -> None:
        self._used = {window: used for window, used in self._used.items() if self._ends.get(window, 0) > now}
        self._ends = {window: end for window, end in self._ends.items() if window in self._used}
        # Looked at again when there are many more: not on every call while all of them still count.
        self._many = max(_MANY, 2 * len(self._used))


def _window(session: Session, tool: str, limit: RateLimit, now: int) -> Window:
    return scope_of(session, tool, limit), now - now % limit.window_ms


def scope_of(session: Session, tool: str, limit: RateLimit) -> str:
    if limit.scope == "user" and session.user is not None:
        return f"user:{session.tenant}:{session.user}:{tool}"
    return f"session:{session.id}:{tool}"


def claim_charge(session: Session, tool: str, limit: RateLimit | None) -> RateCharge | None:
    """The unit that a claim takes in its own transaction, for a limit that is counted over all processes."""
    if limit is None or limit.scope != "user":
        return None
    return RateCharge(scope=scope_of(session, tool, limit), limit=limit.calls, window_ms=limit.window_ms)
