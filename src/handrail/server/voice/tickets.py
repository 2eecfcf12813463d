"""Tickets: what a client shows on its WebSocket in the place of a key, because a browser cannot send headers with one.

A ticket is made for a session and for the key that asked, lives for half a minute and is used once, at any process of the server.
The store keeps its hash, and the session's secret in a form that only the ticket opens.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import sha256

from handrail.contract.server_requests import RequestStore, StoredTicket
from handrail.server.host.sealed_tokens import seal, unseal
from handrail.server.key_ring import Key, KeyRing, from_ticket, to_ticket

SECONDS = 30
_LONGEST = 512


@dataclass(frozen=True, slots=True)
class Ticket:
    """Whom a ticket lets in, and where."""

    session_id: str
    session_token: str
    key: Key


async def give(store: RequestStore, session_id: str, session_token: str, key: Key) -> str:
    secret = secrets.token_urlsafe(32)
    kept = StoredTicket(
        digest=_digest(secret),
        session_id=session_id,
        sealed=seal(secret, session_id, session_token),
        key=to_ticket(key),
    )
    await store.give_ticket(kept, lives_for=SECONDS * 1_000)
    return secret


async def use(store: RequestStore, keys: KeyRing, secret: str, session_id: str) -> Ticket | None:
    """The ticket, if it is one for this session and its key is accepted. Shown once, right or wrong, it is gone."""
    if len(secret) > _LONGEST:
        return None
    found = await store.use_ticket(_digest(secret))
    await keys.catch_up()
    key = from_ticket(keys, found.key) if found is not None else None
    if found is None or key is None or found.session_id != session_id:
        return None
    return Ticket(session_id, unseal(secret, session_id, found.sealed), key)


def _digest(secret: str) -> str:
    # Looked up by its hash, so the time that it takes says nothing about other tickets.
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
