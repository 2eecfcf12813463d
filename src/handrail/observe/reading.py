"""Reads an audit directory back: all processes' files as one stream of events in order of time, the newest few, or
what is being written now. Torn tails are passed over; finding them is the verifier's work.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from handrail.observe.chain import FILES, decode, encode_name

Event: TypeAlias = dict[str, Any]
_TAIL_BLOCK = 64 * 1024


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
    """The events of a directory in order of time; `call` is a call's id or key. At most `limit`, oldest first."""
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
    """Whether an event is about the session, the call (by id or key), the tool, and of the kind that are given."""
    return (
        (session is None or item.get("sessionId") == session)
        and (call is None or call in (item.get("callId"), item.get("idempotencyKey")))
        and (tool is None or item.get("toolId") == tool)
        and (event is None or item.get("event") == event)
    )


def tail_events(path: Path, count: int) -> list[Event]:
    """The newest `count` events, oldest first, without reading the files from their beginning."""
    newest = [item for file in audit_files(path) for item in _last_lines(file, count)]
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


def _last_lines(file: Path, count: int) -> Iterator[Event]:
    with file.open("rb") as stream:
        size = stream.seek(0, 2)
        data = b""
        while size > 0 and data.count(b"\n") <= count:
            step = min(size, max(_TAIL_BLOCK, len(data)))
            size -= step
            stream.seek(size)
            data = stream.read(step) + data
    lines = data.splitlines()
    return _decoded(lines[-count:] if count > 0 else [])
