"""The WebSocket of both SDKs, with a short way for what comes fifty times a second.

`websockets` puts a message that it has read into a queue and wakes the task that waits for it, and sends from a coroutine that
may wait. Here a message is handed on while it is read, and a frame is written at once if there is room for it. Both SDKs take
the class of their connection as an option. Compression is off: sound does not become much smaller by it, and costs more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.connection import Connection
from websockets.exceptions import ProtocolError
from websockets.frames import DATA_OPCODES, Frame
from websockets.protocol import Event, State

from handrail.providers.socket_errors import ENDINGS, ending

Take = Callable[[bytes | str], None]
_MAX_BYTES = 16 * 1024 * 1024
"""The largest message that is read."""


class LiveWebSocket(ClientConnection):
    """See the module's docstring."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._take: Take | None = None
        self._parts: list[Any] = []
        """Of a message that is not whole yet."""
        self._fault: Exception | None = None

    def send_now(self, text: str) -> bool:
        """Write a text frame if the connection is open and has room; whether it was written."""
        if self.paused or self.protocol.state is not State.OPEN:
            return False
        try:
            self.protocol.send_text(text.encode())
        except ProtocolError:  # a message is just being sent in pieces
            return False
        self.send_data()
        return True

    async def hand_to(self, take: Take) -> None:
        """Hand messages to `take`, those that were read before first, until the connection is closed; then raise why."""
        while len(self.recv_messages.frames):
            take(await self.recv(decode=False))
        self._take = take
        try:
            await self.wait_closed()
        finally:
            self._take = None
        raise self._fault or self.protocol.close_exc

    def process_event(self, event: Event) -> None:
        if self._take is None or not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
            return
        data: Any = event.data
        if self._parts or not event.fin:
            self._parts.append(data)
            if not event.fin:
                return
            data = b"".join(self._parts)
            self._parts.clear()
        try:
            self._take(data)
        except Exception as fault:  # noqa: BLE001  # raised in here it would be lost in the event loop's log
            self._take, self._fault = None, fault
            self.transport.abort()


OPTIONS: Mapping[str, Any] = {
    "create_connection": LiveWebSocket,
    "compression": None,
    "max_size": _MAX_BYTES,
    "max_queue": 64,
}
"""For the SDK that makes the connection."""


class SdkSocket:
    """What the sockets of both providers have in common: frames, and the end."""

    def __init__(self, provider: str, wire: Connection) -> None:
        self._provider = provider
        self._wire = wire

    async def send_frame(self, text: str) -> None:
        """Past the SDK: audio is what its queues and checks take longer for than for the frame."""
        try:
            await self._wire.send(text)
        except ENDINGS as error:
            raise ending(self._provider, error) from None

    def send_now(self, text: str) -> bool:
        return isinstance(self._wire, LiveWebSocket) and self._wire.send_now(text)

    async def receive(self) -> bytes | str:
        try:
            return await self._wire.recv(decode=False)
        except ENDINGS as error:
            raise ending(self._provider, error) from None

    async def hand_to(self, take: Take) -> None:
        try:
            if isinstance(self._wire, LiveWebSocket):
                await self._wire.hand_to(take)
            while True:  # an SDK that made a connection of another kind
                take(await self._wire.recv(decode=False))
        except ENDINGS as error:
            raise ending(self._provider, error) from None

    def abort(self) -> None:
        self._wire.transport.abort()
