"""OpenAI's two text APIs, Chat Completions and Responses, on the openai SDK. Servers that speak Chat Completions work as well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from openai import APIConnectionError, APIStatusError, AsyncOpenAI

from handrail.clients.streaming import ClientLimits, Failure, RawAnswer, StreamingModel, failure_of
from handrail.providers.openai_chat import transport as chat
from handrail.providers.openai_responses import transport as responses


def open_chat(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    wire = _Wire(_client(api_key, base_url, limits), "chat")
    return StreamingModel(name, chat, wire, limits, key_name="OPENAI_API_KEY")


def open_responses(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    wire = _Wire(_client(api_key, base_url, limits), "responses")
    return StreamingModel(name, responses, wire, limits, key_name="OPENAI_API_KEY")


def _client(api_key: str, base_url: str | None, limits: ClientLimits) -> AsyncOpenAI:
    timeout = httpx2.Timeout(limits.idle_seconds, connect=limits.connect_seconds)
    return AsyncOpenAI(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=0)


class _Wire:
    def __init__(self, client: AsyncOpenAI, api: str) -> None:
        self._client = client
        methods: dict[str, Any] = {"chat": client.chat.completions, "responses": client.responses}
        self._create = methods[api].with_streaming_response.create

    @asynccontextmanager
    async def open(self, body: dict[str, Any]) -> AsyncIterator[RawAnswer]:
        # The bytes as they are: the SDK's own stream ends at the first event that it cannot read.
        async with self._create(**body) as response:
            yield RawAnswer(response.headers.get("content-type", ""), response.iter_bytes())

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, APIStatusError):
            return failure_of(error, error.status_code, error.response.headers, error.message)
        return Failure(None) if isinstance(error, (APIConnectionError, httpx2.HTTPError, OSError)) else None

    async def close(self) -> None:
        await self._client.close()
