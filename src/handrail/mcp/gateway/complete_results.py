"""Results as the protocol means them: one that does not say of what kind it is, is complete.

The SDK insists on the word from servers of the newer era, and would refuse an answer that the specification allows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

_KIND = "resultType"


class CompleteResults:
    """A stream of messages from a server, as the SDK reads it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> CompleteResults:
        return self

    async def __anext__(self) -> Any:
        return _complete(await self._inner.__anext__())

    async def receive(self) -> Any:
        return _complete(await self._inner.receive())

    async def __aenter__(self) -> CompleteResults:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._inner.__aexit__(*raised)


def _complete(item: Any) -> Any:
    body = item.message if isinstance(item, SessionMessage) else None
    if isinstance(body, JSONRPCResponse) and isinstance(body.result, dict):
        body.result.setdefault(_KIND, "complete")
    return item


@asynccontextmanager
async def completed(streams: AbstractAsyncContextManager[tuple[Any, Any]]) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of a transport, whose results all say of what kind they are."""
    async with streams as (received, sent):
        yield CompleteResults(received), sent
