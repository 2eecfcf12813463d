"""Rule `unknown-field`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for problem in source.field_problems:
        if problem.rule == RULE.name:
            yield Spot(SCHEMA_FILE, problem.pointer, problem.message, problem.fix)
    if source.kind == "directory" and "noSchemaMode" in (source.raw or {}):
        # A definition may carry it, but only `allow_no_schema=True` on a decorator can ask for it.
        message = 'There is no field "noSchemaMode" in a schema.json.'
        yield Spot(SCHEMA_FILE, "/noSchemaMode", message, 'Take it out, and describe the arguments in "parameters".')


RULE = Rule(name="unknown-field", promise="`schema.json` has no field that Handrail does not know.", check=check)
