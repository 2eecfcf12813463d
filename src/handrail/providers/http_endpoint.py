"""An endpoint over plain HTTP, for a provider whose SDK is none or would lose something on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import orjson

from handrail.providers.streaming_model import Failure, RawAnswer, failure_of

_MAX_ERROR_BYTES = 10_000


class _ErrorStatus(Exception):
    """The server answered with an error's status."""

    def __init__(self, response: httpx2.Response, message: str) -> None:
        super().__init__(message)
        self.response = response


class HttpEndpoint:
    """Posts JSON to one path; the answer is read as raw bytes. Closing it closes the HTTP client."""

    def __init__(self, client: httpx2.AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    @asynccontextmanager
    async def open(self, body: dict[str, Any]) -> AsyncIterator[RawAnswer]:
        async with self._client.stream("POST", self._path, json=body) as response:
            if response.status_code != 200:
                raise _ErrorStatus(response, await _message(response))
            yield RawAnswer(response.headers.get("content-type", ""), response.aiter_bytes())

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, _ErrorStatus):
            return failure_of(error, error.response.status_code, error.response.headers, str(error))
        return Failure(None) if isinstance(error, (httpx2.HTTPError, OSError)) else None

    async def close(self) -> None:
        await self._client.aclose()


async def _message(response: httpx2.Response) -> str:
    """The `error` of the body, if it is text. A long body is not read to its end."""
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MAX_ERROR_BYTES:
            break
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    error = found.get("error") if isinstance(found, dict) else None
    return error if isinstance(error, str) else ""
