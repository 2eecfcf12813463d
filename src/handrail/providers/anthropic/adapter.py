"""A definition as a tool of Anthropic's Messages. Pure; no SDK.

Without `strict` the parameters pass as they are, as hints, save for what is refused at the root. Strict mode has optional
properties, but one type at a time, no bounds and no recursion.
"""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.providers import parameter_names
from handrail.providers.adapted import Adapted
from handrail.providers.anthropic.strict_limits import exceeded_alone
from handrail.providers.definition_cache import LastDefinitionCache
from handrail.providers.parameter_names import renaming
from handrail.providers.root_schema import RootSchema
from handrail.providers.strict_mode import StrictDialect, StrictSchema, attempt
from handrail.schema.subschemas import Json

_renaming = LastDefinitionCache(lambda definition: renaming(definition.parameters, parameter_names.ANTHROPIC))
_MAX_DESCRIPTION = 10_000
"""Long before any limit that is known; it keeps a huge schema in words away from the tool's own description."""


def adapt(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of `tools`, and what it could not say."""
    renamed = _renaming(definition)
    root = RootSchema(renamed.parameters)
    made = attempt(root, _DIALECT) if definition.strict else StrictSchema(None, ())
    parameters = made.schema if made.schema is not None else root.parameters()
    description, beside = root.described(definition.description, _MAX_DESCRIPTION)
    if beside:
        parameters["description"] = root.with_words(parameters.get("description", ""))
    schema = {"name": definition.tool_id, "description": description, "input_schema": parameters}
    return Adapted(
        {**schema, "strict": True} if made.schema is not None else schema,
        renamed.losses((*root.losses(), *made.losses)),
    )


def as_meant(definition: ToolDefinition, args: Json) -> Json:
    """The arguments under the tool's own names, where some of them are sent under others."""
    return _renaming(definition).undone(args)


_DIALECT = StrictDialect(
    kept=frozenset(),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}),
    exceeded=exceeded_alone,
    max_min_items=1,
    optional=True,
    type_lists=False,
    recursion=False,
)
