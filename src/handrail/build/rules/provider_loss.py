"""Rule `provider-loss`: a conversion that loses meaning is never silent."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.contract.errors import SchemaError
from handrail.providers import adapt
from handrail.schema.validator import compile_schema


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.definition is None:
        return
    try:
        compile_schema(source.definition.parameters)
    except SchemaError:
        return  # the rule `json-schema` has named it
    for provider in catalogue.providers:
        for loss in adapt(source.definition, provider).losses:
            yield Spot(
                SCHEMA_FILE,
                f"/parameters{loss.pointer}",
                f'The format of "{provider}" cannot express "{loss.keyword}": {loss.done}.',
                "Say it another way, or waive this with a reason.",
            )


RULE = Rule(
    name="provider-loss",
    severity="warning",
    promise="Every keyword of the parameters can be expressed in every provider's format.",
    check=check,
)
