"""Which owners live. An owner is a process (or one of several runtimes in it) that holds claims; it has an operating-
system lock on a file beside the store, which the kernel frees when the process dies, however it dies and whatever the
clock says. Its process also stands in the store, for when the file is gone or a forked child has it open."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores.statements.transaction import Database, Life, Transaction

try:
    import fcntl
except ImportError:  # Windows: the memory store must still be importable there.
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger("handrail.stores")
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_PROC = Path("/proc")
_PATIENCE = 1.0
"""Seconds. Somebody who looks whether an owner lives holds its lock for an instant."""


class Process(NamedTuple):
    """A process as others can recognise it later, although its number may be given to another, and the clock may be set. Empty
    where the system does not tell."""

    boot: str
    namespace: str
    """Process numbers mean something only within it: containers have one each."""
    pid: int
    started: str
    """In ticks since the machine started."""

    @classmethod
    def this(cls) -> Process:
        pid = os.getpid()
        return cls(_boot(), _namespace(), pid, _started(pid) or "")

    def is_gone(self) -> bool | None:
        """None: it cannot be known here."""
        if not self.boot or (self.boot, self.namespace) != (_boot(), _namespace()):
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # another user's, which lives
        # The number may belong to another process by now, which started at another time.
        started = _started(self.pid)
        return None if started is None else started != self.started

    def is_of_this_boot(self) -> bool:
        return self.boot == _boot()


class OwnerLocks:
    """The locks that this store object holds, and a look at everybody else's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}
        self.identities: dict[str, tuple[int, int]] = {}
        """The path of each lock that is held → the file that it is on. With another file there, nobody sees the lock."""
        self._guard = threading.Lock()
        self._is_reported = False
        _ALL.add(self)

    def take(self, owner: str) -> None:
        """Say that `owner` lives, until `release` or the end of the process."""
        if fcntl is None:
            raise UsageError(
                "A store in a file needs the file locks of Linux or macOS; use another store on this system."
            )
        with self._guard:
            if owner in self._held:
                raise UsageError(f'The owner "{owner}" is registered already; each runtime needs a name of its own.')
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                # A lock and no row with a time: the kernel frees it at the very moment of the process's death, whatever the
                # clock says.
                descriptor = self._lock(owner)
                found = os.fstat(descriptor)
                self.identities[str(self._path(owner))] = (found.st_dev, found.st_ino)
                self._held[owner] = descriptor
            except OSError as error:
                raise StoreUnavailable(
                    f'The folder of owners "{self._folder.name}" beside the store cannot be used ({error.strerror}).'
                ) from None

    def release(self, owner: str) -> None:
        with self._guard:
            descriptor = self._held.pop(owner, None)
            if descriptor is not None:
                del self.identities[str(self._path(owner))]
                # A file that cannot be removed is no lock without us; the next sweep may have more luck.
                with contextlib.suppress(OSError):
                    self._path(owner).unlink(missing_ok=True)
                os.close(descriptor)

    def holds(self, owner: str) -> bool:
        return owner in self._held

    @property
    def held(self) -> list[str]:
        return list(self._held)

    def release_all(self) -> None:
        for owner in list(self._held):
            self.release(owner)

    def lock_lost(self) -> str:
        """What to say when such a file was deleted or replaced."""
        sentence = (
            f'The lock in "{self._folder.name}" that shows that this process lives was deleted or replaced; '
            "no writing call is begun until a restart."
        )
        if not self._is_reported:
            self._is_reported = True
            _log.error("%s", sentence)
        return sentence

    def life(self, owner: str, process: Process | None) -> Life:
        """What became of `owner`, which registered as `process`. In doubt it lives: a call that waits is better than one that
        runs twice."""
        if owner in self._held:
            return Life.ALIVE
        try:
            descriptor = os.open(self._path(owner), os.O_RDWR)
        except FileNotFoundError:
            return _without_lock(process)
        except OSError:
            return Life.ALIVE
        try:
            # Shared, so that two that look at once do not take each other for the owner.
            if _try_lock(descriptor, exclusive=False):
                return Life.DIED
        finally:
            os.close(descriptor)
        # A child that was forked by other means than Python's has the lock too, and may outlive the owner.
        return Life.DIED if process is not None and process.is_gone() else Life.ALIVE

    def _lock(self, owner: str) -> int:
        path = self._path(owner)
        deadline = time.monotonic() + _PATIENCE
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            # Between our open and our lock, a sweep may have taken the file for a dead owner's and removed it: a lock
            # on a file that has no name any more tells nobody anything.
            if _try_lock(descriptor, exclusive=True) and _is_at(descriptor, path):
                return descriptor
            os.close(descriptor)
            if time.monotonic() > deadline:
                raise UsageError(f'The owner "{owner}" is registered already; each runtime needs a name of its own.')
            time.sleep(0.01)

    def sweep(self, kept: Collection[str]) -> None:
        """Remove the files that dead owners left, except those of `kept`."""
        staying = {self._path(owner) for owner in kept}
        for path in self._folder.glob("*.lock"):
            # Calls of this owner are still to be settled, and its lock is what says that it died.
            if path in staying:
                continue
            try:
                descriptor = os.open(path, os.O_RDWR)
            except OSError:
                continue
            try:
                if _try_lock(descriptor, exclusive=True) and _is_at(descriptor, path):
                    path.unlink(missing_ok=True)
            finally:
                os.close(descriptor)

    def _path(self, owner: str) -> Path:
        name = owner if _PLAIN.fullmatch(owner) else "sha256-" + hashlib.sha256(owner.encode()).hexdigest()
        return self._folder / f"{name}.lock"

    def let_go(self) -> None:
        """In a forked child: these locks are the parent's, and must not outlive it here."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held, self.identities, self._guard = {}, {}, threading.Lock()


_ALL: weakref.WeakSet[OwnerLocks] = weakref.WeakSet()


def _in_forked_child() -> None:
    for locks in list(_ALL):
        locks.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def _without_lock(process: Process | None) -> Life:
    """An owner that ends in order is taken out of the store before its lock is removed; so is one that was swept."""
    if process is None:
        return Life.ENDED
    # The file was deleted, or the process ran on another machine; what the store has of it is left.
    gone = process.is_gone()
    if gone is None:
        return Life.ALIVE if process.is_of_this_boot() else Life.ENDED
    return Life.DIED if gone else Life.ALIVE


def _try_lock(descriptor: int, *, exclusive: bool) -> bool:
    # `flock` belongs to the open file, not to the process: two owners in one process conflict as they should.
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When the process started; empty for one that has ended and was not collected; None where it cannot be seen."""
    try:
        # The name of the program stands in parentheses and may hold any character.
        fields = (_PROC / f"{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in "ZX" else fields[19]


# The processes of owners in the store
def register(tx: Transaction, owner: str, process: Process) -> list[str]:
    """Write down that `owner` is this process, and forget others that are over; on whom calls or the audit still depend."""
    tx.db.execute("DELETE FROM owner WHERE owner = ?", (owner,))
    tx.db.execute("INSERT INTO owner VALUES (?, ?, ?, ?, ?)", (owner, *process))
    rows = tx.db.execute(
        """SELECT owner FROM ledger INDEXED BY ledger_open
           WHERE state IN ('running', 'unknown') AND state = 'running'
           UNION SELECT owner FROM audit_owner"""
    )
    depended_on = {row[0] for row in rows}
    known = [row[0] for row in tx.db.execute("SELECT owner FROM owner")]
    over = [name for name in known if name not in depended_on and not tx.alive(name)]
    release(tx, over)
    return sorted(depended_on)


def release(tx: Transaction, names: Sequence[str]) -> None:
    """These end in order, or are over."""
    tx.db.executemany("DELETE FROM owner WHERE owner = ?", [(name,) for name in names])


def process_of(db: Database, owner: str) -> Process | None:
    row = db.execute("SELECT boot, namespace, pid, started FROM owner WHERE owner = ?", (owner,)).fetchone()
    return Process._make(row) if row else None
