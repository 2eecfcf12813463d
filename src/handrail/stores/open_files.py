"""The files of an open SQLite database: whether they are still the ones that SQLite opened, whether their content is still
SQLite's own, and room in the log.

SQLite keeps writing to a file that was deleted or replaced, and everything it writes there is lost with the process. Its log
(`-wal`) is opened once and stays the same file until the last process has closed the database, so any other file in its place
was put there by somebody else. The same holds for the main file and for the index of the log (`-shm`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import re
import shutil
import sqlite3
import stat
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores.failures import is_busy

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
_DESCRIPTORS = Path("/dev/fd")
LOG_PAGES = 8_000
"""The log is begun anew when it is so long. Each time the disk is waited for twice more than for a commit, so a busy store does
it seldom."""
_WRITES = 16
"""Whoever writes less is gone before it would be worth it, such as a command."""
_FREE_BYTES = 256 * 1024 * 1024
"""On a disk with less than this the log gets no longer than it must."""

# The layouts of https://www.sqlite.org/walformat.html.
_INDEX_BYTES = 136
_INDEX = struct.Struct("=12xBxH I 4x II 8s")  # isInit, page size, number and checksum of the last frame, salts
_PROGRESS = struct.Struct("=96x I 28x I")  # frames moved to the main file, frames that someone began to move
_LOG_HEADER_BYTES = 32
_LOG_MAGIC = b"\x37\x7f\x06"
_FRAME_HEADER = struct.Struct(">8x 8s II")  # salts, checksum up to this frame
_MAIN_HEADER_BYTES = 100

Identity = tuple[int, int]


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


def connect_to_read(path: Path, *, timeout: float) -> sqlite3.Connection:
    """A connection that only reads, for whoever looks at a file from outside."""
    # Without a log beside it nobody is writing, and SQLite learns so: it would leave side files behind otherwise.
    settled = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
    place = f"{path.absolute().as_uri()}?mode=ro{settled}"
    return sqlite3.connect(place, uri=True, timeout=timeout, isolation_level=None)


def check_names(path: Path, *beside: str) -> None:
    """`UsageError` if the database, or a file beside it, is reached in a way that another process may not share."""
    if path.exists() and identity(str(path)) in _INHERITED:
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


def file_warnings(path: Path, *beside: str) -> Iterator[str]:
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
        self.connections = connections
        self._guard = threading.Lock()
        self._refusal: str | None = None
        self._folder = str(path.parent)
        self._settled: tuple[int, int, int] | None = None
        """The folder as it was at the last look, if it had been left alone for a while then."""
        main = str(path)
        self._known = [(place, identity(place)) for place in (main, f"{main}-wal", f"{main}-shm")]
        # All three are there after the first read; one that is missing was taken away in these few moments.
        if any(found is None for _, found in self._known):
            raise StoreUnavailable(f"{title} or its log was deleted while it was opened; start again.")
        self._content = FileContent(*(found or (0, 0) for _, found in self._known))
        self.is_damaged = False
        """Whether a file was changed by somebody else. Its connections must not be closed, because SQLite would then copy what
        it takes for the log over the main file."""
        _ALL.add(self)

    def check(self, db: sqlite3.Connection, *, content: bool = True, untouched: bool = False) -> None:
        """`StoreUnavailable` if one of the files is not where it was; once a log is lost, until the process starts again. With
        `content`, also if the log or the main file was changed in place by another program; for a connection that may write and
        is in no transaction. `untouched`: it has written nothing since the last check.

        Before a transaction this keeps it from being written to a file that nobody will read; after the commit it finds what
        was written to one."""
        if self._refusal is not None:
            raise StoreUnavailable(self._refusal)
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 - twice for every commit: the plain call costs a third
            state = (folder.st_ino, folder.st_dev, folder.st_ctime_ns)
        except OSError:
            state = None
        # If it is as it was: no file of the folder was made, moved or deleted since the last look.
        if state is None or state != self._settled:
            missing = next((place for place, known in self._known if identity(place) != known), None)
            if missing is not None:
                self._refuse(missing, db)
            # A change just after this look must show in the folder's time, on any file system and kernel.
            is_old = state is not None and time.time_ns() - state[2] > SETTLED_NS
            self._settled = state if is_old else None
        if not content or self._content.damage(untouched=untouched) is None:
            return
        # Another process's commit looks like damage while it is under way, so the verdict is made under the lock that keeps
        # commits out.
        damage = self._confirm_damage(db)
        if damage is not None:
            self._give_up(self._known[0 if damage == "main" else 1][0])
            raise StoreUnavailable(self._refusal or "")

    def _refuse(self, missing: str, db: sqlite3.Connection) -> NoReturn:
        if missing == self._known[0][0]:
            # Nothing is written while it is away, so it may come back as it was.
            raise StoreUnavailable(
                f"{self._title} was deleted or replaced while in use; put the file back and restart."
            )
        self._lose(missing, db)
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
            return self._content.damage(anew=True)
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
        if identity(self._known[0][0]) != known_main or self._content.damage() is not None:
            return False
        if identity(log) == known_log:
            return False  # it is the index that is gone; the log is where it was, and whole
        if identity(index) == known_index:
            return _size(log) == 0  # processes on the same index share our locks
        return identity(log) is None and identity(index) is None

    def keep_open_for_ever(self) -> None:
        """In a forked child: SQLite forbids to use or close there what the parent opened, so it must not even be collected."""
        _INHERITED.add(self._known[0][1])
        self._keep_connections()

    def _keep_connections(self) -> None:
        for db in self.connections:
            # One reference that nobody gives back. `close`, which collecting it would call, copies the log over the main file.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))


@dataclass(frozen=True, slots=True, kw_only=True)
class _MainFile:
    """The main file as it was after a checkpoint had ended: until the next one nobody writes to it."""

    checkpoint: bytes
    changed_ns: int
    size: int
    header: bytes


class FileContent:
    """Whether the content of an open database's files is what SQLite wrote.

    SQLite takes what it knows of its log from the log's index, which all processes share, and never looks back. So a log that is
    truncated or overwritten in place (`: > handrail.db-wal`, a copy of a backup over it) goes unnoticed: SQLite continues behind
    the hole, and after a crash the next process finds no valid log and drops every commit in it. The index says which frame was
    committed last and with which salts; the first and the last bytes of the log are compared with it, and the main file with
    what the last checkpoint left.

    The descriptors are SQLite's own. Closing one that we had opened ourselves would drop every lock of this process on the file.
    """

    def __init__(self, *files: Identity) -> None:
        """`files` are the main file, the log and its index."""
        self._files = files
        self._descriptors: list[int] = []
        self._main: _MainFile | None = None
        self._whole: tuple[int, ...] | None = None
        """Log and main file as they were when they were last compared and found whole."""
        self._borrow()

    def damage(self, *, untouched: bool = False, anew: bool = False) -> str | None:
        """Which file somebody else has changed, "log" or "main". Another process that commits at this moment may look like
        damage too: ask again inside a write transaction, and `anew`, with descriptors that are certainly those of the files.

        If we have `untouched` files, they are read only if their times have changed. A change within the same tick of the
        kernel's clock is found after the commit, when they are read in any case, before anybody relies on it."""
        if anew:
            self._borrow()
        if not self._descriptors:
            return None
        main, log, index = self._descriptors
        try:
            main_file, log_file = os.fstat(main), os.fstat(log)
            if (main_file.st_dev, main_file.st_ino) != self._files[0]:
                raise OSError("the descriptor is another file's by now")
            state = (
                *(main_file.st_mtime_ns, main_file.st_ctime_ns),
                *(log_file.st_ino, log_file.st_size, log_file.st_mtime_ns, log_file.st_ctime_ns),
            )
            if untouched and state == self._whole:
                return None
            self._whole = None
            known = os.pread(index, _INDEX_BYTES, 0)
            if len(known) < _INDEX_BYTES:
                return None
            initialised, page, last_frame, *checksum, salts = _INDEX.unpack_from(known)
            if not initialised:
                return None
            if last_frame:
                header = os.pread(log, _LOG_HEADER_BYTES, 0)
                frame_bytes = _FRAME_HEADER.size + ((page & 0xFF00) | (page & 1) << 16)
                end = _LOG_HEADER_BYTES + last_frame * frame_bytes
                if header[:3] != _LOG_MAGIC or header[16:24] != salts or log_file.st_size < end:
                    return "log"
                frame = os.pread(log, _FRAME_HEADER.size, end - frame_bytes)
                if list(_FRAME_HEADER.unpack(frame)) != [salts, *checksum]:
                    return "log"
            moved, begun = _PROGRESS.unpack_from(known)
            if moved != begun:
                return None  # a checkpoint is under way, or was cut off by a crash
            checkpoint, before = known[32:40] + known[96:100], self._main
            seen = before is not None and (before.checkpoint, before.changed_ns) == (checkpoint, main_file.st_mtime_ns)
            if not seen and self._is_other_main(main, checkpoint, index, known):
                return "main"
        except (OSError, struct.error) as error:
            if not anew:
                return self.damage(anew=True)
            return "log" if isinstance(error, struct.error) else None
        self._whole = state
        return None

    def _is_other_main(self, main: int, checkpoint: bytes, index: int, known: bytes) -> bool:
        """Whether the main file was changed although nobody has moved anything to it since the last look."""
        before = self._main
        found = os.fstat(main)  # again: a checkpoint may have ended between the first look and that at the index
        header = os.pread(main, _MAIN_HEADER_BYTES, 0)
        if os.pread(index, _INDEX_BYTES, 0)[96:] != known[96:]:
            return False  # a checkpoint began meanwhile
        now = _MainFile(checkpoint=checkpoint, changed_ns=found.st_mtime_ns, size=found.st_size, header=header)
        # Setting a file's time alone, as some backup programs do, changes nothing.
        if (
            before is not None
            and before.checkpoint == checkpoint
            and replace(now, changed_ns=before.changed_ns) != before
        ):
            return True
        self._main = now
        return False

    def _borrow(self) -> None:
        """Find SQLite's descriptors of the three files. None on a system that does not list them: nothing is compared there."""
        found: dict[Identity, int] = {}
        try:
            names = os.listdir(_DESCRIPTORS)  # noqa: PTH208 - names are all that is wanted
        except OSError:
            names = []
        for name in names:
            try:
                state = os.fstat(int(name))
            except (OSError, ValueError):
                continue
            found.setdefault((state.st_dev, state.st_ino), int(name))
        self._whole = None
        self._descriptors = [found[file] for file in self._files if file in found]
        if len(self._descriptors) < len(self._files):
            self._descriptors = []


class WalPreallocation:
    """Makes room in the log of a store while nobody waits; for one opening of it, and never more than once.

    A commit that makes its file longer waits twice as long for the disk as one that writes over what is there. The log is begun
    by the first process that opens the store, and would get longer with every commit for a long time. So after some writes it is
    lengthened at once, by commits that change nothing. At that length SQLite begins it anew, as it does ever after.
    """

    __slots__ = ("_busy_ms", "_files", "_left", "_log", "_written")

    def __init__(self, store: Path, files: OpenFiles, busy_ms: int) -> None:
        self._log = store.with_name(store.name + "-wal")
        self._files = files
        self._busy_ms = busy_ms
        self._left: int | None = None
        self._written = 0

    @property
    def is_made(self) -> bool:
        return self._left == 0

    def make(self, db: sqlite3.Connection) -> bool:
        """Something was written, and nobody waits: lengthen the log by one page if that is wanted by now, and whether there is
        more to do."""
        if self._left == 0:
            return False
        if self._written < _WRITES:
            self._written += 1
            return False
        try:
            self._files.check(db, untouched=True)  # but for pages of our own, in which nothing stands
            left = self._missing(db) if self._left is None else self._left
            if left:
                commit_unchanged_page(db, self._busy_ms)
                left -= 1
        except StoreUnavailable:
            return False  # as whoever writes next learns
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and is_busy(error):
                return False  # another process that writes is given way to, until after our next write
            left = 0  # whatever is wrong, the next that writes learns it
        if left == 0:
            _begin_anew(db)
        self._left = left
        return left > 0

    def _missing(self, db: sqlite3.Connection) -> int:
        # A disk that fills up is worse than a commit that takes longer.
        if shutil.disk_usage(self._log.parent).free < _FREE_BYTES:
            return 0
        page = int(db.execute("PRAGMA page_size").fetchone()[0]) + _FRAME_HEADER.size
        return max(0, LOG_PAGES - self._log.stat().st_size // page)


def commit_unchanged_page(db: sqlite3.Connection, busy_ms: int) -> None:
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


_INHERITED: set[Identity | None] = set()
_ALL: weakref.WeakSet[OpenFiles] = weakref.WeakSet()


def _in_forked_child() -> None:
    for files in list(_ALL):
        files.keep_open_for_ever()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def identity(place: str) -> Identity | None:
    """Which file stands at this place: none, or a link, is no file of ours."""
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
