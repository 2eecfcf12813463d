"""The short way of frames between a live provider and the host: nothing is overtaken, lost or hidden by it. Real sockets."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.clients.live.kit import LIMITS, PROVIDERS
from tests.clients.live.test_link import AUDIO, call, linked, settle
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from handrail.contract.live import AudioOut, CallsMade, Closed, Connected, Disconnected, LiveConfig, LiveEvent
from handrail.providers.gemini.live.client import GeminiLive
from handrail.providers.live_link import ConnectionEnded
from handrail.providers.live_socket import OPTIONS, LiveWebSocket, SdkSocket
from handrail.providers.openai.realtime.client import OpenAIRealtime
from handrail.testing.servers.live import GeminiLiveServer, OpenAIRealtimeServer

Behaviour = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def wired(behaviour: Behaviour) -> AsyncIterator[SdkSocket]:
    """A socket to somebody who behaves so."""
    over = asyncio.Event()

    async def behaves(peer: ServerConnection) -> None:
        work = {asyncio.ensure_future(behaviour(peer)), asyncio.ensure_future(over.wait())}
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for one in work:
            one.cancel()
        peer.transport.resume_reading()

    async with serve(behaves, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        try:
            async with asyncio.timeout(30), connect(f"ws://127.0.0.1:{port}", **OPTIONS) as wire:
                yield SdkSocket("The provider", wire)
        finally:
            over.set()


class Told(list[Any]):
    """What was handed on."""

    async def until(self, count: int) -> None:
        while len(self) < count:
            await asyncio.sleep(0.005)


async def test_messages_read_before_come_first_and_none_is_missed_or_changed() -> None:
    go_on = asyncio.Event()

    async def says(peer: ServerConnection) -> None:
        for number in range(20):
            await peer.send(f"early {number}")
        await peer.send(["in ", "pieces"])
        await go_on.wait()
        for number in range(200):
            await peer.send(f"late {number}")
            if number % 50 == 0:
                await peer.send([f"whole {number} ", "of ", "pieces"])
        await peer.wait_closed()

    async with wired(says) as socket:
        await asyncio.sleep(0.05)
        told = Told()
        reading = asyncio.create_task(socket.hand_to(told.append))
        await told.until(21)
        go_on.set()
        await told.until(225)
        reading.cancel()
    wanted = [f"early {n}" for n in range(20)] + ["in pieces"]
    for number in range(200):
        wanted += [f"late {number}"] + ([f"whole {number} of pieces"] if number % 50 == 0 else [])
    assert [bytes(one).decode() for one in told] == wanted


async def test_the_end_of_the_connection_is_told_as_when_receiving() -> None:
    async def leaves(peer: ServerConnection) -> None:
        await peer.send("last words")
        await peer.close(1011, "tired")

    told = Told()
    async with wired(leaves) as socket:
        with pytest.raises(ConnectionEnded, match=r"closed the connection \(1011\)"):
            await socket.hand_to(told.append)
        assert not socket.send_now("to nobody")
    assert [bytes(one) for one in told] == [b"last words"]


async def test_whoever_fails_at_a_message_ends_the_connection_and_says_with_what() -> None:
    async def says(peer: ServerConnection) -> None:
        await asyncio.sleep(0.05)
        await peer.send("one")
        await peer.send("two")
        await peer.wait_closed()

    def fails(raw: bytes | str) -> None:
        raise ZeroDivisionError("of the host")

    async with wired(says) as socket:
        with pytest.raises(ZeroDivisionError, match="of the host"):
            await socket.hand_to(fails)


async def test_a_frame_is_not_written_where_it_would_have_to_wait() -> None:
    """The peer reads nothing: sooner or later the system's buffers are full, and a frame is for the queue, which drops it."""
    heard: list[str] = []
    listen = asyncio.Event()

    async def deaf(peer: ServerConnection) -> None:
        peer.transport.pause_reading()
        await listen.wait()
        peer.transport.resume_reading()
        async for message in peer:
            heard.append(str(message))

    async with wired(deaf) as socket:
        await asyncio.sleep(0.05)
        frame = "x" * 50_000
        sent = 0
        while socket.send_now(f"{sent} {frame}"):
            sent += 1
            assert sent < 2_000
            await asyncio.sleep(0)
        assert not socket.send_now("and this neither")
        listen.set()
        while not socket.send_now("there is room again"):
            await asyncio.sleep(0.01)
        while len(heard) < sent + 1:
            await asyncio.sleep(0.01)
    assert [one.split(" ", 1)[0] for one in heard[:-1]] == [str(number) for number in range(sent)]
    assert heard[-1] == "there is room again"


async def test_a_frame_is_not_written_into_a_message_that_is_sent_in_pieces() -> None:
    heard: list[str] = []

    async def listens(peer: ServerConnection) -> None:
        async for message in peer:
            heard.append(str(message))

    async with wired(listens) as socket:
        go_on = asyncio.Event()

        async def pieces() -> AsyncIterator[str]:
            yield "one "
            await go_on.wait()
            yield "message"

        sending = asyncio.create_task(socket._wire.send(pieces()))
        await asyncio.sleep(0.02)
        assert not socket.send_now("not in between")
        go_on.set()
        await sending
        assert socket.send_now("after it")
        while len(heard) < 2:
            await asyncio.sleep(0.005)
    assert heard == ["one message", "after it"]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_both_sdks_make_such_a_connection_without_compression(provider: str) -> None:
    """If an SDK stopped taking the option, everything would work, and cost twice as much."""
    server = GeminiLiveServer() if provider == "gemini-live" else OpenAIRealtimeServer()
    async with server:
        model: Any = (
            GeminiLive("any", api_key=server.api_key, base_url=server.base_url, limits=LIMITS, tls=server.tls)
            if isinstance(server, GeminiLiveServer)
            else OpenAIRealtime("any", api_key=server.api_key, base_url=server.base_url, limits=LIMITS)
        )
        connection = await model.connect(LiveConfig())
        wire = connection._socket._wire
        await connection.close()
        await model.close()
    assert isinstance(wire, LiveWebSocket)
    assert wire.protocol.extensions == []
    assert "Sec-WebSocket-Extensions" not in wire.request.headers


# ------------------------------------------------------------------------------------------------------------- the link
async def test_events_that_wait_are_handed_on_first_and_the_others_as_they_come() -> None:
    async with linked() as (link, provider):
        provider.say(AUDIO, call(1))
        await settle()
        events: list[LiveEvent] = []
        link.hand_to(events.append)
        assert [type(event) for event in events] == [Connected, AudioOut, CallsMade]
        provider.say(call(2), AUDIO, ConnectionEnded("The line broke."))
        await settle()
        assert [type(event) for event in events[3:]] == [CallsMade, AudioOut, Disconnected]
        while not isinstance(events[-1], Connected):
            await asyncio.sleep(0.01)
        provider.say(call(3))
        await settle()
        assert events[-1].calls[0].call_id == "fc-3"  # type: ignore[union-attr]
    assert isinstance(events[-1], Closed)


async def test_a_host_that_comes_late_to_a_full_queue_gets_all_calls() -> None:
    async with linked(events=20) as (link, provider):
        provider.say(*map(call, range(200)))
        await settle()
        events: list[LiveEvent] = []
        link.hand_to(events.append)
        while len(events) < 201:
            await asyncio.sleep(0)
    made = [event.calls[0].call_id for event in events if isinstance(event, CallsMade)]
    assert made == [f"fc-{number}" for number in range(200)]


async def test_audio_is_sent_at_once_and_never_before_what_waits() -> None:
    def frames(sent: list[Any]) -> list[Any]:
        return [
            b64decode(json.loads(one)["realtimeInput"]["audio"]["data"])[0] if isinstance(one, str) else "text"
            for one in sent
        ]

    async with linked() as (link, provider):
        line = provider.lines[0]
        await settle()
        link.send_audio(bytes([1, 0]), 16_000)
        assert frames(line.sent) == [1]

        line.takes.clear()
        link.send_audio(bytes([2, 0]), 16_000)
        line.takes.set()  # there is room, but another frame waits
        link.send_audio(bytes([3, 0]), 16_000)
        await link.send_text("a command")
        link.send_audio(bytes([4, 0]), 16_000)
        assert frames(line.sent) == [1]
        await settle()
        assert frames(line.sent) == [1, "text", 2, 3, 4]
        link.send_audio(bytes([5, 0]), 16_000)
        assert frames(line.sent)[-1] == 5

        await link.send_text("another command")
        link.send_audio(bytes([6, 0]), 16_000)
        await settle()
        assert frames(line.sent)[-2:] == ["text", 6]
