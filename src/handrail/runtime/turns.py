"""Turns: numbered by the host, begun when user input is committed, kept by a resent message and by a reconnect."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING
from uuid import uuid4

from handrail.contract.call import Connection
from handrail.contract.definition import RateLimit
from handrail.contract.store import HoldState, StoreUnavailable, TurnStart
from handrail.runtime.confirmation_view import pair_of
from handrail.runtime.session import TURNS_COUNTED, Session
from handrail.runtime.turn import TurnRecord

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore


class Turns:
    """The turns of one runtime's sessions."""

    __slots__ = ("_limits", "core")

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core
        self._limits: dict[str, list[tuple[str, RateLimit]]] = {}
        """The limits of each registry version, so that their use elsewhere is known when a turn begins."""

    async def begin(self, session: Session, input_id: str | None, connection: Connection | None) -> int:
        """Begin the turn of an input on `connection`, or on whichever is current. A replaced connection begins none."""
        session.beginning += 1
        try:
            used = connection or session.connection
            while not (started := await self._begin_stored(session, input_id, used)).turn:
                is_here = await self.core.lost_connection(session, used)
                if is_here and connection is None:
                    used = session.connection
                    continue
                if session.turn is None and not is_here:
                    session.enter_turn(0, perf_counter())  # calls are answered in a turn, also with a refusal
                return session.turn.number if session.turn is not None else 0
            turn = self._enter(session, started)
        except StoreUnavailable as error:
            return self._begin_unstored(session, input_id, error)
        finally:
            session.beginning -= 1
            session.dirty = True
        if started.known:
            await self._learn_declined(session, turn)
        await self._learn_rates(session)
        return started.turn

    def _enter(self, session: Session, started: TurnStart) -> TurnRecord:
        if session.turn is not None and session.turn.number != started.turn:
            self.end(session)
        remembered = started.turn in session.turns
        if not remembered and started.turn not in session.spent:
            self.core.metrics.turn_started(session.id)
        turn = session.enter_turn(started.turn, perf_counter())
        turn.ended = False
        if started.known:
            if not remembered:
                turn.restore(started.counters)
            # The same input again: the model answers it anew, and may not remember what it called.
            turn.begin_again()
        return turn

    async def _begin_stored(self, session: Session, input_id: str | None, connection: Connection) -> TurnStart:
        """What was counted in the turn that is left is stored along: its input may come again in another process."""
        if await self.store(session) and session.late():
            await self.core.save(session)  # before they are let go
        left = session.turn
        if left is None or not left.stored:
            return await self.core.store.begin_turn(session.id, connection=connection, input_id=input_id)
        counters = left.counters()
        left.is_kept()
        try:
            return await self.core.store.begin_turn(
                session.id, connection=connection, input_id=input_id, left=(left.number, counters)
            )
        except BaseException:
            left.kept = False
            raise

    def _begin_unstored(self, session: Session, input_id: str | None, error: StoreUnavailable) -> int:
        """Reads go on while the store is away: the turn begins here, and is stored before anything is written in it."""
        self.core.log.warning("A turn could not be stored yet: %s", error)
        known = next((turn for turn in session.turns.values() if input_id and turn.input_id == input_id), None)
        if known is None:
            if session.turn is not None:
                self.end(session)
            known = TurnRecord(session.next_number(), perf_counter())
            known.stored, known.input_id = False, input_id or f"late:{uuid4().hex}"
            session.let_go(TURNS_COUNTED - 1)
            session.turns[known.number] = known
            self.core.metrics.turn_started(session.id)
        else:
            known.begin_again()
        session.enter_turn(known.number, perf_counter())
        return known.number

    async def store(self, session: Session, needed: TurnRecord | None = None) -> bool:
        """Turns that began while the store was away get their numbers from the store, in their order; whether there were any."""
        turns = list(session.turns.values())
        if needed is not None and needed not in turns:  # so old that it is not remembered
            turns.insert(0, needed)
        unstored = [turn for turn in turns if not turn.stored]
        for turn in unstored:
            if not turn.stored:
                await self._store(session, turn)
        return bool(unstored)

    async def _store(self, session: Session, turn: TurnRecord) -> None:
        connection = session.connection
        started = await self.core.store.begin_turn(session.id, connection=connection, input_id=turn.input_id)
        if turn.stored:
            return
        if started.turn == 0:
            await self.core.lost_connection(session, connection)
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
            turn.go_on(known or session.forgotten(turn, started.counters))
            await self._learn_declined(session, turn)

    async def _learn_declined(self, session: Session, turn: TurnRecord) -> None:
        """A person may have said no after the turn was left, wherever the session was then."""
        try:
            holds = await self.core.store.holds(session.id, (HoldState.DECLINED,))
        except StoreUnavailable as error:
            self.core.log.warning("What was declined in an earlier turn is not known: %s", error)
        else:
            turn.declined.update(pair_of(hold) for hold in holds if hold.turn == turn.number)

    async def _learn_rates(self, session: Session) -> None:
        limits = self._limits.get(session.snapshot.version)
        if limits is None:
            tools = [(entry["toolId"], entry) for entry in session.snapshot.entries if entry.get("rateLimit")]
            found = ((name, session.snapshot.tool(name).definition.rate_limit) for name, _ in tools)
            limits = self._limits[session.snapshot.version] = [(name, limit) for name, limit in found if limit]
        if limits:
            try:
                await self.core.rates.learn(self.core.store, session, limits)
            except StoreUnavailable as error:
                self.core.log.warning("The limits used elsewhere are not known: %s", error)

    def end(self, session: Session) -> None:
        turn = session.turn
        if turn is None or turn.ended:
            return
        turn.ended = True
        duration = (perf_counter() - turn.started) * 1000
        self.core.trail.note(
            "turn_summary",
            session,
            {
                **self.core.trail.who(session),
                "duration": round(duration, 3),
                "calls": turn.total_used,
                "retrieval": turn.retrieval_used,
                "refusals": turn.refusals,
            },
        )
        limit = session.limits.turn_ms
        if limit is not None and duration > limit:
            self.core.log.info("A turn took %.0f ms; the budget of a %s turn is %d ms", duration, session.mode, limit)
