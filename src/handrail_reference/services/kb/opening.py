"""The service `kb`: a knowledge base as `[services.kb]` describes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from handrail.errors import ConfigError
from handrail_reference.services.embeddings import import_packages, missing_packages, open_embedder
from handrail_reference.services.embeddings.catalog import MODELS, models_folder
from handrail_reference.services.embeddings.installed import is_installed
from handrail_reference.services.kb.access import access_by
from handrail_reference.services.kb.service import KnowledgeBase
from handrail_reference.services.kb.threads import KnowledgeThreads

KEYWORDS_ALONE = "The knowledge base works on keywords alone; `handrail models install` adds embeddings."


def open_kb(
    project: Path,
    *,
    store_url: str = "",
    database: str = "auto",
    schema: str = "",
    path: str = "kb.db",
    embeddings: Literal["auto", "none", "minilm", "ollama"] = "auto",
    ollama_url: str = "http://127.0.0.1:11434",
    ollama_model: str = "all-minilm",
    namespaces: Sequence[str] = ("studio", "public"),
    user_namespaces: Sequence[str] = ("studio", "public", "personal"),
    starter: bool = True,
    models_directory: str = "",
) -> KnowledgeBase:
    """The project's knowledge base; it is opened at the first request, and a model loaded only then.

    `database` is where it is kept: in the store's database where that is PostgreSQL, otherwise in a file (`auto`); always in the
    file at `path` (`file`); or in the database of a URL. `schema` is its schema there, `handrail_kb` if empty.
    `embeddings` is what finds by meaning: MiniLM where it is installed (`auto`), nothing, MiniLM or nothing else, or Ollama.
    `namespaces` are what everybody may read, `user_namespaces` what a user who is signed in may. `starter`: a new base begins
    with Handrail's own pages. `models_directory`: where installed models live; empty means the user's cache folder.
    """
    if "://" in path:  # it may have a password in it, which is not repeated
        raise ConfigError('"path" in [services.kb] names a file; the address of a database stands in "database".')
    models = models_folder(models_directory, project, os.environ)
    is_alone = embeddings == "auto" and bool(missing_packages() or not is_installed(MODELS["minilm"], models))
    return KnowledgeBase(
        _place(project / path, store_url, database, schema),
        embedder=None
        if embeddings == "none"
        else lambda: open_embedder(embeddings, models=models, ollama_url=ollama_url, ollama_model=ollama_model),
        access=access_by(namespaces, user_namespaces),
        with_starter=starter,
        searched_by=KEYWORDS_ALONE if is_alone else f"embeddings: {embeddings}",
        preload=None if is_alone else lambda: import_packages(embeddings, models=models),
    )


def _place(path: Path, store_url: str, database: str, schema: str) -> Path | KnowledgeThreads:
    url = store_url if database == "auto" else database
    if database == "file" or (database == "auto" and not _is_postgres(url)):
        return path
    if not _is_postgres(url):
        raise ConfigError('[services.kb] database must be "auto", "file" or "postgresql://USER@HOST/DATABASE".')
    try:
        # Only who uses it has its driver.
        from handrail_reference.services.kb.postgres import PostgresKnowledgeBase  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            'A knowledge base in PostgreSQL needs the driver psycopg; run `pip install "handrail-reference[postgres]"` '
            "(from a copy as docs/install.md says)."
        ) from None
    return PostgresKnowledgeBase(url, schema=schema)


def _is_postgres(url: str) -> bool:
    return url.partition(":")[0].partition("+")[0] in ("postgres", "postgresql")
