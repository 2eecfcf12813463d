"""Voice over a real WebSocket to a real server: a client that speaks the protocol, and an agent that does what it is told."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonschema_rs import Draft202012Validator
from tests.server.kit import USER, ServerUnderTest, SessionClient, over_socket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from handrail.agents import Conversation
from handrail.agents.voice.host_port import Abilities, Ending, Sound, VoiceError, VoiceListener
from handrail.runtime.session import Session
from handrail.server.voice.voice_options import VoiceOptions
from handrail.server.voice.voice_protocol import PROTOCOL, SERVER

QUICK = VoiceOptions(hello_seconds=60, heartbeat_seconds=15, grace_seconds=30)
_CHECKS = {name: Draft202012Validator(schema) for name, schema in SERVER.items()}
PATIENCE = 60


class ScriptedModel:
    name = "scripted"
    input_rates = (16_000, 24_000)
    output_rate = 24_000


class ScriptedConversation:
    """A conversation that records what it is given; the test speaks for it through `listener`."""

    input_rates = ScriptedModel.input_rates
    output_rate = ScriptedModel.output_rate

    def __init__(
        self, session: Session, conversation: Conversation, listener: VoiceListener, abilities: Abilities
    ) -> None:
        self.session = session
        self.conversation = conversation
        self.listener = listener
        self.abilities = abilities
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.given: list[tuple[Any, ...]] = []
        self.heard: list[tuple[bytes, int]] = []
        self.lost: list[int | None] = []
        """Items of which some sound was lost; None: of all that were not played."""
        self.changed = asyncio.Event()
        self.says: Callable[[str, str], None] | None = None
        self.takes_audio = True
        self.sound_dropped = 0

    @property
    def is_over(self) -> bool:
        return self.ending.done()

    def facts(self) -> dict[str, Any]:
        turn = self.session.turn.number if self.session.turn else 0
        named = {"model": "scripted", "provider": "none", "offline": True, "language": "en"}
        return {"sessionId": self.session.id, "turn": turn, "mode": "voice", **named, "audio": {}}

    def _note(self, *what: Any) -> None:
        self.given.append(what)
        self.changed.set()

    def hear(self, pcm: bytes, rate: int) -> bool:
        self.heard.append((pcm, rate))
        self.changed.set()
        return self.takes_audio

    async def say(self, text: str, *, id: str, spoken: bool = False) -> None:
        if text == "refuse":
            raise VoiceError("Not now.", code="busy")
        if text == "break":
            raise RuntimeError("a fault")
        self._note("say", text, id, spoken)
        number = await self.session.begin_turn(id)
        self.listener.tell("turn", {"turn": number, "inputId": id})
        self.listener.tell("transcript", _transcript("model", id, f"You said {text}."))
        self.listener.tell("turn_done", done(number, id, text, f"You said {text}."))

    def speech(self, state: str, ago_seconds: float = 0.0) -> None:
        self._note("speech", state, *([ago_seconds] if ago_seconds else []))

    def played(self, item: int, ms: int, done: bool = False) -> None:
        self._note("played", item, ms, done)

    def sound_lost(self, item: int | None) -> None:
        self.lost.append(item)
        self.changed.set()

    def spoken(self, id: str, completed: bool) -> None:
        self._note("spoken", id, completed)

    async def interrupt(self) -> None:
        self._note("interrupt")

    def take(self, event: Any) -> bool:
        self._note("take", event.type)
        if event.type == "confirmation":
            self.listener.tell("confirmation", event.data)
        return event.type == "envelope"

    def adapt(self, abilities: Abilities, *, resumed: bool = False) -> None:
        self.abilities = abilities
        self._note("adapt", abilities)

    async def end(self, reason: str = "user_requested") -> None:
        if self.ending.done():
            return
        await self.session.set_mode("text")
        ending = Ending(reason=reason, closing_message="Goodbye.", text_response="We spoke.")
        self._note("end", reason)
        self.listener.tell("ended", ending.to_dict())
        self.ending.set_result(ending)

    async def close(self) -> None:
        self._note("close")
        if not self.ending.done():
            self.ending.set_result(Ending(reason="closed", resumable=True))

    async def until(self, seen: Callable[["ScriptedConversation"], Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not seen(self):
                self.changed.clear()
                await self.changed.wait()

    def play(self, item: int, offset_ms: int, pcm: bytes) -> None:
        self.listener.play(Sound(item, offset_ms, pcm, 24_000))


def _transcript(who: str, input_id: str, text: str) -> dict[str, Any]:
    return {"who": who, "item": 1, "inputId": input_id, "text": text, "whole": text, "final": True}


def done(turn: int, input_id: str, words: str, text: str, **more: Any) -> dict[str, Any]:
    latency = {"hearingMs": 1, "modelMs": 2, "toolsMs": None, "speakingMs": 3}
    facts = {"turn": turn, "inputId": input_id, "input": words, "text": text, "citations": [], "interrupted": False}
    return {**facts, "latency": latency, **more}


class ScriptedAgent:
    """Begins scripted conversations. `fails` is raised by the next beginning, `gate` makes it wait."""

    model = ScriptedModel()

    def __init__(self) -> None:
        self.all_spoken: list[ScriptedConversation] = []
        self.fails: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()

    async def begin(
        self, session: Session, conversation: Conversation, listener: VoiceListener, *, abilities: Abilities
    ) -> ScriptedConversation:
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        await session.set_mode("voice")
        resumed = await session.core.resume_session(session.id, token=session.token)
        resumed.voice_open = True
        spoken = ScriptedConversation(resumed, conversation, listener, abilities)
        self.all_spoken.append(spoken)
        return spoken

    @property
    def spoken(self) -> ScriptedConversation:
        return self.all_spoken[-1]


class VoiceClient:
    """A client of the protocol: reads in the background, so that a test can wait for what it wants to see."""

    def __init__(self, wire: ClientConnection) -> None:
        self.wire = wire
        self.messages: list[dict[str, Any]] = []
        self.sounds: list[tuple[int, int, bytes]] = []
        self.close_code: int | None = None
        self.answers_pings = True
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._reading = asyncio.Event()
        self._reading.set()

    async def _read(self) -> None:
        try:
            while True:
                await self._reading.wait()
                frame = await self.wire.recv()
                if isinstance(frame, bytes):
                    item, offset = struct.unpack_from("<II", frame)
                    self.sounds.append((item, offset, frame[8:]))
                else:
                    self._took(json.loads(frame))
                    if self.answers_pings and self.messages[-1]["type"] == "ping":
                        with suppress(ConnectionClosed):  # what came before the end is still to be read
                            await self.send("pong")
                self._news.set()
        except ConnectionClosed as closed:
            self.close_code = closed.rcvd.code if closed.rcvd is not None else 1006
        finally:
            self._news.set()

    def _took(self, message: dict[str, Any]) -> None:
        check = _CHECKS[message["type"]]
        assert check.is_valid(message), (message, [error.message for error in check.iter_errors(message)])
        self.messages.append(message)

    async def send(self, type: str, **fields: Any) -> None:
        await self.wire.send(json.dumps({"type": type, **fields}))

    async def until(self, seen: Callable[["VoiceClient"], Any]) -> Any:
        try:
            async with asyncio.timeout(PATIENCE):
                while not (found := seen(self)):
                    assert self.close_code is None, f"closed with {self.close_code}: {self.messages[-3:]}"
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError("It did not come:\n" + "\n".join(map(str, self.messages))) from None
        return found

    async def message(self, type: str, **fields: Any) -> dict[str, Any]:
        """The first message of this type with these fields, now or later."""

        def found(client: "VoiceClient") -> Any:
            return next((one for one in client.messages if _fits(one, type, fields)), None)

        return await self.until(found)

    async def closed(self) -> int:
        async with asyncio.timeout(PATIENCE):
            await self._reader
        assert self.close_code is not None
        return self.close_code

    async def refused(self, code: int) -> str:
        """The sentence that came before this close code."""
        found = await self.closed()
        assert found == code, (found, self.messages[-3:])
        assert self.messages[-1]["type"] == "error", self.messages[-3:]
        return self.messages[-1]["message"]

    def of(self, type: str) -> list[dict[str, Any]]:
        return [one for one in self.messages if one["type"] == type]

    @property
    def numbers(self) -> list[int]:
        return [one["n"] for one in self.messages if "n" in one]

    def stop_reading(self) -> None:
        self._reading.clear()

    def go_on_reading(self) -> None:
        self._reading.set()

    async def drop(self) -> None:
        """The line breaks, without a word."""
        self.wire.transport.abort()
        await self.closed()

    async def close(self) -> None:
        await self.wire.close()
        await self._reader


def _fits(message: Mapping[str, Any], type: str, fields: Mapping[str, Any]) -> bool:
    return message["type"] == type and all(message.get(name) == value for name, value in fields.items())


async def ticket_for(api: SessionClient, expected: int = 201) -> dict[str, Any]:
    answer = await api.server.client.post(f"/api/sessions/{api.id}/voice", json={}, headers=api.headers)
    assert answer.status_code == expected, answer.text
    return answer.json()


async def tickets_kept(server: ServerUnderTest) -> int:
    """How many tickets wait to be used."""
    kept = await server.runtime.store._read(lambda tx: tx.db.execute("SELECT count(*) FROM voice_ticket").fetchone())
    return int(kept[0])


def address(server: ServerUnderTest, session_id: str) -> str:
    return f"{server.url.replace('http', 'ws', 1)}/api/sessions/{session_id}/voice"


@asynccontextmanager
async def connected(server: ServerUnderTest, session_id: str, **more: Any) -> AsyncIterator[VoiceClient]:
    """A socket on which nothing was said yet."""
    small = more.pop("receive_buffer", None)
    if small is not None:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, small)
        raw.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        more["sock"] = raw
    name = more.pop("name", None)
    url = address(server, session_id)
    if name is not None:
        url, more = (
            url.replace("127.0.0.1", name),
            {**more, "host": "127.0.0.1", "port": int(server.url.rpartition(":")[2])},
        )
    options = {
        "subprotocols": [PROTOCOL],
        "compression": None,
        "max_size": None,
        "ping_interval": None,
        "max_queue": 4,
        "open_timeout": PATIENCE,
    }
    async with connect(url, **{**options, **more}) as wire:
        client = VoiceClient(wire)
        try:
            yield client
        finally:
            client.go_on_reading()
            await client.close()


@asynccontextmanager
async def on_the_line(
    api: SessionClient, *, rate: int = 16_000, last: int | None = None, **more: Any
) -> AsyncIterator[VoiceClient]:
    """A client that was let in."""
    abilities = more.pop("abilities", {"sound": True})
    ready = more.pop("ready", True)
    ticket = await ticket_for(api)
    async with connected(api.server, api.id, **more) as client:
        resumed = {} if last is None else {"lastEvent": last}
        hello = {"protocol": PROTOCOL, "ticket": ticket["ticket"], "abilities": abilities, **resumed}
        await client.send("hello", **hello, **({"audio": {"rate": rate}} if rate else {}))
        if ready:
            await client.message("ready")
        yield client


@asynccontextmanager
async def voice_server(
    folder: Path, *, limits: VoiceOptions = QUICK, agent: Any = None, **more: Any
) -> AsyncIterator[ServerUnderTest]:
    """A server with voice; its agent is scripted unless one is given."""
    chosen = agent or ScriptedAgent()
    async with over_socket(folder, voice=chosen, voice_options=limits, **more) as server:
        server.agent = chosen  # type: ignore[attr-defined]
        yield server


async def open_talker(server: ServerUnderTest, key: str = USER, **wish: Any) -> SessionClient:
    return await server.open(key, **wish)


def limits(**changes: Any) -> VoiceOptions:
    return replace(QUICK, **changes)
