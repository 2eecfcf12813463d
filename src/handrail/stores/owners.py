"""Which owners live. An owner is a process (or one of several runtimes in it) that holds claims; it has an operating-
system lock on a file beside the store, which the kernel frees when the process dies, however it dies and whatever the
clock says."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from pathlib import Path

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable

try:
    import fcntl
except ImportError:  # Windows: the memory store must still be importable there.
    fcntl = None  # type: ignore[assignment]

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_PATIENCE = 1.0
"""Seconds. Somebody who looks whether an owner lives holds its lock for an instant."""


class OwnerLocks:
    """The locks that this store object holds, and a look at everybody else's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}
        self._guard = threading.Lock()

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
                self._sweep()
                self._held[owner] = self._lock(owner)
            except OSError as error:
                raise StoreUnavailable(
                    f'The folder of owners "{self._folder.name}" beside the store cannot be used ({error.strerror}).'
                ) from None

    def release(self, owner: str) -> None:
        with self._guard:
            descriptor = self._held.pop(owner, None)
            if descriptor is not None:
                # A file that cannot be removed is no lock without us; the next sweep may have more luck.
                with contextlib.suppress(OSError):
                    self._path(owner).unlink(missing_ok=True)
                os.close(descriptor)

    def release_all(self) -> None:
        for owner in list(self._held):
            self.release(owner)

    def alive(self, owner: str) -> bool:
        """Whether `owner` has its lock. In doubt it lives: a call that waits is better than one that runs twice."""
        if owner in self._held:
            return True
        try:
            descriptor = os.open(self._path(owner), os.O_RDWR)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            # Shared, so that two that look at once do not take each other for the owner.
            return not _try_lock(descriptor, exclusive=False)
        finally:
            os.close(descriptor)

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

    def _sweep(self) -> None:
        """Remove the files that dead owners left."""
        for path in self._folder.glob("*.lock"):
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
