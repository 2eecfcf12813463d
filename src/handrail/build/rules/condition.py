"""Rule `condition`: CEL that does not compile, or asks for something that there is not, is named now, not at the first call."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.contract.errors import ConfigError, SchemaError
from handrail.schema.condition import compile_condition, unknown_fields


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    definition = source.definition
    if definition is None:
        return
    conditions = (
        ("/availability/condition", definition.availability_condition, ("mode", "user", "session")),
        ("/confirmation/when", definition.confirmation_when, ("mode", "user", "session", "args")),
    )
    for place, text, names in conditions:
        if text is None:
            continue
        try:
            compile_condition(text, names)
        except SchemaError as error:
            yield Spot(SCHEMA_FILE, place, error.message, f"Write a CEL expression over {', '.join(names)}.")
        except ConfigError as error:  # the engine is an extra
            yield Spot(SCHEMA_FILE, place, str(error), "Or write the tool without this condition.")
        else:
            closed = "args" in names and definition.parameters.get("additionalProperties") is False
            for name, hint in unknown_fields(text, list(source.arguments or ()) if closed else None):
                yield Spot(SCHEMA_FILE, place, f'The condition "{text}" asks for "{name}", which there is not.', hint)


RULE = Rule(name="condition", promise="Every CEL condition compiles and uses only names that it is given.", check=check)
