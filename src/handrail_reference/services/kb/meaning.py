"""The embedder of a knowledge base: opened once, asked on threads of its own, and never a reason for a search to fail.

A model that cannot be loaded means keywords alone, which is said once. One that is slow or away, such as a server, is left
alone for a while and then asked again, so that searches do not wait for it one after the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from handrail.errors import HandrailError

if TYPE_CHECKING:
    from handrail_reference.services.embeddings.port import Embedder

_LOG = logging.getLogger("handrail.kb")
QUERY_SECONDS = 1.0
"""So long a search waits for the vector of its query; words alone are better than no answer."""
PAUSE_SECONDS = 30.0
_THREADS = 2


class Meaning:
    """`make` is called once, by whoever first wants the embedder; None means words only, by choice."""

    def __init__(
        self, make: Callable[[], Embedder | None] | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock = clock
        self._embedder: Embedder | None = None
        self._asking: ThreadPoolExecutor | None = None
        self._paused_until = 0.0
        self._lock = threading.Lock()
        self.problem = ""
        """Why an embedder that was wanted could not be opened."""

    @property
    def embedder(self) -> Embedder | None:
        """The embedder, opened at the first look; None where the knowledge base works on words alone."""
        with self._lock:
            if self._make is not None:
                make, self._make = self._make, None
                try:
                    self._embedder = make()
                except HandrailError as error:
                    self.problem = str(error)
                    _LOG.warning("The knowledge base works on keywords alone: %s", error)
                else:
                    if self._embedder is None:  # nothing is wrong: `handrail serve`, `doctor` and `kb stats` say it
                        _LOG.info(
                            "The knowledge base works on keywords alone; `handrail models install` adds embeddings."
                        )
            return self._embedder

    def ask(self, query: str) -> Future[Any] | None:
        """Begin to make the vector of a query; None where there is none to be had."""
        embedder = self.embedder
        if embedder is None or not query.strip() or self._clock() < self._paused_until:
            return None
        with self._lock:
            if self._asking is None:
                self._asking = ThreadPoolExecutor(_THREADS, thread_name_prefix="handrail-kb-query")
            try:
                return self._asking.submit(lambda: embedder.embed([query])[0])
            except RuntimeError:  # closed meanwhile
                return None

    def answer(self, asked: Future[Any] | None, dimensions: int) -> Any:
        """The vector that was asked for; None where it does not come in time, and then words alone must do."""
        if asked is None:
            return None
        try:
            vector = asked.result(QUERY_SECONDS)
        except TimeoutError:
            asked.cancel()
            return self._without(f"the embeddings took longer than {QUERY_SECONDS:g} seconds.")
        except HandrailError as error:
            return self._without(str(error))
        if len(vector) != dimensions:
            return self._without("the model gives other vectors than those that are stored; `handrail kb embed`.")
        return vector

    def close(self) -> None:
        """Let go of the threads. One that still waits for a server ends with its time-out."""
        with self._lock:
            self._make = None
            if self._asking is not None:
                self._asking.shutdown(wait=False, cancel_futures=True)

    def _without(self, why: str) -> None:
        self._paused_until = self._clock() + PAUSE_SECONDS
        _LOG.warning("Searches go by keywords alone for %g seconds: %s", PAUSE_SECONDS, why)
