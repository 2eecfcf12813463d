"""A framework's parameter schema, made fit for a definition: closed at its root, without notes that say nothing.

What a schema permits is enforced here; what it does not permit is a `DefinitionError` that says what to give instead.
Nothing that checks an argument is dropped in silence: a format that is not asserted here goes into the description.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.contract.errors import DefinitionError, JsonError, Problem, SchemaError
from handrail.schema.jsonschema_engine import FORMATS
from handrail.schema.strict_json import MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH, plain_copy
from handrail.schema.subschemas import LocalRefs, walk

_NAMES_ELSEWHERE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "patternProperties")
_GIVE = "Give `parameters=` with every argument listed."


def closed_schema(subject: str, given: object) -> dict[str, Any]:
    """The schema as a definition wants it; `DefinitionError` where made-up arguments could not be refused."""
    if not isinstance(given, Mapping):
        raise refused(subject, "It has no parameter schema.", _GIVE)
    try:
        schema = plain_copy(given, max_bytes=MAX_DOCUMENT_BYTES, max_depth=MAX_DOCUMENT_DEPTH)
        schema = _without_root_ref(schema)
        for _, part in list(walk(schema)):
            if isinstance(part, dict):
                _tidy(part)
    except (JsonError, SchemaError) as error:
        raise refused(subject, f"Its parameter schema cannot be used: {error.message}", _GIVE) from None
    schema.pop("description", None)  # the tool's own, said once in the definition
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    _close(subject, schema)
    return schema


def refused(subject: str, message: str, fix: str, pointer: str = "/parameters") -> DefinitionError:
    return DefinitionError(subject, [Problem(rule="adoption", pointer=pointer, message=message, fix=fix)])


def _close(subject: str, schema: dict[str, Any]) -> None:
    others = schema.get("additionalProperties")
    if others is False:
        return
    if others is not None:
        raise refused(subject, "It takes arguments that its schema does not name.", _GIVE)
    elsewhere = [keyword for keyword in _NAMES_ELSEWHERE if keyword in schema]
    if elsewhere:
        message = f'Its schema names arguments in "{elsewhere[0]}", so others cannot be refused.'
        raise refused(subject, message, _GIVE)
    schema["additionalProperties"] = False


def _without_root_ref(schema: dict[str, Any]) -> dict[str, Any]:
    """A model that holds itself is written as a reference to its own definition; a root must stand on its own."""
    target = LocalRefs(schema).target(schema)
    if not isinstance(target, dict):
        return schema
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _tidy(part: dict[str, Any]) -> None:
    for note in ("title", "discriminator"):  # a name made from the argument's own; an OpenAPI word beside `oneOf`
        part.pop(note, None)
    unknown = part.get("format")
    if isinstance(unknown, str) and unknown not in FORMATS:
        del part["format"]
        part["description"] = f"{part.get('description', '')} (format: {unknown})".strip()
