"""`[connections.NAME]` of `handrail.toml`: a service at which each person has a credential of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from handrail.contract.bearer_challenge import SCOPE
from handrail.contract.errors import ConfigError

_FILE = "handrail.toml"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CLIENT_AUTH = ("basic", "post", "none")
REVOKES = ("grant", "account")
_ADDRESSES = (
    "server",
    "issuer",
    "authorization_endpoint",
    "token_endpoint",
    "revocation_endpoint",
    "device_endpoint",
    "resource",
)
_FOUND = ("authorization_endpoint", "token_endpoint", "revocation_endpoint", "device_endpoint")
_PROVIDERS: Mapping[str, Mapping[str, Any]] = {
    "google": {
        "label": "Google",
        "issuer": "https://accounts.google.com",
        "authorization_endpoint": "https://accounts.google.com/o/oauth2/v2/auth",
        "token_endpoint": "https://oauth2.googleapis.com/token",
        "revocation_endpoint": "https://oauth2.googleapis.com/revoke",
        "device_endpoint": "https://oauth2.googleapis.com/device/code",
        "client_auth": "post",
        "revokes": "account",
        # Without them Google gives a refresh token once, to the first connection of a person, or none.
        "parameters": {"access_type": "offline", "prompt": "consent"},
    },
}
"""What need not be written for a provider that is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """One `[connections.NAME]`. Endpoints that are not given are looked up at the issuer."""

    name: str
    label: str = ""
    """The service as people know it; the name if nothing is given."""
    server: str = ""
    """The protected server, such as an MCP server: it says where people sign in, and a client is registered there."""
    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    revocation_endpoint: str = ""
    device_endpoint: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    """From the environment; empty for a public client."""
    client_secret_env: str = ""
    """Where it comes from. Most commands need no secret, so that it is not set is found by whoever connects: `check_secret`."""
    client_auth: str = ""
    """How the client shows its secret: `basic`, `post`, or `none` without one."""
    revokes: str = "grant"
    """What ends with a token that is revoked: the `grant` that it came from (RFC 7009), or all that the `account` has granted to
    this client. Google does the latter, so the token that a new one has replaced cannot be revoked while the new one is used."""
    scopes: tuple[str, ...] = ()
    resource: str = ""
    """The service that tokens are for (RFC 8707), where the authorization server asks for it."""
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """More of the authorization request."""
    tools: tuple[str, ...] = ()
    """The tools that may use it; empty: every tool that lists `secrets` among its capabilities."""


_KEYS = ("provider", *(one.name for one in fields(ConnectionConfig)))
_WRITTEN = tuple(key for key in _KEYS if key not in ("name", "client_secret"))


def connection_configs(document: Any, environment: Mapping[str, str]) -> Mapping[str, ConnectionConfig]:
    """The connections of a project, by name; `ConfigError` with one sentence if a table cannot be used."""
    if not isinstance(document, Mapping):
        raise ConfigError(f"[connections] in {_FILE} must hold tables, such as [connections.google].")
    configs = {name: _config(name, table, environment) for name, table in document.items()}
    return MappingProxyType(configs)


def _config(name: str, table: Any, environment: Mapping[str, str]) -> ConnectionConfig:
    place = f"[connections.{name}]"
    if not isinstance(table, Mapping):
        raise ConfigError(f'"{name}" in [connections] must be a table; write {place}.')
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{place} cannot be a connection; use small letters, digits and underscores, a letter first, at most 64."
        )
    _check_keys(place, table)
    provider = table.get("provider", "")
    if provider and provider not in _PROVIDERS:
        raise ConfigError(f'"provider" in {place} must be {" or ".join(_PROVIDERS)}, or left out; {provider!r} is not.')
    values = {**_PROVIDERS.get(provider, {}), **table}
    values.pop("provider", None)
    _check_values(place, values)
    if values.get("server"):
        taken = [key for key in (*_FOUND, "resource") if values.get(key)]
        if taken:
            raise ConfigError(f'{place} has a "server", which says itself what "{taken[0]}" is; leave that out.')
    elif not values.get("client_id"):
        raise ConfigError(f'{place} needs a "client_id", which the service gives when an application is registered.')
    if (
        not values.get("server")
        and not values.get("issuer")
        and not (values.get("authorization_endpoint") and values.get("token_endpoint"))
    ):
        raise ConfigError(
            f'{place} needs a "server", an "issuer", an "authorization_endpoint" and a "token_endpoint", '
            'or provider = "google".'
        )
    variable = values.get("client_secret_env", "")
    if variable and not _VARIABLE.fullmatch(variable):
        raise ConfigError(f'"client_secret_env" in {place} must be the name of an environment variable.')
    secret = environment.get(variable, "").strip() if variable else ""
    auth = values.get("client_auth") or ("basic" if variable else "none")
    if (auth == "none") == bool(variable):
        wanted = "has no secret" if auth == "none" else 'needs a "client_secret_env"'
        raise ConfigError(f'{place} with client_auth = "{auth}" {wanted}.')
    for key in ("scopes", "tools"):
        values[key] = tuple(values.get(key, ()))
    values["parameters"] = MappingProxyType(dict(values.get("parameters", {})))
    return ConnectionConfig(
        **{**values, "name": name, "label": values.get("label") or name, "client_auth": auth, "client_secret": secret}
    )


def _check_keys(place: str, table: Mapping[str, Any]) -> None:
    if "client_secret" in table:
        raise ConfigError(
            f'{place} must not hold the secret itself; write client_secret_env = "NAME_OF_A_VARIABLE" and set that.'
        )
    for key in table:
        if key not in _WRITTEN:
            near = get_close_matches(key, _WRITTEN, n=1)
            hint = f' (did you mean "{near[0]}"?)' if near else ""
            raise ConfigError(f'{place} has no key "{key}"{hint}; known are {", ".join(_WRITTEN)}.')


def _check_values(place: str, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        wanted = None
        if key in ("scopes", "tools"):
            good = isinstance(value, (list, tuple)) and all(
                isinstance(one, str) and SCOPE.fullmatch(one) for one in value
            )
            wanted = None if good else "a list of texts without spaces"
        elif key == "parameters":
            good = isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values())
            wanted = None if good else "a table of texts"
            taken = sorted(RESERVED.intersection(value)) if good else []
            if taken:
                raise ConfigError(f'"parameters" in {place} cannot hold "{taken[0]}", which Handrail sets itself.')
        elif not isinstance(value, str) or not value.isprintable():
            wanted = "text"
        elif key in _ADDRESSES and value and not is_safe_address(value):
            wanted = "an https address (http only on this machine)"
        elif key == "client_auth" and value and value not in CLIENT_AUTH:
            wanted = " or ".join(f'"{one}"' for one in CLIENT_AUTH)
        elif key == "revokes" and value not in REVOKES:
            wanted = " or ".join(f'"{one}"' for one in REVOKES)
        if wanted is not None:
            # An address may hold a password, which is not repeated.
            given = "this is none" if key in _ADDRESSES and "@" in str(value) else f"{value!r} is not"
            raise ConfigError(f'"{key}" in {place} must be {wanted}; {given}.')


RESERVED = frozenset(
    ("client_id", "client_secret", "response_type", "redirect_uri", "state", "code_challenge", "code_challenge_method")
)
"""Parameters of the authorization request that a configuration cannot take over."""


def check_secret(config: ConnectionConfig) -> None:
    """`ConfigError` if the client has a secret and the environment lacks it."""
    if config.client_secret_env and not config.client_secret:
        raise ConfigError(
            f"[connections.{config.name}] takes its secret from the environment variable "
            f'"{config.client_secret_env}", which is not set.'
        )


def metadata_addresses(issuer: str) -> list[str]:
    """Where an authorization server describes itself: RFC 8414, OpenID Connect, and as many with a path do it."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    names = ("oauth-authorization-server", "openid-configuration")
    places = [urlunsplit((parts.scheme, parts.netloc, f"/.well-known/{name}{path}", "", "")) for name in names]
    return [*places, *(f"{issuer.rstrip('/')}/.well-known/{name}" for name in reversed(names) if path)]


def is_safe_address(text: str) -> bool:
    """An address to which a secret may be sent: https, or http on this machine, without a user or a fragment."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # a bracket that is not closed, or a port that is none
        return False
    if not host or port == 0 or parts.username is not None or parts.fragment:
        return False
    if not (text.isascii() and text.isprintable()) or " " in text or "\\" in text:
        return False  # browsers, terminals and we have to read the same in it
    return parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
