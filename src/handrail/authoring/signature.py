"""From a function's type hints and docstring to a parameter schema.

Only hints that JSON can carry as they are count, because arguments are never coerced: `str`, `int`, `float`, `bool`,
`None`, `list[T]`, `dict[str, T]`, `Literal`, unions, `TypedDict`, and `Annotated` with a description (text) or JSON
Schema keywords (a dict). A parameter called `ctx` is the handler's context and no argument.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from handrail.contract.errors import DefinitionError, Problem
from handrail.contract.frozen import thaw

CONTEXT = "ctx"
_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_UNIONS = (typing.Union, types.UnionType)


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON Schema of a function's arguments."""
    hints = _hints(function)
    described = docstring_parts(function)[1]
    properties: dict[str, Any] = {}
    required: list[str] = []
    problems: list[Problem] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == CONTEXT:
            continue
        try:
            properties[parameter.name] = _property(parameter, hints, described)
        except TypeError as error:
            problems.append(_problem(f"/{parameter.name}", str(error)))
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    if problems:
        raise DefinitionError(f"Function {function.__name__!r}", problems)
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        schema["required"] = required
    return schema


def docstring_parts(function: Callable[..., Any] | type) -> tuple[str, dict[str, str], str]:
    """The first sentence, what is said of each parameter, and the whole text of a docstring."""
    # Not `inspect.getdoc`: what a base class says of itself is no guide to a tool.
    text = inspect.cleandoc(function.__doc__ or "")
    if not text:
        return "", {}, ""
    from docstring_parser import parse  # noqa: PLC0415 - only a docstring needs the parser

    parsed = parse(text)
    described = {part.arg_name: " ".join((part.description or "").split()) for part in parsed.params}
    return parsed.short_description or "", described, text


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        problem = _problem("", f"Its type hints cannot be read: {error}.")
        raise DefinitionError(f"Function {function.__name__!r}", [problem]) from None


def _problem(pointer: str, message: str) -> Problem:
    return Problem(rule="function-hints", pointer=pointer, message=message, fix="Give it a hint that JSON can carry.")


def _property(parameter: inspect.Parameter, hints: Mapping[str, Any], described: Mapping[str, str]) -> dict[str, Any]:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise TypeError(f'"{name}" must be a plain or keyword parameter: a model gives every argument by name.')
    if name not in hints:
        raise TypeError(f'"{name}" has no type hint.')
    schema = schema_of(hints[name], name)
    if name in described and described[name] and "description" not in schema:
        schema["description"] = described[name]
    # `x: int | None = None` means "may be left out", and a default of null says nothing more.
    if parameter.default is not inspect.Parameter.empty and parameter.default is not None:
        schema["default"] = thaw(parameter.default)
    return schema


def schema_of(hint: Any, name: str, inside: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The JSON Schema of one type hint; `TypeError` with a sentence if JSON cannot carry it.

    `inside` are the TypedDicts around it: one that holds itself would need a schema without end.
    """
    if isinstance(hint, type) and hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if hint is Any:
        return {}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _annotated(arguments, name, inside)
    if origin is typing.Literal:
        return _literal(arguments, name)
    if origin in _UNIONS:
        return _union([schema_of(argument, name, inside) for argument in arguments])
    if hint is list or origin is list:
        return {"type": "array", **({"items": schema_of(arguments[0], name, inside)} if arguments else {})}
    if hint is dict or (origin is dict and (not arguments or arguments[0] is str)):
        values = {"additionalProperties": schema_of(arguments[1], name, inside)} if arguments else {}
        return {"type": "object", **values}
    if typing.is_typeddict(hint):
        return _typed_dict(hint, name, inside)
    if origin in (typing.Required, typing.NotRequired):
        return schema_of(arguments[0], name, inside)
    raise TypeError(
        f'"{name}" is hinted as {hint.__name__ if isinstance(hint, type) else hint}, which JSON cannot carry; '
        "use str, int, float, bool, list, dict, Literal, a union of these, or a TypedDict."
    )


def _literal(values: tuple[Any, ...], name: str) -> dict[str, Any]:
    for value in values:
        if type(value) not in _SCALARS:
            raise TypeError(f'"{name}" may be {value!r}, which JSON cannot carry.')
    return {"enum": list(values)}


def _annotated(arguments: tuple[Any, ...], name: str, inside: tuple[Any, ...]) -> dict[str, Any]:
    schema = schema_of(arguments[0], name, inside)
    for extra in arguments[1:]:
        if isinstance(extra, str):
            schema["description"] = extra
        elif isinstance(extra, Mapping):
            schema.update(thaw(extra))
    return schema


def _union(members: list[dict[str, Any]]) -> dict[str, Any]:
    if all(set(member) == {"type"} for member in members):
        return {"type": [member["type"] for member in members]}
    return {"anyOf": members}


def _typed_dict(hint: Any, name: str, inside: tuple[Any, ...]) -> dict[str, Any]:
    if hint in inside:
        raise TypeError(f'"{name}" is hinted as {hint.__name__}, which contains itself; give `parameters=` instead.')
    try:
        hints = typing.get_type_hints(hint, include_extras=True)
    except NameError as error:
        raise TypeError(f'"{name}" is hinted as {hint.__name__}, which cannot be read: {error}.') from None
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key: schema_of(value, f"{name}.{key}", (*inside, hint)) for key, value in hints.items()},
    }
    required = [key for key, value in hints.items() if _is_required(hint, key, value)]
    if required:
        schema["required"] = required
    return schema


def _is_required(hint: Any, key: str, value: Any) -> bool:
    # The marks come first: under `from __future__ import annotations`, `__required_keys__` does not see them.
    marked = typing.get_origin(value)
    if marked in (typing.Required, typing.NotRequired):
        return marked is typing.Required
    return key in hint.__required_keys__
