"""Step 10: the calls of a tool in any window of time are limited, per session or per user."""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import ErrorType
from handrail.runtime.attempt import Attempt, Check, Refusal
from handrail.runtime.policy import Policy

NAME = "rate"


class RateGate:
    """Refuses calls beyond a tool's own limit in a window of time."""

    name = NAME

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check | None:
        limit = definition.rate_limit
        if limit is None:
            return None
        tool_id = definition.tool_id

        def check(attempt: Attempt) -> Refusal | None:
            wait, attempt.rate_slot = attempt.session.rates.charge(attempt.session, tool_id, limit)
            if wait is None:
                return None
            return Refusal(
                NAME,
                ErrorType.RATE_LIMIT,
                f'"{tool_id}" was called {limit.calls} times in {limit.window_ms / 1000:g} seconds, which is its limit.',
                rule="rateLimit",
                value=limit.calls,
                limit={"calls": limit.calls, "windowMs": limit.window_ms, "scope": limit.scope},
                retry_after=wait,
                retryable=True,
            )

        return check
