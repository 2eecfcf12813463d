"""The link between host and provider where time and quantity matter: slow hosts, slow providers, floods. A socket is a queue."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.clients.live.kit import LIMITS

from handrail.contract.live import AudioOut, CallsMade, Closed, Connected, Disconnected, GoAway, LiveConfig, LiveError
from handrail.providers.gemini.live.transport import INPUT_RATES, GeminiLiveTransport
from handrail.providers.live_link import ConnectionEnded, LiveLink

AUDIO = {"serverContent": {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm", "data": "AAAA"}}]}}}
DONE = {"serverContent": {"turnComplete": True}}


class Line:
    """One connection: a queue each way."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[dict[str, Any] | ConnectionEnded] = asyncio.Queue()
        self.sent: list[Any] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.is_closed = False

    async def send(self, message: dict[str, Any]) -> None:
        await self.takes.wait()
        self.sent.append(message)

    async def send_frame(self, text: str) -> None:
        await self.takes.wait()
        self.sent.append(text)

    def send_now(self, text: str) -> bool:
        if self.takes.is_set():
            self.sent.append(text)
        return self.takes.is_set()

    async def receive(self) -> str:
        message = await self.incoming.get()
        if isinstance(message, ConnectionEnded):
            raise message
        return json.dumps(message)

    async def hand_to(self, take: Callable[[bytes | str], None]) -> None:
        while True:
            take(await self.receive())

    async def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Provider:
    """Gives a new line to everyone who dials, until it refuses."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.setups: list[dict[str, Any]] = []
        self.refusals: list[ConnectionEnded] = []

    async def dial(self, setup: dict[str, Any]) -> Line:
        self.setups.append(setup)
        if self.refusals:
            raise self.refusals.pop(0)
        self.lines.append(Line())
        return self.lines[-1]

    def say(self, *messages: Any) -> None:
        for message in messages:
            self.lines[-1].incoming.put_nowait(message)


@asynccontextmanager
async def linked(**limits: Any) -> AsyncIterator[tuple[LiveLink, Provider]]:
    provider = Provider()
    transport = GeminiLiveTransport("a-model", LiveConfig())
    link = LiveLink(transport, provider.dial, replace(LIMITS, **limits), INPUT_RATES)
    await link.start()
    try:
        async with asyncio.timeout(30):
            yield link, provider
    finally:
        await link.close()


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def call(number: int) -> dict[str, Any]:
    return {"toolCall": {"functionCalls": [{"id": f"fc-{number}", "name": "set_lamp", "args": {}}]}}


async def taken(link: LiveLink) -> list[Any]:
    """What waits for the host, to the end of a session that is closed now."""
    await link.close()
    return [event async for event in link.events()]


async def test_a_slow_host_loses_the_oldest_audio_and_no_call() -> None:
    async with linked(audio_out_frames=10) as (link, provider):
        for number in range(30):
            provider.say(AUDIO, AUDIO, call(number))
        await settle()
        events = await taken(link)

    assert [event.calls[0].call_id for event in events if isinstance(event, CallsMade)] == [
        f"fc-{n}" for n in range(30)
    ]
    assert len([event for event in events if isinstance(event, AudioOut)]) == 10
    assert link.counters.dropped_audio_out == 50


async def test_a_host_that_takes_nothing_stops_the_reading_before_anything_else_is_lost() -> None:
    async with linked(events=20) as (link, provider):
        provider.say(*map(call, range(500)))
        await settle()
        assert provider.lines[0].incoming.qsize() > 400
        made: list[Any] = []
        async for event in link.events():
            made += [event] if isinstance(event, CallsMade) else []
            if len(made) == 500:
                break
        assert [one.calls[0].call_id for one in made] == [f"fc-{n}" for n in range(500)]


async def test_a_slow_provider_loses_the_users_oldest_audio_and_no_message() -> None:
    async with linked(audio_in_frames=10) as (link, provider):
        provider.lines[0].takes.clear()
        taken_in = [link.send_audio(bytes([number, 0]), 16_000) for number in range(30)]
        for number in range(30):
            await link.send_text(f"text {number}")
        provider.lines[0].takes.set()
        await settle()
        sent = provider.lines[0].sent

    assert taken_in == [True] * 10 + [False] * 20
    assert link.counters.dropped_audio_in == 20
    assert [one["realtimeInput"]["text"] for one in sent if isinstance(one, dict)] == [f"text {n}" for n in range(30)]
    frames = [json.loads(one)["realtimeInput"]["audio"]["data"] for one in sent if isinstance(one, str)]
    assert [b64decode(data)[0] for data in frames] == list(range(20, 30))


async def test_a_provider_that_takes_nothing_is_left() -> None:
    async with linked(send_seconds=0.05) as (link, provider):
        provider.lines[0].takes.clear()
        await link.send_text("Hello")
        async for event in link.events():
            if isinstance(event, Disconnected):
                assert "took no message" in event.reason
                break
        while "Hello" not in str([line.sent for line in provider.lines[1:]]):
            await asyncio.sleep(0.01)


async def test_what_is_sent_while_there_is_no_connection_is_sent_on_the_next() -> None:
    async with linked(first_delay=0.1, max_delay=0.1) as (link, provider):
        provider.say(ConnectionEnded("The line broke."))
        async for event in link.events():
            if isinstance(event, Disconnected):
                await link.send_text("Are you there?")
            if isinstance(event, Connected) and event.number == 2:
                break
        await settle()
        assert provider.lines[1].sent == [{"realtimeInput": {"text": "Are you there?"}}]
        assert provider.lines[0].is_closed


async def test_silence_is_no_stall_while_nothing_is_expected_of_the_model() -> None:
    async with linked(reply_seconds=0.03) as (link, provider):
        await asyncio.sleep(0.2)
        assert len(provider.lines) == 1
        await link.send_text("Hello")
        while len(provider.lines) < 2:
            await asyncio.sleep(0.01)


async def test_nonsense_does_not_pass_for_an_answer() -> None:
    async with linked(reply_seconds=0.1) as (link, provider):
        await link.send_text("Hello")
        for _ in range(100):
            provider.lines[0].incoming.put_nowait({"nothing": "known"})
            await asyncio.sleep(0.01)
            if len(provider.lines) > 1:
                break
        assert len(provider.lines) > 1
        assert link.counters.unknown_events > 0


async def test_a_connection_that_goes_away_is_replaced_when_it_is_quiet() -> None:
    async with linked() as (link, provider):
        provider.say(AUDIO, {"goAway": {"timeLeft": "50s"}})
        await settle()
        assert len(provider.lines) == 1
        provider.say(DONE)
        async for event in link.events():
            if isinstance(event, Connected) and event.number == 2:
                break
        assert provider.lines[0].is_closed


async def test_a_connection_that_goes_away_at_once_is_replaced_in_the_middle_of_the_answer() -> None:
    async with linked() as (link, provider):
        provider.say(AUDIO, {"goAway": {"timeLeft": "0.5s"}})
        seen = []
        async for event in link.events():
            seen.append(type(event))
            if isinstance(event, Connected) and event.number == 2:
                break
        assert seen == [Connected, AudioOut, GoAway, Disconnected, Connected]


async def test_a_provider_that_goes_away_again_and_again_is_given_up() -> None:
    async with linked() as (link, provider):
        ended: Any = None
        async for event in link.events():
            ended = event
            if isinstance(event, Connected):
                provider.say({"goAway": {"timeLeft": "0s"}})
        assert ended == Closed("lost", "The connection was replaced before its end.")
        assert len(provider.lines) == LIMITS.attempts


async def test_a_replacement_that_is_asked_for_comes_at_the_next_quiet_moment() -> None:
    async with linked() as (link, provider):
        await link.rotate()
        async for event in link.events():
            if isinstance(event, Connected) and event.number == 2:
                break
        assert len(provider.lines) == 2


async def test_a_refused_handle_is_forgotten_and_another_refusal_is_final() -> None:
    async with linked() as (link, provider):
        provider.say({"sessionResumptionUpdate": {"newHandle": "h1", "resumable": True}}, AUDIO, DONE)
        await settle()
        provider.refusals = [ConnectionEnded("Not found.", for_good=True), ConnectionEnded("Not you.", for_good=True)]
        provider.say(ConnectionEnded("The line broke."))
        events = [event async for event in link.events()]
    assert events[-1] == Closed("refused", "Not you.")
    assert [setup["setup"]["sessionResumption"] for setup in provider.setups] == [{}, {"handle": "h1"}, {}]


HANDLE = {"sessionResumptionUpdate": {"newHandle": "h1", "resumable": True}}
OVERLOADED = ConnectionEnded("Closed (1011).", by_provider=True)


def handles(provider: Provider) -> list[str | None]:
    return [setup["setup"]["sessionResumption"].get("handle") for setup in provider.setups]


async def test_a_handle_that_the_provider_closes_at_twice_is_dropped_and_the_conversation_goes_on() -> None:
    async with linked() as (link, provider):
        provider.say(HANDLE, AUDIO, DONE)
        await settle()
        provider.refusals = [OVERLOADED, OVERLOADED]
        provider.say(ConnectionEnded("The line broke."))
        while len(provider.lines) < 2:
            await asyncio.sleep(0.01)
        assert handles(provider) == [None, "h1", "h1", None]
        provider.say(AUDIO, DONE)
        await settle()
        assert [event.resumed for event in await taken(link) if isinstance(event, Connected)] == [False, False]


async def test_a_handle_whose_sessions_are_closed_right_after_the_set_up_is_dropped() -> None:
    async with linked() as (_, provider):
        provider.say(HANDLE, AUDIO, DONE)
        await settle()
        provider.say(ConnectionEnded("The line broke."))
        for count in (2, 3):
            while len(provider.lines) < count:
                await asyncio.sleep(0.01)
            provider.say(OVERLOADED)
        while len(provider.lines) < 4:
            await asyncio.sleep(0.01)
        assert handles(provider) == [None, "h1", "h1", None]


async def test_a_handle_is_kept_while_only_the_line_is_bad_and_after_it_has_served() -> None:
    async with linked(attempts=20) as (_, provider):
        provider.say(HANDLE, AUDIO, DONE)
        await settle()
        provider.refusals = [
            ConnectionEnded("Not reached."),
            ConnectionEnded("Not reached."),
            ConnectionEnded("Not reached."),
            OVERLOADED,
        ]
        provider.say(ConnectionEnded("The line broke."))
        while len(provider.lines) < 2:
            await asyncio.sleep(0.01)
        provider.say(AUDIO, DONE)
        await settle()
        provider.refusals = [OVERLOADED]
        provider.say(ConnectionEnded("The line broke."))
        while len(provider.lines) < 3:
            await asyncio.sleep(0.01)
        assert handles(provider)[1:] == ["h1"] * 7


async def test_a_fault_of_the_client_ends_connections_and_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def dial(setup: dict[str, Any]) -> Line:
        raise ZeroDivisionError

    link = LiveLink(GeminiLiveTransport("a-model", LiveConfig()), dial, LIMITS, INPUT_RATES)
    with pytest.raises(LiveError, match="ZeroDivisionError"):
        await asyncio.wait_for(link.start(), 30)
    assert len(caplog.records) == LIMITS.attempts


async def test_a_session_that_is_over_takes_nothing_more() -> None:
    async with linked() as (link, _):
        await link.close()
        await link.close()
        with pytest.raises(LiveError, match="over"):
            await link.send_text("Hello")
        with pytest.raises(LiveError, match="over"):
            link.send_audio(b"\x00\x00", 16_000)
