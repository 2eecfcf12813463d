"""Rule `retrieval-pure`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    raw = source.raw or {}
    if raw.get("category") != "retrieval":
        return
    if raw.get("sideEffects") == "writes":
        yield Spot(
            SCHEMA_FILE,
            "/sideEffects",
            "A retrieval tool cannot write.",
            'Say "read_only" or "none", or make it an action.',
        )
    if raw.get("idempotent") is False:
        yield Spot(
            SCHEMA_FILE,
            "/idempotent",
            "A retrieval tool must be idempotent.",
            'Say "idempotent": true, or make it an action.',
        )


RULE = Rule(
    name="retrieval-pure", promise="A retrieval tool is idempotent and never writes.", check=check, upstream=True
)
