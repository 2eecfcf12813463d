"""Rule `waiver`: a waiver names a warning that exists."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.build.rules import all_rules
from handrail.contract.fields import escape


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    definition = source.definition
    if definition is None:
        return
    severities = {rule.name: rule.severity for rule in all_rules()}
    for name in definition.waivers:
        severity = severities.get(name)
        if severity is None:
            near = get_close_matches(name, severities, n=1)
            yield Spot(
                SCHEMA_FILE,
                f"/waivers/{escape(name)}",
                f'There is no rule "{name}".',
                f'Did you mean "{near[0]}"?' if near else "Take the waiver out.",
            )
        elif severity == "error":
            yield Spot(
                SCHEMA_FILE,
                f"/waivers/{escape(name)}",
                f'"{name}" is an error and cannot be waived.',
                "Mend it instead.",
            )


RULE = Rule(name="waiver", promise="A waiver names a rule that exists and that only warns.", check=check)
