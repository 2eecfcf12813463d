"""The processes of owners: what is known of an owner beside its lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from handrail.stores.processes import Process
from handrail.stores.statements.transaction import Transaction


def register(tx: Transaction, owner: str, process: Process) -> list[str]:
    """Write down that `owner` is this process, and forget others that are over; whom calls still depend on."""
    tx.db.execute("INSERT OR REPLACE INTO owner VALUES (?, ?, ?, ?, ?)", (owner, *process))
    rows = tx.db.execute(
        """SELECT DISTINCT owner FROM ledger INDEXED BY ledger_open
           WHERE state IN ('running', 'unknown') AND state = 'running'"""
    )
    depended_on = {row[0] for row in rows}
    known = [row[0] for row in tx.db.execute("SELECT owner FROM owner")]
    over = [name for name in known if name not in depended_on and not tx.alive(name)]
    release(tx, over)
    return sorted(depended_on)


def release(tx: Transaction, names: Sequence[str]) -> None:
    """These end in order, or are over."""
    tx.db.executemany("DELETE FROM owner WHERE owner = ?", [(name,) for name in names])


def process_of(db: sqlite3.Connection, owner: str) -> Process | None:
    row = db.execute("SELECT boot, namespace, pid, started FROM owner WHERE owner = ?", (owner,)).fetchone()
    return Process._make(row) if row else None
