"""Live models by name: `open_live_model("gemini-live:…")`. They listen and speak.

What there is comes from the list of providers; a provider's SDK comes with its extra and is imported when a model is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from handrail.contract.errors import ConfigError
from handrail.contract.live import LiveLimits, LiveModel
from handrail.providers.catalogue import provider_of_scheme, schemes
from handrail.providers.client_requirements import is_loopback, key_in, missing_packages, url_in
from handrail.providers.provider import ModelClient, load

__all__ = ["open_live_model", "whats_missing_live"]


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
    model: LiveModel = load(client.opener)(
        name, api_key=key_in(environment, client.keys), base_url=base_url.strip() or None, limits=limits, **options
    )
    return model


def whats_missing_live(spec: str, *, environment: Mapping[str, str], base_url: str = "") -> str | None:
    """What has to be installed or set before this model can be spoken with, in a sentence; None if nothing."""
    try:
        client, _ = _parse(spec)
    except ConfigError as error:
        return str(error)
    missing = missing_packages(f'The live model "{spec}"', client)
    if missing is not None:
        return missing
    if client.needs_key and not key_in(environment, client.keys):
        return f'The live model "{spec}" needs a key; set {client.keys[0]} in the environment.'
    return _wrong_address(client, base_url.strip())


def _parse(spec: str) -> tuple[ModelClient, str]:
    scheme, _, name = spec.partition(":")
    found = provider_of_scheme(scheme)
    client = found.client if found is not None and found.client is not None and found.client.is_live else None
    if client is None or not name or not name.isascii() or not name.isprintable() or " " in name:
        known = schemes(live=True)
        near = get_close_matches(scheme, known, n=1) if client is None else []
        hint = f' Did you mean "{near[0]}:{name or "…"}"?' if near else ""
        listed = " or ".join(f'"{one}:…"' for one in known)
        raise ConfigError(f'"{spec}" is not a live model; write {listed} with the name of a model.{hint}')
    return client, name


def _wrong_address(client: ModelClient, address: str) -> str | None:
    if not address:
        return None
    parts = url_in(address, client.url_schemes)
    if parts is None or parts.port == 0:
        return f'The base URL "{address}" of the live model is none; write one such as "https://host/v1".'
    if parts.scheme in ("http", "ws") and not is_loopback(parts.hostname or ""):
        return f'The base URL "{address}" would send the key over an open line; write "https://".'
    return None
