"""The vectors of the texts that were asked for last. A conversation asks the same question more than once."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LONGEST_TEXT = 1_000
"""Queries are short; a document's pieces come by once and are not worth the memory."""


class RecentVectors:
    """A small cache, least recently used first out; safe to use from several threads."""

    def __init__(self, size: int = 512) -> None:
        self._size = size
        self._lock = Lock()
        self._vectors: OrderedDict[str, NDArray[np.float32]] = OrderedDict()

    def get(self, text: str) -> NDArray[np.float32] | None:
        with self._lock:
            vector = self._vectors.get(text)
            if vector is not None:
                self._vectors.move_to_end(text)
            return vector

    def put(self, text: str, vector: NDArray[np.float32]) -> None:
        if len(text) > _LONGEST_TEXT:
            return
        with self._lock:
            self._vectors[text] = vector.copy()
            self._vectors.move_to_end(text)
            if len(self._vectors) > self._size:
                self._vectors.popitem(last=False)
