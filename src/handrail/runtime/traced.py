"""The parts of a runtime that is traced: each is the plain part with a span around it. A runtime without tracing has the plain
ones, so that tracing costs nothing there.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.ports import CallFacts, TracingPort
from handrail.runtime.call_attempt import Attempt, Refusal
from handrail.runtime.context import Context
from handrail.runtime.envelopes import Answers
from handrail.runtime.execution import Execution, Started
from handrail.runtime.pipeline import Pipeline
from handrail.runtime.turns import Turns

if TYPE_CHECKING:
    from handrail.runtime.plan import ToolPlan
    from handrail.runtime.session import Session
    from handrail.runtime.turns import TurnRecord


class TracedTurns(Turns):
    """Each turn is a span from its beginning to its end."""

    __slots__ = ("_tracing",)

    def __init__(self, tracing: TracingPort, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self._tracing = tracing

    async def begin(self, session: Session, input_id: str | None, connection: int | None) -> int:
        before = session.turn
        was_open = before is not None and not before.ended
        number = await super().begin(session, input_id, connection)
        turn = session.turn
        if turn is not None and (turn is not before or not was_open or turn.span is None):
            turn.span = self._tracing.begin_turn(session.id, turn.number, session.mode)
        return number

    def end(self, session: Session) -> None:
        turn = session.turn
        ends = turn is not None and not turn.ended
        super().end(session)
        if ends and turn is not None and turn.span is not None:
            self._tracing.end_turn(turn.span, turn.total_used, turn.tool_ms, turn.refused)


class TracedPipeline(Pipeline):
    """Each call is a span under its turn."""

    __slots__ = ("_tracing",)

    def __init__(self, tracing: TracingPort, *parts: Any) -> None:
        super().__init__(*parts)
        self._tracing = tracing

    async def call(self, session: Session, call: Call, turn: TurnRecord | None = None) -> ToolResponse:
        turn = turn or session.turn or await session.first_turn()
        plan = session.plans[call.name] if isinstance(call.name, str) else None
        with self._tracing.execute_tool(turn.span, _facts(session, turn, call, plan)) as span:
            answer = await super().call(session, call, turn)
            span.settle(answer)
        return answer


class TracedExecution(Execution):
    """A call that a person has approved runs on nobody's call: it is a span of its own under its turn."""

    __slots__ = ("_tracing",)

    def __init__(self, tracing: TracingPort, *parts: Any) -> None:
        super().__init__(*parts)
        self._tracing = tracing

    async def run(self, attempt: Attempt, context: Context, first: Started | None = None) -> tuple[ToolResponse, bytes]:
        if not attempt.held:
            return await super().run(attempt, context, first)
        facts = _facts(attempt.session, attempt.turn, attempt.call, attempt.plan)
        with self._tracing.execute_tool(attempt.turn.span, facts) as span:
            response, raw = await super().run(attempt, context, first)
            span.settle(response)
        return response, raw


class TracedAnswers(Answers):
    """The span of a refused call names the gate."""

    __slots__ = ("_tracing",)

    def __init__(self, tracing: TracingPort, *parts: Any) -> None:
        super().__init__(*parts)
        self._tracing = tracing

    def refuse(self, attempt: Attempt, refusal: Refusal, *, free: bool = False) -> ToolResponse:
        self._tracing.refused_by(str(refusal.gate))
        return super().refuse(attempt, refusal, free=free)

    def refuse_unplanned(
        self,
        session: Session,
        call: Call,
        refusal: Refusal,
        started: float,
        *,
        free: bool = False,
        turn: TurnRecord | None = None,
    ) -> ToolResponse:
        self._tracing.refused_by(str(refusal.gate))
        return super().refuse_unplanned(session, call, refusal, started, free=free, turn=turn)


def _facts(session: Session, turn: TurnRecord, call: Call, plan: ToolPlan | None) -> CallFacts:
    return CallFacts(
        tool=call.name if plan is not None else "",
        is_known=plan is not None,
        version=plan.version if plan is not None else None,
        description=plan.definition.description if plan is not None else None,
        call_id=call.call_id,
        session_id=session.id,
        turn=turn.number,
        connection=int(call.connection or session.connection),
        mode=session.mode,
        provider=call.provider,
        clock=perf_counter,
    )
