"""Held calls: at most one open for the same session, tool and arguments; every change of state goes through
`move_hold`, except that a claim consumes the grant."""

# ruff: noqa: S608 - the only names that are put into SQL are those of our own columns

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from handrail.contract.errors import UsageError
from handrail.contract.store import HOLD_TOKENS, Approval, Hold, HoldState, StoreUnavailable
from handrail.stores.statements import sessions
from handrail.stores.statements.forgetting import forgotten_sessions
from handrail.stores.statements.transaction import HOLD_COLUMNS, HOLD_FIELDS, Transaction, hold_of, hold_values

_OPEN = (HoldState.PENDING, HoldState.APPROVED)


def hold(tx: Transaction, hold: Hold, token_hash: str, shown: str) -> Hold:
    kept = _open_like(tx, hold)
    if kept is None and forgotten_sessions(tx, [hold.session_id]):
        raise StoreUnavailable("The session has ended, and nothing is kept of it.")
    if kept is None:
        marks = ", ".join("?" * len(HOLD_FIELDS))
        tx.db.execute(f"INSERT INTO hold ({HOLD_COLUMNS}) VALUES ({marks})", hold_values(hold))
        kept = hold
    add_hold_token(tx, kept.hold_id, token_hash, shown)
    kept = _newest_of_its_tool(tx, kept, hold.turn)
    if hold.alias is not None:
        sessions.add_alias(tx, hold.session_id, replace(hold.alias, ledger_key=None, hold_id=kept.hold_id))
    return kept


def hold_by_id(tx: Transaction, hold_id: str) -> Hold | None:
    row = tx.db.execute(f"SELECT {HOLD_COLUMNS} FROM hold WHERE hold_id = ?", (hold_id,)).fetchone()
    return _as_of(tx, hold_of(row)) if row else None


def holds(tx: Transaction, session_id: str, states: Sequence[HoldState]) -> list[Hold]:
    rows = tx.db.execute(
        f"SELECT {HOLD_COLUMNS} FROM hold WHERE session_id = ? ORDER BY rowid", (session_id,)
    ).fetchall()
    found = [_as_of(tx, hold_of(row)) for row in rows]
    return [hold for hold in found if hold.state in states]


def ask_again(tx: Transaction, hold_id: str, turn: int) -> None:
    held = hold_by_id(tx, hold_id)
    if held is not None and held.state in _OPEN:
        _newest_of_its_tool(tx, held, turn)


def add_hold_token(tx: Transaction, hold_id: str, token_hash: str, shown: str = "", preview: str | None = None) -> Hold:
    held = hold_by_id(tx, hold_id)
    if held is None:
        raise UsageError(f'There is no held call "{hold_id}".')
    if preview is not None and held.state in _OPEN:
        held = replace(held, preview=preview)
        tx.db.execute("UPDATE hold SET preview = ? WHERE hold_id = ?", (preview, hold_id))
    tx.db.execute(
        "INSERT INTO hold_token (hold_id, token_hash, shown) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (hold_id, token_hash, shown),
    )
    tx.db.execute(
        """DELETE FROM hold_token WHERE hold_id = :hold_id AND rowid NOT IN
               (SELECT rowid FROM hold_token WHERE hold_id = :hold_id ORDER BY rowid DESC LIMIT :limit)""",
        {"hold_id": hold_id, "limit": HOLD_TOKENS},
    )
    return held


def shown_with(tx: Transaction, hold_id: str, token_hash: str) -> str | None:
    found = tx.db.execute(
        "SELECT shown FROM hold_token WHERE hold_id = ? AND token_hash = ?", (hold_id, token_hash)
    ).fetchone()
    return found[0] if found is not None else None


def outcome_told(tx: Transaction, hold_id: str, turn: int) -> None:
    tx.db.execute("UPDATE hold SET told_turn = ? WHERE hold_id = ? AND told_turn IS NULL", (turn, hold_id))


def move_hold(
    tx: Transaction, hold_id: str, to: HoldState, expected: Sequence[HoldState], approval: Approval | None = None
) -> Hold | None:
    held = hold_by_id(tx, hold_id)
    if held is None:
        return None
    if held.state in expected and held.state is not HoldState.EXPIRED:
        if to is not held.state and to in _OPEN:
            by = approval or Approval()
            held = replace(held, approver=by.approver, approved_via=by.via)
        held = replace(held, state=to)
    tx.db.execute(
        "UPDATE hold SET state = ?, approver = ?, approved_via = ? WHERE hold_id = ? AND state <> ?",
        (held.state, held.approver, held.approved_via, hold_id, held.state),
    )
    return held


def _newest_of_its_tool(tx: Transaction, held: Hold, turn: int) -> Hold:
    """The request was asked for in this turn: those of earlier turns only are replaced by it, and it by none of them."""
    if turn > held.asked_turn:
        held = replace(held, asked_turn=turn, replaced_by=None)
        tx.db.execute("UPDATE hold SET asked_turn = ?, replaced_by = NULL WHERE hold_id = ?", (turn, held.hold_id))
    tx.db.execute(
        """UPDATE hold SET replaced_by = ? WHERE session_id = ? AND tool = ? AND asked_turn < ? AND hold_id <> ?
               AND replaced_by IS NULL AND state IN ('pending', 'approved')""",
        (held.hold_id, held.session_id, held.tool, held.asked_turn, held.hold_id),
    )
    return held


def _open_like(tx: Transaction, hold: Hold) -> Hold | None:
    row = tx.db.execute(
        f"""SELECT {HOLD_COLUMNS} FROM hold
            WHERE session_id = ? AND tool = ? AND args = ? AND state IN ('pending', 'approved')""",
        (hold.session_id, hold.tool, hold.args),
    ).fetchone()
    if row is None:
        return None
    held = hold_of(row)
    # Neither an overdue request nor one for another version of the tool can ever be carried out: it makes room.
    stale = HoldState.EXPIRED if held.expires_at <= tx.now else HoldState.SUPERSEDED
    if stale is HoldState.SUPERSEDED and held.tool_hash == hold.tool_hash:
        return held
    tx.db.execute("UPDATE hold SET state = ? WHERE hold_id = ?", (stale, held.hold_id))
    return None


def _as_of(tx: Transaction, held: Hold) -> Hold:
    """An open request past its time is told as expired, whether or not somebody has written that down."""
    overdue = held.state in _OPEN and held.expires_at <= tx.now
    return replace(held, state=HoldState.EXPIRED) if overdue else held
