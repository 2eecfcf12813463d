"""Rule `clamp`: a clamp names arguments that exist, and limits that fit them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.contract.fields import escape


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    definition, properties = source.definition, source.arguments
    if definition is None or properties is None:
        return
    for mode, limits in definition.clamp.items():
        for name, limit in limits.items():
            trouble = _trouble(name, limit, properties)
            if trouble:
                yield Spot(SCHEMA_FILE, f"/clamp/{mode}/{escape(name)}", trouble, "Correct the clamp, or take it out.")


def _trouble(name: str, limit: Any, properties: Mapping[str, Any]) -> str | None:
    schema = properties.get(name)
    if not isinstance(schema, Mapping):
        return f'"{name}" is clamped but is not an argument.'
    types = schema.get("type")
    types = types if isinstance(types, tuple) else (types,)
    if not isinstance(limit, tuple):
        if "number" not in types and "integer" not in types:
            return f'"{name}" is clamped to a number but is not a number.'
        lowest = schema.get("minimum", schema.get("exclusiveMinimum"))
        if isinstance(lowest, (int, float)) and limit < lowest:
            return f'"{name}" is clamped to {limit}, below its minimum of {lowest}.'
        return None
    listed = schema.get("items", {}) if "array" in types else schema
    allowed = listed.get("enum") if isinstance(listed, Mapping) else None
    if not isinstance(allowed, tuple):
        return f'"{name}" is clamped to a list of values but is no enumeration and no list of one.'
    strange = [value for value in limit if value not in allowed]
    return f'"{name}" is clamped to {strange[0]!r}, which it cannot hold.' if strange else None


RULE = Rule(name="clamp", promise="A clamp names an argument and a limit that fits it.", check=check)
