"""Rule `voice-latency`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    definition = source.definition
    if definition is None or "voice" not in definition.allowed_modes:
        return
    if definition.latency_budget_ms > catalogue.voice_turn_ms:
        yield Spot(
            SCHEMA_FILE,
            "/latencyBudgetMs",
            f"It may take {definition.latency_budget_ms} ms, "
            f"longer than a whole voice turn ({catalogue.voice_turn_ms} ms).",
            'Make it faster, take "voice" out of "allowedModes", or waive this with a reason.',
        )


RULE = Rule(
    name="voice-latency", severity="warning", promise="A voice tool is not slower than the voice turn.", check=check
)
