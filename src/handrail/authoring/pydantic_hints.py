"""Pydantic's models, dataclasses and types as hints.

Pydantic is never imported here: whoever wrote a hint that is one of its own has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from handrail.authoring.converters import ConversionError, Converter, Path, UnsupportedHint
from handrail.schema.engine import FORMATS
from handrail.schema.subschemas import walk

if TYPE_CHECKING:
    from handrail.authoring.hints import HintReader

_LOOSE_IN_RESULTS = frozenset({"date-time", "time"})
"""Pydantic writes times without an offset too, which RFC 3339 and so our check of results does not take."""


def is_pydantic(hint: type) -> bool:
    return "pydantic" in sys.modules and (
        hasattr(hint, "__pydantic_validator__") or hasattr(hint, "__get_pydantic_core_schema__")
    )


def pydantic_converter(hint: Any, name: str, reader: HintReader) -> Converter:
    """The schema that Pydantic gives, closed as ours are; the function receives what Pydantic makes of the value."""
    pydantic = sys.modules["pydantic"]
    mode = "serialization" if reader.is_result else "validation"
    try:
        adapter = pydantic.TypeAdapter(hint)
        schema = adapter.json_schema(mode=mode, by_alias=True)
    except Exception as error:  # noqa: BLE001 - Pydantic has a class of errors for each thing that may be wrong
        reason = f"Pydantic has no JSON Schema for: {str(error).splitlines()[0]}"
        raise UnsupportedHint(name, hint, reason, "Use a type that Pydantic can describe.") from None

    def decode(value: Any) -> Any:
        try:
            # As JSON, so that a model in strict mode takes dates and the like from text.
            return adapter.validate_json(orjson.dumps(value))
        except pydantic.ValidationError as error:
            raise ConversionError(
                tuple((_place(fault["loc"], value), fault["msg"]) for fault in error.errors(include_input=False))
            ) from error

    return Converter(_adopted(schema, reader), decode, may_refuse=True)


def _place(location: Path, value: Any) -> Path:
    """The part of Pydantic's location that is in the value: it names the members of unions as well."""
    path: list[str | int] = []
    for token in location:
        try:
            value = value[token]
        except (KeyError, IndexError, TypeError):
            break
        path.append(token)
    return tuple(path)


def _adopted(schema: dict[str, Any], reader: HintReader) -> dict[str, Any]:
    """The schema in our dialect; its definitions go to the reader's, under names that are free there."""
    definitions = schema.pop("$defs", {})
    names = {key: reader.free_name(_plain_name(key)) for key in definitions}
    for part in (schema, *definitions.values()):
        for _, subschema in walk(part):
            if isinstance(subschema, dict):
                _mend(subschema, names, closed=not reader.is_result)
    if set(schema) == {"$ref"}:
        # Only a model that contains itself needs to stay a definition.
        key = schema["$ref"].rpartition("/")[2]
        own = next((old for old, new in names.items() if new == key), None)
        if own is not None and not any(_refers_to(part, schema["$ref"]) for part in definitions.values()):
            schema = definitions.pop(own)
    reader.definitions.update({names[key]: part for key, part in definitions.items()})
    return schema


def _mend(schema: dict[str, Any], names: Mapping[str, str], *, closed: bool) -> None:
    schema.pop("title", None)
    schema.pop("discriminator", None)  # OpenAPI's, not JSON Schema's; the `const` of each member says the same
    if "default" in schema and schema["default"] is None:
        del schema["default"]
    if schema.get("format") not in (None, *FORMATS) or (not closed and schema.get("format") in _LOOSE_IN_RESULTS):
        del schema["format"]
    if "$ref" in schema:
        key = schema["$ref"].removeprefix("#/$defs/")
        schema["$ref"] = f"#/$defs/{names.get(key, key)}"
    if closed and schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)


def _refers_to(schema: Any, reference: str) -> bool:
    return any(isinstance(part, dict) and part.get("$ref") == reference for _, part in walk(schema))


def _plain_name(key: str) -> str:
    """Generic models are called "Page[Item]", which a reference would have to escape."""
    return "".join(letter if letter.isalnum() else "_" for letter in key).strip("_")
