"""What stands beside a type in `Annotated`: a description, JSON Schema keywords, Pydantic's `Field`, `annotated_types`.

Pydantic and annotated_types are recognised by their attributes, so that neither is imported here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from handrail.authoring.converters import Converter
from handrail.contract.frozen import thaw

_NUMBERS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_SIZES = {
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def apply_annotations(converter: Converter, extras: Iterable[Any]) -> Converter:
    """The converter with what the annotations add to its schema."""
    schema = dict(converter.schema)
    for extra in extras:
        if isinstance(extra, str):
            schema["description"] = extra
        elif isinstance(extra, Mapping):
            schema.update(thaw(extra))
        else:
            schema.update(_keywords(extra, schema))
    return dataclasses.replace(converter, schema=schema)


def is_pydantic_field(value: object) -> bool:
    return type(value).__name__ == "FieldInfo" and type(value).__module__.startswith("pydantic")


def _keywords(extra: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema keywords that an annotation of another library stands for; unknown annotations stand for none."""
    if is_pydantic_field(extra):
        found: dict[str, Any] = {}
        for part in extra.metadata:
            found |= _keywords(part, schema)
        if extra.description:
            found["description"] = extra.description
        if extra.examples:
            found["examples"] = thaw(extra.examples)
        if isinstance(extra.json_schema_extra, Mapping):
            found |= thaw(extra.json_schema_extra)
        return found
    if isinstance(documentation := getattr(extra, "documentation", None), str):
        return {"description": documentation}  # PEP 727's `Doc`
    found = {keyword: value for name, keyword in _NUMBERS.items() if (value := getattr(extra, name, None)) is not None}
    smallest, largest = _SIZES.get(str(schema.get("type")), ("minLength", "maxLength"))
    for name, keyword in (("min_length", smallest), ("max_length", largest)):
        if (value := getattr(extra, name, None)) is not None:
            found[keyword] = value
    return found
