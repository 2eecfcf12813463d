"""Documents: the statements of `contract.documents`."""

from __future__ import annotations

import orjson

from handrail.contract.documents import Document
from handrail.stores.statements.sessions import is_wiped
from handrail.stores.statements.transaction import Transaction

_COLUMNS = "kind, id, tenant, user, body, expires_at, version"


def get(tx: Transaction, kind: str, id: str) -> Document | None:
    row = tx.db.execute(
        f"SELECT {_COLUMNS} FROM document WHERE kind = ? AND id = ? AND expires_at > ?",  # noqa: S608
        (kind, id, tx.now),
    ).fetchone()
    if row is None:
        return None
    return Document(
        kind=row[0],
        id=row[1],
        tenant=row[2],
        user=row[3],
        body=orjson.loads(row[4]),
        expires_at=row[5],
        version=row[6],
    )


def put(tx: Transaction, document: Document, body: str) -> tuple[bool, Document]:
    prune(tx)
    key = (document.kind, document.id)
    if document.version == 0:
        if is_wiped(tx, document.session):
            return False, document
        done = tx.db.execute(
            f"INSERT INTO document ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, 1) ON CONFLICT (kind, id) DO NOTHING",  # noqa: S608
            (*key, document.tenant, document.user, body, document.expires_at),
        )
    else:
        done = tx.db.execute(
            """UPDATE document SET body = ?, expires_at = ?, version = version + 1
                WHERE kind = ? AND id = ? AND version = ?""",
            (body, document.expires_at, *key, document.version),
        )
    kept = done.rowcount > 0
    return kept, get(tx, *key) or document


def prune(tx: Transaction) -> None:
    tx.db.execute("DELETE FROM document WHERE expires_at <= ?", (tx.now,))


def delete(tx: Transaction, kind: str, id: str) -> None:
    tx.db.execute("DELETE FROM document WHERE kind = ? AND id = ?", (kind, id))
