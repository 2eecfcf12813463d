"""What a project says about one of its services, before anything is imported for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


class EnvironmentText(str):
    """A setting from the environment, of which only the factory's parameter says what kind of value it is."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """One `[services.NAME]`: its factory as `module:function`, or empty for that of an installed package, and its settings."""

    name: str
    factory: str = ""
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)
