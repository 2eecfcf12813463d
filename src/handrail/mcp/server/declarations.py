"""Tools as MCP clients list them: the definition's schema, the envelope as output schema, annotations from policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.contract.definition import ToolDefinition
from handrail.contract.frozen import thaw

_ENVELOPE: Mapping[str, Any] = {
    "ok": {"type": "boolean"},
    "error": {
        "type": "object",
        "required": ["type", "message"],
        "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
    },
    "intents": {"type": "array"},
    "meta": {"type": "object"},
}


def declaration(definition: ToolDefinition) -> dict[str, Any]:
    """The tool as an entry of the result of `tools/list`."""
    return {
        "name": definition.tool_id,
        "description": definition.description,
        "inputSchema": thaw(definition.parameters),
        "outputSchema": output_schema(definition),
        "annotations": {
            "readOnlyHint": not definition.writes,
            # What a definition does not say is hinted the careful way: a tool that writes may destroy something.
            "destructiveHint": definition.writes,
            "idempotentHint": definition.idempotent,
            "openWorldHint": definition.side_effects != "none",
        },
    }


def output_schema(definition: ToolDefinition) -> dict[str, Any]:
    """The envelope, with the tool's own schema for its `data`."""
    data: Any = thaw(definition.output_schema) if definition.output_schema is not None else {}
    schema: dict[str, Any] = {"type": "object", "required": ["ok"]}
    if isinstance(data, dict):
        data.pop("$schema", None)
        # References of a schema are written from its root, which is now that of the envelope.
        definitions = data.pop("$defs", None)
        if definitions is not None:
            schema["$defs"] = definitions
        if _refers_elsewhere(data) or _refers_elsewhere(definitions):
            data, _ = {}, schema.pop("$defs", None)
    schema["properties"] = {**thaw(_ENVELOPE), "data": data}
    return schema


def _refers_elsewhere(schema: Any) -> bool:
    """Whether it has a reference that would point at something else below the envelope."""
    if isinstance(schema, dict):
        place = schema.get("$ref", "#/$defs/")
        own = not isinstance(place, str) or not place.startswith("#/$defs/")
        own = own or any(name in schema for name in ("$id", "$dynamicRef", "$anchor"))
        return own or any(map(_refers_elsewhere, schema.values()))
    return isinstance(schema, list) and any(map(_refers_elsewhere, schema))
