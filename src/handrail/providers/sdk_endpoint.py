"""The wire of the SDKs of Anthropic and OpenAI, which are made alike: the request through the SDK, the answer as raw bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import httpx2

from handrail.providers.streaming_model import Failure, RawAnswer, failure_of


class SdkEndpoint:
    """`api` is the part of the SDK's `client` that is asked; `sdk` names its errors."""

    def __init__(self, sdk: ModuleType, client: Any, api: Any) -> None:
        self._sdk = sdk
        self._client = client
        self._create = api.with_streaming_response.create

    @asynccontextmanager
    async def open(self, body: dict[str, Any]) -> AsyncIterator[RawAnswer]:
        # The bytes as they are: the SDK's own stream ends at the first event that it cannot read.
        async with self._create(**body) as response:
            yield RawAnswer(response.headers.get("content-type", ""), response.iter_bytes())

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, self._sdk.APIStatusError):
            return failure_of(error, error.status_code, error.response.headers, error.message)
        return Failure(None) if isinstance(error, (self._sdk.APIConnectionError, httpx2.HTTPError, OSError)) else None

    async def close(self) -> None:
        await self._client.close()
