"""What an operator does to a store beside its use: bring its tables to this release, check it, copy it to another database.

`open_access` turns a URL into the store's database itself; the commands of `handrail store` work on that.
"""

from __future__ import annotations

from pathlib import Path

from handrail.contract.errors import UsageError, install_command
from handrail.stores.maintenance.store_access import SqliteAccess, StoreAccess

__all__ = ["StoreAccess", "open_access"]


def open_access(url: str, *, read_only: bool) -> StoreAccess:
    """The database that `url` names; `HandrailError` if it is not there, cannot be reached, or is another program's."""
    if url.startswith("sqlite:///"):
        return SqliteAccess(Path(url.removeprefix("sqlite:///")), read_only=read_only)
    if url.partition(":")[0] not in ("postgres", "postgresql"):
        # Only the scheme is named: the rest may hold a password.
        raise UsageError(
            f'A store that is kept is named by "sqlite:///…" or "postgresql://…"; "{url.partition(":")[0]}" is neither.'
        )
    try:
        # Only who uses it has its driver.
        from handrail.stores.maintenance.postgres_access import PostgresAccess  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            f"A store on PostgreSQL needs the driver psycopg; run {install_command('handrail[postgres]')}."
        ) from None
    return PostgresAccess(url, read_only=read_only)
