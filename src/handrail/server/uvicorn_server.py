"""Running the application: uvicorn over watched connections, and a stop that lets work finish.

After SIGTERM or SIGINT no new work is taken, streams are asked to connect again, and running turns may end.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from handrail.contract.errors import UsageError
from handrail.server.connection_table import ConnectionTable, WatchedProtocol
from handrail.server.options import Options
from handrail.server.voice.client_socket import VoiceProtocol

_log = logging.getLogger("handrail.server")
_KEEP_ALIVE_SECONDS = 30
_BACKLOG = 2_048
_LAST_SECONDS = 3.0
"""So long a process may take to end after its server has stopped."""
_BLOCKED_SECONDS = 3.0
"""An event loop that answers nothing for so long while the process is being stopped is taken for blocked."""
_COLLECT = (700, 10, 100)
"""How many new objects, and collections of the younger kind, make a collection; Python's own are 700, 10, 10."""
_MAX_FRAME_BYTES = 256 * 1024
"""A WebSocket frame beyond this is not even read (close code 1009); smaller ones that are too large are refused in words."""


class Server(uvicorn.Server):
    """Ends in order: `drain` is awaited between the request to stop and the end of the connections.

    A second request calls `hurry`, which shortens the draining; a third leaves at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Callable[[], Awaitable[None]],
        ready: Callable[[], Awaitable[None] | None] | None,
        hurry: Callable[[], None] | None,
        running_calls: Callable[[], list[str]] | None,
    ) -> None:
        super().__init__(config)
        self._running_calls = running_calls
        self._drain = drain
        self._ready = ready
        self._hurry = hurry
        self._stop_requests = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._ready is not None and not self.should_exit:
            try:
                telling = self._ready()
                if telling is not None:
                    await telling
            except BaseException:
                await self.shutdown(sockets)
                raise

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        ends = loop.time() + float(self.config.timeout_graceful_shutdown or 0)
        await self._drain()
        # Draining and answering share the time; an answer that is ready has a second to leave.
        self.config.timeout_graceful_shutdown = max(1, int(ends - loop.time()))
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal is not raised once more afterwards: a stop that was asked for is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.should_exit = True
        self._stop_requests += 1
        if self._stop_requests == 1 and self._loop is not None:
            threading.Thread(target=self._leave_a_blocked_loop, args=(self._loop,), daemon=True).start()
        elif self._stop_requests == 2 and self._hurry is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._hurry)
        elif self._stop_requests > 2:
            os._exit(128 + number)  # as if killed: the next start finds what was not over

    def _leave_a_blocked_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """A handler that blocks the event loop would keep an orderly stop from ever beginning. A stop that only takes long,
        because a write is let finish, answers here and continues."""
        pause = threading.Event()
        pause.wait(float(self.config.timeout_graceful_shutdown or 0))
        while not loop.is_closed():
            answered = threading.Event()
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # closed in between
                return
            if not answered.wait(_BLOCKED_SECONDS):
                others = ", ".join(self._running_calls()) if self._running_calls is not None else ""
                _log.error(
                    "The process ends although the event loop is blocked, %s; other calls that still run: %s",
                    _place_of(threading.main_thread()),
                    others or "none",
                )
                logging.shutdown()
                os._exit(1)
            pause.wait(_BLOCKED_SECONDS)


def _place_of(thread: threading.Thread) -> str:
    """Where a thread is now, innermost first: a handler that blocks is found by its file."""
    frame = sys._current_frames().get(thread.ident or 0)
    stack = traceback.extract_stack(frame)[-3:]
    return ", called from ".join(f"{one.filename}:{one.lineno} in {one.name}" for one in reversed(stack))


def exit_after_grace(code: int) -> None:
    """Everything is recorded and closed. What still runs in threads that nobody can stop does not keep the process alive."""

    def end() -> None:
        left = [
            thread.name
            for thread in threading.enumerate()
            if not thread.daemon and thread is not threading.main_thread()
        ]
        _log.error("The process ends although something still runs in it: %s", ", ".join(sorted(left)) or "a coroutine")
        logging.shutdown()
        os._exit(code)

    timer = threading.Timer(_LAST_SECONDS, end)
    timer.daemon = True
    timer.start()


def bound(options: Options) -> socket.socket:
    """A socket at the server's address, which does not listen yet; `UsageError` in a sentence if it cannot be had."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, number)
    except OSError as error:
        raise UsageError(f'"{options.host}" is no address of this machine ({error.strerror}).') from None
    # Else a restart would fail for as long as connections of the last process time out in the system.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        raise UsageError(
            f"The server cannot listen on {options.host} port {options.port} ({error.strerror}); `--port` names another."
        ) from None
    made.setblocking(False)
    return made


def make_server(
    app: ASGIApp,
    options: Options,
    drain: Callable[[], Awaitable[None]],
    ready: Callable[[], Awaitable[None] | None] | None = None,
    hurry: Callable[[], None] | None = None,
    connections: ConnectionTable | None = None,
    running_calls: Callable[[], list[str]] | None = None,
) -> Server:
    """A server over the application with the limits of the options; `ready` is called when it listens, `hurry` when it is
    asked to stop for the second time. `connections` counts its connections, for whoever wants to see how many there are;
    `running_calls` names what a stop leaves behind when a handler blocks the event loop."""
    table = connections if connections is not None else ConnectionTable(options.max_connections)
    table.limit = _max_connections(options.max_connections)
    protocol = type("Watched", (WatchedProtocol,), {"slow_seconds": float(options.slow_seconds), "table": table})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws=type("Voice", (VoiceProtocol,), {"table": table}),
        ws_max_size=_MAX_FRAME_BYTES,
        # The voice protocol asks by a message of its own: a ping of the WebSocket is answered by the browser, also for a
        # page that hangs.
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        loop="asyncio",
        # With "auto" a start that fails would be taken for an application without a start, and be served.
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # Limits count by address, and anybody can write `X-Forwarded-For`.
        proxy_headers=False,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=options.max_header_bytes,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=options.shutdown_seconds,
    )
    return Server(config, drain, ready, hurry, running_calls)


def tune_garbage_collector() -> None:
    """For a process that does nothing but serve: what was made until now stays, and is not walked over again and again.

    A full collection is a pause for every turn that runs at that moment, of a tenth of a second with 500 of them. Nearly all
    garbage dies young, so the full ones may be rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)


def _max_connections(wanted: int) -> int:
    """No more than the system lets the process open, with some left for files."""
    try:
        import resource  # noqa: PLC0415  # only where there is one

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < wanted + 200:
            soft = min(hard, wanted + 200) if hard != resource.RLIM_INFINITY else wanted + 200
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(16, min(wanted, soft - 200))
    except (ImportError, ValueError, OSError):
        return wanted
