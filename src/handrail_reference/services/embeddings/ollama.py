"""Embeddings from an Ollama server, over plain HTTP. The model there is the operator's choice and is pulled by them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from handrail.errors import ConfigError
from handrail_reference.services.embeddings.port import EmbeddingError
from handrail_reference.services.embeddings.recent import RecentVectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_TIMEOUT_SECONDS = 30.0
_QUERY_TIMEOUT_SECONDS = 5.0
_QUERY_LENGTH = 1_000
"""One text no longer than this is somebody's question, and somebody waits."""
_BATCH = 64
_LARGEST_ANSWER = 1 << 26


class OllamaEmbedder:
    """Asks `/api/embed`. How many dimensions the model has is learned from its first answer."""

    def __init__(self, url: str, model: str, *, timeout: float = _TIMEOUT_SECONDS) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f'"{url}" is no address of an Ollama server; it looks like http://127.0.0.1:11434.')
        if not model:
            raise ConfigError("The name of the Ollama model is empty; name one, such as all-minilm.")
        self.name = f"ollama-{model}"
        self._url = url.rstrip("/") + "/api/embed"
        self._model = model
        self._timeout = timeout
        # Speaks to the one server that was named: no proxy from the environment, no redirect to elsewhere.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
        self._recent = RecentVectors()
        self._lock = Lock()
        self._dimensions = 0

    @property
    def dimensions(self) -> int:
        """Asks the server once if no text was embedded yet."""
        if not self._dimensions:
            self._ask(["dimensions"], self._timeout)
        return self._dimensions

    def embed(self, texts: Sequence[str]) -> Floats:
        """One unit vector a text, in their order; blocks while the server works."""
        known = {text: self._recent.get(text) for text in texts}
        unknown = [text for text, vector in known.items() if vector is None]
        waited_for = len(texts) == 1 and len(texts[0]) <= _QUERY_LENGTH
        timeout = min(self._timeout, _QUERY_TIMEOUT_SECONDS) if waited_for else self._timeout
        for start in range(0, len(unknown), _BATCH):
            batch = unknown[start : start + _BATCH]
            for text, vector in zip(batch, self._ask(batch, timeout), strict=True):
                known[text] = vector
                self._recent.put(text, vector)
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        rows = [vector for vector in (known[text] for text in texts) if vector is not None]
        return np.stack(rows)

    def _ask(self, texts: Sequence[str], timeout: float) -> Floats:
        # The server sees text that any reader of JSON accepts: half characters are replaced.
        readable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        body = json.dumps({"model": self._model, "input": readable, "truncate": True}).encode()
        request = urllib.request.Request(self._url, data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - http or https, checked above
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                data = answer.read(_LARGEST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            raise EmbeddingError(self._refusal(error)) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise EmbeddingError(
                f"Ollama at {self._url} does not answer ({reason}); start it with `ollama serve`, or mend the address."
            ) from None
        return self._vectors(data, len(texts))

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        with error:
            if error.code == 404:
                return f'Ollama has no model "{self._model}"; fetch it with `ollama pull {self._model}`.'
            return f'Ollama refused to embed with "{self._model}" (HTTP {error.code}); its log says why.'

    def _vectors(self, data: bytes, count: int) -> Floats:
        vectors = _unit_vectors(data)
        if vectors is None or len(vectors) != count:
            raise EmbeddingError(f'Ollama at {self._url} gave no usable vectors for "{self._model}".')
        with self._lock:
            if self._dimensions not in (0, vectors.shape[1]):
                raise EmbeddingError(
                    f'The Ollama model "{self._model}" changed from {self._dimensions} to {vectors.shape[1]} dimensions; '
                    "restart, and embed everything anew."
                )
            self._dimensions = vectors.shape[1]
        return vectors


def _unit_vectors(data: bytes) -> Floats | None:
    """The vectors in an answer, each made length 1; None where it has none, or numbers that are no direction."""
    if len(data) > _LARGEST_ANSWER:
        return None
    try:
        vectors = np.array(json.loads(data)["embeddings"], dtype=np.float64)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    if vectors.ndim != 2:
        return None
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not (lengths > 0).all():
        return None
    units: Floats = (vectors / lengths).astype(np.float32)
    return units


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Not followed: the answer is then told as a refusal."""
