"""Which parameters of a decorated tool are services of the host, and no arguments of the model.

A parameter is one if it is marked (`Annotated[Shop, service("shop")]`), or if its hint is exactly what the factory of a
configured service is annotated to return. The build decides, and writes its decision into the artifact.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from handrail.authoring.converters import UnsupportedHint, hint_name
from handrail.contract.errors import UsageError
from handrail.contract.fields import NAME

ServiceTypes = Callable[[], Mapping[Any, Sequence[str]]]
"""The type that a configured factory returns → the names of the services that return it. Called only if a tool may need it."""


@dataclass(frozen=True, slots=True)
class Service:
    """The mark of a parameter that is given a service; made by `service`."""

    name: str


def service(name: str) -> Service:
    """Mark a parameter as the service of this name: `Annotated[Shop, service("shop")]`. The model does not see it."""
    if not isinstance(name, str) or re.match(NAME, name) is None:
        raise UsageError(
            f'service({name!r}) names no service; give the name that follows "services." in handrail.toml.'
        )
    return Service(name)


def no_services() -> Mapping[Any, Sequence[str]]:
    return {}


def service_of(hint: Any, parameter: str, service_types: ServiceTypes) -> str | None:
    """The name of the service that this hint asks for, None if it asks for an argument."""
    if typing.get_origin(hint) is typing.Annotated:
        marks = [extra.name for extra in hint.__metadata__ if isinstance(extra, Service)]
        return marks[0] if marks else None
    if not may_be_service(hint):
        return None
    names = sorted(service_types().get(hint, ()))
    if len(names) > 1:
        quoted = " and ".join(f'"{name}"' for name in names)
        fix = f'Say which: Annotated[{hint_name(hint)}, service("{names[0]}")].'
        raise UnsupportedHint(parameter, hint, f"the services {quoted} both return", fix)
    return names[0] if names else None


def may_be_service(hint: Any) -> bool:
    """Whether a factory might return this type: a class that is neither built in nor one that only stands for a value."""
    kind = typing.get_origin(hint) or hint
    if not isinstance(kind, type) or issubclass(kind, Enum) or typing.is_typeddict(kind):
        return False
    return kind.__module__ not in (
        "builtins",
        "types",
        "typing",
        "collections",
        "collections.abc",
        "datetime",
        "uuid",
        "decimal",
    )
