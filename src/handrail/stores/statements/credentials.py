"""Credentials of people: the statements of `contract.credentials`."""

from __future__ import annotations

from handrail.contract.credentials import PendingAuthorization, StoredCredential
from handrail.stores.statements.transaction import Transaction

_COLUMNS = "tenant, user, connection, sealed, key_id, version, updated_at"
_ONE = "tenant = ? AND user = ? AND connection = ?"
_TAKEN = "taken "
"""Stands before the digest of an authorization that was taken: no answer finds it any more."""
_TAKEN_MS = 5 * 60_000
"""So long after its time one that was taken may still be completed."""


def get(tx: Transaction, tenant: str, user: str, connection: str) -> StoredCredential | None:
    row = tx.db.execute(
        f"SELECT {_COLUMNS} FROM credential WHERE {_ONE}",  # noqa: S608 - names of ours
        (tenant, user, connection),
    ).fetchone()
    return None if row is None else _credential(row)


def all_of(tx: Transaction, tenant: str, user: str) -> list[StoredCredential]:
    rows = tx.db.execute(
        f"SELECT {_COLUMNS} FROM credential WHERE tenant = ? AND user = ? ORDER BY connection",  # noqa: S608
        (tenant, user),
    )
    return [_credential(row) for row in rows]


def put(tx: Transaction, credential: StoredCredential, expected: int | None) -> bool:
    one = credential
    if expected is not None:
        changed = tx.db.execute(
            f"""UPDATE credential SET sealed = ?, key_id = ?, version = version + 1, updated_at = ?
                WHERE {_ONE} AND version = ?""",  # noqa: S608
            (one.sealed, one.key_id, tx.now, one.tenant, one.user, one.connection, expected),
        )
        return changed.rowcount > 0
    # Versions begin at the time and only grow: a refresh of an earlier credential that still runs matches none of this one's.
    tx.db.execute(
        """INSERT INTO credential VALUES (?, ?, ?, ?, ?, ?, ?, NULL, 0)
           ON CONFLICT (tenant, user, connection) DO UPDATE SET sealed = excluded.sealed, key_id = excluded.key_id,
           version = credential.version + 1, updated_at = excluded.updated_at, refresh_owner = NULL, refresh_until = 0""",
        (one.tenant, one.user, one.connection, one.sealed, one.key_id, tx.now, tx.now),
    )
    return True


def delete(
    tx: Transaction, tenant: str, user: str, connection: str, expected: int | None = None
) -> StoredCredential | None:
    who = (tenant, user, connection)
    if expected is None:
        # Everywhere before the credential, so that no two transactions wait for each other.
        tx.db.execute(f"DELETE FROM pending_authorization WHERE {_ONE}", who)  # noqa: S608
        gone = tx.db.execute(f"DELETE FROM credential WHERE {_ONE} RETURNING {_COLUMNS}", who)  # noqa: S608
    else:
        gone = tx.db.execute(
            f"DELETE FROM credential WHERE {_ONE} AND version = ? RETURNING {_COLUMNS}",  # noqa: S608
            (*who, expected),
        )
    row = gone.fetchone()
    return None if row is None else _credential(row)


def begin_refresh(tx: Transaction, credential: StoredCredential, owner: str, lease_ms: int) -> bool:
    one = credential
    taken = tx.db.execute(
        f"""UPDATE credential SET refresh_owner = ?, refresh_until = ? WHERE {_ONE} AND version = ?
            AND (refresh_owner IS NULL OR refresh_until <= ?)""",  # noqa: S608
        (owner, tx.now + lease_ms, one.tenant, one.user, one.connection, one.version, tx.now),
    )
    return taken.rowcount > 0


def end_refresh(tx: Transaction, credential: StoredCredential, owner: str) -> None:
    one = credential
    tx.db.execute(
        f"UPDATE credential SET refresh_owner = NULL, refresh_until = 0 WHERE {_ONE} AND refresh_owner = ?",  # noqa: S608
        (one.tenant, one.user, one.connection, owner),
    )


def sealed_otherwise(tx: Transaction, key_id: str, maximum: int) -> list[StoredCredential]:
    rows = tx.db.execute(
        f"""SELECT {_COLUMNS} FROM credential WHERE key_id <> ?
            ORDER BY tenant, user, connection LIMIT ?""",  # noqa: S608
        (key_id, maximum),
    )
    return [_credential(row) for row in rows]


def begin_authorization(tx: Transaction, pending: PendingAuthorization, lives_for: int) -> None:
    one = pending
    # One for each person and connection: whoever begins again and again fills no table.
    tx.db.execute(
        f"DELETE FROM pending_authorization WHERE expires_at <= ? OR ({_ONE})",  # noqa: S608
        (tx.now, one.tenant, one.user, one.connection),
    )
    tx.db.execute(
        "INSERT INTO pending_authorization VALUES (?, ?, ?, ?, ?, ?)",
        (one.digest, one.tenant, one.user, one.connection, one.sealed, tx.now + lives_for),
    )


def take_authorization(tx: Transaction, digest: str) -> PendingAuthorization | None:
    row = tx.db.execute(
        """UPDATE pending_authorization SET digest = ?, expires_at = expires_at + ? WHERE digest = ? AND expires_at > ?
           RETURNING tenant, user, connection, sealed""",
        (_TAKEN + digest, _TAKEN_MS, digest, tx.now),
    ).fetchone()
    if row is None:
        return None
    return PendingAuthorization(digest=digest, tenant=row[0], user=row[1], connection=row[2], sealed=row[3])


def complete_authorization(tx: Transaction, digest: str, credential: StoredCredential, expected: int | None) -> bool:
    one = credential
    mine = (_TAKEN + digest, one.tenant, one.user, one.connection)
    # Locks the row: who forgets the user meanwhile waits, and then finds the credential.
    locked = tx.db.execute(
        f"UPDATE pending_authorization SET expires_at = expires_at WHERE digest = ? AND {_ONE}",  # noqa: S608
        mine,
    )
    if locked.rowcount == 0:
        return False
    if expected is None:
        # Versions begin at the time and only grow: a refresh of an earlier credential that still runs matches none of this one's.
        kept = tx.db.execute(
            "INSERT INTO credential VALUES (?, ?, ?, ?, ?, ?, ?, NULL, 0) ON CONFLICT (tenant, user, connection) DO NOTHING",
            (one.tenant, one.user, one.connection, one.sealed, one.key_id, tx.now, tx.now),
        )
    else:
        kept = tx.db.execute(
            f"""UPDATE credential SET sealed = ?, key_id = ?, version = version + 1, updated_at = ?, refresh_owner = NULL,
                refresh_until = 0 WHERE {_ONE} AND version = ?""",  # noqa: S608
            (one.sealed, one.key_id, tx.now, one.tenant, one.user, one.connection, expected),
        )
    if kept.rowcount == 0:
        return False
    tx.db.execute("DELETE FROM pending_authorization WHERE digest = ?", mine[:1])
    return True


def forget(tx: Transaction, tenant: str, user: str) -> list[StoredCredential]:
    tx.db.execute("DELETE FROM pending_authorization WHERE tenant = ? AND user = ?", (tenant, user))
    rows = tx.db.execute(
        f"DELETE FROM credential WHERE tenant = ? AND user = ? RETURNING {_COLUMNS}",  # noqa: S608
        (tenant, user),
    ).fetchall()
    return [_credential(row) for row in rows]


def _credential(row: tuple[str, str, str, str, str, int, int]) -> StoredCredential:
    tenant, user, connection, sealed, key_id, version, updated_at = row
    return StoredCredential(
        tenant=tenant,
        user=user,
        connection=connection,
        sealed=sealed,
        key_id=key_id,
        version=version,
        updated_at=updated_at,
    )
