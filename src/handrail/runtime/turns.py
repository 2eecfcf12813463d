"""Turns: numbered by the host, begun when user input is committed, kept by a resent message and by a reconnect.

What was spent, what was called and what came back empty is counted in the turn, never in a message.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from handrail.contract.definition import RateLimit
from handrail.contract.ports import MetricsPort
from handrail.contract.store import Hold, HoldState, LedgerRow, Store, StoreUnavailable, TurnStart

if TYPE_CHECKING:
    from handrail.runtime.claim_and_run import LostConnection
    from handrail.runtime.envelopes import AuditTrail
    from handrail.runtime.rates import Rates
    from handrail.runtime.session import Session
    from handrail.runtime.statistics import CallStatistics

Pair = tuple[str, str]
"""A tool and the digest of its arguments."""
MessageId = tuple[str | None, str]
"""The provider's id of a model message, where it gives one, and of a call in it."""
Ordinals = dict[int, "MessageId | None"]
"""Which are taken, and by which id if that counts for one message: under it the same call may come again."""
_MAX_DIGESTS = 64
_MAX_INTERVALS = 64
TURNS_KEPT, TURNS_COUNTED = 5, 200
"""Turns that are remembered whole, and those of which only what they have spent is."""


def pair_of(hold: Hold) -> Pair:
    """What a session finds it by. Made from the arguments: older versions have stored the digest of `dedupeFields`."""
    return hold.tool, sha256(hold.args.encode()).hexdigest()


class TurnRecord:
    """One turn of a session."""

    __slots__ = (
        "declined",
        "digests",
        "empties",
        "ended",
        "has_repeats",
        "history",
        "identical",
        "identical_before",
        "input_id",
        "interrupted",
        "intervals",
        "is_single",
        "is_stored_as_left",
        "may_have_stored_calls",
        "number",
        "ordinals",
        "refusals",
        "refused",
        "remembered",
        "replayed",
        "retrieval_used",
        "span",
        "started",
        "stored",
        "tool_ms",
        "tools_until",
        "total_stored",
        "total_used",
        "unknown",
    )

    def __init__(self, number: int, started: float) -> None:
        self.number = number
        self.started = started
        self.ended = False
        self.interrupted = False
        """The user has interrupted it."""
        self.is_single = False
        """It is the turn of one call, which the session is never in."""
        self.span: object = None
        """Its span, where the runtime is traced."""
        self.stored = True
        """False while the store does not know of it, because it was away."""
        self.input_id: str | None = None
        self.may_have_stored_calls = False
        """It began on another connection, or is gone through again: the store may know calls of it that we do not."""
        self.retrieval_used = 0
        self.total_used = 0
        self.tool_ms = 0.0
        """The time in which at least one of its calls ran. Calls that run at the same time share it."""
        self.tools_until = 0.0
        """When the last of them ended, on the clock of `started`."""
        self.intervals: deque[tuple[float, float]] = deque(maxlen=_MAX_INTERVALS)
        """When calls ran that ended while another one was running: that one must not count this time again."""
        self.is_stored_as_left = False
        """The store has what was counted in it, as a turn that was left. What calls that were under way then still count is
        noted by `Session.counted`; calls that end without waiting are seen by `total_stored`."""
        self.total_stored = 0
        self.refusals = 0
        """Those that may be a loop, by steps 1 to 8."""
        self.refused = 0
        """All of them."""
        self.identical: dict[tuple[str, bytes], int] = {}
        """Identical calls on this connection, replays without an id among them."""
        self.digests: list[str] = []
        """Of identical calls, in their order, each worked out once: every claim carries them to the store."""
        self.history: dict[str, int] = {}
        """The newest of `digests`, once each: what the store gets while no call was made twice."""
        self.has_repeats = False
        """Some call was counted other than once."""
        self.replayed: dict[tuple[str, bytes], int] = {}
        """Those among them that were replays."""
        self.identical_before: dict[str, int] = {}
        """Identical calls on earlier connections, by digest, the newest last."""
        self.empties: dict[str, int] = {}
        self.ordinals: dict[Pair, Ordinals] = {}
        """Ordinals of writing calls with an id of their own that are taken on this connection."""
        self.remembered: dict[Pair, Ordinals] = {}
        """Those among them that the model brought along when this connection began."""
        self.declined: set[Pair] = set()
        self.unknown: dict[Pair, str] = {}
        """Calls whose outcome is not known, and the ledger key that will know it."""

    def begin_again(self) -> None:
        """A new connection, or the same input sent again: the model may not remember what it called in this turn."""
        self.identical_before = self._digests()
        self.identical, self.replayed, self.digests, self.history, self.has_repeats = {}, {}, [], {}, False
        self.ordinals = {pair: dict(taken) for pair, taken in self.remembered.items()}
        self.may_have_stored_calls = True

    def continue_from(self, before: TurnRecord) -> None:
        """This turn was begun anew while the store was away; now it is known to be `before`, gone through again."""
        self.may_have_stored_calls = True
        self.retrieval_used += before.retrieval_used
        self.total_used += before.total_used
        self.tool_ms += before.tool_ms
        self.refusals += before.refusals
        self.refused += before.refused
        self.empties = _added(before.empties, self.empties)
        self.identical_before = _newest(_added(before._digests(), self.identical_before))
        self.declined |= before.declined
        self.unknown = {**before.unknown, **self.unknown}
        self.remembered = before.remembered
        for pair, taken in self.remembered.items():
            self.ordinals.setdefault(pair, {}).update(taken)

    def take(self, row: LedgerRow) -> None:
        """A call of this turn that the model still knows under its own id: the next identical one is another."""
        if row.turn == self.number:
            self.ordinals.setdefault((row.tool, row.args_digest), {}).setdefault(row.ordinal, None)

    def uncounted(self, started: float, duration: float) -> float:
        """The milliseconds of a call in which no other call of the turn ran that has ended already."""
        end, counted, begun = started + duration / 1000, 0.0, started
        # Calls may run side by side; the user has waited through their time once.
        while self.intervals and self.intervals[-1][1] > started:
            first, last = self.intervals.pop()
            counted += last - max(first, started)
            begun = min(begun, first)
        self.intervals.append((begun, end))
        return max(0.0, duration - counted * 1000)

    def counters(self) -> dict[str, Any]:
        """What survives a restart. The history of identical calls goes as digests, which is all that is compared."""
        return {
            "turn": self.number,
            "retrieval": self.retrieval_used,
            "total": self.total_used,
            "toolMs": round(self.tool_ms),
            "refusals": self.refusals,
            "refused": self.refused,
            "empties": self.empties.copy(),
            "declined": [list(pair) for pair in self.declined],
            "unknown": [[*pair, key] for pair, key in self.unknown.items()],
            "identical": self._digests(),
        }

    def restore(self, counters: Mapping[str, Any]) -> None:
        self.may_have_stored_calls = True
        if counters.get("turn") != self.number:
            return
        # This process may know of more than it has stored.
        self.retrieval_used = max(self.retrieval_used, int(counters.get("retrieval", 0)))
        self.total_used = max(self.total_used, int(counters.get("total", 0)))
        self.tool_ms = max(self.tool_ms, float(counters.get("toolMs", 0)))
        self.refusals = int(counters.get("refusals", 0))
        self.refused = max(self.refused, int(counters.get("refused", 0)))
        self.empties = dict(counters.get("empties", {}))
        self.declined = {(pair[0], pair[1]) for pair in counters.get("declined", ())}
        self.unknown = {(item[0], item[1]): item[2] for item in counters.get("unknown", ())}
        self.identical_before = dict(counters.get("identical", {}))

    def _digests(self) -> dict[str, int]:
        """How often each call was made. Every claim carries it to the store, so it is only added to where that will do."""
        known, identical = self.digests, self.identical
        if len(known) < len(identical):
            # Nothing is ever taken out of `identical`, so that what is not known yet stands at its end.
            newest = list(islice(reversed(identical), len(identical) - len(known)))
            added = [digest_of(*key) for key in reversed(newest)]
            known += added
            self.history.update(dict.fromkeys(added, 1))
            while len(self.history) > _MAX_DIGESTS:
                del self.history[next(iter(self.history))]
        if not (self.has_repeats or self.replayed or self.identical_before):
            return self.history.copy()
        counted = list(islice(zip(reversed(known), reversed(identical.values()), strict=True), _MAX_DIGESTS))
        digests = dict(reversed(counted))
        if self.replayed:
            for key, times in self.replayed.items():
                digest = digest_of(*key)
                if digest in digests:
                    digests[digest] -= times
        return _newest(_added(self.identical_before, digests)) if self.identical_before else digests


def single_turn(input_id: str, *, again: bool = False) -> TurnRecord:
    """The turn of a call that belongs to no other. Nothing is stored for it unless the call writes or is held; `input_id` then
    finds the same turn `again`, in any process."""
    turn = TurnRecord(0, perf_counter())
    turn.is_single, turn.stored, turn.input_id, turn.may_have_stored_calls = True, False, input_id, again
    return turn


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Both together; what the other has comes last, as the newest."""
    both = dict(one)
    for name, times in other.items():
        # Taken out and put in again, which moves it to the end: the newest are kept when there are too many.
        both[name] = both.pop(name, 0) + times
    return both


def _newest(digests: Mapping[str, int]) -> dict[str, int]:
    return dict(islice(digests.items(), max(0, len(digests) - _MAX_DIGESTS), None))


def digest_of(tool: str, loop_key: bytes) -> str:
    """A call as the history of identical calls keeps it beyond its connection."""
    return sha256(tool.encode() + b"\0" + loop_key).hexdigest()[:16]


class Turns:
    """The turns of one runtime's sessions."""

    __slots__ = (
        "_limits",
        "_log",
        "_lost_connection",
        "_metrics",
        "_rates",
        "_save",
        "_statistics",
        "_store",
        "_trail",
    )

    def __init__(
        self,
        store: Store,
        trail: AuditTrail,
        metrics: MetricsPort,
        rates: Rates,
        statistics: CallStatistics | None,
        *,
        save: Callable[[Session], Awaitable[None]],
        lost_connection: LostConnection,
        log: logging.Logger,
    ) -> None:
        self._store = store
        self._trail = trail
        self._metrics = metrics
        self._rates = rates
        self._statistics = statistics
        self._save = save
        self._lost_connection = lost_connection
        self._log = log
        self._limits: dict[str, list[tuple[str, RateLimit]]] = {}
        """The limits of each registry version, so that their use elsewhere is known when a turn begins."""

    async def begin(self, session: Session, input_id: str | None, connection: int | None) -> int:
        """Begin the turn of an input on `connection`, or on whichever is current. A replaced connection begins none."""
        # While the store answers, nobody knows which turn it has the session in: claims then name their turn themselves.
        session.beginning += 1
        try:
            used = connection or session.connection
            # Turn 0 is the store's way to say that this connection was replaced.
            while not (started := await self._begin_stored(session, input_id, used)).turn:
                is_here = await self._lost_connection(session, used)
                if is_here and connection is None:
                    used = session.connection
                    continue
                if session.turn is None and not is_here:
                    session.enter_turn(0, perf_counter())  # calls are answered in a turn, also with a refusal
                return session.turn.number if session.turn is not None else 0
            if session.turn is not None and session.turn.number != started.turn:
                self.end(session)
            # A turn that this process remembers has newer counters here than the store has.
            remembered = started.turn in session.turns
            if not remembered and started.turn not in session.spent:
                self._metrics.turn_started(session.id)
            turn = session.enter_turn(started.turn, perf_counter())
            turn.ended = False
            if started.known:
                if not remembered:
                    turn.restore(started.counters)
                # The same input again: the model answers it anew, and may not remember what it called.
                turn.begin_again()
        except StoreUnavailable as error:
            return self._begin_unstored(session, input_id, error)
        finally:
            session.beginning -= 1
            session.dirty = True
        if started.known:
            await self._learn_declined(session, turn)
        # An empty list: the tools of this version were looked through, and none has a limit.
        if self._limits.get(session.snapshot.key) != []:
            await self._learn_rates(session)
        return started.turn

    async def _begin_stored(self, session: Session, input_id: str | None, connection: int) -> TurnStart:
        """What was counted in the turn that is left is stored along: its input may come again in another process."""
        if (
            any(not turn.stored for turn in session.turns.values())
            and await self.store(session)
            and session.unstored_turns()
        ):
            await self._save(session)  # before they are let go
        left = session.turn
        if left is None or not left.stored:
            return await self._store.begin_turn(session.id, connection=connection, input_id=input_id)
        counters = left.counters()
        left.is_stored_as_left, left.total_stored = True, left.total_used  # what is counted from now on is not among it
        try:
            return await self._store.begin_turn(
                session.id, connection=connection, input_id=input_id, left=(left.number, counters)
            )
        except BaseException:
            left.is_stored_as_left = False
            raise

    def _begin_unstored(self, session: Session, input_id: str | None, error: StoreUnavailable) -> int:
        """Reads continue while the store is away: the turn begins here, and is stored before anything is written in it."""
        self._log.warning("A turn could not be stored yet: %s", error)
        known = next((turn for turn in session.turns.values() if input_id and turn.input_id == input_id), None)
        if known is None:
            if session.turn is not None:
                self.end(session)
            known = TurnRecord(session.next_number(), perf_counter())
            known.stored, known.input_id = False, input_id or f"late:{uuid4().hex}"
            session.drop_turns(TURNS_COUNTED - 1)
            session.turns[known.number] = known
            self._metrics.turn_started(session.id)
        else:
            known.begin_again()
        session.enter_turn(known.number, perf_counter())
        return known.number

    async def store(self, session: Session, needed: TurnRecord | None = None) -> bool:
        """Turns that began while the store was away get their numbers from the store, in their order; whether there were any."""
        turns = list(session.turns.values())
        if needed is not None and needed not in turns:  # so old that it is not remembered
            turns.insert(0, needed)
        # In the order in which they began, which is the order of the numbers that they get.
        unstored = [turn for turn in turns if not turn.stored]
        for turn in unstored:
            if not turn.stored:
                await self._store_turn(session, turn)
        return bool(unstored)

    async def _store_turn(self, session: Session, turn: TurnRecord) -> None:
        connection = session.connection
        started = await self._store.begin_turn(session.id, connection=connection, input_id=turn.input_id)
        if turn.stored:
            return
        # Another process has the session: the turn stays without a number, and nothing can be written in it.
        if started.turn == 0:
            await self._lost_connection(session, connection)
            return
        if session.turns.get(turn.number) is turn:
            del session.turns[turn.number]
        known = session.turns.pop(started.turn, None)
        turn.number, turn.stored = started.turn, True
        session.turns[turn.number] = turn
        if known is not None and not known.stored:
            known.number = session.next_number()  # it had this one by guess
            session.turns[known.number] = known
            known = None
        if started.known:
            turn.continue_from(known or session.stored_turn(turn, started.counters))
            await self._learn_declined(session, turn)

    async def _learn_declined(self, session: Session, turn: TurnRecord) -> None:
        """A person may have said no after the turn was left, wherever the session was then."""
        try:
            holds = await self._store.holds(session.id, (HoldState.DECLINED,))
        except StoreUnavailable as error:
            self._log.warning("What was declined in an earlier turn is not known: %s", error)
        else:
            turn.declined.update(pair_of(hold) for hold in holds if hold.turn == turn.number)

    async def _learn_rates(self, session: Session) -> None:
        limits = self._limits.get(session.snapshot.key)
        if limits is None:
            names = dict.fromkeys(entry["toolId"] for entry in session.snapshot.entries if entry.get("rateLimit"))
            found = ((name, tool.definition.rate_limit) for name in names if (tool := session.snapshot.get(name)))
            limits = self._limits[session.snapshot.key] = [(name, limit) for name, limit in found if limit]
        if limits:
            try:
                await self._rates.learn(self._store, session, limits)
            except StoreUnavailable as error:
                self._log.warning("The limits used elsewhere are not known: %s", error)

    def end(self, session: Session) -> None:
        turn = session.turn
        if turn is None or turn.ended:
            return
        turn.ended = True
        limit, mode = session.limits.turn_ms, session.mode
        budget = {} if limit is None else {"toolBudgetMs": limit}
        self._trail.note(
            "turn_summary",
            session,
            {
                **self._trail.who(session),
                "duration": round((perf_counter() - turn.started) * 1000, 3),
                "toolMs": round(turn.tool_ms, 3),
                **budget,
                "calls": turn.total_used,
                "retrieval": turn.retrieval_used,
                "refusals": turn.refused,
            },
        )
        self._metrics.turn_ended((mode, turn.tool_ms))
        if self._statistics is not None:
            self._statistics.turn_ended(session, turn)
        if limit is not None and turn.tool_ms > limit:
            self._log.info(
                "The tools of a turn took %.0f ms; the budget of a %s turn is %d ms", turn.tool_ms, mode, limit
            )
