"""A definition as an MCP tool. MCP takes all of JSON Schema, so nothing is lost.

The output schema stays away: what a call gives back is the envelope, not the bare `data` that it describes.
"""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.contract.frozen import thaw
from handrail.providers.adapted import Adapted


def adapt(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of the result of `tools/list`."""
    schema = {
        "name": definition.tool_id,
        "description": definition.description,
        "inputSchema": thaw(definition.parameters),
        "annotations": {
            "readOnlyHint": not definition.writes,
            # What a definition does not say is hinted the careful way: a tool that writes may destroy something.
            "destructiveHint": definition.writes,
            "idempotentHint": definition.idempotent,
            "openWorldHint": definition.side_effects != "none",
        },
    }
    return Adapted(schema)
