"""A definition as a function tool of Chat Completions: the function stands in an object of its own."""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.providers.adapted import Adapted
from handrail.providers.openai.function_schema import as_meant, function

__all__ = ["adapt", "as_meant"]


def adapt(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of `tools`, and what it could not say."""
    made = function(definition)
    inner = {"name": definition.tool_id, "description": made.description, "parameters": made.parameters}
    return Adapted(
        {"type": "function", "function": {**inner, "strict": True} if made.strict else inner},
        made.losses,
    )
