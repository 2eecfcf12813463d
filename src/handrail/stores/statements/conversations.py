"""Conversations of a server: the statements of `contract.conversations`.

What people wrote is stored as JSON, not as it is: PostgreSQL keeps no NUL, and neither database a lone surrogate.
"""

# ruff: noqa: S608 - what is put into SQL are our own conditions

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from handrail.contract.conversations import (
    MAX_TURNS,
    ImportedConversation,
    ListedConversation,
    Moved,
    Ownership,
    Quota,
    QuotaExceeded,
    StoredConversation,
    StoredTurn,
)
from handrail.contract.errors import UsageError
from handrail.contract.frozen import for_json
from handrail.contract.store import StoreUnavailable
from handrail.stores.statements.sessions import is_wiped
from handrail.stores.statements.transaction import Transaction

_TURN = "SELECT 1 FROM conversation_turn WHERE conversation_turn.session_id = conversation.session_id"
_BUSY = f"(live <> 0 OR EXISTS ({_TURN} AND state = 'running'))"
_EMPTY = f"NOT EXISTS ({_TURN})"
_TURN_COLUMNS = "message_id, text, position, number, state, attempts, answer, last_event"
_IMAGE = re.compile(r"img_[0-9a-f]{32}")
_NOTHING = '""'
_TITLE = 120
_EMPTY_MS = 3_600_000
"""A conversation in which nothing was said for so long makes room for others."""
_COUNT_MS = 10_000
"""So long the number of all conversations, and of a key's, is not counted anew."""
_MAX_COUNTS = 10_000
_MAX_PRUNED = 100
"""In one transaction: everybody else who writes waits for it."""


class Counts:
    """How many conversations there are, as far as this process knows: those that it makes itself are counted at once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}

    def of(self, tx: Transaction, name: str, where: str, values: Sequence[Any]) -> int:
        count, then = self._known.get(name, (0, 0))
        if not then <= tx.now < then + _COUNT_MS:
            if len(self._known) > _MAX_COUNTS:
                self._known.clear()
            count, then = _count(tx, where, values), tx.now
        self._known[name] = (count + 1, then)
        return count

    def forget(self, name: str) -> None:
        self._known.pop(name, None)


class NewConversation(NamedTuple):
    """A conversation with its document as it is stored."""

    conversation: StoredConversation
    document: str
    owner: str


class TurnEnd(NamedTuple):
    """A turn with its answer as it is stored."""

    turn: StoredTurn
    state: str
    number: int
    answer: str
    last_event: int


def to_text(value: Any) -> str:
    """JSON, also of what only the slower encoder takes: large integers and lone surrogates."""
    try:
        return orjson.dumps(value, default=for_json).decode()
    except TypeError:
        return json.dumps(value, default=for_json, separators=(",", ":"))


def from_text(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # a lone surrogate, which `to_text` has written
        return json.loads(text)


def create(tx: Transaction, new: NewConversation, quota: Quota | None, counts: Counts) -> list[str]:
    conversation = new.conversation
    if is_wiped(tx, conversation.session_id):
        raise StoreUnavailable("The user of this session was forgotten meanwhile, so nothing is kept of it.")
    gone = _make_room(tx, conversation, quota, counts) if quota is not None else []
    tx.db.execute(
        "INSERT INTO conversation VALUES (?, ?, ?, ?, '', ?, 0, ?, ?, ?, ?)",
        (
            *(conversation.session_id, conversation.tenant, conversation.user, conversation.key, new.owner),
            *(conversation.passing, tx.now, tx.now, new.document),
        ),
    )
    return gone


def load(tx: Transaction, session_id: str) -> StoredConversation | None:
    row = tx.db.execute(
        "SELECT tenant, user, passing, document, key, live FROM conversation WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        return None
    return StoredConversation(
        session_id=session_id,
        tenant=row[0],
        user=row[1],
        passing=bool(row[2]),
        document=from_text(row[3]),
        key=row[4],
        live=bool(row[5]),
        turns=list(_turns(tx, "session_id = ?", (session_id,))),
    )


def turn(tx: Transaction, session_id: str, message_id: str) -> StoredTurn | None:
    return next(_turns(tx, "session_id = ? AND message_id = ?", (session_id, message_id)), None)


def owners(tx: Transaction, session_ids: Sequence[str]) -> dict[str, str]:
    # As one JSON value, because the number of parameters of a statement is limited.
    rows = tx.db.execute(
        "SELECT session_id, owner FROM conversation WHERE session_id IN (SELECT value FROM json_each(?))",
        (to_text(list(session_ids)),),
    )
    return dict(rows.fetchall())


def standing(tx: Transaction, session_id: str) -> Ownership | None:
    row = tx.db.execute(
        """SELECT owner, live, (SELECT message_id FROM conversation_turn
               WHERE conversation_turn.session_id = conversation.session_id AND state = 'running')
           FROM conversation WHERE session_id = ?""",
        (session_id,),
    ).fetchone()
    return Ownership(owner=row[0], live=bool(row[1]), running=row[2]) if row is not None else None


def changes(tx: Transaction, session_id: str, after: int) -> tuple[Ownership, list[StoredTurn]] | None:
    # First who has it: a turn that ends between the two looks is then told as both running and ended, never as neither.
    found = standing(tx, session_id)
    if found is None:
        return None
    ended = _turns(tx, "session_id = ? AND last_event > ? AND state <> 'running'", (session_id, after))
    return found, sorted(ended, key=lambda one: one.last_event)


def take(tx: Transaction, session_id: str, owner: str, former: str, though_busy: bool) -> bool:
    where = "session_id = ? AND owner = ?" + ("" if though_busy else f" AND NOT {_BUSY}")
    taken = tx.db.execute(f"UPDATE conversation SET owner = ?, live = 1 WHERE {where}", (owner, session_id, former))
    return taken.rowcount > 0


def set_live(tx: Transaction, session_id: str, live: bool, owner: str) -> None:
    statement = "UPDATE conversation SET live = ? WHERE session_id = ? AND owner = ?"
    if not tx.db.execute(statement, (live, session_id, owner)).rowcount:
        _check_not_moved(tx, session_id)


def remember_opener(tx: Transaction, session_id: str, sealed: str) -> None:
    tx.db.execute("UPDATE conversation SET sealed = ? WHERE session_id = ?", (sealed, session_id))


def opened_with(tx: Transaction, key: str, user: str | None, maximum: int) -> list[ListedConversation]:
    rows = tx.db.execute(
        f"""SELECT conversation.session_id, sealed, first.text, created_at, updated_at,
                EXISTS ({_TURN} AND state = 'running')
            FROM conversation JOIN conversation_turn AS first ON first.session_id = conversation.session_id
                AND first.position = (SELECT min(position) FROM conversation_turn
                    WHERE conversation_turn.session_id = conversation.session_id AND text <> ?)
            WHERE key = ? AND user IS ? AND passing = 0 AND sealed <> '' ORDER BY updated_at DESC LIMIT ?""",
        (_NOTHING, key, user, maximum),
    )
    return [
        ListedConversation(
            session_id=row[0],
            sealed=row[1],
            title=" ".join(from_text(row[2]).split())[:_TITLE],
            created_at=row[3],
            updated_at=row[4],
            answering=bool(row[5]),
        )
        for row in rows
    ]


def begin(tx: Transaction, session_id: str, turn: StoredTurn, owner: str) -> None:
    ours = "UPDATE conversation SET updated_at = ? WHERE session_id = ? AND owner = ?"
    if not tx.db.execute(ours, (tx.now, session_id, owner)).rowcount:
        _check_not_moved(tx, session_id)
        raise StoreUnavailable("This conversation is no longer kept, so nothing can be added to it.")
    tx.db.execute(
        """INSERT INTO conversation_turn VALUES (?, ?, ?, ?, ?, 'running', ?, '{}', 0)
           ON CONFLICT (session_id, message_id) DO UPDATE SET state = 'running', attempts = excluded.attempts""",
        (session_id, turn.message_id, turn.position, turn.number, to_text(turn.text), turn.attempts),
    )
    tx.db.execute(
        "DELETE FROM conversation_turn WHERE session_id = ? AND position <= ?", (session_id, turn.position - MAX_TURNS)
    )


def finish(tx: Transaction, session_id: str, end: TurnEnd | None, document: str, owner: str) -> None:
    known = tx.db.execute(
        "UPDATE conversation SET document = ?, updated_at = ? WHERE session_id = ? AND owner = ?",
        (document, tx.now, session_id, owner),
    )
    if not known.rowcount:
        _check_not_moved(tx, session_id)  # of a session that was forgotten meanwhile nothing is kept
    elif end is not None:
        _store_turn(tx, session_id, end)


def _store_turn(tx: Transaction, session_id: str, end: TurnEnd) -> None:
    turn = end.turn
    tx.db.execute(
        """INSERT INTO conversation_turn VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (session_id, message_id) DO UPDATE SET number = excluded.number, state = excluded.state,
           answer = excluded.answer, last_event = excluded.last_event""",
        (
            *(session_id, turn.message_id, turn.position, end.number, to_text(turn.text), end.state, turn.attempts),
            *(end.answer, end.last_event),
        ),
    )


def delete(tx: Transaction, session_id: str) -> bool:
    return tx.db.execute("DELETE FROM conversation WHERE session_id = ?", (session_id,)).rowcount > 0


def forget(tx: Transaction, tenant: str, user: str, images: Collection[str]) -> tuple[int, set[str]]:
    mine, who = "tenant = ? AND user = ?", (tenant, user)
    images = {*images, *_images(tx, mine, who)}
    deleted = tx.db.execute(f"DELETE FROM conversation WHERE {mine}", who).rowcount
    return deleted, images - _images(tx, "1 = 1", ()) if images else set()


def prune(tx: Transaction, unused_for: int) -> list[str]:
    return _evict(tx, "updated_at < ?", (tx.now - unused_for,), _MAX_PRUNED)


def imported_until(tx: Transaction, source: str) -> str:
    row = tx.db.execute("SELECT position FROM file_import WHERE source = ?", (source,)).fetchone()
    return str(row[0]) if row is not None else ""


def import_all(tx: Transaction, source: str, batch: Sequence[ImportedConversation]) -> int:
    before, imported = imported_until(tx, source), 0
    for one in batch:
        if one.conversation.session_id > before and _import(tx, one):
            imported += 1
    tx.db.execute(
        "INSERT INTO file_import VALUES (?, ?) ON CONFLICT (source) DO UPDATE SET position = excluded.position",
        (source, max(before, *(one.conversation.session_id for one in batch))),
    )
    return imported


def _import(tx: Transaction, one: ImportedConversation) -> bool:
    kept = one.conversation
    values = (kept.session_id, kept.tenant, kept.user, kept.key, one.sealed, kept.passing, one.created_at)
    new = tx.db.execute(
        "INSERT INTO conversation VALUES (?, ?, ?, ?, ?, '', 0, ?, ?, ?, ?) ON CONFLICT (session_id) DO NOTHING",
        (*values, one.updated_at, to_text(kept.document)),
    ).rowcount
    if not new:
        return False
    for turn in kept.turns:
        end = TurnEnd(turn, turn.state, turn.number, to_text(turn.answer), turn.last_event)
        _store_turn(tx, kept.session_id, end)
    times = tx.db.execute(
        "SELECT sealed, created_at, updated_at FROM conversation WHERE session_id = ?", (kept.session_id,)
    ).fetchone()
    if load(tx, kept.session_id) != kept or tuple(times) != (one.sealed, one.created_at, one.updated_at):
        raise UsageError(f'The conversation of session "{kept.session_id}" could not be stored as it was.')
    return True


def _turns(tx: Transaction, where: str, values: Sequence[Any]) -> Iterator[StoredTurn]:
    rows = tx.db.execute(f"SELECT {_TURN_COLUMNS} FROM conversation_turn WHERE {where} ORDER BY position", values)
    for one in rows:
        yield StoredTurn(
            message_id=one[0],
            text=from_text(one[1]),
            position=one[2],
            number=one[3],
            state=one[4],
            attempts=one[5],
            answer=from_text(one[6]),
            last_event=one[7],
        )


def _check_not_moved(tx: Transaction, session_id: str) -> None:
    """Nothing of ours was found: raise if another process has it; one that is gone is passed over in silence."""
    if owners(tx, (session_id,)):
        raise Moved("Another process has taken this session over.")


def _count(tx: Transaction, where: str, values: Sequence[Any]) -> int:
    return int(tx.db.execute(f"SELECT count(*) FROM conversation WHERE {where}", values).fetchone()[0])


def _images(tx: Transaction, where: str, values: Sequence[Any]) -> set[str]:
    """The ids of images in the texts of conversations."""
    found: set[str] = set()
    for (text,) in tx.db.execute(
        f"""SELECT document FROM conversation WHERE {where} UNION ALL
            SELECT answer FROM conversation_turn WHERE session_id IN
                (SELECT session_id FROM conversation WHERE {where})""",
        (*values, *values),
    ):
        found.update(_IMAGE.findall(text))
    return found


def _evict(tx: Transaction, where: str, values: Sequence[Any], limit: int) -> list[str]:
    """Delete conversations until the rest fits, empty ones first, then the oldest; the sessions that they belonged to."""
    statement = f"SELECT session_id, updated_at FROM conversation WHERE {where} ORDER BY NOT {_EMPTY}, updated_at, rowid LIMIT ?"
    old = dict(tx.db.execute(statement, (*values, limit)).fetchall())
    if not old:
        return []
    # Whoever continues with one of them meanwhile, in another process, keeps it.
    deleted = tx.db.execute(
        """DELETE FROM conversation WHERE session_id IN (SELECT value FROM json_each(?)) AND updated_at <= ?
           RETURNING session_id""",
        (to_text([*old]), max(old.values())),
    )
    gone = {session_id for (session_id,) in deleted.fetchall()}
    return [session_id for session_id in old if session_id in gone]


def _make_room(tx: Transaction, new: StoredConversation, quota: Quota, counts: Counts) -> list[str]:
    """Nobody's conversation is pushed out by another's: those that this user opened with this key make room, and those in
    which nothing was said. A key that speaks for any user could otherwise push out what its user opened with another."""
    gone: list[str] = []
    stale = tx.now - _EMPTY_MS
    mine, values = "tenant = ? AND user = ? AND key = ?", [new.tenant, new.user, new.key]
    if new.user is None:  # strangers to each other: only what is empty makes room
        mine, values = f"key = ? AND user IS NULL AND {_EMPTY}", [new.key]
    over = _count(tx, mine, values) + 1 - quota.per_user
    if over > 0:
        gone += _evict(tx, f"{mine} AND NOT {_BUSY}", values, over)
        if len(gone) < over:
            raise QuotaExceeded("user")
    scopes: tuple[tuple[str, str, Mapping[str, str], int], ...] = (
        ("key", "key = ?", {"key": new.key}, quota.per_key),
        ("all", "1 = 1", {}, quota.in_all),
    )
    for scope, where, named, limit in scopes:
        name, given = f"{scope}:{named.get('key', '')}", list(named.values())
        if counts.of(tx, name, where, given) - len(gone) < limit:
            continue
        counts.forget(name)  # look closely before anybody is refused
        over = _count(tx, where, given) + 1 - limit
        if over > 0:
            empty = f"{where} AND updated_at < ? AND live = 0 AND {_EMPTY}"
            freed = _evict(tx, empty, (*given, stale), max(over, 100))
            if len(freed) < over:
                freed += _evict(tx, f"{mine} AND NOT {_BUSY}", values, over - len(freed))
            gone += freed
            if len(freed) < over:
                raise QuotaExceeded(scope)
    return gone
