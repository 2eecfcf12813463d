"""Rule `unreadable-file`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for name in source.unreadable:
        subject = f'The folder "{source.folder}"' if name == "." else f'"{name}"'
        yield Spot(name, "", f"{subject} cannot be read.", "Give whoever builds the right to read it.")


RULE = Rule(name="unreadable-file", promise="Every file of a tool can be read.", check=check)
