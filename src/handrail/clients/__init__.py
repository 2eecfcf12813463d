"""Text models by name: `open_model("anthropic:…")`. The provider and the model are one name, so changing either is one line.

What there is comes from the list of providers; a provider's SDK comes with its extra and is imported when a model is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from urllib.parse import urlsplit

from handrail.contract.errors import ConfigError
from handrail.contract.model import Model
from handrail.providers.catalogue import provider_of_scheme, schemes
from handrail.providers.client_requirements import (
    address_in,
    is_loopback,
    key_in,
    missing_packages,
    url_in,
    wrong_version,
)
from handrail.providers.provider import ModelClient, Provider, load
from handrail.providers.streaming_model import ClientLimits, StreamingModel

__all__ = ["ClientLimits", "address_of", "is_text_scheme", "open_model", "provider_of", "text_client", "whats_missing"]


def open_model(
    spec: str, *, environment: Mapping[str, str], base_url: str = "", limits: ClientLimits | None = None
) -> Model:
    """The model that `spec` names as "provider:model"; `ConfigError` in one sentence if it cannot be used."""
    _, client, name = _parse(spec)
    address, key = address_in(client, environment, base_url), key_in(environment, client.keys)
    missing = _missing(spec, client, address, key)
    if missing is not None:
        raise ConfigError(missing)
    # A local server wants no key, but the SDKs want one to send.
    sent = key or ("none" if client.needs_key else "")
    model: Model = load(client.opener)(name, api_key=sent, base_url=address or None, limits=limits or ClientLimits())
    if isinstance(model, StreamingModel):
        model.address = address or client.default_address
        if _is_vendors_own(client, address):
            model.id_scope = "session"
    return model


def _is_vendors_own(client: ModelClient, address: str) -> bool:
    """Whether the vendor itself answers there. Others of its protocol may give `call_0` to the first call of every message."""
    if not client.vendor_host or not address:
        return bool(client.vendor_host)
    host = (urlsplit(address).hostname or "").rstrip(".")
    return host == client.vendor_host or host.endswith(f".{client.vendor_host}")


def address_of(spec: str, *, environment: Mapping[str, str], base_url: str = "") -> str:
    """Where the model is asked, if that was said; empty where its SDK decides."""
    _, client, _ = _parse(spec)
    return address_in(client, environment, base_url) or client.default_address


def provider_of(spec: str) -> str:
    """Whose schema format the model's tools have; nothing needs to be installed or set for that."""
    return _parse(spec)[0].name


def text_client(scheme: str) -> ModelClient | None:
    """The client of the text models with this scheme; None if there are none."""
    found = provider_of_scheme(scheme)
    return found.client if found is not None and found.client is not None and not found.client.is_live else None


def is_text_scheme(scheme: str) -> bool:
    return text_client(scheme) is not None


def whats_missing(spec: str, *, environment: Mapping[str, str], base_url: str = "") -> str | None:
    """What has to be installed or set before this model can be asked, in a sentence; None if nothing."""
    try:
        _, client, _ = _parse(spec)
        return _missing(spec, client, address_in(client, environment, base_url), key_in(environment, client.keys))
    except ConfigError as error:
        return str(error)


def _parse(spec: str) -> tuple[Provider, ModelClient, str]:
    scheme, _, name = spec.partition(":")
    found = provider_of_scheme(scheme)
    if found is None or found.client is None:
        known = schemes(live=False)
        near = get_close_matches(scheme, known, n=1)
        hint = f' Did you mean "{near[0]}:{name or "…"}"?' if near else ""
        listed = ", ".join(f'"{one}:…"' for one in known)
        raise ConfigError(f'"model" in [agent] is "{spec}"; write "demo", "local:PATH.gguf", or one of {listed}.{hint}')
    if found.client.is_live:
        raise ConfigError(
            f'"{spec}" is a live model, which listens and speaks: name it under "model" in [voice], not in [agent].'
        )
    if not name or not name.isascii() or not name.isprintable() or " " in name or ".." in name:
        raise ConfigError(f'"model" in [agent] is "{spec}", which names no model; write "{scheme}:" and its name.')
    return found, found.client, name


def _missing(spec: str, client: ModelClient, address: str, key: str) -> str | None:
    subject = f'The model "{spec}"'
    missing = missing_packages(subject, client) or wrong_version(subject, client)
    if missing is not None:
        return missing
    if address:
        parts = url_in(address, client.url_schemes)
        if parts is None:
            return f'The base URL "{address}" of the model is none; write one such as "https://host/v1".'
        if key and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            return f'The base URL "{address}" would send the key over an open line; write "https://".'
        if is_loopback(parts.hostname or ""):
            return None
    if client.needs_key and not key:
        return f'The model "{spec}" needs a key; set {client.keys[0]} in the environment.'
    return None
