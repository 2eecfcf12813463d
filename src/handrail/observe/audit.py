"""The audit log: one JSON line per event, chained by hashes. `emit` only buffers, so it neither blocks nor fails; the
runtime calls `flush` every 100 ms and before a writing call starts. While lines cannot be written the log is not
`healthy`: the pipeline then refuses tools that write and lets the others continue. What does not fit the buffer is
counted, and the count is written as an `audit_gap` line as soon as that is possible.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, cast
from weakref import WeakSet

import orjson

from handrail.contract.ports import CallParts, CallRecord
from handrail.contract.provenance import cut_input
from handrail.contract.store import AuditedFact, AuditPosition, AuditSubject
from handrail.observe.audit_files import keys_of_executions, newest_facts
from handrail.observe.chain import GAP, ChainWriter, Entry, encode, encode_name, json_substitute, seal
from handrail.observe.redaction import compile_redactor
from handrail.observe.sealing import SEALED, seal_text, take_words
from handrail.observe.shared_chain import SharedChainWriter, can_share

_log = logging.getLogger("handrail.audit")
MAX_BYTES = 64 * 1024 * 1024
MAX_PENDING = 10_000
MAX_PENDING_BYTES = 32 * 1024 * 1024
_RECORD_BYTES = 500
"""About so much a call's line is longer than its arguments."""
_BATCH = 256
"""How many lines at most are rendered before they are written, and kept rendered if that fails."""


_ENTRY_PARTS = 3
"""Of an `Entry`; a `CallRecord` has many more."""
_VALUES = frozenset({str, int, float, bool, type(None)})


class _Unsealed(NamedTuple):
    """An event whose words are sealed when it is written."""

    event: str
    time: float
    fields: dict[str, Any]
    private: Collection[str]
    subject: AuditSubject


class _Later(NamedTuple):
    """An event whose fields are put together when it is written."""

    event: str
    time: float
    fields: Callable[[], dict[str, Any]]
    subject: AuditSubject | None
    private: Collection[str]
    size: int


_Noted = Entry | CallParts | _Unsealed | _Later


class _Ring:
    """Keeps the newest entries in memory. They are parsed by whoever reads them: most are never read."""

    trouble: str | None = None
    position: AuditPosition | None = None
    is_behind = False

    def __init__(self, size: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=size)
        self._count = 0

    def events(self) -> list[dict[str, Any]]:
        """The events as a reader of the file would get them."""
        first = self._count - len(self._entries) + 1
        return [_event(seq, *entry) for seq, entry in enumerate(self._entries, first)]

    def write(self, entries: Sequence[Entry], *, to_disk: bool = False) -> bool:
        self._entries.extend(entries)
        self._count += len(entries)
        return True

    def leads_to_here(self, known: AuditPosition) -> bool:
        return True

    def close(self) -> bool:
        return True

    def restart(self) -> None:
        self._entries.clear()


def _event(seq: int, event: str, when: float, body: bytes) -> dict[str, Any]:
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(when)))
    ts = f"{text}.{int(when * 1000) % 1000:03}Z"
    return {"event": event, "ts": ts, "seq": seq, **json.loads(b"{" + body)}


class AuditLog:
    """Where every event of a process goes. `path` is a directory; None keeps the events in memory, for tests."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_directory",
        "_drop_lock",
        "_dropped",
        "_key",
        "_limit",
        "_lock",
        "_mask",
        "_pending",
        "_sink",
        "clock",
        "note",
    )

    def __init__(
        self,
        path: Path | None,
        *,
        key: bytes | None = None,
        shared: bool = False,
        redact: Sequence[str] = (),
        max_bytes: int = MAX_BYTES,
        checkpoint_every: int = 1000,
        max_pending: int = MAX_PENDING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`key` makes the hashes HMACs; `shared`: in the chain of the day's commands, not in one of its own."""
        self.clock = clock
        self._directory = path
        self._key = key
        self._limit = max_pending
        self._mask = compile_redactor(None, redact)
        # Appending to a deque and taking from it are atomic, so that any thread may emit without a lock.
        self._pending: deque[_Noted] = deque()
        self.note: Callable[[CallParts], None] = self._pending.append
        """What every call does, so it is nothing but an append. `flush` sees to it that not too many wait."""
        self._dropped = 0
        self._lock = Lock()
        self._drop_lock = Lock()
        self._closed = False
        self._sink: ChainWriter | _Ring
        if path is None:
            self._sink = _Ring(max_pending)
        else:
            made = SharedChainWriter if shared and can_share else ChainWriter
            self._sink = made(path, key=key, max_bytes=max_bytes, checkpoint_every=checkpoint_every, clock=clock)
            _LIVE.add(self)
        self.flush()

    def emit(self, event: str, fields: Mapping[str, object]) -> None:
        """Note an event. Never raises and never waits; `fields` may be changed afterwards.

        `event`, `ts`, `seq` and `hash` are the log's own names: a field called so is written with a `_` behind it.
        """
        if len(self._pending) >= self._limit:
            self._drop()
            return
        # The slice is a copy of the right size: the encoder's own buffer would cost a page fault for every line kept.
        self._pending.append((event, self.clock(), self._body(fields)[1:]))

    def emit_for(
        self, subject: AuditSubject, event: str, fields: Mapping[str, object], *, private: Collection[str] = ()
    ) -> None:
        """As `emit`; what is not known to be harmless, and what is named as `private`, is sealed, or left out if the subject has
        no secret."""
        if len(self._pending) >= self._limit:
            self._drop()
            return
        own = dict(fields)
        try:
            for name, value in fields.items():
                if type(value) not in _VALUES:  # it may be changed before it is written
                    own[name] = orjson.Fragment(orjson.dumps(value, json_substitute))
        except Exception:  # noqa: BLE001  # see `encode`, which takes what is left
            own = dict(fields)
            self._seal_words(subject, own, private)
            self.emit(event, own)
        else:
            self._pending.append(_Unsealed(event, self.clock(), own, private, subject))

    def emit_later(
        self,
        event: str,
        fields: Callable[[], dict[str, Any]],
        subject: AuditSubject | None,
        *,
        private: Collection[str] = (),
        size: int = 0,
    ) -> None:
        """As `emit`, or as `emit_for` a subject, of what `fields` gives when the line is written. `fields` runs on another
        thread, and looks at nothing that changes. `size`: about how long they are, in bytes."""
        if len(self._pending) >= self._limit:
            self._drop()
            return
        self._pending.append(_Later(event, self.clock(), fields, subject, private, size))

    def _seal_words(self, subject: AuditSubject, fields: dict[str, Any], private: Collection[str] = ()) -> None:
        words = take_words(fields, private)
        if words and subject.secret:
            fields[SEALED] = seal_text(subject, self._body(words)).decode()

    def _entry(self, noted: _Noted) -> Entry:
        """What is written. Words are sealed, and the fields of a call's line put in their order, only now: the call itself
        waits for neither."""
        if isinstance(noted, _Unsealed):
            self._seal_words(noted.subject, noted.fields, noted.private)
            return noted.event, noted.time, self._body(noted.fields)[1:]
        if isinstance(noted, _Later):
            return noted.event, noted.time, self._later_body(noted)[1:]
        if len(noted) == _ENTRY_PARTS:
            return cast(Entry, noted)
        record = CallRecord._make(noted)
        try:
            # Taken apart at once: a name of a tuple costs more than a place.
            session_id, _, duration, error_type, _, _, _, tool, turn, connection, mode, provider, call_id, key = record[
                :14
            ]
            args, defaulted, redact, more, subject, _, raw, parsed, validation = record[14:]
            fields: dict[str, Any] = {
                "sessionId": session_id,
                "turnId": turn,
                "connection": connection,
                "mode": mode,
                "provider": provider,
                **tool,
                "callId": call_id,
                "idempotencyKey": key,
                "duration": duration,
                "ok": error_type is None,
                "errorType": error_type,
                "args": orjson.Fragment(args) if redact is None else redact(orjson.loads(args)),
            }
            if validation:
                fields["validatorMs"] = round(validation * 1000, 4)
            if parsed != args:
                fields["parsed"] = orjson.Fragment(parsed) if redact is None else redact(orjson.loads(parsed))
            if redact is None and type(raw) is str:  # a text that has a secret in it cannot be shown in part
                fields.update(cut_input(raw))
            if defaulted:
                fields["defaulted"] = defaulted
            if more is not None:
                fields.update(more)
            if subject is not None:
                self._seal_words(subject, fields)
            body = self._body(fields)
        except Exception as error:  # noqa: BLE001  # one call that cannot be written must not cost the lines after it
            _log.error("A line of %s could not be written as it is", record.tool_id, exc_info=error)
            body = b'{"sessionId":%b,"toolId":%b}' % (encode_name(record.session_id), encode_name(record.tool_id))
        return record.event, record.time, body[1:]

    def _later_body(self, noted: _Later) -> bytes:
        try:
            fields = noted.fields()
            if noted.subject is not None:
                self._seal_words(noted.subject, fields, noted.private)
        except Exception as error:  # noqa: BLE001  # one line that cannot be written must not cost those after it
            _log.error('A line "%s" could not be written as it is', noted.event, exc_info=error)
            return b'{"unreadable":true}'
        return self._body(fields)

    def _drop(self) -> None:
        with self._drop_lock:
            self._dropped += 1

    def _body(self, fields: Mapping[str, object]) -> bytes:
        try:
            if "event" in fields or "ts" in fields or "seq" in fields or "hash" in fields:
                body = encode(fields)
            else:
                body = orjson.dumps(fields, json_substitute)
        except Exception:  # noqa: BLE001  # see `encode`, which takes what is left
            body = encode(fields)
        return body if self._mask is None else self._masked_body(body)

    def _masked_body(self, body: bytes) -> bytes:
        # Names of the log itself stand at the top; what a tool or a model named is nested, and needs a second brace.
        return body if body.find(b"{", 1) < 0 else encode(self._masked(json.loads(body)))

    def flush(self, *, to_disk: bool = False) -> bool:
        """Write what waits, and with `to_disk` wait until the disk has it; whether everything is written and the log is
        healthy."""
        if self._closed:
            return False
        sink, pending = self._sink, self._pending
        with self._lock:
            if sink.is_behind and not sink.write(()):
                self._trim()
                return False
            left = len(pending)
            while left:
                count = min(left, _BATCH)
                if not sink.write([self._entry(pending.popleft()) for _ in range(count)]):
                    return False
                left -= count
            if self._dropped and not self._write_gap():
                return False
            return not to_disk or sink.write((), to_disk=True)

    @property
    def is_durable(self) -> bool:
        """Whether the lines outlive the process."""
        return self._directory is not None

    @property
    def position(self) -> AuditPosition | None:
        """The last line that was written."""
        return self._sink.position

    def leads_to_here(self, known: AuditPosition) -> bool:
        """Whether the line of an earlier checkpoint of this chain is still there."""
        return self._sink.leads_to_here(known)

    def seal(self, data: bytes) -> str:
        """The hash of `data`, keyed as those of the lines are."""
        return seal(self._key, data).decode()

    def audited(self, keys: Collection[str], since: float) -> set[str]:
        """Those of the ledger keys whose execution has a line, in whatever file was written to since then."""
        return set() if self._directory is None else keys_of_executions(self._directory, keys, since)

    def newest_facts(self) -> list[AuditedFact]:
        """What the newest lines say that the store must know."""
        return [] if self._directory is None else newest_facts(self._directory)

    @property
    def has_more(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._pending or self._dropped)

    def close(self) -> None:
        """Write what waits and a last checkpoint. What cannot be written now is lost, and the process's log says so."""
        self.end()

    def end(self) -> bool:
        """As `close`; whether everything is written. The second time it is not known any more, and not asked."""
        if self._closed:
            return False
        written = self.flush()
        with self._lock:
            self._closed = True
            written = self._sink.close() and written
        if not written:
            lost = len(self._pending) + self._dropped
            _log.error("The audit log was closed with at least %d lines that could not be written", lost)
        return written

    @property
    def healthy(self) -> bool:
        """Whether lines can be written, as far as the last flush could tell, and none was dropped since."""
        return self._sink.trouble is None and not self._dropped and not self._closed

    @property
    def trouble(self) -> str | None:
        """Why the log is not healthy, as a sentence for the operator."""
        if self._closed:
            return "The audit log is closed."
        if self._sink.trouble is None and self._dropped:
            return f"The audit log was not flushed in time; {self._dropped} lines were dropped."
        return self._sink.trouble

    @property
    def events(self) -> list[dict[str, Any]]:
        """The newest events of a log in memory; for a log on disk use `read_events`."""
        if not isinstance(self._sink, _Ring):
            raise TypeError("This audit log is on disk; handrail.observe.verify.read_events reads it.")
        self.flush()
        return self._sink.events()

    def _trim(self) -> None:
        """Nothing can be written: keep what waits within its limit of bytes, the oldest lines first."""
        while len(self._pending) > self._limit:
            self._pending.pop()
            self._drop()
        excess = sum(map(_size, self._pending)) - MAX_PENDING_BYTES
        while excess > 0 and self._pending:
            excess -= _size(self._pending.pop())
            self._drop()

    def _write_gap(self) -> bool:
        with self._drop_lock:
            dropped, self._dropped = self._dropped, 0
        # The sink keeps what it could not write, so the count is reported once, whatever happens now.
        return self._sink.write([(GAP, self.clock(), b'"dropped":%d}' % dropped)])

    def _masked(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        mask = self._mask
        assert mask is not None
        try:
            return {
                name: mask(value) if isinstance(value, (Mapping, list, tuple)) else value
                for name, value in fields.items()
            }
        except Exception:  # noqa: BLE001  # a foreign mapping that cannot be read must neither raise nor leak
            return {"unreadable": type(fields).__name__}

    def _after_fork(self) -> None:
        self._lock = Lock()
        self._drop_lock = Lock()
        self._pending.clear()
        self._dropped = 0
        self._sink.restart()


def _size(noted: _Noted) -> int:
    if isinstance(noted, _Later):
        return _RECORD_BYTES + noted.size
    if isinstance(noted, _Unsealed):
        return _RECORD_BYTES + sum(len(value) for value in noted.fields.values() if isinstance(value, str))
    if len(noted) == _ENTRY_PARTS:
        return len(noted[2])
    return _RECORD_BYTES + len(CallRecord._make(noted).args)


_LIVE: WeakSet[AuditLog] = WeakSet()


def _after_fork(logs: Iterable[AuditLog] = _LIVE) -> None:
    for log in list(logs):
        log._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
