"""One client's WebSocket, from its `hello` to its close. Frames come in by calls, not by a task that waits for them.

Audio goes straight to the conversation. Messages that are quick are carried out at once; those that wait for something
(`hello`, `text`, `interrupt`, `end`) one after the other, in the order in which they came. Whatever is wrong is told in an
`error` and a close code, and changes nothing in the conversation, to which the client can come back.

A client that does not keep up loses sound, the oldest first, and never a message. While it keeps up nothing waits here: what is
sent is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from handrail.agents.voice.host_port import Abilities, VoiceError
from handrail.contract.errors import HandrailError
from handrail.server.keys import Key
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
from handrail.server.voice.messages import MAX_AUDIO_BYTES, BadMessage, read_message
from handrail.server.voice.websocket_protocol import Pipe
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


class ClientSocket:
    """See the module's docstring. It is a `protocol.FrameTaker`."""

    def __init__(self, pipe: Pipe, admission: Admission, session_id: str, address: str) -> None:
        self.session_id = session_id
        self.address = address
        self.key: Key | None = None
        """The one that its ticket was made for."""
        self.abilities = Abilities()
        self.rate = 0
        """Of the audio that the client sends; 0 if it sends none."""
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
        self._cells: deque[_Cell] = deque()
        """What is on its way to the client."""
        self._sounds: deque[_Cell] = deque()
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
        """How much sound may wait follows from its rate; `lost` is told the items of what goes beyond it."""
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
        if not self._cells and not self._held and self._pipe.writable.is_set():
            self._pipe.write_text(data)
            return
        self._cells.append(_Cell(data, None))
        self._text_bytes += len(data)
        if self._text_bytes > _MAX_WAITING:
            self.close(TOO_SLOW, "Too many messages wait for this client; come back and go on.")

    def play(self, item: int, offset_ms: int, pcm: bytes) -> None:
        if self._closed or not self.abilities.sound:
            return
        data = _HEAD.pack(item & 0xFFFFFFFF, offset_ms & 0xFFFFFFFF) + pcm
        if not self._cells and not self._held and self._pipe.writable.is_set():
            self._pipe.write_sound(data)
            return
        cell = _Cell(data, item)
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
        kept: deque[_Cell] = deque()
        for cell in self._sounds:
            if cell.item is not None and cell.item <= item:
                self._drop(cell)
            else:
                kept.append(cell)
        self._sounds = kept

    def _drop(self, cell: _Cell) -> None:
        self._sound_bytes -= len(cell.data)
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
        self._heard_at = self._loop.time()
        now = self._loop.time()
        seconds = size / (2 * rate)
        left = self._audio_left + 2 * (now - self._audio_at) - (seconds if seconds > _LEAST_SECONDS else _LEAST_SECONDS)
        self._audio_at = now
        if left < 0:
            self.close(FLOOD, "Audio comes much faster than it can be spoken; send it as it is recorded.")
            return
        self._audio_left = left if left < self._options.burst_seconds else self._options.burst_seconds
        host.hear(data, rate)

    def take_no_text(self) -> None:
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
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        if not self._closed:
            self._flow()

    def cannot_write(self) -> None:
        if self._slow is None and not self._closed:
            self._slow = self._loop.call_later(self._options.slow_seconds, self._too_slow)

    def shut_down(self) -> None:
        self.close(RESTART, "The server is about to restart; come back in a moment.")

    def gone(self) -> None:
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
            self._worker = self._loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._tasks and not self._closed:
                await self._carry_out(self._tasks.popleft())
        except ClientRefused as refused:
            self.close(refused.closing, refused.message)
        except Exception:  # noqa: BLE001  # the client is told that it was not its fault
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
        """Something that cannot be done now. The conversation goes on."""
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
            left = self._heard_at + self._silence_seconds - self._loop.time()
            self._beat = self._loop.call_later(min(self._options.heartbeat_seconds, left), self._beats)

    def _beats(self) -> None:
        if self._loop.time() - self._heard_at >= self._silence_seconds - _TIMER_SLACK:
            self.close(TOO_SLOW, "Nothing came from this client for too long; come back and go on.")
            return
        self.tell(b'{"type":"ping"}')
        self._later({"type": "beat"})
        self._start_beating()

    def _too_slow(self) -> None:
        self._slow = None
        self.close(TOO_SLOW, "This client does not take what is sent; come back and go on.")

    def _let_go(self) -> None:
        self._beat.cancel()
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        self._tasks.clear()
        host, self._line = self._line, None
        if host is not None:
            host.detach(self)


class _Cell:
    __slots__ = ("data", "item")

    def __init__(self, data: bytes, item: int | None) -> None:
        self.data = data
        self.item = item
