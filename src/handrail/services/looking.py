"""A look at a SQLite file that changes nothing, for whoever only wants to know whether it can be used."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_BUSY_SECONDS = 2.0


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
