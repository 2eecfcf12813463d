"""How a calendar fails, in the words of the envelope: every backend raises these, and handlers need not translate."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from difflib import get_close_matches

from handrail.errors import ErrorType, HandrailError, ToolError

_PLAIN = 0xFF  # extended result codes of SQLite carry the plain one in their low byte
_DAMAGED = {
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; name another file, or restore this one from a copy",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a copy",
}
_DENIED = {
    sqlite3.SQLITE_READONLY: "may only be read; give this user the right to write the file and its folder",
    sqlite3.SQLITE_PERM: "may not be opened by this user; give it the right to read and write the file",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder is there and that this user may write it",
}
_PASSING = {
    sqlite3.SQLITE_BUSY: "is locked by another process for longer than we wait; try again",
    sqlite3.SQLITE_LOCKED: "is locked by another process for longer than we wait; try again",
    sqlite3.SQLITE_FULL: "cannot be written because the disk is full; make room and try again",
    sqlite3.SQLITE_IOERR: "cannot be read or written (the disk reports an error); check the disk",
}
SECONDS_UNTIL_RETRY = 1.0


class BadComponent(HandrailError):
    """A part of an iCalendar file cannot be used. The message is a sentence without the place; the reader knows that."""


class BadFile(HandrailError):
    """A file is not an iCalendar file at all, or is too large to be one."""


def from_sqlite(name: str, error: sqlite3.Error) -> ToolError:
    """One sentence for what the database or the disk said."""
    given = getattr(error, "sqlite_errorcode", None)
    code = given & _PLAIN if isinstance(given, int) else 0
    if code in _DAMAGED:
        return ToolError(ErrorType.PERMANENT, f'The calendar "{name}" {_DAMAGED[code]}.')
    if code in _DENIED:
        return ToolError(ErrorType.AUTH, f'The calendar "{name}" {_DENIED[code]}.')
    if code in _PASSING:
        text = f'The calendar "{name}" {_PASSING[code]}.'
        return ToolError(ErrorType.TRANSIENT, text, retryable=True, retry_after=SECONDS_UNTIL_RETRY)
    return ToolError(ErrorType.TRANSIENT, f'The calendar "{name}" did not answer.', retryable=True)


def overloaded() -> ToolError:
    return ToolError(
        ErrorType.RATE_LIMIT,
        "Too many requests wait for the calendar; ask again in a moment.",
        retryable=True,
        retry_after=SECONDS_UNTIL_RETRY,
    )


def closed() -> ToolError:
    return ToolError(ErrorType.TRANSIENT, "The calendar was closed; the host is ending.", retryable=True)


def unusable(text: str) -> ToolError:
    """The file cannot be a calendar; somebody has to mend the settings or the file."""
    return ToolError(ErrorType.PERMANENT, text)


def unknown_calendar(name: str, known: Sequence[str]) -> ToolError:
    near = get_close_matches(name, known, n=1)
    hint = f'Use "{near[0]}".' if near else f"Use one of these: {', '.join(known)}."
    return ToolError(
        ErrorType.VALIDATION, f'There is no calendar "{name}"; known are {", ".join(known)}.', suggestion=hint
    )
