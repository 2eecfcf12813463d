"""One client's WebSocket, from its `hello` to its close. Frames come in by calls, not by a task that waits for them.

Audio goes straight to the conversation. Messages that are quick are carried out at once; those that wait for something
(`hello`, `text`, `interrupt`, `end`) one after the other, in the order in which they came. Whatever is wrong is reported in an
`error` and a close code, and changes nothing in the conversation, to which the client can come back.

A client that does not keep up loses sound, the oldest first, and never a message. While it keeps up nothing waits here: what is
sent is written.

`VoiceProtocol` is the socket itself, under uvicorn. uvicorn's way takes a queue, a task's wake-up and two changes of the poll set
for each frame. That is right for applications in general, and too much for fifty conversations of fifty frames a second each way.
So once the route has accepted, a `ClientSocket` gets frames directly, and writes through the protocol, which says when the client
does not keep up. Frames that nobody takes go uvicorn's way. Compression is off: speech does not become smaller by it, and costs
more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, cast

from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from handrail.agents.voice.host_port import Abilities, VoiceError
from handrail.contract.errors import HandrailError
from handrail.server.connection_table import ConnectionTable
from handrail.server.key_ring import Key
from handrail.server.voice.close_codes import (
    BAD_AUDIO,
    BAD_MESSAGE,
    FAULT,
    FLOOD,
    RESTART,
    TOO_SLOW,
    ClientRefused,
    CloseCode,
)
from handrail.server.voice.voice_protocol import MAX_AUDIO_BYTES, BadMessage, read_message
from handrail.server.wire import to_json

if TYPE_CHECKING:
    from handrail.server.voice.admission import Admission
    from handrail.server.voice.conversation_host import ConversationHost


_log = logging.getLogger("handrail.server.voice")
_HEAD = Struct("<II")
_LEAST_SECONDS = 0.005
"""A frame counts for at least so much audio, so that tiny ones are a flood as well."""
_MAX_WAITING = 2 * 1024 * 1024
_MAX_TASKS = 64
_SILENT_BEATS = 2
_TIMER_SLACK = 0.001
"""An event loop may run a timer that little too early."""
_PIPE = "handrail.pipe"
_SEND_BUFFER = 128 * 1024
"""Of the system's own buffer: what lies there can no longer be thrown away when the user interrupts."""
_CLOSE_SECONDS = 2.0
_MAX_REASON_BYTES = 123


class ClientSocket:
    """What one client says and is sent. What is called from the socket may neither raise nor wait."""

    def __init__(self, pipe: VoiceProtocol, admission: Admission, session_id: str, address: str) -> None:
        self.session_id = session_id
        self.address = address
        self.key: Key | None = None
        """The one that its ticket was made for."""
        self.abilities = Abilities()
        self.rate = 0
        """Of the audio that the client sends; 0 if it sends none."""
        self._context = copy_context()
        """Of the request: what its messages begin belongs to its trace."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is gone."""
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._admission = admission
        self._options = admission.options
        self.dropped = 0
        """Pieces of sound that the client lost."""
        self._held = True
        """Everything waits until the first message, `ready`, was sent."""
        self._cells: deque[_QueuedMessage] = deque()
        """What is on its way to the client."""
        self._sounds: deque[_QueuedMessage] = deque()
        """The sound among it."""
        self._text_bytes = self._sound_bytes = 0
        self._max_sound = 0
        self._lost: Callable[[int], None] = lambda item: None
        self._line: ConversationHost | None = None
        self._said_hello = False
        self._closed = False
        self._tasks: deque[dict[str, Any]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._heard_at = self._loop.time()
        self._audio_left = self._options.burst_seconds
        self._messages_left = self._options.message_burst
        self._audio_at = self._messages_at = self._loop.time()
        self._slow: asyncio.TimerHandle | None = None
        self._beat = self._loop.call_later(self._options.hello_seconds, self._no_hello)

    @property
    def is_open(self) -> bool:
        return not self._closed

    # What the conversation's host sends

    def expects(self, output_rate: int, lost: Callable[[int], None]) -> None:
        """How much sound may wait follows from its rate; `lost` gets the items of what goes beyond it."""
        self._max_sound = int(self._options.backlog_seconds * output_rate * 2)
        self._lost = lost

    def ready(self, host: ConversationHost, data: dict[str, Any]) -> None:
        """The conversation is there: from now on the client is heard."""
        if self._closed:
            return
        self._pipe.write_text(to_json({"type": "ready", **data}))
        self._held = False
        self._flow()
        self._line = host

    def tell(self, data: bytes) -> None:
        if self._closed:
            return
        # Only if nothing waits: what is said later may not overtake what was said before.
        if not self._cells and not self._held and self._pipe.writable.is_set():
            self._pipe.write_text(data)
            return
        self._cells.append(_QueuedMessage(data, None))
        self._text_bytes += len(data)
        if self._text_bytes > _MAX_WAITING:
            self.close(TOO_SLOW, "Too many messages wait for this client; connect again and continue.")

    def play(self, item: int, offset_ms: int, pcm: bytes) -> None:
        if self._closed or not self.abilities.sound:
            return
        data = _HEAD.pack(item & 0xFFFFFFFF, offset_ms & 0xFFFFFFFF) + pcm
        if not self._cells and not self._held and self._pipe.writable.is_set():
            self._pipe.write_sound(data)
            return
        cell = _QueuedMessage(data, item)
        self._cells.append(cell)
        self._sounds.append(cell)
        self._sound_bytes += len(data)
        while self._sound_bytes > self._max_sound:
            oldest = self._sounds.popleft()
            self._drop(oldest)
            self.dropped += 1
            if oldest.item is not None:
                self._lost(oldest.item)

    def flush(self, item: int) -> None:
        """The user interrupted: what is still here of this item and those before is not wanted any more."""
        kept: deque[_QueuedMessage] = deque()
        for cell in self._sounds:
            if cell.item is not None and cell.item <= item:
                self._drop(cell)
            else:
                kept.append(cell)
        self._sounds = kept

    def _drop(self, cell: _QueuedMessage) -> None:
        self._sound_bytes -= len(cell.data)
        # It stays in the line, empty, and is passed over there: taken out of the middle it would have to be looked for.
        cell.data = b""

    def _flow(self) -> None:
        """Write what waits, as far as the client takes it."""
        while self._cells and not self._held and self._pipe.writable.is_set():
            cell = self._cells.popleft()
            if cell.item is None:
                self._text_bytes -= len(cell.data)
                self._pipe.write_text(cell.data)
            elif cell.data:
                self._sounds.popleft()
                self._sound_bytes -= len(cell.data)
                self._pipe.write_sound(cell.data)

    def close(self, closing: CloseCode, message: str) -> None:
        """Say why, and close. Messages that wait are sent first, whether the client takes them or not; sound is thrown away."""
        if self._closed:
            return
        self._closed = True
        for cell in self._cells:
            if cell.item is None:
                self._pipe.write_text(cell.data)
        self._cells.clear()
        self._sounds.clear()
        if closing.word:
            self._pipe.write_text(to_json({"type": "error", "code": closing.word, "message": message}))
        # After the error, so that a client that only looks at messages learns the reason as well.
        self._pipe.end(closing.code, message)
        self._let_go()

    # What the socket brings

    def take_sound(self, data: bytes) -> None:
        host = self._line
        if host is None:
            self._early("Audio", is_sound=True)
            return
        size = len(data)
        rate = self.rate
        if not size or size & 1 or size > MAX_AUDIO_BYTES:
            what = "empty" if not size else "not made of whole 16-bit samples" if size & 1 else "too large"
            self.close(
                BAD_AUDIO, f"A frame of {size} bytes is {what}; send 10 to 100 ms, at most {MAX_AUDIO_BYTES} bytes."
            )
            return
        if not rate:
            self.close(BAD_MESSAGE, "Audio came, but `hello` named no rate for it, or the model does not hear.")
            return
        now = self._heard_at = self._loop.time()
        # Twice the time that passes is given back: a client that was held up may catch up, and a flood may not.
        seconds = size / (2 * rate)
        left = self._audio_left + 2 * (now - self._audio_at) - (seconds if seconds > _LEAST_SECONDS else _LEAST_SECONDS)
        self._audio_at = now
        if left < 0:
            self.close(FLOOD, "Audio comes much faster than it can be spoken; send it as it is recorded.")
            return
        self._audio_left = left if left < self._options.burst_seconds else self._options.burst_seconds
        host.hear(data, rate)

    def take_no_text(self) -> None:
        """A text frame that is not UTF-8."""
        if not self._closed:
            self.close(BAD_MESSAGE, "The message is not UTF-8 text.")

    def take_text(self, text: str) -> None:
        if self._closed:
            return
        self._heard_at = self._loop.time()
        if not self._may_speak():
            self.close(FLOOD, "Too many messages came at once.")
            return
        try:
            self._take(read_message(text))
        except BadMessage as error:
            self.close(BAD_MESSAGE, str(error))
        except VoiceError as error:
            self._complain(error)
        except Exception:  # noqa: BLE001  # what is raised here would tear the socket without a word
            self._failed()

    def can_write(self) -> None:
        """The client keeps up again."""
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        if not self._closed:
            self._flow()

    def cannot_write(self) -> None:
        """The client does not take what was sent; what is written now only lies in memory."""
        if self._slow is None and not self._closed:
            self._slow = self._loop.call_later(self._options.slow_seconds, self._too_slow)

    def shut_down(self) -> None:
        """The server stops."""
        self.close(RESTART, "The server is about to restart; come back in a moment.")

    def gone(self) -> None:
        """The connection is no more. Nothing comes after it."""
        self._closed = True
        self._let_go()
        if not self.over.done():
            self.over.set_result(None)

    # Messages

    def _take(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "pong":
            return
        if kind == "hello":
            if self._said_hello:
                self.close(BAD_MESSAGE, "The message `hello` came before; it is said once.")
                return
            self._said_hello = True
        elif self._line is None:
            self._early(f"The message `{kind}`", is_sound=False)
            return
        elif self._is_quick(self._line, message):
            return
        self._later(message)

    @staticmethod
    def _is_quick(host: ConversationHost, message: dict[str, Any]) -> bool:
        """Carry out what needs no waiting; whether it was that."""
        voice, kind = host.voice, message["type"]
        if voice is None:
            return True
        if kind == "speech":
            voice.speech(message["state"], message.get("agoMs", 0) / 1000)
        elif kind == "played":
            voice.played(message["item"], message["ms"], message.get("done", False))
        elif kind == "spoken":
            voice.spoken(message["id"], message["completed"])
        else:
            return False
        return True

    def _later(self, message: dict[str, Any]) -> None:
        if len(self._tasks) >= _MAX_TASKS:
            self.close(FLOOD, "Too many messages wait to be carried out.")
            return
        self._tasks.append(message)
        if self._worker is None:
            self._worker = self._loop.create_task(self._work(), context=self._context)

    async def _work(self) -> None:
        try:
            while self._tasks and not self._closed:
                await self._carry_out(self._tasks.popleft())
        except ClientRefused as refused:
            self.close(refused.closing, refused.message)
        except Exception:  # noqa: BLE001  # the client learns that it was not its fault
            self._failed()
        finally:
            self._worker = None

    async def _carry_out(self, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            await self._admission.join(self, message)
            self._start_beating()
            return
        if message["type"] == "beat":
            await self._admission.check(self)
            return
        host = self._line
        if host is None or host.voice is None:
            return
        try:
            if message["type"] == "text":
                self._admission.count(self.key or host.key)
                await host.voice.say(message["text"], id=message["id"], spoken=message.get("spoken", False))
            elif message["type"] == "interrupt":
                await host.voice.interrupt()
            else:
                await host.voice.end(message.get("reason", "user_requested"))
        except HandrailError as error:
            self._complain(error)

    def _failed(self) -> None:
        _log.exception("A message of a voice client failed")
        self.close(FAULT, "Something went wrong in the server; its log says what.")

    def _complain(self, error: HandrailError) -> None:
        """Something that cannot be done now. The conversation continues."""
        self.tell(to_json({"type": "error", "code": getattr(error, "code", "refused"), "message": str(error)}))

    def _early(self, what: str, *, is_sound: bool) -> None:
        if self._closed or (is_sound and self._said_hello):
            return  # a microphone may be quicker than the model's connection
        due = "the first message is `hello`" if not self._said_hello else "wait for `ready`"
        self.close(BAD_MESSAGE, f"{what} is not due; {due}.")

    def _may_speak(self) -> bool:
        now = self._loop.time()
        filled = self._messages_left + (now - self._messages_at) * self._options.messages_per_second
        self._messages_left = min(self._options.message_burst, filled) - 1
        self._messages_at = now
        return self._messages_left >= 0

    # Time

    def _no_hello(self) -> None:
        if not self._said_hello:
            self.close(TOO_SLOW, f"No `hello` came within {self._options.hello_seconds:g} seconds.")

    @property
    def _silence_seconds(self) -> float:
        """For how long a client may say nothing at all."""
        return _SILENT_BEATS * self._options.heartbeat_seconds

    def _start_beating(self) -> None:
        self._beat.cancel()
        if not self._closed:
            # Whichever comes first: the next ping, or the end of what a client may be silent.
            left = self._heard_at + self._silence_seconds - self._loop.time()
            self._beat = self._loop.call_later(min(self._options.heartbeat_seconds, left), self._beats)

    def _beats(self) -> None:
        if self._loop.time() - self._heard_at >= self._silence_seconds - _TIMER_SLACK:
            self.close(TOO_SLOW, "Nothing came from this client for too long; connect again and continue.")
            return
        self.tell(b'{"type":"ping"}')
        self._later({"type": "beat"})
        self._start_beating()

    def _too_slow(self) -> None:
        self._slow = None
        self.close(TOO_SLOW, "This client does not take what is sent; connect again and continue.")

    def _let_go(self) -> None:
        self._beat.cancel()
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        self._tasks.clear()
        host, self._line = self._line, None
        if host is not None:
            host.detach(self)


class _QueuedMessage:
    __slots__ = ("data", "item")

    def __init__(self, data: bytes, item: int | None) -> None:
        self.data = data
        self.item = item


class VoiceProtocol(WebSocketsSansIOProtocol):
    """A client's WebSocket: frames are handed on the moment they are read, and written at once."""

    table: ClassVar[ConnectionTable]

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.close_timeout = _CLOSE_SECONDS
        self._taker: ClientSocket | None = None

    # For the taker

    def attach(self, taker: ClientSocket) -> None:
        """From now on this one takes the frames, those that wait first."""
        self._taker = taker
        while not self.queue.empty():
            self._hand_on(cast("dict[str, Any]", self.queue.get_nowait()))
        # uvicorn stops reading while its queue has a frame that no application has taken, and nobody will take from it
        # any more.
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
        """uvicorn lets go of all connections. Whoever is still here learns so, and has a moment to answer."""
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


def pipe_of(scope: Scope) -> VoiceProtocol | None:
    """The socket of this connection; None under a server that is not ours."""
    found: VoiceProtocol | None = (scope.get("extensions") or {}).get(_PIPE)
    return found


def _is_text(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True


def _short(reason: str) -> str:
    return reason.encode()[:_MAX_REASON_BYTES].decode("utf-8", "ignore")
