"""Proxies on loopback for the tests, each on a thread and an event loop of its own.

`LoopbackProxy` accepts connections and passes bytes on, both ways; what a proxy does to them is for its subclass to say.
`Pooler` is before PostgreSQL what a pooler in transaction mode is. `RoundRobinProxy` stands before several servers as the
simplest balancer does: each HTTP request goes to the next of them that takes a connection, whoever asks and whatever for. It
knows neither sessions nor who is healthy.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

_CHUNK = 65_536
_MAX_HEAD = 65_536
_NOBODY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LoopbackProxy:
    """Passes on what comes to a free port, or to a socket at a path. It is closed by `close`, or as a context."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    def __enter__(self) -> "LoopbackProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Reset every connection there is."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (self._cut_all(), done.set()))
        done.wait(60)

    def close(self) -> None:
        if self._thread.is_alive():
            self.cut()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(60)

    async def connect(self, head: asyncio.StreamReader) -> Streams | None:
        """A connection to the server that this one is for; None: it is refused. What is read of `head` is gone."""
        raise NotImplementedError

    async def up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        """What the client sends, until it sends nothing more."""
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()

    async def down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What the server answers."""
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()

    def _cut_all(self) -> None:
        for writer in list(self._writers):
            reset(writer)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        starting = (
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2_048)
            if self._path is None
            else asyncio.start_unix_server(self._serve, str(self._path))
        )
        server = self._loop.run_until_complete(starting)
        if self._path is None:
            self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connected = await self.connect(reader)
        except (OSError, EOFError):
            connected = None
        if connected is None:
            await self.refuse(writer)
            return
        from_server, to_server = connected
        both = (writer, to_server)
        self._writers.update(both)
        directions = [
            asyncio.ensure_future(self.up(reader, to_server, writer)),
            asyncio.ensure_future(self.down(from_server, writer)),
        ]
        try:
            # Whichever side ends it, the other one is told.
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in directions:
                task.cancel()
            outcomes = await asyncio.gather(*directions, return_exceptions=True)
            for one in both:
                self._writers.discard(one)
                if any(isinstance(outcome, OSError) for outcome in outcomes):
                    reset(one)
                else:
                    one.close()

    async def refuse(self, writer: asyncio.StreamWriter) -> None:
        reset(writer)


class RoundRobinProxy(LoopbackProxy):
    """Before servers on ports of this machine."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = tuple(ports)
        self._next = count()
        self.requests = dict.fromkeys(self._ports, 0)
        """How many each was given."""
        self.refused = 0
        """How many found no server."""
        super().__init__()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def replace(self, port: int, other: int) -> None:
        """A server that was at one port is at another now."""
        self._ports = tuple(other if one == port else one for one in self._ports)
        self.requests[other] = self.requests.pop(port)

    async def connect(self, head: asyncio.StreamReader) -> Streams | None:
        # The head is read first: one connection is one request, or a client that keeps its connection would stay at one server.
        asked = _for_one_request(await head.readuntil(b"\r\n\r\n"))
        first = next(self._next)
        for place in range(len(self._ports)):
            port = self._ports[(first + place) % len(self._ports)]
            try:
                streams = await asyncio.open_connection("127.0.0.1", port, limit=_MAX_HEAD)
            except OSError:
                continue  # nobody is there at the moment, and nothing was sent: the next one is asked
            self.requests[port] = self.requests.get(port, 0) + 1
            streams[1].write(asked)
            return streams
        self.refused += 1
        return None

    async def refuse(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(_NOBODY)
            await writer.drain()
        writer.close()


class Pooler(LoopbackProxy):
    """Before PostgreSQL at a socket: another process answers than the one that greeted. With `refuses` a client that sets this
    at its start is turned away, as PgBouncer does unless it is told to ignore it."""

    def __init__(self, server: Path, refuses: str = "") -> None:
        self._server = server
        self._refuses = refuses
        super().__init__()

    async def connect(self, head: asyncio.StreamReader) -> Streams | None:
        reader, writer = await asyncio.open_unix_connection(str(self._server))
        (size,) = struct.unpack("!I", start := await head.readexactly(4))
        start += await head.readexactly(size - 4)
        if self._refuses and self._refuses.encode() in start:
            writer.close()
            return None
        writer.write(start)
        return reader, writer

    async def refuse(self, writer: asyncio.StreamWriter) -> None:
        said = f"SFATAL\0C08P01\0Munsupported startup parameter in options: {self._refuses}\0\0".encode()
        writer.write(b"E" + struct.pack("!I", len(said) + 4) + said)
        await writer.drain()
        writer.close()

    async def down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greets = True
        while data := await reader.read(_CHUNK):
            at = data.find(b"K\0\0\0\x0c") if greets else -1
            if at >= 0:
                data = data[: at + 5] + (1).to_bytes(4, "big") + data[at + 9 :]
                greets = False
            writer.write(data)


def _for_one_request(head: bytes) -> bytes:
    """The request, after which the server closes the connection, unless it becomes a WebSocket."""
    lines = head.split(b"\r\n")
    names = [line.partition(b":")[0].strip().lower() for line in lines]
    if b"upgrade" in names:
        return head
    kept = [line for line, name in zip(lines, names, strict=True) if name != b"connection"]
    return b"\r\n".join([kept[0], b"Connection: close", *kept[1:]])


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a network does that has lost it."""
    connection = writer.get_extra_info("socket")
    with suppress(OSError, AttributeError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
