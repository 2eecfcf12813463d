"""What clients get wrong, and what they do on purpose: a close code and a sentence, nothing run, and the session continues."""

import asyncio
import json
from time import monotonic

from tests.server.voice.kit import connected, limits, on_the_line, ticket_for, tickets_kept, voice_server
from websockets.frames import Frame, Opcode

from handrail.server.options import Options
from handrail.server.voice.voice_protocol import CLIENT, PROTOCOL, SERVER

HELLO = {"type": "hello", "protocol": PROTOCOL, "ticket": "x"}


NOT_RIGHT = (
    "",
    "hello",
    "{",
    "[]",
    "null",
    '"hello"',
    "{}",
    '{"type": 7}',
    '{"type": null}',
    '{"type": "shout"}',
    '{"type": "interrupt", "type": "end"}',
    '{"type": "played", "item": NaN, "ms": 1}',
    '{"type": "played", "item": 1}',
    '{"type": "played", "item": -1, "ms": 1}',
    '{"type": "played", "item": 1.5, "ms": 1}',
    '{"type": "played", "item": "1", "ms": 1}',
    '{"type": "played", "item": 1, "ms": 99999999999}',
    '{"type": "played", "item": 9007199254740993, "ms": 1}',
    '{"type": "speech", "state": "paused"}',
    '{"type": "speech", "state": "started", "agoMs": -1}',
    '{"type": "speech", "state": "started", "agoMs": 60001}',
    '{"type": "spoken", "id": "", "completed": true}',
    '{"type": "spoken", "id": "a", "completed": "yes"}',
    '{"type": "text", "id": "m1"}',
    '{"type": "text", "id": "m 1", "text": "hello"}',
    '{"type": "text", "id": "voice:2.2", "text": "hello"}',
    '{"type": "text", "id": "~late:2", "text": "hello"}',
    '{"type": "text", "id": "m1", "text": ""}',
    '{"type": "text", "id": "m1", "text": "' + "x" * 8_001 + '"}',
    '{"type": "text", "id": "m1", "text": "hi", "role": "system"}',
    '{"type": "text", "id": "m1", "text": "\\ud800"}',
    '{"type": "interrupt", "why": "because"}',
    '{"type": "end", "reason": ""}',
    '{"type": "end", "reason": "provider_lost"}',
    '{"type": "end", "reason": "session_ended"}',
    '{"type": "end", "reason": "fault"}',
    '{"type": "interrupt", "x": ' + "[" * 50 + "]" * 50 + "}",
    '{"type": "interrupt", "x": "' + "x" * 70_000 + '"}',
    json.dumps(HELLO),
)


async def test_a_message_that_is_not_right_is_refused_in_a_sentence(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        for frame in NOT_RIGHT:
            async with on_the_line(api) as client:
                await client.wire.send(frame)
                sentence = await client.refused(4400)
                assert sentence.endswith("."), frame
                assert "x" * 100 not in sentence
        assert {one[0] for one in server.agent.spoken.given} == {"adapt"}  # nothing but that clients came
        async with on_the_line(api) as client:  # and the conversation was there all the time
            assert len(server.agent.all_spoken) == 1
            await client.send("text", id="m9", text="hello")
            await client.message("turn_done")


async def test_words_over_the_line_count_as_requests_of_the_key(tmp_path):
    async with voice_server(tmp_path, options=Options(requests_per_minute=6)) as server:
        now = monotonic()
        server.made.voice._rates._clock = lambda: now  # nothing is filled again
        api = await server.open()  # the first; the ticket is the second
        async with on_the_line(api) as client:
            for number in range(12):
                await client.send("text", id=f"m{number}", text="hello")
            refused = await client.message("error", code="rate_limit")
            assert refused["message"] == "This key has asked too often; wait a little."
            await client.until(lambda one: len(one.of("error")) + len(one.of("turn_done")) == 12)
            said = [one for one in server.agent.spoken.given if one[0] == "say"]
            assert len(said) == 4
            assert client.close_code is None
        assert (await api.post("and here")).status_code == 429, "it is one allowance"


async def test_an_id_of_the_servers_own_is_refused_in_the_text_protocol_too(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        for chosen in ("voice:1.1", "voice:", "~late:voice:1"):
            answer = await api.post("hello", chosen)
            assert answer.status_code == 400, chosen
        assert (await api.show())["messages"] == []
        assert (await api.post("hello", "my-voice:1")).status_code == 202


NOT_FIRST = (
    '{"type": "text", "id": "m1", "text": "hello"}',
    '{"type": "interrupt"}',
    '{"type": "end"}',
    b"\0\0" * 160,
    b"",
    json.dumps({**HELLO, "protocol": "handrail.voice.v2"}),
    json.dumps({**HELLO, "ticket": ""}),
    json.dumps({**HELLO, "ticket": "x" * 1_000}),
    json.dumps({**HELLO, "ticket": 7}),
    json.dumps({**HELLO, "lastEvent": -1}),
    json.dumps({**HELLO, "audio": {"rate": 1}}),
    json.dumps({**HELLO, "audio": {"rate": "16000"}}),
    json.dumps({**HELLO, "abilities": {"sound": 1}}),
    json.dumps({**HELLO, "abilities": {"flies": True}}),
    json.dumps({**HELLO, "key": "hr_"}),
    json.dumps({"type": "hello"}),
)


async def test_nothing_but_a_right_hello_may_come_first(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        for first in NOT_FIRST:
            async with connected(server, api.id) as client:
                await client.wire.send(first)
                await client.refused(4400)
        assert server.agent.all_spoken == []


async def test_a_client_that_says_nothing_is_closed(tmp_path):
    async with voice_server(tmp_path, limits=limits(hello_seconds=0.05)) as server:
        api = await server.open()
        async with connected(server, api.id) as client:
            assert "hello" in await client.refused(4408)


async def test_text_that_is_not_utf_8_is_refused_without_a_traceback(tmp_path, caplog):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            await _raw(client, Opcode.TEXT, b'{"type": "\xff\xfe"}')
            assert "UTF-8" in await client.refused(4400)
        async with connected(server, api.id) as client:
            await _raw(client, Opcode.TEXT, b"\xff")
            await client.refused(4400)
    assert "Traceback" not in caplog.text
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_frame_that_is_no_audio_is_refused(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        for size in (0, 1, 321, 32_770, 200_000):
            async with on_the_line(api) as client:
                await client.wire.send(bytes(size))
                assert str(size) in await client.refused(4413)
        assert server.agent.spoken.heard == []


async def test_a_message_beyond_all_measure_is_not_even_read(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        for huge in (b"\0" * 300_000, "x" * 300_000):
            async with on_the_line(api) as client:
                await client.wire.send(huge)
                assert await client.closed() == 1009
        async with on_the_line(api) as client:
            await client.wire.send([b"\0" * 100_000] * 4)  # in pieces
            assert await client.closed() == 1009
        assert server.agent.spoken.heard == []
        assert len(server.agent.all_spoken) == 1


async def test_audio_in_pieces_is_put_together(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            await client.wire.send([b"\1", b"\2\3", b"\4"])
            await server.agent.spoken.until(lambda one: one.heard)
            assert server.agent.spoken.heard == [(b"\1\2\3\4", 16_000)]


async def test_audio_without_a_rate_or_at_a_wrong_one_is_refused(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api, rate=44_100, ready=False) as client:
            assert "16000, 24000" in await client.refused(4400)
        assert server.agent.all_spoken == []
        async with on_the_line(api, rate=0) as client:
            await client.wire.send(b"\0\0" * 160)
            assert "rate" in await client.refused(4400)
        assert server.agent.spoken.heard == []


async def test_a_flood_of_audio_is_stopped(tmp_path):
    async with voice_server(tmp_path, limits=limits(burst_seconds=2)) as server:
        for size, count in ((2, 10_000), (640, 2_500), (32_768, 50)):  # each some fifty seconds of audio
            api = await server.open()
            async with on_the_line(api) as client:
                client.wire.transport.write(Frame(Opcode.BINARY, bytes(size)).serialize(mask=True) * count)
                assert await client.closed() in (4429, 1006)  # who floods may not even read why
            assert len(server.agent.spoken.heard) < count
            assert not server.agent.spoken.is_over


async def test_a_flood_of_messages_is_stopped(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            frames = json.dumps({"type": "played", "item": 1, "ms": 1})
            for _ in range(400):
                client.wire.transport.write(_masked(frames.encode()))
            await client.refused(4429)
        assert len(server.agent.spoken.given) < 300


async def test_audio_as_it_is_spoken_is_no_flood(tmp_path):
    async with voice_server(tmp_path, limits=limits(burst_seconds=2)) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            for _ in range(95):
                await client.wire.send(b"\0" * 640)
            await server.agent.spoken.until(lambda one: len(one.heard) == 95)
            assert client.close_code is None


async def test_a_client_that_gives_no_sign_of_life_is_closed_and_may_come_back(tmp_path):
    async with voice_server(tmp_path, limits=limits(heartbeat_seconds=0.3)) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            client.answers_pings = False
            await client.refused(4408)
            # The second ping would be due when the client is closed: it may be silent for two beats, and for no third.
            assert len(client.of("ping")) == 1
        async with on_the_line(api) as client:
            await client.until(lambda one: len(one.of("ping")) == 4)
            assert client.close_code is None
            assert len(server.agent.all_spoken) == 1


async def test_what_is_not_due_before_ready_is_refused_and_early_audio_is_passed_over(tmp_path):
    async with voice_server(tmp_path) as server:
        server.agent.gate = asyncio.Event()
        api = await server.open()
        async with on_the_line(api, ready=False) as client:
            await server.agent.begun.wait()
            await client.wire.send(b"\0\0" * 160)
            await client.send("text", id="m1", text="hello")
            assert "ready" in await client.refused(4400)
            server.agent.gate.set()
        async with on_the_line(api) as client:
            assert len(server.agent.all_spoken) == 1
            assert server.agent.spoken.heard == []
            assert [one for one in server.agent.spoken.given if one[0] == "say"] == []


async def test_a_client_that_leaves_while_the_conversation_begins_leaves_it_waiting(tmp_path):
    async with voice_server(tmp_path, limits=limits(grace_seconds=0.05)) as server:
        server.agent.gate = asyncio.Event()
        api = await server.open()
        async with on_the_line(api, ready=False) as client:
            await server.agent.begun.wait()
            await client.drop()
        server.agent.gate.set()
        while not server.agent.all_spoken:
            await asyncio.sleep(0.01)
        await server.agent.spoken.until(lambda one: ("end", "client_gone") in one.given)


async def test_what_cannot_be_done_now_is_an_error_and_the_conversation_goes_on(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            await client.send("text", id="m1", text="refuse")
            assert (await client.message("error"))["code"] == "busy"
            await client.send("text", id="m2", text="hello")
            await client.message("turn_done")


async def test_a_protocol_error_ends_the_socket_and_not_the_conversation(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        async with on_the_line(api) as client:
            client.wire.transport.write(b"\xff\xff\xff\xff\xff\xff")
            assert await client.closed() == 1002
        async with on_the_line(api) as client:
            client.wire.transport.write(b"\x82\x02ab")  # a client's frame that is not masked
            assert await client.closed() == 1002
        async with on_the_line(api):
            assert len(server.agent.all_spoken) == 1


def test_every_message_has_a_schema_and_a_word_about_it():
    from handrail.server.voice.voice_protocol import ABOUT_CLIENT, ABOUT_SERVER

    assert set(ABOUT_CLIENT) == set(CLIENT)
    assert set(ABOUT_SERVER) == set(SERVER)


async def test_tickets_do_not_pile_up(tmp_path):
    async with voice_server(tmp_path) as server:
        api = await server.open()
        now = await server.runtime.store.now()
        server.runtime.store._clock = lambda: now
        for _ in range(5):
            await ticket_for(api)
        assert await tickets_kept(server) == 5
        now += 31_000
        await ticket_for(api)
        assert await tickets_kept(server) == 1


async def _raw(client, opcode, data):
    client.wire.transport.write(_masked(data, opcode))


def _masked(data: bytes, opcode: Opcode = Opcode.TEXT) -> bytes:
    assert len(data) < 126
    return bytes([0x80 | opcode, 0x80 | len(data), 0, 0, 0, 0]) + data
