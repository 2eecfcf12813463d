"""Claims, finishes and turns that wait together, as one statement of each kind: the whole transaction is one trip to the server.
Only what no precondition refuses goes this way, which is nearly everything; the rest is looked at one by one."""

# ruff: noqa: S608 - what is put into SQL are our own columns

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handrail.contract.store import Claim, ClaimVerdict, Finish, LedgerRow, TurnStart
from handrail.stores.base import Group
from handrail.stores.postgres.connection import PostgresDatabase
from handrail.stores.postgres.locking import LOCK_SESSIONS
from handrail.stores.postgres.prepared import BEGIN, COMMIT, BoundStatement, PreparedStatement, run_pipeline
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


def _recordset(name: str, columns: Mapping[str, str]) -> str:
    """The rows of a document as a table; columns are the names that the documents have."""
    typed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    # PostgreSQL expects a hundred rows of this function, for which it would rather read the whole of a table that is small when
    # the plan is made, and still do so when it is large. Behind a limit that it cannot foresee it expects a tenth: after two of
    # them one row, which it looks for by its key.
    rows = f"SELECT * FROM json_to_recordset(%s::json) AS given ({typed}) LIMIT (SELECT 1000000)"
    return f"(SELECT * FROM ({rows}) AS expected LIMIT (SELECT 1000000)) AS {name}"


# With OFFSET 0 each NOT EXISTS is looked up row by row, by its index: PostgreSQL does not make a join of it.
_CLAIMS = PreparedStatement(
    "claims",
    f"""
    WITH wish AS MATERIALIZED (
        SELECT * FROM {_recordset("wish", {**_WISH, "place": "bigint"})}
    ), free AS MATERIALIZED (
        SELECT wish.* FROM wish JOIN session USING (session_id)
        WHERE session.active <> 0 AND session.connection = wish.connection
        AND NOT EXISTS (SELECT 1 FROM ledger WHERE ledger.key = wish.key OFFSET 0)
        AND NOT EXISTS (SELECT 1 FROM ledger WHERE ledger.session_id = wish.session_id AND ledger.turn = wish.turn
                        AND ledger.tool = wish.tool AND ledger.args_digest = wish.args_digest
                        AND ledger.state IN ('running', 'unknown') OFFSET 0)
        AND NOT EXISTS (SELECT 1 FROM alias WHERE alias.session_id = wish.session_id AND alias.call_id = wish.call_id
                        OFFSET 0)
        AND NOT EXISTS (SELECT 1 FROM switch WHERE switch.tool = wish.tool OFFSET 0)
        AND NOT EXISTS (SELECT 1 FROM block WHERE block.tenant = wish.tenant AND block.user = wish.user
                        AND block.until > wish.created_at OFFSET 0)
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
    SELECT key FROM free""".replace("user", '"user"'),
)
_FINISH = {"key": "text", "fence": "bigint", "state": "text", "envelope": "text", "finished_at": "bigint"}
_FINISHES = PreparedStatement(
    "finishes",
    f"""
    UPDATE ledger SET state = done.state, {OUTCOME.format("done.envelope").replace("user", '"user"')},
        finished_at = done.finished_at
    FROM {_recordset("done", _FINISH)}
    WHERE ledger.key = done.key AND ledger.fence = done.fence
    -- Not the bare column: PostgreSQL would walk the index of open calls, all of them for each outcome.
    AND ledger.state || '' IN ('running', 'unknown')
    RETURNING ledger.key""",
)
_TURN = {
    "session_id": "text", "connection": "bigint", "input_id": "text", "left_turn": "bigint", "left_counters": "text",
}  # fmt: skip
_TURNS = PreparedStatement(
    "turns",
    f"""
    WITH wish AS MATERIALIZED (
        SELECT * FROM {_recordset("wish", _TURN)}
    ), begun AS MATERIALIZED (
        SELECT wish.*, session.turn + 1 AS next FROM wish JOIN session USING (session_id)
        WHERE session.connection = wish.connection
        AND NOT EXISTS (SELECT 1 FROM turn_input
                        WHERE turn_input.session_id = wish.session_id AND turn_input.input_id = wish.input_id
                        OFFSET 0)
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
    SELECT session_id, next FROM begun""",
)


def commit_group(db: PostgresDatabase, group: Group, now: int) -> list[Any]:
    """Commit those of the group that nothing refuses; the outcome of each request, or None."""
    asked = _statements_of(group, now)
    # All at once and in one order: two processes that lock the same sessions one after the other could wait for each other.
    sessions = sorted({name for request in group.requests for name in locks_of(request).sessions})
    # Each statement sees what was committed before it began, so the claims see what was stored before their locks.
    begun: list[BoundStatement] = [(BEGIN, None), (LOCK_SESSIONS, sessions)]
    found = run_pipeline(db, [*begun, *asked, (COMMIT, None)])
    answers = found[len(begun) : -1]
    return _outcomes(group, now, {statement: rows for (statement, _), rows in zip(asked, answers, strict=True)})


def carry_out_group(db: PostgresDatabase, group: Group, now: int) -> list[Any]:
    """The same in a transaction that was begun, and has its locks."""
    found = {statement: statement.execute(db, document) for statement, document in _statements_of(group, now)}
    return _outcomes(group, now, {statement: rows.fetchall() for statement, rows in found.items()})


def _statements_of(group: Group, now: int) -> list[BoundStatement]:
    asked: list[BoundStatement] = [
        (_FINISHES, _rows_of_finishes(group.finishes, now)),
        (_CLAIMS, _rows_of_claims(group.claims, now)),
        (_TURNS, _rows_of_turns(group.turns)),
    ]
    return [(statement, rows) for statement, rows in asked if rows]


def _outcomes(group: Group, now: int, found: Mapping[PreparedStatement, Sequence[tuple[Any, ...]]]) -> list[Any]:
    # What is missing in an answer was refused; the caller looks at it one by one.
    stored = {key for (key,) in found.get(_FINISHES, ())}
    free = {key for (key,) in found.get(_CLAIMS, ())}
    turns = {session_id: int(turn) for session_id, turn in found.get(_TURNS, ())}

    def outcome_of(request: Any) -> Any:
        if isinstance(request, ClaimRequest):
            one = request.claim
            return claimed(one, now, ClaimVerdict.CLAIMED, 1, now) if one.key in free else None
        if isinstance(request, TurnRequest):
            turn = turns.get(request.session_id)
            return None if turn is None else TurnStart(turn=turn, known=False)
        return _finished(request.finish, now) if request.finish.key in stored else None

    return [outcome_of(request) for request in group.requests]


def _rows_of_turns(turns: Sequence[TurnRequest]) -> list[dict[str, Any]]:
    rows = []
    for one in turns:
        turn, counters = one.left or (None, None)
        kept = None if counters is None else to_json(counters, '"counters" of a turn')
        rows.append(
            {
                "session_id": one.session_id, "connection": one.connection, "input_id": one.input_id,
                "left_turn": turn, "left_counters": kept,
            }
        )  # fmt: skip
    return rows


def _rows_of_claims(claims: Sequence[Claim], now: int) -> list[dict[str, Any]]:
    rows = []
    for place, one in enumerate(claims):
        row = {
            "key": one.key, "tenant": one.tenant, "session_id": one.session_id, "user": one.user, "turn": one.turn,
            "ordinal": one.ordinal, "tool": one.tool, "tool_hash": one.tool_hash, "registry_version": one.registry_version,
            "args_digest": one.args_digest, "args": one.args, "effects": one.effects, "owner": one.owner,
            "claim_id": one.claim_id, "lease_until": now + one.lease_ms, "created_at": now, "connection": one.connection,
            "place": place,
        }  # fmt: skip
        if one.counters is not None:
            row["counters"] = to_json(one.counters, '"counters" of a claim')
        if (alias := one.alias) is not None:
            row |= {
                "call_id": alias.call_id, "call_tool": alias.tool, "raw_digest": alias.raw_digest, "hold_id": alias.hold_id
            }  # fmt: skip
        rows.append(row)
    return rows


def _rows_of_finishes(finishes: Sequence[Finish], now: int) -> list[dict[str, Any]]:
    return [
        {
            "key": one.key, "fence": one.fence, "state": one.state.value, "envelope": one.envelope,
            "finished_at": now if one.state in SETTLED else None,
        }
        for one in finishes
    ]  # fmt: skip


def _finished(one: Finish, now: int) -> LedgerRow | None:
    settled_at = now if one.state in SETTLED else None
    return one.claimed and one.claimed._replace(state=one.state, envelope=one.envelope, finished_at=settled_at)
