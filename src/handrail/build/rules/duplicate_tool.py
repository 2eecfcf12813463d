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
        return
    for other in others:
        if source.kind == other.kind == "directory":
            version = (source.raw or {}).get("version")
            if version == (other.raw or {}).get("version"):
                yield Spot(
                    SCHEMA_FILE,
                    "/toolId",
                    f'"{tool_id}" is also the toolId of "{other.folder}", in the same version.',
                    "Give each tool a name of its own, or each version of one tool its own number.",
                )
                return
        else:
            yield Spot(
                SCHEMA_FILE,
                "/toolId",
                f'"{tool_id}" is also the toolId of "{other.folder}".',
                "Give each tool a name of its own; only folders hold several versions of one.",
            )
            return


RULE = Rule(
    name="duplicate-tool",
    promise="No two tools have the same `toolId`, except folders with versions of one tool.",
    check=check,
    upstream=True,
)
