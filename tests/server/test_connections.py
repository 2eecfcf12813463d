"""A flood of connections without a key takes nothing from those who have one, and is logged and counted."""

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import httpx2 as httpx
from tests.server.kit import OPERATOR, USER, bearer, over_socket

from handrail.server.options import Options

LIMIT = 40


@asynccontextmanager
async def small_server(folder):
    async with over_socket(folder, options=replace(Options(), max_connections=LIMIT)) as server:
        yield server


@asynccontextmanager
async def flood(server, count: int, begin: bytes = b""):
    """A number of open connections that say this and then nothing."""
    place = urlsplit(server.url)
    writers = []
    try:
        for _ in range(count):
            _, writer = await asyncio.open_connection(place.hostname, place.port)
            writer.write(begin)
            writers.append(writer)
        yield writers
    finally:
        for writer in writers:
            writer.close()


async def fresh(server, path: str, key: str | None) -> httpx.Response:
    """Over a connection of its own."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        return await client.get(path, headers=bearer(key))


async def test_connections_without_a_key_do_not_keep_out_those_with_one(tmp_path, caplog):
    async with small_server(tmp_path) as server:
        ana = await server.open()
        async with AsyncExitStack() as stack:
            stream = await stack.enter_async_context(ana.listening())
            for begin in (
                b"",
                b"GET /api/tools HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            ):
                await stack.enter_async_context(flood(server, 3 * LIMIT, begin))
                for _ in range(5):
                    assert (await fresh(server, "/api/tools", USER)).status_code == 200
            # What was open with a key is still open, and hears.
            await ana.post("hello", "m1")
            assert (await stream.until("done"))[-1].data["state"] == "done"
            found = (await server.get("/metrics", headers={"Accept": "application/json"})).json()["connections"]
            assert found["closedAsFlood"] >= 3 * 3 * LIMIT - LIMIT
            assert found["closedAsFull"] == 0
            assert found["known"] >= 1
            assert found["unknown"] <= LIMIT // 2
            text = (await server.get("/metrics", OPERATOR)).text
            assert 'handrail_server_connections_closed_total{reason="flood"}' in text
    told = [one for one in caplog.records if "showed no key" in one.getMessage()]
    assert told
    assert "127.0.0.1" in told[0].getMessage()
    assert len(told) < 20  # not a line for each


async def test_when_all_places_have_a_key_new_connections_are_closed_and_it_is_logged(tmp_path, caplog):
    async with small_server(tmp_path) as server, AsyncExitStack() as stack:
        ana = await server.open()
        opened = 0
        try:
            while opened <= LIMIT:
                await stack.enter_async_context(ana.listening())
                opened += 1
        except httpx.HTTPError:
            pass
        assert opened == LIMIT
        assert "all places are taken" in caplog.text


async def test_requests_without_a_right_key_are_logged_when_they_are_many(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "handrail.server")
    async with small_server(tmp_path) as server:
        statuses = [(await server.client.get("/api/tools")).status_code for _ in range(80)]
        assert statuses[0] == 401
        assert statuses[-1] == 429
    told = [one for one in caplog.records if "without a right key" in one.getMessage()]
    assert 1 <= len(told) < 5
