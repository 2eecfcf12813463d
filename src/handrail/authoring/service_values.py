"""The values of a service's settings, checked by the annotations of its factory: text, numbers, choices and lists of texts.

Other annotations are the factory's own business. A value from the environment is text that becomes what its parameter wants.
"""

from __future__ import annotations

import collections.abc
import inspect
import sys
import tomllib
import types
import typing
from collections.abc import Callable
from typing import Any

from handrail.contract.errors import ConfigError
from handrail.contract.service_config import EnvironmentText

_LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable)
_NUMBERS: dict[object, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
}


def checked_values(place: str, function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """The settings as the factory takes them; `ConfigError` with one sentence if a value is of another kind."""
    hints = _hints_of(function)
    values: dict[str, Any] = {}
    for key, value in given.items():
        hint = _without_none(hints.get(key, Any))
        values[key] = _from_environment(hint, value) if isinstance(value, EnvironmentText) else value
        wanted = _wanted(hint, values[key])
        if wanted is not None:
            raise ConfigError(f'"{key}" in {place} must be {wanted}; {values[key]!r} is not.')
    return values


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The hints of a factory's parameters, each read by itself: one that cannot be read leaves the others checked."""
    source = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]  # its signature is wanted
    hints: dict[str, Any] = {}
    for name, annotation in _annotations_of(source).items():
        alone = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints |= typing.get_type_hints(alone, globalns=getattr(inspect.unwrap(source), "__globals__", {}))
        except Exception:  # noqa: BLE001, S112 - a hint is any expression; what cannot be evaluated is not checked
            continue
    return hints


def _annotations_of(source: Callable[..., Any]) -> dict[str, Any]:
    """The annotations as they were written; on Python 3.14 and newer, names that are not defined stay names."""
    try:
        if sys.version_info >= (3, 14):
            import annotationlib  # noqa: PLC0415  # older ones do not have it

            return annotationlib.get_annotations(source, format=annotationlib.Format.FORWARDREF)
        return inspect.get_annotations(source)
    except TypeError:  # some callables tell nothing
        return {}


def _without_none(hint: Any) -> Any:
    """`str` of `str | None`: a setting that is not given has the parameter's default."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        others = [one for one in typing.get_args(hint) if one is not type(None)]
        return others[0] if len(others) == 1 else Any
    return hint


def _is_list_of_texts(hint: Any) -> bool:
    return typing.get_origin(hint) in _LISTS and str in typing.get_args(hint)


def _from_environment(hint: Any, text: EnvironmentText) -> Any:
    if hint is str or (typing.get_origin(hint) is typing.Literal and str(text) in typing.get_args(hint)):
        return str(text)
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError, RecursionError):
        pass  # plain text, as most variables are
    if _is_list_of_texts(hint):
        return [part.strip() for part in text.split(",") if part.strip()]
    return str(text)


def _wanted(hint: Any, value: Any) -> str | None:
    """What the value should have been; None if it is right, or nothing is known about it."""
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        return None if value in choices else " or ".join(f'"{choice}"' for choice in choices)
    if hint is str:
        return None if isinstance(value, str) else "text"
    if hint is bool:
        return None if isinstance(value, bool) else "true or false"
    if hint in _NUMBERS:
        words, kinds = _NUMBERS[hint]
        return None if isinstance(value, kinds) and not isinstance(value, bool) else words
    if _is_list_of_texts(hint):
        good = isinstance(value, (list, tuple)) and all(isinstance(item, str) and item for item in value)
        return None if good else "a list of texts"
    return None
