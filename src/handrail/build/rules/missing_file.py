"""Rule `missing-file`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import REQUIRED_FILES, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.kind != "directory" or "." in (*source.links, *source.unreadable):
        return
    seen = {*source.files, *source.links, *source.oversized, *source.unreadable}
    for name in REQUIRED_FILES:
        if name not in seen:
            yield Spot(
                name,
                "",
                f'The folder "{source.folder}" has no {name}.',
                "Write it, or delete the folder: `handrail new NAME` writes one with all three files.",
            )


RULE = Rule(name="missing-file", promise="A tool folder has `schema.json`, `guide.md` and `handler.py`.", check=check)
