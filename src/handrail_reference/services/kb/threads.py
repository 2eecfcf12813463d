"""The threads of a knowledge base: one that writes, and a few that read, each with a connection of its own. What a database does
on them is the business of `database` and `postgres`.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from handrail.errors import HandrailError
from handrail_reference.services.kb.connection import KnowledgeConnection
from handrail_reference.services.kb.port import KbTooSlow, KbUnavailable

if TYPE_CHECKING:
    from handrail_reference.services.kb.vectors import VectorSearch

T = TypeVar("T")
Request = Callable[[KnowledgeConnection], T]
READERS = 3
_STOP_SECONDS = 0.05


class KnowledgeThreads(ABC):
    """A database of records. Nothing is opened before it is used; no exception of a driver ever leaves it."""

    name: str
    """What sentences call it."""

    def __init__(self) -> None:
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="handrail-kb-writer")
        self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="handrail-kb-reader")
        self._closed = False

    # From the event loop

    async def read(self, request: Request[T], seconds: float | None = None) -> T:
        """What `request` reads, off the loop; past its time, or cancelled, the statement is stopped where it is."""
        job = _Stoppable(request)
        work = asyncio.wrap_future(self._submit(self._reading, lambda: self._read(job)))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(work)
        except TimeoutError:
            _stop(job, work)
            work.add_done_callback(_forget)
            raise KbTooSlow(f"The knowledge base did not answer within {seconds:g} seconds.") from None
        except asyncio.CancelledError:
            _stop(job, work)
            work.add_done_callback(_forget)
            raise

    async def write(self, request: Request[T]) -> T:
        return await asyncio.wrap_future(self.write_soon(request))

    async def close(self) -> None:
        await asyncio.to_thread(self.close_now)

    # From plain code, such as the commands

    def read_now(self, request: Request[T]) -> T:
        return self._submit(self._reading, lambda: self._read(request)).result()

    def write_now(self, request: Request[T]) -> T:
        """One transaction: all of what `request` does, or nothing."""
        return self.write_soon(request).result()

    def write_soon(self, request: Request[T]) -> Future[T]:
        return self._submit(self._writing, lambda: self._write(request))

    def close_now(self) -> None:
        """Wait for what runs, then let go of the database."""
        self._closed = True
        self._writing.shutdown(wait=True)
        self._reading.shutdown(wait=True, cancel_futures=True)
        self._close_connections()

    # What each database does in its own way

    @abstractmethod
    def check(self, message: str) -> str:
        """What `handrail doctor` says of a base that can be used, beginning with `message`; `HandrailError` of one that cannot.
        Changes nothing."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether the base was made already."""

    @abstractmethod
    def scrub(self) -> None:
        """Remove what was deleted for good, as far as that is ours to do."""

    @abstractmethod
    def vector_search(self, space: str, dimensions: int) -> VectorSearch: ...

    @abstractmethod
    def _read(self, request: Request[T]) -> T: ...

    @abstractmethod
    def _write(self, request: Request[T]) -> T: ...

    @abstractmethod
    def _close_connections(self) -> None: ...

    def _submit(self, pool: ThreadPoolExecutor, job: Callable[[], T]) -> Future[T]:
        try:
            return pool.submit(job)
        except RuntimeError:
            raise KbUnavailable("The knowledge base was closed.") from None


class _Stoppable(Generic[T]):
    """A request that another thread may stop: before it has begun, or in the middle of a statement."""

    def __init__(self, request: Request[T]) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._db: KnowledgeConnection | None = None
        self._stopped = False

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def __call__(self, db: KnowledgeConnection) -> T:
        with self._lock:
            if self._stopped:
                raise KbTooSlow("The search was stopped before it began.")
            self._db = db
        try:
            return self._request(db)
        finally:
            with self._lock:
                self._db = None

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._db is not None:
                self._db.interrupt()


def _stop(job: _Stoppable[Any], work: asyncio.Future[Any]) -> None:
    """A stop between two statements is lost, so the job is asked again until it has ended."""
    if not work.done():
        job.stop()
        asyncio.get_running_loop().call_later(_STOP_SECONDS, _stop, job, work)


def _forget(work: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more; its error was reported already."""
    if not work.cancelled():
        error = work.exception()
        if error is not None and not isinstance(error, HandrailError):
            raise error
