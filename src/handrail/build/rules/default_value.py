"""Rule `default-value`: filling defaults in must never make a valid object invalid."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.schema.defaults import find_unsafe_defaults


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.raw is None or source.schema_problems.get("parameters") != []:
        return
    for problem in find_unsafe_defaults(source.raw["parameters"]):
        yield Spot(
            SCHEMA_FILE, f"/parameters{problem.pointer}", problem.message, "Change the default or the keyword named."
        )


RULE = Rule(
    name="default-value",
    promise="Every default is valid, and filling it in never makes valid arguments invalid.",
    check=check,
)
