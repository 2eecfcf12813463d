"""Live clients: spoken conversations on the official SDKs, which come with the extras and are imported when one is opened.

`open_live_model("gemini-live:…")` is the way in: the provider and the model in one name, so that changing either is one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from handrail.clients import is_installed, is_loopback, key_in, url_in
from handrail.contract.errors import ConfigError, missing_extra
from handrail.contract.live import LiveLimits, LiveModel

__all__ = ["LIVE_CLIENTS", "LiveClient", "open_live_model", "whats_missing_live"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveClient:
    """How a provider's live client is found, and what it needs."""

    opener: str
    packages: tuple[str, ...]
    extra: str
    keys: tuple[str, ...]
    """The environment's variables that may hold the key, the first that is set counts."""
    schemes: tuple[str, ...]


LIVE_CLIENTS: Mapping[str, LiveClient] = {
    "gemini-live": LiveClient(
        opener="gemini.live.client:GeminiLive",
        packages=("google.genai",),
        extra="gemini",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        schemes=("https", "wss"),
    ),
    "openai-realtime": LiveClient(
        opener="openai.realtime.client:OpenAIRealtime",
        packages=("openai", "websockets"),
        extra="openai",
        keys=("OPENAI_API_KEY",),
        schemes=("https", "wss", "http", "ws"),
    ),
}
"""What may stand before the colon in the name of a live model."""


def open_live_model(
    spec: str,
    *,
    environment: Mapping[str, str],
    base_url: str = "",
    limits: LiveLimits | None = None,
    **options: Any,
) -> LiveModel:
    """The live model that `spec` names as "provider:model"; `ConfigError` in one sentence if it cannot be used.

    `options` are those that only one provider has, such as `tls` for a server with a certificate of its own.
    """
    missing = whats_missing_live(spec, environment=environment, base_url=base_url)
    if missing is not None:
        raise ConfigError(missing)
    client, name = _parse(spec)
    module, _, opener = client.opener.partition(":")
    make = getattr(import_module(f"handrail.providers.{module}"), opener)
    model: LiveModel = make(
        name, api_key=key_in(environment, client.keys), base_url=base_url.strip() or None, limits=limits, **options
    )
    return model


def whats_missing_live(spec: str, *, environment: Mapping[str, str], base_url: str = "") -> str | None:
    """What has to be installed or set before this model can be spoken with, in a sentence; None if nothing."""
    try:
        client, _ = _parse(spec)
    except ConfigError as error:
        return str(error)
    if not all(map(is_installed, client.packages)):
        return str(missing_extra(f'The live model "{spec}"', client.extra))
    if not key_in(environment, client.keys):
        return f'The live model "{spec}" needs a key; set {client.keys[0]} in the environment.'
    return _wrong_address(client, base_url.strip())


def _parse(spec: str) -> tuple[LiveClient, str]:
    provider, _, name = spec.partition(":")
    if provider not in LIVE_CLIENTS or not name or not name.isascii() or not name.isprintable() or " " in name:
        near = get_close_matches(provider, LIVE_CLIENTS, n=1) if provider not in LIVE_CLIENTS else []
        hint = f' Did you mean "{near[0]}:{name or "…"}"?' if near else ""
        known = " or ".join(f'"{one}:…"' for one in LIVE_CLIENTS)
        raise ConfigError(f'"{spec}" is not a live model; write {known} with the name of a model.{hint}')
    return LIVE_CLIENTS[provider], name


def _wrong_address(client: LiveClient, address: str) -> str | None:
    if not address:
        return None
    parts = url_in(address, client.schemes)
    if parts is None or parts.port == 0:
        return f'The base URL "{address}" of the live model is none; write one such as "https://host/v1".'
    if parts.scheme in ("http", "ws") and not is_loopback(parts.hostname or ""):
        return f'The base URL "{address}" would send the key over an open line; write "https://".'
    return None
