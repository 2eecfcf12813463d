"""Services: the functions that supply what tools reach as `ctx.NAME`, named in `[services.NAME]` of `handrail.toml`.

Here a factory is found and checked against its settings, without being called: the build does that much too. The runtime
calls it (`handrail.runtime.services`).
"""

from __future__ import annotations

import collections.abc
import contextlib
import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from handrail.authoring.injection import may_be_service
from handrail.authoring.modules import look_in
from handrail.authoring.service_values import checked_values
from handrail.contract.errors import ConfigError
from handrail.contract.service_config import ServiceConfig
from handrail.plugins import SERVICES, entry_points_of, import_named, load_plugin

PROJECT = "project"
"""A factory with a parameter of this name is given the project's folder (a `Path`), to find its files in."""
STORE_URL = "store_url"
"""A factory with a parameter of this name is given the URL of the project's store, to keep its data beside it."""

_WRAPPERS = (
    collections.abc.AsyncIterator,
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterable,
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.Iterable,
    collections.abc.Awaitable,
    collections.abc.Coroutine,
    contextlib.AbstractContextManager,
    contextlib.AbstractAsyncContextManager,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFactory:
    """A factory that was found, with the arguments that it will be called with."""

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]

    def make(self) -> Any:
        """Call it. What comes back may have to be awaited or entered; see `handrail.runtime.services`."""
        return self.function(**self.arguments)


def find_factory(config: ServiceConfig, project: Path, store_url: str = "") -> ServiceFactory:
    """The factory of a service, its settings checked against its parameters; `ConfigError` with one sentence otherwise."""
    function = _function_of(config, project)
    given = {PROJECT: project, STORE_URL: store_url}
    return ServiceFactory(name=config.name, function=function, arguments=_arguments(config, function, given))


def entered_by(function: Callable[..., Any]) -> str | None:
    """The method by which the objects of a class are entered, `__aenter__` before `__enter__`; None if it is no class, or
    one whose objects are used as they are."""
    if not inspect.isclass(function):
        return None
    pairs = (("__aenter__", "__aexit__"), ("__enter__", "__exit__"))
    return next((enter for enter, leave in pairs if hasattr(function, enter) and hasattr(function, leave)), None)


def is_available(name: str, configured: Mapping[str, ServiceConfig]) -> bool:
    """Whether there is a factory for this capability: configured, or supplied by an installed package."""
    return name in configured or name in entry_points_of(SERVICES)


def service_types(services: Mapping[str, ServiceConfig], project: Path) -> dict[Any, tuple[str, ...]]:
    """The types that configured factories are annotated to return or yield, each with the names of its services.

    `async def open_shop(…) -> AsyncIterator[Shop]` gives `{Shop: ("shop",)}`; so do `-> Shop`, `Iterator[Shop]`,
    `Awaitable[Shop]` and the context managers' types, and a class that is its own factory (where it is a context manager: what
    entering it is annotated to give). A type with two names is supplied
    by two services: a parameter of that type alone does not say which one is meant. A class may have parameters of its own, as in
    `Pool[Row]`. Factories without an annotation, or with one that is no class, supply no type.
    The modules of the factories are imported; `ConfigError` if one cannot be.
    """
    found: dict[Any, tuple[str, ...]] = {}
    for name, config in sorted(services.items()):
        supplied = _supplied_type(_function_of(config, project))
        if supplied is not None:
            found[supplied] = (*found.get(supplied, ()), name)
    return found


def _function_of(config: ServiceConfig, project: Path) -> Callable[..., Any]:
    if config.factory:
        look_in(project)
        importlib.invalidate_caches()  # its module may have been written since the folder was last looked into
        function = import_named(config.factory, f'The service "{config.name}"')
        where = config.factory
    else:
        if config.name not in entry_points_of(SERVICES):
            raise ConfigError(
                f'[services.{config.name}] names no "factory", and no installed package supplies a service "{config.name}"; '
                'write factory = "module:function".'
            )
        function = load_plugin(SERVICES, config.name)
        where = entry_points_of(SERVICES)[config.name].value
    if not callable(function):
        raise ConfigError(f'The service "{config.name}": "{where}" cannot be called; name a function.')
    return typing.cast(Callable[..., Any], function)


def _arguments(config: ServiceConfig, function: Callable[..., Any], supplied: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = dict(config.settings)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some callables of extension modules tell nothing
        return given
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {name: one for name, one in parameters.items() if one.kind in by_name}
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    known = [name for name in named if name not in supplied]
    place = f"[services.{config.name}]"
    for key in given:
        if key == PROJECT:
            raise ConfigError(f'{place} sets "{PROJECT}", which is always the folder of the project; leave it out.')
        if key not in named and not takes_any:
            near = get_close_matches(key, known, n=1)
            hint = f' (did you mean "{near[0]}"?)' if near else ""
            takes = f"its factory takes {', '.join(known)}" if known else "its factory takes no settings"
            raise ConfigError(f'{place} has no key "{key}"{hint}; {takes}.')
    given = checked_values(place, function, given)
    # A setting of that name comes first: a factory may have had one before there was a store to name.
    given = {name: value for name, value in supplied.items() if name in named} | given
    for name, one in named.items():
        if one.default is inspect.Parameter.empty and name not in given:
            raise ConfigError(f'{place} lacks the key "{name}", for which its factory has no default.')
    return given


def _entered_type(kind: type) -> Any:
    """What a class supplies: its objects, unless entering one is annotated to give something else."""
    enter = entered_by(kind)
    if enter is None:
        return kind
    try:
        hint = typing.get_type_hints(getattr(kind, enter)).get("return", typing.Self)
    except Exception:  # noqa: BLE001 - a hint is any expression; one that cannot be evaluated names no type
        return None
    if hint is typing.Self or isinstance(hint, typing.TypeVar):
        return kind
    return hint if may_be_service(hint) else None


def _supplied_type(function: Callable[..., Any]) -> Any:
    if inspect.isclass(function):
        return _entered_type(function)
    try:
        hint = typing.get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001 - a hint is any expression; one that cannot be evaluated names no type
        return None
    while typing.get_origin(hint) in _WRAPPERS:
        arguments = typing.get_args(hint)
        # Of a generator the first type is what it yields; of a coroutine the last is what it returns.
        hint = arguments[-1] if typing.get_origin(hint) is collections.abc.Coroutine else arguments[0]
    return hint if may_be_service(hint) else None
