"""Dataclasses and TypedDicts as hints, generic ones too: objects whose members have hints of their own."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from handrail.authoring.converters import (
    ConversionError,
    Converter,
    Decode,
    UnsupportedHint,
    members_decoder,
)
from handrail.authoring.docstrings import docstring_parts
from handrail.authoring.generic_types import class_of, filled_in
from handrail.authoring.json_values import to_json

if TYPE_CHECKING:
    from handrail.authoring.hints import HintReader


def typed_dict_converter(hint: Any, name: str, reader: HintReader) -> Converter:
    """A TypedDict: the function receives a dict, its members converted."""
    hints = _hints_of(hint, name)
    members = {key: reader.read(value, f"{name}.{key}") for key, value in hints.items()}
    required = [key for key, value in hints.items() if _is_required(hint, key, value)]
    schema = _object_schema(hint, {key: made.schema for key, made in members.items()}, required, reader)
    decode = members_decoder({key: made.decode for key, made in members.items()})
    return Converter(schema, decode, any(made.may_refuse for made in members.values()))


def dataclass_converter(hint: Any, name: str, reader: HintReader) -> Converter:
    """A dataclass: the function receives an instance. A default factory runs when its field is left out."""
    hints = _hints_of(hint, name)
    kind = class_of(hint)
    for field in kind.__dataclass_fields__.values():
        if isinstance(hints.get(field.name), dataclasses.InitVar):
            fix = "Give the field a hint of its own, or use a TypedDict."
            raise UnsupportedHint(name, hint, f'has the InitVar "{field.name}"', fix)
    fields = [field for field in dataclasses.fields(kind) if field.init or reader.is_result]
    members = {field.name: reader.read(hints[field.name], f"{name}.{field.name}") for field in fields}
    schemas, required = {}, []
    for field in fields:
        schemas[field.name] = schema = dict(members[field.name].schema)
        if isinstance(words := field.metadata.get("description"), str):
            schema.setdefault("description", words)
        if reader.is_result or (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING):
            required.append(field.name)
        elif field.default is not dataclasses.MISSING and field.default is not None:
            schema["default"] = to_json(field.default)
    decode = members_decoder({key: made.decode for key, made in members.items()})
    may_refuse = hasattr(kind, "__post_init__") or any(made.may_refuse for made in members.values())
    return Converter(_object_schema(hint, schemas, required, reader), _constructor(kind, decode), may_refuse)


def _constructor(kind: Callable[..., Any], decode: Decode | None) -> Decode:
    def construct(value: dict[str, Any]) -> Any:
        members = value if decode is None else decode(value)
        try:
            return kind(**members)
        except ValueError as error:  # of the author's `__post_init__`
            raise ConversionError.at(error) from error

    return construct


def _object_schema(
    hint: Any, schemas: dict[str, dict[str, Any]], required: list[str], reader: HintReader
) -> dict[str, Any]:
    described = docstring_parts(class_of(hint))[1]
    for key, schema in schemas.items():
        if described.get(key):
            schema.setdefault("description", described[key])
    made: dict[str, Any] = {"type": "object"}
    if not reader.is_result:
        made["additionalProperties"] = False
    made["properties"] = schemas
    if required:
        made["required"] = required
    return made


def _hints_of(hint: Any, name: str) -> dict[str, Any]:
    try:
        return filled_in(hint, typing.get_type_hints(class_of(hint), include_extras=True))
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        fix = "Import every name that its hints use, and not only under `if TYPE_CHECKING`."
        raise UnsupportedHint(name, hint, f"cannot be read: {error}", fix) from None


def _is_required(hint: Any, key: str, value: Any) -> bool:
    # The marks come first: under `from __future__ import annotations`, `__required_keys__` does not see them.
    marked = typing.get_origin(value)
    if marked in (typing.Required, typing.NotRequired):
        return marked is typing.Required
    return key in class_of(hint).__required_keys__
