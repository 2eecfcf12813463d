"""SQLite files, for services that keep one: make it private, look at it without changing it, and remove deleted data for good."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from handrail.contract.errors import UsageError
from handrail.stores.open_files import connect_to_read, file_warnings, real_path

__all__ = [
    "check_database",
    "check_folder",
    "check_whole",
    "check_writable",
    "look",
    "make_private",
    "opened_read_only",
    "scrub",
]

_BUSY_SECONDS = 2.0
_SCRUB_SECONDS = 30.0
"""Others read and write meanwhile; each holds the file for a moment."""


def make_private(path: Path) -> None:
    """Make the file for its user alone if it is not there; `OSError` if it cannot be written.

    A file that is there is not opened: closing it again would drop every lock that this process has on it, SQLite's too, and
    another process could then delete the log under us.
    """
    try:
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        check_writable(path)


def check_writable(path: Path) -> None:
    """`OSError` if the file is not there or cannot be written; it is not opened, as above."""
    path.stat()
    problem = errno.EISDIR if path.is_dir() else 0 if os.access(path, os.R_OK | os.W_OK) else errno.EACCES
    if problem:
        raise OSError(problem, os.strerror(problem), str(path))


@contextmanager
def opened_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that only reads. `sqlite3.Error` where the file is none of SQLite's, or is damaged."""
    with closing(connect_to_read(path, timeout=_BUSY_SECONDS)) as db:
        yield db


def check_whole(db: sqlite3.Connection) -> None:
    """Read every page once; `sqlite3.DatabaseError` as SQLite itself raises it where one of them is damaged."""
    found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    if found != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def look(path: Path, judge: Callable[[sqlite3.Connection], object]) -> None:
    """Let `judge` see the file first, which knows whose it is; then see whether it is whole."""
    with opened_read_only(path) as db:
        judge(db)
        check_whole(db)


def check_database(path: Path, look: Callable[[], None], message: str = "", *beside: str) -> str:
    """What a check of `handrail doctor` says of a database that can be used; `HandrailError` if something is wrong with it.

    `look` raises for a file that cannot be used. `message` replaces what is said of one that can; `beside` are the endings of
    more files that belong to it. A file that is not there yet is not made.
    """
    look()
    if not path.exists():
        return check_folder(path.parent, message or f"{path.name} is made when it is first needed")
    doubts = list(file_warnings(path, *beside))
    if doubts:
        raise UsageError("; ".join((f"{path.name} can be used, but {doubts[0]}", *doubts[1:])))
    well, place = message or f"{path.name} can be used", real_path(path)
    return well if place == path.absolute() else f'{well}; it is a link to "{place}"'


def check_folder(folder: Path, message: str) -> str:
    """`message` if files can be made in the folder; `HandrailError` otherwise."""
    if not folder.is_dir():
        raise UsageError(f'"{folder.name}" is no folder; give it another name in handrail.toml, or make the folder')
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f'the folder "{folder.name}" cannot be written; change its rights')
    return message


def scrub(path: Path) -> None:
    """Write a database anew, without what was deleted from it, and empty its log. Others may use it meanwhile.

    Blocks for as long as that takes; `sqlite3.Error` if it cannot be done.
    """
    with closing(sqlite3.connect(path, timeout=_SCRUB_SECONDS, isolation_level=None)) as db:
        db.execute("VACUUM")
        deadline = time.monotonic() + _SCRUB_SECONDS
        while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() > deadline:
                raise sqlite3.OperationalError("its log is in use")
            time.sleep(0.05)
