"""Clients come and go: tickets, take-overs, coming back, restarts. The conversation behind the line is scripted here."""

import asyncio

import pytest
from tests.server.kit import OPERATOR, OTHER, USER, bearer
from tests.server.voice.kit import connected, limits, on_the_line, ticket_for, tickets_kept, voice_server
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from handrail.contract.live import LiveError
from handrail.contract.store import StoreUnavailable
from handrail.server.voice.voice_protocol import PROTOCOL


async def test_a_client_with_a_ticket_is_let_in_and_heard(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api, rate=24_000, abilities={"sound": True, "speaks": True}) as client:
            ready = client.messages[0]
            assert ready["type"] == "ready"
            assert ready["sessionId"] == api.id
            assert ready["resumed"] is False
            assert ready["audio"] == {"input": {"rate": 24_000}, "output": {"rate": 24_000}}
            spoken = server.agent.spoken
            assert (spoken.abilities.sound, spoken.abilities.speaks, spoken.abilities.recognises) == (True, True, False)
            await client.wire.send(b"\x01\x00" * 480)
            await spoken.until(lambda one: one.heard)
            assert spoken.heard == [(b"\x01\x00" * 480, 24_000)]
            await client.send("speech", state="started")
            await client.send("speech", state="started", agoMs=1_500)
            await client.send("played", item=3, ms=120, done=True)
            await client.send("spoken", id="s1", completed=False)
            await client.send("interrupt")
            await client.send("text", id="m1", text="hello", spoken=True)
            await spoken.until(lambda one: len(one.given) == 6)
            assert sorted(spoken.given) == sorted([
                ("speech", "started"), ("speech", "started", 1.5), ("played", 3, 120, True), ("spoken", "s1", False),
                ("interrupt",), ("say", "hello", "m1", True),
            ])  # fmt: skip
            shown = await api.show()
            assert shown["voice"] is True
            assert shown["mode"] == "voice"
            spoken.play(7, 40, b"\x02\x00" * 100)
            assert await client.until(lambda one: one.sounds) == [(7, 40, b"\x02\x00" * 100)]


async def test_a_ticket_is_used_once(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        ticket = (await ticket_for(api))["ticket"]
        async with connected(server, api.id) as first, connected(server, api.id) as second:
            await first.send("hello", protocol=PROTOCOL, ticket=ticket)
            await first.message("ready")
            await second.send("hello", protocol=PROTOCOL, ticket=ticket)
            assert "ticket" in await second.refused(4401)
            assert first.close_code is None
        assert len(server.agent.all_spoken) == 1


async def test_a_ticket_of_another_session_opens_nothing_and_is_spent(tmp_path):
    async with voice_server(tmp_path) as server:
        mine, other = await server.open(), await server.open(OTHER)
        ticket = (await ticket_for(other))["ticket"]
        for session in (mine.id, other.id):
            async with connected(server, session) as client:
                await client.send("hello", protocol=PROTOCOL, ticket=ticket)
                await client.refused(4401)
        assert server.agent.all_spoken == []


async def test_a_ticket_lapses(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        store = server.runtime.store
        now = await store.now()
        store._clock = lambda: now
        ticket = (await ticket_for(api))["ticket"]
        now += 30_100
        async with connected(server, api.id) as client:
            await client.send("hello", protocol=PROTOCOL, ticket=ticket)
            await client.refused(4401)


async def test_a_ticket_is_given_to_the_session_and_its_key_alone(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        path = f"/api/sessions/{api.id}/voice"
        for headers, status in (
            ({}, 401),
            (bearer(USER), 404),
            ({**bearer(OTHER), "X-Session-Token": api.token}, 404),
            ({**bearer(USER), "X-Session-Token": "wrong"}, 404),
        ):
            answer = await server.client.post(path, json={}, headers=headers)
            assert answer.status_code == status, answer.text
        assert (await server.client.post(path, json={"x": 1}, headers=api.headers)).status_code == 400
        assert await tickets_kept(server) == 0
        given = await ticket_for(api)
        assert given["url"] == path
        assert given["audio"] == {"input": {"rates": [16_000, 24_000]}, "output": {"rate": 24_000}}
        assert (given["expiresIn"], given["protocol"], given["offline"]) == (30, PROTOCOL, False)


async def test_wrong_tickets_from_one_place_are_slowed_down(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        server.made.voice._wrong._clock = lambda: 0.0
        codes = []
        for _ in range(62):
            async with connected(server, api.id) as client:
                await client.send("hello", protocol=PROTOCOL, ticket="guess")
                codes.append(await client.closed())
        assert codes[0] == 4401
        assert codes[-1] == 4429


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"additional_headers": {"Origin": "https://evil.example"}}, 403),
        ({"additional_headers": {"Origin": "null"}}, 403),
        ({"name": "evil.example"}, 421),
        ({"subprotocols": ["other.v1"]}, 400),
        ({"subprotocols": None}, 400),
    ],
)
async def test_a_socket_of_a_foreign_page_name_or_protocol_is_not_accepted(tmp_path, how, status):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        with pytest.raises(InvalidStatus) as refused:
            async with connected(server, api.id, **how):
                pass
        assert refused.value.response.status_code == status
        assert b"error" in refused.value.response.body
        assert server.agent.all_spoken == []


async def test_there_is_no_socket_elsewhere(tmp_path):
    async with voice_server(tmp_path) as server:
        for path in ("/api/sessions", "/", "/metrics"):
            with pytest.raises(InvalidStatus):
                await connect(server.url.replace("http", "ws", 1) + path, subprotocols=[PROTOCOL])
        assert (await server.client.get("/api/sessions/x/voice", headers=bearer(USER))).status_code == 405


async def test_a_page_of_the_server_itself_may_connect(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api, additional_headers={"Origin": server.url}) as client:
            assert client.messages[0]["type"] == "ready"


async def test_frames_are_not_compressed(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api, compression="deflate") as client:
            assert client.wire.protocol.extensions == []


async def test_a_second_client_takes_over_and_the_conversation_goes_on(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as first:
            server.agent.spoken.listener.tell("state", {"state": "listening"})
            await first.message("state")
            async with on_the_line(api, abilities={"sound": False, "speaks": True}) as second:
                assert "taken" in await first.refused(4409)
                assert len(server.agent.all_spoken) == 1
                spoken = server.agent.spoken
                assert spoken.abilities.speaks is True
                assert spoken.abilities.sound is False
                assert not spoken.is_over
                spoken.listener.tell("state", {"state": "hearing"})
                await second.message("state", state="hearing")
                spoken.play(1, 0, b"\0\0" * 10)
                spoken.listener.tell("state", {"state": "speaking"})
                await second.message("state", state="speaking")
                assert second.sounds == []  # it said that it plays none


async def test_two_clients_at_once_share_one_conversation(tmp_path):
    async with voice_server(tmp_path) as server:
        server.agent.gate = asyncio.Event()
        api = await server.open()
        async with on_the_line(api, ready=False) as first, on_the_line(api, ready=False) as second:
            await server.agent.begun.wait()
            await second.send("pong")
            server.agent.gate.set()
            await second.message("ready")
            await first.refused(4409)
            assert len(server.agent.all_spoken) == 1


async def test_a_client_that_comes_back_misses_no_message(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            spoken = server.agent.spoken
            for number in range(5):
                spoken.listener.tell("turn", {"turn": number, "inputId": f"voice:{number}"})
            await client.until(lambda one: len(one.numbers) == 5)
            last = client.numbers[-1]
            await client.drop()
        for number in range(5, 9):
            spoken.listener.tell("turn", {"turn": number, "inputId": f"voice:{number}"})
        assert not spoken.is_over
        async with on_the_line(api, last=last) as client:
            assert client.messages[0]["resumed"] is True
            assert client.messages[0]["lastEvent"] == last + 4
            await client.until(lambda one: len(one.of("turn")) == 4)
            assert client.numbers == [last + 1, last + 2, last + 3, last + 4]
            assert [one["turn"] for one in client.of("turn")] == [5, 6, 7, 8]
            spoken.listener.tell("state", {"state": "listening"})
            await client.message("state")
            assert client.numbers[-1] == last + 5
        assert len(server.agent.all_spoken) == 1


async def test_a_number_that_is_not_known_resumes_nothing(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            for _ in range(2_500):  # more than are kept
                server.agent.spoken.listener.tell("state", {"state": "listening"})
            await client.until(lambda one: len(one.numbers) == 2_500)
            first = client.numbers[0]
            await client.drop()
        for unknown in (0, first, first + 100_000):
            async with on_the_line(api, last=unknown) as client:
                assert client.messages[0]["resumed"] is False
                await client.send("text", id=f"m{unknown}", text="hello")
                await client.message("turn_done")
                assert client.of("state") == []
                await client.drop()


async def test_a_conversation_ends_when_its_client_stays_away(tmp_path):
    async with voice_server(tmp_path, limits=limits(grace_seconds=0.05)) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            spoken = server.agent.spoken
            await client.drop()
        await spoken.until(lambda one: ("end", "client_gone") in one.given)
        shown = await api.show()
        assert (shown["mode"], shown["voice"]) == ("text", False)
        assert len(server.made.voice) == 0
        async with on_the_line(api) as client:
            assert client.messages[0]["resumed"] is False
            assert len(server.agent.all_spoken) == 2


async def test_the_user_leaves_voice_and_the_chat_goes_on(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            await client.send("text", id="v1", text="hello")
            await client.message("turn_done")
            await client.send("end", reason="done talking")
            ended = await client.message("ended")
            assert (ended["reason"], ended["closingMessage"], ended["textResponse"]) == (
                "done talking",
                "Goodbye.",
                "We spoke.",
            )
            assert await client.closed() == 1000
            assert client.of("error") == []
        shown = await api.show()
        assert (shown["mode"], shown["voice"]) == ("text", False)
        assert [(one["role"], one["text"]) for one in shown["messages"]] == [
            ("user", "hello"), ("assistant", "You said hello."), ("assistant", "Goodbye.\n\nWe spoke."),
        ]  # fmt: skip
        told = await api.say("and in text")
        assert "You said: and in text" in "".join(one.data["text"] for one in told if one.type == "text")
        assert told[0].data["turn"] == 2


async def test_a_session_that_ends_ends_its_conversation(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            answer = await server.client.delete(f"/api/sessions/{api.id}", headers=api.headers)
            assert answer.status_code == 200
            await client.refused(4410)
            assert ("close",) in server.agent.spoken.given
            session = server.agent.spoken.session
        assert not session.is_active
        assert api.id not in server.runtime.sessions
        await ticket_for(api, 410)
        assert len(server.made.voice) == 0


async def test_a_session_that_ended_between_ticket_and_hello_is_told(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        ticket = (await ticket_for(api))["ticket"]
        await server.client.delete(f"/api/sessions/{api.id}", headers=api.headers)
        async with connected(server, api.id) as client:
            await client.send("hello", protocol=PROTOCOL, ticket=ticket)
            await client.refused(4410)
        assert server.agent.all_spoken == []


async def test_a_user_who_is_forgotten_is_cut_off(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            await client.send("text", id="m1", text="secret words")
            await client.message("turn_done")
            answer = await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))
            assert answer.status_code == 200, answer.text
            await client.refused(4410)
        assert await server.sessions.conversations.load(api.id) is None


async def test_a_user_who_is_forgotten_by_another_process_is_cut_off_at_the_next_heartbeat(tmp_path):
    async with voice_server(tmp_path, limits=limits(heartbeat_seconds=0.3)) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            await server.sessions.conversations.delete(api.id)
            await client.refused(4410)
            assert ("close",) in server.agent.spoken.given


async def test_a_key_that_is_replaced_ends_its_conversations(tmp_path):
    async with voice_server(tmp_path, limits=limits(heartbeat_seconds=0.3)) as server:
        api = await server.open()
        ticket = (await ticket_for(api))["ticket"]
        async with on_the_line(api) as client:
            ring = server.made.voice._keys
            old = next(key for key in ring._by_hash.values() if key.name == "ana")
            ring.replace([type(old)(name="ana", hash="0" * 64, role="user", user="ana")])
            await client.refused(4401)
        await server.agent.spoken.until(lambda one: ("end", "key_revoked") in one.given)
        async with connected(server, api.id) as client:
            await client.send("hello", protocol=PROTOCOL, ticket=ticket)
            await client.refused(4401)


async def test_a_revoked_key_ends_its_conversations_at_once(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            ring = server.made.voice._keys
            ring.replace([key for key in ring._by_hash.values() if key.name != "ana"])
            await client.refused(4401)
        await server.agent.spoken.until(lambda one: ("end", "key_revoked") in one.given)
        assert ring._open == {}


async def test_a_store_that_is_away_for_a_while_throws_nobody_out(tmp_path, caplog):
    async with voice_server(tmp_path, limits=limits(heartbeat_seconds=0.3)) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            asked = []

            async def away(_):
                asked.append(1)
                raise StoreUnavailable("The store is away.")

            there, server.sessions.conversations.owners = server.sessions.conversations.owners, away
            await client.until(lambda _: len(asked) >= 3)
            server.sessions.conversations.owners = there
            await client.send("text", id="m1", text="still here")
            await client.message("turn_done")
            assert client.close_code is None
        assert "Traceback" not in caplog.text


async def test_conversations_are_limited_for_each_key_and_in_all(tmp_path):
    async with voice_server(tmp_path, limits=limits(max_conversations=2, max_conversations_per_key=1)) as server:
        first, second, third = await server.open(), await server.open(), await server.open(OTHER)
        fourth = await server.open(OPERATOR)
        spare = (await ticket_for(second))["ticket"]
        async with on_the_line(first), connected(server, second.id) as refused:
            answer = await ticket_for(second, 429)
            assert answer["error"]["type"] == "RATE_LIMIT"
            await refused.send("hello", protocol=PROTOCOL, ticket=spare)
            await refused.refused(4429)
            async with on_the_line(third):
                await ticket_for(fourth, 429)
                await ticket_for(first)  # to come back is always allowed
                assert len(server.made.voice) == 2


async def test_a_restart_is_told_and_the_conversation_can_be_taken_up_again(tmp_path):
    store = f"sqlite:///{tmp_path}/handrail.db"
    async with voice_server(tmp_path, store=store) as server:
        api = await server.open()
        async with on_the_line(api) as client, connected(server, api.id) as silent:
            await client.send("text", id="m1", text="before")
            await client.message("turn_done")
            last = client.numbers[-1]
            server.uvicorn.should_exit = True
            assert "restart" in await client.refused(1001)
            await silent.refused(1001)
            assert ("close",) in server.agent.spoken.given
        await server.running
    async with voice_server(tmp_path, store=store) as again:
        api.server = again
        shown = await api.show()
        assert (shown["mode"], shown["voice"]) == ("voice", False)
        assert [one["text"] for one in shown["messages"]] == ["before", "You said before."]
        async with on_the_line(api, last=last) as client:
            assert client.messages[0]["resumed"] is False
            await client.send("text", id="m2", text="after")
            assert (await client.message("turn_done"))["turn"] == 2
            assert client.numbers[0] > last


async def test_a_provider_that_cannot_be_had_is_a_sentence_and_the_session_goes_on(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        server.agent.fails = LiveError("The provider does not answer.")
        async with on_the_line(api, ready=False) as client:
            assert await client.refused(4503) == "The provider does not answer."
        assert len(server.made.voice) == 0
        assert (await api.say("hello"))[-1].type == "done"
        server.agent.fails = None
        async with on_the_line(api) as client:
            assert client.messages[0]["type"] == "ready"


async def test_words_that_were_typed_while_voice_could_not_begin_are_answered_in_text(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        server.agent.gate = asyncio.Event()
        server.agent.fails = LiveError("The provider does not answer.")
        async with on_the_line(api, ready=False) as client:
            await server.agent.begun.wait()
            line = server.sessions._hosted[api.id].voice
            typing = asyncio.create_task(api.say("hello"))
            await waited_for(line.begun)
            server.agent.gate.set()
            told = await typing
            assert (told[-1].type, told[-1].data["state"]) == ("done", "done")
            await client.refused(4503)


async def waited_for(future):
    """Until somebody waits for it."""
    async with asyncio.timeout(20):
        while not future._callbacks:
            await asyncio.sleep(0.001)


async def test_a_conversation_that_begins_after_its_session_was_let_go_is_closed(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        server.agent.gate = asyncio.Event()
        async with on_the_line(api, ready=False) as client:
            await server.agent.begun.wait()
            spoken = server.sessions._hosted[api.id]
            line = spoken.voice
            typing = asyncio.create_task(api.post("hello"))
            await waited_for(line.begun)
            await spoken.leave("reconnect")
            assert (await typing).status_code == 503  # it is not left waiting for what will not come
            await client.refused(1001)
            server.agent.gate.set()
            async with asyncio.timeout(20):
                while not server.agent.all_spoken:
                    await asyncio.sleep(0.001)
            await server.agent.spoken.until(lambda one: one.is_over)
            assert server.agent.spoken.given == [("close",)]
            assert (line.voice, spoken.voice, len(server.made.voice)) == (None, None, 0)


async def test_a_fault_is_not_told_in_detail(tmp_path, caplog):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            await client.send("text", id="m1", text="break")
            assert "fault" not in (await client.refused(4500)).split()
        assert "a fault" in caplog.text
        async with on_the_line(api) as client:
            assert len(server.agent.all_spoken) == 1  # it was there all the time


async def test_the_turn_in_text_that_led_to_voice_ends_first(tmp_path):
    async with voice_server(tmp_path) as server:
        server.model.pause = 0.05
        api = await server.open()
        await api.post("slow 4 four")
        async with on_the_line(api) as client:
            assert server.sessions._hosted[api.id].current is None
            assert (await api.show())["messages"][1]["state"] == "done"
            assert client.messages[0]["turn"] == 1


async def test_a_turn_in_text_that_does_not_end_is_cancelled_for_voice(tmp_path):
    async with voice_server(tmp_path, limits=limits(text_seconds=0.01)) as server:
        server.model.pause = 0.05
        api = await server.open()
        await api.post("slow 10000 four")
        async with on_the_line(api):
            assert (await api.show())["messages"][1]["state"] == "cancelled"
