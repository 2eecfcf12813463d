"""What both local live servers share: the loopback listener, the script's progress, and one `LiveConversation` per connection."""

from __future__ import annotations

import asyncio
import http
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Self

import orjson
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from handrail.testing.servers.live.script import Decide, Drop, Outcome, Pause, ScriptProgress, Send, Step, Turn
from handrail.testing.servers.live.sound import SpeechDetector


class Dropped(Exception):
    """The server cut the connection on purpose."""


class ScriptWaiting(Exception):
    """The step is not over: the script continues when the client asks for more."""


class LiveConversation(ABC):
    """One connection: takes what the client sends, and plays the script into it."""

    def __init__(self, server: LiveServer, socket: ServerConnection) -> None:
        self.server = server
        self.socket = socket
        self.speech_detector = SpeechDetector()
        self.stalled = False
        self._player: asyncio.Task[None] | None = None
        self.received: list[dict[str, Any]] = []

    async def run(self) -> None:
        """Until either side ends the connection."""
        try:
            await self.greet()
            async for frame in self.socket:
                message = self._read(frame)
                if message is not None and not self.stalled:
                    self.received.append(message)
                    await self.take(message)
        except (ConnectionClosed, Dropped):
            pass  # the end that this waits for
        finally:
            await self.stop_playing()

    def _read(self, frame: str | bytes) -> dict[str, Any] | None:
        try:
            message = orjson.loads(frame)
        except orjson.JSONDecodeError:
            message = None
        if isinstance(message, dict):
            return message
        self.server.complaints.append(f"The client sent what is no JSON object: {frame[:80]!r}")
        return None

    @abstractmethod
    async def greet(self) -> None: ...

    @abstractmethod
    async def take(self, message: dict[str, Any]) -> None: ...

    @abstractmethod
    async def play_step(self, step: Step) -> None:
        """A step that is the provider's own."""

    @abstractmethod
    async def end_turn(self) -> None:
        """All steps of the turn were played."""

    @property
    @abstractmethod
    def declared(self) -> list[str]:
        """The names of the tools that the client has declared, as they are now."""

    @property
    def is_playing(self) -> bool:
        return self._player is not None and not self._player.done()

    def play(self) -> None:
        """Continue with the script from where it is."""
        if not self.is_playing:
            self._player = asyncio.create_task(self._play())

    async def stop_playing(self) -> None:
        player, self._player = self._player, None
        if player is not None and player is not asyncio.current_task():
            player.cancel()
            with suppress(asyncio.CancelledError, ConnectionClosed, Dropped):
                await player

    async def _play(self) -> None:
        progress = self.server.progress
        with suppress(ConnectionClosed, Dropped, ScriptWaiting):
            while (step := progress.current) is not None:
                match step:
                    case Pause(seconds):
                        await asyncio.sleep(seconds)
                    case Send(frame):
                        await self.send_raw(frame)
                    case Drop():
                        progress.done(step)
                        await self.cut()
                    case Decide(choose):
                        progress.replace(choose(self.declared, self.server.outcomes))
                        continue
                    case _:
                        await self.play_step(step)
                progress.done(step)
            await self.end_turn()

    async def send(self, message: dict[str, Any], *, times: int = 1) -> None:
        for _ in range(times):
            await self.send_raw(orjson.dumps(message).decode())

    async def send_raw(self, frame: str | bytes) -> None:
        if not self.stalled:
            await self.socket.send(frame)

    async def send_nonsense(self) -> None:
        """What is no message of the protocol, in many ways."""
        for frame in NONSENSE:
            await self.send_raw(frame)

    async def cut(self) -> None:
        """End the connection without a word, as a broken line does."""
        self.socket.transport.abort()
        raise Dropped

    async def stall(self) -> None:
        """Say nothing more on this connection, and leave it open."""
        self.stalled = True
        await asyncio.Event().wait()


class LiveServer(ABC):
    """A provider on loopback. `complaints` are sentences about what the client did against the protocol."""

    def __init__(self, turns: Sequence[Turn] = (), *, api_key: str = "local-key") -> None:
        self.progress = ScriptProgress(list(turns))
        self.on_note: Callable[[str], Sequence[Step]] = lambda text: ()
        """What the model says or does when the host tells it something between the turns; nothing, if nothing is set."""
        self.api_key = api_key
        self.complaints: list[str] = []
        self.outcomes: list[Outcome] = []
        """The envelopes that were taken, in order."""
        self.conversations: list[LiveConversation] = []
        self.refuse_with: http.HTTPStatus | None = None
        """Answer the next connections with this status."""
        self.numbers = count(1)
        self._server: Server | None = None
        self.port = 0

    @abstractmethod
    def new_conversation(self, socket: ServerConnection) -> LiveConversation: ...

    @abstractmethod
    def key_of(self, request: Request) -> str: ...

    def certificate(self) -> ssl.SSLContext | None:
        return None

    @property
    def received(self) -> list[dict[str, Any]]:
        """What the client sent, over all connections."""
        return [message for conversation in self.conversations for message in conversation.received]

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._handle,
            "127.0.0.1",
            0,
            ssl=self.certificate(),
            process_request=self._admit,
            max_size=None,
            compression=None,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def reacts(self, note: str) -> bool:
        """Whether the model has something to say to this note of the host; it is the next turn then."""
        steps = self.on_note(note)
        if steps:
            self.progress.insert_turn(steps)
        return bool(steps)

    def cut_all(self) -> None:
        """Cut every connection, as when the line breaks."""
        for conversation in self.conversations:
            conversation.socket.transport.abort()

    async def _handle(self, socket: ServerConnection) -> None:
        conversation = self.new_conversation(socket)
        self.conversations.append(conversation)
        await conversation.run()

    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        if self.refuse_with is not None:
            return socket.respond(self.refuse_with, "Not now.\n")
        if self.key_of(request) != self.api_key:
            return socket.respond(http.HTTPStatus.UNAUTHORIZED, "The key is not known.\n")
        return None


NONSENSE: tuple[str | bytes, ...] = (
    "this is not JSON",
    "{",
    "",
    "null",
    "[]",
    "3",
    '{"type": 7}',
    '{"type": "something.new", "field": 1}',
    '{"somethingNew": {"field": 1}}',
    '{"toolCall": 7}',
    '{"toolCall": {"functionCalls": "all"}}',
    '{"toolCall": {"functionCalls": [7, null]}}',
    '{"serverContent": []}',
    '{"serverContent": {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm", "data": "%%%"}}]}}}',
    '{"toolCallCancellation": {"ids": {}}}',
    '{"goAway": null}',
    '{"type": "response.output_item.done", "item": "none"}',
    '{"type": "response.done", "response": 4}',
    '{"type": "response.output_audio.delta", "delta": 9}',
    '{"type": "error"}',
    b"\xff\xfe\x00",
)
