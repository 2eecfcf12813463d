"""Generic dataclasses and TypedDicts: what `T` means in each member of `Page[Order]`, its base classes included."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

TypeArguments = Mapping[Any, Any]
"""A type variable → the hint that stands for it."""


def class_of(hint: Any) -> Any:
    """`Page` of `Page[Order]`, and of `Page`."""
    return typing.get_origin(hint) or hint


def name_of(hint: Any) -> str:
    """A name of one word: `Page_Order` of `Page[Order]`."""
    words = [
        str(class_of(hint).__name__) if isinstance(class_of(hint), type) else "".join(filter(str.isalnum, str(hint)))
    ]
    return "_".join([*words, *(name_of(argument) for argument in typing.get_args(hint))])


def filled_in(hint: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The hints of a class's members, with what the arguments of `hint` say in the place of its type variables.

    A base class may use the same variable for something else, so each member's variables are those of the class that declares it.
    """
    arguments = _by_member(class_of(hint), typing.get_args(hint))
    return {name: _replaced(member, arguments.get(name, {})) for name, member in hints.items()}


def _by_member(kind: Any, given: tuple[Any, ...]) -> dict[str, TypeArguments]:
    variables = getattr(kind, "__parameters__", ())
    own = dict(zip(variables, given or map(_bound_of, variables), strict=True))
    found: dict[str, TypeArguments] = {}
    inherited: set[str] = set()
    for base in reversed(types_of_bases(kind)):
        members = _by_member(class_of(base), tuple(_replaced(one, own) for one in typing.get_args(base)))
        inherited |= members.keys()
        found |= members
    # A TypedDict repeats the members of its bases among its own, and none can be declared anew.
    repeated = inherited if typing.is_typeddict(kind) else frozenset()
    return found | {name: own for name in inspect.get_annotations(kind) if name not in repeated}


def types_of_bases(kind: Any) -> tuple[Any, ...]:
    """The base classes as they were written, `Page[Order]` among them, that declare members."""
    written = vars(kind).get("__orig_bases__", kind.__bases__)
    return tuple(
        base
        for base in written
        if class_of(base) not in (object, dict, typing.Generic, typing.Protocol) and isinstance(class_of(base), type)
    )


def _bound_of(variable: Any) -> Any:
    """What stands for the variable of a class that is written without arguments, as type checkers see it."""
    constraints = getattr(variable, "__constraints__", ())
    if constraints:
        return typing.Union[constraints]  # noqa: UP007 - made of values, not written
    return getattr(variable, "__bound__", None) or Any


def _replaced(hint: Any, arguments: TypeArguments) -> Any:
    if isinstance(hint, typing.TypeVar):
        return arguments.get(hint, hint)
    variables = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
    if not isinstance(variables, tuple) or not any(one in arguments for one in variables):
        return hint
    if typing.get_origin(hint) in (
        types.UnionType,
        typing.Union,
    ):  # a part of it may be a class that `[…]` cannot fill in
        return typing.Union[tuple(_replaced(one, arguments) for one in typing.get_args(hint))]  # noqa: UP007
    return hint[tuple(arguments.get(one, one) for one in variables)]
