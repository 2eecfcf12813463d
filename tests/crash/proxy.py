"""A TCP proxy on loopback between one process and PostgreSQL's socket, which does to the connection what networks do: it cuts,
swallows, delays, and cuts at an exact message, before the server has seen it or after."""

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit


class NetworkProxy:
    """Runs on a thread and a loop of its own. `url` names the database through it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._database = urlsplit(url).path.lstrip("/")
        self._socket = str(folder / ".s.PGSQL.5432")
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self.delay = 0.0
        self.swallows = False
        """Whether what is sent, either way, never arrives."""
        self.refuses = False
        """Whether new connections are cut at once."""
        self.cut_at: int | None = None
        """At which message from the client, counted from now on, its connection is cut."""
        self.before_server = True
        """Whether the message that it is cut at has not reached the server; else its answer does not reach the client."""
        self.messages = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{self._database}?sslmode=disable&gssencmode=disable"

    def cut(self) -> None:
        """Reset every connection there is."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (self._cut_all(), done.set()))
        done.wait(60)

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def _cut_all(self) -> None:
        for writer in list(self._writers):
            _reset(writer)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            _reset(writer)
            return
        try:
            from_server, to_server = await asyncio.open_unix_connection(self._socket)
        except OSError:
            _reset(writer)
            return
        both = (writer, to_server)
        self._writers.update(both)
        try:
            await asyncio.gather(self._up(reader, to_server, writer), self._down(from_server, writer))
        except OSError:
            pass
        finally:
            for one in both:
                self._writers.discard(one)
                _reset(one)

    async def _up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65_536):
            self.messages += 1
            cut = self.cut_at is not None and self.messages == self.cut_at
            if cut and self.before_server:
                raise ConnectionResetError
            if cut:
                _reset(client)
            await self._pass_on(data, writer)
            if cut:
                await asyncio.sleep(0.2)  # the server answers a client that is gone
                raise ConnectionResetError
        raise ConnectionResetError

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._pass_on(data, writer)
        raise ConnectionResetError

    async def _pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        while self.swallows:
            await asyncio.sleep(0.01)
        writer.write(data)
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError, AttributeError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
