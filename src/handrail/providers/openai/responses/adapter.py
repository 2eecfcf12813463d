"""A definition as a function tool of Responses: flat, and with `strict` always said.

Where `strict` is left out the service tries strict mode by itself, which would make optional arguments mandatory.
"""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.providers.adapted import Adapted
from handrail.providers.openai.function_schema import as_meant, function

__all__ = ["adapt", "as_meant"]


def adapt(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of `tools`, and what it could not say."""
    made = function(definition)
    schema = {
        "type": "function",
        "name": definition.tool_id,
        "description": made.description,
        "parameters": made.parameters,
        "strict": made.strict,
    }
    return Adapted(schema, made.losses)
