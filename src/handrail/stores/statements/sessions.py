"""Sessions, their connections and turns, and the call ids that they have used."""

# ruff: noqa: S608 - the only names that are put into SQL are those of our own columns

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from handrail.contract.errors import UsageError
from handrail.contract.store import Alias, SessionRecord, TurnStart
from handrail.stores.statements.transaction import (
    SESSION_COLUMNS,
    SESSION_FIELDS,
    Transaction,
    session_of,
    to_json,
)

_JSON = ("attributes", "state", "counters", "policy")
_SAVED = ("mode", "active", "attributes", "state", "counters", "current_turn")
_TURNS_LEFT = 200
"""How many turns of a session keep their counters, for messages that come again."""


def create_session(tx: Transaction, record: SessionRecord) -> None:
    values = [_stored(name, getattr(record, name)) for name in SESSION_FIELDS]
    marks = ", ".join("?" * len(values))
    created = tx.db.execute(f"INSERT INTO session ({SESSION_COLUMNS}) VALUES ({marks}) ON CONFLICT DO NOTHING", values)
    if not created.rowcount:
        raise UsageError(f'There is a session "{record.session_id}" already; resume it, or choose another id.')


def load_session(tx: Transaction, session_id: str) -> SessionRecord | None:
    row = tx.db.execute(f"SELECT {SESSION_COLUMNS} FROM session WHERE session_id = ?", (session_id,)).fetchone()
    return session_of(row) if row else None


def connect(tx: Transaction, session_id: str, registry_version: str, owner: str) -> int:
    row = tx.db.execute(
        """UPDATE session SET connection = connection + 1, registry_version = ?, owner = ? WHERE session_id = ?
           RETURNING connection""",
        (registry_version, owner, session_id),
    ).fetchone()
    if row is None:
        raise _no_session(session_id)
    return int(row[0])


def connections(tx: Transaction, session_ids: Sequence[str]) -> dict[str, int]:
    # As one JSON value, because the number of parameters of a statement is limited.
    rows = tx.db.execute(
        "SELECT session_id, connection FROM session WHERE session_id IN (SELECT value FROM json_each(?))",
        (orjson.dumps(list(session_ids)).decode(),),
    )
    return {session_id: int(connection) for session_id, connection in rows}


def begin_turn(
    tx: Transaction,
    session_id: str,
    connection: int,
    input_id: str | None,
    left: tuple[int, Mapping[str, Any]] | None = None,
) -> TurnStart:
    row = tx.db.execute("SELECT connection, turn FROM session WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        raise _no_session(session_id)
    if row[0] != connection:
        return TurnStart(turn=0, known=False)
    if left is not None:
        _keep_counters(tx, session_id, connection, *left)
    if input_id is not None:
        known = tx.db.execute(
            "SELECT turn FROM turn_input WHERE session_id = ? AND input_id = ?", (session_id, input_id)
        ).fetchone()
        if known is not None:
            return _begin_again(tx, session_id, known[0])
    turn = row[1] + 1
    tx.db.execute("UPDATE session SET turn = ?, current_turn = ? WHERE session_id = ?", (turn, turn, session_id))
    if input_id is not None:
        tx.db.execute("INSERT INTO turn_input VALUES (?, ?, ?)", (session_id, input_id, turn))
    if turn > _TURNS_LEFT:
        tx.db.execute("DELETE FROM turn_left WHERE session_id = ? AND turn < ?", (session_id, turn - _TURNS_LEFT))
    return TurnStart(turn=turn, known=False)


def _begin_again(tx: Transaction, session_id: str, turn: int) -> TurnStart:
    """The session's counters are those of the turn that it is in, so that it can be resumed there."""
    found = tx.db.execute(
        "SELECT counters FROM turn_left WHERE session_id = ? AND turn = ?", (session_id, turn)
    ).fetchone()
    if found is None:
        tx.db.execute("UPDATE session SET current_turn = ? WHERE session_id = ?", (turn, session_id))
        return TurnStart(turn=turn, known=True)
    tx.db.execute("UPDATE session SET current_turn = ?, counters = ? WHERE session_id = ?", (turn, *found, session_id))
    return TurnStart(turn=turn, known=True, counters=orjson.loads(found[0]))


def save_sessions(tx: Transaction, saves: Sequence[tuple[str, int, Mapping[str, Any]]]) -> None:
    for session_id, connection, fields in saves:
        given = dict(fields)
        for turn, counters in given.pop("left", {}).items():
            _keep_counters(tx, session_id, connection, turn, counters)
        unknown = [name for name in given if name not in _SAVED]
        if unknown:
            raise UsageError(f'A session\'s "{unknown[0]}" cannot be saved; what can are {", ".join(_SAVED)}.')
        if not given:
            continue
        # A session that has lost rows to `evict` stays closed: awake, it could run a call again that it has forgotten.
        columns = ", ".join(f"{name} = ?" if name != "active" else "active = (? AND NOT pruned)" for name in given)
        values = [_stored(name, value) for name, value in given.items()]
        tx.db.execute(
            f"UPDATE session SET {columns}, saved_at = ? WHERE session_id = ? AND connection = ?",
            (*values, tx.now, session_id, connection),
        )


def _keep_counters(tx: Transaction, session_id: str, connection: int, turn: int, counters: Mapping[str, Any]) -> None:
    tx.db.execute(
        """INSERT INTO turn_left SELECT session_id, ?, ? FROM session WHERE session_id = ? AND connection = ?
           ON CONFLICT DO UPDATE SET counters = excluded.counters""",
        (turn, to_json(counters, '"counters" of a turn'), session_id, connection),
    )


def aliases(tx: Transaction, session_id: str) -> list[Alias]:
    rows = tx.db.execute(
        "SELECT call_id, tool, raw_digest, ledger_key, hold_id FROM alias WHERE session_id = ? ORDER BY call_id",
        (session_id,),
    )
    return [_alias(row) for row in rows]


def alias_of(tx: Transaction, session_id: str, call_id: str) -> Alias | None:
    row = tx.db.execute(
        "SELECT call_id, tool, raw_digest, ledger_key, hold_id FROM alias WHERE session_id = ? AND call_id = ?",
        (session_id, call_id),
    ).fetchone()
    return _alias(row) if row else None


def add_alias(tx: Transaction, session_id: str, alias: Alias) -> Alias:
    """A call id stands for its first meaning for ever; a held call's id is given its ledger key when it is claimed."""
    if alias.ledger_key is not None:
        found = tx.db.execute("SELECT 1 FROM ledger WHERE key = ?", (alias.ledger_key,)).fetchone()
        if found is None:
            raise UsageError(f'The ledger has no call "{alias.ledger_key}" that an id could stand for.')
    put_alias(tx, session_id, alias)
    return alias_of(tx, session_id, alias.call_id) or alias


def put_alias(tx: Transaction, session_id: str, alias: Alias) -> None:
    tx.db.execute(
        """INSERT INTO alias VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
           SET ledger_key = excluded.ledger_key, hold_id = coalesce(excluded.hold_id, hold_id)
           WHERE ledger_key IS NULL AND tool = excluded.tool AND raw_digest = excluded.raw_digest""",
        (session_id, alias.call_id, alias.tool, alias.raw_digest, alias.ledger_key, alias.hold_id),
    )


def _alias(row: Sequence[Any]) -> Alias:
    call_id, tool, raw_digest, ledger_key, hold_id = row
    return Alias(call_id=call_id, tool=tool, raw_digest=raw_digest, ledger_key=ledger_key, hold_id=hold_id)


def _stored(name: str, value: Any) -> Any:
    return to_json(value, f'"{name}" of a session') if name in _JSON else value


def _no_session(session_id: str) -> UsageError:
    return UsageError(f'There is no session "{session_id}".')
