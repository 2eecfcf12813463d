"""Who may call: sessions with their turns, call ids and held calls; blocks, switched-off tools, and the limits that all processes
share."""

# ruff: noqa: S608 - the only names that are put into SQL are those of our own columns

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hmac import digest
from typing import Any

import orjson

from handrail.contract.errors import UsageError
from handrail.contract.store import (
    HOLD_TOKENS,
    Alias,
    Approval,
    Block,
    Hold,
    HoldState,
    Operating,
    SessionRecord,
    StoreUnavailable,
    TurnStart,
)
from handrail.stores.statements.transaction import Locks, Transaction, to_json

# Columns are named as the fields are, so that the one list is both the SELECT and the way back.
_SESSION_FIELDS = tuple(field.name for field in fields(SessionRecord))
_SESSION_COLUMNS = ", ".join(_SESSION_FIELDS)
_HOLD_FIELDS = tuple(field.name for field in fields(Hold))
_HOLD_COLUMNS = ", ".join(_HOLD_FIELDS)
_JSON = ("attributes", "state", "counters", "policy", "versions")
_SAVED = ("mode", "active", "attributes", "state", "counters", "current_turn", "versions")
TURNS_LEFT = 200
"""How many turns of a session keep their counters, for messages that come again."""
_KEEP_COUNTERS = """INSERT INTO turn_left SELECT session_id, ?, ? FROM session WHERE session_id = ? AND connection = ?
    ON CONFLICT (session_id, turn) DO UPDATE SET counters = excluded.counters"""


def create_session(tx: Transaction, record: SessionRecord) -> None:
    values = [_stored(name, getattr(record, name)) for name in _SESSION_FIELDS]
    marks = ", ".join("?" * len(values))
    created = tx.db.execute(f"INSERT INTO session ({_SESSION_COLUMNS}) VALUES ({marks}) ON CONFLICT DO NOTHING", values)
    if not created.rowcount:
        raise UsageError(f'There is a session "{record.session_id}" already; resume it, or choose another id.')


def load_session(tx: Transaction, session_id: str) -> SessionRecord | None:
    row = tx.db.execute(f"SELECT {_SESSION_COLUMNS} FROM session WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        return None
    values = dict(zip(_SESSION_FIELDS, row, strict=True))
    values["active"] = bool(values["active"])
    for name in _JSON:
        values[name] = orjson.loads(values[name])
    return SessionRecord(**values)


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


def pinned_versions(tx: Transaction) -> dict[tuple[str, str], int]:
    rows = tx.db.execute(
        "SELECT versions, count(*) FROM session WHERE active = 1 AND versions <> '{}' GROUP BY versions"
    )
    counts: dict[tuple[str, str], int] = {}
    for versions, sessions in rows:
        for pin in orjson.loads(versions).items():
            counts[pin] = counts.get(pin, 0) + int(sessions)
    return counts


def is_wiped(tx: Transaction, session_id: str) -> bool:
    """Whether the user of this session was forgotten: nothing more of it is kept."""
    wiped = "SELECT 1 FROM session WHERE session_id = ? AND token_hash = ''"
    return session_id != "" and tx.db.execute(wiped, (session_id,)).fetchone() is not None


def forgotten_sessions(tx: Transaction, session_ids: Sequence[str]) -> set[str]:
    """Those whose user was forgotten: see `evicting.forget_user`."""
    rows = tx.db.execute(
        "SELECT session_id FROM session WHERE token_hash = '' AND session_id IN (SELECT value FROM json_each(?))",
        (orjson.dumps(list(session_ids)).decode(),),
    )
    return {session_id for (session_id,) in rows}


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A turn as the store's writer is asked to begin it: alone by calling it, or together with others by its value."""

    session_id: str
    connection: int
    input_id: str | None
    left: tuple[int, Mapping[str, Any]] | None

    @property
    def locks(self) -> Locks:
        return Locks(sessions=(self.session_id,))

    def __call__(self, tx: Transaction) -> TurnStart:
        return begin_turn(tx, self.session_id, self.connection, self.input_id, self.left)


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
        keep_counters(tx, session_id, connection, *left)
    if input_id is not None:
        known = tx.db.execute(
            "SELECT turn FROM turn_input WHERE session_id = ? AND input_id = ?", (session_id, input_id)
        ).fetchone()
        if known is not None:
            return _begin_again(tx, session_id, known[0])
    # The store numbers turns, so that two processes that begin one at the same time get two numbers.
    turn = row[1] + 1
    # Its counters are those of the turn that it is in. Of a new one there are none.
    tx.db.execute(
        "UPDATE session SET turn = ?, current_turn = ?, counters = '{}' WHERE session_id = ?", (turn, turn, session_id)
    )
    if input_id is not None:
        tx.db.execute("INSERT INTO turn_input VALUES (?, ?, ?)", (session_id, input_id, turn))
    if turn > TURNS_LEFT:
        tx.db.execute("DELETE FROM turn_left WHERE session_id = ? AND turn < ?", (session_id, turn - TURNS_LEFT))
    return TurnStart(turn=turn, known=False)


def keep_counters(tx: Transaction, session_id: str, connection: int, turn: int, counters: Mapping[str, Any]) -> str:
    """Keep what was counted in a turn for when its input comes again; as it is stored."""
    kept = to_json(counters, '"counters" of a turn')
    tx.db.execute(_KEEP_COUNTERS, (turn, kept, session_id, connection))
    return kept


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
    for session_id, connection, changes in saves:
        given = dict(changes)
        for turn, counters in given.pop("left", {}).items():
            keep_counters(tx, session_id, connection, turn, counters)
        unknown = [name for name in given if name not in _SAVED]
        if unknown:
            raise UsageError(f'A session\'s "{unknown[0]}" cannot be saved; what can are {", ".join(_SAVED)}.')
        if not given:
            continue
        # A session that has lost rows to `evict` stays closed: awake, it could run a call again that it has forgotten.
        columns = ", ".join(
            f"{name} = ?" if name != "active" else "active = CASE WHEN pruned = 0 THEN ? ELSE 0 END" for name in given
        )
        # The connection stands in the condition: a process that was replaced writes nothing over what the newer one has stored.
        values = [_stored(name, value) for name, value in given.items()]
        tx.db.execute(
            f"UPDATE session SET {columns}, saved_at = ? WHERE session_id = ? AND connection = ?",
            (*values, tx.now, session_id, connection),
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
        """INSERT INTO alias VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (session_id, call_id) DO UPDATE
           SET ledger_key = excluded.ledger_key, hold_id = coalesce(excluded.hold_id, alias.hold_id)
           WHERE alias.ledger_key IS NULL AND alias.tool = excluded.tool AND alias.raw_digest = excluded.raw_digest""",
        (session_id, alias.call_id, alias.tool, alias.raw_digest, alias.ledger_key, alias.hold_id),
    )


def _alias(row: Sequence[Any]) -> Alias:
    call_id, tool, raw_digest, ledger_key, hold_id = row
    return Alias(call_id=call_id, tool=tool, raw_digest=raw_digest, ledger_key=ledger_key, hold_id=hold_id)


def _stored(name: str, value: Any) -> Any:
    return to_json(value, f'"{name}" of a session') if name in _JSON else value


def _no_session(session_id: str) -> UsageError:
    return UsageError(f'There is no session "{session_id}".')


# Held calls: at most one open for the same session, tool and arguments. Every change of state goes through `move_hold`, except
# that a claim consumes the grant.
_OPEN = (HoldState.PENDING, HoldState.APPROVED)


def hold(tx: Transaction, hold: Hold, token_hash: str, shown: str) -> Hold:
    row = tx.db.execute(
        f"""SELECT {_HOLD_COLUMNS} FROM hold
            WHERE session_id = ? AND tool = ? AND args = ? AND state IN ('pending', 'approved')""",
        (hold.session_id, hold.tool, hold.args),
    ).fetchone()
    kept = _hold_of(row, tx.now) if row is not None else None
    if kept is not None and not (kept.state in _OPEN and kept.tool_hash == hold.tool_hash):
        # Neither an overdue request nor one for another version of the tool can ever be carried out: it makes room.
        stale = HoldState.SUPERSEDED if kept.state in _OPEN else HoldState.EXPIRED
        tx.db.execute("UPDATE hold SET state = ? WHERE hold_id = ?", (stale, kept.hold_id))
        kept = None
    if kept is None:
        # In the same transaction as the insert: nothing may be kept of a user who was forgotten just now.
        if forgotten_sessions(tx, [hold.session_id]):
            raise StoreUnavailable("The session has ended, and nothing is kept of it.")
        values = {name: getattr(hold, name) for name in _HOLD_FIELDS}
        values["alias"] = to_json(asdict(hold.alias), "alias") if hold.alias else None
        marks = ", ".join("?" * len(values))
        tx.db.execute(f"INSERT INTO hold ({_HOLD_COLUMNS}) VALUES ({marks})", [*values.values()])
        kept = hold
    _put_token(tx, kept.hold_id, token_hash, shown)
    kept = _newest_of_its_tool(tx, kept, hold.turn)
    if hold.alias is not None:
        put_alias(tx, hold.session_id, replace(hold.alias, ledger_key=None, hold_id=kept.hold_id))
    return kept


def hold_by_id(tx: Transaction, hold_id: str) -> Hold | None:
    row = tx.db.execute(f"SELECT {_HOLD_COLUMNS} FROM hold WHERE hold_id = ?", (hold_id,)).fetchone()
    return _hold_of(row, tx.now) if row else None


def holds(tx: Transaction, session_id: str, states: Sequence[HoldState]) -> list[Hold]:
    rows = tx.db.execute(
        f"SELECT {_HOLD_COLUMNS} FROM hold WHERE session_id = ? ORDER BY rowid", (session_id,)
    ).fetchall()
    found = [_hold_of(row, tx.now) for row in rows]
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
    _put_token(tx, hold_id, token_hash, shown)
    return held


def _put_token(tx: Transaction, hold_id: str, token_hash: str, shown: str) -> None:
    tx.db.execute(
        "INSERT INTO hold_token (hold_id, token_hash, shown) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (hold_id, token_hash, shown),
    )
    tx.db.execute(
        # Each look at a request makes a token. Without a bound, a page that reloads would fill the table.
        """DELETE FROM hold_token WHERE hold_id = :hold_id AND rowid NOT IN
               (SELECT rowid FROM hold_token WHERE hold_id = :hold_id ORDER BY rowid DESC LIMIT :limit)""",
        {"hold_id": hold_id, "limit": HOLD_TOKENS},
    )


def shown_with(tx: Transaction, hold_id: str, token_hash: str) -> str | None:
    found = tx.db.execute(
        "SELECT shown FROM hold_token WHERE hold_id = ? AND token_hash = ?", (hold_id, token_hash)
    ).fetchone()
    return found[0] if found is not None else None


def outcome_delivered(tx: Transaction, hold_id: str, turn: int) -> None:
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
        # Written only from a state that was expected, so that of a yes and a no at the same time the first counts.
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


def _hold_of(row: Sequence[Any], now: int) -> Hold:
    values = dict(zip(_HOLD_FIELDS, row, strict=True))
    state = HoldState(values["state"])
    # An open request past its time is returned as expired, whether or not somebody has written that down.
    values["state"] = HoldState.EXPIRED if state in _OPEN and values["expires_at"] <= now else state
    values["repaired"] = bool(values["repaired"])
    values["alias"] = Alias(**orjson.loads(values["alias"])) if values["alias"] else None
    return Hold(**values)


# What operators and other processes have set
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
        """INSERT INTO block VALUES (?, ?, ?) ON CONFLICT (tenant, user)
           DO UPDATE SET until = CASE WHEN excluded.until > block.until THEN excluded.until ELSE block.until END
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
            "INSERT INTO switch VALUES (?, ?) ON CONFLICT (tool) DO UPDATE SET reason = excluded.reason", (tool, off)
        )


def count_rates(
    tx: Transaction, charges: Mapping[tuple[str, int], int], since: Mapping[str, int]
) -> dict[tuple[str, int], int]:
    # In one order everywhere, because other processes write the same rows.
    tx.db.executemany(
        "INSERT INTO rate VALUES (?, ?, ?) ON CONFLICT (scope, window_start) DO UPDATE SET used = rate.used + excluded.used",
        [(*key, charges[key]) for key in sorted(charges)],
    )
    charged = {scope for scope, _ in charges}
    rows = tx.db.execute(
        "SELECT scope, window_start, used FROM rate WHERE scope IN (SELECT value FROM json_each(?))",
        (orjson.dumps(sorted(charged | since.keys())).decode(),),
    )
    counted = {(scope, at): int(used) for scope, at, used in rows}
    # Only of limits that are ours by their locks; of the others, whoever charges them.
    over = [key for key in sorted(counted) if key[0] in charged and key[1] < since.get(key[0], 0)]
    tx.db.executemany("DELETE FROM rate WHERE scope = ? AND window_start = ?", over)
    totals = {key: counted[key] for key in charges}
    totals |= {(scope, at): used for (scope, at), used in counted.items() if scope in since and at >= since[scope]}
    return totals


def try_writing(tx: Transaction) -> None:
    """No tool has an empty name, and nobody else sees a row that is gone before the commit."""
    switch(tx, "", "")
    switch(tx, "", None)


# Blocks of users that nobody knows any more
def store_block(tx: Transaction, block: Block) -> None:
    tx.db.execute(
        """INSERT INTO forgotten_block VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET
           until = CASE WHEN excluded.until > forgotten_block.until THEN excluded.until ELSE forgotten_block.until END""",
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
    block(tx, Block(tenant=tenant, user=user, until=row[0]))
    return int(row[0])


def _digest(tx: Transaction, tenant: str, user: str) -> str:
    salt = tx.db.execute("SELECT salt FROM forgetting").fetchone()[0]
    return digest(salt, orjson.dumps([tenant, user]), "sha256").hex()
