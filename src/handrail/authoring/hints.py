"""From one type hint to its `Converter`: the JSON Schema, and how the Python value is made.

docs/type-hints.md has the table of what is supported; a test executes each of its rows. Read twice with two directions: as an
argument a dataclass field with a default may be left out and unknown members are refused; as a result every field is there, and
objects stay open.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, Flag
from functools import partial
from typing import Any, Literal
from uuid import UUID

from handrail.authoring.annotations import apply_annotations
from handrail.authoring.converters import (
    Converter,
    Decode,
    UnsupportedHint,
    decode_items_at,
    items_decoder,
    values_decoder,
)
from handrail.authoring.generic_types import class_of, name_of
from handrail.authoring.object_hints import dataclass_converter, typed_dict_converter
from handrail.authoring.pydantic_hints import is_pydantic, pydantic_converter

Direction = Literal["argument", "result"]

SUPPORTED = (
    "Use str, int, float, bool, Literal, an Enum, list, dict[str, …], tuple, set, date, datetime, time, UUID, Decimal, "
    "a TypedDict, a dataclass, a Pydantic model, or a union of these."
)
DECIMAL_PATTERN = "^-?[0-9]+([.][0-9]+)?$"
TIME_PATTERN = "^([01][0-9]|2[0-3])(:[0-5][0-9]){1,2}$"

_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_MAX_NESTED = 20
"""How often one generic class may stand inside itself with other arguments."""
UNIONS = (typing.Union, types.UnionType)
_LISTS = (list, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable)
_SETS = {set: set, frozenset: frozenset, collections.abc.Set: set}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class HintReader:
    """Reads the hints of one signature. Types that contain themselves end up in `definitions`, for `$defs`."""

    def __init__(self, direction: Direction = "argument") -> None:
        self.direction = direction
        self.definitions: dict[str, dict[str, Any]] = {}
        self._open: dict[Any, str] = {}
        """The object types around the hint that is read, and those in `definitions` → their names there."""
        self._recursive: set[Any] = set()
        self._decoders: dict[Any, Decode] = {}
        self._aliases: list[Any] = []

    @property
    def is_result(self) -> bool:
        return self.direction == "result"

    def read(self, hint: Any, name: str) -> Converter:
        """The converter of a hint; `UnsupportedHint` with a sentence that names `name` if there is none."""
        if isinstance(hint, type) and hint in _SCALARS:
            return Converter({"type": _SCALARS[hint]}, _whole if hint is int and not self.is_result else None)
        if hint is Any or (hint is object and self.is_result):
            return Converter({})
        alias = getattr(hint, "__supertype__", None) or (
            hint.__value__ if type(hint).__name__ == "TypeAliasType" else None
        )
        if alias is not None:
            return self._alias(hint, alias, name)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return apply_annotations(self.read(arguments[0], name), arguments[1:])
        if origin in (typing.Required, typing.NotRequired):
            return self.read(arguments[0], name)
        if origin is Literal:
            return _literal(arguments, name, hint)
        if origin in UNIONS:
            return self._union(arguments, name)
        made = self._collection(hint, origin or hint, arguments, name) or self._class(hint, name)
        if made is None:
            raise UnsupportedHint(name, hint, "JSON cannot carry", SUPPORTED)
        return made

    def _alias(self, hint: Any, meaning: Any, name: str) -> Converter:
        if hint in self._aliases:
            fix = "Use a dataclass or a TypedDict for the part that repeats."
            raise UnsupportedHint(name, hint, "contains itself", fix)
        self._aliases.append(hint)
        try:
            return self.read(meaning, name)
        finally:
            self._aliases.pop()

    def _class(self, hint: Any, name: str) -> Converter | None:
        kind = class_of(hint)
        if not isinstance(kind, type):
            return None
        if hint in _TEXTS:
            schema, decode = _TEXTS[hint]
            # RFC 3339 wants an offset, which a result may lack: what an author returns must not fail for that.
            loose = self.is_result and hint in (datetime, time)
            return Converter({"type": "string"} if loose else dict(schema), decode, may_refuse=hint is datetime)
        if issubclass(kind, Enum):
            return _enumeration(kind, name)
        if is_pydantic(kind):
            return pydantic_converter(hint, name, self)
        if typing.is_typeddict(kind):
            return self._named_type(hint, name, typed_dict_converter)
        if dataclasses.is_dataclass(kind):
            return self._named_type(hint, name, dataclass_converter)
        return None

    def _named_type(self, hint: Any, name: str, convert: Callable[[Any, str, HintReader], Converter]) -> Converter:
        """An object type. One that contains itself is defined once, and referred to wherever it stands."""
        if hint in self._open or hint in self._recursive:
            self._recursive.add(hint)
            return Converter(self._reference(hint), partial(self._decode_recursive, hint), may_refuse=True)
        if sum(class_of(one) is class_of(hint) for one in self._open) > _MAX_NESTED:
            fix = "Let it contain itself with the same arguments, or write a class for each."
            raise UnsupportedHint(name, class_of(hint), "contains itself with ever other arguments", fix)
        self._open[hint] = self.free_name(name_of(hint))
        try:
            made = convert(hint, name, self)
        except BaseException:
            del self._open[hint]
            raise
        if hint not in self._recursive:
            del self._open[hint]
            return made
        self.definitions[self._open[hint]] = made.schema
        self._decoders[hint] = made.decode or (lambda value: value)
        return Converter(self._reference(hint), self._decoders[hint], may_refuse=True)

    def _decode_recursive(self, hint: Any, value: Any) -> Any:
        """Found when the first value comes: inside itself, a type's decoder is not made yet."""
        return self._decoders[hint](value)

    def _reference(self, hint: Any) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self._open[hint]}"}

    def free_name(self, name: str) -> str:
        """A name for `$defs` that no other type has."""
        taken = {*self.definitions, *self._open.values()}
        return next(key for key in (name, *(f"{name}{number}" for number in range(2, 1000))) if key not in taken)

    def _collection(self, hint: Any, kind: Any, arguments: tuple[Any, ...], name: str) -> Converter | None:
        if kind in _LISTS:
            return self._array(arguments, name, None)
        if kind is tuple:
            return self._tuple(arguments, name)
        if kind in _SETS:
            made = self._array(arguments, name, _SETS[kind])
            if not _is_scalar(made.schema.get("items", {})):
                raise UnsupportedHint(name, hint, "has items that a Python set cannot hold", "Use a list of them.")
            return dataclasses.replace(made, schema={**made.schema, "uniqueItems": True})
        if kind in _MAPPINGS:
            return self._mapping(hint, arguments, name)
        return None

    def _array(self, arguments: tuple[Any, ...], name: str, collect: Callable[[list[Any]], Any] | None) -> Converter:
        if not arguments:
            return Converter({"type": "array"}, collect)
        item = self.read(arguments[0], name)
        items = {"items": item.schema} if item.schema else {}
        return Converter({"type": "array", **items}, items_decoder(item.decode, collect), item.may_refuse)

    def _tuple(self, arguments: tuple[Any, ...], name: str) -> Converter:
        if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
            return self._array(arguments[:1], name, tuple)
        parts = [self.read(argument, f"{name}[{index}]") for index, argument in enumerate(arguments)]
        schema = {
            "type": "array",
            "prefixItems": [part.schema for part in parts],
            "minItems": len(parts),
            "maxItems": len(parts),
        }
        decoders = [part.decode for part in parts]

        def decode(value: list[Any]) -> tuple[Any, ...]:
            return tuple(decode_items_at(value, decoders))

        return Converter(schema, decode, any(part.may_refuse for part in parts))

    def _mapping(self, hint: Any, arguments: tuple[Any, ...], name: str) -> Converter:
        if arguments and arguments[0] is not str:
            fix = f"Use dict[str, …]: the keys of a JSON object are text, not {getattr(arguments[0], '__name__', arguments[0])}."
            raise UnsupportedHint(name, hint, "JSON cannot carry", fix)
        item = self.read(arguments[1], name) if arguments else Converter({})
        values = {"additionalProperties": item.schema} if item.schema else {}
        return Converter({"type": "object", **values}, values_decoder(item.decode), item.may_refuse)

    def _union(self, arguments: tuple[Any, ...], name: str) -> Converter:
        members = [self.read(argument, name) for argument in arguments]
        schemas = [member.schema for member in members]
        may_refuse = any(member.may_refuse for member in members)
        if any(set(schema) != {"type"} for schema in schemas):
            return Converter({"anyOf": schemas}, _union_decoder(members, self.definitions), may_refuse)
        kinds = [schema["type"] for schema in schemas]
        if all(member.decode in (None, _whole) for member in members):
            whole = _whole if "integer" in kinds and "number" not in kinds and not self.is_result else None
            return Converter({"type": kinds}, whole)
        return Converter({"type": kinds}, _union_decoder(members, self.definitions), may_refuse)


def _is_scalar(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", ())
    named = {kinds} if isinstance(kinds, str) else {*kinds}
    return "enum" in schema or bool(named and not named & {"array", "object"})


def _union_decoder(members: list[Converter], definitions: Mapping[str, Any]) -> Decode | None:
    """The first member whose schema the value fits makes it, in the order in which they are written."""
    if all(member.decode is None for member in members):
        return None
    others = [member for member in members if member.schema != {"type": "null"}]
    if len(others) == 1:
        decode_one = others[0].decode
        assert decode_one is not None
        return lambda value: None if value is None else decode_one(value)
    # Compiled when the first value comes: only then are the definitions of all types known.
    compiled: list[tuple[Callable[[Any], bool], Decode | None]] = []

    def decode(value: Any) -> Any:
        if not compiled:
            from handrail.schema.validator import compile_schema  # noqa: PLC0415  # a module of tools need not wait for it

            compiled.extend(
                (compile_schema({**member.schema, "$defs": dict(definitions)}, trusted=True).is_valid, member.decode)
                for member in members
            )
        refusal: ValueError | None = None
        for fits, decode_member in compiled:
            if fits(value):
                try:
                    return value if decode_member is None else decode_member(value)
                except ValueError as error:
                    refusal = refusal or error
        if refusal is not None:
            raise refusal
        return value

    return decode


def _literal(values: tuple[Any, ...], name: str, hint: Any) -> Converter:
    plain = [value.value if isinstance(value, Enum) else value for value in values]
    if any(type(value) not in _SCALARS for value in plain):
        raise UnsupportedHint(
            name, hint, "has a value that JSON cannot carry", "Use text, numbers, true, false or None."
        )
    members = {value.value: value for value in values if isinstance(value, Enum)}
    return Converter({"enum": plain}, (lambda value: members.get(value, value)) if members else None)


def _enumeration(hint: type[Enum], name: str) -> Converter:
    values = [member.value for member in hint]
    if issubclass(hint, Flag) or not values or any(type(value) not in _SCALARS for value in values):
        fix = "Give its members values that are text or numbers, or use Literal."
        raise UnsupportedHint(name, hint, "has values that JSON cannot carry", fix)
    kinds = {_SCALARS[type(value)] for value in values}
    kind = {"type": kinds.pop()} if len(kinds) == 1 else {}
    return Converter({**kind, "enum": values}, hint)


def _whole(value: Any) -> Any:
    """JSON has one kind of number, so a model may write 3 as 3.0; a function that asks for an int gets one."""
    return int(value) if type(value) is float else value


def _datetime(value: str) -> datetime:
    try:
        return datetime.fromisoformat(value.upper())  # RFC 3339 allows "t" and "z"
    except ValueError:
        raise ValueError(f'"{value}" is no time that a calendar has.') from None


_TEXTS: dict[Any, tuple[dict[str, Any], Decode]] = {
    date: ({"type": "string", "format": "date"}, date.fromisoformat),
    datetime: ({"type": "string", "format": "date-time"}, _datetime),
    time: ({"type": "string", "pattern": TIME_PATTERN}, time.fromisoformat),
    UUID: ({"type": "string", "format": "uuid"}, UUID),
    Decimal: ({"type": "string", "pattern": DECIMAL_PATTERN}, Decimal),
}
