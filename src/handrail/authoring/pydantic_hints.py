"""Pydantic's models, dataclasses and types as hints.

Pydantic is never imported here: whoever wrote a hint that is one of its own has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from handrail.authoring.converters import ConversionError, Converter, Path, UnsupportedHint
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
    definitions = {_plain_name(key): part for key, part in schema.pop("$defs", {}).items()}
    parts = (schema, *definitions.values())
    for subschema in _subschemas(parts):
        _mend(subschema, closed=not reader.is_result)
    if set(schema) == {"$ref"} and not any(part.get("$ref") == schema["$ref"] for part in _subschemas(parts[1:])):
        # Only a model that contains itself needs to stay a definition.
        schema = definitions.pop(schema["$ref"].removeprefix("#/$defs/"))
    taken = {key for key, part in definitions.items() if reader.definitions.get(key, part) != part}
    renamed = {f"#/$defs/{key}": reader.free_name(key) for key in taken}
    for subschema in _subschemas((schema, *definitions.values()) if renamed else ()):
        if subschema.get("$ref") in renamed:
            subschema["$ref"] = f"#/$defs/{renamed[subschema['$ref']]}"
    reader.definitions.update({renamed.get(f"#/$defs/{key}", key): part for key, part in definitions.items()})
    return schema


def _subschemas(schemas: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for schema in schemas:
        yield from (part for _, part in walk(schema) if isinstance(part, dict))


def _mend(schema: dict[str, Any], *, closed: bool) -> None:
    from handrail.schema.jsonschema_engine import FORMATS  # noqa: PLC0415  # only a hint of Pydantic's needs the validator

    schema.pop("title", None)
    schema.pop("discriminator", None)  # OpenAPI's, not JSON Schema's; the `const` of each member says the same
    if "default" in schema and schema["default"] is None:
        del schema["default"]
    if schema.get("format") not in (None, *FORMATS) or (not closed and schema.get("format") in _LOOSE_IN_RESULTS):
        del schema["format"]
    if "$ref" in schema:
        schema["$ref"] = f"#/$defs/{_plain_name(schema['$ref'].removeprefix('#/$defs/'))}"
    if closed and schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)


def _plain_name(key: str) -> str:
    """Generic models are called "Page[Item]", which a reference would have to escape."""
    return "".join(letter if letter.isalnum() else "_" for letter in key).strip("_")
