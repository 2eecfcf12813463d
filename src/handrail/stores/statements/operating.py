"""What operators and other processes have set: blocks, switched-off tools, and the limits that all processes share."""

from __future__ import annotations

from collections.abc import Mapping

from handrail.contract.store import Block, Operating
from handrail.stores.statements.transaction import Transaction


def operating(tx: Transaction) -> Operating:
    blocks = tx.db.execute("SELECT tenant, user, until FROM block WHERE until > ?", (tx.now,))
    return Operating(
        blocks={(tenant, user): until for tenant, user, until in blocks},
        switches=dict(tx.db.execute("SELECT tool, reason FROM switch").fetchall()),
        now=tx.now,
        forgettings=tx.db.execute("SELECT times FROM forgetting").fetchone()[0],
    )


def block(tx: Transaction, block: Block) -> int:
    row = tx.db.execute(
        """INSERT INTO block VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)
           RETURNING until""",
        (block.tenant, block.user, block.until),
    ).fetchone()
    return int(row[0])


def unblock(tx: Transaction, tenant: str, user: str) -> None:
    tx.db.execute("DELETE FROM block WHERE tenant = ? AND user = ?", (tenant, user))


def switch(tx: Transaction, tool: str, off: str | None) -> None:
    if off is None:
        tx.db.execute("DELETE FROM switch WHERE tool = ?", (tool,))
    else:
        tx.db.execute(
            "INSERT INTO switch VALUES (?, ?) ON CONFLICT DO UPDATE SET reason = excluded.reason", (tool, off)
        )


def count_rates(
    tx: Transaction, charges: Mapping[tuple[str, int], int], since: Mapping[str, int]
) -> dict[tuple[str, int], int]:
    totals: dict[tuple[str, int], int] = {}
    for (scope, window_start), added in charges.items():
        row = tx.db.execute(
            "INSERT INTO rate VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET used = used + excluded.used RETURNING used",
            (scope, window_start, added),
        ).fetchone()
        totals[scope, window_start] = int(row[0])
    for scope, start in since.items():
        rows = tx.db.execute("SELECT window_start, used FROM rate WHERE scope = ?", (scope,)).fetchall()
        totals.update({(scope, at): used for at, used in rows if at >= start})
        if any(at < start for at, _ in rows):
            tx.db.execute("DELETE FROM rate WHERE scope = ? AND window_start < ?", (scope, start))
    return totals


def try_writing(tx: Transaction) -> None:
    """No tool has an empty name, and nobody else sees a row that is gone before the commit."""
    switch(tx, "", "")
    switch(tx, "", None)
