"""A server that is cut off from its database: what was begun is shown, nothing is written or ended, and it says that it is not
ready. When the network is there again, it continues where it was."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.crash.proxy import NetworkProxy
from tests.server.kit import ServerUnderTest, over_socket, text_of


@asynccontextmanager
async def behind_a_network(folder, postgres) -> AsyncIterator[tuple[ServerUnderTest, NetworkProxy]]:
    with NetworkProxy(postgres.new_database(), postgres.folder) as network:
        async with over_socket(folder, store=network.url) as server:
            server.made.app.state.context.readiness.kept_seconds = 0
            yield server, network


async def until_ready(server: ServerUnderTest, ready: bool) -> None:
    async with asyncio.timeout(60):
        while ((await server.client.get("/readyz")).status_code == 200) is not ready:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("trouble", ["cut", "silence"])
async def test_a_server_that_is_cut_off_shows_what_was_begun_and_ends_nothing(tmp_path, postgres, trouble):
    async with behind_a_network(tmp_path, postgres) as (server, network):
        ana = await server.open()
        await ana.say("one", "m1")
        await ana.post('call nap {"q": "30"} then slow 5 words', "m2")
        async with ana.listening(after=0) as stream:
            await stream.until("tool_started")
            network.refuses, network.swallows = trouble == "cut", trouble == "silence"
            if trouble == "cut":
                network.cut()
            await until_ready(server, False)
            server.tools.go()
            begun = await stream.until("text")  # the model is asked, and says something
            assert "done" not in [event.type for event in begun]
            if trouble == "cut":  # else there is no answer while the network is silent, for ten seconds at most
                refused = await ana.post("three", "m3")
                assert refused.status_code in (409, 503)
                shown = await server.client.get(f"/api/sessions/{ana.id}", headers=ana.headers)
                assert shown.status_code == 503
                assert shown.json()["error"]["message"] == "The store cannot be reached at the moment; try again later."
                other = await server.client.post("/api/sessions", json={}, headers=ana.headers)
                assert other.status_code == 503
            await asyncio.sleep(1)
            network.refuses = network.swallows = False
            rest = await stream.until("done")
        assert text_of([*begun, *rest]).strip() == "0 1 2 3 4 words"
        await until_ready(server, True)
        shown = await ana.show()
        assert [one["state"] for one in shown["messages"]] == ["done"] * 4
        assert text_of(await ana.say("three", "m3")).strip() == "You said: three"


async def test_a_write_that_cannot_be_recorded_is_refused_in_a_sentence_and_does_not_run(tmp_path, postgres):
    async with behind_a_network(tmp_path, postgres) as (server, network):
        ana = await server.open()
        await ana.post('call nap {"q": "30"} && note {"q": "a"}', "m1")
        async with ana.listening(after=0) as stream:
            await stream.until("tool_started")
            network.refuses = True
            network.cut()
            server.tools.go()
            while (card := (await stream.next()).data).get("toolId") != "note" or "error" not in card:
                pass
            network.refuses = False
            await stream.until("done")
        assert card["error"]["type"] == "STORE_UNAVAILABLE"
        assert card["error"]["message"] == '"note" did not run, because it could not be recorded; try again shortly.'
        assert [mark for mark in server.tools.started() if mark == {"q": "a"}] == []
