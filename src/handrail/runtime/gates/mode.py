"""Step 5: the tool may be called in the session's mode."""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import ErrorType
from handrail.runtime.attempt import Attempt, Check, Refusal
from handrail.runtime.policy import Policy

NAME = "mode"


class ModeGate:
    """Refuses a tool in a mode that it is not for."""

    name = NAME

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check | None:
        allowed = definition.allowed_modes
        if len(allowed) == 2:
            return None

        def check(attempt: Attempt) -> Refusal | None:
            mode = attempt.session.mode
            if mode in allowed:
                return None
            message = f'"{definition.tool_id}" cannot be called in {mode} mode; it is for {" and ".join(allowed)}.'
            return Refusal(
                NAME, ErrorType.MODE_RESTRICTED, message, rule="allowedModes", value=mode, limit=list(allowed)
            )

        return check
