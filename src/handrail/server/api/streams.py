"""An event stream as a response: frames as they come, a comment when nothing does, an end after a while.

A client that does not take what is sent is cut off by the connection's watchdog (`running`), not here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from handrail.server.host.event_log import EventReader
from handrail.server.options import Options
from handrail.server.wire import HEARTBEAT, notice

STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}


_REVOKED = notice("closed", {"reason": "The key of this stream was revoked."})


@dataclass(slots=True, eq=False)
class StreamSlot:
    """One of the places that a key has for streams. `revoke` ends the stream that has it."""

    open: Counter[str]
    """How many each key has open."""
    key: str
    unused: Callable[[], None] | None = None
    """To be called when the key is no longer used here."""
    stream: asyncio.Task[Any] | None = None
    revoked: bool = False

    def revoke(self) -> None:
        self.revoked = True
        if self.stream is not None:
            self.stream.cancel()

    def give_back(self) -> None:
        """Once; further times change nothing."""
        unused, self.unused, self.stream = self.unused, None, None
        if unused is not None:
            unused()
            self.open[self.key] -= 1
            if self.open[self.key] <= 0:
                del self.open[self.key]


@dataclass(slots=True, eq=False)
class EventStream:
    """A response whose body is made of chunks that come in time. `source` ends when the client goes away."""

    source: AsyncIterator[bytes]
    place: StreamSlot = field(kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    on_end: Sequence[Callable[[], None]] = field(default=(), kw_only=True)
    revoked: bytes = field(default=_REVOKED, kw_only=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {**STREAM_HEADERS, **self.headers}.items()
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body"})
            await self._end()
            return
        sending = asyncio.current_task()
        assert sending is not None
        gone = False

        async def watch() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                continue
            gone = True
            sending.cancel()

        watching = asyncio.get_running_loop().create_task(watch())
        self.place.stream = sending
        if self.place.revoked:
            sending.cancel()
        try:
            await send(start)
            async for chunk in self.source:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            watching.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if gone:
                return
            if not self.place.revoked:
                raise
            sending.uncancel()
            watching.cancel()
            await send({"type": "http.response.body", "body": self.revoked, "more_body": False})
        finally:
            watching.cancel()
            await self._end()

    async def _end(self) -> None:
        close = getattr(self.source, "aclose", None)
        if close is not None:
            await close()
        # Not left to the source alone: one that was never begun does not end either.
        for call in self.on_end:
            call()
        self.place.give_back()


async def frames(reader: EventReader, options: Options, *, until_turn: int | None = None) -> AsyncIterator[bytes]:
    """The frames of a log for one client; up to the end of one turn, where one is named."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + options.stream_seconds
    begin = b": handrail\nretry: 1000\n\n"
    try:
        if not reader.has_news:  # else what is there goes out with it
            yield begin
            begin = b""
        while True:
            events = await reader.batch(min(options.heartbeat_seconds, max(0.01, ends - loop.time())))
            if events is None:
                yield begin + notice(reader.farewell or "reconnect", {})
                return
            wanted = [one for one in events if until_turn is None or one.turn in (0, until_turn)]
            ends_at = [place for place, one in enumerate(wanted) if one.type == "done" and until_turn is not None]
            if ends_at:
                yield begin + b"".join(one.data for one in wanted[: ends_at[0] + 1])
                return
            if wanted or begin:
                yield begin + b"".join(one.data for one in wanted)
                begin = b""
            elif not events:
                yield HEARTBEAT
            if loop.time() >= ends:
                yield notice("reconnect", {"reason": "This stream is old enough; connect again and go on."})
                return
    finally:
        reader.close()
