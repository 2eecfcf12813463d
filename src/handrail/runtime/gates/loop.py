"""Step 11: a model that goes in circles is told so. The third identical call in a turn; a search that keeps coming back empty."""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import ErrorType
from handrail.runtime.attempt import Attempt, Check, Refusal
from handrail.runtime.policy import Policy
from handrail.runtime.turn import digest_of

NAME = "loop"


class LoopGate:
    """Refuses a call that a model repeats, and a search that keeps coming back empty."""

    name = NAME

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check:
        tool_id = definition.tool_id
        max_identical, max_empty = policy.identical_calls, policy.empty_results
        retrieval = definition.category == "retrieval"

        def check(attempt: Attempt) -> Refusal | None:
            turn = attempt.turn
            key = (tool_id, attempt.loop_key)
            identical = turn.identical
            identical[key] = seen = identical.get(key, 0) + 1
            if seen > 1:
                turn.uneven = True
            if turn.earlier:
                seen += turn.earlier.get(digest_of(tool_id, attempt.loop_key), 0)
            if seen >= max_identical:
                return Refusal(
                    NAME,
                    ErrorType.LOOP_DETECTED,
                    f'"{tool_id}" was called {seen} times with the same arguments in this turn.',
                    rule="identical",
                    value=seen,
                    limit=max_identical,
                    suggestion="Use the result that you have, change the arguments, or answer the user.",
                )
            if retrieval and turn.empties.get(tool_id, 0) >= max_empty:
                return Refusal(
                    NAME,
                    ErrorType.LOOP_DETECTED,
                    f'"{tool_id}" found nothing {turn.empties[tool_id]} times in this turn.',
                    rule="empty",
                    value=turn.empties[tool_id],
                    limit=max_empty,
                    suggestion="What you look for may not exist; use another tool, or tell the user that it was not found.",
                )
            return None

        return check


def give_back(attempt: Attempt) -> None:
    """The call could not be recorded, or met another that runs: asking again later is no loop."""
    key = (attempt.plan.tool_id, attempt.loop_key)
    attempt.turn.identical[key] = max(0, attempt.turn.identical.get(key, 0) - 1)
    attempt.session.counted(attempt.turn)
    attempt.turn.uneven = True
