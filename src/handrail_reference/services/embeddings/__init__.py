"""Embeddings: texts as vectors that lie close where the meanings do, from a model on this machine or from Ollama.

The port is `Embedder`; `open_embedder` chooses what is behind it. numpy is imported only when one is opened, or when
`import_packages` is called. Nothing is fetched here: `handrail models install` brings a model, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from handrail.errors import ConfigError, missing_extra
from handrail_reference.services.embeddings.catalog import MINILM
from handrail_reference.services.embeddings.installed import folder_of, is_installed
from handrail_reference.services.embeddings.port import Embedder, EmbeddingError

__all__ = ["KINDS", "Embedder", "EmbeddingError", "import_packages", "missing_packages", "open_embedder"]

KINDS = ("auto", "none", "minilm", "ollama")
_PACKAGES = ("numpy", "threadpoolctl")


def open_embedder(
    kind: str, *, models: Path, ollama_url: str = "http://127.0.0.1:11434", ollama_model: str = "all-minilm"
) -> Embedder | None:
    """The embedder of this kind, or None where there is none to be had and none was insisted on.

    `auto` takes MiniLM if it is installed. A kind that was asked for by name and cannot be opened is a `ConfigError`
    that says what to do. Loading MiniLM takes about a quarter of a second; do it in a thread.
    """
    if kind == "none":
        return None
    if kind == "ollama":
        _need(("numpy",))
        from handrail_reference.services.embeddings.ollama import OllamaEmbedder  # noqa: PLC0415 - numpy only where it is used

        return OllamaEmbedder(ollama_url, ollama_model)
    if kind not in KINDS:
        raise ConfigError(f'"{kind}" is no kind of embeddings; choose {", ".join(KINDS)}.')
    if kind == "auto" and (missing_packages() or not is_installed(MINILM, models)):
        return None
    _need(_PACKAGES)
    from handrail_reference.services.embeddings.minilm import MiniLM  # noqa: PLC0415 - numpy only where it is used

    return MiniLM(folder_of(MINILM, models))


def import_packages(kind: str, *, models: Path) -> None:
    """Import what the embedder of this kind is run with, if it is one that can be opened.

    To import numpy keeps every other thread waiting for some hundredths of a second. A server calls this before anybody waits
    for its event loop; what `open_embedder` does after that, in a thread, holds no loop for more than a few milliseconds.
    """
    with suppress(ImportError):  # whoever opens the embedder learns it
        if kind in ("auto", "minilm") and not missing_packages() and is_installed(MINILM, models):
            import_module("handrail_reference.services.embeddings.minilm")
        elif kind == "ollama" and not missing_packages(("numpy",)):
            import_module("handrail_reference.services.embeddings.ollama")


def missing_packages(packages: Sequence[str] = _PACKAGES) -> list[str]:
    """Which of the packages that run a model here are not installed."""
    return [name for name in packages if find_spec(name) is None]


def _need(packages: Sequence[str]) -> None:
    if missing_packages(packages):
        raise missing_extra("Search by meaning", "embeddings")
