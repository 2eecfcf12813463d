"""Voice behind a proxy that gives each connection to the next server: whoever was spoken to at one that stops continues at the
other."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.loopback_proxy import RoundRobinProxy
from tests.runtime.kit import until
from tests.server.kit import ServerUnderTest, SessionClient
from tests.server.voice.test_conversations import PROVIDERS, VoiceSetup, voice_setup

from handrail.testing.servers.live import Ask, Say, Turn, call

POST = call("post", q="15")


@asynccontextmanager
async def behind_a_proxy(setups: list[VoiceSetup]) -> AsyncIterator[SessionClient]:
    """A client of the first one's session that reaches whichever server is next."""
    ports = [int(setup.server.url.rpartition(":")[2]) for setup in setups]
    with RoundRobinProxy(ports) as proxy:
        assert isinstance(proxy, RoundRobinProxy)
        async with httpx.AsyncClient(base_url=proxy.url, timeout=60) as client:
            first = setups[0].server
            server = ServerUnderTest(first.made, first.tools, first.model, client, proxy.url)
            yield SessionClient(server, setups[0].api.key, setups[0].api.opened)


@asynccontextmanager
async def two_voice_servers(name: str, folder: Path, store: str, turns: list[Turn]) -> AsyncIterator[list[VoiceSetup]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(voice_setup(name, folder, turns, store=store)) for _ in range(2)]


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_conversation_whose_server_stops_in_mid_write_goes_on_at_the_other(tmp_path, name, postgres):
    turns = [Turn([Ask(POST), Say("It is posted.")], hears="Post it")]
    with postgres.borrowed() as store:
        async with two_voice_servers(name, tmp_path, store, turns) as setups, behind_a_proxy(setups) as api:
            for setup in setups:
                setup.api = api
            async with setups[0].enter() as client:
                await setups[0].speak(client)
                await until(setups[0].server.tools.started)
                at, other = sorted(setups, key=lambda one: not one.provider.received)
                at.server.uvicorn.should_exit = True
                await client.refused(1001)
            at.server.tools.go()
            await at.server.running
            async with other.enter() as client:
                await other.speak(client)
                assert (await client.message("turn_done"))["text"] == "It is posted."
            assert [next(iter(one)) for one in other.server.tools.started()] == ["begun", "ended"]
            shown = (await api.show())["messages"]
            assert [one["text"] for one in shown if one["role"] == "user"] == ["Post it", "Post it"]
            assert [card["ok"] for one in shown for card in one.get("toolCards", ())] == [True, True]
