"""The file: one connection that writes, on a thread of its own, and a few that read, each on the thread that uses it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from handrail.errors import UsageError
from handrail.sqlite_files import check_database, look, make_private, scrub
from handrail_reference.services.kb.connection import ComputeTurn
from handrail_reference.services.kb.errors import as_sentence, is_interrupted
from handrail_reference.services.kb.fts5 import Fts5Index
from handrail_reference.services.kb.port import KbTooSlow, KbUnavailable
from handrail_reference.services.kb.tables import checked_version, is_current, migrate
from handrail_reference.services.kb.threads import KnowledgeThreads, Request

if TYPE_CHECKING:
    from handrail_reference.services.kb.vectors import VectorSearch

T = TypeVar("T")
_BUSY_SECONDS = 5.0
_START_SECONDS = 10.0
_OLDEST = (3, 35, 0)
_READING = ("PRAGMA query_only = ON", "PRAGMA mmap_size = 268435456")
_MAX_REMEMBERED = 50_000


class SqliteKnowledge(sqlite3.Connection):
    """A connection that remembers what is dear to count, until the file changes."""

    batch = 1

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.turn = ComputeTurn(threading.Lock())
        self.is_searched_beside: Callable[[], bool] = lambda: False
        self._version = -1
        self._is_snapshot = False
        self._remembered: dict[object, Any] = {}

    @property
    def words(self) -> Fts5Index:
        return Fts5Index(self)

    def each(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[Any]:
        return [self.execute(statement, row).fetchone() for row in rows]

    def insert_each(self, statement: str, number: str, rows: Iterable[Sequence[Any]]) -> list[int]:
        # RETURNING would open a savepoint for each row, and at each savepoint FTS5 writes what it has gathered as a segment of
        # its own: every later search would look in all of them.
        return [int(self.execute(statement, row).lastrowid or 0) for row in rows]

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        return iter(self.execute(statement, values))

    def remembered(self, what: object, find: Callable[[], T]) -> T:
        if not self._is_snapshot:
            self._look_at_version()
        if what not in self._remembered:
            self._remembered[what] = find()
        found: T = self._remembered[what]
        return found

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self.execute("BEGIN")
        try:
            self._look_at_version()  # a read: what follows sees the state that it has seen
            self._is_snapshot = True
            yield
        finally:
            self._is_snapshot = False
            if self.in_transaction:
                self.execute("COMMIT")

    def _look_at_version(self) -> None:
        version = self.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or len(self._remembered) > _MAX_REMEMBERED:
            self._version = version
            self._remembered = {}

    def put_vectors(self, space: int, vectors: Sequence[tuple[int, bytes]]) -> int:
        stored = 0
        for piece, data in vectors:
            stored += self.execute(
                "INSERT OR REPLACE INTO vector (piece, space, data) SELECT id, ?, ? FROM piece WHERE id = ?",
                (space, data, piece),
            ).rowcount
        return stored

    def index_vectors(self, space: int, dimensions: int) -> None:
        """They are compared in memory."""

    def bytes_used(self) -> int:
        pages, size = (self.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages) * int(size)


class KnowledgeDatabase(KnowledgeThreads):
    """A knowledge base on disk. Nothing is opened before it is used; an exception of `sqlite3` never leaves it."""

    def __init__(self, path: Path, *, busy_seconds: float = _BUSY_SECONDS) -> None:
        super().__init__()
        self.path = path.absolute()
        self.name = self.path.name
        self._busy = busy_seconds
        self._writer: SqliteKnowledge | None = None
        self._mine = threading.local()
        self._readers: list[SqliteKnowledge] = []
        self._lock = threading.Lock()
        self._computing = threading.Lock()

    def check(self, message: str) -> str:
        return check_database(self.path, self.look, message)

    def is_there(self) -> bool:
        return self.path.exists()  # a folder too: whoever opens it learns that it is one

    def scrub(self) -> None:
        scrub(self.path)

    def vector_search(self, space: str, dimensions: int) -> VectorSearch:
        from handrail_reference.services.kb.vectors import VectorIndex  # noqa: PLC0415 - numpy only with embeddings

        return VectorIndex(space, dimensions)

    def _close_connections(self) -> None:
        with self._lock:
            connections = [*self._readers, *([self._writer] if self._writer else [])]
            self._readers, self._writer = [], None
        for db in connections:
            db.close()

    def look(self) -> None:
        """Raise what a command would say of a file that cannot be used. Changes nothing; a file that is not there is right."""
        self._check_place()
        if not self.path.exists():
            return
        try:
            look(self.path, lambda db: checked_version(db, self.path.name))
        except sqlite3.Error as error:
            raise as_sentence(self.path.name, error) from None

    # On the threads

    def _read(self, request: Request[T]) -> T:
        try:
            db = getattr(self._mine, "db", None)
            if db is None:
                db = self._mine.db = self._open_reader()
                db.turn = ComputeTurn(self._computing)
                with self._lock:
                    self._readers.append(db)
            db.turn.take()
            try:
                return request(db)
            finally:
                db.turn.give()
        except sqlite3.Error as error:
            if is_interrupted(error):
                raise KbTooSlow("The search was stopped because it was past its time.") from None
            raise as_sentence(self.path.name, error) from None

    def _write(self, request: Request[T]) -> T:
        db = self._open_writer()
        try:
            db.execute("BEGIN IMMEDIATE")
            result = request(db)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise as_sentence(self.path.name, error) from None
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
        return result

    def _open_reader(self) -> SqliteKnowledge:
        """A connection that reads. Tables that are missing or old are made by the writer first, so that they are made once;
        a file that is as it should be is read whoever holds its lock, and where this user may not write it."""
        for read_only in (False, True):
            db = self._current(read_only=read_only)
            if db is not None:
                return db
        self._submit(self._writing, self._open_writer).result()
        return self._connect(*_READING)

    def _current(self, *, read_only: bool) -> SqliteKnowledge | None:
        """A connection to a file that is current; None where the writer has to look at it."""
        try:
            if not self.path.is_file() or (read_only and not self._is_settled()):
                return None
        except OSError:
            return None  # not even to be looked at; the writer says why
        try:
            db = self._connect(*_READING, read_only=read_only)
        except sqlite3.Error:
            return None
        try:
            if is_current(db, self.path.name):
                return db
        except (sqlite3.Error, UsageError):
            pass  # the writer finds the same, and says it
        db.close()
        return None

    def _is_settled(self) -> bool:
        """Whether we may not write the file, and nobody else has written what is not in it yet."""
        waiting = self.path.with_name(self.path.name + "-wal")
        return not os.access(self.path, os.W_OK) and not waiting.exists()

    def _open_writer(self) -> SqliteKnowledge:
        if self._writer is None:
            self._make_file()
            self._writer = self._patiently()
            self._writer.is_searched_beside = self._computing.locked
        return self._writer

    def _check_place(self) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise UsageError(f"A knowledge base needs SQLite 3.35 or newer; this Python has {sqlite3.sqlite_version}.")
        if not self.path.parent.is_dir():
            raise UsageError(f'The folder "{self.path.parent.name}" of the knowledge base is not there; make it first.')
        if self.path.is_dir():
            raise UsageError(f'"{self.path.name}" is a folder; name a file for the knowledge base.')

    def _make_file(self) -> None:
        self._check_place()
        try:
            # Personal records are nobody else's business. SQLite gives its side files the same rights.
            make_private(self.path)
        except OSError as error:
            raise KbUnavailable(
                f'The knowledge base "{self.path.name}" cannot be opened for writing ({error.strerror}).'
            ) from None

    def _patiently(self) -> SqliteKnowledge:
        # Turning a new file to WAL fails at once, without the busy timeout, when another process is at it too.
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                db = self._connect(
                    "PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", "PRAGMA cache_size = -65536"
                )
                try:
                    migrate(db, self.path.name)
                except BaseException:
                    db.close()
                    raise
                return db
            except sqlite3.Error as error:
                sentence = as_sentence(self.path.name, error)
                if "locked" not in str(sentence) or time.monotonic() > deadline:
                    raise sentence from None
            time.sleep(0.02)

    def _connect(self, *pragmas: str, read_only: bool = False) -> SqliteKnowledge:
        # In a folder that may not be written, SQLite reads only a file of which it is told that it stays as it is.
        place = f"{self.path.as_uri()}?mode=ro&immutable=1" if read_only else self.path
        db = sqlite3.connect(
            place,
            timeout=self._busy,
            isolation_level=None,
            check_same_thread=False,
            factory=SqliteKnowledge,
            uri=read_only,
        )
        try:
            for pragma in pragmas:
                db.execute(pragma)
        except BaseException:
            db.close()
            raise
        return db
