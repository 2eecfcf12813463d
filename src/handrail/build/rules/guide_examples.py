"""Rule `guide-examples`: what the guide shows is what the schema takes, so documentation cannot drift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from handrail.authoring.source import GUIDE_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.build.guide import Example, examples_in
from handrail.contract.definition import ToolDefinition
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import JsonError, SchemaError
from handrail.schema.strict_json import parse
from handrail.schema.validator import compile_schema


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.guide is None or source.definition is None:
        return
    for example in examples_in(source.guide):
        for trouble in _troubles(example, source.definition):
            yield Spot(
                GUIDE_FILE,
                f"line {example.line}",
                f"The example is not valid as {example.kind}: {trouble}",
                "Correct the example, or the schema if the example is right.",
            )


def _troubles(example: Example, definition: ToolDefinition) -> list[str]:
    try:
        value = parse(example.text)
        if example.kind == "arguments":
            return _violations(definition.parameters, value)
        return _response_troubles(value, definition)
    except JsonError as error:
        return [error.message]
    except SchemaError:
        return []  # the rule `json-schema` has named it


def _response_troubles(value: Any, definition: ToolDefinition) -> list[str]:
    if isinstance(value, Mapping) and isinstance(value.get("ok"), bool):
        try:
            response = ToolResponse.from_dict(value)
        except ValueError as error:
            return [str(error)]
        if not response.ok or definition.output_schema is None:
            return []
        return _violations(definition.output_schema, response.data)
    if definition.output_schema is None:
        return ['There is no outputSchema to check it against; show the whole envelope, with "ok".']
    return _violations(definition.output_schema, value)


def _violations(schema: Mapping[str, Any], value: Any) -> list[str]:
    return [violation.message for violation in compile_schema(schema).violations(value)]


RULE = Rule(
    name="guide-examples",
    promise="Every JSON block under the guide's Examples is valid: as arguments, or as a response.",
    check=check,
)
