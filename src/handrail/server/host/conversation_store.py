"""Conversations on disk: what the model remembers of each session, and the turns as people see them.

One SQLite file beside the store. Everything that is asked for at once is committed together (`stores.worker`), so that many
turns at a time cost few waits for the disk. A turn is written before it begins and again when it has ended: one that is still
running although its process has ended was cut off, and is answered anew.

Several processes may share the file. Each conversation names its owner, the process that has the session, and only the owner
writes to it; another process takes it over when the owner is idle in it or has ended.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import orjson

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import StoreUnavailable
from handrail.server.host import session_openers as openers
from handrail.server.wire import to_json
from handrail.sqlite_files import check_writable, look
from handrail.stores.failures import is_busy
from handrail.stores.open_files import OpenFiles, check_names, make_private, real_path
from handrail.stores.worker import Job, Worker

T = TypeVar("T")
_MAX_COUNTS = 10_000
TurnState = Literal["running", "done", "failed", "cancelled"]
MAX_TURNS = 500
"""How many of the newest turns of a session are kept to be shown."""
_IMAGE = re.compile(r"img_[0-9a-f]{32}")
_EMPTY_SECONDS = 3_600.0
"""A conversation in which nothing was said for so long makes room for others."""
_COUNT_SECONDS = 10.0
"""So long the number of all conversations, and of a key's, is not counted anew."""
_START_SECONDS = 10.0
"""A start waits so long for other processes that start at the same moment."""
_LIMIT_SECONDS = 15.0
_VERSION = 2
_OWNED = (
    "ALTER TABLE conversation ADD COLUMN key TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversation ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversation ADD COLUMN live INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX conversation_key ON conversation (key)",
)
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
)
_BUSY = "(live OR EXISTS (SELECT 1 FROM turn WHERE turn.session_id = conversation.session_id AND state = 'running'))"
_EMPTY = "NOT EXISTS (SELECT 1 FROM turn WHERE turn.session_id = conversation.session_id)"


class Moved(HandrailError):
    """Another process has taken the session over; nothing was written."""


class QuotaExceeded(HandrailError):
    """There is no room for another conversation; `scope` is "user", "key" or "all"."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"As many conversations are kept as the limit of the scope {scope!r} allows.")
        self.scope = scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many conversations are kept at most."""

    in_all: int
    per_key: int
    per_user: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Who has a session, and what it does there."""

    owner: str
    live: bool
    """A voice conversation is on, or a tool is being tried."""
    running: str | None
    """The message that is being answered."""

    @property
    def busy(self) -> bool:
        return self.live or self.running is not None


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
    key: str = ""
    """The hash of the API key that it was opened with."""
    live: bool = False
    turns: list[StoredTurn] = field(default_factory=list)


class ConversationStore:
    """The file of conversations; `path` None keeps them in memory."""

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._path = real_path(path) if path is not None else None
        self._clock = clock
        self.owner = ""
        """The name under which this process has sessions; set before anything is written."""
        self._worker: Worker | None = None
        self._db: sqlite3.Connection | None = None
        self._files: OpenFiles | None = None
        self._counts: dict[str, tuple[int, float]] = {}

    @property
    def path(self) -> Path | None:
        return self._path

    async def open(self) -> None:
        if self._worker is None:
            db = self._db = await asyncio.to_thread(self._open_file)
            title = f'The file "{self._path.name}"' if self._path is not None else "The conversations"
            files = self._files = OpenFiles(self._path, title, db) if self._path is not None else None
            self._worker = Worker(
                "handrail-conversations", lambda batch: _carry_out(db, batch, files), title=title, limit=_LIMIT_SECONDS
            )

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.hand_over(asyncio.get_running_loop())
            ended = await asyncio.to_thread(worker.stop)
            assert self._db is not None
            if ended and not (self._files is not None and self._files.is_damaged):
                self._db.close()

    async def create(self, conversation: StoredConversation, quota: Quota | None = None) -> list[str]:
        """Keep a new conversation; the sessions of older ones of the same user that made room for it. `QuotaExceeded` if there
        is no room that is this user's own."""
        now = self._clock()
        values = (
            conversation.session_id, conversation.tenant, conversation.user, now, now, conversation.passing,
            to_json(conversation.document).decode(), conversation.key, self.owner, False,
        )  # fmt: skip

        def work(db: sqlite3.Connection) -> list[str]:
            gone = self._make_room(db, conversation, quota) if quota is not None else []
            db.execute("INSERT INTO conversation VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            return gone

        return await self._ask(work)

    async def load(self, session_id: str) -> StoredConversation | None:
        return await self._ask(lambda db: _load(db, session_id))

    async def turn(self, session_id: str, message_id: str) -> StoredTurn | None:
        """One turn with all of its answer."""
        return await self._ask(lambda db: next(_turns(db, session_id, message_id), None))

    async def owners(self, session_ids: Sequence[str]) -> dict[str, str]:
        """The owners of those of these conversations that are still kept."""
        return await self._ask(lambda db: _owners(db, session_ids))

    async def standing(self, session_id: str) -> Ownership | None:
        """Who has the session, and what it does there; None if no conversation is kept."""
        return await self._ask(lambda db: _standing(db, session_id))

    async def take(self, session_id: str, *, owner: str, though_busy: bool) -> bool:
        """Make this process the owner in place of `owner`, unless that is busy in it; `though_busy`: also then, because its
        process has ended. Whether it is ours now, and live: nobody takes it before the session has been resumed here."""
        where = f"session_id = ? AND owner = ? AND (? OR NOT {_BUSY})"
        statement = f"UPDATE conversation SET owner = ?, live = 1 WHERE {where}"  # noqa: S608 - our own conditions
        values = (self.owner, session_id, owner, though_busy)
        return await self._ask(lambda db: db.execute(statement, values).rowcount > 0)

    async def set_live(self, session_id: str, live: bool) -> None:
        """A voice conversation, or the trial of a tool, begins or ends: no other process takes the session meanwhile."""
        statement = "UPDATE conversation SET live = ? WHERE session_id = ? AND owner = ?"

        def work(db: sqlite3.Connection) -> None:
            if not db.execute(statement, (live, session_id, self.owner)).rowcount:
                _check_kept(db, session_id)

        await self._ask(work)

    async def changes(self, session_id: str, after: int) -> tuple[Ownership, list[StoredTurn]] | None:
        """Who has the session, and the turns that ended after this event; None if no conversation is kept."""

        def work(db: sqlite3.Connection) -> tuple[Ownership, list[StoredTurn]] | None:
            standing = _standing(db, session_id)
            if standing is None:
                return None
            turns = (one for one in _turns(db, session_id, after=after) if one.state != "running")
            return standing, sorted(turns, key=lambda one: one.last_event)

        return await self._ask(work)

    async def remember_opener(self, session_id: str, key: str, sealed: str) -> None:
        """Keep with which key it was opened, and its secret in a form that only that key opens."""
        await self._ask(lambda db: openers.remember(db, session_id, key, sealed))

    async def opened_with(self, key: str, user: str | None, maximum: int) -> list[openers.ListedConversation]:
        """The conversations of a user that were opened with a key, the newest first."""
        return await self._ask(lambda db: openers.listed(db, key, user, maximum))

    async def begin(self, session_id: str, turn: StoredTurn) -> None:
        """Write a turn down before it begins; one of the same message is begun again. `Moved` if another process has the
        session."""
        now = self._clock()

        def work(db: sqlite3.Connection) -> None:
            ours = "UPDATE conversation SET updated = ? WHERE session_id = ? AND owner = ?"
            if not db.execute(ours, (now, session_id, self.owner)).rowcount:
                _check_kept(db, session_id)
            db.execute(
                """INSERT INTO turn VALUES (?, ?, ?, ?, ?, 'running', ?, '{}', 0) ON CONFLICT DO UPDATE
                   SET state = 'running', attempts = excluded.attempts""",
                (session_id, turn.message_id, turn.position, turn.number, turn.text, turn.attempts),
            )
            db.execute(
                "DELETE FROM turn WHERE session_id = ? AND position <= ?", (session_id, turn.position - MAX_TURNS)
            )

        await self._ask(work)

    async def finish(self, session_id: str, turn: StoredTurn | None, document: dict[str, Any]) -> None:
        """Write down how a turn ended and what the model remembers now. `Moved` if another process has the session."""
        now, text = self._clock(), to_json(document).decode()
        values: tuple[Any, ...] = ()
        if turn is not None:
            told = (turn.message_id, turn.position, turn.number, turn.text, turn.state, turn.attempts)
            values = (*told, to_json(turn.answer).decode(), turn.last_event)

        def work(db: sqlite3.Connection) -> None:
            known = db.execute(
                "UPDATE conversation SET document = ?, updated = ? WHERE session_id = ? AND owner = ?",
                (text, now, session_id, self.owner),
            )
            if not known.rowcount:
                _check_kept(db, session_id)
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

    async def prune(self, *, unused_for: float) -> list[str]:
        """Delete conversations that nobody has continued for that many seconds."""
        before = self._clock() - unused_for
        return await self._ask(lambda db: _evict(db, "updated < ?", (before,), -1))

    async def try_writing(self) -> None:
        """A small transaction that writes and leaves nothing behind; raises what a message would be refused with."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO conversation VALUES ('', '', NULL, 0, 0, 0, '{}', '', '', 0)")
            _delete(db, "session_id = ''", ())

        await self._ask(work)

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
            check_names(path)
            check_writable(path)
            look(path, lambda db: _check(db, path.name))
        except OSError as error:
            raise StoreUnavailable(f'The conversations "{path.name}" cannot be opened ({error}).') from None
        except sqlite3.Error as error:
            raise _unusable(path.name, error) from None

    def _open_file(self) -> sqlite3.Connection:
        name = ":memory:" if self._path is None else str(self._path)
        try:
            if self._path is not None:
                check_names(self._path)
                # What people write is nobody else's business. SQLite gives its side files the same rights.
                make_private(self._path)
            db = sqlite3.connect(name, timeout=5, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f'The conversations "{Path(name).name}" cannot be opened ({error}).') from None
        try:
            _prepare_patiently(db, Path(name).name)
        except BaseException:
            db.close()
            raise
        return db

    # On the worker's thread

    def _make_room(self, db: sqlite3.Connection, new: StoredConversation, quota: Quota) -> list[str]:
        """Nobody's conversation is pushed out by another's: those that this user opened with this key make room, and those in
        which nothing was said. A key that speaks for any user could otherwise push out what its user opened with another."""
        gone: list[str] = []
        stale = self._clock() - _EMPTY_SECONDS
        mine, values = "tenant = ? AND user = ? AND key = ?", cast("tuple[Any, ...]", (new.tenant, new.user, new.key))
        if new.user is None:  # strangers to each other: only what is empty makes room
            mine, values = f"key = ? AND user IS NULL AND {_EMPTY}", (new.key,)
        over = _count(db, mine, values) + 1 - quota.per_user
        if over > 0:
            gone += _evict(db, f"{mine} AND NOT {_BUSY}", values, over)
            if len(gone) < over:
                raise QuotaExceeded("user")
        for scope, where, limit in (("key", "key = ?", quota.per_key), ("all", "1 OR ?", quota.in_all)):
            name, named = f"{scope}:{new.key if scope == 'key' else ''}", (new.key,)
            if self._counted(db, name, where, named) - len(gone) < limit:
                continue
            self._counts.pop(name, None)  # look closely before anybody is refused
            over = _count(db, where, named) + 1 - limit
            if over > 0:
                empty = f"({where}) AND updated < ? AND NOT live AND {_EMPTY}"
                freed = _evict(db, empty, (*named, stale), max(over, 100))
                if len(freed) < over:
                    freed += _evict(db, f"{mine} AND NOT {_BUSY}", values, over - len(freed))
                gone += freed
                if len(freed) < over:
                    raise QuotaExceeded(scope)
        return gone

    def _counted(self, db: sqlite3.Connection, name: str, where: str, values: tuple[Any, ...]) -> int:
        """How many there are, as far as this process knows: those that it makes itself are counted at once."""
        now = self._clock()
        count, then = self._counts.get(name, (0, 0.0))
        if not then <= now < then + _COUNT_SECONDS:
            if len(self._counts) > _MAX_COUNTS:
                self._counts.clear()
            count, then = _count(db, where, values), now
        self._counts[name] = (count + 1, then)
        return count


def _check(db: sqlite3.Connection, name: str) -> None:
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if (tables and "conversation" not in tables) or version > _VERSION:
        raise UsageError(
            f'"{name}" is a database of another program or of a newer Handrail; name another file for conversations.'
        )


def _unusable(name: str, error: sqlite3.Error) -> StoreUnavailable:
    return StoreUnavailable(f'The conversations "{name}" cannot be used ({error}).')


def _prepare_patiently(db: sqlite3.Connection, name: str) -> None:
    # Turning a new file to WAL fails at once, without the busy timeout, when another process is at it too.
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return _prepare(db, name)
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            if not is_busy(error) or time.monotonic() > deadline:
                raise _unusable(name, error) from None
        time.sleep(0.02)


def _prepare(db: sqlite3.Connection, name: str) -> None:
    _check(db, name)
    # NORMAL outlives the end of the process, not always a loss of power. That costs words, never a side effect: a turn
    # whose end was lost is answered anew under its message, and its writing calls meet their outcomes in the ledger.
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "secure_delete = ON"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("BEGIN IMMEDIATE")
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    for statement in (*(_TABLES if version == 0 else ()), *(_OWNED if version <= 1 else ())):
        db.execute(statement)
    for statement in (openers.TABLE, openers.INDEX):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")


def _carry_out(db: sqlite3.Connection, batch: Sequence[Job], files: OpenFiles | None) -> None:
    """One commit for everything that waits; a request that fails undoes nothing but itself."""
    try:
        if files is not None:
            files.check_content(db, untouched=True)
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
        if files is not None:
            files.check_content(db)  # what was committed to a file that is gone is not kept
    except (sqlite3.Error, StoreUnavailable) as error:
        for job in batch:
            job.error = _failure(error)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _failure(error: Exception) -> Exception:
    if isinstance(error, sqlite3.Error):
        return StoreUnavailable(f"The conversations could not be read or written ({error}).")
    if isinstance(error, StoreUnavailable):
        return StoreUnavailable(*error.args)  # one of its own for each task that waits
    return error


def _load(db: sqlite3.Connection, session_id: str) -> StoredConversation | None:
    row = db.execute(
        "SELECT tenant, user, passing, document, key, live FROM conversation WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        return None
    return StoredConversation(
        session_id=session_id,
        tenant=row[0],
        user=row[1],
        passing=bool(row[2]),
        document=orjson.loads(row[3]),
        key=row[4],
        live=bool(row[5]),
        turns=list(_turns(db, session_id)),
    )


def _turns(
    db: sqlite3.Connection, session_id: str, message_id: str | None = None, after: int = -1
) -> Iterator[StoredTurn]:
    """The turns of a session in their order, or the one of a message; those whose last event came after this one."""
    rows = db.execute(
        """SELECT message_id, text, position, number, state, attempts, answer, last_event FROM turn
           WHERE session_id = :session_id AND (:message_id IS NULL OR message_id = :message_id) AND last_event > :after
           ORDER BY position""",
        {"session_id": session_id, "message_id": message_id, "after": after},
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


def _owners(db: sqlite3.Connection, session_ids: Sequence[str]) -> dict[str, str]:
    # As one JSON value, because the number of parameters of a statement is limited.
    rows = db.execute(
        "SELECT session_id, owner FROM conversation WHERE session_id IN (SELECT value FROM json_each(?))",
        (orjson.dumps(list(session_ids)).decode(),),
    )
    return dict(rows.fetchall())


def _standing(db: sqlite3.Connection, session_id: str) -> Ownership | None:
    row = db.execute(
        """SELECT owner, live, (SELECT message_id FROM turn WHERE session_id = :session_id AND state = 'running')
           FROM conversation WHERE session_id = :session_id""",
        {"session_id": session_id},
    ).fetchone()
    return Ownership(owner=row[0], live=bool(row[1]), running=row[2]) if row is not None else None


def _check_kept(db: sqlite3.Connection, session_id: str) -> None:
    """Nothing of ours was found: raise if another process has it; one that is gone is passed over in silence."""
    if _owners(db, (session_id,)):
        raise Moved("Another process has taken this session over.")


def _count(db: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> int:
    return int(db.execute(f"SELECT count(*) FROM conversation WHERE {where}", values).fetchone()[0])  # noqa: S608


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


def _evict(db: sqlite3.Connection, where: str, values: tuple[Any, ...], limit: int) -> list[str]:
    """Delete conversations until the rest fits, empty ones first, then the oldest; the sessions that they belonged to."""
    old = [
        row[0]
        for row in db.execute(
            f"SELECT session_id FROM conversation WHERE {where} ORDER BY NOT {_EMPTY}, updated LIMIT ?",  # noqa: S608
            (*values, limit),
        )
    ]
    for session_id in old:
        _delete(db, "session_id = ?", (session_id,))
    return old
