"""A chain of audit files in a directory: the form of its lines, which the verifier speaks too, and the writer that renders and
seals lines, appends them, rotates, and writes checkpoints. A serving process has a chain of its own; commands share one a day
(`shared_chain`).

A line is one JSON object that starts with `event`, `ts` and `seq`, then has the event's fields. Lines are sealed in
small groups: the last one of a group ends in `"hash"`, which covers the hash before it and every byte since, up to
the hash itself. A line that was flushed alone is a group of one, so its hash is `H(previous hash + line without its
hash)`. `H` is SHA-256, or HMAC-SHA-256 where there is a key. Groups exist because a hash per line would cost more
than the line.

A write that the disk cut short is finished, byte for byte, before anything else is written, so a full disk leaves no
hole: the file is torn until there is room again, and whole afterwards. Checkpoints, the (count, head) of the chain,
are lines of the file and are also kept in `checkpoints.jsonl`, which all processes append to: that is how a cut tail
or a deleted file is found.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import orjson

from handrail.contract.store import AuditPosition

_log = logging.getLogger("handrail.audit")

CHECKPOINTS = "checkpoints.jsonl"
FILES = "audit-*.jsonl"
GENESIS = b"0" * 64
"""The hash before the first line."""
GROUP = 16
"""How many lines one hash covers at most: an edit is found within as many lines."""
FORMAT = 1

START = "audit_start"
CHECKPOINT = "checkpoint"
GAP = "audit_gap"
RESERVED = frozenset({"event", "ts", "seq", "hash"})

HEAD = re.compile(rb'\{"event":("(?:[^"\\]|\\.)*"),"ts":"([^"]*)","seq":(\d+)[,}]')
SEALED_LINE = b'%b,"%b":"%b"}\n'
"""A JSON object without its closing brace, the name of its hash, and the hash: what `split_seal` takes apart."""
_SEAL = re.compile(rb',"(?:hash|mac)":"([0-9a-f]{64})"\}$')

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_MAX_NAMES = 1_000

Entry: TypeAlias = tuple[str, float, bytes]
"""An event ready to be written: its name, its time, its fields as a JSON object without the opening brace."""


def seal(key: bytes | None, data: bytes) -> bytes:
    """The hash of `data` in hexadecimal; keyed where there is a key."""
    if key is None:
        return hashlib.sha256(data).hexdigest().encode()
    return hmac.digest(key, data, "sha256").hex().encode()


def split_seal(line: bytes) -> tuple[bytes, bytes | None]:
    """A line as (what its hash covers, its hash); the whole line and None if it has no hash."""
    found = _SEAL.search(line[-76:])
    return (line[: -len(found[0])], found[1]) if found else (line, None)


def stamp(second: int) -> bytes:
    """A UTC time without its milliseconds, as in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()


def encode_name(name: object) -> bytes:
    """A JSON string, whatever is in it."""
    try:
        return orjson.dumps(str(name))
    except TypeError:  # a lone surrogate
        return json.dumps(str(name)).encode()


def encode(fields: Mapping[str, object]) -> bytes:
    """The fields as one JSON object. Never raises: what JSON cannot hold is replaced by its type, the rest is kept."""
    try:
        if not RESERVED.isdisjoint(fields):
            fields = {f"{name}_" if name in RESERVED else name: value for name, value in fields.items()}
        return orjson.dumps(fields, json_substitute)
    except Exception:  # noqa: BLE001  # an event must not be lost, nor a call fail, because of one odd value
        return _encode_piecemeal(fields)


def _encode_piecemeal(fields: Mapping[str, object]) -> bytes:
    try:
        return b"{%b}" % b",".join(b"%b:%b" % (encode_name(name), _encode_value(fields[name])) for name in fields)
    except Exception:  # noqa: BLE001  # not even a mapping that can be read
        return b'{"unreadable":%b}' % encode_name(type(fields).__name__)


def _encode_value(value: object) -> bytes:
    try:
        return orjson.dumps(value, json_substitute)
    except Exception:  # noqa: BLE001  # the slower encoder takes large integers and lone surrogates
        try:
            return json.dumps(value, default=json_substitute, allow_nan=False).encode()
        except Exception:  # noqa: BLE001  # circular, too deep, odd keys
            return encode_name(f"<{type(value).__name__}>")


def json_substitute(value: object) -> object:
    """What stands for a value that JSON does not know. Of a foreign object only its type: its text may hold secrets."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (Decimal, PurePath)):
        return str(value)
    return f"<{type(value).__name__}>"


def decode(line: bytes) -> dict[str, Any] | None:
    """The event on a line; None if it is torn or not one."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("ts"), str) else None


class Appender:
    """Appends to one file and keeps what could not be written."""

    __slots__ = ("_descriptor", "_queue", "_rest", "_shared", "is_fresh", "path", "push", "size")

    def __init__(self, path: Path, *, shared: bool, fresh: bool = True) -> None:
        """`shared` with other processes at any time; `fresh` if there is no such file yet."""
        self.path = path
        self.is_fresh = fresh
        self._rest = b""
        self._queue: list[bytes] = []
        self.push: Callable[[bytes], None] = self._queue.append
        self._shared = shared
        self._descriptor = os.open(path, _FLAGS | (os.O_EXCL if fresh and not shared else 0), 0o600)
        self.size = os.fstat(self._descriptor).st_size if not (fresh or shared) else 0

    def drain(self) -> None:
        """Write what is left; `OSError` if not all of it could be written."""
        if self._queue:
            self._rest += b"".join(self._queue)
            self._queue.clear()
            if self._shared and self._is_torn():
                self._rest = b"\n" + self._rest
        while self._rest:
            count = os.write(self._descriptor, self._rest)
            self.size += count
            if self._shared and count < len(self._rest):
                # Another process may write before we continue, so the broken line is left behind and told again.
                self._queue.append(self._rest[self._rest.rfind(b"\n", 0, count) + 1 :])
                self._rest = b""
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._rest = self._rest[count:]

    def _is_torn(self) -> bool:
        with self.path.open("rb") as stream:
            return stream.seek(0, os.SEEK_END) > 0 and stream.seek(-1, os.SEEK_END) >= 0 and stream.read(1) != b"\n"

    def is_ours(self) -> bool:
        """Whether the file is still there and as long as we made it."""
        facts = os.fstat(self._descriptor)
        return facts.st_nlink > 0 and facts.st_size == self.size

    def sync(self) -> None:
        """Wait until the disk has what was written."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class ChainWriter:
    """The files of one chain. Not thread-safe: the audit log calls it under its lock."""

    def __init__(
        self, directory: Path, *, key: bytes | None, max_bytes: int, checkpoint_every: int, clock: Callable[[], float]
    ) -> None:
        self._directory = directory
        self._key = key
        self._max_bytes = max_bytes
        self._checkpoint_every = checkpoint_every
        self._clock = clock
        self._names: dict[str, bytes] = {}
        self.trouble: str | None = None
        self._begin()

    def _begin(self) -> None:
        self._chain = f"{stamp(int(self._clock())).decode().replace(':', '')}Z-{os.getpid()}-{secrets.token_hex(4)}"
        self._file: Appender | None = None
        self._checkpoints: Appender | None = None
        self._part = 0
        self._seq = 0
        self._hash = GENESIS
        self._checkpoint_due = 0
        self._second = -1
        self._from = self._until = 0.0
        self._prefix = self._ts = self._stamp = b""
        self.position: AuditPosition | None = None
        """The last line that was written; None before there is one."""
        self.is_behind = True
        """Whether something older waits to be written, or no file is open yet; then write that first."""

    def leads_to_here(self, known: AuditPosition) -> bool:
        """Whether the line of an earlier checkpoint is still part of this chain. Nobody else writes it, so it is."""
        return known.chain == self._chain

    def write(self, entries: Sequence[Entry], *, to_disk: bool = False, is_last: bool = False) -> bool:
        """Take the entries over and write them, after what is left of earlier ones; with `to_disk` wait until the disk has them.
        False: they are kept here until later, or the disk does not take them. `is_last`: with a checkpoint behind them."""
        try:
            self._write_out(entries, is_last=is_last)
            if to_disk and self._file is not None:
                self._file.sync()
        except OSError as error:
            if self.trouble is None:
                _log.error("The audit log in %s cannot be written: %s", self._directory, error)
            self.trouble = f'The audit log in "{self._directory}" cannot be written ({error.strerror or error}).'
            self.is_behind = True
            return False
        if self.trouble is not None:
            _log.warning("The audit log in %s can be written again", self._directory)
        self.trouble = None
        self.is_behind = False
        return True

    def close(self) -> bool:
        """Write a last checkpoint; False if something could not be written."""
        done = self.write((), is_last=True)
        self._release()
        return done

    def restart(self) -> None:
        """In the child of a fork: the files and what waits belong to the parent; begin a chain of our own."""
        self._release()
        self._begin()

    def _release(self) -> None:
        for appender in (self._file, self._checkpoints):
            if appender is not None:
                appender.close()
        self._file = self._checkpoints = None

    def _write_out(self, entries: Sequence[Entry], *, is_last: bool) -> None:
        if self._file is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._checkpoints = self._checkpoints or Appender(self._directory / CHECKPOINTS, shared=True)
            self._next_file()
        if self.is_behind:
            self._drain()
        if entries:
            self._append(entries)
        if is_last:
            self._checkpoint()
        self._drain()

    # ------------------------------------------------------------------------------------------------------- files
    def _next_file(self) -> None:
        name = self._file_name(self._part + 1)
        anchor = self._anchor()
        fresh = Appender(self._directory / name, shared=False)
        previous, self._file, self._part = self._file, fresh, self._part + 1
        if previous is not None:
            previous.close()
        start = {
            "format": FORMAT,
            "file": name,
            "pid": os.getpid(),
            "keyed": self._key is not None,
            "previous": previous.path.name if previous is not None else None,
            "prev": self._hash.decode(),
            "anchor": anchor,
        }
        self._group([(START, self._clock(), orjson.dumps(start)[1:])])
        self._record()

    def _file_name(self, part: int) -> str:
        return f"audit-{self._chain}-{part:06}.jsonl"

    def _anchor(self) -> dict[str, Any]:
        # What the other processes' checkpoints looked like when this file began: they cannot be cut unnoticed later.
        content = (self._directory / CHECKPOINTS).read_bytes()
        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def _drain(self) -> None:
        assert self._file is not None
        assert self._checkpoints is not None
        self._file.drain()
        self.position = AuditPosition(self._chain, self._file.path.name, self._seq, self._hash.decode())
        # After the lines, so that a crash in between never leaves a checkpoint for lines that are not there.
        self._checkpoints.drain()

    # ------------------------------------------------------------------------------------------------------- lines
    def _append(self, entries: Sequence[Entry]) -> None:
        assert self._file is not None
        if not self._file.is_ours():
            _log.error("The audit file %s was deleted or changed while it was written", self._file.path)
            self._next_file()
        elif self._file.size >= self._max_bytes:
            self._checkpoint()
            self._drain()
            self._next_file()
        for start in range(0, len(entries), GROUP):
            self._group(entries[start : start + GROUP])
            if self._seq >= self._checkpoint_due:
                self._checkpoint()

    def _checkpoint(self) -> None:
        body = b'"count":%d}' % (self._seq + 1)
        self._group([(CHECKPOINT, self._clock(), body)])
        self._record()

    def _record(self) -> None:
        """Put (count, head) of the line just made into `checkpoints.jsonl`."""
        assert self._file is not None
        assert self._checkpoints is not None
        self._checkpoint_due = self._seq + self._checkpoint_every
        facts = (self._ts, encode_name(self._file.path.name), self._seq, self._hash)
        stem = b'{"event":"checkpoint","ts":"%b","file":%b,"count":%d,"head":"%b"' % facts
        self._checkpoints.push(SEALED_LINE % (stem, b"mac", seal(self._key, stem)))

    def _group(self, entries: Sequence[Entry]) -> None:
        """Render the entries as lines under one hash."""
        assert self._file is not None
        parts: list[bytes] = []
        seq = self._seq
        names, dumps = self._names, orjson.dumps
        for event, when, body in entries:
            seq += 1
            if not self._from <= when < self._until:  # the text of a millisecond is made once
                millisecond = int(when * 1000)
                second = millisecond // 1000
                if second != self._second:
                    self._second, self._prefix = second, stamp(second)
                self._from, self._until = millisecond / 1000, (millisecond + 1) / 1000
                self._ts = b"%b.%03dZ" % (self._prefix, millisecond % 1000)
                self._stamp = self._ts + b'","seq":'
            head = names.get(event) or self._name(event)
            parts += (head, self._stamp, dumps(seq), b"," if len(body) > 1 else b"", body, b"\n")
        stem = b"".join(parts)[:-2]
        self._seq = seq
        self._hash = seal(self._key, self._hash + stem)
        self._file.push(SEALED_LINE % (stem, b"hash", self._hash))

    def _name(self, event: str) -> bytes:
        if len(self._names) >= _MAX_NAMES:
            self._names.clear()
        head = self._names[event] = b'{"event":%b,"ts":"' % encode_name(event)
        return head
