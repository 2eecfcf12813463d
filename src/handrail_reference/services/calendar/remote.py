"""What calendars that are reached over a network have in common: a few threads, and failures in the words of the envelope."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime
from typing import Any, TypeVar, cast

from handrail.errors import ErrorType, ToolError
from handrail_reference.services.calendar.failures import closed, overloaded
from handrail_reference.services.calendar.items import Happening
from handrail_reference.services.calendar.port import LONGEST_WINDOW, MAX_CONFLICTS, Busy, OutcomeUnknown

T = TypeVar("T")
_THREADS = 8
_MAX_WAITING = 64
_CUT_SECONDS = 0.25
_CLOSING_SECONDS = 2.0
MAX_RETRY_AFTER = 3600.0
MAX_HAPPENINGS = 20_000
"""In the range that is asked for, in one calendar."""


class Maybe(Exception):  # no failure yet: whoever catches it finds out
    """A request went out, and what became of it is not known.

    `is_over` means that the service has answered: nothing more will come of the request, so that a look tells what it did."""

    def __init__(self, why: ToolError, *, is_over: bool = False) -> None:
        super().__init__(str(why))
        self.why = why
        self.is_over = is_over


def is_certain(status: int) -> bool:
    """Whether a service answers so before it has done anything. It may fail, or deny the answer, after a write as well."""
    return 300 <= status < 500 and status not in (403, 408)


async def twice(send: Callable[[], Awaitable[T]]) -> T:
    """A write under a condition that lets it happen once. In doubt it is sent again."""
    try:
        return await send()
    except Maybe as doubt:
        if doubt.is_over:
            raise
    try:
        return await send()
    except Maybe as doubt:
        raise Maybe(doubt.why) from None  # the first may still be under way
    except ToolError as error:
        raise Maybe(error) from None


class Line:
    """The connections that a request uses. A library has a time-out for each read, so a service that sends a byte now and then
    would keep its thread for ever; one whose line is cut ends."""

    def __init__(self) -> None:
        self._sockets: list[Callable[[], Iterable[Any]]] = []

    def uses(self, sockets: Callable[[], Iterable[Any]]) -> None:
        """What gives the sockets that are open at the moment."""
        self._sockets.append(sockets)

    def cut(self) -> None:
        for opened in tuple(self._sockets):
            for one in opened():
                with suppress(OSError):  # not connected, or gone
                    # Not the method of a TLS socket, which forgets its state while another thread reads with it.
                    socket.socket.shutdown(one, socket.SHUT_RDWR)


class RemoteThreads:
    """Threads for a library that waits. What takes longer than its time is given up, and its connection is cut."""

    def __init__(self, name: str, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"handrail-{name}")
        self._seconds = seconds
        self._waiting = 0
        self._closed = False
        self._lines: dict[Future[Any], Line] = {}
        self._cutting: set[asyncio.Task[None]] = set()

    async def run(self, work: Callable[[Line], T]) -> T:
        if self._closed:
            raise closed()
        if self._waiting >= _MAX_WAITING:
            raise overloaded()
        self._waiting += 1
        line = Line()
        # In the context of the call, so that requests belong to its trace.
        submitted = self._pool.submit(copy_context().run, work, line)
        self._lines[submitted] = line
        submitted.add_done_callback(self._ended)
        try:
            future = asyncio.wrap_future(submitted)
            future.add_done_callback(_seen)
            return await asyncio.wait_for(asyncio.shield(future), self._seconds)
        except asyncio.CancelledError:
            if (
                not submitted.cancel()
            ):  # nobody waits for it any more: it may end what it has begun, and not begin later
                self._give_up(line, submitted, self._seconds)
            raise
        except TimeoutError:
            if submitted.cancel():
                raise overloaded() from None
            self._give_up(line, submitted, 0.0)
            raise Maybe(transient("The service does not answer in time.")) from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """What is still under way is cut: the process could not end before it."""
        self._closed = True
        for cutting in self._cutting:
            cutting.cancel()
        await asyncio.to_thread(self._pool.shutdown, wait=False, cancel_futures=True)
        cuts = (_cut(line, submitted, 0.0) for submitted, line in tuple(self._lines.items()))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*cuts), _CLOSING_SECONDS)

    def _give_up(self, line: Line, submitted: Future[Any], seconds: float) -> None:
        cutting = asyncio.get_running_loop().create_task(_cut(line, submitted, seconds))
        self._cutting.add(cutting)
        cutting.add_done_callback(self._cutting.discard)

    def _ended(self, submitted: Future[Any]) -> None:
        self._lines.pop(submitted, None)


async def _cut(line: Line, working: Future[Any], seconds: float) -> None:
    await asyncio.sleep(seconds)
    # Again and again: a library may connect anew.
    while not working.done():
        line.cut()
        await asyncio.sleep(_CUT_SECONDS)


async def read(work: Callable[[], Any]) -> Any:
    """A request that changes nothing: what is not known has failed."""
    try:
        return await work()
    except Maybe as doubt:
        raise doubt.why from None


def transient(text: str, retry_after: float | None = None) -> ToolError:
    return ToolError(ErrorType.TRANSIENT, text, retryable=True, retry_after=bounded(retry_after))


def bounded(seconds: float | None) -> float | None:
    """A time to wait that a service asked for, if it can be meant."""
    return None if seconds is None or not seconds >= 0 else min(seconds, MAX_RETRY_AFTER)


def unknown(doubt: Maybe) -> OutcomeUnknown:
    return OutcomeUnknown(f"It is not known whether the calendar was changed: {doubt.why.message}")


def not_there(doubt: Maybe) -> ToolError | OutcomeUnknown:
    """What a doubtful write has come to whose effect was looked for and is not there."""
    return doubt.why if doubt.is_over else unknown(doubt)


def check_window(start: datetime, end: datetime) -> None:
    if end - start > LONGEST_WINDOW:
        raise ToolError(ErrorType.VALIDATION, f"A window may be {LONGEST_WINDOW.days} days long at most.")


def taken(happenings: Iterable[Happening], start: datetime, end: datetime) -> list[Happening]:
    """Those that take time within the window."""
    return [
        one
        for one in happenings
        if one.status != "free" and one.start < one.end and one.start < end and one.end > start
    ]


def too_many() -> ToolError:
    return ToolError(ErrorType.PERMANENT, "The calendar has more events in this range than can be read; ask for less.")


def clashing(found: Iterable[Happening], besides: str | None, limit: int = MAX_CONFLICTS) -> tuple[Busy, ...]:
    others = (one for one in found if one.uid != besides)
    first = sorted(others, key=lambda one: (one.start, one.end, one.calendar, one.uid))[:limit]
    return tuple(as_busy(one, details=False) for one in first)


def as_busy(one: Happening, *, details: bool) -> Busy:
    shown = details and not one.private
    return Busy(
        start=one.start,
        end=one.end,
        status=cast(Any, one.status),
        calendar=one.calendar,
        title=one.title if shown else None,
        attendees=one.attendees if shown else None,
    )


def wrong_tenant(tenant: str, served: Sequence[str]) -> ToolError | None:
    """One account serves whom the host has named: what is in it is nobody else's business."""
    if tenant in served:
        return None
    return ToolError(ErrorType.AUTH, "No calendar is set up for this organisation; the host has to set one up.")


def _seen(future: asyncio.Future[Any]) -> None:
    """A result that came too late is looked at by nobody."""
    if not future.cancelled():
        future.exception()
