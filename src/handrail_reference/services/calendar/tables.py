"""The tables of the calendar file, as numbered steps that only go forward.

An event is found by its span: `length_class` is a power of two that it is no longer than, so that of each class only a
short stretch of starts before the window has to be looked at, and one long event does not slow the others down.
"""

from __future__ import annotations

import sqlite3

from handrail_reference.services.calendar.failures import unusable

_FIRST = (
    """CREATE TABLE calendar (
        id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL,
        series_revision INTEGER NOT NULL DEFAULT 0, UNIQUE (tenant, name))""",
    """CREATE TABLE item (
        id INTEGER PRIMARY KEY, calendar_id INTEGER NOT NULL REFERENCES calendar, uid TEXT NOT NULL,
        event_id TEXT NOT NULL UNIQUE, lines TEXT NOT NULL, zones TEXT NOT NULL,
        series INTEGER NOT NULL, floating INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
        length_class INTEGER NOT NULL, status TEXT NOT NULL, private INTEGER NOT NULL, title TEXT NOT NULL,
        attendees INTEGER NOT NULL, meeting_link TEXT, created_by TEXT, changed_at INTEGER NOT NULL,
        UNIQUE (calendar_id, uid))""",
    "CREATE INDEX item_span ON item (calendar_id, series, length_class, start)",
    "CREATE INDEX item_uid ON item (uid)",
)
MIGRATIONS = (("calendars and events", _FIRST),)

SMALLEST_CLASS = 10
LARGEST_CLASS = 36
"""Spans up to 2**10 seconds (17 minutes) are the first class; 2**36 seconds are two thousand years."""


def length_class(seconds: int) -> int:
    return min(max((max(seconds, 1) - 1).bit_length(), SMALLEST_CLASS), LARGEST_CLASS)


def checked_version(db: sqlite3.Connection, name: str) -> int:
    """The version of the tables, 0 for an empty file. Changes nothing, because the file may be somebody else's."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and not {"calendar", "item"} <= tables:
        raise unusable(f'"{name}" is a database of another program; name a file of its own for the calendar.')
    if version > len(MIGRATIONS):
        raise unusable(
            f'The calendar "{name}" was written by a newer Handrail (version {version} of its tables; this one '
            f"knows {len(MIGRATIONS)}); upgrade Handrail, or name another file."
        )
    return version


def migrate(db: sqlite3.Connection, name: str) -> None:
    """Bring the file to the newest version; each step is one transaction, and several processes may start at once.

    A file that is ready is not locked for it, so that it can be read while another process writes.
    """
    while checked_version(db, name) < len(MIGRATIONS):
        db.execute("BEGIN IMMEDIATE")
        try:
            version = checked_version(db, name)
            if version < len(MIGRATIONS):
                for statement in MIGRATIONS[version][1]:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {version + 1}")
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
