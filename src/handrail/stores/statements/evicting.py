"""What is deleted: old calls and sessions, to give their room back, and everything that users have said who are forgotten.

Room is given back a little at a time: calls in the order in which they ended, then sessions, then limits and blocks. How many
rows are *looked at* is bounded, not how many are dropped: what has to stay for ever, such as the calls of sessions that nobody
closed, would otherwise be walked over in every batch, while everybody else waits for the writer. So is how large the results are
at which it looks: freeing the space used by a long one takes as long as freeing that of hundreds of short ones.

When a user is forgotten, what was said to tools and what they answered is wiped. That something ran, and what is unknown, stays.
A session that was wiped has an empty token hash and another connection, so that no process writes back what it still has in
memory. `forgetting.times` tells every process to look which of its sessions those are.
"""

# ruff: noqa: S608 - the only names that are put into SQL are those of our own tables

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from handrail.contract.store import Block, Evicted
from handrail.stores.statements import credentials, documents, requests
from handrail.stores.statements.sessions import store_block
from handrail.stores.statements.transaction import Transaction

_MINE = "session_id IN (SELECT session_id FROM session WHERE tenant = ? AND user = ?)"
_CALLS = f"({_MINE} OR (tenant = ? AND user = ?))"
"""By their own column as well: calls that were left once are found again after their session was wiped."""
_SETTLED = "state IN ('succeeded', 'failed', 'cancelled')"
_LISTED = "IN (SELECT value FROM json_each(?))"
"""One JSON value, because the number of parameters of a statement is limited."""
_YEAR_MS = 366 * 86_400_000
MAX_BATCH_BYTES = 1_000_000
"""Of results in a batch; the one that passes it is the last."""


class _Batch(NamedTuple):
    bodies_before: int
    rows_before: int
    batch_size: int
    after: list[Any] | None
    """The last row that was looked at, as the phase itself has told it."""


class _Looked(NamedTuple):
    after: list[Any] | None = None
    """The last row that was looked at; None if there are no more."""
    results: int = 0
    rows: int = 0


def evict(
    tx: Transaction, bodies_before: int, rows_before: int, batch_size: int, left_at: str | None = None
) -> Evicted:
    begun, after = orjson.loads(left_at) if left_at is not None else (0, None)
    results = rows = 0
    for number, phase in enumerate(_PHASES[begun:], begun):
        looked = phase(tx, _Batch(bodies_before, rows_before, batch_size, after))
        results, rows, after = results + looked.results, rows + looked.rows, None
        if looked.after is not None:
            return Evicted(results, rows, orjson.dumps([number, looked.after]).decode())
    return Evicted(results, rows, None)


def _calls(tx: Transaction, batch: _Batch) -> _Looked:
    # `finished_at` is set for settled rows only, which keeps running and unknown ones out.
    after, after_rowid = batch.after or (0, 0)
    rows = tx.db.execute(
        """SELECT ledger.rowid, key, finished_at, evicted, session_id, active, ifnull(length(CAST(envelope AS BLOB)), 0)
           FROM ledger JOIN session USING (session_id)
           WHERE finished_at >= :after AND (finished_at > :after OR ledger.rowid > :after_rowid) AND finished_at < :before
           ORDER BY finished_at, ledger.rowid LIMIT :limit""",
        {
            "after": after,
            "after_rowid": after_rowid,
            "before": max(batch.bodies_before, batch.rows_before),
            "limit": batch.batch_size,
        },
    )
    seen, size = [], 0
    while size < MAX_BATCH_BYTES and (row := rows.fetchone()) is not None:
        seen.append(row)
        size += row[-1]
    # Before the table is changed that the cursor reads from.
    rows.close()
    doomed, bodies = [], []
    for _, key, finished_at, evicted, session_id, active, _ in seen:
        if finished_at < batch.rows_before and not active:
            doomed.append((key, session_id))
        elif finished_at < batch.bodies_before and not evicted:
            bodies.append(key)
    keys, sessions = _json(key for key, _ in doomed), _json(session_id for _, session_id in doomed)
    # First: a session that has lost a call must never wake again, because it could run that call anew.
    tx.db.execute(f"UPDATE session SET pruned = 1 WHERE session_id {_LISTED}", (sessions,))
    tx.db.execute(f"DELETE FROM alias WHERE session_id {_LISTED} AND ledger_key {_LISTED}", (sessions, keys))
    tx.db.execute(f"DELETE FROM ledger WHERE key {_LISTED}", (keys,))
    tx.db.execute(f"UPDATE ledger SET envelope = NULL, evicted = 1 WHERE key {_LISTED}", (_json(bodies),))
    after = [seen[-1][2], seen[-1][0]] if len(seen) == batch.batch_size or size >= MAX_BATCH_BYTES else None
    return _Looked(after, len(bodies), len(doomed))


def _sessions(tx: Transaction, batch: _Batch) -> _Looked:
    """What nobody can refer to any more: requests and turns of closed sessions."""
    seen = tx.db.execute(
        "SELECT rowid, session_id, active, saved_at, pruned FROM session WHERE rowid > ? ORDER BY rowid LIMIT ?",
        (*(batch.after or (0,)), batch.batch_size),
    ).fetchall()
    closed = [row for row in seen if not row[2]]
    emptied = tx.db.execute(
        f"DELETE FROM hold WHERE session_id {_LISTED} AND expires_at < ? RETURNING session_id",
        (_json(row[1] for row in closed), batch.rows_before),
    ).fetchall()
    lost = {session_id for (session_id,) in emptied}
    over = _json(row[1] for row in closed if row[3] < batch.rows_before or row[4] or row[1] in lost)
    for table in ("turn_left", "turn_input"):
        gone = tx.db.execute(f"DELETE FROM {table} WHERE session_id {_LISTED} RETURNING session_id", (over,)).fetchall()
        lost.update(session_id for (session_id,) in gone)
    tx.db.execute(f"UPDATE session SET pruned = 1 WHERE session_id {_LISTED}", (_json(lost),))
    return _Looked([seen[-1][0]] if len(seen) == batch.batch_size else None)


def _limits(tx: Transaction, batch: _Batch) -> _Looked:
    """Windows that are over, which is known of those that another has followed; or nobody has called for a year. Blocks too."""
    seen = tx.db.execute(
        "SELECT scope, window_start FROM rate WHERE (scope, window_start) > (?, ?) ORDER BY scope, window_start LIMIT ?",
        (*(batch.after or ("", 0)), batch.batch_size + 1),
    ).fetchall()
    over = [
        window
        for window, following in pairwise([*seen, (None, 0)])
        if window[1] < batch.rows_before and (window[0] == following[0] or window[1] < tx.now - _YEAR_MS)
    ]
    tx.db.executemany("DELETE FROM rate WHERE scope = ? AND window_start = ?", over)
    if len(seen) > batch.batch_size:
        return _Looked(list(seen[-2]))
    for table in ("block", "forgotten_block"):
        tx.db.execute(f"DELETE FROM {table} WHERE until < ?", (min(batch.rows_before, tx.now),))
    documents.prune(tx)
    requests.prune(tx)
    return _Looked()


def _json(values: Iterable[int | str]) -> str:
    return orjson.dumps(list(values)).decode()


_PHASES = (_calls, _sessions, _limits)


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
    tx.db.execute("UPDATE hold SET approver = NULL, approved_via = NULL WHERE tenant = ? AND approver = ?", who)
    requests = tx.db.execute(
        f"""UPDATE hold SET args = '{{}}', raw_args = '{{}}', preview = '', user = NULL, alias = NULL, call_id = NULL,
            approver = NULL, approved_via = NULL,
            state = CASE WHEN state IN ('pending', 'approved') THEN 'superseded' ELSE state END WHERE {_MINE}""",
        who,
    ).rowcount
    tx.db.execute(f"DELETE FROM turn_input WHERE {_MINE}", who)
    tx.db.execute("DELETE FROM document WHERE tenant = ? AND user = ?", who)
    tx.db.execute(f"DELETE FROM turn_left WHERE {_MINE}", who)
    tx.db.execute(f"DELETE FROM voice_ticket WHERE {_MINE}", who)
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
    credentials.forget(tx, tenant, user)
    tx.db.execute("UPDATE forgetting SET times = times + 1")
    return {"sessions": sessions, "calls": calls, "requests": requests, "callsLeft": int(left)}
