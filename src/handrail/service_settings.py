"""`[services.NAME]` of `handrail.toml`, overridden by `HANDRAIL_SERVICES_<NAME>_<KEY>`.

Which keys a service has is its factory's business: they are checked against its parameters when it is found, not here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from handrail.contract.errors import ConfigError
from handrail.contract.service_config import EnvironmentText, ServiceConfig
from handrail.plugins import SERVICES, entry_points_of

_FILE = "handrail.toml"
_PREFIX = "HANDRAIL_SERVICES_"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def service_configs(document: Any, environment: Mapping[str, str]) -> Mapping[str, ServiceConfig]:
    """The services that a project configures, by name; `ConfigError` with one sentence if a table cannot be used."""
    if not isinstance(document, Mapping):
        raise ConfigError(f"[services] in {_FILE} must hold tables, such as [services.shop].")
    tables: dict[str, dict[str, Any]] = {}
    for name, table in document.items():
        if not isinstance(table, Mapping):
            raise ConfigError(f'"{name}" in [services] must be a table; write [services.{name}].')
        _check_name(name)
        tables[name] = dict(table)
    for variable, text in sorted(environment.items()):
        if variable.startswith(_PREFIX):
            name, key = _place_of(variable, tables)
            tables.setdefault(name, {})[key] = text if key == "factory" else EnvironmentText(text)
    return MappingProxyType({name: _config(name, table) for name, table in sorted(tables.items())})


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"[services.{name}] cannot be a service; use small letters, digits and underscores, a letter first, at most 64."
        )
    from handrail.runtime.capabilities import built_in  # noqa: PLC0415  # most commands configure no service
    from handrail.runtime.context import Context  # noqa: PLC0415

    if name in built_in() or hasattr(Context, name):
        raise ConfigError(f"[services.{name}] cannot be a service: every tool has a `ctx.{name}` already; rename it.")


def _config(name: str, table: Mapping[str, Any]) -> ServiceConfig:
    factory = table.get("factory", "")
    if not isinstance(factory, str) or (factory and not _FACTORY.fullmatch(factory)):
        raise ConfigError(
            f'"factory" in [services.{name}] must be "module:function", such as "{name}_service:open_{name}"; '
            f"{factory!r} is not."
        )
    if not factory and name not in (installed := entry_points_of(SERVICES)):
        near = get_close_matches(name, list(installed), n=1)
        if near:  # another name may be that of a package that is not installed here
            raise ConfigError(f'[services.{name}] in {_FILE} has no "factory"; did you mean [services.{near[0]}]?')
    settings = {key: value for key, value in table.items() if key != "factory"}
    return ServiceConfig(name=name, factory=factory, settings=MappingProxyType(settings))


def _place_of(variable: str, tables: Mapping[str, Any]) -> tuple[str, str]:
    """The service and the key that a variable sets. Names may have underscores; the longest one that fits is meant."""
    rest = variable.removeprefix(_PREFIX).lower()
    names = sorted({*tables, *entry_points_of(SERVICES)}, key=len, reverse=True)
    for name in names:
        if rest.startswith(f"{name}_") and len(rest) > len(name) + 1:
            return name, rest[len(name) + 1 :]
    near = get_close_matches(rest.partition("_")[0], names, n=1)
    hint = f' (did you mean "{_PREFIX}{near[0].upper()}_…"?)' if near else ""
    raise ConfigError(f'The environment has "{variable}", which sets no service that is configured or installed{hint}.')
