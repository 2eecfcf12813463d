"""Ollama over plain HTTP: its own Python client loses call ids and parts of schemas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import orjson

from handrail.providers.ollama import CLIENT, transport
from handrail.providers.streaming_model import ClientLimits, Failure, RawAnswer, StreamingModel, failure_of

_MOST_ERROR_BYTES = 10_000


def open_ollama(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    timeout = httpx2.Timeout(limits.idle_seconds, connect=limits.connect_seconds)
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    client = httpx2.AsyncClient(base_url=base_url or CLIENT.default_address, timeout=timeout, headers=headers)
    return StreamingModel(name, transport, _Wire(client), limits, lines=True, key_name="OLLAMA_API_KEY")


class _Refused(Exception):
    """The server answered with an error's status."""

    def __init__(self, response: httpx2.Response, message: str) -> None:
        super().__init__(message)
        self.response = response


class _Wire:
    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    @asynccontextmanager
    async def open(self, body: dict[str, Any]) -> AsyncIterator[RawAnswer]:
        async with self._client.stream("POST", "/api/chat", json=body) as response:
            if response.status_code != 200:
                raise _Refused(response, await _message(response))
            yield RawAnswer(response.headers.get("content-type", ""), response.aiter_bytes())

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, _Refused):
            return failure_of(error, error.response.status_code, error.response.headers, str(error))
        return Failure(None) if isinstance(error, (httpx2.HTTPError, OSError)) else None

    async def close(self) -> None:
        await self._client.aclose()


async def _message(response: httpx2.Response) -> str:
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MOST_ERROR_BYTES:
            break
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    error = found.get("error") if isinstance(found, dict) else None
    return error if isinstance(error, str) else ""
