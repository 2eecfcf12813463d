"""Claims, finishes and turns that wait together, as one statement of each kind: the whole transaction is one trip to the server.
Only what no precondition refuses goes this way, which is nearly everything; the rest is looked at one by one."""

# ruff: noqa: S608 - what is put into SQL are our own columns

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from handrail.contract.store import Claim, ClaimVerdict, Finish, LedgerRow, TurnStart
from handrail.stores.base import Group
from handrail.stores.postgres.connection import PostgresDatabase
from handrail.stores.postgres.dialect import BEGIN
from handrail.stores.postgres.locking import lock_sessions
from handrail.stores.statements.ledger import OUTCOME, SETTLED, ClaimRequest
from handrail.stores.statements.sessions import TURNS_LEFT, TurnRequest
from handrail.stores.statements.transaction import claimed, locks_of, to_json

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


_TURNS = f"""
    WITH wish AS MATERIALIZED (
        SELECT * FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::text[])
            AS wish (session_id, connection, input_id, left_turn, left_counters)
    ), begun AS MATERIALIZED (
        SELECT wish.*, session.turn + 1 AS next FROM wish JOIN session USING (session_id)
        WHERE session.connection = wish.connection
        AND NOT EXISTS (SELECT 1 FROM turn_input
                        WHERE turn_input.session_id = wish.session_id AND turn_input.input_id = wish.input_id)
    ), kept AS (
        INSERT INTO turn_left SELECT session_id, left_turn, left_counters FROM begun WHERE left_turn IS NOT NULL
        ON CONFLICT (session_id, turn) DO UPDATE SET counters = excluded.counters
    ), known AS (
        INSERT INTO turn_input SELECT session_id, input_id, next FROM begun WHERE input_id IS NOT NULL
    ), too_old AS (
        DELETE FROM turn_left USING begun
        WHERE begun.next > {TURNS_LEFT} AND turn_left.session_id = begun.session_id
        AND turn_left.turn < begun.next - {TURNS_LEFT}
    ), numbered AS (
        UPDATE session SET turn = begun.next, current_turn = begun.next, counters = '{{}}'
        FROM begun WHERE session.session_id = begun.session_id
    )
    SELECT session_id, next FROM begun"""


def commit_group(db: PostgresDatabase, group: Group, now: int) -> list[Any]:
    """Commit those of the group that nothing refuses; the outcome of each request, or None."""
    with db.connection.pipeline():
        # Each statement sees what was committed before it began, so the claims see what was stored before their locks.
        db.connection.execute(BEGIN)
        # All at once and in one order: two processes that lock the same sessions one after the other could wait for each other.
        lock_sessions(db, {name for request in group.requests for name in locks_of(request).sessions})
        answers = _execute(db, group, now)
        db.connection.execute("COMMIT")
    return _outcomes(group, now, *answers)


def carry_out_group(db: PostgresDatabase, group: Group, now: int) -> list[Any]:
    """The same in a transaction that was begun, and has its locks."""
    return _outcomes(group, now, *_execute(db, group, now))


Answer = psycopg.Cursor[Any] | None


def _execute(db: PostgresDatabase, group: Group, now: int) -> tuple[Answer, Answer, Answer]:
    finishes, claims = _columns_of_finishes(group.finishes, now), _columns_of_claims(group.claims, now)
    turns = _columns_of_turns(group.turns)
    return (
        db.connection.execute(_FINISHES, finishes) if finishes else None,
        db.connection.execute(_CLAIMS, claims) if claims else None,
        db.connection.execute(_TURNS, turns) if turns else None,
    )


def _outcomes(group: Group, now: int, finished: Answer, made: Answer, begun: Answer) -> list[Any]:
    # What is missing in an answer was refused; the caller looks at it one by one.
    stored = {key for (key,) in finished or ()}
    free = {key for (key,) in made or ()}
    turns: dict[str, int] = dict(begun.fetchall()) if begun is not None else {}

    def outcome_of(request: Any) -> Any:
        if isinstance(request, ClaimRequest):
            one = request.claim
            return claimed(one, now, ClaimVerdict.CLAIMED, 1, now) if one.key in free else None
        if isinstance(request, TurnRequest):
            turn = turns.get(request.session_id)
            return None if turn is None else TurnStart(turn=turn, known=False)
        return _finished(request.finish, now) if request.finish.key in stored else None

    return [outcome_of(request) for request in group.requests]


def _columns_of_turns(turns: Sequence[TurnRequest]) -> list[list[Any]]:
    rows = []
    for one in turns:
        turn, counters = one.left or (None, None)
        kept = None if counters is None else to_json(counters, '"counters" of a turn')
        rows.append((one.session_id, one.connection, one.input_id, turn, kept))
    return [list(column) for column in zip(*rows, strict=True)]


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
