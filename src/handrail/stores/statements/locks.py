"""What a request must have for itself, from before its first look until its commit: it decides by what it reads, and nobody may
change that before it has written. SQLite gives each writer the whole file, so it needs none of this; PostgreSQL takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from handrail.stores.statements.transaction import Transaction

T = TypeVar("T")
Request = Callable[[Transaction], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    sessions: Sequence[str] = ()
    """These sessions, with everything that belongs to them: turns, calls, ids, held calls, counters."""
    sessions_of_calls: Sequence[str] = ()
    """The sessions of these calls, by their keys in the ledger."""
    sessions_of_holds: Sequence[str] = ()
    """The sessions of these held calls."""
    every_session: bool = False
    """All there are, and nobody makes another meanwhile. For what is rare: everybody else who writes waits."""
    names: Sequence[str] = ()
    """What is not about sessions: a limit, the chains of the audit log."""


NO_LOCKS = Locks()
AUDIT = Locks(names=("audit",))


@dataclass(frozen=True, slots=True)
class LockedRequest(Generic[T]):
    """A request, and what it must have for itself."""

    request: Request[T]
    locks: Locks

    def __call__(self, tx: Transaction) -> T:
        return self.request(tx)


def locks_of(request: Request[Any]) -> Locks:
    """What the request has declared; nothing, if it has not."""
    declared: Locks = getattr(request, "locks", NO_LOCKS)
    return declared
