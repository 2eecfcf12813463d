"""Step 6: the tool is switched on, does not hang, has a schema if the policy wants one, and its condition is true."""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import ErrorType, SchemaError
from handrail.runtime.attempt import Attempt, Check, Refusal
from handrail.runtime.policy import Policy
from handrail.schema.condition import compile_condition

NAME = "availability"
_MAX_REASON = 200


def switched_off(tool_id: str, reason: str | None) -> str:
    """What those are told who call a tool that an operator has switched off: the operator's reason, on one line."""
    said = " ".join((reason or "").split())[:_MAX_REASON].rstrip(".")
    return f'"{tool_id}" is switched off for now: {said}.' if said else f'"{tool_id}" is switched off for now.'


class AvailabilityGate:
    """Refuses a tool that is switched off, hangs, or whose condition does not hold."""

    name = NAME

    def for_tool(self, definition: ToolDefinition, policy: Policy) -> Check:
        tool_id = definition.tool_id
        text = definition.availability_condition
        condition = compile_condition(text, ("mode", "user", "session")) if text is not None else None
        refuse_always = definition.no_schema_mode == "refuse"

        def check(attempt: Attempt) -> Refusal | None:
            reason = attempt.session.core.switches.get(tool_id)
            if reason is not None:
                return Refusal(NAME, ErrorType.UNAVAILABLE, switched_off(tool_id, reason), rule="switch", value=reason)
            late = attempt.session.core.runner.crowded.get(tool_id)
            if late is not None:
                message = f'{late} calls of "{tool_id}" still run after their deadline; it takes no others until one has ended.'
                return Refusal(
                    NAME, ErrorType.UNAVAILABLE, message, rule="stragglers", value=late, retry_after=5.0, retryable=True
                )
            if refuse_always:
                message = f'"{tool_id}" has no schema, and its calls are refused until it has one.'
                return Refusal(NAME, ErrorType.UNAVAILABLE, message, rule="noSchemaMode", value="refuse")
            if condition is None:
                return None
            try:
                holds = condition.holds(attempt.session.facts())
            except SchemaError as error:
                # A condition that cannot be answered does not let anything pass.
                message = f'"{tool_id}" is not available.'
                return Refusal(
                    NAME, ErrorType.UNAVAILABLE, message, rule="availability.condition", value=error.message, limit=text
                )
            if holds:
                return None
            message = f'"{tool_id}" is not available in this situation.'
            return Refusal(NAME, ErrorType.UNAVAILABLE, message, rule="availability.condition", value=False, limit=text)

        return check
