"""Rule `preview`: what a person is asked to approve is made of arguments that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot

FILTERS = ("count", "date", "short")
_PLACE = re.compile(r"\{([^{}]*)\}")


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    definition, known = source.definition, source.arguments
    if definition is None or definition.preview is None or known is None:
        return
    for place in _PLACE.findall(definition.preview):
        name, _, used = (part.strip() for part in place.partition("|"))
        if name not in known:
            yield Spot(
                SCHEMA_FILE, "/preview", f'"{{{place}}}" names no argument.', f"Known are {', '.join(known) or 'none'}."
            )
        elif used and used not in FILTERS:
            yield Spot(SCHEMA_FILE, "/preview", f'"{used}" is not a filter.', f"Known are {', '.join(FILTERS)}.")
    if "{" in (rest := _PLACE.sub("", definition.preview)) or "}" in rest:
        yield Spot(
            SCHEMA_FILE, "/preview", "The preview has a brace without its partner.", "Write places as {argument}."
        )


RULE = Rule(
    name="preview",
    promise="Every `{place}` of the preview is an argument, and every filter is known.",
    check=check,
    upstream=True,
)
