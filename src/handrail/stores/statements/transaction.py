"""What every statement is given, what it must have for itself, and how rows become the values of the port and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

import orjson

from handrail.contract.errors import UsageError
from handrail.contract.store import Claim, ClaimResult, ClaimVerdict, LedgerRow, LedgerState

Clock = Callable[[], int]
"""Milliseconds since 1970."""


class Life(Enum):
    ALIVE = "alive"
    ENDED = "ended"
    """In order, or it was never heard of. Something it began may still run, so its leases count."""
    DIED = "died"
    """Nothing of it runs any more, whatever its leases say."""


class Rows(Protocol):
    """What a statement found, or how many rows it changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def close(self) -> None: ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection to the database, in a transaction that was begun. Statements are written so that SQLite and PostgreSQL both
    understand them, but for a few words that the PostgreSQL store translates."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ..., /) -> Rows: ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object: ...


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that has begun: its connection, its moment, and who lives."""

    db: Database
    now: int
    life: Callable[[Database, str], Life]

    def alive(self, owner: str) -> bool:
        return self.life(self.db, owner) is Life.ALIVE


T = TypeVar("T")
Request = Callable[[Transaction], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    """What a request must have for itself, from before its first look until its commit: it decides by what it reads, and nobody
    may change that before it has written. SQLite gives each writer the whole file, so it needs none of this; PostgreSQL takes
    them."""

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


# Columns are named as the fields are, so that the one list is both the SELECT and the way back.
LEDGER_FIELDS = LedgerRow._fields
LEDGER_COLUMNS = ", ".join(LEDGER_FIELDS)


def to_json(value: Mapping[str, Any], what: str) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise UsageError(f"The {what} cannot be stored as JSON ({error}).") from None


def ledger_row(row: Sequence[Any]) -> LedgerRow:
    found = LedgerRow._make(row)
    return found._replace(state=LedgerState(found.state), evicted=bool(found.evicted))


def claimed(claim: Claim, now: int, verdict: ClaimVerdict, fence: int, created_at: int) -> ClaimResult:
    """The answer to whoever may run the call: the row as the claim has made it."""
    row = LedgerRow(
        key=claim.key,
        tenant=claim.tenant,
        session_id=claim.session_id,
        user=claim.user,
        turn=claim.turn,
        ordinal=claim.ordinal,
        tool=claim.tool,
        tool_hash=claim.tool_hash,
        registry_version=claim.registry_version,
        args_digest=claim.args_digest,
        args=claim.args,
        effects=claim.effects,
        state=LedgerState.RUNNING,
        fence=fence,
        owner=claim.owner,
        lease_until=now + claim.lease_ms,
        created_at=created_at,
        finished_at=None,
        envelope=None,
        evicted=False,
        hold_id=claim.hold_id,
    )
    return ClaimResult(verdict=verdict, fence=fence, row=row)
