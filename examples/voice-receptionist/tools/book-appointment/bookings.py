"""The book of appointments: one SQLite file, in which a time has one booking and a call has one booking."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

BOOKINGS = Path("bookings.db")
"""In the folder in which Handrail is started, as its own store is."""


class Taken(Exception):
    """Somebody else has this time."""


def book(key: str, name: str, start: str, phone: str) -> int:
    """The number of the booking. The same key again gives the booking that is there; `Taken` if the time is another's."""
    with closing(_open()) as database:
        try:
            with database:
                database.execute(
                    "INSERT INTO booking(key, name, start, phone) VALUES (?, ?, ?, ?)", (key, name, start, phone)
                )
        except sqlite3.IntegrityError:
            number = _number(database, key)
            if number is None:
                raise Taken from None
            return number
        number = _number(database, key)
        assert number is not None
        return number


def find(key: str) -> int | None:
    """The booking that this call has made, if it has."""
    with closing(_open()) as database:
        return _number(database, key)


def _number(database: sqlite3.Connection, key: str) -> int | None:
    row = database.execute("SELECT number FROM booking WHERE key = ?", (key,)).fetchone()
    return None if row is None else int(row[0])


def _open() -> sqlite3.Connection:
    database = sqlite3.connect(BOOKINGS)
    database.execute(
        "CREATE TABLE IF NOT EXISTS booking("
        "number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, start TEXT UNIQUE NOT NULL, "
        "name TEXT NOT NULL, phone TEXT NOT NULL)"
    )
    return database
