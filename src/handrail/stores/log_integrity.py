"""Whether the content of an open database's files is what SQLite wrote.

SQLite takes what it knows of its log from the log's index, which all processes share, and never looks back. So a log that is
truncated or overwritten in place (`: > handrail.db-wal`, a copy of a backup over it) goes unnoticed: SQLite continues behind the
hole, and after a crash the next process finds no valid log and drops every commit in it. The index says which frame was
committed last and with which salts; this module reads the first and the last bytes of the log and compares. The layouts are
those of https://www.sqlite.org/walformat.html.

The descriptors are SQLite's own. Closing one that we had opened ourselves would drop every lock of this process on the file.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path

_INDEX_BYTES = 136
_INDEX = struct.Struct("=12xBxH I 4x II 8s")  # isInit, page size, number and checksum of the last frame, salts
_PROGRESS = struct.Struct("=96x I 28x I")  # frames moved to the main file, frames that someone began to move
_LOG_HEADER_BYTES = 32
_LOG_MAGIC = b"\x37\x7f\x06"
_FRAME_HEADER = struct.Struct(">8x 8s II")  # salts, checksum up to this frame
_MAIN_HEADER_BYTES = 100
_DESCRIPTORS = Path("/dev/fd")

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Main:
    """The main file as it was after a checkpoint had ended: until the next one nobody writes to it."""

    checkpoint: bytes
    changed_ns: int
    size: int
    header: bytes


class LogIntegrity:
    """Compares the log of one open database with its index, and its main file with what the last checkpoint left."""

    def __init__(self, main: Identity, log: Identity, index: Identity) -> None:
        self._identities = (main, log, index)
        self._descriptors: tuple[int, int, int] | None = None
        self._main: _Main | None = None
        self._borrow()

    def damage(self) -> str | None:
        """Which file somebody else has changed, "log" or "main". Another process that commits at this moment may look like
        damage too: ask `confirmed_damage` inside a write transaction."""
        if self._descriptors is None:
            return None
        try:
            return self._compare(*self._descriptors)
        except (OSError, struct.error):
            return self._compare_anew()

    def confirmed_damage(self) -> str | None:
        """The same inside a write transaction, with descriptors that are certainly those of the files."""
        return self._compare_anew()

    def _compare_anew(self) -> str | None:
        self._borrow()
        try:
            return self._compare(*self._descriptors) if self._descriptors is not None else None
        except OSError:
            return None
        except struct.error:
            return "log"

    def _compare(self, main: int, log: int, index: int) -> str | None:
        known = os.pread(index, _INDEX_BYTES, 0)
        if len(known) < _INDEX_BYTES:
            return None
        initialised, page, last_frame, *checksum, salts = _INDEX.unpack_from(known)
        if not initialised:
            return None
        if last_frame:
            header = os.pread(log, _LOG_HEADER_BYTES, 0)
            if header[:3] != _LOG_MAGIC or header[16:24] != salts:
                return "log"
            frame_bytes = _FRAME_HEADER.size + ((page & 0xFF00) | (page & 1) << 16)
            end = _LOG_HEADER_BYTES + last_frame * frame_bytes
            if os.fstat(log).st_size < end:
                return "log"
            frame = os.pread(log, _FRAME_HEADER.size, end - frame_bytes)
            if list(_FRAME_HEADER.unpack(frame)) != [salts, *checksum]:
                return "log"
        return self._compare_main(main, index, known)

    def _compare_main(self, main: int, index: int, known: bytes) -> str | None:
        moved, begun = _PROGRESS.unpack_from(known)
        if moved != begun:
            return None  # a checkpoint is under way, or was cut off by a crash
        checkpoint = known[32:40] + known[96:100]
        found = os.fstat(main)
        if (found.st_dev, found.st_ino) != self._identities[0]:
            raise OSError("the descriptor is another file's by now")
        before = self._main
        if before is not None and before.checkpoint == checkpoint and before.changed_ns == found.st_mtime_ns:
            return None
        header = os.pread(main, _MAIN_HEADER_BYTES, 0)
        if os.pread(index, _INDEX_BYTES, 0)[96:] != known[96:]:
            return None  # a checkpoint began meanwhile
        now = _Main(checkpoint=checkpoint, changed_ns=found.st_mtime_ns, size=found.st_size, header=header)
        # Setting a file's time alone, as some backup programs do, changes nothing.
        if (
            before is not None
            and before.checkpoint == checkpoint
            and replace(now, changed_ns=before.changed_ns) != before
        ):
            return "main"
        self._main = now
        return None

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
        descriptors = tuple(found.get(identity) for identity in self._identities)
        main, log, index = descriptors
        self._descriptors = (main, log, index) if main is not None and log is not None and index is not None else None
