"""A definition as a function tool of Ollama, whose server drops most keywords when it reads a request.

A property keeps `type`, `description`, `enum`, `items`, `properties`, `required` and `anyOf`, the root not even its
description; what stands inside `items` passes untouched. Everything else is put into the descriptions.
"""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.contract.frozen import thaw
from handrail.providers.adapted import Adapted
from handrail.providers.keyword_notes import with_phrases
from handrail.providers.root_schema import RootSchema
from handrail.providers.schema_flattening import FlatSchema
from handrail.providers.schema_reduction import SchemaReduction
from handrail.schema.subschemas import Json


def adapt(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of `tools`, and what it could not say."""
    root = RootSchema(definition.parameters)
    reduction = _OllamaReduction(root)
    parameters = reduction.parameters()
    words = [text for text in (parameters.pop("description", ""),) if text]
    function = {
        "name": definition.tool_id,
        "description": with_phrases(definition.description, [*words, *root.sentences()]),
        "parameters": parameters,
    }
    return Adapted({"type": "function", "function": function}, reduction.losses())


class _OllamaReduction(SchemaReduction):
    kept = frozenset[str]()

    def array(self, flat: FlatSchema) -> dict[str, Json]:
        single = len(flat.items) == 1 and "prefixItems" not in flat.keywords
        if single and isinstance(flat.items[0].schema, dict) and not _refers(flat.items[0].schema):
            return {"items": thaw(flat.items[0].schema)}
        return super().array(flat)


def _refers(value: Json) -> bool:
    """Whether there is a reference anywhere inside; it could not be followed from there."""
    if isinstance(value, dict):
        return "$ref" in value or "$dynamicRef" in value or any(map(_refers, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_refers, value))
