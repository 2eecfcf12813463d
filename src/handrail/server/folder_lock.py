"""A lock on a folder, for work that one process at a time does on files in it. It ends with the process, however that ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover  # a system without it has one process at a time
    fcntl = None  # type: ignore[assignment]

_LOOK_SECONDS = 0.05


@asynccontextmanager
async def folder_lock(folder: Path) -> AsyncIterator[None]:
    """Wait until nobody else has the lock, in this process or another. `OSError` if there is no such folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        while not _is_locked(handle):  # noqa: ASYNC110  # another process wakes nobody when it is done
            await asyncio.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
