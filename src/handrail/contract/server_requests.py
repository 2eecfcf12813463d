"""What a client may bring to another process of a server than gave it: tickets for voice, and requests that come again.

Secrets are kept sealed with what only the client has, and found by a hash of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTicket:
    """Whom a ticket lets in, and where."""

    digest: str
    """The hash of the ticket."""
    session_id: str
    sealed: str
    """The session's secret, readable only with the ticket."""
    key: str
    """The hash of the key that asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClaim:
    """What is known of a request that names no session. Neither: another process makes a session for it at this moment."""

    ours: bool = False
    """Whoever asks makes the session now."""
    session_id: str | None = None
    sealed: str = ""
    """The secret of the session that was made for it, readable only with the key that the request came with."""


class RequestStore(Protocol):
    """Tickets and requests in a store. Times are milliseconds."""

    async def give_ticket(self, ticket: StoredTicket, *, lives_for: int) -> None: ...
    async def use_ticket(self, digest: str) -> StoredTicket | None:
        """The ticket, once; None if there is none, or its time is over."""
        ...

    async def claim(self, digest: str, *, owner: str, kept_for: int) -> RequestClaim:
        """Which session was made for a request; or that `owner` makes it now, also in the place of a process that has ended."""
        ...

    async def answer(self, digest: str, *, owner: str, session_id: str, sealed: str) -> None:
        """Keep the session that was made for a request."""
        ...

    async def release(self, digest: str, *, owner: str) -> None:
        """No session could be made for it."""
        ...
