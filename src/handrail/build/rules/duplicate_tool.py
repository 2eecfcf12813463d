"""Rule `duplicate-tool`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    tool_id = (source.raw or {}).get("toolId")
    if not isinstance(tool_id, str):
        return
    others = [other for other in catalogue.by_id.get(tool_id, ()) if other is not source]
    if source.origin != "project":
        return  # said of the project's tool, which is the one that its author can change
    if any(other.origin != "project" for other in others):
        yield Spot(
            SCHEMA_FILE,
            "/toolId",
            f'"{tool_id}" is also a reference tool that `reference` in [tools] takes in.',
            "Give this tool another name, or list the reference tools that you want without that one.",
        )
    elif others:
        yield Spot(
            SCHEMA_FILE,
            "/toolId",
            f'"{tool_id}" is also the toolId of "{others[0].folder}".',
            "Give each tool a name of its own.",
        )


RULE = Rule(name="duplicate-tool", promise="No two tools have the same `toolId`.", check=check)
