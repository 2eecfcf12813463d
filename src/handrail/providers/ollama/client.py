"""Ollama over plain HTTP: its own Python client loses call ids and parts of schemas."""

from __future__ import annotations

import httpx2

from handrail.providers.http_endpoint import HttpEndpoint
from handrail.providers.ollama import CLIENT, transport
from handrail.providers.streaming_model import ClientLimits, StreamingModel


def open_ollama(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    timeout = httpx2.Timeout(limits.idle_seconds, connect=limits.connect_seconds)
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    client = httpx2.AsyncClient(base_url=base_url or CLIENT.default_address, timeout=timeout, headers=headers)
    endpoint = HttpEndpoint(client, "/api/chat")
    return StreamingModel(name, transport, endpoint, limits, lines=True, key_name=CLIENT.keys[0])
