"""Limits over a sliding window: never more than the allowed calls in any window, in memory and over processes and restarts.

Of each limit the moments of its calls are kept for as long as they count. A limit of many calls is kept by slots of its window
instead, a slot counting until its last moment is over: a call may then be refused a little longer than need be, never too short.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

from handrail.contract.definition import RateLimit
from handrail.contract.ports import Clock
from handrail.contract.store import RateCharge, Store
from handrail.schema.strict_json import canonical

if TYPE_CHECKING:
    from handrail.runtime.session import Session

_MAX_SLOTS = 256
_MANY = 10_000
_MAX_AT_ONCE = 2_000
_MAX_SCOPES = 200
"""As many units of as many limits are written in one transaction, which has a lock of the store for each of these limits."""
_IDLE_MS = 60_000
"""A limit that nobody has asked for in this time is no longer kept up to date."""


class Window:
    """The calls of one limit that still count: the beginning of a slot → how many fell into it, the oldest first."""

    __slots__ = ("last", "slot_ms", "slots", "total", "window_ms")

    def __init__(self, limit: RateLimit) -> None:
        self.window_ms = limit.window_ms
        self.slot_ms = slot_of(limit)
        self.slots: dict[int, int] = {}
        self.total = 0
        self.last = 0

    def forget(self, now: int) -> None:
        """Let go of what does not count any more."""
        if self.last > now + self.window_ms:  # the clock was set back
            self.slots = {start: used for start, used in self.slots.items() if start <= now + self.window_ms}
            self.total, self.last = sum(self.slots.values()), max(self.slots, default=0)
        # A slot counts until its last moment is out of the window: too long by less than a slot, and never too short.
        over = now - self.window_ms - self.slot_ms + 1
        while self.slots:
            oldest = next(iter(self.slots))
            if oldest > over:
                return
            self.total -= self.slots.pop(oldest)

    def wait(self, calls: int, now: int) -> int:
        """The milliseconds until so few calls are left that one more may be made."""
        left = self.total
        for start, used in self.slots.items():
            left -= used
            if left < calls:
                return max(1, start + self.slot_ms - 1 + self.window_ms - now)
        return self.window_ms

    def add(self, start: int, units: int) -> None:
        self.total += units
        if start in self.slots:
            self.slots[start] += units
            return
        self.slots[start] = units
        # Units that other processes used are learnt late. `forget` and `wait` need the oldest first.
        if start < self.last:
            self.slots = dict(sorted(self.slots.items()))
        else:
            self.last = start

    def take(self, start: int, units: int) -> None:
        """Take back what was added there and still counts."""
        used = min(units, self.slots.get(start, 0))
        self.total -= used
        if used and self.slots[start] == used:
            del self.slots[start]
        elif used:
            self.slots[start] -= used


class Rates:
    """All limits that this process knows of."""

    __slots__ = ("_clock", "_many", "_pending", "_watched", "_windows")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[str, Window] = {}
        self._pending: dict[tuple[str, int], int] = {}
        self._watched: dict[str, tuple[RateLimit, int]] = {}
        """Limits that other processes may use up, by scope; and when somebody last cared."""
        self._many = _MANY

    def charge(self, session: Session, tool: str, limit: RateLimit) -> tuple[float | None, int]:
        """Take one unit: None and the slot that it fell into; or the seconds until there is one, if none is left."""
        now = self._now()
        window = self._window(scope_of(session, tool, limit), limit)
        window.forget(now)
        slot = now - now % window.slot_ms
        if window.total >= limit.calls:
            return window.wait(limit.calls, now) / 1000, slot
        window.add(slot, 1)
        # Windows of users who have gone would stay for ever otherwise.
        if len(self._windows) > self._many:
            self._forget_old(now)
        return None, slot

    def give_back(self, session: Session, tool: str, limit: RateLimit, slot: int) -> None:
        """The call did not come to a run."""
        window = self._windows.get(scope_of(session, tool, limit))
        if window is not None:
            window.take(slot, 1)

    def write_behind(self, session: Session, tool: str, limit: RateLimit, slot: int) -> None:
        """Let the store know of a unit that no claim carries to it."""
        key = scope_of(session, tool, limit), slot
        self._pending[key] = self._pending.get(key, 0) + 1

    async def learn(self, store: Store, session: Session, limits: list[tuple[str, RateLimit]]) -> None:
        """Know what of these limits was used before, or elsewhere; and keep knowing it while the session is in use."""
        now = self._now()
        for tool, limit in limits:
            self._watched[scope_of(session, tool, limit)] = limit, now
        await self.synchronise(store)

    async def synchronise(self, store: Store) -> None:
        """Write what is pending, and learn what others have used."""
        now = self._now()
        self._watched = {scope: known for scope, known in self._watched.items() if known[1] > now - _IDLE_MS}
        pending = self._take_pending()
        since = {scope: now - limit.window_ms - slot_of(limit) + 2 for scope, (limit, _) in self._watched.items()}
        if not pending and not since:
            return
        try:
            totals = await store.count_rates(pending, since)
        except Exception:
            # They may have been stored before the answer was lost, and count twice then: a limit ends too early, never late.
            for key, units in pending.items():
                self._pending[key] = self._pending.get(key, 0) + units
            raise
        for (scope, slot), total in totals.items():
            if scope not in self._watched or slot < since.get(scope, slot):
                continue
            window = self._window(scope, self._watched[scope][0])
            # The store's total has what this process wrote, and not what it has still pending; both are in its own window
            # already.
            more = total + self._pending.get((scope, slot), 0) - window.slots.get(slot, 0)
            if more > 0:
                window.add(slot, more)

    async def write_all(self, store: Store) -> None:
        """Write what is pending when nothing is added any more."""
        for _ in range(len(self._pending)):  # each time one of them at least
            if not self._pending:
                return
            await self.synchronise(store)

    def _take_pending(self) -> dict[tuple[str, int], int]:
        scopes = set[str]()
        # Bounded in two ways: by the size of one statement, and by the locks that one transaction may hold.
        taken = list[tuple[str, int]]()
        for key in islice(self._pending, _MAX_AT_ONCE):
            if key[0] not in scopes and len(scopes) == _MAX_SCOPES:
                continue
            scopes.add(key[0])
            taken.append(key)
        return {key: self._pending.pop(key) for key in taken}

    def _window(self, scope: str, limit: RateLimit) -> Window:
        window = self._windows.get(scope)
        if window is None or window.window_ms != limit.window_ms or window.slot_ms != slot_of(limit):
            known, window = window, Window(limit)
            for start, units in known.slots.items() if known is not None else ():  # the limit was changed
                window.add(start, units)
            self._windows[scope] = window
        return window

    def _now(self) -> int:
        return int(self._clock.time() * 1000)

    def _forget_old(self, now: int) -> None:
        for window in self._windows.values():
            window.forget(now)
        self._windows = {scope: window for scope, window in self._windows.items() if window.slots}
        # Looked at again when there are many more: not on every call while all of them still count.
        self._many = max(_MANY, 2 * len(self._windows))


def slot_of(limit: RateLimit) -> int:
    """The milliseconds of a slot: one, so that it is exact, unless too many calls would have to be remembered."""
    return 1 if limit.calls <= _MAX_SLOTS else -(-limit.window_ms // _MAX_SLOTS)


def scope_of(session: Session, tool: str, limit: RateLimit) -> str:
    """The name of who is limited; no two of them have one name."""
    if limit.scope == "user" and session.user is not None:
        return _of_user(session.tenant, session.user, tool)
    return f"session:{session.id}:{tool}"


@lru_cache(maxsize=4_096)
def _of_user(tenant: str, user: str, tool: str) -> str:
    """A hash, so that no two users share one, and none is named in the store after they were forgotten."""
    return f"user:{sha256(canonical([tenant, user, tool])).hexdigest()}"


def claim_charge(session: Session, tool: str, limit: RateLimit, slot: int) -> RateCharge | None:
    """The unit that a claim takes in its own transaction, for a limit that is counted over all processes."""
    if limit.scope != "user":
        return None
    scope = scope_of(session, tool, limit)
    return RateCharge(scope=scope, limit=limit.calls, window_ms=limit.window_ms, slot_ms=slot_of(limit), slot=slot)
