"""A client's WebSocket under uvicorn, for the voice route: frames are handed on the moment they are read, and written at once.

uvicorn's way takes a queue, a task's wake-up and two changes of the poll set for each frame. That is right for applications in
general, and too much for fifty conversations of fifty frames a second each way. So once the route has accepted, a `FrameTaker`
gets frames directly, and writes through this object, which says when the client does not keep up. Frames that nobody takes go
uvicorn's way. Compression is off: speech does not become smaller by it, and costs more.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, ClassVar, Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from handrail.server.connections import ConnectionTable
from handrail.server.keys import Key

_PIPE = "handrail.pipe"
_SEND_BUFFER = 128 * 1024
"""Of the system's own buffer: what lies there can no longer be thrown away when the user interrupts."""
_CLOSE_SECONDS = 2.0
_MAX_REASON_BYTES = 123


class FrameTaker(Protocol):
    """Who takes the frames of one socket. None of these may raise or wait."""

    key: Key | None
    """Whose ticket was shown; None before."""

    def take_text(self, text: str) -> None: ...

    def take_no_text(self) -> None:
        """A text frame that is not UTF-8."""

    def take_sound(self, data: bytes) -> None: ...

    def can_write(self) -> None:
        """The client keeps up again."""

    def cannot_write(self) -> None:
        """The client does not take what was sent; what is written now only lies in memory."""

    def shut_down(self) -> None:
        """The server stops."""

    def gone(self) -> None:
        """The connection is no more. Nothing comes after it."""


class Pipe(Protocol):
    """What a `FrameTaker` writes to."""

    @property
    def writable(self) -> asyncio.Event:
        """Set while the client keeps up."""

    def attach(self, taker: FrameTaker) -> None: ...
    def write_text(self, data: bytes) -> None: ...
    def write_sound(self, data: bytes) -> None: ...
    def end(self, code: int, reason: str) -> None: ...


class VoiceProtocol(WebSocketsSansIOProtocol):
    """See the module's docstring."""

    table: ClassVar[ConnectionTable]

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.close_timeout = _CLOSE_SECONDS
        self._taker: FrameTaker | None = None

    # For the taker

    def attach(self, taker: FrameTaker) -> None:
        """From now on this one takes the frames, those that wait first."""
        self._taker = taker
        while not self.queue.empty():
            self._hand_on(cast("dict[str, Any]", self.queue.get_nowait()))
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def write_text(self, data: bytes) -> None:
        if not self.close_sent and not self.disconnected:
            with contextlib.suppress(InvalidState):  # the client is just leaving
                self.conn.send_text(data)
                self.transport.write(b"".join(self.conn.data_to_send()))

    def write_sound(self, data: bytes) -> None:
        if not self.close_sent and not self.disconnected:
            with contextlib.suppress(InvalidState):
                self.conn.send_binary(data)
                self.transport.write(b"".join(self.conn.data_to_send()))

    def end(self, code: int, reason: str) -> None:
        """Close with this code. A client that does not answer, or does not even read, is cut off a little later."""
        if self.close_sent or self.disconnected or self.transport.is_closing():
            return
        with contextlib.suppress(InvalidState):
            self.conn.send_close(code, _short(reason))
            self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.abort)

    # From uvicorn and the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.table.add(self)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)

    async def run_asgi(self) -> None:
        # The application finds this object where ASGI keeps what only some servers have.
        self.scope["extensions"][_PIPE] = cast(Any, self)
        await super().run_asgi()

    def send_receive_event_to_app(self) -> None:
        if self._taker is None and self.curr_msg_data_type == "text" and not _is_text(self.frames):
            self.frames = [b""]  # uvicorn would log a traceback; an empty text is refused by whoever takes it
        if self._taker is None or self.close_sent:
            super().send_receive_event_to_app()
            return
        data = bytes(self.frames[0]) if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.curr_msg_data_type == "bytes":
            self._taker.take_sound(data)
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self._taker.take_no_text()
        else:
            self._taker.take_text(text)

    def shutdown(self) -> None:
        """uvicorn lets go of all connections. Whoever is still here is told so, and has a moment to answer."""
        if self._taker is not None and not self.close_sent:
            self._taker.shut_down()
        elif self.close_timer is None:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._taker is not None:
            self._taker.cannot_write()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taker is not None:
            self._taker.can_write()

    @property
    def has_key(self) -> bool:
        """Whether a right ticket was shown."""
        return self._taker is not None and self._taker.key is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        super().connection_lost(exc)
        taker, self._taker = self._taker, None
        if taker is not None:
            taker.gone()

    def _hand_on(self, message: dict[str, Any]) -> None:
        assert self._taker is not None
        if message["type"] == "websocket.receive":
            if message.get("bytes") is not None:
                self._taker.take_sound(message["bytes"])
            else:
                self._taker.take_text(message["text"])
        elif message["type"] == "websocket.disconnect" and self.disconnected:
            taker, self._taker = self._taker, None
            taker.gone()


def pipe_of(scope: Scope) -> Pipe | None:
    """The socket of this connection; None under a server that is not ours."""
    found: Pipe | None = (scope.get("extensions") or {}).get(_PIPE)
    return found


def _is_text(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True


def _short(reason: str) -> str:
    return reason.encode()[:_MAX_REASON_BYTES].decode("utf-8", "ignore")
