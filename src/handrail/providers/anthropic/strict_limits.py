"""How much all strict tools of one request to Anthropic may hold together. More is refused with the whole request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handrail.providers.strict_mode import every_schema

MAX_TOOLS = 20
MAX_OPTIONAL = 24
MAX_UNIONS = 16


def exceeded_together(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The limits that these tools exceed in one request, as ends of a sentence that begins with the provider."""
    schemas = [tool["input_schema"] for tool in tools if tool.get("strict")]
    counted = [optional_and_unions(schema) for schema in schemas]
    optional, unions = (sum(one[place] for one in counted) for place in (0, 1))
    if len(schemas) > MAX_TOOLS:
        yield f"takes at most {MAX_TOOLS} strict tools in one request; these are {len(schemas):,}"
    if optional > MAX_OPTIONAL:
        yield f"takes at most {MAX_OPTIONAL} optional properties in all strict tools; these have {optional:,}"
    if unions > MAX_UNIONS:
        yield f"takes at most {MAX_UNIONS} properties with alternatives in all strict tools; these have {unions:,}"


def exceeded_alone(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The limits that one strict schema exceeds: the keyword, and how. What holds for all tools holds for one as well."""
    optional, unions = optional_and_unions(schema)
    if optional > MAX_OPTIONAL:
        yield "required", f"it has {optional} optional properties, where strict mode allows {MAX_OPTIONAL}"
    if unions > MAX_UNIONS:
        yield "anyOf", f"{unions} properties have alternatives, where strict mode allows {MAX_UNIONS}"
    for one in every_schema(schema):
        listed = (*one.get("enum", ()), *([one["const"]] if "const" in one else ()))
        if any(isinstance(value, (dict, list)) for value in listed):
            yield "enum", "strict mode lists plain values only, no objects and lists"


def optional_and_unions(schema: Mapping[str, Any]) -> tuple[int, int]:
    """How many properties in a strict schema are optional, and how many have alternatives."""
    every = list(every_schema(schema))
    optional = sum(len(one.get("properties", {})) - len(one.get("required", ())) for one in every)
    unions = sum("anyOf" in inside for one in every for inside in one.get("properties", {}).values())
    return optional, unions
