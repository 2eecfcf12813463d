"""Forgetting a user: what was said to tools and what they answered is wiped; that something ran, and what is not known, stays."""

# ruff: noqa: S608 - the only text that is put into SQL is our own

from __future__ import annotations

from handrail.stores.statements.transaction import Transaction

_MINE = "session_id IN (SELECT session_id FROM session WHERE tenant = ? AND user = ?)"
_CALLS = f"({_MINE} OR (tenant = ? AND user = ?))"
"""By their own column as well: calls that were left once are found again after their session was wiped."""
_SETTLED = "state IN ('succeeded', 'failed', 'cancelled')"


def forget_user(tx: Transaction, tenant: str, user: str) -> dict[str, int]:
    """How many sessions, calls and requests were wiped, and how many calls are left because their outcome is open."""
    who = (tenant, user)
    calls = tx.db.execute(
        f"""UPDATE ledger SET args = '{{}}', envelope = NULL, evicted = 1, user = NULL
            WHERE {_CALLS} AND {_SETTLED}""",
        (*who, *who),
    ).rowcount
    left = tx.db.execute(f"SELECT count(*) FROM ledger WHERE {_CALLS} AND NOT {_SETTLED}", (*who, *who)).fetchone()[0]
    tx.db.execute(f"DELETE FROM hold_token WHERE hold_id IN (SELECT hold_id FROM hold WHERE {_MINE})", who)
    requests = tx.db.execute(
        f"""UPDATE hold SET args = '{{}}', raw_args = '{{}}', preview = '', user = NULL,
            state = CASE WHEN state IN ('pending', 'approved') THEN 'superseded' ELSE state END WHERE {_MINE}""",
        who,
    ).rowcount
    tx.db.execute(f"DELETE FROM turn_input WHERE {_MINE}", who)
    tx.db.execute(f"DELETE FROM turn_left WHERE {_MINE}", who)
    # Last, because the others find their rows through it. No secret has an empty hash: nobody can come back to it.
    sessions = tx.db.execute(
        """UPDATE session SET user = NULL, token_hash = '', attributes = '{}', state = '{}', counters = '{}',
           active = 0, pruned = 1 WHERE tenant = ? AND user = ?""",
        who,
    ).rowcount
    return {"sessions": sessions, "calls": calls, "requests": requests, "callsLeft": int(left)}
