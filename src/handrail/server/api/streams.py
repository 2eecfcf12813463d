"""An event stream as a response: frames as they come, a comment when nothing does, an end after a while.

A client that does not take what is sent is cut off by the connection's watchdog (`running`), not here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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


class StreamSlot:
    """One of the places that a key has for streams. `revoke` ends the stream that has it."""

    __slots__ = ("_give_back", "_stream", "revoked")

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back
        self._stream: asyncio.Task[Any] | None = None
        self.revoked = False

    def taken_by(self, stream: asyncio.Task[Any]) -> None:
        self._stream = stream
        if self.revoked:
            stream.cancel()

    def revoke(self) -> None:
        self.revoked = True
        if self._stream is not None:
            self._stream.cancel()

    def give_back(self) -> None:
        """Once; further times change nothing."""
        give_back, self._give_back, self._stream = self._give_back, None, None
        if give_back is not None:
            give_back()


class EventStream:
    """A response whose body is made of chunks that come in time. `source` ends when the client goes away."""

    def __init__(
        self,
        source: AsyncIterator[bytes],
        *,
        place: StreamSlot,
        headers: Mapping[str, str] | None = None,
        on_end: Sequence[Callable[[], None]] = (),
        revoked: bytes = _REVOKED,
    ) -> None:
        self._source = source
        self._place = place
        self._headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in {**STREAM_HEADERS, **(headers or {})}.items()
        ]
        self._on_end = on_end
        self._revoked = revoked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
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
        self._place.taken_by(sending)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            async for chunk in self._source:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            watching.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if gone:
                return
            if not self._place.revoked:
                raise
            sending.uncancel()
            watching.cancel()
            await send({"type": "http.response.body", "body": self._revoked, "more_body": False})
        finally:
            watching.cancel()
            await self._end()

    async def _end(self) -> None:
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()
        # Not left to the source alone: one that was never begun does not end either.
        for call in self._on_end:
            call()
        self._place.give_back()


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
            finished = next((index for index, one in enumerate(wanted) if _ends(one.type, until_turn)), None)
            if finished is not None:
                yield begin + b"".join(one.data for one in wanted[: finished + 1])
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


def _ends(type: str, until_turn: int | None) -> bool:
    return until_turn is not None and type == "done"
