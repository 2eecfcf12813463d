"""A key is revoked while a line is being opened with it: the client is told at once, and no conversation is left behind."""

import asyncio

from tests.server.kit import OPERATOR
from tests.server.voice.kit import PATIENCE, connected, on_the_line, ticket_for, tickets_kept, voice_server

from handrail.server.voice.voice_protocol import PROTOCOL


async def test_a_key_that_is_revoked_while_its_line_is_opened_is_refused_at_once_and_nothing_is_left_open(tmp_path):
    async with voice_server(tmp_path) as server:
        server.agent.gate = asyncio.Event()
        api = await server.open()
        ring = server.keys
        async with on_the_line(api, ready=False) as client:
            await server.agent.begun.wait()
            ring.replace([key for key in ring._by_hash.values() if key.name != "ana"])
            assert "key" in await client.refused(4401)  # while the model is still being waited for
        server.agent.gate.set()
        exchange = server.made.app.state.context.voice
        async with asyncio.timeout(PATIENCE):
            while len(exchange):
                await asyncio.sleep(0.01)
        assert server.agent.spoken.given == [("end", "key_revoked")]
        assert exchange.metrics()["waitingForClient"] == 0
        assert server.runtime.sessions[api.id].mode == "text"


async def test_a_client_that_waits_for_a_line_is_refused_if_its_key_is_revoked_meanwhile(tmp_path):
    async with voice_server(tmp_path) as server:
        server.agent.gate = asyncio.Event()
        api = await server.open(OPERATOR, user="ana")
        ring = server.keys
        async with on_the_line(api, ready=False) as first:
            await server.agent.begun.wait()
            ticket = await ticket_for(api)
            ana = next(key for key in ring._by_hash.values() if key.name == "ana")
            await server.runtime.store._write(lambda tx: tx.db.execute("UPDATE voice_ticket SET key = ?", (ana.hash,)))
            async with connected(server, api.id) as second:
                await second.send("hello", protocol=PROTOCOL, ticket=ticket["ticket"])
                while await tickets_kept(server):
                    await asyncio.sleep(0.01)
                ring.replace([key for key in ring._by_hash.values() if key.name != "ana"])
                server.agent.gate.set()
                assert "key" in await second.refused(4401)
                assert second.of("ready") == []
            await first.message("ready")
