"""Whose clock counts, and who lives. An owner shows that it lives by an advisory lock on a connection of its own, which the
server frees when the connection ends, and by a row that it writes again and again, which a frozen process cannot."""

# ruff: noqa: S608 - what is put into SQL is our own expression of the time

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores import owners
from handrail.stores.postgres.connection import PostgresDatabase, ReconnectingDatabase
from handrail.stores.postgres.dialect import NOW
from handrail.stores.postgres.failures import first_line
from handrail.stores.postgres.locking import advisory_number
from handrail.stores.statements.transaction import Life

_log = logging.getLogger("handrail.stores")
_BEAT_SECONDS = 2.0
_AGAIN_SECONDS = 0.5
"""After a beat that failed: an owner that was cut off for a moment shows that it lives before others take it for dead."""
_FRESH_MS = 10_000
"""A heartbeat that is younger shows that its owner lives. One that has lost its lock must have beaten within half of it."""
_FROZEN_SECONDS = 10.0
"""Whose own last beat is older did nothing for a while, and has not seen what others did meanwhile."""
_LOCK = """locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) | objid::bigint = ?"""
"""An advisory lock of this database, by its number, as `pg_locks` shows it."""


class ServerClock:
    """Milliseconds since 1970 on the server's clock: read at every heartbeat, and counted on by this machine's monotonic clock,
    which nobody can set."""

    def __init__(self) -> None:
        self._ahead = time.time() * 1_000 - time.monotonic() * 1_000
        self._error = float("inf")
        """How wrong it may be, in milliseconds: the reading took twice as long."""

    def __call__(self) -> int:
        return int(time.monotonic() * 1_000 + self._ahead)

    def read(self, db: PostgresDatabase) -> None:
        before = time.monotonic()
        (now,) = db.connection.execute(f"SELECT {NOW}").fetchone() or (0,)
        after = time.monotonic()
        # The server read its clock somewhere between the two moments: in the middle, give or take half of the time that it
        # took.
        ahead, error = now - (before + after) * 500, (after - before) * 500 + 1
        # A reading that was slow tells nothing new if it fits to a quicker one.
        if error <= self._error or abs(ahead - self._ahead) > error + self._error:
            self._ahead, self._error = ahead, error


class Heartbeat:
    """The owners of this process, each with its lock and its row, on a thread and a connection of its own."""

    def __init__(self, database: ReconnectingDatabase, clock: ServerClock, title: str) -> None:
        self._database = database
        self._clock = clock
        self._title = title
        self._owners: dict[str, bool] = {}
        self.refusal = ""
        """Why nothing may be written any more, as a sentence: what no later beat mends, such as tables of a newer release."""
        self._failure = ""
        """Why the last beat failed, while beats fail."""
        self._failed_at = float("-inf")
        self._beaten_at = float("-inf")
        """When the last beat that the server took was begun."""
        self._guard = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="handrail-store-heartbeat", daemon=True)

    def start(self) -> None:
        with self._guard:
            self._clock.read(self._database.get())
            if self._ends.is_set():
                self._database.close()  # nobody waited for it
                return
        self._thread.start()

    def give_up(self) -> None:
        self._ends.set()

    def stop(self) -> None:
        """Let the thread forget the owners. One that a server holds, because it does not answer, ends with the process."""
        self._ends.set()
        self._thread.join(_BEAT_SECONDS * 3)

    def has(self, owner: str) -> bool:
        return owner in self._owners

    def failed_lately(self) -> bool:
        """Then nobody knows who else could beat: after a server was away, all heartbeats are old and all locks free; and after
        this process was frozen, others may have been frozen with it."""
        return self._was_frozen() or time.monotonic() - self._failed_at < _FRESH_MS / 1_000

    def is_heard(self) -> bool:
        """Whether nobody can have taken these owners for dead. Asks nobody."""
        return not self._owners or time.monotonic() - self._beaten_at < _FRESH_MS / 2_000

    def _was_frozen(self) -> bool:
        return bool(self._owners) and time.monotonic() - self._beaten_at > _FROZEN_SECONDS

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """A server that hangs holds the beat; nobody else waits for it longer than this."""
        if not self._guard.acquire(timeout=_BEAT_SECONDS * 3):
            raise StoreUnavailable(f"{self._title} does not answer.")
        try:
            yield
        finally:
            self._guard.release()

    def add(self, owner: str) -> None:
        with self._guarded():
            try:
                if owner in self._owners or not self._take(owner):
                    raise UsageError(
                        f'The owner "{owner}" is registered already; each runtime needs a name of its own.'
                    )
                began = time.monotonic()
                self._write([owner])
                if not self._owners:
                    self._beaten_at = began
                # What crashed owners left, long after their leases.
                self._database.get().execute(f"DELETE FROM heartbeat WHERE seen_at < {NOW} - 86400000")
            except psycopg.Error:
                self._database.close()
                raise
            self._owners[owner] = True

    def remove(self, owner: str) -> None:
        with self._guarded():
            if self._owners.pop(owner, None) is None:
                return
            with contextlib.suppress(psycopg.Error, HandrailError):
                db = self._database.get()
                db.execute("DELETE FROM heartbeat WHERE owner = ?", (owner,))
                db.execute("SELECT pg_advisory_unlock(?)", (_number(owner),))

    def _beat(self) -> None:
        seconds = _BEAT_SECONDS
        while not self._ends.wait(seconds):
            seconds = min(_AGAIN_SECONDS, _BEAT_SECONDS)
            with self._guard:
                try:
                    self._clock.read(self._database.get())
                    for owner in self._owners:
                        self._take(owner)
                    if self._was_frozen():
                        self._failed_at = time.monotonic()
                    began = time.monotonic()
                    self._write(list(self._owners))
                    self._beaten_at = began
                    self.refusal = self._failure = ""
                    seconds = _BEAT_SECONDS
                except UsageError as error:
                    self._failed_at = time.monotonic()
                    if str(error) != self.refusal:
                        _log.error("%s Until then this process writes nothing, and others take it for dead.", error)
                    self.refusal = str(error)
                    self._database.close()
                except Exception as error:  # noqa: BLE001 - without this thread, others would take us for dead
                    self._failed_at = time.monotonic()
                    # The others learn it by what they wait for; here it is only noted.
                    if first_line(error) != self._failure:
                        _log.warning("%s does not take the heartbeat (%s)", self._title, first_line(error))
                    self._failure = first_line(error)
                    self._database.close()
        with self._guard:
            # Over a connection that is there: nobody waits for a server that is away just to say good-bye.
            with contextlib.suppress(psycopg.Error):
                for owner in self._owners if self._database.is_open else ():
                    self._database.get().execute("DELETE FROM heartbeat WHERE owner = ?", (owner,))
                    self._database.get().execute("DELETE FROM owner WHERE owner = ?", (owner,))
            self._owners = {}
            self._database.close()

    def _take(self, owner: str) -> bool:
        db, number = self._database.get(), _number(owner)
        held = db.execute(f"SELECT 1 FROM pg_locks WHERE pid = pg_backend_pid() AND {_LOCK}", (number,)).fetchone()
        if held is not None:
            return True
        taken = db.execute("SELECT pg_try_advisory_lock(?)", (number,)).fetchone()
        return bool(taken and taken[0])

    def _write(self, names: Sequence[str]) -> None:
        for owner in names:
            self._database.get().execute(
                f"INSERT INTO heartbeat VALUES (?, {NOW}) ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at",
                (owner,),
            )


def life_of(db: Any, owner: str, *, in_doubt: bool = False) -> Life:
    """An owner whose process is known to be gone has died. Of one on another machine only its heartbeat is known: while that is
    fresh it lives, and `in_doubt` also when it is not; after that its leases count, because what it began may still run."""
    row = db.execute(
        f"""SELECT {NOW} - seen_at, EXISTS (SELECT 1 FROM pg_locks WHERE {_LOCK}) FROM heartbeat WHERE owner = ?""",
        (_number(owner), owner),
    ).fetchone()
    age, has_lock = row or (None, False)
    process = owners.process_of(db, owner)
    if not has_lock and process is not None and process.is_gone():
        return Life.DIED
    if age is None:
        return Life.ENDED
    return Life.ALIVE if in_doubt or age < (_FRESH_MS if has_lock else _FRESH_MS // 2) else Life.ENDED


def _number(owner: str) -> int:
    return advisory_number("owner", owner)
