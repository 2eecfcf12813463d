"""Files in which earlier versions kept the state of a server. The first start brings what is in them into the store.

A file is read under a lock, batch by batch, and renamed to `….migrated` when everything is in the store. The store notes how far
it came in the transaction of each batch: after a crash the next start continues there. Processes that start at the same time
wait. Apart from the assembly, because `handrail users` and `handrail doctor` need this without the web framework.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import time
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import orjson

from handrail.contract.conversations import ImportedConversation, StoredConversation, StoredTurn
from handrail.contract.errors import ConfigError, UsageError
from handrail.contract.keys import MAX_KEYS, ROLES, Key, Role
from handrail.contract.store import Store, StoreUnavailable
from handrail.server.folder_lock import folder_lock
from handrail.settings import Settings
from handrail.sqlite_files import check_writable, look

_log = logging.getLogger("handrail.server")
_NEWEST = 2
_MAX_BATCH = 100
_MAX_BATCH_BYTES = 1_000_000
_BUSY_SECONDS = 5.0
_MAX_BYTES = 16 * 1024 * 1024
DONE = ".migrated"


async def import_files(settings: Settings, store: Store) -> None:
    """Bring the files of earlier versions into the store, which is opened for it. Where there are none nothing is done."""
    conversations, keys = settings.project / settings.server_conversations, settings.project / settings.server_keys_file
    if settings.store_url.startswith("memory:") or not (conversations.exists() or keys.exists()):
        return
    await store.open()
    try:
        async with folder_lock(settings.project):
            # Before anything is changed: what cannot be brought over whole is not begun.
            await asyncio.to_thread(check_conversations, conversations)
            await _import_keys(keys, store)
            await _import_conversations(conversations, store)
    finally:
        await store.close()


def copies(settings: Settings) -> tuple[Path, ...]:
    """What an import leaves. People's names and words are in there."""
    return tuple(
        settings.project / (name + DONE) for name in (settings.server_conversations, settings.server_keys_file)
    )


def remove_old_copies(settings: Settings) -> None:
    """Delete what an import left longer ago than conversations are kept."""
    for path in copies(settings):
        if path.is_file() and time.time() - path.stat().st_ctime > settings.server_keep_days * 86_400:
            path.unlink(missing_ok=True)


def load_keys(path: Path) -> tuple[str, list[Key]]:
    """What names the content of a file of keys, and the keys, none if there is no file; `ConfigError` if it cannot be used or
    others may read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return "", []
    except OSError as error:
        raise ConfigError(f'The file of keys "{path.name}" cannot be read ({error.strerror}).') from None
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(f'The file of keys "{path.name}" can be read by others; run `chmod 600` on it.')
    try:
        entries = json.loads(raw)["keys"]
        return sha256(raw).hexdigest(), [_key(entry) for entry in entries[:MAX_KEYS]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f'The file of keys "{path.name}" cannot be understood; it has {{"keys": [{{"name", "hash", "role", "user"}}]}}.'
        ) from None


def _key(entry: Any) -> Key:
    name, hashed, role, user = entry["name"], entry["hash"], entry.get("role", "user"), entry.get("user")
    created = entry.get("created", "")
    good = isinstance(name, str) and isinstance(hashed, str) and len(hashed) == 64 and role in ROLES
    if not good or not (user is None or isinstance(user, str)) or not isinstance(created, str):
        raise ValueError(name)
    return Key(name=name, hash=hashed, role=cast(Role, role), user=user, created=created)


async def _import_keys(path: Path, store: Store) -> None:
    source, keys = await asyncio.to_thread(load_keys, path)
    if not source:
        return  # there is none, or another process has brought it over
    imported = await store.keys.import_all(source, keys)
    _log.warning('%d keys of "%s" were brought into the store.', imported, path.name)
    _put_away(path)


def check_conversations(path: Path) -> None:
    """Raise what an import would of a file that cannot be used. Changes nothing; a file that is not there is right."""
    if not path.exists():
        return
    try:
        check_writable(path)
        look(path, lambda db: _check(db, path.name))
    except OSError as error:
        raise StoreUnavailable(f'The conversations "{path.name}" cannot be read ({error.strerror}).') from None
    except sqlite3.Error as error:
        raise StoreUnavailable(f'The conversations "{path.name}" cannot be used ({error}).') from None


def _check(db: sqlite3.Connection, name: str) -> None:
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if not {"conversation", "turn"} <= tables or version > _NEWEST:
        raise UsageError(
            f'"{name}" is not the file of conversations of an earlier Handrail; move it away, or name another in [server].'
        )
    after = ""
    while batch := _batch(db, after, name):
        after = batch[-1].conversation.session_id


async def _import_conversations(path: Path, store: Store) -> None:
    db = await asyncio.to_thread(_open, path)
    if db is None:
        return  # another process has brought it over
    imported = 0
    try:
        source = await asyncio.to_thread(_source, db)
        after = await store.conversations.imported_until(source)
        while batch := await asyncio.to_thread(_batch, db, after, path.name):
            imported += await store.conversations.import_all(source, batch)
            after = batch[-1].conversation.session_id
    finally:
        db.close()
    _log.warning('%d conversations of "%s" were brought into the store.', imported, path.name)
    _put_away(path)


def _open(path: Path) -> sqlite3.Connection | None:
    """The file, which nobody else can use until the connection is closed; None if it is not there."""
    if not path.exists():
        return None
    db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # Without its log it is one file, which can be renamed. SQLite refuses while another process has it open.
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        # The file's own name: what was imported from it is known by that, wherever it is moved or copied.
        db.execute("CREATE TABLE IF NOT EXISTS imported (source TEXT NOT NULL)")
        db.execute("INSERT INTO imported SELECT ? WHERE NOT EXISTS (SELECT 1 FROM imported)", (token_hex(16),))
        db.execute("COMMIT")
        db.execute("BEGIN")
    except sqlite3.Error as error:
        db.close()
        raise StoreUnavailable(
            f'The conversations "{path.name}" cannot be brought into the store ({error}); end the server that uses them.'
        ) from None
    return db


def _source(db: sqlite3.Connection) -> str:
    return str(db.execute("SELECT source FROM imported").fetchone()[0])


def _batch(db: sqlite3.Connection, after: str, name: str) -> list[ImportedConversation]:
    columns = {row[1] for row in db.execute("PRAGMA table_info(conversation)")}
    has_openers = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'opener'").fetchone() is not None
    opened_with = "coalesce(opener.key, '')" if has_openers else "''"
    key = (
        f"CASE WHEN conversation.key <> '' THEN conversation.key ELSE {opened_with} END"
        if "key" in columns
        else opened_with
    )
    sealed = "coalesce(opener.sealed, '')" if has_openers else "''"
    join = "LEFT JOIN opener USING (session_id)" if has_openers else ""
    rows = db.execute(
        f"""SELECT session_id, tenant, user, passing, CAST(document AS BLOB), {key}, {sealed}, created, updated
            FROM conversation {join} WHERE session_id > ? ORDER BY session_id LIMIT ?""",  # noqa: S608
        (after, _MAX_BATCH),
    )
    found: list[ImportedConversation] = []
    size = 0
    for row in rows:
        try:
            found.append(_conversation(db, row))
        except (TypeError, ValueError, OverflowError, AttributeError):
            raise UsageError(
                f'The conversation of session "{row[0]}" in "{name}" is damaged, so nothing was brought into the store; '
                "delete that conversation from the file, or move the file away."
            ) from None
        size += len(row[4])
        if size > _MAX_BATCH_BYTES:
            break
    return found


def _conversation(db: sqlite3.Connection, row: tuple[Any, ...]) -> ImportedConversation:
    session_id, tenant, user, passing, document, key, sealed, created, updated = row
    # What people said comes as bytes: of text that is no UTF-8, SQLite's own error would show the words and not whose they are.
    turns = db.execute(
        """SELECT message_id, CAST(text AS BLOB), position, number, state, attempts, CAST(answer AS BLOB), last_event FROM turn
           WHERE session_id = ? ORDER BY position""",
        (session_id,),
    )
    return ImportedConversation(
        conversation=StoredConversation(
            session_id=session_id,
            tenant=tenant,
            user=user,
            passing=bool(passing),
            document=_object(document),
            key=key,
            turns=[
                StoredTurn(
                    message_id=one[0],
                    text=one[1].decode(),
                    position=one[2],
                    number=one[3],
                    state=one[4],
                    attempts=one[5],
                    answer=_object(one[6]),
                    last_event=one[7],
                )
                for one in turns
            ],
        ),
        sealed=sealed,
        created_at=round(created * 1_000),
        updated_at=round(updated * 1_000),
    )


def _object(text: bytes) -> dict[str, Any]:
    found = orjson.loads(text)
    if not isinstance(found, dict):
        raise TypeError(type(found))
    return found


def _put_away(path: Path) -> None:
    try:
        path.rename(path.with_name(path.name + DONE))
    except OSError as error:
        # It is not read again: the store knows that it came to the end of it.
        _log.warning(
            'The file "%s" could not be renamed (%s); it is no longer used, delete it.', path.name, error.strerror
        )
