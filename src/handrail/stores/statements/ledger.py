"""The ledger after the claim: outcomes, leases, and what became of the calls of dead owners."""

# ruff: noqa: S608 - the only names that are put into SQL are those of our own columns

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handrail.contract.errors import UsageError
from handrail.contract.store import Finish, LedgerRow, LedgerState
from handrail.stores.owners import Life
from handrail.stores.statements import forgetting, operating
from handrail.stores.statements.transaction import LEDGER_COLUMNS, Transaction, ledger_row, to_json

OUTCOME = """envelope = iif(evicted, NULL, {}), args = iif(evicted, '{{}}', args), user = iif(evicted, NULL, user)"""
"""What is stored with an outcome. A call whose user was forgotten while it ran keeps nothing of what was said."""
SETTLED = (LedgerState.SUCCEEDED, LedgerState.FAILED, LedgerState.CANCELLED)


def stored_row(tx: Transaction, key: str) -> LedgerRow | None:
    row = tx.db.execute(f"SELECT {LEDGER_COLUMNS} FROM ledger WHERE key = ?", (key,)).fetchone()
    return ledger_row(row) if row else None


def is_abandoned(tx: Transaction, row: LedgerRow) -> bool:
    """Whether nobody runs it any more. The lease counts only where it is not known what became of the owner: the clock may
    have been set forward or back."""
    if row.state is not LedgerState.RUNNING:
        return False
    life = tx.life(tx.db, row.owner)
    return life is Life.DIED or (life is Life.ENDED and row.lease_until < tx.now)


def becomes_unknown(tx: Transaction, row: LedgerRow) -> bool:
    return row.effects == "unsafe" and is_abandoned(tx, row)


def fresh_row(tx: Transaction, key: str) -> LedgerRow | None:
    """The row; an unsafe one that its owner has abandoned is made unknown first."""
    row = stored_row(tx, key)
    return make_unknown(tx, row) if row is not None and becomes_unknown(tx, row) else row


def make_unknown(tx: Transaction, row: LedgerRow) -> LedgerRow:
    tx.db.execute(
        "UPDATE ledger SET state = 'unknown' WHERE key = ? AND fence = ? AND state = 'running'", (row.key, row.fence)
    )
    return row._replace(state=LedgerState.UNKNOWN)


def unknown_like(tx: Transaction, session_id: str, turn: int, tool: str, args_digest: str) -> LedgerRow | None:
    """The unknown outcome of the same call in this turn, whatever its ordinal."""
    rows = tx.db.execute(
        f"""SELECT {LEDGER_COLUMNS} FROM ledger WHERE session_id = ? AND turn = ? AND tool = ? AND args_digest = ?
            AND state IN ('running', 'unknown') ORDER BY ordinal""",
        (session_id, turn, tool, args_digest),
    ).fetchall()
    for row in map(ledger_row, rows):
        if row.state is LedgerState.UNKNOWN:
            return row
        if becomes_unknown(tx, row):
            return make_unknown(tx, row)
    return None


def ledger_rows(tx: Transaction, state: LedgerState | None, limit: int) -> list[LedgerRow]:
    overdue = tx.db.execute(
        f"""SELECT {LEDGER_COLUMNS} FROM ledger INDEXED BY ledger_open
            WHERE state IN ('running', 'unknown') AND state = 'running' AND effects = 'unsafe'"""
    ).fetchall()
    for row in map(ledger_row, overdue):
        if becomes_unknown(tx, row):
            make_unknown(tx, row)
    rows = tx.db.execute(
        f"""SELECT {LEDGER_COLUMNS} FROM ledger WHERE :state IS NULL OR state = :state
            ORDER BY rowid DESC LIMIT :limit""",
        {"state": state, "limit": limit},
    ).fetchall()
    return [ledger_row(row) for row in rows]


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """An outcome as the store's writer is asked to keep it: alone by calling it, or together with others by its value."""

    finish: Finish

    def __call__(self, tx: Transaction) -> LedgerRow:
        return finish(tx, self.finish)


def finish(tx: Transaction, finish: Finish) -> LedgerRow:
    if finish.state is LedgerState.RUNNING:
        raise UsageError('A call cannot be finished as "running"; say what became of it.')
    settled_at = tx.now if finish.state in SETTLED else None
    # Also from unknown: the first owner, taken for dead, knows best what it did. A lower fence was taken over.
    changed = tx.db.execute(
        f"""UPDATE ledger SET state = ?, {OUTCOME.format("?")}, finished_at = ?
            WHERE key = ? AND fence = ? AND state IN ('running', 'unknown') RETURNING {LEDGER_COLUMNS}""",
        (finish.state, finish.envelope, settled_at, finish.key, finish.fence),
    ).fetchone()
    if changed is None:
        return _stored_outcome(tx, finish.key)
    row = ledger_row(changed)
    if finish.block is not None:
        if row.evicted:
            forgetting.store_block(tx, finish.block)
        else:
            operating.block(tx, finish.block)
    if finish.session_state is not None:
        tx.db.execute(
            """UPDATE session SET state = :state
               WHERE session_id = :session_id AND (:connection IS NULL OR connection = :connection)""",
            {
                "state": to_json(finish.session_state, '"state" of a session'),
                "session_id": row.session_id,
                "connection": finish.connection,
            },
        )
    return row


def renew(tx: Transaction, claims: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
    lost: list[str] = []
    for key, fence in claims:
        renewed = tx.db.execute(
            "UPDATE ledger SET lease_until = ? WHERE key = ? AND fence = ? AND state = 'running'",
            (tx.now + lease_ms, key, fence),
        )
        if not renewed.rowcount:
            lost.append(key)
    return lost


def settle(tx: Transaction, key: str, state: LedgerState, envelope: str) -> LedgerRow | None:
    if state not in SETTLED:
        raise UsageError(f'An unknown outcome is settled as {", ".join(SETTLED)}; not as "{state}".')
    row = fresh_row(tx, key)
    if row is None or row.state is not LedgerState.UNKNOWN:
        return None
    tx.db.execute(
        f"UPDATE ledger SET state = ?, {OUTCOME.format('?')}, finished_at = ? WHERE key = ?",
        (state, envelope, tx.now, key),
    )
    return stored_row(tx, key)


def _stored_outcome(tx: Transaction, key: str) -> LedgerRow:
    row = stored_row(tx, key)
    if row is None:
        raise UsageError(f'The ledger has no call "{key}" that could be finished.')
    return row
