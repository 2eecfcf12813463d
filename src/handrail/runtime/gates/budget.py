"""Step 12: what a turn may cost. A unit is taken before the handler starts, and given back if it does not."""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import ErrorType
from handrail.runtime.attempt import Attempt, Check, Refusal
from handrail.runtime.policy import ModePolicy, Policy
from handrail.runtime.turn import TurnRecord

NAME = "budget"


class BudgetGate:
    """Refuses calls beyond what a turn may cost."""

    name = NAME

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check:
        tool_id = definition.tool_id
        retrieval = definition.category == "retrieval"

        def check(attempt: Attempt) -> Refusal | None:
            turn = attempt.turn
            limits = attempt.session.limits
            if retrieval and limits.retrieval_calls is not None and turn.retrieval_used >= limits.retrieval_calls:
                return _spent(tool_id, "retrieval calls", turn.retrieval_used, limits.retrieval_calls)
            if limits.total_calls is not None and turn.total_used >= limits.total_calls:
                return _spent(tool_id, "calls", turn.total_used, limits.total_calls)
            turn.total_used += 1
            if retrieval:
                turn.retrieval_used += 1
            attempt.charged = True
            return None

        return check


def give_back(attempt: Attempt) -> None:
    """The handler did not start: the unit is the turn's again."""
    if not attempt.charged:
        return
    attempt.charged = False
    attempt.turn.total_used -= 1
    if attempt.plan.retrieval:
        attempt.turn.retrieval_used -= 1
    attempt.session.counted(attempt.turn)


def left(limits: ModePolicy, turn: TurnRecord) -> dict[str, int]:
    """What the model is told: the calls that are left in this turn, where there is a limit."""
    told: dict[str, int] = {}
    if limits.retrieval_calls is not None:
        told["retrieval"] = max(0, limits.retrieval_calls - turn.retrieval_used)
    if limits.total_calls is not None:
        told["total"] = max(0, limits.total_calls - turn.total_used)
    return told


def _spent(tool_id: str, what: str, used: int, limit: int) -> Refusal:
    return Refusal(
        NAME,
        ErrorType.BUDGET_EXCEEDED,
        f'The {limit} {what} of this turn are used up, so "{tool_id}" did not run.',
        rule=what,
        value=used,
        limit=limit,
        suggestion="Answer with what you have; the budget is full again in the next turn.",
    )
