"""What every statement is given, and how rows become the values of the port and back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson

from handrail.contract.errors import UsageError
from handrail.contract.store import (
    Alias,
    Claim,
    ClaimResult,
    ClaimVerdict,
    Hold,
    HoldState,
    LedgerRow,
    LedgerState,
    SessionRecord,
)
from handrail.stores.owners import Life

Clock = Callable[[], int]
"""Milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that has begun: its connection, its moment, and who lives."""

    db: sqlite3.Connection
    now: int
    life: Callable[[sqlite3.Connection, str], Life]

    def alive(self, owner: str) -> bool:
        return self.life(self.db, owner) is Life.ALIVE


# Columns are named as the fields are, so that the one list is both the SELECT and the way back.
LEDGER_FIELDS = LedgerRow._fields
HOLD_FIELDS = tuple(field.name for field in fields(Hold))
SESSION_FIELDS = tuple(field.name for field in fields(SessionRecord))
LEDGER_COLUMNS = ", ".join(LEDGER_FIELDS)
HOLD_COLUMNS = ", ".join(HOLD_FIELDS)
SESSION_COLUMNS = ", ".join(SESSION_FIELDS)


def to_json(value: Mapping[str, Any], what: str) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise UsageError(f"The {what} cannot be stored as JSON ({error}).") from None


def ledger_row(row: Sequence[Any]) -> LedgerRow:
    found = LedgerRow._make(row)
    return found._replace(state=LedgerState(found.state), evicted=bool(found.evicted))


def hold_of(row: Sequence[Any]) -> Hold:
    values = dict(zip(HOLD_FIELDS, row, strict=True))
    values["state"] = HoldState(values["state"])
    values["repaired"] = bool(values["repaired"])
    values["alias"] = Alias(**orjson.loads(values["alias"])) if values["alias"] else None
    return Hold(**values)


def hold_values(hold: Hold) -> list[Any]:
    values = {name: getattr(hold, name) for name in HOLD_FIELDS}
    values["alias"] = to_json(asdict(hold.alias), "alias") if hold.alias else None
    return [values[name] for name in HOLD_FIELDS]


def session_of(row: Sequence[Any]) -> SessionRecord:
    values = dict(zip(SESSION_FIELDS, row, strict=True))
    values["active"] = bool(values["active"])
    for name in ("attributes", "state", "counters", "policy"):
        values[name] = orjson.loads(values[name])
    return SessionRecord(**values)


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
