"""Claims and finishes that wait together, as one statement of each kind: the whole transaction is one trip to the server. Only
what no precondition refuses goes this way, which is nearly everything; the rest is looked at one by one."""

# ruff: noqa: S608 - what is put into SQL are our own columns

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handrail.contract.store import Claim, ClaimVerdict, Finish, LedgerRow
from handrail.stores.base import Group
from handrail.stores.postgres.connection import PostgresDatabase
from handrail.stores.postgres.dialect import BEGIN
from handrail.stores.postgres.locking import lock_sessions
from handrail.stores.statements.ledger import OUTCOME, SETTLED
from handrail.stores.statements.transaction import claimed, to_json

_LEDGER = {
    "key": "text", "tenant": "text", "session_id": "text", "user": "text", "turn": "bigint", "ordinal": "bigint",
    "tool": "text", "tool_hash": "text", "registry_version": "text", "args_digest": "text", "args": "text",
    "effects": "text", "owner": "text", "claim_id": "text", "lease_until": "bigint", "created_at": "bigint",
}  # fmt: skip
_WISH = {
    **_LEDGER, "connection": "bigint", "counters": "text", "call_id": "text", "call_tool": "text", "raw_digest": "text",
    "hold_id": "text",
}  # fmt: skip
_CLAIMS = f"""
    WITH wish AS MATERIALIZED (
        SELECT * FROM unnest({", ".join(f"%s::{kind}[]" for kind in _WISH.values())})
        WITH ORDINALITY AS wish ({", ".join(_WISH)}, place)
    ), free AS MATERIALIZED (
        SELECT wish.* FROM wish JOIN session USING (session_id)
        WHERE session.active <> 0 AND session.connection = wish.connection
        AND NOT EXISTS (SELECT 1 FROM ledger WHERE ledger.key = wish.key)
        AND NOT EXISTS (SELECT 1 FROM ledger WHERE ledger.session_id = wish.session_id AND ledger.turn = wish.turn
                        AND ledger.tool = wish.tool AND ledger.args_digest = wish.args_digest
                        AND ledger.state IN ('running', 'unknown'))
        AND NOT EXISTS (SELECT 1 FROM alias WHERE alias.session_id = wish.session_id AND alias.call_id = wish.call_id)
        AND NOT EXISTS (SELECT 1 FROM switch WHERE switch.tool = wish.tool)
        AND NOT EXISTS (SELECT 1 FROM block WHERE block.tenant = wish.tenant AND block.user = wish.user
                        AND block.until > wish.created_at)
    ), claimed AS (
        INSERT INTO ledger ({", ".join(_LEDGER)}, state, fence)
        SELECT {", ".join(_LEDGER)}, 'running', 1 FROM free
    ), named AS (
        INSERT INTO alias SELECT session_id, call_id, call_tool, raw_digest, key, hold_id FROM free
        WHERE call_id IS NOT NULL
    ), counted AS (
        UPDATE session SET counters = newest.counters
        FROM (SELECT DISTINCT ON (session_id) session_id, counters FROM free WHERE counters IS NOT NULL
              ORDER BY session_id, place DESC) AS newest
        WHERE session.session_id = newest.session_id
    )
    SELECT key FROM free""".replace("user", '"user"')
_FINISHES = f"""
    UPDATE ledger SET state = done.state, {OUTCOME.format("done.envelope").replace("user", '"user"')},
        finished_at = done.finished_at
    FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[], %s::bigint[])
        AS done (key, fence, state, envelope, finished_at)
    WHERE ledger.key = done.key AND ledger.fence = done.fence AND ledger.state IN ('running', 'unknown')
    RETURNING ledger.key"""


def carry_out_group(db: PostgresDatabase, group: Group, now: int) -> dict[str, Any]:
    """Commit those of the group that nothing refuses; their answers, by key."""
    done = dict[str, Any]()
    wishes, ends = _columns_of_claims(group.claims, now), _columns_of_finishes(group.finishes, now)
    names = {claim.session_id for claim in group.claims}
    names |= {end.claimed.session_id for end in group.finishes if end.claimed is not None}
    with db.connection.pipeline():
        # Each statement sees what was committed before it began, so the claims see what was stored before their locks.
        db.connection.execute(BEGIN)
        lock_sessions(db, names)
        finished = db.connection.execute(_FINISHES, ends) if ends else None
        made = db.connection.execute(_CLAIMS, wishes) if wishes else None
        db.connection.execute("COMMIT")
    if finished is not None:
        stored = {key for (key,) in finished}
        done |= {one.key: _finished(one, now) for one in group.finishes if one.key in stored}
    if made is not None:
        free = {key for (key,) in made}
        done |= {one.key: claimed(one, now, ClaimVerdict.CLAIMED, 1, now) for one in group.claims if one.key in free}
    return done


def _columns_of_claims(claims: Sequence[Claim], now: int) -> list[list[Any]]:
    rows = []
    for one in claims:
        counters = None if one.counters is None else to_json(one.counters, '"counters" of a claim')
        alias = one.alias
        named = (None,) * 4 if alias is None else (alias.call_id, alias.tool, alias.raw_digest, alias.hold_id)
        rows.append(
            (
                *(one.key, one.tenant, one.session_id, one.user, one.turn, one.ordinal, one.tool, one.tool_hash),
                *(one.registry_version, one.args_digest, one.args, one.effects, one.owner, one.claim_id),
                *(now + one.lease_ms, now, one.connection, counters, *named),
            )
        )
    return [list(column) for column in zip(*rows, strict=True)]


def _columns_of_finishes(finishes: Sequence[Finish], now: int) -> list[list[Any]]:
    rows = [
        (one.key, one.fence, one.state.value, one.envelope, now if one.state in SETTLED else None) for one in finishes
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _finished(one: Finish, now: int) -> LedgerRow | None:
    settled_at = now if one.state in SETTLED else None
    return one.claimed and one.claimed._replace(state=one.state, envelope=one.envelope, finished_at=settled_at)
