"""A plain function that is somebody else's: adopted without touching it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from handrail.adopt.importing.adopted import ForeignTool, adopt
from handrail.adopt.importing.schema import refused
from handrail.authoring.binding import bind_function
from handrail.authoring.docstrings import docstring_parts
from handrail.authoring.signature import Signature, function_signature


def from_function(function: Callable[..., Any], /, **policy: Any) -> Callable[..., Any]:
    """A governed tool that calls `function`. The schema comes from its type hints unless `parameters=` is given."""
    name = getattr(function, "__name__", type(function).__name__)
    if not callable(function) or inspect.isclass(function):
        raise refused(f"Tool {name!r}", "It is not a function.", "Give a function or a bound method.", pointer="")
    short, _, text = docstring_parts(function)
    policy = {"description": short or None, **policy}
    given = policy.get("parameters") is not None or policy.get("allow_no_schema")
    signature = _signature(function, name, typed=not given)
    if signature.services:
        policy["capabilities"] = list(dict.fromkeys((*policy.get("capabilities", ()), *signature.services.values())))

    foreign = ForeignTool(
        name=name,
        description=text or policy["description"] or "",
        schema=signature.schema,
        run=bind_function(function, signature),
        is_async=inspect.iscoroutinefunction(function),
    )
    return adopt(foreign, policy)


def _signature(function: Callable[..., Any], name: str, *, typed: bool) -> Signature:
    if typed:
        return function_signature(_named(function, name))
    try:
        return function_signature(function, given=())
    except (TypeError, ValueError):  # some functions that are not written in Python tell nobody what they take
        return Signature()


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function as something whose hints can be read: a `functools.partial` or an object has no name of its own."""
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        fix = "Give `parameters=` with its arguments."
        raise refused(f"Tool {name!r}", "Its arguments cannot be read from it.", fix) from None
    if inspect.isroutine(function):
        return function
    if isinstance(function, functools.partial):
        fix = "Give `parameters=` with the arguments that are left."
        raise refused(f"Tool {name!r}", "A partial function does not say which arguments are left.", fix)
    return function.__call__  # type: ignore[operator,no-any-return]  # an object with `__call__`
