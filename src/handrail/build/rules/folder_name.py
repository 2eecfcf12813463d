"""Rule `folder-name`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.kind != "directory" or source.raw is None:
        return
    tool_id = source.raw.get("toolId")
    if isinstance(tool_id, str) and tool_id != source.expected_id:
        yield Spot(
            SCHEMA_FILE,
            "/toolId",
            f'"toolId" is "{tool_id}", but the folder "{source.folder}" asks for "{source.expected_id}".',
            f'Write "toolId": "{source.expected_id}", or rename the folder.',
        )


RULE = Rule(name="folder-name", promise="`toolId` is the folder's name with `-` written as `_`.", check=check)
