"""Gemini over HTTP on the google-genai SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from google.genai import Client
from google.genai.errors import APIError
from google.genai.types import HttpOptions, HttpRetryOptions

from handrail.contract.errors import ConfigError, install_command
from handrail.providers.gemini.http import transport
from handrail.providers.streaming_model import ClientLimits, Failure, RawAnswer, StreamingModel, failure_of

_INNER = ("_build_request", "_async_request")
"""What is used of the SDK's inside, where nothing promises that it stays. The extra keeps the SDK below its next major one."""


def open_generate(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    timeout = httpx2.Timeout(limits.idle_seconds, connect=limits.connect_seconds)
    http = httpx2.AsyncClient(timeout=timeout)
    options = HttpOptions(base_url=base_url, httpx_async_client=http, retry_options=HttpRetryOptions(attempts=1))
    client = Client(vertexai=False, api_key=api_key, http_options=options)
    missing = [name for name in _INNER if not callable(getattr(getattr(client, "_api_client", None), name, None))]
    if missing:
        raise ConfigError(
            f'This version of google-genai has no "{missing[0]}", which the client needs; install 3.x '
            f"with {install_command('handrail[gemini]')}."
        )
    return StreamingModel(name, transport, _GeminiEndpoint(client, http, name), limits, key_name="GEMINI_API_KEY")


class _GeminiEndpoint:
    def __init__(self, client: Client, http: httpx2.AsyncClient, name: str) -> None:
        self._client = client
        self._http = http
        self._path = f"{name if '/' in name else f'models/{name}'}:streamGenerateContent?alt=sse"

    @asynccontextmanager
    async def open(self, body: dict[str, Any]) -> AsyncIterator[RawAnswer]:
        # One level below `generate_content_stream`: that one decodes thought signatures and encodes them anew, which must
        # go back as they came, and it ends at the first event that it cannot read.
        sdk: Any = self._client._api_client
        asked = sdk._build_request("post", self._path, body, None)
        answer = await sdk._async_request(http_request=asked, http_options=None, stream=True)
        response: httpx2.Response = answer.response_stream
        try:
            yield RawAnswer(response.headers.get("content-type", ""), response.aiter_bytes())
        finally:
            await response.aclose()

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, APIError):
            headers = getattr(error.response, "headers", None)
            return failure_of(error, error.code, headers, error.message or "")
        return Failure(None) if isinstance(error, (httpx2.HTTPError, OSError)) else None

    async def close(self) -> None:
        await self._client.aio.aclose()
        await self._http.aclose()
