"""Connections to the server: where it is and what each of them is set to, and one that is made again after it was lost."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores.postgres.dialect import translated, without_types
from handrail.stores.postgres.failures import POOLER, unreachable

_log = logging.getLogger("handrail.stores")
_OLDEST = 140_000
_SETTINGS = (
    "-c statement_timeout={} -c lock_timeout=2000 -c idle_in_transaction_session_timeout=10000 -c timezone=UTC "
    "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
)
"""A process that is frozen inside a transaction must not keep its locks for ever, nor a machine that is gone its connections: by
itself the server would look for it after two hours."""


class _Cursor(psycopg.Cursor[Any]):
    """In a pipeline, statements are sent without waiting. Who asks what one has found, or how many rows it has changed, waits."""

    @property
    def rowcount(self) -> int:
        if self.pgresult is None and self.connection.info.pipeline_status is not psycopg.pq.PipelineStatus.OFF:
            with self.connection.pipeline():
                pass  # a nested one waits for every answer
        return super().rowcount


class PostgresDatabase:
    """A connection as the functions of `statements` use it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.prepared = set[bytes]()
        """The names of our own prepared statements that the server knows."""

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> psycopg.Cursor[Any]:
        given: Any = (
            {name: without_types(value) for name, value in values.items()}
            if isinstance(values, Mapping)
            else [without_types(value) for value in values]
        )
        return self.connection.execute(translated(statement), given)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self.connection.pipeline():  # one trip for all of them
            for row in rows:
                self.execute(statement, row)

    @property
    def in_transaction(self) -> bool:
        return self.connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE

    def roll_back(self) -> None:
        if not self.connection.closed and self.in_transaction:
            self.connection.rollback()
            # In a pipeline that fails, psycopg counts statements as prepared that the server has never seen. It forgets them
            # with this, and drops them all on the server if there is one that it knows: so ours are dropped in any case.
            self.connection.execute("DEALLOCATE ALL")
            self.prepared.clear()


class ServerAddress:
    """Where the server is, with the password, which nothing else may know; and the name by which sentences call the store."""

    def __init__(self, url: str, noun: str = "store") -> None:
        try:
            self._parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # What psycopg says of it may hold the password.
            raise _unreadable(noun) from None
        ports = str(self._parts.get("port", "")).split(",")
        if any("@" in str(self._parts.get(part, "")) for part in ("dbname", "host")) or not all(
            port.isdecimal() for port in ports if port
        ):
            # A password with a slash or an @ in it, whose rest would be shown as the name of a database or a machine.
            raise _unreadable(noun)
        self._options = str(self._parts.pop("options", ""))
        if self._options.endswith("\\"):
            raise UsageError(
                f"The options in the URL of the {noun} end with a backslash, which would hide what follows."
            )
        self.database = str(self._parts.get("dbname") or self._parts.get("user") or "postgres")
        self.title = f'The {noun} "{self.database}"'

    def __repr__(self) -> str:
        return f'ServerAddress("{self.database}")'

    def connect(self, limit: float) -> PostgresDatabase:
        # Ours come last: what a URL sets may not take away what the promises need.
        options = f"{self._options} {_SETTINGS.format(int(limit * 1_000))}".strip()
        wanted: dict[str, Any] = {
            "connect_timeout": max(2, int(limit)), "application_name": "handrail",
            "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000,
        }  # fmt: skip
        try:
            return PostgresDatabase(
                psycopg.connect(
                    **{**wanted, **self._parts, "options": options, "client_encoding": "UTF8"},
                    autocommit=True,
                    cursor_factory=_Cursor,
                )
            )
        except psycopg.Error as error:
            raise unreachable(self.title, error, str(self._parts.get("password", ""))) from None


def _unreadable(noun: str) -> UsageError:
    return UsageError(f"The URL of the {noun} cannot be read; write postgresql://USER@HOST/DATABASE.")


class ReconnectingDatabase:
    """A connection that is made when it is first needed, and again after it was lost; not more often than once in a while."""

    def __init__(self, connect: Callable[[], PostgresDatabase], prepare: Callable[[PostgresDatabase], None]) -> None:
        """`prepare` is done with each connection before anything else."""
        self._connect = connect
        self._prepare = prepare
        self._db: PostgresDatabase | None = None
        self._wait = 0.0
        self._not_before = 0.0

    @property
    def is_open(self) -> bool:
        return self._db is not None and not self._db.connection.closed

    def get(self) -> PostgresDatabase:
        if self._db is None or self._db.connection.closed:
            # A server that is away, or refuses, is not asked in a tight loop; the thread that waits here is no event loop's.
            time.sleep(max(0.0, min(self._not_before - time.monotonic(), 1.0)))
            self._wait = min(self._wait * 2 + 0.05, 2.0)
            self._not_before = time.monotonic() + self._wait
            db = self._connect()
            try:
                # Checked each time, because the server behind an address may be another one after a failover.
                self._prepare(db)
            except BaseException:
                db.connection.close()
                raise
            self._db, self._wait = db, 0.0
        return self._db

    def close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(psycopg.Error):
                self._db.connection.close()
            self._db = None


# What is asked of a connection before it is used
def check_server(db: PostgresDatabase, title: str) -> None:
    if db.connection.info.server_version < _OLDEST:
        raise UsageError(
            f"{title} is on PostgreSQL {db.connection.info.server_version // 10_000}; 14 or newer is needed."
        )
    pid = db.connection.execute("SELECT pg_backend_pid()").fetchone()
    if pid is None or pid[0] != db.connection.info.backend_pid:
        raise UsageError(f"{title} {POOLER}.")


def warn_of_transport(db: PostgresDatabase, title: str) -> None:
    """Say what others could do on the way to a server on another machine. Whether that network can be trusted is not seen from
    here, so it is no refusal."""
    info = db.connection.info
    if _is_this_machine(info.host):
        return
    if not db.connection.pgconn.ssl_in_use:
        _log.warning(
            "%s is reached without TLS, so that whoever sits between reads everything; add sslmode=verify-full to its URL",
            title,
        )
    elif info.get_parameters().get("sslmode") not in ("verify-ca", "verify-full"):
        _log.warning(
            "%s is reached by TLS, but nobody checks its certificate; add sslmode=verify-full to its URL", title
        )


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost") or host.startswith(("/", "@"))


def check_durability(db: PostgresDatabase, title: str, refusal: type[HandrailError] = StoreUnavailable) -> None:
    """For every connection that writes: the URL, the role and the database may all set it, at any time."""
    (durable,) = db.connection.execute("SHOW synchronous_commit").fetchone() or ("on",)
    if durable in ("off", "local"):
        raise refusal(
            f'{title} has synchronous_commit = {durable}, which loses calls that were answered; set it to "on".'
        )


def warn_of_lost_writes(db: PostgresDatabase, title: str) -> None:
    """No refusal, because only whoever runs the server can set these, and on a server for tests they may well be off."""
    row = db.connection.execute("SELECT current_setting('fsync'), current_setting('full_page_writes')").fetchone()
    off = [name for name, value in zip(("fsync", "full_page_writes"), row or (), strict=False) if value == "off"]
    if off:
        _log.warning(
            '%s has %s = off, which loses calls that were answered when its machine fails; set it to "on"',
            title,
            " and ".join(off),
        )


def read_only(db: PostgresDatabase, title: str) -> None:
    """For a connection that only reads: of the server that takes writes, because a standby may be behind what was answered."""
    if db.connection.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
        raise StoreUnavailable(
            f"{title} is a standby, which may be behind what was answered; name the primary in its URL."
        )
    db.connection.execute("SET default_transaction_read_only = on")


def plan_by_index(db: PostgresDatabase) -> None:
    """For a connection that writes: everything it looks for has an index. Plans are kept, and one that was made while a table was
    small would read the whole of it with each call when it has grown, until the server happens to count its rows."""
    for method in ("seqscan", "hashjoin", "mergejoin", "hashagg"):
        db.connection.execute(f"SET enable_{method} = off")
    # Before PostgreSQL 18, a method that is off and used all the same is reckoned so expensive that the server compiles the plan,
    # which takes longer than to carry it out.
    db.connection.execute("SET jit = off")
