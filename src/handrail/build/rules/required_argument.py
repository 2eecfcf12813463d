"""Rule `required-argument`: what is required can be given; otherwise no call would ever be valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import walk


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.raw is None or source.schema_problems.get("parameters") != []:
        return
    for path, schema in walk(source.raw["parameters"]):
        if not isinstance(schema, Mapping) or schema.get("additionalProperties") is not False:
            continue
        known = schema.get("properties") or {}
        # A pattern may allow the name, so only objects without patterns are sure to refuse it.
        for index, name in enumerate(schema.get("required") or () if not schema.get("patternProperties") else ()):
            if name not in known:
                near = get_close_matches(name, known, n=1)
                yield Spot(
                    SCHEMA_FILE,
                    f"/parameters{pointer((*path, 'required', index))}",
                    f'"{name}" is required, but is not among the properties and would be refused.',
                    f'Did you mean "{near[0]}"?' if near else "Describe it under properties, or do not require it.",
                )


RULE = Rule(name="required-argument", promise="Every required argument is one that can be given.", check=check)
