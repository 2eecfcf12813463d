"""`[mcp.servers.NAME]` written into `handrail.toml`: at its end, so that all that people wrote stays as it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handrail.contract.errors import ConfigError, UsageError
from handrail.settings import FILE

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def server_table(name: str, values: Mapping[str, Any], comments: tuple[str, ...] = ()) -> str:
    """The text of a server's table."""
    lines = [f"[mcp.servers.{_key(name)}]", *(f"# {comment}" for comment in comments)]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def with_servers(text: str, tables: Mapping[str, str]) -> str:
    """The text of a `handrail.toml` with these tables added; `UsageError` if it has one of them, or would not be TOML."""
    have = servers_in(text)
    for name in tables:
        if name in have:
            raise UsageError(f'{FILE} has a server "{name}" already; choose another name, or change it there.')
    start = text if not text or text.endswith("\n") else text + "\n"
    made = start + "".join(("\n" if start or index else "") + table for index, table in enumerate(tables.values()))
    if not servers_in(made).keys() >= tables.keys():
        raise ConfigError(f"{FILE} writes [mcp] in a form that cannot be added to; write the server there by hand.")
    return made


def read_project_file(project: Path) -> str:
    try:
        return (project / FILE).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{FILE} cannot be read ({error}).") from None


def write_project_file(project: Path, text: str) -> None:
    aside = project / f".{FILE}.new"
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(project / FILE)
    except OSError as error:
        raise ConfigError(f"{FILE} cannot be written ({error.strerror}).") from None


def servers_in(text: str) -> Mapping[str, Any]:
    """The servers that a `handrail.toml` has."""
    try:
        section = tomllib.loads(text).get("mcp", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{FILE} is not TOML: {error}.") from None
    servers = section.get("servers", {}) if isinstance(section, Mapping) else {}
    return servers if isinstance(servers, Mapping) else {}


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    """A basic string of TOML, which escapes as JSON does; delete is the one character that JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
