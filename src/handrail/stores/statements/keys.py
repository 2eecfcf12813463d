"""Keys of a server: the statements of `contract.keys`.

Whoever changes keys counts that first. The count tells every server to read them again, and its row keeps changes apart that
come at the same time: what is looked at after it was counted stays as it is until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import orjson

from handrail.contract.errors import UsageError
from handrail.contract.keys import MAX_KEYS, Key
from handrail.stores.statements.transaction import Transaction


def all_keys(tx: Transaction) -> list[Key]:
    rows = tx.db.execute("SELECT name, hash, role, user, created, roles FROM server_key ORDER BY rowid")
    return [
        Key(name=row[0], hash=row[1], role=row[2], user=row[3], created=row[4], roles=tuple(orjson.loads(row[5])))
        for row in rows
    ]


def changes(tx: Transaction) -> int:
    return int(tx.db.execute("SELECT times FROM server_key_changes").fetchone()[0])


def add(tx: Transaction, new: Key, may_replace: bool) -> None:
    _count_change(tx)
    if _delete(tx, new.name) and not may_replace:
        raise UsageError(f'There is a key "{new.name}"; choose another name, or replace it with --replace.')
    _insert(tx, new)


def add_numbered(tx: Transaction, new: Key) -> Key:
    _count_change(tx)
    taken = {one.name for one in all_keys(tx)}
    names = (new.name if number == 1 else f"{new.name}-{number}" for number in count(1))
    made = replace(new, name=next(name for name in names if name not in taken))
    _insert(tx, made)
    return made


def revoke(tx: Transaction, name: str) -> Key | None:
    _count_change(tx)
    found = next((one for one in all_keys(tx) if one.name == name), None)
    _delete(tx, name)
    return found


def revoke_of(tx: Transaction, owner: str) -> list[Key]:
    _count_change(tx)
    gone = [one for one in all_keys(tx) if one.user == owner]
    tx.db.execute("DELETE FROM server_key WHERE user = ?", (owner,))
    return gone


def import_all(tx: Transaction, source: str, keys: Sequence[Key]) -> int:
    _count_change(tx)
    if tx.db.execute("SELECT 1 FROM file_import WHERE source = ?", (source,)).fetchone() is not None:
        return 0
    there = all_keys(tx)
    taken = {one.name for one in there} | {one.hash for one in there}
    new = [one for one in keys if one.name not in taken and one.hash not in taken]
    for one in new:
        _insert(tx, one)
    stored = {(one, one.created) for one in all_keys(tx)}
    lost = [one.name for one in new if (one, one.created) not in stored]
    if lost:
        raise UsageError(f'The key "{lost[0]}" could not be stored as it was.')
    tx.db.execute("INSERT INTO file_import VALUES (?, 'all')", (source,))
    return len(new)


def _count_change(tx: Transaction) -> None:
    tx.db.execute("UPDATE server_key_changes SET times = times + 1")


def _insert(tx: Transaction, new: Key) -> None:
    if int(tx.db.execute("SELECT count(*) FROM server_key").fetchone()[0]) >= MAX_KEYS:
        raise UsageError(f"There are {MAX_KEYS} keys, which is as many as there may be; revoke some.")
    tx.db.execute(
        "INSERT INTO server_key (name, hash, role, user, created, roles) VALUES (?, ?, ?, ?, ?, ?)",
        (new.name, new.hash, new.role, new.user, new.created, orjson.dumps(new.roles).decode()),
    )


def _delete(tx: Transaction, name: str) -> bool:
    return tx.db.execute("DELETE FROM server_key WHERE name = ?", (name,)).rowcount > 0
