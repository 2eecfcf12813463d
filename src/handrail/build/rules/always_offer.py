"""Rule `always-offer`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot

MAX_TOOLS = 12
"""A model chooses well among ten tools; what is always there takes the place of what a conversation needs."""


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.definition is None or not source.definition.always_offer:
        return
    found = sorted(
        one.definition.tool_id for one in catalogue.sources if one.definition and one.definition.always_offer
    )
    if source.definition.tool_id in found[MAX_TOOLS:]:
        yield Spot(
            SCHEMA_FILE,
            "/alwaysOffer",
            f"{len(found)} tools are always offered, more than {MAX_TOOLS}: they crowd out those that a conversation needs.",
            'Take "alwaysOffer" out of those that are not needed in every conversation, or waive this with a reason.',
        )


RULE = Rule(
    name="always-offer", severity="warning", promise=f"At most {MAX_TOOLS} tools are always offered.", check=check
)
