"""Rule `file-size`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import MAX_FILE_BYTES, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for name in source.oversized:
        yield Spot(
            name, "", f'"{name}" is larger than {MAX_FILE_BYTES // 1024} KiB.', "Keep data out of the tool folder."
        )


RULE = Rule(name="file-size", promise="No file of a tool is larger than 1 MiB.", check=check)
