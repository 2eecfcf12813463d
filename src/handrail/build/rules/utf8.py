"""Rule `utf8`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for name, data in source.files.items():
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            yield Spot(
                name,
                "",
                f'"{name}" is not UTF-8 text: byte {error.start} cannot be read.',
                "Save the file in the encoding UTF-8.",
            )


RULE = Rule(name="utf8", promise="Every file of a tool is UTF-8 text.", check=check)
