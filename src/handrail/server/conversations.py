"""Conversations on disk: what the model remembers of each session, and the turns as people see them.

One SQLite file beside the store. Everything that is asked for at once is committed together (`stores.worker`), so that many
turns at a time cost few waits for the disk. A turn is written before it begins and again when it has ended: one that is still
running when the server starts was cut off, and is answered anew.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable
from handrail.server.wire import to_json
from handrail.services.looking import look
from handrail.stores.worker import Job, Worker

T = TypeVar("T")
TurnState = Literal["running", "done", "failed", "cancelled"]
MOST_TURNS = 500
"""Of each session, so many of the newest turns are kept to be shown."""
_IMAGE = re.compile(r"img_[0-9a-f]{32}")
_VERSION = 1
_TABLES = (
    """CREATE TABLE conversation (
        session_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, user TEXT, created REAL NOT NULL, updated REAL NOT NULL,
        passing INTEGER NOT NULL, document TEXT NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX conversation_user ON conversation (tenant, user)",
    "CREATE INDEX conversation_updated ON conversation (updated)",
    """CREATE TABLE turn (
        session_id TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE, message_id TEXT NOT NULL,
        position INTEGER NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL,
        attempts INTEGER NOT NULL, answer TEXT NOT NULL, last_event INTEGER NOT NULL,
        PRIMARY KEY (session_id, message_id)) WITHOUT ROWID""",
    f"PRAGMA user_version = {_VERSION}",
)


@dataclass(slots=True, kw_only=True)
class StoredTurn:
    """A message and its answer, as people see them."""

    message_id: str
    text: str
    position: int = 0
    number: int = 0
    state: TurnState = "running"
    attempts: int = 1
    answer: dict[str, Any] = field(default_factory=dict)
    """`text`, `toolCards`, `citations`, `error`, as far as there are any."""
    last_event: int = 0


@dataclass(slots=True, kw_only=True)
class StoredConversation:
    """Everything that is kept of a session."""

    session_id: str
    tenant: str
    user: str | None
    passing: bool
    document: dict[str, Any]
    turns: list[StoredTurn] = field(default_factory=list)


class Conversations:
    """The file of conversations; `path` None keeps them in memory."""

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._path = path.absolute() if path is not None else None
        self._clock = clock
        self._worker: Worker | None = None
        self._db: sqlite3.Connection | None = None

    async def open(self) -> None:
        if self._worker is None:
            db = self._db = await asyncio.to_thread(self._open_file)
            self._worker = Worker("handrail-conversations", lambda batch: _carry_out(db, batch))

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.hand_over(asyncio.get_running_loop())
            await asyncio.to_thread(worker.stop)
            assert self._db is not None
            self._db.close()

    async def create(self, conversation: StoredConversation) -> None:
        now = self._clock()
        values = (
            conversation.session_id, conversation.tenant, conversation.user, now, now, conversation.passing,
            to_json(conversation.document).decode(),
        )  # fmt: skip
        await self._ask(lambda db: db.execute("INSERT INTO conversation VALUES (?, ?, ?, ?, ?, ?, ?)", values))

    async def load(self, session_id: str) -> StoredConversation | None:
        return await self._ask(lambda db: _load(db, session_id))

    async def turn(self, session_id: str, message_id: str) -> StoredTurn | None:
        """One turn with all of its answer."""
        return await self._ask(lambda db: next(_turns(db, session_id, message_id), None))

    async def has(self, session_id: str) -> bool:
        """Whether a conversation is still kept; one that cannot be asked for at the moment is taken to be."""
        try:
            return await self._ask(lambda db: _has(db, session_id))
        except StoreUnavailable:
            return True

    async def begin(self, session_id: str, turn: StoredTurn) -> None:
        """Write a turn down before it begins; one of the same message is begun again."""
        now = self._clock()

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                """INSERT INTO turn VALUES (?, ?, ?, ?, ?, 'running', ?, '{}', 0) ON CONFLICT DO UPDATE
                   SET state = 'running', attempts = excluded.attempts""",
                (session_id, turn.message_id, turn.position, turn.number, turn.text, turn.attempts),
            )
            db.execute("UPDATE conversation SET updated = ? WHERE session_id = ?", (now, session_id))
            db.execute(
                "DELETE FROM turn WHERE session_id = ? AND position <= ?", (session_id, turn.position - MOST_TURNS)
            )

        await self._ask(work)

    async def finish(self, session_id: str, turn: StoredTurn | None, document: dict[str, Any]) -> None:
        """Write down how a turn ended and what the model remembers now."""
        now, text = self._clock(), to_json(document).decode()
        values = _columns(turn) if turn is not None else ()

        def work(db: sqlite3.Connection) -> None:
            known = db.execute(
                "UPDATE conversation SET document = ?, updated = ? WHERE session_id = ?", (text, now, session_id)
            )
            if values and known.rowcount:  # of a session that was forgotten meanwhile nothing is kept
                db.execute(
                    """INSERT INTO turn VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
                       SET number = excluded.number, state = excluded.state, answer = excluded.answer,
                       last_event = excluded.last_event""",
                    (session_id, *values),
                )

        await self._ask(work)

    async def delete(self, session_id: str) -> bool:
        return await self._ask(lambda db: _delete(db, "session_id = ?", (session_id,)) > 0)

    async def forget(self, tenant: str, user: str) -> tuple[int, set[str]]:
        """Delete every conversation of a user; how many, and the images that only those mentioned."""
        return await self._ask(lambda db: _forget(db, tenant, user))

    async def prune(self, *, unused_for: float, most: int) -> list[str]:
        """Delete conversations that nobody has gone on with for so many seconds, and the oldest above `most`."""
        before = self._clock() - unused_for
        return await self._ask(lambda db: _prune(db, before, most))

    async def _ask(self, request: Callable[[sqlite3.Connection], T]) -> T:
        if self._worker is None:
            raise StoreUnavailable("The conversations are not open.")
        return await self._worker.submit(request)

    def look(self) -> None:
        """Raise what `open` would of a file that cannot be used. Changes nothing; a file that is not there is right."""
        path = self._path
        if path is None or not path.exists():
            return
        try:
            os.close(os.open(path, os.O_RDWR))
            look(path, lambda db: _check(db, path.name))
        except OSError as error:
            raise StoreUnavailable(f'The conversations "{path.name}" cannot be opened ({error}).') from None
        except sqlite3.Error as error:
            raise _unusable(path.name, error) from None

    def _open_file(self) -> sqlite3.Connection:
        name = ":memory:" if self._path is None else str(self._path)
        try:
            if self._path is not None:
                # What people write is nobody else's business. SQLite gives its side files the same rights.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            db = sqlite3.connect(name, timeout=5, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f'The conversations "{Path(name).name}" cannot be opened ({error}).') from None
        try:
            _prepare(db, Path(name).name)
        except BaseException:
            db.close()
            raise
        return db


def _check(db: sqlite3.Connection, name: str) -> None:
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if (tables and "conversation" not in tables) or version > _VERSION:
        raise UsageError(
            f'"{name}" is a database of another program or of a newer Handrail; name another file for conversations.'
        )


def _unusable(name: str, error: sqlite3.Error) -> StoreUnavailable:
    return StoreUnavailable(f'The conversations "{name}" cannot be used ({error}).')


def _prepare(db: sqlite3.Connection, name: str) -> None:
    try:
        _check(db, name)
        # NORMAL outlives the end of the process, not always a loss of power. That costs words, never a side effect: a turn
        # whose end was lost is answered anew under its message, and its writing calls meet their outcomes in the ledger.
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "secure_delete = ON"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("BEGIN IMMEDIATE")
        if int(db.execute("PRAGMA user_version").fetchone()[0]) == 0:
            for statement in _TABLES:
                db.execute(statement)
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise _unusable(name, error) from None


def _carry_out(db: sqlite3.Connection, batch: Sequence[Job]) -> None:
    """One commit for everything that waits; a request that fails undoes nothing but itself."""
    try:
        db.execute("BEGIN IMMEDIATE")
        for job in batch:
            db.execute("SAVEPOINT request")
            try:
                job.outcome = job.request(db)
            except Exception as error:  # noqa: BLE001  # it belongs to the one that asked
                job.error = _failure(error)
                db.execute("ROLLBACK TO request")
            db.execute("RELEASE request")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        for job in batch:
            job.error = _failure(error)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _failure(error: Exception) -> Exception:
    if isinstance(error, sqlite3.Error):
        return StoreUnavailable(f"The conversations could not be read or written ({error}).")
    return error


def _load(db: sqlite3.Connection, session_id: str) -> StoredConversation | None:
    row = db.execute(
        "SELECT tenant, user, passing, document FROM conversation WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        return None
    return StoredConversation(
        session_id=session_id,
        tenant=row[0],
        user=row[1],
        passing=bool(row[2]),
        document=orjson.loads(row[3]),
        turns=list(_turns(db, session_id)),
    )


def _turns(db: sqlite3.Connection, session_id: str, message_id: str | None = None) -> Iterator[StoredTurn]:
    """The turns of a session in their order, or the one of a message."""
    rows = db.execute(
        """SELECT message_id, text, position, number, state, attempts, answer, last_event FROM turn
           WHERE session_id = ?1 AND (?2 IS NULL OR message_id = ?2) ORDER BY position""",
        (session_id, message_id),
    )
    for one in rows:
        yield StoredTurn(
            message_id=one[0],
            text=one[1],
            position=one[2],
            number=one[3],
            state=one[4],
            attempts=one[5],
            answer=orjson.loads(one[6]),
            last_event=one[7],
        )


def _has(db: sqlite3.Connection, session_id: str) -> bool:
    return db.execute("SELECT 1 FROM conversation WHERE session_id = ?", (session_id,)).fetchone() is not None


def _columns(turn: StoredTurn) -> tuple[Any, ...]:
    answer = to_json(turn.answer).decode()
    told = (turn.message_id, turn.position, turn.number, turn.text, turn.state, turn.attempts)
    return (*told, answer, turn.last_event)


def _delete(db: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> int:
    return db.execute(f"DELETE FROM conversation WHERE {where}", values).rowcount  # noqa: S608 - our own conditions


def _forget(db: sqlite3.Connection, tenant: str, user: str) -> tuple[int, set[str]]:
    images = _images(db, "tenant = ? AND user = ?", (tenant, user))
    deleted = _delete(db, "tenant = ? AND user = ?", (tenant, user))
    return deleted, images - _images(db, "1", ()) if images else set()


def _images(db: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> set[str]:
    """The ids of images in the texts of conversations."""

    found: set[str] = set()
    for (text,) in db.execute(
        f"""SELECT document FROM conversation WHERE {where} UNION ALL
            SELECT answer FROM turn WHERE session_id IN (SELECT session_id FROM conversation WHERE {where})""",  # noqa: S608
        values + values,
    ):
        found.update(_IMAGE.findall(text))
    return found


def _prune(db: sqlite3.Connection, before: float, most: int) -> list[str]:
    old = [
        row[0]
        for row in db.execute(
            """SELECT session_id FROM conversation WHERE updated < ? UNION
               SELECT session_id FROM (SELECT session_id FROM conversation ORDER BY updated DESC LIMIT -1 OFFSET ?)""",
            (before, most),
        )
    ]
    for session_id in old:
        _delete(db, "session_id = ?", (session_id,))
    return old
