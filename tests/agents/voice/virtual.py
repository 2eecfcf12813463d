"""A spoken conversation in virtual time: the real agent, link and transports on the local servers' protocol, without sockets.

`virtual_voice(...)` is `kit.voice(...)` for plays in `run_virtually`: the local server's side of a connection and the link's are
joined in memory. Its client plays sound as long as it lasts, and its microphone sends a frame every 20 ms, of noise and of
whatever is being said.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from math import pi, sin, sqrt
from random import Random
from typing import Any

import orjson
from tests.agents.voice.kit import Client, ToolLog, VoiceCase, obedient, registry
from tests.clients.live.kit import LIMITS

from handrail import Runtime
from handrail.agents.conversation import Conversation
from handrail.agents.voice.agent import VoiceAgent
from handrail.agents.voice.host_port import Abilities, Sound, VoicePolicy
from handrail.contract.live import LiveConfig
from handrail.providers.gemini.live.transport import GeminiLiveTransport
from handrail.providers.live_link import ConnectionEnded, LiveLink
from handrail.providers.openai.realtime.transport import OpenAIRealtimeTransport
from handrail.stores.memory import MemoryStore
from handrail.testing.hosting import hosted
from handrail.testing.servers.live import GeminiLiveServer, OpenAIRealtimeServer, Turn
from handrail.testing.servers.live.server import LiveConversation, LiveServer
from handrail.testing.virtual_time import LoopClock

FRAME = 0.02


class Wire:
    """Both ends of a connection: the `Socket` of a link, and what a local server's `LiveConversation` sees of its own."""

    def __init__(self) -> None:
        self.transport = self
        self._to_server: asyncio.Queue[str | None] = asyncio.Queue()
        self._to_client: asyncio.Queue[str | None] = asyncio.Queue()
        self._take: Callable[[bytes | str], None] | None = None
        self._closed = asyncio.Event()

    # of the link

    async def send(self, message: dict[str, Any]) -> None:
        self._to_server.put_nowait(orjson.dumps(message).decode())

    async def send_frame(self, text: str) -> None:
        """Audio: whoever tells in the server's place what was heard does not listen to it."""

    def send_now(self, text: str) -> bool:
        return True

    async def receive(self) -> str:
        frame = await self._to_client.get()
        if frame is None:
            raise ConnectionEnded("The wire was cut.")
        return frame

    async def hand_to(self, take: Callable[[bytes | str], None]) -> None:
        while not self._to_client.empty():
            take(await self.receive())
        self._take = take
        await self._closed.wait()
        raise ConnectionEnded("The wire was cut.")

    async def close(self) -> None:
        self.abort()

    # of the server

    class _OfServer:
        def __init__(self, wire: "Wire") -> None:
            self._wire = wire
            self.transport = wire

        async def send(self, frame: str | bytes) -> None:
            wire = self._wire
            text = frame if isinstance(frame, str) else frame.decode()
            if wire._take is None:
                wire._to_client.put_nowait(text)
            else:
                wire._take(text)

        async def close(self, code: int = 1000, reason: str = "") -> None:
            self._wire.abort()

        def __aiter__(self) -> AsyncIterator[str]:
            return self._frames()

        async def _frames(self) -> AsyncIterator[str]:
            while (frame := await self._wire._to_server.get()) is not None:
                yield frame

    def of_server(self) -> Any:
        return Wire._OfServer(self)

    def abort(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._to_server.put_nowait(None)
            self._to_client.put_nowait(None)


class WiredModel:
    """A `LiveModel` on a local server's conversation."""

    def __init__(self, server: LiveServer) -> None:
        self.name = "a-model"
        self.is_gemini = isinstance(server, GeminiLiveServer)
        self.provider = "gemini-live" if self.is_gemini else "openai-realtime"
        self.input_rates = (16_000,) if self.is_gemini else (24_000,)
        self.output_rate = 24_000
        self.changes_tools = False
        self._server = server
        self._runs: list[asyncio.Task[None]] = []

    async def connect(self, config: LiveConfig) -> LiveLink:
        transport = GeminiLiveTransport(self.name, config) if self.is_gemini else OpenAIRealtimeTransport(config)
        return await LiveLink(transport, self._dial, LIMITS, self.input_rates).start()

    async def _dial(self, setup: dict[str, Any]) -> Any:
        wire = Wire()
        conversation = self._server.new_conversation(wire.of_server())
        self._server.conversations.append(conversation)
        self._runs.append(asyncio.create_task(conversation.run()))
        await wire.send(setup)
        await wire.receive()
        if not self.is_gemini:
            await wire.receive()
        return wire

    async def close(self) -> None:
        for run in self._runs:
            run.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)


class PatientClient(Client):
    """Plays every item for as long as it lasts, and only then says so."""

    def __init__(self) -> None:
        super().__init__(reports=False)
        self._ends_at = 0.0
        self._cut: set[int] = set()

    def play(self, sound: Sound) -> None:
        super().play(sound)
        now = asyncio.get_running_loop().time()
        self._ends_at = max(self._ends_at, now) + len(sound.pcm) / 2 / sound.rate

    def tell(self, type: str, data: Mapping[str, Any]) -> None:
        super().tell(type, data)
        loop = asyncio.get_running_loop()
        if type == "audio_end":
            loop.call_at(self._ends_at, self._played, data["item"], data["ms"])
        elif type == "flush":
            self._ends_at = loop.time()
            self._cut.add(data["item"])

    def _played(self, item: int, ms: int) -> None:
        if self.voice is not None and item not in self._cut:
            self.voice.played(item, ms, True)


# ------------------------------------------------------------------------------------------------------------- sound


def rms(level: float) -> float:
    """Of a level in decibels of full scale."""
    return float(32768 * 10 ** (level / 20))


_LOOP = 75
"""Frames after which noise repeats itself."""


@cache
def _noise(kind: str, level: float, rate: int) -> tuple[tuple[float, ...], ...]:
    """A second and a half of noise, in frames."""
    random, size = Random(f"{kind}{level}"), int(rate * FRAME)
    samples = range(_LOOP * size)
    white = [random.gauss(0, 1) for _ in samples]
    if kind == "zeros":
        return ((0.0,) * size,) * _LOOP
    if kind == "white":
        raw = white
    elif kind == "hum":
        raw = [sin(2 * pi * 100 * n / rate) + 0.5 * sin(2 * pi * 200 * n / rate) + 0.05 * white[n] for n in samples]
    else:  # voices far away: no steady level
        turn = 2 * pi / (_LOOP * size)
        slow = [1 + 0.35 * sin(5 * turn * n) + 0.25 * sin(7 * turn * n + 1) for n in samples]
        raw = [white[n] * slow[n] for n in samples]
    scale = rms(level) / sqrt(sum(one * one for one in raw) / len(raw))
    return tuple(tuple(scale * one for one in raw[at : at + size]) for at in range(0, len(raw), size))


@cache
def _tones(rate: int) -> tuple[tuple[float, ...], ...]:
    """Speech of level 0: a voice with overtones that rises and falls with its syllables."""
    size = int(rate * FRAME)
    raw = [
        (0.62 + 0.38 * sin(2 * pi * 4 * n / rate + 0.4))
        * (sin(2 * pi * 140 * n / rate) + 0.6 * sin(2 * pi * 280 * n / rate) + 0.4 * sin(2 * pi * 700 * n / rate))
        for n in range(_LOOP * size)
    ]
    scale = 32768 / sqrt(sum(one * one for one in raw) / len(raw))
    return tuple(tuple(scale * one for one in raw[at : at + size]) for at in range(0, len(raw), size))


@cache
def frame(kind: str, level: float, speech: float | None, place: int, rate: int) -> bytes:
    noise = _noise(kind, level, rate)[place]
    if speech is None:
        mixed: Sequence[float] = noise
    else:
        scale = 10 ** (speech / 20)
        mixed = [one + scale * tone for one, tone in zip(noise, _tones(rate)[place], strict=True)]
    return array("h", (max(-32768, min(32767, round(one))) for one in mixed)).tobytes()


class Microphone:
    """Sends what it hears, always; `say` makes it hear a voice for a time."""

    def __init__(self, voice: Any, kind: str = "zeros", level: float = -96.0) -> None:
        self._voice = voice
        self.kind, self.level = kind, level
        self._speech: float | None = None
        self._rate = voice.input_rates[0]
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in count(1):
            self._voice.hear(frame(self.kind, self.level, self._speech, number % _LOOP, self._rate), self._rate)
            await asyncio.sleep(FRAME)
            if loop.time() > 1e6:
                return

    async def say(self, seconds: float, level: float) -> None:
        self._speech = level
        await asyncio.sleep(seconds)
        self._speech = None

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


# ------------------------------------------------------------------------------------------------------------- case


@asynccontextmanager
async def virtual_voice(
    provider: str, turns: Sequence[Turn] = (), *, policy: VoicePolicy | None = None, client: Client | None = None
) -> AsyncIterator[VoiceCase]:
    server = GeminiLiveServer(turns) if provider == "gemini-live" else OpenAIRealtimeServer(turns)
    server.on_note = obedient
    model, clock = WiredModel(server), LoopClock()
    tool_log, client, conversation = ToolLog(), client or PatientClient(), Conversation(time_zone="Europe/Berlin")
    store = MemoryStore(clock=clock.milliseconds)
    async with Runtime(registry(), store=store, capabilities={"tool_log": tool_log}, clock=clock) as runtime:
        session = await runtime.open_session(mode="text", user="ana")
        agent = VoiceAgent(runtime, model, policy=policy or VoicePolicy())
        voice = client.voice = await agent.begin(session, conversation, client, abilities=Abilities())
        async with hosted(voice):
            try:
                yield VoiceCase(server, runtime, voice, client, tool_log, conversation, agent, [])
            finally:
                tool_log.may_finish.set()
    await model.close()


def provider_side(case: VoiceCase) -> LiveConversation:
    conversation: LiveConversation = case.server.conversations[-1]
    return conversation
