"""A look at a SQLite file that changes nothing, for whoever only wants to know whether it can be used."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_BUSY_SECONDS = 2.0


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
def looked_at(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that only reads. `sqlite3.Error` where the file is none of SQLite's, or is damaged."""
    # Without a log beside it nobody is writing, and SQLite is told so: it would leave side files behind otherwise.
    settled = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
    place = f"{path.absolute().as_uri()}?mode=ro{settled}"
    with closing(sqlite3.connect(place, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
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
    with looked_at(path) as db:
        judge(db)
        check_whole(db)
