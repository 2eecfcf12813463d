"""Rule `condition`: CEL that does not compile, or asks for something that there is not, is named now, not at the first call."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.contract.errors import ConfigError, SchemaError
from handrail.schema.condition import USER_FIELDS, compile_condition, fields_used


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
            # What a host says of a session is the host's to name; the fields of the others are known.
            known = {"user": list(USER_FIELDS)}
            if "args" in names and definition.parameters.get("additionalProperties") is False:
                known["args"] = list(source.arguments or ())
            yield from _unknown_fields(place, text, known)


def _unknown_fields(place: str, text: str, known: dict[str, list[str]]) -> Iterator[Spot]:
    for root, fields in known.items():
        for name in fields_used(text, root):
            if name in fields:
                continue
            near = get_close_matches(name, fields, n=1) or get_close_matches(name.lower(), fields, n=1)
            yield Spot(
                SCHEMA_FILE,
                place,
                f'The condition "{text}" asks for "{root}.{name}", which there is not.',
                f'Did you mean "{root}.{near[0]}"?' if near else f"Known of {root} are {', '.join(fields) or 'none'}.",
            )


RULE = Rule(name="condition", promise="Every CEL condition compiles and uses only names that it is given.", check=check)
