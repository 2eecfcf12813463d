"""Clients of text models on the official SDKs. Each comes with an extra and is imported when it is asked for.

`open_model("anthropic:…")` is the way in: the provider and the model in one name, so that changing either is one line.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, urlsplit

from handrail.contract.errors import ConfigError, missing_extra
from handrail.contract.model import Model
from handrail.providers.streaming_model import ClientLimits, StreamingModel

__all__ = ["CLIENTS", "Client", "ClientLimits", "address_of", "open_model", "provider_of", "whats_missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How a provider's client is found, and what it needs."""

    provider: str
    """Whose schema format its tools have."""
    opener: str
    package: str
    distribution: str
    """The package's name where it is installed from."""
    versions: tuple[str, str | None]
    """The first version that will do, and the first that will not any more, as the extra has it."""
    extra: str
    keys: tuple[str, ...]
    """The environment's variables that may hold the key, the first that is set counts."""
    address: str
    """The environment's variable that may hold the base URL."""
    needs_key: bool = True
    local: str = ""
    """Where it is if nothing else is said, for one that runs on this machine."""
    vendor: str = ""
    """The host of the vendor's own endpoint, whose call ids are unique; its regions stand before it. Empty: no such endpoint."""


_OPENAI: dict[str, Any] = {
    "package": "openai",
    "distribution": "openai",
    "versions": ("3.49", None),
    "extra": "openai",
    "keys": ("OPENAI_API_KEY",),
    "address": "OPENAI_BASE_URL",
    "vendor": "api.openai.com",
}
CLIENTS: Mapping[str, Client] = {
    "openai": Client(provider="openai-chat", opener="openai.client:open_chat", **_OPENAI),
    "openai-chat": Client(provider="openai-chat", opener="openai.client:open_chat", **_OPENAI),
    "openai-responses": Client(provider="openai-responses", opener="openai.client:open_responses", **_OPENAI),
    "anthropic": Client(
        provider="anthropic",
        opener="anthropic.client:open_messages",
        package="anthropic",
        distribution="anthropic",
        versions=("2.8", None),
        extra="anthropic",
        keys=("ANTHROPIC_API_KEY",),
        address="ANTHROPIC_BASE_URL",
        vendor="api.anthropic.com",
    ),
    "gemini": Client(
        provider="gemini",
        opener="gemini.http.client:open_generate",
        package="google.genai",
        distribution="google-genai",
        versions=("3.1", "4"),
        extra="gemini",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        address="GOOGLE_GEMINI_BASE_URL",
        vendor="generativelanguage.googleapis.com",
    ),
    "ollama": Client(
        provider="ollama",
        opener="ollama.client:open_ollama",
        package="httpx2",
        distribution="httpx2",
        versions=("2.16", None),
        extra="ollama",
        keys=("OLLAMA_API_KEY",),
        address="OLLAMA_HOST",
        needs_key=False,
        local="http://127.0.0.1:11434",
    ),
}
"""What may stand before the colon in the name of a model."""


def open_model(
    spec: str, *, environment: Mapping[str, str], base_url: str = "", limits: ClientLimits | None = None
) -> Model:
    """The model that `spec` names as "provider:model"; `ConfigError` in one sentence if it cannot be used."""
    client, name = _parse(spec)
    address, key = address_in(client, environment, base_url), key_in(environment, client.keys)
    missing = _missing(spec, client, address, key)
    if missing is not None:
        raise ConfigError(missing)
    module, _, opener = client.opener.partition(":")
    make = getattr(import_module(f"handrail.providers.{module}"), opener)
    # A local server wants no key, but the SDKs want one to send.
    sent = key or ("none" if client.needs_key else "")
    model: Model = make(name, api_key=sent, base_url=address or None, limits=limits or ClientLimits())
    if isinstance(model, StreamingModel):
        model.address = address or client.local
        if _is_vendors_own(client, address):
            model.id_scope = "session"
    return model


def _is_vendors_own(client: Client, address: str) -> bool:
    """Whether the vendor itself answers there. Others of its protocol may give `call_0` to the first call of every message."""
    if not client.vendor or not address:
        return bool(client.vendor)
    host = (urlsplit(address).hostname or "").rstrip(".")
    return host == client.vendor or host.endswith(f".{client.vendor}")


def address_of(spec: str, *, environment: Mapping[str, str], base_url: str = "") -> str:
    """Where the model is asked, if that was said; empty where its SDK decides."""
    client, _ = _parse(spec)
    return address_in(client, environment, base_url) or client.local


def provider_of(spec: str) -> str:
    """Whose schema format the model's tools have; nothing needs to be installed or set for that."""
    return _parse(spec)[0].provider


def whats_missing(spec: str, *, environment: Mapping[str, str], base_url: str = "") -> str | None:
    """What has to be installed or set before this model can be asked, in a sentence; None if nothing."""
    try:
        client, _ = _parse(spec)
        return _missing(spec, client, address_in(client, environment, base_url), key_in(environment, client.keys))
    except ConfigError as error:
        return str(error)


def _parse(spec: str) -> tuple[Client, str]:
    provider, _, name = spec.partition(":")
    known = ", ".join(f'"{one}:…"' for one in CLIENTS if one != "openai-chat")
    if provider in ("openai-realtime", "gemini-live"):
        raise ConfigError(
            f'"{spec}" is a live model, which listens and speaks: name it under "model" in [voice], not in [agent].'
        )
    if provider not in CLIENTS:
        near = get_close_matches(provider, CLIENTS, n=1)
        hint = f' Did you mean "{near[0]}:{name or "…"}"?' if near else ""
        raise ConfigError(f'"model" in [agent] is "{spec}"; write "demo", "local:PATH.gguf", or one of {known}.{hint}')
    if not name or not name.isascii() or not name.isprintable() or " " in name or ".." in name:
        raise ConfigError(f'"model" in [agent] is "{spec}", which names no model; write "{provider}:" and its name.')
    return CLIENTS[provider], name


def _missing(spec: str, client: Client, address: str, key: str) -> str | None:
    if not is_installed(client.package):
        return str(missing_extra(f'The model "{spec}"', client.extra))
    unfit = _unfit(client)
    if unfit is not None:
        return f'The model "{spec}" needs {unfit}; run `pip install "handrail[{client.extra}]"`.'
    if address:
        parts = url_in(address, ("http", "https"))
        if parts is None:
            return f'The base URL "{address}" of the model is none; write one such as "https://host/v1".'
        if key and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            return f'The base URL "{address}" would send the key over an open line; write "https://".'
        if is_loopback(parts.hostname or ""):
            return None
    if client.needs_key and not key:
        return f'The model "{spec}" needs a key; set {client.keys[0]} in the environment.'
    return None


def url_in(address: str, schemes: Collection[str]) -> SplitResult | None:
    """The parts of an address with a host and one of the schemes; None if it is no such."""
    try:
        parts = urlsplit(address)
        _ = parts.port  # read, it is checked
    except ValueError:  # a bracket that is not closed, or a port that is none
        return None
    return parts if parts.scheme in schemes and parts.hostname else None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package above it is not there
        return False


def _unfit(client: Client) -> str | None:
    """Which version of the SDK is needed and which is there, if that is another; a later SDK has other parts."""
    try:
        found = version(client.distribution)
    except PackageNotFoundError:  # not installed as a package: there is no saying which one it is
        return None
    first, beyond = client.versions
    if _numbers(found) >= _numbers(first) and (beyond is None or _numbers(found) < _numbers(beyond)):
        return None
    wanted = f"{client.distribution} {first} or later" + (f" but before {beyond}" if beyond else "")
    return f"{wanted}, and {found} is installed"


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: what comes after them (rc1, .dev2) does not matter here."""
    return tuple(int(number) for number in re.findall(r"(?:^|(?<=\d)\.)(\d+)", text))


def key_in(environment: Mapping[str, str], names: Collection[str]) -> str:
    """The key under the first of the names that is set; empty if none is."""
    return next((environment[name].strip() for name in names if environment.get(name, "").strip()), "")


def address_in(client: Client, environment: Mapping[str, str], base_url: str = "") -> str:
    """Where the settings or the environment say that the provider is; empty if neither does."""
    address = base_url.strip() or environment.get(client.address, "").strip()
    if address and client.address == "OLLAMA_HOST" and "://" not in address:
        address = f"http://{address}"
        host = urlsplit(address)
        address = address if host.port is not None else f"{address}:11434"
    return address.rstrip("/")
