"""What the database or the disk says, as one sentence of ours: no exception of `sqlite3` ever leaves a store."""

from __future__ import annotations

import sqlite3

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import StoreUnavailable

# Extended result codes carry the plain one in their low byte.
_PLAIN = 0xFF
_NOT_OURS = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SENTENCES = {
    sqlite3.SQLITE_BUSY: "is locked by another process for longer than we wait; end that process or try again",
    sqlite3.SQLITE_LOCKED: "is locked by another process for longer than we wait; end that process or try again",
    sqlite3.SQLITE_FULL: "cannot be written because the disk is full; make room and try again",
    sqlite3.SQLITE_READONLY: "may only be read; give this user the right to write the file and its folder",
    sqlite3.SQLITE_PERM: "may not be opened by this user; give it the right to read and write the file",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder is there and that this user may write it",
    sqlite3.SQLITE_IOERR: "cannot be read or written (the disk reports an error); check the disk",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; name another file, or restore this one from a copy",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a copy",
    sqlite3.SQLITE_SCHEMA: "was changed by another program while we used it; restart",
}


def code_of(error: sqlite3.Error) -> int:
    """The plain result code; 0 for an error that Python itself made."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & _PLAIN if isinstance(code, int) else 0


def is_busy(error: sqlite3.Error) -> bool:
    return code_of(error) in _BUSY


def unavailable(name: str, error: sqlite3.Error) -> HandrailError:
    """What to raise when an operation on the open store `name` failed with `error`."""
    if isinstance(error, sqlite3.IntegrityError):
        return UsageError(
            f'The store "{name}" refused this: what it refers to is not there, or is there already ({error}).'
        )
    code = code_of(error)
    return StoreUnavailable(f'The store "{name}" {_SENTENCES.get(code, f"did not answer ({error})")}.')


def unusable(name: str, error: sqlite3.Error) -> HandrailError:
    """What to raise when the file could not be opened as a store: a wrong file is a mistake, the rest may pass."""
    if code_of(error) in _NOT_OURS:
        return UsageError(f'The store "{name}" {_SENTENCES[code_of(error)]}.')
    return unavailable(name, error)
