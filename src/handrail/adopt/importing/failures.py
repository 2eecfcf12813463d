"""How a foreign tool says no, as the error that a model gets."""

from __future__ import annotations

from typing import Any

from handrail.contract.errors import ErrorType, ToolError

MAX_TEXT = 2_000


def invalid(error: Any) -> ToolError:
    """Arguments that passed the schema and failed the checks of the tool's own model. Nothing has run."""
    try:
        found = [
            {"pointer": "".join(f"/{step}" for step in one["loc"]), "message": str(one["msg"])}
            for one in error.errors(include_url=False, include_context=False, include_input=False)
        ]
    except TypeError:  # an older Pydantic
        found = [
            {"pointer": "".join(f"/{step}" for step in one["loc"]), "message": one["msg"]} for one in error.errors()
        ]
    first = found[0]["message"] if found else "the tool refused them"
    return ToolError(ErrorType.VALIDATION, f"The arguments are not right: {first}.", details=found)


def failed(message: object, *, writes: bool, type: ErrorType = ErrorType.PERMANENT) -> ToolError:
    """A failure that the tool put into words for the model. Whether a writing one did something first, nobody knows."""
    text = str(message).strip() or "The tool failed."
    return ToolError(type, text[:MAX_TEXT], partial_side_effects=writes)
