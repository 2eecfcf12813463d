"""Anthropic's Messages on the anthropic SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from anthropic import APIConnectionError, APIStatusError, AsyncAnthropic

from handrail.clients.streaming import ClientLimits, Failure, RawAnswer, StreamingModel, failure_of
from handrail.providers.anthropic import transport


def open_messages(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    timeout = httpx2.Timeout(limits.idle_seconds, connect=limits.connect_seconds)
    client = AsyncAnthropic(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=0)
    return StreamingModel(name, transport, _Wire(client), limits, key_name="ANTHROPIC_API_KEY")


class _Wire:
    def __init__(self, client: AsyncAnthropic) -> None:
        self._client = client
        messages: Any = client.messages
        self._create = messages.with_streaming_response.create

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
