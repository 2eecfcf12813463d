"""Rule `default-value`: filling defaults in must never make a valid object invalid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.schema.defaults import find_unsafe_defaults
from handrail.schema.validator import find_schema_problems


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    parameters = (source.raw or {}).get("parameters")
    if not isinstance(parameters, Mapping) or find_schema_problems(parameters):
        return
    for problem in find_unsafe_defaults(parameters):
        yield Spot(
            SCHEMA_FILE, f"/parameters{problem.pointer}", problem.message, "Change the default or the keyword named."
        )


RULE = Rule(
    name="default-value",
    promise="Every default is valid, and filling it in never makes valid arguments invalid.",
    check=check,
)
