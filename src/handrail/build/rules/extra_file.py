"""Rule `extra-file`: what the hash does not cover could change behaviour unseen, so it has no place in the folder."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for name in source.extras:
        yield Spot(
            name,
            "",
            f'"{name}" is not part of a tool and is not covered by its hash.',
            "Move it out of the folder; only the three files and further .py files that can be imported belong there.",
        )


RULE = Rule(
    name="extra-file",
    promise="Nothing lies in a tool folder but the three files and further `.py` files.",
    check=check,
)
