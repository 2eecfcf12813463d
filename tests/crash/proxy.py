"""A TCP proxy on loopback between one process and PostgreSQL's socket, which does to the connection what networks do: it cuts,
swallows, delays, and cuts at an exact message, before the server has seen it or after."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from tests.loopback_proxy import LoopbackProxy, Streams, reset


class NetworkProxy(LoopbackProxy):
    """`url` names the database through it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._database = urlsplit(url).path.lstrip("/")
        self._socket = str(folder / ".s.PGSQL.5432")
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
        super().__init__()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{self._database}?sslmode=disable&gssencmode=disable"

    async def connect(self, head: asyncio.StreamReader) -> Streams | None:
        return None if self.refuses else await asyncio.open_unix_connection(self._socket)

    async def up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65_536):
            self.messages += 1
            cut = self.cut_at is not None and self.messages == self.cut_at
            if cut and self.before_server:
                raise ConnectionResetError
            if cut:
                reset(client)
            await self._pass_on(data, writer)
            if cut:
                await asyncio.sleep(0.2)  # the server answers a client that is gone
                raise ConnectionResetError
        raise ConnectionResetError

    async def down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
