"""Room in the log of a store in a file, made while nobody waits.

A commit that makes its file longer waits twice as long for the disk as one that writes over what is there. The log is begun by
the first process that opens the store, and would get longer with every commit for a long time. So after some writes it is
lengthened at once, by commits that change nothing. At that length SQLite begins it anew, as it does ever after.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from handrail.stores.failures import is_busy

LOG_PAGES = 8_000
"""The log is begun anew when it is so long. Each time the disk is waited for twice more than for a commit, so a busy store does
it seldom."""
_WRITES = 16
"""Whoever writes less is gone before it would be worth it, such as a command."""
_HEADER = 24
"""What a page takes in the log beside itself."""
_FREE_BYTES = 256 * 1024 * 1024
"""On a disk with less than this the log gets no longer than it must."""


class LogRoom:
    """Makes room for one opening of a store, and never more than once."""

    __slots__ = ("_busy_ms", "_left", "_log", "_written")

    def __init__(self, store: Path, busy_ms: int) -> None:
        self._log = store.with_name(store.name + "-wal")
        self._busy_ms = busy_ms
        self._left: int | None = None
        self._written = 0

    @property
    def is_made(self) -> bool:
        return self._left == 0

    def is_wanted(self) -> bool:
        """Something was written, and nobody waits: whether the log is to be lengthened by now."""
        if self._written < _WRITES:
            self._written += 1
            return False
        return self._left != 0

    def make(self, db: sqlite3.Connection) -> bool:
        """Lengthen the log by one page; whether there is more to do."""
        try:
            left = self._missing(db) if self._left is None else self._left
            if left:
                write_a_page(db, self._busy_ms)
                left -= 1
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and is_busy(error):
                return False  # another process that writes is given way to, until after our next write
            left = 0  # whatever is wrong, the next that writes is told
        if left == 0 and self._left != 0:
            _begin_anew(db)
        self._left = left
        return left > 0

    def _missing(self, db: sqlite3.Connection) -> int:
        if shutil.disk_usage(self._log.parent).free < _FREE_BYTES:
            return 0
        page = int(db.execute("PRAGMA page_size").fetchone()[0]) + _HEADER
        return max(0, LOG_PAGES - self._log.stat().st_size // page)


def write_a_page(db: sqlite3.Connection, busy_ms: int) -> None:
    """A commit of the first page as it is, which waits neither for the disk nor for another process."""
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA busy_timeout = 0")
    try:
        db.execute("PRAGMA user_version = 0")
    finally:
        db.execute(f"PRAGMA busy_timeout = {busy_ms}")
        db.execute("PRAGMA synchronous = FULL")


def _begin_anew(db: sqlite3.Connection) -> None:
    """So that the next commit writes over what is there, at the beginning of the log, if nobody reads from it just now."""
    try:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.Error:
        return  # it is tried again by the commits that follow
