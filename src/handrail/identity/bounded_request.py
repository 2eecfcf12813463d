"""One request to an authorization server or an issuer of keys: the whole of it within a time, its answer within a size.

A time for each read is not enough: a service that sends a byte now and then would hold whoever waits for it. No redirect is
followed, because a secret may be in the body; no compressed answer is taken, because it may be any size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from ssl import SSLContext
from typing import Any, NamedTuple

from handrail.contract.errors import HandrailError, missing_extra

try:
    import httpx2
except ImportError:  # pragma: no cover - tests/install runs without it
    raise missing_extra("Connecting to other services", "identity") from None


class RequestFailed(HandrailError):
    """No answer came, or not in time, or one that is too long. The message quotes nothing of the request."""


async def request(
    method: str,
    address: str,
    *,
    seconds: float,
    max_bytes: int,
    headers: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """The status and the body."""
    made = await challenged(method, address, seconds=seconds, max_bytes=max_bytes, headers=headers, form=form)
    return made.status, made.body


class ChallengedAnswer(NamedTuple):
    """An answer, with what it says to somebody who is not signed in."""

    status: int
    body: bytes
    challenge: str


async def challenged(
    method: str,
    address: str,
    *,
    seconds: float,
    max_bytes: int,
    headers: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
    document: Mapping[str, Any] | None = None,
) -> ChallengedAnswer:
    """As `request`, with the `WWW-Authenticate` of the answer; `document` is sent as JSON."""
    asked = {"accept": "application/json", **(headers or {}), "accept-encoding": "identity"}
    try:
        async with (
            asyncio.timeout(seconds),
            httpx2.AsyncClient(timeout=seconds, follow_redirects=False, verify=_trusted()) as http,
            http.stream(method, address, data=form, json=document, headers=asked) as answer,
        ):
            body = bytearray()
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > max_bytes:
                    raise RequestFailed("the answer is too long")
            return ChallengedAnswer(answer.status_code, bytes(body), answer.headers.get("www-authenticate", ""))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise RequestFailed(f"{type(error).__name__} at the address") from None


@cache
def _trusted() -> SSLContext:
    """Read once: it takes longer than a request on this machine."""
    return httpx2.create_ssl_context()
