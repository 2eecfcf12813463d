"""Rule `json-schema`: valid draft 2020-12, no remote `$ref`, no unknown formats, no patterns that blow up."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for name, problems in source.schema_problems.items():
        for problem in problems:
            yield Spot(
                SCHEMA_FILE,
                f"/{name}{problem.pointer}",
                f'"{name}" cannot be used: {problem.message}',
                "Correct the schema there.",
            )


RULE = Rule(
    name="json-schema",
    promise="`parameters` and `outputSchema` are valid JSON Schema (draft 2020-12) without remote references, unknown "
    "formats or patterns that can take exponential time.",
    check=check,
    upstream=True,
)
