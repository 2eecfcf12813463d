"""What a type hint comes to: a JSON Schema, and the function that makes the Python value from JSON that fits it.

A value that fits the schema can still be refused by the author's own code, such as a dataclass's `__post_init__` or a Pydantic
validator. That is a `ConversionError`, which says where, so that the model learns of it as of a schema's violation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Decode = Callable[[Any], Any]
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Converter:
    """One hint. `decode` is None where the function takes JSON as it is."""

    schema: dict[str, Any]
    decode: Decode | None = None
    may_refuse: bool = False
    """Whether `decode` can refuse a value that fits the schema."""


class HintError(TypeError):
    """A parameter that cannot be an argument; the message is a sentence, `fix` says what to write."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


class UnsupportedHint(HintError):
    """A hint that no JSON Schema stands for."""

    def __init__(self, name: str, hint: Any, reason: str, fix: str) -> None:
        super().__init__(f'"{name}" is hinted as {hint_name(hint)}, which {reason}.', fix)
        self.hint = hint


class ConversionError(ValueError):
    """Arguments that fit the schema and still cannot be made into what the tool asks for."""

    def __init__(self, faults: tuple[tuple[Path, str], ...]) -> None:
        super().__init__("; ".join(message for _, message in faults))
        self.faults = faults

    @classmethod
    def at(cls, error: ValueError, *path: str | int) -> ConversionError:
        """The error of a part, as seen from what holds it."""
        if isinstance(error, ConversionError):
            return cls(tuple(((*path, *inner), message) for inner, message in error.faults))
        return cls(((path, str(error)),))


def hint_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__origin__") else str(hint)


def members_decoder(decoders: Mapping[str, Decode | None]) -> Decode | None:
    """The function that converts the members of an object, by name; None if none of them needs it."""
    wanted = {name: decode for name, decode in decoders.items() if decode is not None}
    if not wanted:
        return None
    pairs = tuple(wanted.items())

    def decode_members(value: dict[str, Any]) -> dict[str, Any]:
        made = dict(value)
        for name, decode in pairs:
            if name in made:
                try:
                    made[name] = decode(made[name])
                except ValueError as error:
                    raise ConversionError.at(error, name) from error
        return made

    return decode_members


def items_decoder(decode: Decode | None, collect: Callable[[list[Any]], Any] | None) -> Decode | None:
    """The function that converts the items of a list, and collects them into what was asked for."""
    if decode is None:
        return collect

    def decode_items(value: list[Any]) -> Any:
        made = []
        for index, item in enumerate(value):
            try:
                made.append(decode(item))
            except ValueError as error:
                raise ConversionError.at(error, index) from error
        return made if collect is None else collect(made)

    return decode_items


def decode_items_at(value: list[Any], decoders: list[Decode | None]) -> list[Any]:
    """The items, each converted by the decoder at its place."""
    made = []
    for index, (item, decode) in enumerate(zip(value, decoders, strict=True)):
        try:
            made.append(item if decode is None else decode(item))
        except ValueError as error:
            raise ConversionError.at(error, index) from error
    return made


def values_decoder(decode: Decode | None) -> Decode | None:
    """The function that converts the values of an object, whatever their keys."""
    if decode is None:
        return None

    def decode_values(value: Mapping[str, Any]) -> dict[str, Any]:
        made = {}
        for key, item in value.items():
            try:
                made[key] = decode(item)
            except ValueError as error:
                raise ConversionError.at(error, key) from error
        return made

    return decode_values
