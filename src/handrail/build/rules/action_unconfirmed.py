"""Rule `action-unconfirmed`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    definition = source.definition
    if definition is None or definition.category != "action" or not definition.writes or definition.unvalidated:
        return
    if not definition.requires_confirmation and definition.confirmation_when is None:
        yield Spot(
            SCHEMA_FILE,
            "/requiresConfirmation",
            "This action writes without asking a person.",
            'Say "requiresConfirmation": true or give "confirmation.when"; if it must act at once, waive this with a '
            "reason.",
        )


RULE = Rule(
    name="action-unconfirmed", severity="warning", promise="An action that writes asks a person first.", check=check
)
