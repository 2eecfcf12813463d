"""A tool that an operator switches off is gone from the lists of connected clients, which hear of it: of both eras, over HTTP."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ToolListChangedNotification
from tests.mcp.conftest import Notes

Heard = Callable[[], Awaitable[None]]


async def switch(notes: Notes, *words: str) -> None:
    """As an operator does it, in a process of their own."""
    command = [sys.executable, "-m", "handrail", "tools", *words]
    process = await asyncio.create_subprocess_exec(*command, cwd=notes.folder, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


@asynccontextmanager
async def shaken(address: str, http: httpx2.AsyncClient) -> AsyncIterator[tuple[Client, Heard]]:
    """A client of the handshake era, which is sent notifications."""
    told: asyncio.Queue[None] = asyncio.Queue()

    async def handler(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            told.put_nowait(None)

    transport = streamable_http_client(address, http_client=http)
    async with Client(transport, mode="legacy", cache=None, message_handler=handler) as client:
        yield client, told.get


@asynccontextmanager
async def listening(address: str, http: httpx2.AsyncClient) -> AsyncIterator[tuple[Client, Heard]]:
    """A client of 2026-07-28, which listens."""
    async with (
        Client(streamable_http_client(address, http_client=http), cache=None) as client,
        client.listen(tools_list_changed=True) as events,
    ):

        async def heard() -> None:
            await anext(events)

        yield client, heard


@pytest.mark.parametrize("era", [shaken, listening], ids=["handshake", "2026-07-28"])
async def test_a_client_hears_that_a_tool_was_switched_off_and_on(notes: Notes, era: Any) -> None:
    async def names(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    http = httpx2.AsyncClient(headers=notes.headers, timeout=60)
    async with http, era(notes.mcp, http) as (client, heard), asyncio.timeout(60):
        assert "wait" in await names(client)
        try:
            await switch(notes, "off", "wait")
            await heard()
            assert "wait" not in await names(client)
        finally:
            await switch(notes, "on", "wait")
        await heard()
        assert "wait" in await names(client)
