"""The two ends of the voice benchmark: clients that speak without pause, and a model that answers and calls tools without pause.

Both are written on bare sockets, because hundreds of them share one processor and must not be what is measured. Every frame
carries a number in its first samples, so that the other end can say how long it took. Masks are all zeros, which the protocol
allows and which costs nothing.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import struct
from collections.abc import Callable
from typing import Any

FRAME_SECONDS = 0.02
RATE = 24_000
FRAME = bytes(int(FRAME_SECONDS * RATE) * 2)
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BREATH = 0.3
"""Seconds between the end of an answer and the user's next words."""
_AUDIO = b'"audio":"'


def numbered(number: int, line: int) -> bytes:
    return struct.pack("<IH", number, line) + FRAME[6:]


def number_of(pcm: bytes) -> int:
    return int.from_bytes(pcm[:4], "little")


def line_of(pcm: bytes) -> int:
    return int.from_bytes(pcm[4:6], "little")


class Wire(asyncio.Protocol):
    """One WebSocket, either side. `taken` gets each whole message; a fragment never comes on these lines."""

    def __init__(self, *, masks: bool) -> None:
        self._masks = masks
        self._buffer = bytearray()
        self._upgraded = False
        self.closed = False
        self.close_code = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._upgraded:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            self._upgraded = True
            self.upgraded(head)
        self._frames()

    def _frames(self) -> None:
        buffer, place, there = self._buffer, 0, len(self._buffer)
        while there - place >= 2:
            size, begin = buffer[place + 1] & 0x7F, place + 2
            if size == 126:
                if there - place < 4:
                    break
                size, begin = int.from_bytes(buffer[place + 2 : place + 4], "big"), place + 4
            elif size == 127:
                if there - place < 10:
                    break
                size, begin = int.from_bytes(buffer[place + 2 : place + 10], "big"), place + 10
            mask = None
            if buffer[place + 1] & 0x80:
                mask, begin = bytes(buffer[begin : begin + 4]), begin + 4
            if there - begin < size:
                break
            kind = buffer[place] & 0x0F
            body = bytes(buffer[begin : begin + size])
            place = begin + size
            self._frame(kind, body, mask)
        del buffer[:place]

    def _frame(self, kind: int, body: bytes, mask: bytes | None) -> None:
        if kind == 8:
            plain = unmasked(body[:2], mask)
            self.close_code = int.from_bytes(plain, "big") if plain else 1005
            self.transport.close()
        elif kind == 9:
            self.send(unmasked(body, mask), 10)
        elif kind in (1, 2):
            self.taken(body, mask, kind == 2)

    def send(self, body: bytes, kind: int = 1) -> None:
        if self.closed:
            return
        size = len(body)
        bit = 0x80 if self._masks else 0
        head = (
            struct.pack("!BB", 0x80 | kind, bit | size)
            if size < 126
            else struct.pack("!BBH", 0x80 | kind, bit | 126, size)
        )
        if size > 65_535:
            head = struct.pack("!BBQ", 0x80 | kind, bit | 127, size)
        self.transport.write(head + (b"\0\0\0\0" if self._masks else b"") + body)

    def tell(self, message: dict[str, Any]) -> None:
        self.send(json.dumps(message).encode())

    def upgraded(self, head: bytes) -> None: ...

    def taken(self, body: bytes, mask: bytes | None, binary: bool) -> None: ...


def unmasked(body: bytes, mask: bytes | None) -> bytes:
    if mask is None or mask == b"\0\0\0\0" or not body:
        return body
    key = (mask * (len(body) // 4 + 1))[: len(body)]
    return (int.from_bytes(body, "big") ^ int.from_bytes(key, "big")).to_bytes(len(body), "big")


class Ticker:
    """Calls something every 20 ms, from a phase of its own, until it is stopped. A late tick is not made up for."""

    def __init__(self, phase: float, tick: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tick = tick
        self._next = self._loop.time() + phase
        self._timer = self._loop.call_at(self._next, self._run)

    def _run(self) -> None:
        self._tick()
        now = self._loop.time()
        self._next = max(self._next + FRAME_SECONDS, now)
        self._timer = self._loop.call_at(self._next, self._run)

    def stop(self) -> None:
        self._timer.cancel()


class Clocked:
    """When each numbered frame left, and how long those that arrived took, in seconds."""

    def __init__(self, line: int) -> None:
        self._line = line
        self._left: dict[int, float] = {}
        self.took: list[float] = []
        self.sent = 0
        self.measuring = False
        self._time = asyncio.get_running_loop().time

    def leave(self) -> bytes:
        self.sent += 1
        if self.measuring:
            self._left[self.sent] = self._time()
        return numbered(self.sent, self._line)

    def arrive(self, number: int) -> None:
        left = self._left.pop(number, None)
        if left is not None:
            self.took.append(self._time() - left)

    @property
    def missing(self) -> int:
        return len(self._left)


class Provider(Wire):
    """One conversation of a model: it hears, calls `note`, waits for the answer, speaks for a second, and begins again."""

    def __init__(self, world: World) -> None:
        super().__init__(masks=False)
        self.world = world
        self.number = -1
        self.pair: Pair | None = None
        self._made = 0
        self._answered: asyncio.Event = asyncio.Event()
        self._output = self._asked = False
        self.calls_answered: list[bool] = []
        self._task: asyncio.Task[None] | None = None

    def upgraded(self, head: bytes) -> None:
        key = next(
            line.split(b":", 1)[1].strip()
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"sec-websocket-key")
        )
        accept = base64.b64encode(hashlib.sha1(key + _GUID.encode(), usedforsecurity=False).digest())
        self.transport.write(
            b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            + accept
            + b"\r\n\r\n"
        )
        self._event("session.created", session={"type": "realtime", "id": "s"})

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._task is not None:
            self._task.cancel()

    def taken(self, body: bytes, mask: bytes | None, binary: bool) -> None:
        head = unmasked(body[:120], mask)
        if head.startswith(b'{"type":"input_audio_buffer.append"'):
            begin = head.index(_AUDIO) + len(_AUDIO)
            pcm = base64.b64decode(head[begin : begin + 8])
            if self.pair is None:
                self._join(self.world.pairs[line_of(pcm)])
            else:
                self.pair.inward.arrive(number_of(pcm))
            return
        message = json.loads(unmasked(body, mask))
        match message.get("type"):
            case "session.update":
                self._event("session.updated", session=message["session"])
            case "conversation.item.create" if message["item"].get("type") == "function_call_output":
                self.calls_answered.append(bool(json.loads(message["item"]["output"])["ok"]))
                self._output = True
            case "response.create":
                self._asked = True
            case _:
                return
        if self._output and self._asked:
            self._answered.set()

    def _join(self, pair: Pair) -> None:
        """The first frame says whose line this is."""
        self.pair = pair
        pair.provider = self
        self._task = asyncio.get_running_loop().create_task(self._talk(pair))

    async def _talk(self, pair: Pair) -> None:
        await asyncio.sleep(pair.phase * 50)
        while not self.world.stopping:
            self._made += 1
            self._hears(f"note {pair.number}-{self._made}")
            pair.calls_made += 1
            self._calls({"q": f"{pair.number}-{self._made}"})
            await self._answered.wait()
            self._answered.clear()
            self._output = self._asked = False
            await self._speaks(pair)
            await asyncio.sleep(_BREATH)
        pair.silent.set()

    def _hears(self, text: str) -> None:
        item = self._name("item")
        self._event("input_audio_buffer.speech_started", audio_start_ms=0, item_id=item)
        self._event("input_audio_buffer.speech_stopped", audio_end_ms=1, item_id=item)
        self._event("input_audio_buffer.committed", item_id=item, previous_item_id=None)
        kind = "conversation.item.input_audio_transcription"
        self._event(f"{kind}.completed", item_id=item, content_index=0, transcript=text)

    def _calls(self, args: dict[str, Any]) -> None:
        response, item = self._name("resp"), self._name("item")
        call = {"id": item, "object": "realtime.item", "type": "function_call", "status": "completed",
                "call_id": self._name("call"), "name": "note", "arguments": json.dumps(args)}  # fmt: skip
        self._event("response.created", response={"id": response, "status": "in_progress"})
        self._event("response.output_item.done", response_id=response, output_index=0, item=call)
        self._event("response.done", response={"id": response, "status": "completed", "output": [call]})

    async def _speaks(self, pair: Pair) -> None:
        response, item = self._name("resp"), self._name("item")
        named = {"response_id": response, "item_id": item, "output_index": 0, "content_index": 0}
        self._event("response.created", response={"id": response, "status": "in_progress"})
        named_so = {"type": "response.output_audio.delta", "event_id": "e", **named, "delta": ""}
        front = json.dumps(named_so).encode().removesuffix(b'"}')
        left = 50
        done = asyncio.Event()

        def tick() -> None:
            nonlocal left
            left -= 1
            if left <= 0 or self.closed:
                done.set()
            self.send(front + base64.b64encode(pair.outward.leave()) + b'"}')

        ticker = Ticker(pair.phase, tick)
        await done.wait()
        ticker.stop()
        self._event("response.output_audio_transcript.delta", delta="Noted.", **named)
        self._event("response.output_audio_transcript.done", transcript="Noted.", **named)
        self._event("response.output_audio.done", **named)
        self._event("response.done", response={"id": response, "status": "completed", "output": []})

    def _event(self, kind: str, **fields: Any) -> None:
        self.tell({"type": kind, "event_id": self._name("event"), **fields})

    def _name(self, kind: str) -> str:
        return f"{kind}_{next(self.world.names)}"


class Client(Wire):
    """A user's page: it sends a frame every 20 ms and takes what comes."""

    def __init__(self, pair: Pair, path: str, ticket: str) -> None:
        super().__init__(masks=True)
        self._pair = pair
        self._path = path
        self._ticket = ticket
        self.last = 0
        self.gaps = 0
        self.kinds: dict[str, int] = {}
        self.errors: list[str] = []
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self._heard = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        key = base64.b64encode(os.urandom(16)).decode()
        self.transport.write(
            f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: handrail.voice.v1\r\n\r\n".encode()
        )

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.ended.set()
        self.ready.set()

    def upgraded(self, head: bytes) -> None:
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise ConnectionError(head.decode())
        abilities = {"sound": True, "recognises": False, "speaks": False}
        self.tell(
            {
                "type": "hello",
                "protocol": "handrail.voice.v1",
                "ticket": self._ticket,
                "audio": {"rate": RATE},
                "abilities": abilities,
            }
        )

    def taken(self, body: bytes, mask: bytes | None, binary: bool) -> None:
        if binary:
            self._heard += 1
            self._pair.outward.arrive(number_of(body[8:12]))
            if self._heard % 10 == 0:
                item, offset = struct.unpack("<II", body[:8])
                self.tell({"type": "played", "item": item, "ms": offset + 20})
            return
        message = json.loads(body)
        number, kind = message.get("n"), message["type"]
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if number is not None:
            self.gaps += self.last != 0 and number != self.last + 1
            self.last = number
        if kind == "ready":
            self.ready.set()
        elif kind == "audio_end":
            self.tell({"type": "played", "item": message["item"], "ms": message["ms"], "done": True})
        elif kind == "ping":
            self.tell({"type": "pong"})
        elif kind == "error":
            self.errors.append(message["message"])
        elif kind == "ended":
            self.ended.set()


class Pair:
    """One conversation: its two ends, and the frames between them."""

    def __init__(self, number: int, of: int) -> None:
        self.number = number
        self.phase = FRAME_SECONDS * number / of
        self.inward = Clocked(number)
        self.outward = Clocked(number)
        self.client: Client | None = None
        self.provider: Provider | None = None
        self.silent = asyncio.Event()
        self.calls_made = 0
        self._ticker: Ticker | None = None

    def speak(self) -> None:
        assert self.client is not None
        client, inward = self.client, self.inward
        self._ticker = Ticker(self.phase, lambda: client.send(inward.leave(), 2))

    def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.stop()


class World:
    """All conversations of one run."""

    def __init__(self, count: int) -> None:
        self.pairs = [Pair(number, count) for number in range(count)]
        self.joined = [asyncio.Event() for _ in self.pairs]
        self.names = iter(range(1, 1 << 60))
        self.stopping = False
