"""`[mcp.servers.NAME]` of `handrail.toml`: how a server is reached, what it is given, and the project's policy for its tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from handrail.contract.definition import Mode, SideEffects
from handrail.contract.errors import ConfigError

Annotations = Literal["tighten", "trust", "ignore"]
SERVER_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_PREFIX = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,39})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_MODES = ("text", "voice")
_EFFECTS = ("none", "read_only", "writes")
_ANNOTATIONS = ("tighten", "trust", "ignore")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamToolPolicy:
    """What the project says of one tool of a server. None leaves it to the server's table, then to the careful default."""

    enabled: bool = True
    side_effects: SideEffects | None = None
    idempotent: bool | None = None
    confirm: bool | None = None
    """Whether a person is asked before each call; without a word, whenever it writes."""
    modes: tuple[Mode, ...] | None = None
    annotations: Annotations | None = None
    description: str | None = None
    """Shown to models in place of the server's own words."""
    preview: str | None = None
    timeout_ms: int | None = None
    max_result_bytes: int | None = None
    latency_budget_ms: int | None = None
    dedupe_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """One server, as the project describes it."""

    name: str
    enabled: bool = True
    """Whether its tools are built and it can be called; what is pinned of it is kept."""
    command: tuple[str, ...] = ()
    """The program and its arguments; one of `command` and `url` is given."""
    url: str = ""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The variable that the server sees → the variable of our environment that it is taken from. It sees no others."""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The header of each request → the variable of our environment that it is taken from."""
    cwd: str = ""
    connection: str = ""
    """The `[connections.NAME]` whose token of the calling user each call carries; every user has a connection of their own."""
    prefix: str = ""
    startup_seconds: float = 30.0
    call_seconds: float = 60.0
    idle_seconds: float = 600.0
    """A server that nobody has called for so long is stopped, until the next call."""
    max_result_bytes: int = 131_072
    max_message_bytes: int = 4_194_304
    max_tools: int = 200
    annotations: Annotations = "tighten"
    """What the server's hints about its tools do: tighten this policy, be this policy (`trust`), or nothing (`ignore`)."""
    modes: tuple[Mode, ...] = ("text", "voice")
    elicitation: Literal["person", "refuse"] = "person"
    """Questions of the server are put to the person who called, where there is a way, or refused. Never to a model."""
    resources: bool = False
    prompts: bool = False
    """Whether clients of our MCP server get its resources and its prompts as well."""
    tools: Mapping[str, UpstreamToolPolicy] = field(default_factory=lambda: MappingProxyType({}))

    def policy(self, tool: str) -> UpstreamToolPolicy:
        return self.tools.get(tool, _NO_POLICY)

    @property
    def place(self) -> str:
        """Where it is, in a sentence. Neither arguments nor queries are shown: people put secrets there."""
        if self.command:
            return self.command[0].replace("\\", "/").rpartition("/")[2]
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"


_NO_POLICY = UpstreamToolPolicy()


def upstream_configs(table: Mapping[str, Any]) -> dict[str, UpstreamConfig]:
    """`[mcp.servers]` checked key by key; `ConfigError` with one sentence for the first that cannot be used."""
    made = {name: upstream_config(name, content) for name, content in table.items()}
    prefixes: dict[str, str] = {}
    for one in made.values():
        other = prefixes.setdefault(one.prefix, one.name)
        if other != one.name:
            raise ConfigError(
                f'[mcp.servers.{one.name}] has the prefix "{one.prefix}", and so has "{other}"; give each a prefix of its own.'
            )
    return made


def upstream_config(name: str, content: Any) -> UpstreamConfig:
    place = f"[mcp.servers.{name}]"
    if not SERVER_NAME.fullmatch(name):
        raise ConfigError(
            f'The name of a server is up to 32 small letters, digits and underscores, and begins with a letter; "{name}" is not.'
        )
    if not isinstance(content, Mapping):
        raise ConfigError(f"{place} must be a table.")
    given = dict(content)
    tools = given.pop("tools", {})
    values = _values(place, given, _SERVER_KEYS)
    if not isinstance(tools, Mapping) or not all(isinstance(one, Mapping) for one in tools.values()):
        raise ConfigError(f"{place[:-1]}.tools] must hold a table for each tool.")
    policies = {
        tool: UpstreamToolPolicy(**_values(f"{place[:-1]}.tools.{tool}]", one, _TOOL_KEYS))
        for tool, one in tools.items()
    }
    made = UpstreamConfig(name=name, **{"prefix": f"{name}_", **values}, tools=MappingProxyType(policies))
    _check_way(place, made)
    return made


def _check_way(place: str, made: UpstreamConfig) -> None:
    if bool(made.command) == bool(made.url):
        raise ConfigError(f'{place} needs either "command" or "url".')
    if made.command and (made.headers or made.connection):
        raise ConfigError(f'"headers" and "connection" in {place} are for servers with a "url".')
    if made.url and (made.env or made.cwd):
        raise ConfigError(f'"env" and "cwd" in {place} are for servers with a "command".')
    if made.connection and (made.resources or made.prompts):
        raise ConfigError(
            f'"resources" and "prompts" in {place} are for servers without a "connection": only a call has its user\'s token.'
        )
    if made.connection and "authorization" in map(str.lower, made.headers):
        raise ConfigError(
            f'{place} has both "connection" and a header "Authorization"; a token per user leaves no place for another.'
        )


Check = Callable[[Any], Any]
"""The value as it is kept; `ValueError` with what it must be."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError("a whole number greater than 0")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 86_400:
        raise ValueError("a number of seconds, at most a day")
    return float(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        raise ValueError("a list of texts")
    return tuple(value)


def _command(value: Any) -> tuple[str, ...]:
    parts = _texts(value)
    if not parts or not parts[0].strip() or any("\0" in part for part in parts):
        raise ValueError('a list of texts, such as ["npx", "-y", "server"]')
    return parts


def _choice(*values: str) -> Check:
    def check(value: Any) -> str:
        if value not in values:
            raise ValueError(" or ".join(f'"{one}"' for one in values))
        return cast(str, value)

    return check


def _modes(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value or any(one not in _MODES for one in value):
        raise ValueError('a list of "text" and "voice"')
    return tuple(one for one in _MODES if one in value)


def _prefix(value: Any) -> str:
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        raise ValueError("up to 40 letters, digits and underscores, not beginning with a digit")
    return value


def _variables(value: Any) -> Mapping[str, str]:
    """`["NAME"]`, or `{SEEN_AS = "NAME"}`."""
    named = {one: one for one in value} if isinstance(value, (list, tuple)) else value
    good = isinstance(named, Mapping) and all(
        isinstance(text, str) and _VARIABLE.fullmatch(text) for pair in named.items() for text in pair
    )
    if not good:
        raise ValueError(
            'a list of names of variables, or a table such as {TOKEN = "MY_TOKEN"}; values do not belong there'
        )
    return MappingProxyType(dict(named))


def _headers(value: Any) -> Mapping[str, str]:
    good = isinstance(value, Mapping) and all(
        isinstance(header, str) and _HEADER.fullmatch(header) and isinstance(name, str) and _VARIABLE.fullmatch(name)
        for header, name in value.items()
    )
    if not good:
        raise ValueError('a table of headers and names of variables, such as {Authorization = "MY_TOKEN"}')
    return MappingProxyType(dict(value))


def _url(value: Any) -> str:
    wanted = "an https address (or http on this machine) without user, password and fragment"
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        local = parts.hostname in _LOOPBACK
        good = parts.scheme == "https" or (parts.scheme == "http" and local)
        if not good or not parts.hostname or parts.username or parts.password or parts.fragment or parts.port == 0:
            raise ValueError(wanted)
    except ValueError:
        raise ValueError(wanted) from None
    return cast(str, value)


_SERVER_KEYS: Mapping[str, Check] = {
    "enabled": _flag,
    "command": _command,
    "url": _url,
    "env": _variables,
    "headers": _headers,
    "cwd": _text,
    "connection": _text,
    "prefix": _prefix,
    "startup_seconds": _seconds,
    "call_seconds": _seconds,
    "idle_seconds": _seconds,
    "max_result_bytes": _whole,
    "max_message_bytes": _whole,
    "max_tools": _whole,
    "annotations": _choice(*_ANNOTATIONS),
    "modes": _modes,
    "elicitation": _choice("person", "refuse"),
    "resources": _flag,
    "prompts": _flag,
}
_TOOL_KEYS: Mapping[str, Check] = {
    "enabled": _flag,
    "side_effects": _choice(*_EFFECTS),
    "idempotent": _flag,
    "confirm": _flag,
    "modes": _modes,
    "annotations": _choice(*_ANNOTATIONS),
    "description": _text,
    "preview": _text,
    "timeout_ms": _whole,
    "max_result_bytes": _whole,
    "latency_budget_ms": _whole,
    "dedupe_fields": _texts,
}
assert {one.name for one in fields(UpstreamConfig)} == {*_SERVER_KEYS, "name", "tools"}
assert {one.name for one in fields(UpstreamToolPolicy)} == set(_TOOL_KEYS)


def _values(place: str, given: Mapping[str, Any], known: Mapping[str, Check]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f' (did you mean "{near[0]}"?)' if near else ""
            raise ConfigError(f'{place} has no key "{key}"{hint}; known are {", ".join(known)}.')
        try:
            made[key] = known[key](value)
        except ValueError as error:
            raise ConfigError(f'"{key}" in {place} must be {error}.') from None
    return made
