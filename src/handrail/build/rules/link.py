"""Rule `link`: what is hashed must lie in the folder, not somewhere that can change on its own."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for name in source.links:
        subject = f'The folder "{source.folder}"' if name == "." else f'"{name}"'
        yield Spot(
            name, "", f"{subject} is a link to somewhere else; links are not followed.", "Put the real files there."
        )


RULE = Rule(name="link", promise="A tool folder and its files are real, not links to elsewhere.", check=check)
