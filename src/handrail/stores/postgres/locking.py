"""What is locked for a request before it looks, as it has declared it: rows of sessions in one order everywhere, so that no two
processes wait for each other, then what is known by a name only."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

from handrail.stores.postgres.connection import PostgresDatabase
from handrail.stores.postgres.prepared import PreparedStatement
from handrail.stores.statements.transaction import Request, locks_of

LOCK_SESSIONS = PreparedStatement(
    "lock_sessions",
    """SELECT FROM session WHERE session_id = ANY(ARRAY(SELECT json_array_elements_text(%s::json)))
    ORDER BY session_id FOR NO KEY UPDATE""",
)


def lock(db: PostgresDatabase, requests: Sequence[Request[Any]]) -> None:
    """Wait until these requests have for themselves what they declare, until the transaction ends."""
    wanted = [locks_of(request) for request in requests]
    if any(locks.every_session for locks in wanted):
        # Who locks rows waits for it as well, and it for them.
        db.connection.execute("LOCK TABLE session IN EXCLUSIVE MODE")
    sessions = {session_id for locks in wanted for session_id in locks.sessions}
    sessions |= _owners_of(db, "ledger", "key", {key for locks in wanted for key in locks.sessions_of_calls})
    sessions |= _owners_of(db, "hold", "hold_id", {hold_id for locks in wanted for hold_id in locks.sessions_of_holds})
    if sessions:
        LOCK_SESSIONS.execute(db, sorted(sessions))
    names = {name for locks in wanted for name in locks.names}
    if names:
        # One after the other, in this order.
        db.connection.execute(
            "SELECT pg_advisory_xact_lock(number) FROM unnest(%s::bigint[]) AS number",
            (sorted(advisory_number("name", name) for name in names),),
        )


def advisory_number(kind: str, name: str) -> int:
    """The number of an advisory lock. PostgreSQL has 64 bits for it: two names that nobody chose to meet do not meet."""
    digest = hashlib.sha256(f"handrail\0{kind}\0{name}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], signed=True)


def _owners_of(db: PostgresDatabase, table: str, column: str, keys: Collection[str]) -> set[str]:
    """The sessions that these rows belong to, which never changes."""
    if not keys:
        return set()
    found = db.connection.execute(
        f"SELECT session_id FROM {table} WHERE {column} = ANY(%s)",  # noqa: S608 - our own names
        (sorted(keys),),
    )
    return {session_id for (session_id,) in found}


MIGRATION_LOCK = advisory_number("purpose", "migration")
"""Who has it makes or upgrades the tables, or copies them; everybody who starts waits."""
