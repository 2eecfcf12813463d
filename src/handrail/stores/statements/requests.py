"""Tickets and requests of a server's clients: the statements of `contract.server_requests`."""

from __future__ import annotations

from handrail.contract.server_requests import RequestClaim, StoredTicket
from handrail.stores.statements.sessions import is_wiped
from handrail.stores.statements.transaction import Transaction


def give_ticket(tx: Transaction, ticket: StoredTicket, lives_for: int) -> None:
    prune(tx)
    if is_wiped(tx, ticket.session_id):
        return
    tx.db.execute(
        "INSERT INTO voice_ticket VALUES (?, ?, ?, ?, ?)",
        (ticket.digest, ticket.session_id, ticket.sealed, ticket.key, tx.now + lives_for),
    )


def prune(tx: Transaction) -> None:
    """A ticket that nobody used: what it keeps of a signed token names its user."""
    tx.db.execute("DELETE FROM voice_ticket WHERE expires_at <= ?", (tx.now,))


def use_ticket(tx: Transaction, digest: str) -> StoredTicket | None:
    row = tx.db.execute(
        "DELETE FROM voice_ticket WHERE digest = ? RETURNING session_id, sealed, key, expires_at", (digest,)
    ).fetchone()
    if row is None or row[3] <= tx.now:
        return None
    return StoredTicket(digest=digest, session_id=row[0], sealed=row[1], key=row[2])


def claim(tx: Transaction, digest: str, owner: str, kept_for: int) -> RequestClaim:
    tx.db.execute("DELETE FROM idempotent_request WHERE made_at < ?", (tx.now - kept_for,))
    new = tx.db.execute(
        "INSERT INTO idempotent_request VALUES (?, ?, NULL, '', ?) ON CONFLICT (digest) DO NOTHING",
        (digest, owner, tx.now),
    )
    if new.rowcount:
        return RequestClaim(ours=True)
    row = tx.db.execute(
        "SELECT owner, session_id, sealed FROM idempotent_request WHERE digest = ?", (digest,)
    ).fetchone()
    if row is None:  # another process has let it go between the two
        return RequestClaim()
    maker, session_id, sealed = row
    if session_id is not None:
        return RequestClaim(session_id=session_id, sealed=sealed)
    if maker != owner and tx.alive(maker):
        return RequestClaim()
    taken = tx.db.execute(
        "UPDATE idempotent_request SET owner = ? WHERE digest = ? AND owner = ? AND session_id IS NULL",
        (owner, digest, maker),
    )
    return RequestClaim(ours=taken.rowcount > 0)


def answer(tx: Transaction, digest: str, owner: str, made_session: str, sealed: str) -> None:
    tx.db.execute(
        """INSERT INTO idempotent_request VALUES (?, ?, ?, ?, ?)
           ON CONFLICT (digest) DO UPDATE SET owner = excluded.owner, session_id = excluded.session_id,
           sealed = excluded.sealed""",
        (digest, owner, made_session, sealed, tx.now),
    )


def release(tx: Transaction, digest: str, owner: str) -> None:
    tx.db.execute(
        "DELETE FROM idempotent_request WHERE digest = ? AND owner = ? AND session_id IS NULL", (digest, owner)
    )
