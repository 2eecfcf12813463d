"""Rule `dedupe-fields`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    definition, known = source.definition, source.arguments
    if definition is None or known is None:
        return
    for index, name in enumerate(definition.dedupe_fields):
        if name not in known:
            fix = f"Known are {', '.join(known) or 'none'}."
            yield Spot(SCHEMA_FILE, f"/dedupeFields/{index}", f'"{name}" is not an argument.', fix)


RULE = Rule(name="dedupe-fields", promise="Every name in `dedupeFields` is an argument.", check=check, upstream=True)
