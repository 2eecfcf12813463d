"""Tickets: what a client shows on its WebSocket in the place of a key, because a browser cannot send headers with one.

A ticket is made for a session and for the key that asked, lives for half a minute and is used once. It is kept in this process
alone, by its hash.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic

from handrail.server.keys import Key

SECONDS = 30
MAX = 10_000


@dataclass(frozen=True, slots=True)
class Ticket:
    """Whom a ticket lets in, and where."""

    session_id: str
    session_token: str
    key: Key
    expires: float


class Tickets:
    """Those that were given out and not used yet; beyond `MAX` the oldest lapse."""

    __slots__ = ("_clock", "_kept")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: dict[bytes, Ticket] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def give(self, session_id: str, session_token: str, key: Key) -> str:
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest].expires > now and len(self._kept) < MAX:
                break
            del self._kept[oldest]
        secret = secrets.token_urlsafe(32)
        self._kept[_hash(secret)] = Ticket(session_id, session_token, key, now + SECONDS)
        return secret

    def use(self, secret: str, session_id: str) -> Ticket | None:
        """The ticket, if it is one for this session. Shown once, right or wrong, it is gone."""
        ticket = self._kept.pop(_hash(secret), None)
        good = ticket is not None and ticket.session_id == session_id and ticket.expires > self._clock()
        return ticket if good else None


def _hash(secret: str) -> bytes:
    # Looked up by its hash, so the time that it takes says nothing about other tickets.
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
