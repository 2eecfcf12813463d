"""From the signature of a decorated function or class to what the runtime needs of it.

Each parameter is an argument of the model, a service of the host, or the context of the call (called `ctx`, or hinted as
`Context`). Arguments give the parameter schema and the function that converts them; the return hint gives `outputSchema`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from handrail.authoring.annotations import is_pydantic_field
from handrail.authoring.converters import Converter, Decode, HintError, UnsupportedHint, hint_name, members_decoder
from handrail.authoring.docstrings import docstring_parts
from handrail.authoring.hints import SUPPORTED, UNIONS, HintReader
from handrail.authoring.injection import ServiceTypes, may_be_service, no_services, service_of
from handrail.authoring.json_values import to_json
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import DefinitionError, Problem
from handrail.contract.frozen import thaw

CONTEXT = "ctx"
_UNTYPED: tuple[Any, ...] = (
    inspect.Parameter.empty,
    Any,
    object,
    dict,
    None,
    type(None),
    typing.NoReturn,
    typing.Never,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a function or a class takes."""

    schema: dict[str, Any] | None = None
    """The schema of its arguments; None if it has none of its own."""
    decode: Decode | None = None
    """From validated arguments to what it asks for; None if it takes them as they are."""
    may_refuse: bool = False
    services: Mapping[str, str] = field(default_factory=dict)
    """Its parameters that are services → their names."""
    context: str | None = None
    """The parameter that is given the context of the call."""


class PossibleService(DefinitionError):
    """A parameter has a hint that is no argument; a service may still have that type, which only the build knows."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool returns: the schema of its data, and whether the values have to be made JSON first."""

    schema: dict[str, Any] | None = None
    converts: bool = False


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON Schema of a function's arguments."""
    schema = function_signature(function).schema
    assert schema is not None
    return schema


def function_signature(
    function: Callable[..., Any],
    *,
    service_types: ServiceTypes = no_services,
    services: Mapping[str, str] | None = None,
    given: Collection[str] | None = None,
) -> Signature:
    """The signature of a function. `services` are its services as the build decided; without it, the hints decide.

    `given` are the arguments of the schema that the author has given, if any: those are passed as they are.
    """
    typed = given is None
    subject = f"Function {getattr(function, '__name__', type(function).__name__)!r}"
    hints = _hints(function, subject, needed=typed)
    parameters = inspect.signature(function).parameters.values()
    reading = _SignatureReader(subject, hints, docstring_parts(function)[1], service_types, services)
    for parameter in parameters:
        if given is not None and parameter.name in given:
            continue
        if parameter.name == CONTEXT or is_context(hints.get(parameter.name)):
            reading.context = parameter.name
        elif not reading.takes_service(parameter) and typed:
            reading.take_argument(parameter)
    reading.check()
    found = Signature(services=reading.services, context=reading.context)
    return found if not typed else reading.signature()


def is_context(hint: Any) -> bool:
    """Whether a hint is the runtime's `Context`, or it or None; this package stands below it and so does not import it."""
    if typing.get_origin(hint) in (*UNIONS, typing.Annotated):
        return any(map(is_context, typing.get_args(hint)))
    return isinstance(hint, type) and getattr(hint, "__handrail_context__", False) is True


class _SignatureReader:
    """The parameters of one function, as far as they were read; problems are collected, so that all are named at once."""

    def __init__(
        self,
        subject: str,
        hints: Mapping[str, Any],
        described: Mapping[str, str],
        service_types: ServiceTypes,
        services: Mapping[str, str] | None,
    ) -> None:
        self._subject = subject
        self._hints = hints
        self._described = described
        self._service_types = service_types
        self._decided = services
        self._reader = HintReader()
        self._arguments: dict[str, Converter] = {}
        self._required: list[str] = []
        self._problems: list[Problem] = []
        self._unclear = True
        self.services: dict[str, str] = {}
        self.context: str | None = None

    def takes_service(self, parameter: inspect.Parameter) -> bool:
        name = parameter.name
        if self._decided is not None:
            found = self._decided.get(name)
        else:
            try:
                found = service_of(self._hints.get(name), name, self._service_types)
            except UnsupportedHint as error:
                self._refuse(name, error)
                return True
        if found is not None:
            self.services[name] = found
        return found is not None

    def take_argument(self, parameter: inspect.Parameter) -> None:
        name = parameter.name
        try:
            self._arguments[name] = self._argument(parameter)
        except UnsupportedHint as error:
            if may_be_service(self._hints[name]):
                known = None if error.hint is self._hints[name] and error.fix is SUPPORTED else error
                self.refuse_unless_service(name, known, "If it is an argument, make it a dataclass.")
            else:
                self._refuse(name, error)
        except HintError as error:
            self._refuse(name, error)
        if parameter.default is inspect.Parameter.empty:
            self._required.append(name)

    def refuse_unless_service(self, name: str, error: UnsupportedHint | None, otherwise: str) -> None:
        """A class that is no argument: a service may return it, which only a build knows. `error` says why, if more is known."""
        hint = self._hints[name]
        shown = hint_name(hint)
        fix = (
            f'If it is a service, mark it Annotated[{shown}, service("NAME")], or annotate the factory under '
            f"[services.NAME] to return {shown}. {otherwise if error is None else error.fix}"
        )
        error = error or UnsupportedHint(name, hint, "is no supported hint, and no configured service returns it", "")
        self._refuse(name, HintError(str(error), fix), unclear=True)

    def refuse_constructor_parameter(self, name: str) -> None:
        hint = self._hints.get(name)
        if may_be_service(hint):
            self.refuse_unless_service(name, None, "Whatever else a constructor takes needs a default.")
            return
        message = (
            f'The constructor takes "{name}", which is no service: beside the arguments it is given services only.'
        )
        self._refuse(name, HintError(message, 'Mark it Annotated[…, service("NAME")], or give it a default.'))

    def check(self) -> None:
        if self._problems:
            kind = PossibleService if self._unclear else DefinitionError
            raise kind(self._subject, self._problems)

    def signature(self) -> Signature:
        properties = {name: made.schema for name, made in self._arguments.items()}
        schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
        if self._required:
            schema["required"] = self._required
        if self._reader.definitions:
            schema["$defs"] = self._reader.definitions
        return Signature(
            schema=schema,
            decode=members_decoder({name: made.decode for name, made in self._arguments.items()}),
            may_refuse=any(made.may_refuse for made in self._arguments.values()),
            services=self.services,
            context=self.context,
        )

    def _refuse(self, name: str, error: HintError, *, unclear: bool = False) -> None:
        self._unclear = self._unclear and unclear
        self._problems.append(Problem(rule="function-hints", pointer=f"/{name}", message=str(error), fix=error.fix))

    def _argument(self, parameter: inspect.Parameter) -> Converter:
        name, default = parameter.name, parameter.default
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            message = f'"{name}" must be a plain or keyword parameter: a model gives every argument by name.'
            raise HintError(message, "Write a parameter for each argument.")
        if name not in self._hints:
            raise HintError(f'"{name}" has no type hint.', "Give it one, such as `str`.")
        if is_pydantic_field(default):
            fix = "Write Annotated[…, Field(…)], and the default itself after it."
            raise HintError(f'"{name}" has a Field as its default, which only Pydantic would understand.', fix)
        made = self._reader.read(self._hints[name], name)
        schema = made.schema
        if self._described.get(name):
            schema.setdefault("description", self._described[name])
        # `x: int | None = None` means "may be left out", and a default of null says nothing more.
        if default is not inspect.Parameter.empty and default is not None:
            # What needs no conversion stays as it is: text is no date, and a default must be what its hint says.
            schema["default"] = thaw(default) if made.decode is None else to_json(default)
        return made


def class_signature(
    target: type,
    *,
    service_types: ServiceTypes = no_services,
    services: Mapping[str, str] | None = None,
    given: Collection[str] | None = None,
) -> Signature:
    """The signature of a class: its constructor takes the arguments as one object, and after them services.

    Its schema comes from the hint of that object, in the constructor or in `run`, if that is a dataclass, a TypedDict or a
    Pydantic model.
    """
    typed = given is None
    subject = f"Class {target.__name__!r}"
    constructor = _own_constructor(target)
    parameters = [] if constructor is None else list(inspect.signature(constructor).parameters.values())[1:]
    hints = {} if constructor is None else _hints(constructor, subject, needed=typed or len(parameters) > 1)
    reading = _SignatureReader(subject, hints, {}, service_types, services)
    for parameter in parameters[1:]:
        optional = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if not reading.takes_service(parameter) and not optional:
            reading.refuse_constructor_parameter(parameter.name)
    reading.check()
    made = _object_argument(target, hints.get(parameters[0].name) if parameters else None, subject) if typed else None
    if made is None:
        return Signature(services=reading.services)
    return Signature(schema=made.schema, decode=made.decode, may_refuse=made.may_refuse, services=reading.services)


def _own_constructor(target: type) -> Callable[..., Any] | None:
    """The constructor that the author wrote; None if it is the one that every component has."""
    found = inspect.getattr_static(target, "__init__")
    return found if inspect.isfunction(found) and not getattr(found, "__handrail_component__", False) else None


def _object_argument(target: type, hint: Any, subject: str) -> Converter | None:
    """The converter of the one argument object of a class; None if its hint says nothing about its members."""
    run = getattr(target, "run", None)
    if hint is None and inspect.isfunction(run):
        named = list(inspect.signature(run).parameters)[1:2]
        hint = _hints(run, subject, needed=True).get(named[0]) if named else None
    reader = HintReader()
    try:
        made = None if hint is None else reader.read(hint, "args")
    except UnsupportedHint:
        return None
    schema = {} if made is None else dict(made.schema)
    if "$ref" in schema:
        schema = dict(reader.definitions[schema["$ref"].rpartition("/")[2]])
    if made is None or "properties" not in schema:
        return None
    if reader.definitions:
        schema["$defs"] = reader.definitions
    return Converter(schema, made.decode, made.may_refuse)


def result_of(function: Callable[..., Any], subject: str) -> Result:
    """What the return hint of a function says; `DefinitionError` if JSON cannot carry it."""
    hint = _hints(function, subject, needed=False).get("return", inspect.Parameter.empty)
    if typing.get_origin(hint) in UNIONS:
        # A tool may return its data, or an envelope that says more.
        members = tuple(member for member in typing.get_args(hint) if not _is_envelope(member))
        hint = typing.Union[members] if members else Any  # noqa: UP007 - made of values, not written
    if hint in _UNTYPED or _is_envelope(hint):
        return Result()
    reader = HintReader("result")
    try:
        made = reader.read(hint, "return")
    except UnsupportedHint as error:
        message = str(error).replace('"return" is hinted as', "It is annotated to return")
        fix = f"{error.fix} Or leave the annotation out."
        problem = Problem(rule="function-hints", pointer="/return", message=message, fix=fix)
        raise DefinitionError(subject, [problem]) from None
    schema = dict(made.schema)
    if schema in ({}, {"type": "object"}):
        return Result(None, made.decode is not None)
    if reader.definitions:
        schema["$defs"] = reader.definitions
    return Result(schema, made.decode is not None)


def _is_envelope(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, ToolResponse)


def _hints(function: Callable[..., Any], subject: str, *, needed: bool) -> dict[str, Any]:
    """The hints of a function; where none of them is needed, those that cannot be read are left alone."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        if not needed:
            return {}
        fix = "Import every name that the hints use, and not only under `if TYPE_CHECKING`."
        message = f"Its type hints cannot be read: {error}."
        problem = Problem(rule="function-hints", pointer="", message=message, fix=fix)
        raise DefinitionError(subject, [problem]) from None
