"""What operators and other processes have set: blocks, switched-off tools, the limits that all processes share; and users that
were forgotten.

When a user is forgotten, what was said to tools and what they answered is wiped. That something ran, and what is unknown, stays.
A session that was wiped has an empty token hash and another connection, so that no process writes back what it still has in
memory. `forgetting.times` tells every process to look which of its sessions those are.
"""

# ruff: noqa: S608 - the only text that is put into SQL is our own

from __future__ import annotations

from collections.abc import Mapping
from hmac import digest

import orjson

from handrail.contract.store import Block, Operating
from handrail.stores.statements.transaction import Transaction

_MINE = "session_id IN (SELECT session_id FROM session WHERE tenant = ? AND user = ?)"
_CALLS = f"({_MINE} OR (tenant = ? AND user = ?))"
"""By their own column as well: calls that were left once are found again after their session was wiped."""
_SETTLED = "state IN ('succeeded', 'failed', 'cancelled')"


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


def forget_user(tx: Transaction, tenant: str, user: str, keep_block: bool = True) -> dict[str, int]:
    """How many sessions, calls and requests were wiped, and how many calls are left because their outcome is open."""
    who = (tenant, user)
    # The keys stay, so that no call runs again; with its digest, nothing more than a hash tells of the arguments.
    calls = tx.db.execute(
        f"""UPDATE ledger SET args = '{{}}', envelope = NULL, evicted = 1, user = NULL
            WHERE {_CALLS} AND {_SETTLED}""",
        (*who, *who),
    ).rowcount
    # One that runs is wiped when it ends.
    tx.db.execute(f"UPDATE ledger SET evicted = 1 WHERE {_CALLS} AND state = 'running'", (*who, *who))
    left = tx.db.execute(f"SELECT count(*) FROM ledger WHERE {_CALLS} AND NOT {_SETTLED}", (*who, *who)).fetchone()[0]
    tx.db.execute(f"DELETE FROM hold_token WHERE hold_id IN (SELECT hold_id FROM hold WHERE {_MINE})", who)
    # Ids come from models, who may put words into them. The sessions have ended, so nobody needs them any more.
    tx.db.execute(f"DELETE FROM alias WHERE {_MINE}", who)
    tx.db.execute("UPDATE hold SET approver = NULL WHERE tenant = ? AND approver = ?", who)
    requests = tx.db.execute(
        f"""UPDATE hold SET args = '{{}}', raw_args = '{{}}', preview = '', user = NULL, alias = NULL, call_id = NULL,
            approver = NULL,
            state = CASE WHEN state IN ('pending', 'approved') THEN 'superseded' ELSE state END WHERE {_MINE}""",
        who,
    ).rowcount
    tx.db.execute(f"DELETE FROM turn_input WHERE {_MINE}", who)
    tx.db.execute(f"DELETE FROM turn_left WHERE {_MINE}", who)
    # Last, because the others find their rows through it. No secret has an empty hash: nobody can come back to it.
    sessions = tx.db.execute(
        """UPDATE session SET user = NULL, token_hash = '', attributes = '{}', state = '{}', counters = '{}', policy = '{}',
           active = 0, pruned = 1, connection = connection + 1 WHERE tenant = ? AND user = ?""",
        who,
    ).rowcount
    tx.db.execute("DELETE FROM audit_subject WHERE tenant = ? AND user = ?", who)
    blocks = tx.db.execute("DELETE FROM block WHERE tenant = ? AND user = ? RETURNING until", who).fetchall()
    if keep_block:
        for (until,) in blocks:
            store_block(tx, Block(tenant=tenant, user=user, until=until))
    # Limits name users by a hash; those that an older version has counted do not.
    old = f"user:{tenant}:{user}:"
    tx.db.execute("DELETE FROM rate WHERE substr(scope, 1, ?) = ?", (len(old), old))
    tx.db.execute("UPDATE forgetting SET times = times + 1")
    return {"sessions": sessions, "calls": calls, "requests": requests, "callsLeft": int(left)}


# Blocks of users that nobody knows any more
def store_block(tx: Transaction, block: Block) -> None:
    tx.db.execute(
        "INSERT INTO forgotten_block VALUES (?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
        (_digest(tx, block.tenant, block.user), block.until),
    )


def revive_block(tx: Transaction, tenant: str, user: str) -> int | None:
    """A user who was forgotten while blocked comes back: the block bears the name again. The time at which it ends."""
    if tx.db.execute("SELECT 1 FROM forgotten_block LIMIT 1").fetchone() is None:
        return None
    row = tx.db.execute(
        "DELETE FROM forgotten_block WHERE digest = ? RETURNING until", (_digest(tx, tenant, user),)
    ).fetchone()
    if row is None or row[0] <= tx.now:
        return None
    tx.db.execute(
        "INSERT INTO block VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
        (tenant, user, row[0]),
    )
    return int(row[0])


def _digest(tx: Transaction, tenant: str, user: str) -> str:
    salt = tx.db.execute("SELECT salt FROM forgetting").fetchone()[0]
    return digest(salt, orjson.dumps([tenant, user]), "sha256").hex()
