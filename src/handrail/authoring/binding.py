"""How a decorated tool is called: every kind of tool comes to one function of `(args, ctx)`.

Arguments are converted to what the signature asks for, services are taken from the context by their names. A function that
takes its arguments as they are pays for neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any

from handrail.authoring.converters import ConversionError, Decode
from handrail.authoring.decorator import ToolComponent
from handrail.authoring.signature import CONTEXT, Signature
from handrail.contract.errors import ErrorType, ToolError
from handrail.schema.pointer import pointer

Execute = Callable[[dict[str, Any], Any], Any]


def bind_function(function: Callable[..., Any], signature: Signature) -> Execute:
    """The function as one of `(args, ctx)`, which logs and debuggers know by the function's name."""
    return update_wrapper(_bound(function, signature), function)


def _bound(function: Callable[..., Any], signature: Signature) -> Execute:
    services, context = tuple(signature.services.items()), signature.context
    if signature.decode is None and not services:
        if context is None:
            return lambda args, ctx: function(**args)
        if context == CONTEXT:
            return lambda args, ctx: function(**args, ctx=ctx)
    convert = converter_of(signature.decode)

    def execute(args: dict[str, Any], ctx: Any) -> Any:
        values = dict(convert(args))
        for parameter, name in services:
            values[parameter] = getattr(ctx, name)
        if context is not None:
            values[context] = ctx
        return function(**values)

    return execute


def bind_class(component: type[ToolComponent], signature: Signature) -> Execute:
    """A function of `(args, ctx)` that makes a component, gives it its context, and runs it."""
    services = tuple(signature.services.items())
    convert = converter_of(signature.decode)

    def execute(args: dict[str, Any], ctx: Any) -> Any:
        value = convert(args)
        made = component(value, **{parameter: getattr(ctx, name) for parameter, name in services})
        made.ctx = ctx
        return made.run(value)

    return execute


def converter_of(decode: Decode | None) -> Callable[[Mapping[str, Any]], Any]:
    """The conversion as a handler makes it: what it refuses ends the call before anything was done."""
    if decode is None:
        return lambda args: args

    def convert(args: Mapping[str, Any]) -> Any:
        try:
            return decode(args)
        except ConversionError as error:
            details = [{"pointer": pointer(path), "message": message} for path, message in error.faults]
            raise ToolError(ErrorType.VALIDATION, str(error), details=details) from error

    return convert
