"""Rule `required-field`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for problem in source.field_problems:
        if problem.rule == RULE.name:
            yield Spot(SCHEMA_FILE, problem.pointer, problem.message, problem.fix)


RULE = Rule(name="required-field", promise="Every required field of `schema.json` is there.", check=check)
