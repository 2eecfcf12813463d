"""Counts how tools are used, for the store: see `handrail.contract.usage`. Calls hand over what they know in one append each;
the housekeeper counts it, and every few seconds stores what was counted as a batch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from handrail.contract.ports import CallRecord, UsageEvent, UsageKind
from handrail.contract.usage import SESSION_COUNTS, SESSION_PRODUCTS, UsageRow, UsageStore, add_counts
from handrail.observe.sketch import add_value

EVERY_SECONDS = 5.0
"""So often a batch is stored; a process that is killed loses at most what it has counted since."""
MAX_SESSIONS = 20_000
"""Beyond it, the sessions that were first seen count as closed."""
_DAY_SECONDS = 86_400


class _ToolVersion(NamedTuple):
    tool: str
    version: str


class _SessionUse:
    """What one open session has counted, by tool and version."""

    __slots__ = ("arms", "tenant", "turns")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.arms: dict[_ToolVersion, dict[str, float]] = {}
        self.turns: dict[int, dict[_ToolVersion, str]] = {}
        """How the last call of each tool ended, by turn, until the turn has ended."""


class UsageLog:
    """What one process has counted and not stored yet."""

    def __init__(self, writer: str, clock: Callable[[], float] = time.time) -> None:
        self._writer = writer
        self._clock = clock
        self._events: deque[UsageEvent] = deque()
        self.note: Callable[[UsageEvent], None] = self._events.append
        """Something other than an execution has happened."""
        self.before_fold: Callable[[], None] = lambda: None
        """Hands over the executions that were noted elsewhere; what happened after them is counted after them."""
        self._rows: dict[tuple[str, str, str, str], dict[str, Any]] = {}
        self._sessions: dict[str, _SessionUse] = {}
        self._day = (-1, "")
        self._batch = 0
        self._unstored: list[UsageRow] = []
        """A batch whose commit was not heard of: it is sent again as it is, under the same number."""
        self._due = 0.0

    # ---------------------------------------------------------------------------------------------------- counting
    def executed(self, record: CallRecord, *, was_held: bool = False) -> None:
        """A handler has run to an outcome. A call that was held was counted then."""
        arm = _ToolVersion(record.tool_id, record.tool["toolVersion"])
        counts = self._row(record.time, record.tenant, arm)
        error, duration = record.error_type, record.duration
        outcomes = counts.setdefault("outcomes", {})
        outcomes[error or "ok"] = outcomes.get(error or "ok", 0) + 1
        counts["executed"] = counts.get("executed", 0) + 1
        add_value(counts.setdefault("latency", {}), duration)
        add_value(counts.setdefault("size", {}), record.size)
        use = self._session(record.session_id, record.tenant, record.turn, arm, "failed" if error else "completed")
        use["latency"] += duration
        use["errors"] += error is not None
        if not was_held:
            counts["calls"] = counts.get("calls", 0) + 1
            use["calls"] += 1

    def fold(self) -> None:
        """Count what was noted."""
        events = len(self._events)  # before the executions, so that none of those that belong to an event is missed
        self.before_fold()
        for _ in range(events):
            self._count(self._events.popleft())

    def _count(self, event: UsageEvent) -> None:
        kind = event.kind
        if kind is UsageKind.SESSION_CLOSED:
            self._close(event.session_id, event.time)
        elif kind is UsageKind.TURN_ENDED:
            self._end_turn(event)
        else:
            self._count_answer(event)

    def _count_answer(self, event: UsageEvent) -> None:
        arm = _ToolVersion(event.tool, event.version)
        counts = self._row(event.time, event.tenant, arm)
        if event.kind is UsageKind.REPLAYED:
            counts["replayed"] = counts.get("replayed", 0) + 1
            return
        if event.kind is UsageKind.DECLINED:
            counts["declined"] = counts.get("declined", 0) + 1
            self._session(event.session_id, event.tenant, event.turn, arm, "declined")["declined"] += 1
            return
        is_refusal = event.kind is UsageKind.REFUSED
        use = self._session(event.session_id, event.tenant, event.turn, arm, "failed" if is_refusal else "held")
        if is_refusal:
            # As plain texts: they come as members of enumerations.
            for name, key in (("refusals", str(event.gate)), ("refused", str(event.error_type))):
                found = counts.setdefault(name, {})
                found[key] = found.get(key, 0) + 1
            use["refused"] += 1
        else:
            counts["held"] = counts.get("held", 0) + 1
            use["held"] += 1
        if not event.was_held:
            counts["calls"] = counts.get("calls", 0) + 1
            use["calls"] += 1

    def _end_turn(self, event: UsageEvent) -> None:
        use = self._sessions.get(event.session_id)
        ended = use.turns.pop(event.turn, {}) if use is not None else {}
        last = "completed"
        for arm, outcome in ended.items():
            last = outcome
            said = "interrupted" if event.interrupted and outcome != "declined" else outcome
            self._count_turn(event, arm, said)
            if use is not None:
                use.arms[arm]["turns"] += 1
                use.arms[arm]["completed"] += said == "completed"
        self._count_turn(event, _ToolVersion("", ""), "interrupted" if event.interrupted else last)

    def _count_turn(self, event: UsageEvent, arm: _ToolVersion, outcome: str) -> None:
        turns = self._row(event.time, event.tenant, arm).setdefault("turns", {})
        turns[outcome] = turns.get(outcome, 0) + 1

    def _close(self, session_id: str, when: float) -> None:
        use = self._sessions.pop(session_id, None)
        if use is None:
            return
        for arm, counted in use.arms.items():
            sessions = self._row(when, use.tenant, arm).setdefault("sessions", {"n": 0, "sums": {}, "products": {}})
            sessions["n"] += 1
            add_counts(sessions["sums"], {name: value for name, value in counted.items() if value})
            products = {f"{one}*{other}": counted[one] * counted[other] for one, other in SESSION_PRODUCTS}
            add_counts(sessions["products"], {name: value for name, value in products.items() if value})

    def _session(self, session_id: str, tenant: str, turn: int, arm: _ToolVersion, outcome: str) -> dict[str, float]:
        use = self._sessions.get(session_id)
        if use is None:
            while len(self._sessions) >= MAX_SESSIONS:
                self._close(next(iter(self._sessions)), self._clock())
            use = self._sessions[session_id] = _SessionUse(tenant)
        if use.turns.setdefault(turn, {}).get(arm) != "declined":
            use.turns[turn].pop(arm, None)  # the last call stands last
            use.turns[turn][arm] = outcome
        counted = use.arms.get(arm)
        if counted is None:
            counted = use.arms[arm] = dict.fromkeys(SESSION_COUNTS, 0)
        return counted

    def _row(self, when: float, tenant: str, arm: _ToolVersion) -> dict[str, Any]:
        number = int(when // _DAY_SECONDS)
        if number != self._day[0]:
            self._day = number, day_of(when)
        key = (self._day[1], tenant, *arm)
        counts = self._rows.get(key)
        if counts is None:
            counts = self._rows[key] = {}
        return counts

    # ----------------------------------------------------------------------------------------------------- storing
    async def store(self, store: UsageStore, *, now: float | None = None) -> None:
        """Store what was counted, if it is time for it; without `now`, in any case."""
        self.fold()
        if now is not None and now < self._due:
            return
        if now is not None:
            self._due = now + EVERY_SECONDS
        await self._send(store)
        if self._rows:
            rows, self._rows = self._rows, {}
            self._batch += 1
            self._unstored = [UsageRow(*key, counts) for key, counts in sorted(rows.items(), key=_first)]
            await self._send(store)

    async def close(self, store: UsageStore) -> None:
        """The process ends: store everything. Its sessions end here, although another process may continue with them."""
        self.fold()
        for session_id in list(self._sessions):
            self._close(session_id, self._clock())
        await self.store(store)

    async def _send(self, store: UsageStore) -> None:
        if self._unstored:
            await store.add(self._unstored, writer=self._writer, batch=self._batch)
            self._unstored = []

    @property
    def unstored(self) -> int:
        """How many rows wait for the store."""
        return len(self._unstored) + len(self._rows)


def day_of(when: float) -> str:
    """The day of a moment in UTC, as rows name it."""
    return time.strftime("%Y-%m-%d", time.gmtime(when))


def _first(item: tuple[tuple[str, ...], Any]) -> tuple[str, ...]:
    return item[0]
