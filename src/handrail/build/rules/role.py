"""Rule `role`."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.definition is None or not catalogue.roles:
        return
    for place, role in enumerate(source.definition.roles):
        if role not in catalogue.roles:
            near = get_close_matches(role, catalogue.roles, n=1)
            yield Spot(
                SCHEMA_FILE,
                f"/permissions/roles/{place}",
                f'There is no role "{role}".',
                f'Did you mean "{near[0]}"?' if near else "Add it to `roles` in [access], or name one that is there.",
            )


RULE = Rule(name="role", promise="Every role is one that `[access]` lists, where it lists any.", check=check)
