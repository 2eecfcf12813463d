"""Rule `provider-loss`: a conversion that loses meaning is never silent.

What a model gets to know all the same (`Loss.minor`) is listed with the build's result and is no warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.contract.errors import SchemaError
from handrail.schema.validator import compile_schema


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.definition is None:
        return
    try:
        compile_schema(source.definition.parameters)
    except SchemaError:
        return  # the rule `json-schema` has named it
    alike: dict[tuple[str, str, str], list[str]] = {}
    for provider, adapted in catalogue.adapted(source).items():
        for loss in adapted.losses:
            if not loss.minor:
                alike.setdefault((loss.pointer, loss.keyword, loss.done), []).append(f'"{provider}"')
    for (pointer, keyword, done), (provider, *others) in sorted(alike.items()):
        yield Spot(
            SCHEMA_FILE,
            f"/parameters{pointer}",
            f'The format of {provider} cannot express "{keyword}": {done}.'
            + (f" The same goes for {', '.join(others)}." if others else ""),
            "Say it another way, or waive this with a reason.",
        )


RULE = Rule(
    name="provider-loss",
    severity="warning",
    promise="Every keyword of the parameters can be expressed in every provider's format.",
    check=check,
)
