"""Where durable state lives. `open_store` turns the one URL of the settings into a store that is not yet opened."""

from __future__ import annotations

from pathlib import Path

from handrail.contract.errors import UsageError, install_command
from handrail.contract.store import Store
from handrail.stores.memory import MemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.stores.statements import Clock

__all__ = ["MemoryStore", "SqliteStore", "open_store"]

_POSSIBLE = '"memory:", "sqlite:///relative.db", "sqlite:////absolute.db" or "postgresql://user@host/database"'


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """The store that `url` names; call its `open()` before use. `clock` (milliseconds since 1970) is for tests."""
    if url == "memory:":
        return MemoryStore(clock=clock)
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        if path and path != ":memory:":
            return SqliteStore(Path(path), clock=clock)
        raise UsageError(f'A store "sqlite:///" needs the path of a file; use {_POSSIBLE}.')
    # Only the scheme is named: the rest may hold a password.
    scheme, colon, _ = url.partition(":")
    if colon and scheme.split("+")[0] in ("postgres", "postgresql"):
        return _postgres(url, clock)
    named = f'"{scheme}:"' if colon else "This text"
    raise UsageError(f"{named} is not a store that is known; use {_POSSIBLE}.")


def _postgres(url: str, clock: Clock | None) -> Store:
    try:
        # Only who uses it has its driver.
        from handrail.stores.postgres import PostgresStore  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            f"A store on PostgreSQL needs the driver psycopg; run {install_command('handrail[postgres]')}."
        ) from None
    return PostgresStore(url, clock=clock)
