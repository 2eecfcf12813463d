"""Ollama over plain HTTP: its own Python client loses call ids and parts of schemas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import httpx2

from handrail.contract.model import ModelEvent, ModelRequest
from handrail.providers.context_windows import say_unknown
from handrail.providers.event_stream import count_in, object_in, text_in
from handrail.providers.http_endpoint import HttpEndpoint
from handrail.providers.ollama import CLIENT, transport
from handrail.providers.streaming_model import ClientLimits, StreamingModel

_LOOKUP_SECONDS = 5.0
"""An answer does not wait longer for what the server says of the model."""
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)


def open_ollama(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    timeout = httpx2.Timeout(limits.idle_seconds, connect=limits.connect_seconds)
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    client = httpx2.AsyncClient(base_url=base_url or CLIENT.default_address, timeout=timeout, headers=headers)
    return OllamaModel(name, client, limits)


class OllamaModel(StreamingModel):
    """A model of an Ollama. Its window is in no table, because it is the server's: before the first request it is asked what the
    model was made for and what its `num_ctx` leaves of that; before the next, how much room it was given when it was loaded."""

    def __init__(self, name: str, client: httpx2.AsyncClient, limits: ClientLimits) -> None:
        endpoint = HttpEndpoint(client, "/api/chat")
        super().__init__(name, transport, endpoint, limits, lines=True, key_name=CLIENT.keys[0])
        self._client = client
        self._window: int | None = None
        self._is_shown = self._is_loaded = False

    @property
    def context_window(self) -> int | None:
        return self._window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if not self._is_shown:
            self._is_shown = True
            self._window = _shown_window(await self._look_up("POST", "/api/show", {"model": self.name}))
        elif not self._is_loaded:
            await self._measure_room()
        async with aclosing(super().stream(request)) as events:
            async for event in events:
                yield event

    async def _measure_room(self) -> None:
        room = _room(await self._look_up("GET", "/api/ps"), self.name)
        self._is_loaded = room is not None
        if room:
            self._window = min(room, self._window or room)
        if self._is_loaded and self._window is None:
            say_unknown(self.provider, self.name)

    async def _look_up(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the server says; nothing where it does not, because the answer to the user does not depend on it."""
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                answer = await self._client.request(method, path, json=body)
            return object_in(answer.json()) if answer.status_code == 200 else {}
        except (httpx2.HTTPError, OSError, ValueError, RecursionError):
            return {}


def _shown_window(shown: Mapping[str, Any]) -> int | None:
    """By `/api/show`: the length that the model was made for, or the `num_ctx` of its Modelfile where that is less."""
    facts = object_in(shown.get("model_info"))
    named = _NUM_CTX.search(text_in(shown.get("parameters")))
    sizes = [count_in(value) for name, value in facts.items() if name.endswith(".context_length")]
    return min(filter(None, [*sizes, int(named[1]) if named else 0]), default=None)


def _room(running: Mapping[str, Any], name: str) -> int | None:
    """By `/api/ps`: the tokens that the model has room for; 0 where an old server does not say it; None if it is not loaded."""
    models = running.get("models")
    for one in map(object_in, models if isinstance(models, list) else ()):
        if text_in(one.get("name")) in (name, f"{name}:latest"):
            return count_in(one.get("context_length"))
    return None
