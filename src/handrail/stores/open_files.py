"""The files of an open SQLite database, and whether they are still the ones that SQLite opened.

SQLite keeps writing to a file that was deleted or replaced, and everything it writes there is lost with the process. Its log
(`-wal`) is opened once and stays the same file until the last process has closed the database, so any other file in its place
was put there by somebody else. The same holds for the main file and for the index of the log (`-shm`). Whether their content is
still SQLite's own is a question for `log_integrity`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import re
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores.failures import is_busy
from handrail.stores.log_integrity import LogIntegrity

_log = logging.getLogger("handrail.stores")
SETTLED_NS = 3_000_000_000
"""File systems keep times to two seconds at worst."""
_MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = frozenset(
    {
        "9p",
        "afs",
        "ceph",
        "cifs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    }
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def real_path(path: Path) -> Path:
    """Absolute, because the process may change its folder later; without links, because the log lies beside the real file."""
    return Path(os.path.realpath(path))


def make_private(path: Path) -> None:
    """Make the file for its user alone if it is not there; `OSError` if it cannot be written.

    A file that is there is not opened: closing it again would drop every lock that this process has on it, SQLite's too, and
    another process could then delete the log under us.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        problem = errno.EISDIR if path.is_dir() else 0 if os.access(path, os.R_OK | os.W_OK) else errno.EACCES
        if problem:
            raise OSError(problem, os.strerror(problem), str(path)) from None


def check_names(path: Path, *beside: str) -> None:
    """`UsageError` if the database, or a file beside it, is reached in a way that another process may not share."""
    if path.exists() and _identity(str(path)) in _INHERITED:
        # SQLite would take the parent's locks for its own.
        raise UsageError(
            f'"{path.name}" is open in the process that this one was forked from; start processes by spawning them.'
        )
    for suffix in ("-wal", "-shm", *beside):
        if os.path.islink(f"{path}{suffix}"):  # noqa: PTH114 - `path` and a suffix, not a path of its own
            raise UsageError(
                f'"{path.name}{suffix}" is a link, and processes that reach it otherwise would not see each other; '
                "put the real file in its place while nothing runs."
            )
    if path.is_file() and path.stat().st_nlink > 1:
        raise UsageError(
            f'"{path.name}" has {path.stat().st_nlink} names (hard links), and its log belongs to only one of them; '
            "keep one name and make real copies."
        )
    if str(path) in _mounts():
        raise UsageError(
            f'"{path.name}" is mounted as a single file, so its log would lie in another folder than for other processes; '
            "mount its folder instead."
        )


def doubts_about(path: Path, *beside: str) -> Iterator[str]:
    """What may go wrong with a database that can be used at the moment, in parts of a sentence."""
    place = real_path(path)
    kind = _file_system(place)
    if kind in _REMOTE:
        yield f"it is on a network file system ({kind}), whose locks cannot be relied on; put it on a disk of this machine"
    for name in (str(place), *(f"{place}{suffix}" for suffix in ("-wal", "-shm", *beside))):
        with contextlib.suppress(FileNotFoundError):
            owner = os.lstat(name).st_uid
            if owner != os.geteuid():
                yield f'"{Path(name).name}" belongs to user {owner} and this is user {os.geteuid()}; use one user for all'


def _mounts() -> dict[str, str]:
    """Where file systems are mounted, and of which kind they are; empty where the system does not say."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    fields = [(line.split(" ", 5)[4], line.partition(" - ")[2].partition(" ")[0]) for line in lines]
    return {_OCTAL.sub(lambda found: chr(int(found[1], 8)), place): kind for place, kind in fields}


def _file_system(path: Path) -> str:
    mounts = _mounts()
    return next((mounts[str(place)] for place in (path, *path.parents) if str(place) in mounts), "")


class OpenFiles:
    """Made when every connection has read from the database once, so that all of its files are open."""

    def __init__(self, path: Path, title: str, *connections: sqlite3.Connection) -> None:
        """`title` begins the sentences, as in 'The store "handrail.db"'."""
        self._title = title
        self._name = path.name
        self._connections = connections
        self._guard = threading.Lock()
        self._refusal: str | None = None
        self.is_inherited = False
        """Whether this is a forked child, and the files are its parent's."""
        self._folder = str(path.parent)
        self._settled: tuple[int, int, int] | None = None
        """The folder as it was at the last look, if it had been left alone for a while then."""
        main = str(path)
        self._known = [(place, _identity(place)) for place in (main, f"{main}-wal", f"{main}-shm")]
        if any(found is None for _, found in self._known):
            raise StoreUnavailable(f"{title} or its log was deleted while it was opened; start again.")
        main_file, log, index = (found or (0, 0) for _, found in self._known)
        self._integrity = LogIntegrity(main_file, log, index)
        self.is_damaged = False
        """Whether a file was changed by somebody else. Its connections must not be closed, because SQLite would then copy what
        it takes for the log over the main file."""
        _ALL.add(self)

    def check(self, db: sqlite3.Connection) -> None:
        """`StoreUnavailable` if one of the files is not where it was; once a log is lost, until the process starts again.

        Before a transaction this keeps it from being written to a file that nobody will read; after the commit it finds what
        was written to one."""
        if self._refusal is None:
            try:
                folder = os.stat(self._folder)  # noqa: PTH116 - twice for every commit: the plain call costs a third
                state = (folder.st_ino, folder.st_dev, folder.st_ctime_ns)
            except OSError:
                state = None
            if state is not None and state == self._settled:
                return  # no file of the folder was made, moved or deleted since the last look
            missing = next((place for place, known in self._known if _identity(place) != known), None)
            if missing is None:
                # A change just after this look must show in the folder's time, on any file system and kernel.
                is_old = state is not None and time.time_ns() - state[2] > SETTLED_NS
                self._settled = state if is_old else None
                return
            if missing == self._known[0][0]:
                # Nothing is written while it is away, so it may come back as it was.
                raise StoreUnavailable(
                    f"{self._title} was deleted or replaced while in use; put the file back and restart."
                )
            self._lose(missing, db)
        raise StoreUnavailable(self._refusal or "")

    def check_content(self, db: sqlite3.Connection) -> None:
        """`check`, and `StoreUnavailable` if the log or the main file was changed in place by another program; for a connection
        that may write and is in no transaction."""
        self.check(db)
        if self._integrity.damage() is None:
            return
        damage = self._confirm_damage(db)
        if damage is not None:
            self._give_up(self._known[0 if damage == "main" else 1][0])
            raise StoreUnavailable(self._refusal or "")

    def _confirm_damage(self, db: sqlite3.Connection) -> str | None:
        """Look again while no other process can commit."""
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if is_busy(error):
                raise
            # Reading a damaged file may fail in many ways.
        try:
            return self._integrity.confirmed_damage()
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")

    def _give_up(self, place: str) -> None:
        with self._guard:
            if self._refusal is not None:
                return
            self._refusal = (
                f'{self._title} is not written or read any more: "{Path(place).name}" was truncated or overwritten while in '
                "use; restore the store from a backup, or restart to continue with what is left."
            )
            self.is_damaged = True
            self._keep_connections()
        _log.error('%s Calls that are not in "%s" yet are lost.', self._refusal, self._name)

    def _lose(self, place: str, db: sqlite3.Connection) -> None:
        with self._guard:
            if self._refusal is not None:
                return
            self._refusal = (
                f'{self._title} is not written or read any more: "{Path(place).name}" was deleted or replaced while in use; '
                "restart."
            )
            saved = self._may_be_saved() and _checkpoint(db)
        _log.error(
            "%s %s",
            self._refusal,
            f'Everything that was committed is in "{self._name}".'
            if saved
            else f'What is not in "{self._name}" yet, and not in the log that is there now, is lost.',
        )

    def _may_be_saved(self) -> bool:
        """Whether the content of the lost log may be moved to the main file: nobody may have written to another log."""
        (_, known_main), (log, known_log), (index, known_index) = self._known
        if _identity(self._known[0][0]) != known_main or self._integrity.damage() is not None:
            return False
        if _identity(log) == known_log:
            return False  # it is the index that is gone; the log is where it was, and whole
        if _identity(index) == known_index:
            return _size(log) == 0  # processes on the same index share our locks
        return _identity(log) is None and _identity(index) is None

    def keep_open_for_ever(self) -> None:
        """In a forked child: SQLite forbids to use or close there what the parent opened, so it must not even be collected."""
        self.is_inherited = True
        _INHERITED.add(self._known[0][1])
        self._keep_connections()

    def _keep_connections(self) -> None:
        for db in self._connections:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))


_INHERITED: set[tuple[int, int] | None] = set()
_ALL: weakref.WeakSet[OpenFiles] = weakref.WeakSet()


def _in_forked_child() -> None:
    for files in list(_ALL):
        files.keep_open_for_ever()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def _identity(place: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(place)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else (0, 0)


def _size(place: str) -> int:
    try:
        return os.lstat(place).st_size
    except OSError:
        return 0


def _checkpoint(db: sqlite3.Connection) -> bool:
    """Move everything in the log to the main file; whether all of it is there."""
    with contextlib.suppress(sqlite3.Error):
        busy, frames, moved = db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        return not busy and bool(frames == moved)
    return False
