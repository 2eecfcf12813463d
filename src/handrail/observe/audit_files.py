"""Reads an audit directory back: all processes' files as one stream of events in order of time, the newest few, or
what is being written now. Torn tails are passed over; finding them is the verifier's work.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from handrail.contract.store import AuditedFact
from handrail.observe.chain import CHECKPOINT, FILES, START, decode, encode_name

Event: TypeAlias = dict[str, Any]
CALL_NAMES = ("callId", "idempotencyKey", "ledgerKey", "confirmationId")
OF_THE_CHAIN = (START, CHECKPOINT)
"""Events that say nothing but how the chain of hashes continues."""
_TAIL_BLOCK = 64 * 1024
_NEWEST_FILES, _NEWEST_LINES = 8, 500
_EXECUTIONS = (b'{"event":"execution"', b'{"event":"late_result"')
_OUTCOMES = (*_EXECUTIONS, b'{"event":"settled"')
_LEDGER_KEY = re.compile(rb'"ledgerKey":"([0-9a-f]{64})"')


def audit_files(directory: Path) -> list[Path]:
    """The files of events, by name, which begins with the time that their process started."""
    return sorted(directory.glob(FILES))


def read_events(
    path: Path,
    *,
    session: str | None = None,
    call: str | None = None,
    tool: str | None = None,
    event: str | None = None,
    limit: int | None = None,
) -> Iterator[Event]:
    """The events of a directory in order of time; `call` is one of `names_of_call`. At most `limit`, oldest first."""
    wanted = [value for value in (session, call, tool, event) if value is not None]
    # A line that does not hold the text cannot hold the event: most lines need no decoding.
    needles = [encode_name(value) for value in wanted if value.isascii()]
    found = 0
    for item in _merged(audit_files(path), needles):
        if limit is not None and found >= limit:
            return
        if matches(item, session=session, call=call, tool=tool, event=event):
            found += 1
            yield item


def matches(
    item: Mapping[str, Any],
    *,
    session: str | None = None,
    call: str | None = None,
    tool: str | None = None,
    event: str | None = None,
) -> bool:
    """Whether an event is about the session, the call (by one of its names), the tool, and of the kind that are given."""
    return (
        (session is None or item.get("sessionId") == session)
        and (call is None or call in names_of_call(item))
        and (tool is None or item.get("toolId") == tool)
        and (event is None or item.get("event") == event)
    )


def names_of_call(item: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the call of an event may be asked for by: its id, its key, the ledger's key, the confirmation's id."""
    return tuple(item.get(name) for name in CALL_NAMES)


def keys_of_executions(directory: Path, keys: Collection[str], since: float) -> set[str]:
    """Those of the ledger keys that stand on the line of an execution, in a file that was written to since then."""
    found: set[str] = set()
    for file in audit_files(directory):
        if not keys or file.stat().st_mtime < since:
            continue
        with file.open("rb") as stream:
            for line in stream:
                named = _LEDGER_KEY.search(line) if line.startswith(_EXECUTIONS) else None
                if named is not None and named[1].decode() in keys:
                    found.add(named[1].decode())
    return found


def keys_of_outcomes(directory: Path) -> set[str]:
    """The ledger keys of all calls whose outcome has a line: they ran, or somebody settled them."""
    found: set[str] = set()
    for file in audit_files(directory):
        with file.open("rb") as stream:
            for line in stream:
                named = _LEDGER_KEY.search(line) if line.startswith(_OUTCOMES) else None
                if named is not None:
                    found.add(named[1].decode())
    return found


def newest_facts(directory: Path) -> list[AuditedFact]:
    """What the newest lines of the newest files say that the store must know, oldest first: of each file the last session and
    the last call that was claimed. Only the ends of the files are read."""
    files = sorted(audit_files(directory), key=lambda file: file.stat().st_mtime)[-_NEWEST_FILES:]
    facts: list[AuditedFact] = []
    for file in files:
        lines = [item for item in _last_lines(file, _NEWEST_LINES, OF_THE_CHAIN) if item.get("sessionId")]
        calls = [item for item in lines if item["event"] in ("execution", "late_result") and item.get("ledgerKey")]
        newest = [(item, None) for item in lines[-1:]] + [(item, item["ledgerKey"]) for item in calls[-1:]]
        facts += [
            AuditedFact(file.name, item["sessionId"], key, item.get("toolId"), str(item["ts"])) for item, key in newest
        ]
    return sorted(facts, key=lambda fact: fact.at)


def tail_events(path: Path, count: int, without: Collection[str] = ()) -> list[Event]:
    """The newest `count` events but those of some kinds, oldest first, without reading the files from their beginning."""
    newest = [item for file in audit_files(path) for item in _last_lines(file, count, without)]
    newest.sort(key=lambda item: str(item["ts"]))
    return newest[-count:] if count > 0 else []


class Follower:
    """Gives what was appended to a directory since it was last asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = {file: file.stat().st_size for file in audit_files(path)}

    def news(self) -> list[Event]:
        events: list[Event] = []
        for file in audit_files(self._path):
            with file.open("rb") as stream:
                stream.seek(self._offsets.get(file, 0))
                data = stream.read()
            whole = data.rfind(b"\n") + 1
            self._offsets[file] = self._offsets.get(file, 0) + whole
            events += _decoded(data[:whole].splitlines())
        events.sort(key=lambda item: str(item["ts"]))
        return events


def _merged(files: Iterable[Path], needles: list[bytes]) -> Iterator[Event]:
    """The events of all chains by time; those of one chain always in the order in which they were written."""
    # A chain is opened when its first event is due: only processes that overlap in time are open together.
    chains = [list(parts) for _, parts in groupby(files, key=lambda file: file.name.rpartition("-")[0])]
    waiting = sorted(((_start(parts[0]), number) for number, parts in enumerate(chains)), reverse=True)
    heap: list[tuple[str, int, Event, Iterator[Event]]] = []

    def push(number: int, stream: Iterator[Event]) -> None:
        for item in stream:
            heapq.heappush(heap, (item["ts"], number, item, stream))
            return

    while heap or waiting:
        while waiting and (not heap or waiting[-1][0] <= heap[0][0]):
            _, number = waiting.pop()
            push(number, _events(chains[number], needles))
        if heap:
            _, number, item, stream = heapq.heappop(heap)
            yield item
            push(number, stream)


def _start(file: Path) -> str:
    with file.open("rb") as stream:
        first = decode(stream.readline())
    return str(first["ts"]) if first else ""


def _events(files: Iterable[Path], needles: list[bytes]) -> Iterator[Event]:
    for file in files:
        with file.open("rb") as stream:
            yield from _decoded(line for line in stream if all(needle in line for needle in needles))


def _decoded(lines: Iterable[bytes]) -> Iterator[Event]:
    for line in lines:
        item = decode(line)
        if item is not None:
            yield item


def _last_lines(file: Path, count: int, without: Collection[str]) -> list[Event]:
    hidden = tuple(b'{"event":%b,' % encode_name(kind) for kind in without)
    with file.open("rb") as stream:
        size = stream.seek(0, 2)
        data, lines = b"", list[bytes]()
        while size > 0 and len(lines) <= count:
            step = min(size, max(_TAIL_BLOCK, len(data)))
            size -= step
            stream.seek(size)
            data = stream.read(step) + data
            lines = [line for line in data.splitlines() if not line.startswith(hidden)]
    return list(_decoded(lines[-count:] if count > 0 else []))
