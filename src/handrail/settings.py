"""Settings: `handrail.toml`, overridden by `HANDRAIL_*`, checked key by key. Unknown keys and wrong types are named.

`HANDRAIL_TOOLS_DIRECTORY=x` overrides `directory` in `[tools]`, and so on for every key;
`HANDRAIL_POLICY_VOICE_TOTAL_CALLS=4` overrides `total_calls` in `[policy.voice]`; for services see
`handrail.service_settings`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from handrail.authoring.mcp.server_config import UpstreamConfig, upstream_configs
from handrail.authoring.source import UPSTREAM_CAPABILITY
from handrail.contract.errors import ConfigError
from handrail.contract.service_config import ServiceConfig
from handrail.identity.config import ConnectionConfig, connection_configs, is_safe_address
from handrail.registry.host_policy import ToolPolicy
from handrail.registry.version_rules import VersionRules
from handrail.runtime.policy import ModePolicy, Policy
from handrail.service_settings import service_configs

FILE = "handrail.toml"
STORE_FILE = "handrail.db"
SECRET = "HANDRAIL_SECRET_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, with its default. Field names are `<section>_<key>`."""

    project: Path
    tools_directory: str = "tools"
    tools_modules: tuple[str, ...] = ()
    tools_reference: tuple[str, ...] = ()
    """Reference tools of Handrail that are built in as well, by id; `*` means all."""
    tools_artifact: str = ""
    """Where the artifact lies; empty means `tool_registry.json` beside the tools directory."""
    registry_validators: str = "lazy"
    store_url: str = f"sqlite:///{STORE_FILE}"
    audit_directory: str = "audit"
    audit_key: str = field(default="", repr=False)
    """Makes the hashes of the audit log HMACs: whoever does not have it cannot write lines that `handrail audit verify` takes for
    ours. Better in the environment (`HANDRAIL_AUDIT_KEY`) than in a file that is committed."""
    access_roles: tuple[str, ...] = ()
    """The roles that users may have; empty means those that the tools name."""
    identity_jwks: str = ""
    """The keys of the issuer whose signed tokens are believed: a file, or an address."""
    identity_secret: str = field(default="", repr=False)
    """Shared with the issuer, in the place of `jwks`; from the environment (`HANDRAIL_IDENTITY_SECRET`)."""
    identity_issuer: str = ""
    identity_audience: str = ""
    identity_algorithms: tuple[str, ...] = ()
    identity_user_claim: str = "sub"
    identity_roles_claim: str = "roles"
    identity_tenant_claim: str = ""
    identity_organisation_claim: str = ""
    identity_leeway_seconds: int = 30
    identity_cache_seconds: int = 300
    """So long the keys of an address or a file are kept."""
    server_host: str = "127.0.0.1"
    server_port: int = 8484
    server_keys_file: str = "server-keys.json"
    """The hashes of the keys that clients may use."""
    server_conversations: str = "conversations.db"
    """What was said in sessions of the server."""
    server_origins: tuple[str, ...] = ()
    """Pages of other origins that may use the API."""
    server_hosts: tuple[str, ...] = ()
    """Names under which clients reach the server, beside those of the loopback."""
    server_public_url: str = ""
    """Where browsers reach the server, such as `https://desk.example.com`; empty means the address that each request names."""
    server_max_body_bytes: int = 262_144
    server_max_header_bytes: int = 16_384
    server_requests_per_minute: int = 1_200
    """For each key."""
    server_max_connections: int = 2_000
    server_max_streams: int = 200
    """Event streams of one key."""
    server_max_sessions: int = 10_000
    """Sessions that are held in memory."""
    server_stream_seconds: int = 3_600
    server_heartbeat_seconds: int = 15
    server_slow_seconds: int = 20
    """How long a request may take to arrive, and a client to take what was sent."""
    server_idle_seconds: int = 1_800
    server_shutdown_seconds: int = 20
    server_keep_days: int = 90
    """Conversations that nobody continued with for so long are deleted."""
    server_max_conversations: int = 100_000
    """Conversations that are kept in all; beyond it no new ones are opened."""
    server_max_conversations_per_key: int = 50_000
    server_max_conversations_per_user: int = 1_000
    """Beyond it a user's own oldest one makes room."""
    agent_model: str = ""
    """Which model answers, as `anthropic:…`, `ollama:…` or `demo`; empty: an Ollama of this machine, else the demo model."""
    agent_base_url: str = ""
    """Where the model's provider is reached; empty means where its SDK says."""
    agent_model_seconds: int = 60
    """So long a model may say nothing."""
    agent_rounds: int = 6
    """How often the model is asked in one turn at most."""
    agent_time_zone: str = ""
    """The zone of conversations that name none; empty means that of this machine."""
    agent_max_tools: int = 40
    """Above this number of tools, those that fit a request are picked for it."""
    agent_picked_tools: int = 12
    agent_declaration_tokens: int = 8_000
    """What the declarations of a live session may cost where there are more tools than `max_tools`."""
    agent_guide_tokens: int = 4_000
    """Guides stand in the prompt of a text session if all of them fit into this number of tokens."""
    agent_history_tokens: int = 24_000
    """Older turns are left out of what a model is sent beyond this."""
    agent_context_window: int = 0
    """Tokens that fit into one request of the model; 0: what the table of models says."""
    voice_model: str = ""
    """Who listens and speaks: `gemini-live:…`, `openai-realtime:…`; empty: the model of [agent], with the client's own voice."""
    voice_base_url: str = ""
    """Where the live model's provider is reached; empty means where its SDK says."""
    voice_context_window: int = 0
    """Tokens that fit into the live model's session; 0: what the table of models says."""
    voice_voice: str = ""
    """The provider's voice, by its name; empty means the provider's choice."""
    voice_language: str = "en"
    """The language of conversations, as `en` or `en-GB`."""
    voice_recogniser: str = "provider"
    """Who hears the answer to a spoken confirmation: the provider's transcription, or a local recogniser beside it."""
    voice_filler: tuple[str, ...] = ("One moment, please.", "I am still looking.", "Just a second.")
    """What is said when a tool takes longer than its budget."""
    voice_idle_seconds: int = 300
    """A conversation in which nobody has spoken for so long ends."""
    voice_grace_seconds: int = 30
    """So long a conversation waits for its client to come back."""
    voice_max_conversations: int = 500
    voice_max_conversations_per_key: int = 200
    voice_burst_seconds: int = 10
    """So much audio a client may send at once; beyond it, twice as fast as it was spoken."""
    voice_backlog_seconds: int = 30
    """So much sound waits for a client that does not keep up; then the oldest is dropped."""
    credentials_keys: tuple[str, ...] = field(default=(), repr=False)
    """Encrypt what people give for connections: the first key seals, every one opens. Only from the environment
    (`HANDRAIL_CREDENTIALS_KEYS`, separated by commas), because a file of settings is committed."""
    mcp_http: bool = True
    """`handrail serve` answers MCP clients on `/mcp`, where the extra is installed."""
    mcp_user: str = ""
    """Whom `handrail mcp` over stdio serves; empty means the user of the operating system."""
    mcp_trusted_clients: tuple[str, ...] = ()
    """Whose clients show a confirmation to a person and not to a model: names of server keys, `oauth:CLIENT_ID`, or `stdio`."""
    mcp_console: str = ""
    """The console's address, for links to open confirmations; empty means that of [server]."""
    mcp_issuer: str = ""
    """The authorization server whose access tokens are taken on `/mcp`; empty: server keys only."""
    mcp_resource: str = ""
    """The address of `/mcp` as clients know it: the audience of their tokens."""
    mcp_scopes: tuple[str, ...] = ()
    """Scopes that a token must have."""
    mcp_user_claim: str = "sub"
    """The claim of a token that names the user."""
    mcp_roles_claim: str = "roles"
    """The claim of a token that names the user's roles; empty: none are taken from it."""
    mcp_tenant_claim: str = ""
    """The claim of a token that names the user's tenant; empty: there are none."""
    mcp_task_tools: tuple[str, ...] = ()
    """Tools whose calls are always tasks; a client that knows no tasks cannot make them."""
    mcp_prompts: tuple[str, ...] = ()
    """Tools that are offered as prompts as well: what a call shows is the prompt's messages."""
    mcp_max_result_bytes: int = 262_144
    """A larger result is given as a link to a resource."""
    mcp_task_seconds: int = 10
    """A call that runs longer becomes a task, for clients that know tasks."""
    mcp_keep_seconds: int = 3_600
    """How long tasks and large results are kept."""
    prompts_directory: str = ""
    """A folder with prompts of the project's own; a file that is not there is Handrail's."""
    policy: Policy = field(default_factory=Policy)
    tool_policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    """`[policy.tools.NAME]`, by tool: what this host changes in it."""
    versions: Mapping[str, VersionRules] = field(default_factory=dict)
    """`[versions.NAME]`, by tool: which of its versions a session uses."""
    services: Mapping[str, ServiceConfig] = field(default_factory=dict, repr=False)
    """`[services.NAME]`, by name: what tools reach as `ctx.NAME`."""
    gates: Mapping[str, str] = field(default_factory=dict)
    """`[gates]`, in the order of the file: the name of each gate and where it is found, as `module:name`."""
    connections: Mapping[str, ConnectionConfig] = field(default_factory=dict)
    """`[connections.NAME]`, by name: services at which each person has a credential of their own."""
    mcp_resources: Mapping[str, str] = field(default_factory=dict)
    """`[mcp.resources]`: addresses, which may have places such as `{id}`, and the tools whose calls give what is there."""
    mcp_servers: Mapping[str, UpstreamConfig] = field(default_factory=dict, repr=False)
    """`[mcp.servers.NAME]`, by name: servers whose tools are brought into the project."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """`HANDRAIL_SECRET_<NAME>`, by name in lower case. Only from the environment: a file of settings is committed."""

    @property
    def tools_path(self) -> Path:
        return self.project / self.tools_directory

    @property
    def artifact_path(self) -> Path:
        return (
            self.project / self.tools_artifact if self.tools_artifact else self.tools_path.parent / "tool_registry.json"
        )


_TABLES = (
    "project",
    "policy",
    "tool_policies",
    "versions",
    "services",
    "gates",
    "connections",
    "mcp_resources",
    "mcp_servers",
    "secrets",
)
"""Fields of `Settings` that are no `<section>_<key>`."""
_SERVICE = "write [services.{0}] instead, and HANDRAIL_SERVICES_{1}_<KEY> in the environment"
_MOVED = {
    **{name: _SERVICE.format(name, name.upper()) for name in ("kb", "calendar", "images")},
    "models": '"directory" is now "models_directory" in [services.kb], and HANDRAIL_SERVICES_KB_MODELS_DIRECTORY',
}
"""Sections of earlier versions, and where what they said belongs now."""
_CHOICES = {
    "registry_validators": ("eager", "lazy"),
    "voice_recogniser": ("provider", "local"),
}
_KEYS = {field.name: field for field in fields(Settings) if field.name not in _TABLES}
_DEFAULTS = {name: field.default for name, field in _KEYS.items()}
_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*")


def find_project(start: Path) -> Path:
    """The nearest folder, upwards, that has a `handrail.toml`; `start` itself if there is none."""
    for folder in (start, *start.parents):
        if (folder / FILE).is_file():
            return folder
    return start


def load_settings(project: Path, environment: Mapping[str, str]) -> Settings:
    """The settings of a project; `ConfigError` with one sentence if one cannot be used."""
    values: dict[str, Any] = {}
    policy: Any = {}
    services: Any = {}
    gates: Any = {}
    connections: Any = {}
    versions: Any = {}
    servers: Mapping[str, Any] = {}
    resources: Mapping[str, str] = {}
    path = project / FILE
    if path.is_file():
        # Tables whose names the project chooses are taken out first: what is left is flat, and can be checked key by key.
        document = dict(_read(path))
        policy = document.pop("policy", {})
        services = document.pop("services", {})
        gates = document.pop("gates", {})
        connections = document.pop("connections", {})
        versions = document.pop("versions", {})
        document, servers, resources = _mcp_tables(document)
        values.update(_flatten(document))
    if not isinstance(policy, Mapping):
        raise ConfigError(f"[policy] in {FILE} must be a table.")
    if "forget_events" in policy or "HANDRAIL_POLICY_FORGET_EVENTS" in environment:
        raise ConfigError('"forget_events" in [policy] has moved: write it in [services.calendar].')
    tools = _tables("policy.tools", policy.get("tools", {}))
    policy = _policy_from(environment, {name: value for name, value in policy.items() if name != "tools"})
    _check_variables(environment)
    for name in _KEYS:
        # After the file, so that a machine's environment wins over what is committed.
        text = environment.get(f"HANDRAIL_{name.upper()}")
        if text is not None:
            values[name] = _from_text(name, text)
    checked = {name: _checked(name, value) for name, value in values.items()}
    upstream, connected = upstream_configs(servers), connection_configs(connections, environment)
    _check_signing_in(upstream, connected)
    return Settings(
        project=project,
        policy=Policy.from_dict(policy),
        tool_policies={name: ToolPolicy.from_dict(name, table) for name, table in tools.items()},
        versions={name: VersionRules.from_dict(name, table) for name, table in _tables("versions", versions).items()},
        services={**_gateway(upstream), **service_configs(services, environment)},
        gates=_gates(gates),
        connections=connected,
        mcp_resources=resources,
        mcp_servers=upstream,
        secrets=_secrets(environment),
        **checked,
    )


def _tables(section: str, table: Any) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{section}] in {FILE} must have a table for each tool, as [{section}.NAME].")
    return table


def _check_signing_in(servers: Mapping[str, UpstreamConfig], connections: Mapping[str, ConnectionConfig]) -> None:
    """A token that a person gave for one server is sent to no other."""
    for one in servers.values():
        connection = connections.get(one.connection)
        if connection is not None and connection.server and connection.server != one.url:
            raise ConfigError(
                f'[mcp.servers.{one.name}] has another "url" than the "server" of [connections.{one.connection}]; '
                "write the same address into both."
            )


def _gateway(servers: Mapping[str, UpstreamConfig]) -> dict[str, ServiceConfig]:
    """The service that calls MCP servers, opened as any other by those who run their tools."""
    enabled = {name: one for name, one in servers.items() if one.enabled}
    if not enabled:
        return {}
    factory = "handrail.mcp.gateway.gateway_factory:open_gateway"
    return {
        UPSTREAM_CAPABILITY: ServiceConfig(name=UPSTREAM_CAPABILITY, factory=factory, settings={"servers": enabled})
    }


def _mcp_tables(document: dict[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any], Mapping[str, str]]:
    """The document without `[mcp.servers]` and `[mcp.resources]`, and those tables."""
    section = document.get("mcp")
    if not isinstance(section, Mapping):
        return document, {}, {}
    servers, resources = section.get("servers", {}), section.get("resources", {})
    if not isinstance(servers, Mapping) or not all(isinstance(one, Mapping) for one in servers.values()):
        raise ConfigError(f"[mcp.servers] in {FILE} must hold a table for each server, as [mcp.servers.files].")
    if not isinstance(resources, Mapping) or not all(isinstance(one, str) for one in resources.values()):
        raise ConfigError(
            f'[mcp.resources] in {FILE} must name a tool for each address, as "notes://{{id}}" = "read_note".'
        )
    rest = {key: value for key, value in section.items() if key not in ("servers", "resources")}
    return {**document, "mcp": rest}, servers, resources


def _gates(table: Any) -> dict[str, str]:
    """Only from the file: a gate that a variable could take away would not be one."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"[gates] in {FILE} must be a table.")
    for name, place in table.items():
        if not isinstance(place, str) or not _PLACE.fullmatch(place):
            raise ConfigError(
                f'"{name}" in [gates] must be "module:name", such as "gates:OfficeHours"; {place!r} is not.'
            )
    return dict(table)


def _check_variables(environment: Mapping[str, str]) -> None:
    """A variable of a section that has no such key is a slip, which would otherwise change nothing without a word."""
    known = [f"HANDRAIL_{name.upper()}" for name in _KEYS]
    for item in fields(Policy):
        parts = [f"_{part.name}" for part in fields(ModePolicy)] if isinstance(item.default, ModePolicy) else [""]
        known += [f"HANDRAIL_POLICY_{item.name}{part}".upper() for part in parts]
    sections = tuple(sorted({name[: name.index("_", len("HANDRAIL_")) + 1] for name in known}))
    for name in environment:
        # Before the question whether there is such a setting: what was one once gets its new place named.
        moved = (
            _MOVED.get(name.removeprefix("HANDRAIL_").partition("_")[0].lower())
            if name.startswith("HANDRAIL_")
            else None
        )
        if moved is not None:
            raise ConfigError(f'The environment has "{name}", which has moved: {moved}.')
        if name.startswith(sections) and name not in known:
            of_section = [one for one in known if one.startswith(name[: name.index("_", len("HANDRAIL_")) + 1])]
            near = _near(name, of_section) or f"; known are {', '.join(of_section)}"
            raise ConfigError(f'The environment has "{name}", which is no setting{near}.')


def _secrets(environment: Mapping[str, str]) -> dict[str, str]:
    named = ((name.removeprefix(SECRET), value) for name, value in environment.items() if name.startswith(SECRET))
    return {name.lower(): value for name, value in named if name}


def _policy_from(environment: Mapping[str, str], policy: Mapping[str, Any]) -> dict[str, Any]:
    """The policy with what `HANDRAIL_POLICY_<KEY>` and `HANDRAIL_POLICY_<MODE>_<KEY>` override."""
    changed: dict[str, Any] = dict(policy)
    for item in fields(Policy):
        default = item.default
        variable = f"HANDRAIL_POLICY_{item.name.upper()}"
        if isinstance(default, ModePolicy):
            given = {part.name: environment.get(f"{variable}_{part.name.upper()}") for part in fields(ModePolicy)}
            numbers = {name: _number(text) for name, text in given.items() if text is not None}
            table = changed.get(item.name, {})
            if numbers and isinstance(table, Mapping):
                changed[item.name] = {**table, **numbers}
        elif (text := environment.get(variable)) is not None:
            if isinstance(default, bool):
                changed[item.name] = {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
            elif isinstance(default, (int, float)):
                changed[item.name] = _number(text)
            elif isinstance(default, str):
                changed[item.name] = text
            else:
                changed[item.name] = [part.strip() for part in text.split(",") if part.strip()]
    return changed


def _number(text: str) -> int | float | str:
    """A number; or the text itself, for the policy's own check to complain about."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


_TABLE = re.compile(r"\('(.+?)',?\)")
"""A table's name as `tomllib` writes it: `('tools',)`."""


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors on Windows write a byte order mark
    except UnicodeDecodeError:
        raise ConfigError(f"{FILE} is not UTF-8 text.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        # tomllib names a table as a Python tuple, which nobody has written into the file.
        said = _TABLE.sub(lambda found: "[" + found[1].replace("', '", ".") + "]", str(error))
        raise ConfigError(f"{FILE} is not TOML: {said}.") from None
    except OSError as error:
        raise ConfigError(f"{FILE} cannot be read ({error.strerror}).") from None


def _flatten(document: Mapping[str, Any]) -> dict[str, Any]:
    tables = {"policy", "services", "gates", "connections", "versions"}
    sections = sorted({name.split("_")[0] for name in _KEYS} | tables)
    flat: dict[str, Any] = {}
    for section, content in document.items():
        if section in _MOVED:
            raise ConfigError(f"[{section}] in {FILE} has moved: {_MOVED[section]}.")
        if section not in sections:
            raise ConfigError(
                f"{FILE} has no section [{section}]{_near(section, sections)}; known are {', '.join(sections)}."
            )
        if not isinstance(content, Mapping):
            raise ConfigError(f"[{section}] in {FILE} must be a table.")
        known = [name.split("_", 1)[1] for name in _KEYS if name.startswith(section + "_")]
        for key, value in content.items():
            if key not in known:
                raise ConfigError(
                    f'[{section}] in {FILE} has no key "{key}"{_near(key, known)}; known are {", ".join(known)}.'
                )
            if section == "credentials":
                raise ConfigError(f"[credentials] does not belong into {FILE}: set HANDRAIL_CREDENTIALS_KEYS instead.")
            flat[f"{section}_{key}"] = value
    return flat


def _checked(name: str, value: Any) -> Any:
    section, key = name.split("_", 1)
    default = _DEFAULTS[name]
    wanted: str | None = None
    if isinstance(default, bool):
        wanted = None if isinstance(value, bool) else "true or false"
    elif isinstance(default, int):
        # TOML's true is an int to Python; a switch in the place of a number is a slip.
        good = isinstance(value, int) and not isinstance(value, bool) and value > 0
        wanted = None if good else "a whole number greater than 0"
    elif isinstance(default, tuple):
        value = [value] if value == "*" and name == "tools_reference" else value
        good = isinstance(value, (list, tuple)) and all(isinstance(item, str) and item for item in value)
        wanted = None if good else "a list of texts"
        value = tuple(value) if good else value
    elif not isinstance(value, str) or (not value.strip() and default):
        wanted = "text"
    elif name in _CHOICES and value not in _CHOICES[name]:
        wanted = " or ".join(f'"{choice}"' for choice in _CHOICES[name])
    elif name == "voice_language" and not _LANGUAGE.fullmatch(value):
        wanted = 'the tag of a language, such as "en" or "de-AT"'
    elif name == "server_public_url" and value.strip() and not is_safe_address(value.strip()):
        wanted = 'an https address (http only on this machine), such as "https://desk.example.com"'
    elif name == "voice_base_url" and value.strip() and not _is_address(value.strip()):
        wanted = 'an address, such as "https://host/v1"'
    if wanted is not None:
        # A secret must not get into a log by being wrong.
        shown = "what it has" if name in ("audit_key", "credentials_keys", "identity_secret") else repr(value)
        raise ConfigError(f'"{key}" in [{section}] must be {wanted}; {shown} is not.')
    return value


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https", "ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket that is not closed, or a port that is none
        return False


def _from_text(name: str, text: str) -> Any:
    default = _DEFAULTS[name]
    if isinstance(default, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if isinstance(default, int):
        return int(text) if text.isdecimal() else text
    if isinstance(default, tuple):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _near(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""
