"""Rule `utility-writes`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    raw = source.raw or {}
    if raw.get("category") == "utility" and raw.get("sideEffects") == "writes":
        yield Spot(
            SCHEMA_FILE,
            "/sideEffects",
            "A utility that writes is an action in disguise.",
            'Say "category": "action", or waive this with a reason.',
        )


RULE = Rule(name="utility-writes", severity="warning", promise="A utility does not write.", check=check)
