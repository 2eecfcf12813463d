"""What SQLite or the disk says, as one sentence of ours: no exception of `sqlite3` leaves a knowledge base."""

from __future__ import annotations

import sqlite3

from handrail.errors import HandrailError, UsageError
from handrail_reference.services.kb.port import KbUnavailable

_PLAIN = 0xFF  # extended result codes carry the plain one in their low byte
_UNUSABLE = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})
_SENTENCES = {
    sqlite3.SQLITE_BUSY: "is locked by another process for longer than we wait; try again when that has finished",
    sqlite3.SQLITE_LOCKED: "is locked by another process for longer than we wait; try again when that has finished",
    sqlite3.SQLITE_FULL: "cannot be written because the disk is full; make room and run the command again",
    sqlite3.SQLITE_READONLY: "may only be read; give this user the right to write the file and its folder",
    sqlite3.SQLITE_PERM: "may not be opened by this user; give it the right to read and write the file",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder is there and that this user may write it",
    sqlite3.SQLITE_IOERR: "cannot be read or written (the disk reports an error); check the disk",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; name another file, or delete this one and import again",
    sqlite3.SQLITE_CORRUPT: "is damaged; delete it and import again, or restore it from a copy",
}


def as_sentence(name: str, error: sqlite3.Error) -> HandrailError:
    """What to raise when the knowledge base `name` failed with `error`: a wrong file is a mistake, the rest may pass."""
    found = getattr(error, "sqlite_errorcode", None)
    code = found & _PLAIN if isinstance(found, int) else 0
    sentence = f'The knowledge base "{name}" {_SENTENCES.get(code, f"did not answer ({error})")}.'
    return UsageError(sentence) if code in _UNUSABLE else KbUnavailable(sentence)


def is_interrupted(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
