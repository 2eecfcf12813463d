"""Rule `field-value`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for problem in source.field_problems:
        if problem.rule == RULE.name:
            yield Spot(SCHEMA_FILE, problem.pointer, problem.message, problem.fix)


RULE = Rule(
    name="field-value", promise="Every field of `schema.json` has a value of the right type and range.", check=check
)
