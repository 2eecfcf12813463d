"""A definition as a function declaration of Gemini, for one request and for a live session alike. Pure; no SDK.

There are two ways to give the parameters: `parametersJsonSchema`, a JSON Schema of which some keywords are ignored, and
`parameters`, a format of its own with other gaps (`schema_format.py`). A tool is sent the way that says more; where both
say the same, as JSON Schema.
"""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.contract.frozen import thaw
from handrail.providers import parameter_names
from handrail.providers.adapted import Adapted, Loss
from handrail.providers.definition_cache import LastDefinitionCache
from handrail.providers.gemini.schema_format import GeminiReduction, NativeReduction
from handrail.providers.parameter_names import renaming
from handrail.providers.root_schema import RootSchema
from handrail.providers.schema_flattening import FlatSchema, SchemaPart
from handrail.schema.subschemas import Json, Path


def declaration(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of `functionDeclarations`, and what it could not say."""
    made = _declaration(definition)
    return Adapted(thaw(made.schema), made.losses)


def as_meant(definition: ToolDefinition, args: Json) -> Json:
    """The arguments under the tool's own names, where some of them are sent under others."""
    return _renaming(definition).undone(args)


def _declare(definition: ToolDefinition) -> Adapted:
    renamed = _renaming(definition)
    root = RootSchema(renamed.parameters)
    declared = {"name": definition.tool_id, "description": root.with_words(definition.description)}
    if definition.parameters.keys() <= {"type", "properties", "additionalProperties"} and _takes_nothing(definition):
        return Adapted(declared)
    plain = _JsonSchemaReduction(root)
    schema, losses = plain.parameters(), plain.losses()
    if losses:
        own = NativeReduction(root)
        own_schema, own_losses = own.parameters(), own.losses()
        if _weight(own_losses) < _weight(losses):
            return Adapted({**declared, "parameters": own_schema}, renamed.losses(own_losses))
    return Adapted({**declared, "parametersJsonSchema": schema}, renamed.losses(losses))


_declaration = LastDefinitionCache(_declare)
_renaming = LastDefinitionCache(lambda definition: renaming(definition.parameters, parameter_names.GEMINI))


def _takes_nothing(definition: ToolDefinition) -> bool:
    given = definition.parameters
    return not given.get("properties") and given.get("additionalProperties") is False


def _weight(losses: tuple[Loss, ...]) -> tuple[int, int]:
    """How much is lost. That an object takes no other properties hardly counts: only listed ones are offered."""
    counted = [loss for loss in losses if not (loss.keyword == "additionalProperties" and loss.minor)]
    return sum(not loss.minor for loss in counted), len(counted)


class _JsonSchemaReduction(GeminiReduction):
    """`parametersJsonSchema`: as it is, but for keywords that would be ignored."""

    kept = frozenset(
        {
            "additionalProperties", "format", "maximum", "maxItems", "minimum", "minItems", "prefixItems", "title",
            "unevaluatedProperties",
        }
    )  # fmt: skip
    keeps_references = True

    def closed(self, flat: FlatSchema, path: Path) -> dict[str, Json]:
        if "patternProperties" in flat.keywords:  # it is ignored, so that closing would shut out what it allows
            return super().closed(flat, path)
        return {"additionalProperties": False}

    def open(self, schema: Json, path: Path) -> dict[str, Json]:
        return {"additionalProperties": self.schema((SchemaPart(schema, path),))}

    def prefixed(self, prefix: list[SchemaPart], flat: FlatSchema, ends: bool) -> dict[str, Json]:
        written: dict[str, Json] = {"prefixItems": [self.schema((part,)) for part in prefix]}
        if ends:
            return {**written, "maxItems": min(flat.keywords.get("maxItems", (len(prefix), ()))[0], len(prefix))}
        return {**written, "items": self.schema(flat.items)} if flat.items else written
