"""The chain that all commands of a day write together, one after the other, under a lock.

A command lives for a moment: with a chain of its own, each would leave a file with two lines. So whoever has something to
write takes the lock, reads where the chain ends, continues there, and lets the lock go. What a command left torn when it died
is taken off before the next line, and an `audit_gap` line says how many bytes it was.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from handrail.contract.store import AuditPosition
from handrail.observe.chain import (
    CHECKPOINT,
    CHECKPOINTS,
    GAP,
    GENESIS,
    HEAD,
    START,
    Appender,
    ChainWriter,
    Entry,
    encode_name,
    split_seal,
    stamp,
)

try:
    import fcntl
except ImportError:  # Windows: every process has a chain of its own there
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger("handrail.audit")
_LOCK = "commands.lock"
_PATIENCE = 2.0
"""Seconds. Whoever writes holds the lock for some milliseconds."""
_BLOCK = 64 * 1024
_RECORDED = (encode_name(START), encode_name(CHECKPOINT))

can_share = fcntl is not None


class SharedChainWriter(ChainWriter):
    """Keeps its entries until they are written: their numbers and hashes depend on what others write meanwhile."""

    def _begin(self) -> None:
        super()._begin()
        self._chain = ""
        self._waiting: list[Entry] = []

    def restart(self) -> None:
        super().restart()
        self._waiting = []

    def leads_to_here(self, known: AuditPosition) -> bool:
        """Whether the line of an earlier checkpoint, which another command has stored, is still in its file."""
        try:
            with (self._directory / known.file).open("rb") as stream:
                for line in stream:
                    head = HEAD.match(line)
                    if head is not None and int(head[3]) == known.seq:
                        return split_seal(line.rstrip(b"\n"))[1] == known.head.encode()
        except OSError:
            return False
        return False

    def _write_out(self, entries: Sequence[Entry], *, is_last: bool) -> None:
        self._waiting += entries
        with self._locked():
            if self._waiting:
                self._add(lambda: self._append(self._waiting))
                self._waiting = []
            # A command that has said nothing today leaves no line.
            if is_last and self.position is not None and self._chain == self._today():
                self._add(self._checkpoint)
            if self._checkpoints is not None:
                self._checkpoints.drain()

    def _add(self, render: Callable[[], None]) -> None:
        """Lines behind the last one of the chain: all of them, or none."""
        begun: tuple[Path, int] | None = None
        try:
            self._take_up()
            assert self._file is not None
            begun = self._file.path, self._file.size
            render()
            self._file.drain()
        except OSError:
            self._undo(begun)
            raise
        self.position = AuditPosition(self._chain, self._file.path.name, self._seq, self._hash.decode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise OSError(errno.EBUSY, "another command holds the lock of the audit log") from None
                    time.sleep(0.005)
            yield
        finally:
            os.close(descriptor)

    # ------------------------------------------------------------------------------------------- where the chain ends
    def _take_up(self) -> None:
        """Open today's newest file, and continue behind its last line, whoever wrote it."""
        self._checkpoints = self._checkpoints or Appender(self._directory / CHECKPOINTS, shared=True)
        chain = self._today()
        parts = sorted(self._directory.glob(f"audit-{chain}-[0-9]*.jsonl"))
        if parts and self._file is not None and self._file.path == parts[-1] and self._file.is_ours():
            return
        self._leave_file()
        self._chain, self._part, self._seq, self._hash = chain, 0, 0, GENESIS
        if not parts or not self._read_end(parts[-1]):
            self._next_file()

    def _today(self) -> str:
        # A chain is keyed or not as a whole, so a key that is introduced during the day begins another one.
        keyed = "" if self._key is None else "-keyed"
        return f"commands-{stamp(int(self._clock())).decode()[:10]}{keyed}"

    def _leave_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_end(self, path: Path) -> bool:
        """Whether there is a line to continue behind."""
        data, whole = _sealed_end(path)
        size = path.stat().st_size
        if not whole:
            _log.warning("The audit file %s had no whole line, and is begun anew", path)
            path.unlink()
            self._part = int(path.stem.rpartition("-")[2]) - 1
            return False
        line = data[data.rfind(b"\n", 0, -1) + 1 : -1]
        head, (_, stated) = HEAD.match(line), split_seal(line)
        if head is None or stated is None:
            raise OSError(errno.EILSEQ, f"{path.name} does not end in a line of an audit log")
        self._part = int(path.stem.rpartition("-")[2])
        self._seq, self._hash, self._ts = int(head[3]), stated, head[2]
        file = self._file = Appender(path, shared=False, fresh=False)
        if head[1] in _RECORDED:
            self._record_again()
        self._checkpoint_due = self._seq + self._checkpoint_every
        if whole < size:
            _log.warning("The audit file %s ended in %d torn bytes, which were taken off", path, size - whole)
            os.truncate(path, whole)
            file.size = whole
            self._group([(GAP, self._clock(), b'"torn":%d}' % (size - whole))])
        return True

    def _record_again(self) -> None:
        """A command that died between a checkpoint and its record in `checkpoints.jsonl` left the record to us."""
        assert self._file is not None
        with (self._directory / CHECKPOINTS).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _BLOCK))
            known = b'"file":%b,"count":%d,' % (encode_name(self._file.path.name), self._seq)
            if known not in stream.read():
                self._record()

    def _undo(self, begun: tuple[Path, int] | None) -> None:
        """The disk took only a part: take it off, so that others do not find a torn line, and begin anew the next time."""
        file = self._file
        if file is not None:
            size = begun[1] if begun is not None and begun[0] == file.path else 0
            try:
                if size:
                    os.truncate(file.path, size)
                elif file.is_fresh:
                    file.path.unlink()
            except OSError as error:
                _log.warning("The audit file %s is left torn: %s", file.path, error)
        self._leave_file()


def _sealed_end(path: Path) -> tuple[bytes, int]:
    """The end of a file up to its last line that has a hash, and where that ends."""
    with path.open("rb") as stream:
        place = stream.seek(0, os.SEEK_END)
        data = b""
        while place > 0:
            step = min(place, max(_BLOCK, len(data)))
            place -= step
            stream.seek(place)
            data = stream.read(step) + data
            end = data.rfind(b"\n") + 1
            while end > 0:
                begin = data.rfind(b"\n", 0, end - 1) + 1
                if split_seal(data[begin : end - 1])[1] is not None and (begin or not place):
                    return data[:end], place + end
                end = begin
    return b"", 0
