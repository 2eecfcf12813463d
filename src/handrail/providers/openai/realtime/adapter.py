"""A definition as a function tool of a Realtime session: flat, and without a strict mode."""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.providers.adapted import Adapted
from handrail.providers.openai.function_schema import function


def adapt(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of `session.tools`, and what it could not say."""
    made = function(definition, may_be_strict=False)
    schema = {
        "type": "function",
        "name": definition.tool_id,
        "description": made.description,
        "parameters": made.parameters,
    }
    return Adapted(schema, made.losses)
