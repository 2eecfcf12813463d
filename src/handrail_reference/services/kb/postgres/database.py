"""The base in PostgreSQL: a connection for each thread, made again after it was lost. Transactions that write follow each other,
whichever process they are of, so that everything else is as it is with a file.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, TypeVar

import psycopg

from handrail.errors import HandrailError, ServiceError, UsageError
from handrail.postgres_servers import as_sentence, connect, loses_connection, title_of
from handrail_reference.services.kb.port import KbTooSlow, KbUnavailable
from handrail_reference.services.kb.postgres import tables
from handrail_reference.services.kb.postgres.connection import PostgresKnowledge
from handrail_reference.services.kb.postgres.full_text import Stems
from handrail_reference.services.kb.threads import KnowledgeThreads, Request

if TYPE_CHECKING:
    from handrail_reference.services.kb.vectors import VectorSearch

T = TypeVar("T")
_LOG = logging.getLogger("handrail.kb")
_NOUN = "knowledge base"
_SECONDS = 30.0
"""So long one statement may take."""


class PostgresKnowledgeBase(KnowledgeThreads):
    """A knowledge base in a schema of its own. Nothing is opened before it is used; an exception of `psycopg` never leaves it."""

    def __init__(self, url: str, *, schema: str = "") -> None:
        """Without a `schema` it is `handrail_kb`; where the URL puts the store into a schema NAME, it is `NAME_kb`."""
        super().__init__()
        self._url = url
        self._schema = schema
        self._title = title_of(url, _NOUN)
        self.name = self._title.removeprefix(f"The {_NOUN} ").strip('"')
        self._stems = Stems()
        self._mine = threading.local()
        self._connections: list[PostgresKnowledge] = []
        self._lock = threading.Lock()
        self._searches = 0
        self._without_pgvector = ""

    def __repr__(self) -> str:
        return f'PostgresKnowledgeBase("{self.name}")'

    def check(self, message: str) -> str:
        db = self._open()
        try:
            made = tables.version_of(db)
            has_vectors = made and db.holds_halfvec()
            found = tables.pgvector_version(db)
        except psycopg.Error as error:
            raise self._sentence(error) from None
        finally:
            self._close(db)
        said = [f'in the database "{self.name}"' + ("" if made else ", made when it is first needed")]
        if has_vectors or (not made and tables.has_halfvec(found)):
            said.append(f"pgvector {found}")
        elif made:
            said.append("without pgvector, so that each process compares all vectors itself")
        return "; ".join([*([message] if message else []), *said])

    def is_there(self) -> bool:
        db = self._open()
        try:
            return tables.version_of(db) > 0
        except psycopg.Error as error:
            raise self._sentence(error) from None
        finally:
            self._close(db)

    def scrub(self) -> None:
        """The server removes what was deleted when it vacuums; its log and its backups are the operator's."""

    def vector_search(self, space: str, dimensions: int) -> VectorSearch:
        # numpy only with embeddings
        from handrail_reference.services.kb.postgres.vectors import PgvectorSearch  # noqa: PLC0415
        from handrail_reference.services.kb.vectors import VectorIndex  # noqa: PLC0415

        if self._mine_now().holds_halfvec():
            return PgvectorSearch(space, dimensions)
        _LOG.warning(
            "The knowledge base compares all of its vectors in each process, because %s.",
            self._without_pgvector or "this role may not change its tables",
        )
        return VectorIndex(space, dimensions)

    # On the threads

    def _read(self, request: Request[T]) -> T:
        with self._lock:
            self._searches += 1
        try:
            return self._read_patiently(request)
        finally:
            with self._lock:
                self._searches -= 1

    def _read_patiently(self, request: Request[T]) -> T:
        for is_last in (False, True):
            db = self._mine_now()
            try:
                return request(db)
            except psycopg.Error as error:
                lost = loses_connection(error) or db.connection.closed
                if lost:
                    self._forget_mine()
                if isinstance(error, psycopg.errors.QueryCanceled) and getattr(request, "is_stopped", False):
                    raise KbTooSlow("The search was stopped because it was past its time.") from None
                # What was read can be read again: on a new connection, or where the stop was meant for the search before.
                if is_last or not (lost or isinstance(error, psycopg.errors.QueryCanceled)):
                    raise self._sentence(error) from None
            finally:
                db.end()
        raise AssertionError("the last attempt returns or raises")

    def _write(self, request: Request[T]) -> T:
        db = self._begin()
        try:
            result = request(db)
            db.commit()
        except psycopg.Error as error:
            if loses_connection(error) or db.connection.closed:
                self._forget_mine()
            raise self._sentence(error) from None
        finally:
            db.end()
        return result

    def _begin(self) -> PostgresKnowledge:
        """A transaction. The connection may have been lost since it was last used; nothing is done by then."""
        for is_last in (False, True):
            db = self._mine_now()
            try:
                db.begin()
            except psycopg.Error as error:
                db.end()
                if not loses_connection(error) or is_last:
                    raise self._sentence(error) from None
                self._forget_mine()
            else:
                return db
        raise AssertionError("the last attempt returns or raises")

    def _mine_now(self) -> PostgresKnowledge:
        """The connection of this thread, to tables that are as they should be."""
        db: PostgresKnowledge | None = getattr(self._mine, "db", None)
        if db is None or db.connection.closed:
            self._forget_mine()
            db = self._open()
            try:
                self._prepare(db)
            except psycopg.Error as error:
                self._close(db)
                raise self._sentence(error) from None
            except BaseException:
                self._close(db)
                raise
            self._mine.db = db
        return db

    def _prepare(self, db: PostgresKnowledge) -> None:
        is_current = tables.is_current(db)
        if is_current and db.holds_halfvec():
            return
        try:
            db.connection.execute("BEGIN")
            if not is_current:
                tables.migrate(db)
            db.connection.execute("LOCK TABLE fact IN EXCLUSIVE MODE")
            self._without_pgvector = tables.install_pgvector(db)
            if not self._without_pgvector:
                db.set_search_path()
                tables.use_pgvector(db)
            db.connection.execute("COMMIT")
        except psycopg.errors.InsufficientPrivilege:
            db.end()
            if not is_current:
                raise UsageError(
                    f"{self._title} has no tables yet, and this role may not make them; grant it CREATE on the database, or let "
                    f'an administrator run `CREATE SCHEMA "{self._schema}" AUTHORIZATION` for it.'
                ) from None
        except (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.LockNotAvailable):
            db.end()
            if not is_current:
                raise  # a standby that has the tables can be searched; the vectors stay as they are

    def _open(self) -> PostgresKnowledge:
        try:
            connection = connect(self._url, _NOUN, seconds=_SECONDS)
        except ServiceError as error:
            raise KbUnavailable(str(error)) from None
        connection.prepare_threshold = None  # most statements are made for one query
        try:
            connection.execute("SET lock_timeout = 5000")
            if not self._schema:
                (current,) = connection.execute("SELECT current_schema()").fetchone() or (None,)
                self._schema = f"{current}_kb" if current not in (None, "public") else "handrail_kb"
            db = PostgresKnowledge(connection, title=self._title, schema=self._schema, stems=self._stems)
        except psycopg.Error as error:
            connection.close()
            raise self._sentence(error) from None
        db.is_searched_beside = lambda: self._searches > 0
        with self._lock:
            self._connections.append(db)
        return db

    def _close(self, db: PostgresKnowledge) -> None:
        db.connection.close()
        with self._lock:
            if db in self._connections:
                self._connections.remove(db)

    def _forget_mine(self) -> None:
        db: PostgresKnowledge | None = getattr(self._mine, "db", None)
        self._mine.db = None
        if db is not None:
            self._close(db)

    def _close_connections(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, []
        for db in connections:
            db.connection.close()

    def _sentence(self, error: psycopg.Error) -> HandrailError:
        sentence = as_sentence(self._title, error)
        return sentence if isinstance(sentence, UsageError) else KbUnavailable(str(sentence))
