"""The voice side of the scripted server: gives tickets, takes a WebSocket on the same port, writes down what the console sends,
and says what a test tells it to say. For what a real server cannot be brought to do on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
from array import array
from collections.abc import Callable
from math import pi, sin
from typing import Any

from jsonschema_rs import Draft202012Validator
from tests.console.scripted_server import Handler, ScriptedServer
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from handrail.server.voice.voice_protocol import PROTOCOL, SERVER, BadMessage, read_message

_CHECKS = {name: Draft202012Validator(schema) for name, schema in SERVER.items()}
OUTPUT_RATE = 24_000
_PATIENCE = 20.0


def tone(milliseconds: int, pitch: float = 330.0) -> bytes:
    samples = range(OUTPUT_RATE * milliseconds // 1000)
    return array("h", (int(6000 * sin(2 * pi * pitch * n / OUTPUT_RATE)) for n in samples)).tobytes()


class VoiceScript:
    """What the server plays on the socket, and what it got."""

    def __init__(self) -> None:
        self.offline = False
        self.language = "en"
        self.rates = [16_000]
        self.refusal: tuple[int, str] | None = None
        """A status and a sentence instead of a ticket."""
        self.sockets_refused = 0
        self.busy = 0
        """How many clients are asked to come back, once they have said hello."""
        self.numbers = 0
        self.log: list[dict[str, Any]] = []
        """Numbered messages, for whoever comes back."""
        self.hellos: list[dict[str, Any]] = []
        self.got: list[dict[str, Any]] = []
        self.frames: list[bytes] = []
        self.refused: list[str] = []
        """Why messages of the console were not those of the protocol."""
        self.tickets = 0
        self.tickets_may_go_on = threading.Event()
        self.tickets_may_go_on.set()
        self.socket: Socket | None = None
        self.resumes = True
        self.changed = threading.Condition()

    def wait(self, holds: Callable[[], Any]) -> Any:
        """Until the console has done something."""
        with self.changed:
            assert self.changed.wait_for(holds, _PATIENCE), f"it did not happen; the console sent {self.got[-12:]}"
            return holds()

    def messages(self, type: str) -> list[dict[str, Any]]:
        return [message for message in self.got if message["type"] == type]

    def wait_for(self, type: str, count: int = 1) -> dict[str, Any]:
        """The last message of a kind, when there are as many as that."""
        found: dict[str, Any] = self.wait(lambda: len(self.messages(type)) >= count and self.messages(type)[-1])
        return found

    def say(self, type: str, **data: Any) -> None:
        """One numbered message."""
        with self.changed:
            self.numbers += 1
            message = {"n": self.numbers, "type": type, **data}
            _CHECKS[type].validate(message)
            self.log.append(message)
            if self.socket is not None:
                self.socket.send(message)

    def play(self, item: int, milliseconds: int, *, offset: int = 0) -> None:
        """A tone in pieces of 100 ms, and its end."""
        sound = tone(milliseconds)
        piece = OUTPUT_RATE * 2 // 10
        for place in range(0, len(sound), piece):
            at = offset + place * 500 // OUTPUT_RATE
            self.sound(item, at, sound[place : place + piece])
        self.say("audio_end", item=item, ms=offset + milliseconds)

    def sound(self, item: int, offset: int, pcm: bytes) -> None:
        if self.socket is not None:
            self.socket.send_sound(struct.pack("<II", item, offset) + pcm)

    def ready(self, resumed: bool) -> dict[str, Any]:
        audio = {"input": {"rate": 0 if self.offline else self.rates[0]}, "output": {"rate": OUTPUT_RATE}}
        facts = {"sessionId": "s-1", "turn": 0, "model": "scripted", "provider": "scripted", "lastEvent": self.numbers}
        return {
            "type": "ready",
            "offline": self.offline,
            "language": self.language,
            "resumed": resumed,
            "audio": audio,
            **facts,
        }

    def drop(self, code: int = 1001, sentence: str = "") -> None:
        """Close the socket from the server's side, with the reason before it."""
        socket = self.wait(lambda: self.socket)
        if sentence:
            socket.send({"type": "error", "code": "scripted", "message": sentence})
        socket.close(code)

    def joined(self, socket: Socket, hello: dict[str, Any]) -> None:
        with self.changed:
            self.hellos.append(hello)
            if self.busy:
                self.busy -= 1
                socket.send({"type": "error", "code": "restart", "message": "Another process is busy in the session."})
                socket.close(1001)
                return
            last = hello.get("lastEvent")
            resumed = last is not None and self.resumes
            socket.send(self.ready(resumed))
            for message in self.log if resumed else ():
                if message["n"] >= (last or 0):  # the last one may be sent again, where a server is not sure
                    socket.send(message)
            self.socket = socket
            self.changed.notify_all()

    def took(self, message: dict[str, Any]) -> None:
        with self.changed:
            self.got.append(message)
            self.changed.notify_all()

    def took_sound(self, pcm: bytes) -> None:
        with self.changed:
            self.frames.append(pcm)
            self.changed.notify_all()

    def left(self, socket: Socket) -> None:
        with self.changed:
            if self.socket is socket:
                self.socket = None
            self.changed.notify_all()


class Socket:
    """One WebSocket, after its handshake."""

    def __init__(self, handler: Handler, script: VoiceScript) -> None:
        self._handler = handler
        self._script = script
        self._protocol = ServerProtocol(state=State.OPEN)
        self._writing = threading.Lock()
        self._greeted = False

    def send(self, message: dict[str, Any]) -> None:
        self._do(lambda: self._protocol.send_text(json.dumps(message).encode()))

    def send_sound(self, data: bytes) -> None:
        self._do(lambda: self._protocol.send_binary(data))

    def close(self, code: int) -> None:
        self._do(lambda: self._protocol.send_close(code))

    def _do(self, act: Callable[[], None]) -> None:
        with self._writing:
            if self._protocol.state is State.OPEN:
                act()
            self._flush()

    def _flush(self) -> None:
        try:
            for data in self._protocol.data_to_send():
                if data:
                    self._handler.wfile.write(data)
        except OSError:
            return  # the page is gone

    def serve(self) -> None:
        while data := self._read():
            with self._writing:
                self._protocol.receive_data(data)
                events = self._protocol.events_received()
                self._flush()
            for event in events:
                assert isinstance(event, Frame)
                if event.opcode is Opcode.TEXT:
                    self._take(event.data.decode())
                elif event.opcode is Opcode.BINARY:
                    self._script.took_sound(bytes(event.data))
            if self._protocol.close_expected():
                break
        self._script.left(self)

    def _read(self) -> bytes:
        try:
            return self._handler.connection.recv(65536)
        except OSError:
            return b""

    def _take(self, text: str) -> None:
        try:
            message = dict(read_message(text))
        except BadMessage as error:
            self._script.refused.append(str(error))
            self.close(4400)
            return
        if self._greeted:
            self._script.took(message)
        else:
            self._greeted = True
            self._script.joined(self, message)


class VoiceHandler(Handler):
    voice: VoiceScript

    def route(self, method: str) -> None:
        if self.path.endswith("/voice") and method == "GET":
            self.upgrade()
        else:
            super().route(method)

    def api(self, method: str, steps: list[str]) -> None:
        if method == "POST" and steps[-1] == "voice":
            self.ticket()
        else:
            super().api(method, steps)

    def ticket(self) -> None:
        voice = self.voice
        if voice.refusal is not None:
            status, sentence = voice.refusal
            self.answer({"error": {"type": "UNAVAILABLE", "message": sentence}}, status)
            return
        voice.tickets += 1
        voice.tickets_may_go_on.wait(_PATIENCE)
        rates = [] if voice.offline else voice.rates
        audio = {"input": {"rates": rates}, "output": {"rate": 0 if voice.offline else OUTPUT_RATE}}
        facts = {"ticket": f"ticket-{voice.tickets}", "url": "/api/sessions/s-1/voice", "protocol": PROTOCOL}
        self.answer({**facts, "expiresIn": 30, "offline": voice.offline, "model": "scripted", "audio": audio}, 201)

    def upgrade(self) -> None:
        if self.voice.sockets_refused:
            self.voice.sockets_refused -= 1
            self.answer({"error": {"message": "Not now."}}, 503)
            return
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.send_header("Sec-WebSocket-Protocol", PROTOCOL)
        self.end_headers()
        self.close_connection = True
        Socket(self, self.voice).serve()


class ScriptedVoiceServer(ScriptedServer):
    """The scripted server with a voice."""

    def __init__(self) -> None:
        self.voice = VoiceScript()
        super().__init__(VoiceHandler, voice=self.voice)

    def close(self) -> None:
        assert self.voice.refused == []
        if self.voice.socket is not None:
            self.voice.socket.close(1001)
        super().close()
