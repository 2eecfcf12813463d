"""One live session over as many of the provider's connections as it takes: reading, writing, replacing, giving up.

The transport knows what messages mean, the socket how they are sent; this knows time. What the host wants is kept as
commands and turned into messages when a connection is there to take them. What was sent and not reacted to before a loss
is sent again by the transport when the next connection begins.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Protocol

from handrail.contract.live import (
    Answer,
    Closed,
    Connected,
    Disconnected,
    GoAway,
    LiveCounters,
    LiveError,
    LiveEvent,
    LiveLimits,
    ResumptionHandle,
    Scheduling,
    TurnEnded,
    Usage,
)
from handrail.providers.live_queues import Command, EventQueue, SendQueue

_log = logging.getLogger(__name__)
_MARGIN = 1.0
"""Seconds before its announced end at which a connection is replaced, quiet moment or not."""
_GRACE = 60.0
"""Seconds for which an old connection may wait for a quiet moment."""
_MAX_AUDIO_BYTES = 1 << 20
# A connection that lasted so long was no failure: attempts and delays are counted anew after it.
_LONG_ENOUGH = 30.0
_CLOSE_SECONDS = 2.0
# Once may be chance; a handle that the provider no longer takes would be tried until the attempts are used up.
_HANDLE_FAILURES = 2


class ConnectionEnded(Exception):
    """The connection is gone. `for_good`: the provider would refuse the next one as well. `by_provider`: the provider closed it
    itself. `detail` is the reason with what only those may know who run it."""

    def __init__(self, reason: str, *, for_good: bool = False, by_provider: bool = False, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.for_good = for_good
        self.by_provider = by_provider
        self.detail = detail or reason


class LiveSocket(Protocol):
    """One connection of the provider, set up. Every method raises `ConnectionEnded` when it is no more."""

    async def send(self, message: dict[str, Any]) -> None: ...
    async def send_frame(self, text: str) -> None: ...

    def send_now(self, text: str) -> bool:
        """Send a frame if nothing has to be waited for; whether it was sent. Never raises."""
        ...

    async def receive(self) -> bytes | str: ...

    async def hand_to(self, take: Callable[[bytes | str], None]) -> None:
        """Hand every message to `take` the moment it is read, for as long as there is a connection, in place of `receive`."""

    async def close(self) -> None: ...

    def abort(self) -> None:
        """Let go of it at once."""


Dial = Callable[[dict[str, Any]], Awaitable[LiveSocket]]
"""Makes a connection with this set-up message; `ConnectionEnded` if it cannot be made."""


class LiveTransport(Protocol):
    """What the link asks of a provider's transport."""

    counters: LiveCounters

    @property
    def is_quiet(self) -> bool: ...
    @property
    def waits_for_model(self) -> bool: ...
    @property
    def is_settled(self) -> bool: ...
    @property
    def restored_calls(self) -> tuple[str, ...]: ...
    def setup(self) -> dict[str, Any]: ...
    def forget_handle(self) -> None: ...
    def begin(self) -> tuple[list[dict[str, Any]], bool]: ...
    def lost(self) -> None: ...
    def receive(self, raw: bytes | str) -> list[LiveEvent]: ...
    def replies(self) -> list[dict[str, Any]]: ...
    def audio_frame(self, pcm: bytes, rate: int) -> str: ...
    def user_text(self, text: str) -> list[dict[str, Any]]: ...
    def host_text(self, text: str, scheduling: Scheduling) -> list[dict[str, Any]]: ...
    def answers(self, answers: Sequence[Answer], scheduling: Scheduling) -> list[dict[str, Any]]: ...
    def interrupt(self) -> list[dict[str, Any]]: ...
    def truncate(self, played_ms: int) -> list[dict[str, Any]]: ...
    def change_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]: ...
    def leave_out_results(self) -> bool: ...


class LiveLink:
    """A `LiveConnection`."""

    def __init__(self, transport: LiveTransport, dial: Dial, limits: LiveLimits, input_rates: tuple[int, ...]) -> None:
        self.counters = transport.counters
        self._transport = transport
        self._dial = dial
        self._limits = limits
        self._rates = input_rates
        self._events = EventQueue(limits.audio_out_frames, limits.events, self.counters)
        self._outbox = SendQueue(limits.audio_in_frames, self.counters)
        self._number = 0
        self._failures = 0
        self._handle_failures = 0
        """Connections in a row that the provider closed before anything came of resuming the session."""
        self._is_used = False
        """Whether the provider has sent anything of the conversation on this connection."""
        self._asked_at = 0.0
        self._sending_since = inf
        """When the frame of audio that is being sent was begun."""
        self._leave_from = self._leave_at = inf
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._socket: LiveSocket | None = None
        """The connection that is up and has been sent the history."""
        self._is_over = False
        self._run: asyncio.Task[None] | None = None

    async def start(self) -> LiveLink:
        """Make the first connection; `LiveError` if there is none to be had."""
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._run = asyncio.create_task(self._live(first))
        try:
            await first
        except BaseException:
            await self.close()
            raise
        return self

    # ------------------------------------------------------------------------------------------- for the host

    def send_audio(self, pcm: bytes, rate: int) -> bool:
        if rate not in self._rates:
            raise LiveError(f"Audio at {rate} Hz is not taken; send one of {', '.join(map(str, self._rates))} Hz.")
        if len(pcm) % 2 or len(pcm) > _MAX_AUDIO_BYTES:
            raise LiveError(f"{len(pcm)} bytes are no frame of 16-bit samples of at most {_MAX_AUDIO_BYTES} bytes.")
        self._check_open()
        if not pcm or self._sent_now(pcm, rate):
            return True
        return self._outbox.put_audio(bytes(pcm), rate)

    async def send_text(self, text: str) -> None:
        self._command(lambda: self._transport.user_text(text))

    async def tell(self, text: str, *, scheduling: Scheduling = "when_idle") -> None:
        self._command(lambda: self._transport.host_text(text, scheduling))

    async def send_envelopes(self, answers: Sequence[Answer], *, scheduling: Scheduling = "when_idle") -> None:
        kept = tuple(answers)
        if kept:
            self._command(lambda: self._transport.answers(kept, scheduling))

    async def interrupt(self) -> None:
        self._command(self._transport.interrupt)

    async def truncate(self, played_ms: int) -> None:
        self._command(lambda: self._transport.truncate(played_ms))

    async def change_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> None:
        """At once where the provider takes them in a session, else by a new connection at the next quiet moment."""
        self._check_open()
        # Not when it is sent: a connection that is made meanwhile is to be set up with them.
        messages = self._transport.change_tools(system, tools)
        if messages:
            self._command(lambda: messages)
        else:
            await self.rotate()

    async def leave_out_results(self) -> None:
        """A provider that keeps every item is given a new conversation, at the next quiet moment, without them."""
        if self._transport.leave_out_results():
            await self.rotate()

    async def rotate(self) -> None:
        self._leave(0.0, self._limits.reply_seconds)

    def events(self) -> AsyncIterator[LiveEvent]:
        return self._events.listen()

    def hand_to(self, take: Callable[[LiveEvent], None]) -> None:
        self._events.hand_to(take)

    async def close(self) -> None:
        """Close the connection. Calls that the host still runs are its own affair."""
        run, self._run = self._run, None
        if run is not None and not run.done():
            run.cancel()
            with suppress(asyncio.CancelledError):
                await run
        self._finish(Closed("closed"))

    def _command(self, command: Command) -> None:
        self._check_open()
        self._outbox.put(command)

    def _check_open(self) -> None:
        if self._is_over:
            raise LiveError("The live session is over; connect again.")

    def _finish(self, closed: Closed) -> None:
        if not self._is_over:
            self._is_over = True
            self._events.put(closed)

    # ------------------------------------------------------------------------------------------- connections

    async def _live(self, first: asyncio.Future[None]) -> None:
        """Connection after connection, until the session is closed, refused or lost."""
        while True:
            gone = await self._checked_connection(first)
            self._failures += 1
            if gone.for_good or self._failures >= self._limits.attempts:
                break
            await asyncio.sleep(self._delay())
        self._finish(Closed("refused" if gone.for_good else "lost", gone.reason))
        if not first.done():
            first.set_exception(LiveError(gone.reason, retryable=not gone.for_good, detail=gone.detail))

    async def _checked_connection(self, first: asyncio.Future[None]) -> ConnectionEnded:
        """A fault of this code, or of the SDK beneath it, ends a connection and never leaves the host waiting."""
        try:
            return await self._one_connection(first)
        except Exception as fault:  # noqa: BLE001 - whatever it is, the host learns that the connection is gone
            return _fault(fault)

    async def _one_connection(self, first: asyncio.Future[None]) -> ConnectionEnded:
        """One connection from its making to its end, and why it ended."""
        setup = self._transport.setup()
        self._is_used = False
        try:
            socket = await self._made(setup)
        except ConnectionEnded as gone:
            return self._judged(gone, setup)
        began = asyncio.get_running_loop().time()
        try:
            end = await self._used(socket, first)
        finally:
            # First, so that what the next connection has to hear again is known before anything else can wait or fail.
            self._transport.lost()
            if asyncio.get_running_loop().time() - began > _LONG_ENOUGH:
                self._failures, self._is_used = 0, True
            await _closed(socket)
        return self._judged(end, setup)

    def _judged(self, gone: ConnectionEnded, setup: dict[str, Any]) -> ConnectionEnded:
        """Why a connection ended, after a look at whether its handle is to blame: one that is refused, or with which the
        provider closes twice before anything was said, is dropped, and the next connection begins a new session."""
        if not _has_handle(setup):
            return gone
        if self._is_used or not (gone.by_provider or gone.for_good):
            self._handle_failures = 0 if self._is_used else self._handle_failures
            return gone
        self._handle_failures += 1
        if not gone.for_good and self._handle_failures < _HANDLE_FAILURES:
            return gone
        self._handle_failures = 0
        self._transport.forget_handle()
        return ConnectionEnded(gone.reason, detail=gone.detail)

    async def _made(self, setup: dict[str, Any]) -> LiveSocket:
        try:
            async with asyncio.timeout(self._limits.connect_seconds):
                return await self._dial(setup)
        except TimeoutError:
            raise ConnectionEnded(
                f"The provider did not answer within {self._limits.connect_seconds:g} seconds."
            ) from None

    async def _used(self, socket: LiveSocket, first: asyncio.Future[None]) -> ConnectionEnded:
        self._number += 1
        self.counters.connections += 1
        try:
            await self._begin(socket)
        except ConnectionEnded as gone:
            return gone
        if not first.done():
            first.set_result(None)
        self._sending_since = inf
        self._socket = socket
        parts = (self._read(socket), self._write(socket), self._leaving(), self._watching())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._socket = None
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        end = next((one for one in ended if isinstance(one, ConnectionEnded)), None)
        if end is None:
            end = _fault(next((one for one in ended if isinstance(one, Exception)), None))
        # Before the next event goes in: a host that does not keep up holds the provider's messages in the socket, not in
        # memory.
        await self._events.room()
        self._events.put(Disconnected(end.reason))
        return end

    async def _begin(self, socket: LiveSocket) -> None:
        """Tell a new connection what it has to know, and the host what the model remembers."""
        loop = asyncio.get_running_loop()
        first, resumed = self._transport.begin()
        self._leave(self._limits.connection_seconds, self._limits.connection_seconds + _GRACE)
        for message in first:
            await self._send(socket, message)
        early: list[LiveEvent] = []
        until = loop.time() + min(_CLOSE_SECONDS, self._limits.connect_seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while not self._transport.is_settled:
                    early += self._transport.receive(await socket.receive())
        self._asked_at = loop.time()
        await self._events.room()
        self._events.put(Connected(self._number, resumed, self._transport.restored_calls))
        self._take(early)

    async def _read(self, socket: LiveSocket) -> None:
        """Message by message while the host takes events in its own time, and straight through if it takes them at once."""
        while not self._events.are_handed_on:
            self._arrived(await socket.receive())
            await self._events.room()
        await socket.hand_to(self._arrived)

    def _arrived(self, raw: bytes | str) -> None:
        counters = self.counters
        # Messages that nobody understands do not count as an answer: a provider that sends only such ones says nothing.
        nonsense = counters.malformed_events + counters.unknown_events
        events = self._transport.receive(raw)
        if events or nonsense == counters.malformed_events + counters.unknown_events:
            self._asked_at = self._loop.time()
        self._take(events)

    def _take(self, events: Sequence[LiveEvent]) -> None:
        """Pass events on, and answer those that the transport answers itself."""
        replies = self._transport.replies()
        if replies:
            self._outbox.put(self._for_this_connection(replies))
        for event in events:
            if isinstance(event, GoAway):
                # A provider that gives no time means soon; what is being said may still end.
                left = _MARGIN * 5 if event.time_left is None else event.time_left
                self._leave(0.0, max(0.0, left - _MARGIN))
            elif isinstance(event, TurnEnded) and event.reason == "done":
                self._failures = 0
            if not isinstance(event, GoAway | ResumptionHandle | Usage):
                self._is_used = True
            self._events.put(event)
        self._moved()

    async def _write(self, socket: LiveSocket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            taken = await self._outbox.take()
            if isinstance(taken, tuple):
                self._sending_since = loop.time()
                await socket.send_frame(self._transport.audio_frame(*taken))
                self._sending_since = inf
                continue
            for message in taken():
                self._asked_at = asyncio.get_running_loop().time()
                await self._send(socket, message)
            self._moved()

    def _sent_now(self, pcm: bytes, rate: int) -> bool:
        """Audio is sent in the moment in which it comes, if nothing else waits to be sent."""
        socket = self._socket
        if socket is None or not self._outbox.is_waited_for:
            return False
        return socket.send_now(self._transport.audio_frame(pcm, rate))

    async def _watching(self) -> None:
        """Wait until the model says nothing, or its provider takes no audio, for too long.

        One clock for the connection: a time-out for each frame would cost more than the frame.
        """
        loop = asyncio.get_running_loop()
        limits = self._limits
        while True:
            now = loop.time()
            if now - self._sending_since >= limits.send_seconds:
                raise _takes_nothing(limits)
            if now - self._asked_at >= limits.reply_seconds:
                if self._transport.waits_for_model:
                    raise ConnectionEnded(f"The model sent nothing for {limits.reply_seconds:g} seconds.")
                self._asked_at = now
            left = self._asked_at + limits.reply_seconds - now
            await asyncio.sleep(
                min(left, limits.send_seconds, max(0.0, self._sending_since + limits.send_seconds - now))
            )

    def _for_this_connection(self, messages: list[dict[str, Any]]) -> Command:
        number = self._number
        return lambda: messages if number == self._number else []

    async def _send(self, socket: LiveSocket, message: dict[str, Any]) -> None:
        await self._within_time(socket.send(message))

    async def _within_time(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._limits.send_seconds):
                await sending
        except TimeoutError:
            raise _takes_nothing(self._limits) from None

    # ------------------------------------------------------------------------------------------- replacing

    def _leave(self, after: float, at_the_latest: float) -> None:
        """Replace this connection at the first quiet moment after these seconds, and in any case `at_the_latest`."""
        now = asyncio.get_running_loop().time()
        self._leave_from, self._leave_at = now + after, now + max(after, at_the_latest)
        self._changed.set()

    async def _leaving(self) -> None:
        """Wait until this connection has to be replaced."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            if now >= self._leave_at or (now >= self._leave_from and self._transport.is_quiet):
                raise ConnectionEnded("The connection was replaced before its end.")
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._leave_at if now >= self._leave_from else self._leave_from):
                    await self._changed.wait()

    def _moved(self) -> None:
        """Something happened after which it may be quiet."""
        if self._leave_from <= self._loop.time():
            self._changed.set()

    def _delay(self) -> float:
        doubled = self._limits.first_delay * (1 << min(self._failures - 1, 10))
        # Spread by a quarter: all sessions lose their connection at the same moment when a provider restarts.
        return min(doubled, self._limits.max_delay) * (0.75 + secrets.randbelow(250) / 1000)


def _takes_nothing(limits: LiveLimits) -> ConnectionEnded:
    return ConnectionEnded(f"The provider took no message for {limits.send_seconds:g} seconds.")


def _fault(fault: Exception | None) -> ConnectionEnded:
    _log.error("A live connection ended by a fault of the client.", exc_info=fault)
    return ConnectionEnded(f"The connection ended by a fault of the client ({type(fault).__name__}).")


async def _closed(socket: LiveSocket) -> None:
    """Close it with the provider's consent, or without it if that takes too long or the session is closed meanwhile."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await socket.close()
    except (ConnectionEnded, TimeoutError):
        socket.abort()
    except BaseException:
        socket.abort()
        raise


def _has_handle(setup: dict[str, Any]) -> bool:
    return bool(setup.get("setup", {}).get("sessionResumption", {}).get("handle"))
