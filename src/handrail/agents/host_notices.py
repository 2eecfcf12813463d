"""What the host says in its own words: to the user where no model is asked, and to the model beside the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.contract.envelope import ToolResponse
from handrail.contract.events import LateEnvelope


def blocked_notice(seconds: float) -> str:
    return f"This conversation is paused. You can write again in {_span(seconds)}."


def ended_notice() -> str:
    return "This conversation has ended. Please start a new one."


def moved_notice() -> str:
    return "This conversation continues in another connection. Please reload."


def failure_notice(partly: bool, *, misconfigured: bool = False) -> str:
    if misconfigured:
        return (
            "Sorry, I cannot answer: the connection to the model is not set up correctly. Asking again does not help; "
            "please tell whoever runs this service."
        )
    if partly:
        return "Sorry, I was cut off there: the model stopped in the middle. Please ask again."
    return "Sorry, I cannot answer at the moment: the model did not respond. Please try again."


def refusal_notice() -> str:
    return "Sorry, I cannot help with that."


def unfinished_notice(rounds: int) -> str:
    return f"I could not finish this within {rounds} steps. Please ask for a smaller part of it."


def cut_notice() -> str:
    return "My answer was too long and broke off here."


def late_notice(told: Mapping[str, Any]) -> str:
    """The wire form of a late envelope, in words for the model."""
    late = LateEnvelope(
        call_id=told.get("callId"),
        tool_id=told["toolId"],
        envelope=told["envelope"],
        confirmation_id=told.get("confirmationId"),
    )
    return late.note


def too_many_calls(max_calls: int) -> dict[str, Any]:
    """The envelope of calls that one message made too many."""
    message = f"One message makes at most {max_calls} calls; this one did not run."
    suggestion = "Continue with the results that you have."
    return ToolResponse.failure("BUDGET_EXCEEDED", message, suggestion=suggestion).to_dict()


def _span(seconds: float) -> str:
    whole = max(1, round(seconds))
    for name, size in (("hour", 3600), ("minute", 60)):
        if whole >= 2 * size or whole == size:
            count = -(-whole // size)
            return f"{count} {name}{'s' if count != 1 else ''}"
    return f"{whole} second{'s' if whole != 1 else ''}"
