"""Rule `duplicate-tool`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    tool_id = (source.raw or {}).get("toolId")
    if not isinstance(tool_id, str):
        return
    others = [other.folder for other in catalogue.by_id.get(tool_id, ()) if other is not source]
    if others:
        yield Spot(
            SCHEMA_FILE,
            "/toolId",
            f'"{tool_id}" is also the toolId of "{others[0]}".',
            "Give each tool a name of its own.",
        )


RULE = Rule(name="duplicate-tool", promise="No two tools have the same `toolId`.", check=check)
