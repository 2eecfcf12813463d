"""Prepared statements of ours, several of them as one trip to the server, by libpq's pipeline.

psycopg's own pipeline makes a cursor for each statement and turns each value into text by itself; for the few statements that
every writing call waits for, that took longer than the server takes to carry them out. Each of these takes one value: a JSON
document with all of its rows.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
import psycopg
from psycopg import errors
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus

from handrail.stores.postgres import dialect

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    from handrail.stores.postgres.connection import PostgresDatabase

_ANSWERED = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
Row = tuple[str | None, ...]


class PreparedStatement:
    """A statement of at most one value, which stands in it as `%s`. The server plans it once for each connection."""

    __slots__ = ("_for_psycopg", "name", "sql")

    def __init__(self, name: str, sql: str) -> None:
        self._for_psycopg = sql
        self.name: Final = f"handrail_{name}".encode()
        self.sql: Final = sql.replace("%s", "$1").encode()

    def execute(self, db: PostgresDatabase, document: Any) -> psycopg.Cursor[Any]:
        """Beside other statements of a transaction, by psycopg."""
        return db.connection.execute(self._for_psycopg, [orjson.dumps(document).decode()])


BEGIN: Final = PreparedStatement("begin", dialect.BEGIN)
COMMIT: Final = PreparedStatement("commit", "COMMIT")

BoundStatement = tuple[PreparedStatement, Any]
"""A statement, and the document that it is given, or None."""


def run_pipeline(db: PostgresDatabase, asked: Sequence[BoundStatement]) -> list[list[Row]]:
    """The rows that each statement has found, as text. The first that fails raises its error; none after it is carried out."""
    # Made before anything is sent: what cannot be written down must not leave half a pipeline behind.
    documents = [None if document is None else [orjson.dumps(document)] for _, document in asked]
    connection = db.connection.pgconn
    try:
        connection.enter_pipeline_mode()
        sent = 0
        new = dict[int, bytes]()
        for (statement, _), document in zip(asked, documents, strict=True):
            if statement.name not in db.prepared and statement.name not in new.values():
                connection.send_prepare(statement.name, statement.sql)
                new[sent] = statement.name
                sent += 1
            connection.send_query_prepared(statement.name, document)
            sent += 1
        connection.pipeline_sync()
        _flush(connection)
        results = _results(connection, sent)
        connection.exit_pipeline_mode()
    except BaseException:
        db.connection.close()  # nobody knows what the server still has to say
        raise
    found = list[list[Row]]()
    for place, result in enumerate(results):
        if result.status not in _ANSWERED:
            raise _error_of(result)
        if place in new:
            db.prepared.add(new[place])
        else:
            found.append(_rows(result))
    return found


def _flush(connection: PGconn) -> None:
    while connection.flush():
        # A server that cannot send its answers stops reading: whoever writes has to read as well.
        if _wait(connection, select.POLLIN | select.POLLOUT) & ~select.POLLOUT:
            connection.consume_input()


def _results(connection: PGconn, count: int) -> list[PGresult]:
    """Of as many statements, until the server has answered that there are no more."""
    results: list[PGresult] = []
    ended = False
    while True:
        # Asking for the result at once would wait too, but with the interpreter's lock in its hand.
        while connection.is_busy():
            _wait(connection, select.POLLIN)
            connection.consume_input()
        result = connection.get_result()
        if result is None:
            # One ends the results of a statement; a second in a row means that none will come any more.
            if ended or connection.status == ConnStatus.BAD:
                raise psycopg.OperationalError("the connection was lost")
            ended = True
        elif result.status != ExecStatus.PIPELINE_SYNC:
            ended = False
            results.append(result)
        elif len(results) == count:
            return results
        else:
            raise psycopg.OperationalError("the server did not answer each statement")


def _wait(connection: PGconn, events: int) -> int:
    poll = select.poll()
    poll.register(connection.socket, events)
    ((_, happened),) = poll.poll()
    return happened


def _rows(result: PGresult) -> list[Row]:
    columns = range(result.nfields)
    return [tuple(_text(result.get_value(row, column)) for column in columns) for row in range(result.ntuples)]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _error_of(result: PGresult) -> psycopg.Error:
    state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    message = result.get_error_message()
    try:
        return errors.lookup(state)(message)
    except KeyError:
        # A server that dies may say so without a state.
        return psycopg.DatabaseError(message) if state else psycopg.OperationalError(message)
