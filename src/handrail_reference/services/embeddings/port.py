"""The port: texts in, unit vectors out. Everything that compares meanings speaks to this, never to one model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from handrail.errors import HandrailError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]


class EmbeddingError(HandrailError):
    """Texts could not be turned into vectors now; the message says why and what to do."""


class Embedder(Protocol):
    """Turns texts into vectors that lie close where the meanings do.

    `embed` blocks while it computes or waits, so call it in a thread. It may be called from several at once.
    """

    @property
    def name(self) -> str:
        """The vector space: vectors may be compared only where this is the same."""

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in their order: float32 of the shape (texts, dimensions), each of length 1."""
