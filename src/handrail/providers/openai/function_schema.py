"""A definition as a function of OpenAI's formats, which differ only in how it is wrapped. Pure; no SDK.

Without `strict` the parameters pass as they are, as hints, save for what OpenAI refuses beside the root's
`type: object`: that is put into the tool's description, and always reported, since words bind nobody. With `strict` they
are rewritten by `strict_mode.py`, or sent as without it where that is impossible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import JsonError
from handrail.contract.frozen import thaw
from handrail.providers import strict_mode
from handrail.providers.adapted import Loss
from handrail.providers.definition_cache import LastDefinitionCache
from handrail.providers.openai.strict_limits import exceeded
from handrail.providers.optional_nulls import strip_nulls
from handrail.providers.root_schema import RootSchema
from handrail.providers.strict_mode import StrictDialect, StrictSchema
from handrail.schema.strict_json import parse_arguments
from handrail.schema.subschemas import Json

FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
MAX_DESCRIPTION = 1024

STRICT = StrictDialect(
    kept=frozenset(
        {
            "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems",
            "maxItems",
        }
    ),
    formats=FORMATS,
    exceeded=exceeded,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpenAIFunction:
    """A tool as OpenAI takes it, before it is wrapped."""

    description: str
    parameters: dict[str, Json]
    strict: bool
    losses: tuple[Loss, ...]


def function(definition: ToolDefinition, *, may_be_strict: bool = True) -> OpenAIFunction:
    """The tool's parts. `may_be_strict` is False for a format that has no strict mode, whatever the definition asks."""
    root = _root(definition)
    made = _strict(definition) if definition.strict and may_be_strict else StrictSchema(None, ())
    parameters = root.parameters() if made.schema is None else thaw(made.schema)
    description, beside = root.described(definition.description, MAX_DESCRIPTION)
    if beside:  # the description of a schema may be longer than that of a function
        parameters["description"] = root.with_words(parameters.get("description", ""))
    return OpenAIFunction(description, parameters, made.schema is not None, (*root.losses(), *made.losses))


def to_strict(parameters: Mapping[str, Json]) -> StrictSchema:
    """The parameters in OpenAI's strict dialect."""
    return strict_mode.to_strict(parameters, STRICT)


def as_meant(definition: ToolDefinition, args: Json) -> Json:
    """The arguments without the nulls that a model must send for what it leaves out, if the tool is sent strict."""
    if not definition.strict or _strict(definition).schema is None:
        return args
    try:
        parsed = parse_arguments(args) if isinstance(args, str) else args
    except JsonError:
        return args  # hydration says what is wrong with it
    stripped = strip_nulls(definition.parameters, parsed)
    return args if stripped == parsed else stripped


_root = LastDefinitionCache(lambda definition: RootSchema(definition.parameters))
_strict = LastDefinitionCache(lambda definition: strict_mode.attempt(_root(definition), STRICT))
