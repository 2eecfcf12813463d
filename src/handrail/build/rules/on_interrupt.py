"""Rule `on-interrupt`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    raw = source.raw or {}
    if "onInterrupt" in raw and raw.get("sideEffects") == "writes":
        yield Spot(
            SCHEMA_FILE,
            "/onInterrupt",
            "A writing call that has started is always finished.",
            'Take "onInterrupt" out.',
        )


RULE = Rule(name="on-interrupt", promise="`onInterrupt` stands only on tools that do not write.", check=check)
