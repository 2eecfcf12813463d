"""What the runtime notes for the statistics by day: each answer that is no execution, the end of turns and of sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from handrail.contract.ports import CallRecord, UsageEvent, UsageKind, UsagePort
from handrail.contract.store import Hold

if TYPE_CHECKING:
    from handrail.runtime.call_attempt import Attempt, Refusal
    from handrail.runtime.session import Session
    from handrail.runtime.turns import TurnRecord


class CallStatistics:
    """Turns what has happened in one runtime into events of its `UsagePort`."""

    __slots__ = ("_note", "_now", "usage")

    def __init__(self, usage: UsagePort, now: Callable[[], float]) -> None:
        self.usage = usage
        self._note = usage.note
        self._now = now

    def refused(self, attempt: Attempt, refusal: Refusal) -> None:
        session, plan = attempt.session, attempt.plan
        call = session.id, session.tenant, attempt.turn.number, plan.tool_id, plan.version
        self._note(UsageEvent(UsageKind.REFUSED, self._now(), *call, refusal.gate, refusal.type, attempt.held))

    def refused_unplanned(self, session: Session, refusal: Refusal) -> None:
        """The name that the model gave is not kept: it may be anything."""
        turn = session.turn.number if session.turn is not None else 0
        call = session.id, session.tenant, turn, "", ""
        self._note(UsageEvent(UsageKind.REFUSED, self._now(), *call, refusal.gate, refusal.type))

    def held(self, attempt: Attempt) -> None:
        self._note(self._of(UsageKind.HELD, attempt))

    def ran_held(self, record: CallRecord) -> None:
        self.usage.executed(record, was_held=True)

    def replayed(self, attempt: Attempt) -> None:
        self._note(self._of(UsageKind.REPLAYED, attempt))

    def declined(self, session: Session, hold: Hold) -> None:
        """A person has said no, in this process. Others that learn of it do not count it again."""
        tool = session.snapshot.get(hold.tool)
        version = tool.definition.version if tool is not None else ""
        facts = hold.session_id, hold.tenant, hold.turn, hold.tool, version
        self._note(UsageEvent(UsageKind.DECLINED, self._now(), *facts))

    def turn_ended(self, session: Session, turn: TurnRecord) -> None:
        event = UsageEvent(UsageKind.TURN_ENDED, self._now(), session.id, session.tenant, turn.number)
        self._note(event._replace(interrupted=turn.interrupted))

    def session_closed(self, session: Session) -> None:
        self._note(UsageEvent(UsageKind.SESSION_CLOSED, self._now(), session.id, session.tenant))

    def _of(self, kind: UsageKind, attempt: Attempt, **more: Any) -> UsageEvent:
        session, definition = attempt.session, attempt.plan.definition
        facts = session.id, session.tenant, attempt.turn.number, attempt.plan.tool_id, definition.version
        return UsageEvent(kind, self._now(), *facts, **more)
