"""Rule `reserved-name`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot

RESERVED = frozenset({"get_tool_guide", "approve", "confirm", "decline", "handrail"})


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.definition is not None and source.definition.tool_id in RESERVED:
        yield Spot(
            SCHEMA_FILE,
            "/toolId",
            f'"{source.definition.tool_id}" is a name that Handrail keeps for itself.',
            "Choose another name.",
        )


RULE = Rule(name="reserved-name", promise="No tool has a name that Handrail keeps for itself.", check=check)
