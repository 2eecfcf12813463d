"""What the transports share: bytes → events, and what is done with events that are not as they should be.

Pure. A decoder cuts a stream of bytes into the provider's events; a `StreamReader` turns those into `ModelEvent`s. Calls are
reported when the stream has ended and its reason is known, so that one which was cut is never among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import orjson

from handrail.contract.call import Call, IdScope
from handrail.contract.frozen import for_json
from handrail.contract.model import CallMade, Finished, ModelError, ModelEvent, Usage

if TYPE_CHECKING:
    from handrail.contract.live import LiveCounters

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""An event that is larger is dropped and counted: parsing it would hold up everybody else."""
MAX_CALLS = 64
"""Calls that one message may hold; the rest are dropped and counted."""
MAX_ARGUMENTS = 70_000
"""Characters of arguments that are kept of one call: more than the pipeline accepts, so that it says what is wrong."""
_MAX_KINDS = 100
# Deeper than the 32 levels that the pipeline reads: it refuses this as it would the arguments in whose place it stands.
_TOO_DEEP = "[" * 40 + "]" * 40
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

Reason: TypeAlias = Literal["stop", "calls", "length", "refusal"]


@dataclass(slots=True)
class StreamCounters:
    """What a client did not act on: events not readable, too large, of unknown kind, repeated; calls beyond the limit."""

    malformed_events: int = 0
    oversized_events: int = 0
    unknown_events: int = 0
    duplicates: int = 0
    dropped_calls: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """The unknown kinds, how often each."""

    def unknown(self, kind: object) -> None:
        self.unknown_events += 1
        name = kind[:80] if isinstance(kind, str) else type(kind).__name__
        if name in self.kinds or len(self.kinds) < _MAX_KINDS:
            self.kinds[name] = self.kinds.get(name, 0) + 1


class Decoder(Protocol):
    """Cuts bytes into events."""

    def feed(self, data: bytes) -> Iterable[bytes]: ...

    def end(self) -> Iterable[bytes]:
        """What was left when the stream ended."""
        ...


class StreamReader(Protocol):
    """Reads one answer of a model."""

    @property
    def finished(self) -> bool:
        """Whether the answer is whole: nothing that comes now changes it."""
        ...

    def feed(self, event: bytes) -> Iterable[ModelEvent]:
        """What an event says at once. `ModelError` only where the provider says that it failed."""
        ...

    def end(self) -> Iterable[ModelEvent]:
        """The calls, what they cost, and the end; `ModelError` if the answer broke off."""
        ...


class DuplicateFilter:
    """Knows an event that was sent twice in a row by a mark that no two events share, where the provider has one."""

    def __init__(self, counters: StreamCounters) -> None:
        self._counters = counters
        self._last: bytes | None = None

    def is_repeated(self, event: bytes, *, marked: bool) -> bool:
        """Whether this is the event before once more, counted. Three of a kind are two and one: pairs are what is doubled."""
        if marked and event == self._last:
            self._counters.duplicates += 1
            self._last = None
            return True
        self._last = event
        return False


class LineDecoder:
    """Lines as they come; one that is too long is dropped and counted."""

    def __init__(self, counters: StreamCounters) -> None:
        self._counters = counters
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        *whole, rest = data.split(b"\n")
        for piece in whole:
            line = self._take(piece)
            if line is not None:
                yield line.removesuffix(b"\r")
        self._add(rest)

    def end(self) -> Iterator[bytes]:
        line = self._take(b"")
        if line:
            yield line.removesuffix(b"\r")

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= MAX_EVENT_BYTES:
            self._pieces.append(piece)
        else:
            # Measured and not kept: the end of the line is still to be found.
            self._pieces.clear()

    def _take(self, piece: bytes) -> bytes | None:
        self._add(piece)
        size, line = self._size, b"".join(self._pieces)
        self._size = 0
        self._pieces.clear()
        if size > MAX_EVENT_BYTES:
            self._counters.oversized_events += 1
            return None
        return line


class ServerSentEvents:
    """The data of server-sent events. Their names are left out: every provider repeats them in the data."""

    def __init__(self, counters: StreamCounters) -> None:
        self._counters = counters
        self._lines = LineDecoder(counters)
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        for line in self._lines.feed(data):
            yield from self._line(line)

    def end(self) -> Iterator[bytes]:
        for line in self._lines.end():
            yield from self._line(line)
        yield from self._event()

    def _line(self, line: bytes) -> Iterator[bytes]:
        if not line:
            yield from self._event()
        elif line.startswith(b"data:"):
            # One space after the colon belongs to the form, further ones to the data.
            piece = line[5:].removeprefix(b" ")
            self._size += len(piece)
            if self._size <= MAX_EVENT_BYTES:
                self._data.append(piece)
        elif not line.startswith((b":", b"event:", b"id:", b"retry:")):
            self._counters.malformed_events += 1

    def _event(self) -> Iterator[bytes]:
        size, data = self._size, b"\n".join(self._data)
        self._size = 0
        self._data.clear()
        if size > MAX_EVENT_BYTES:
            self._counters.oversized_events += 1
        elif data:
            yield data


class WholeBodyDecoder:
    """An answer that is no stream: its body is one event."""

    def __init__(self, counters: StreamCounters) -> None:
        self._counters = counters
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> tuple[bytes, ...]:
        self._size += len(data)
        if self._size <= MAX_EVENT_BYTES:
            self._pieces.append(data)
        return ()

    def end(self) -> tuple[bytes, ...]:
        if self._size > MAX_EVENT_BYTES:
            self._counters.oversized_events += 1
            return ()
        return (b"".join(self._pieces),) if self._pieces else ()


@dataclass(slots=True)
class PartialCall:
    """A call while it comes in. `args` is text, or the provider's object."""

    name: str = ""
    call_id: str | None = None
    args: Any = ""
    raw: Any = None
    """The provider's own form of it, for the reader."""
    size: int = 0

    def grow(self, piece: object) -> None:
        """Add a piece of the arguments' text. Of a text that is too long, enough is kept for the pipeline to refuse it."""
        if not isinstance(piece, str) or not isinstance(self.args, str):
            return
        self.size += len(piece)
        if len(self.args) <= MAX_ARGUMENTS:
            self.args += piece[: MAX_ARGUMENTS + 1]

    @property
    def too_long(self) -> bool:
        return self.size > MAX_ARGUMENTS


def call_of(partial: PartialCall, provider: str, id_scope: IdScope, response_id: str | None = None) -> Call:
    """The call as it goes to the pipeline. Only an id that counts for its message needs to say which message that is."""
    message = response_id if id_scope == "message" else None
    return Call(partial.name, bounded_args(partial.args), partial.call_id, provider, id_scope, message)


def admit(partial: PartialCall, calls: list[PartialCall], counters: StreamCounters) -> bool:
    """Add a whole call, and say whether it was added. One too many is counted and dropped, and so is a repeated one."""
    same_id = (one for one in calls if partial.call_id is not None and one.call_id == partial.call_id)
    if len(calls) >= MAX_CALLS:
        counters.dropped_calls += 1
    elif any(one.name == partial.name and one.args == partial.args for one in same_id):
        counters.duplicates += 1
    else:
        calls.append(partial)
        return True
    return False


def ending(
    who: str, calls: Sequence[Call], usage: Usage | None, reason: Reason | None, raw: Any
) -> Iterator[ModelEvent]:
    """The end of an answer: calls, usage, and why it ended.

    Calls of an answer that was refused or filtered are not reported, and not in the turn that is sent back either: nobody can say
    how much of them came. With calls, a reason that is not known (None) may be one of those, so that the answer broke off.
    """
    if calls and reason is None:
        raise broke_off(who)
    if calls and reason == "refusal":
        calls, raw = (), None
    for call in calls:
        yield CallMade(call)
    if usage is not None:
        yield usage
    yield Finished("calls" if calls and reason == "stop" else reason or "stop", raw)


def bounded_args(args: Any) -> Any:
    """Arguments as they are, or in their place a text that the pipeline refuses for the same reason as it would those."""
    if isinstance(args, str):
        return args[: MAX_ARGUMENTS + 1]
    try:
        text = orjson.dumps(args)
    except (TypeError, ValueError, RecursionError):
        return _TOO_DEEP
    # One byte more than is allowed, so that the pipeline refuses them for their size.
    return text[: MAX_ARGUMENTS + 1].decode("utf-8", "replace") if len(text) > MAX_ARGUMENTS else args


def object_of(args: Any) -> dict[str, Any]:
    """The arguments as an object, for a history that holds objects only; an empty one where there is none to be had."""
    if isinstance(args, (str, bytes)):
        try:
            args = orjson.loads(args)
        except orjson.JSONDecodeError:
            return {}
    if not isinstance(args, Mapping):
        return {}
    try:
        fits = len(orjson.dumps(args, default=for_json)) <= MAX_ARGUMENTS
    except (TypeError, ValueError, RecursionError):
        return {}
    return dict(args) if fits else {}


def text_of_args(args: Any) -> str:
    """The arguments as text, for a history that holds them so."""
    if isinstance(args, str):
        return args if len(args) <= MAX_ARGUMENTS else "{}"
    return as_text(object_of(args))


def wire_name(name: str) -> str:
    """A tool's name as every provider accepts it back; a model's invention must not spoil each later request."""
    if _NAME.fullmatch(name):
        return name
    # Shorter than the 64 characters that providers take: an underscore may have to come in front.
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]
    return cleaned if _NAME.fullmatch(cleaned) else f"_{cleaned}" if cleaned else "unnamed"


def as_text(value: Mapping[str, Any]) -> str:
    """JSON text of an envelope or of arguments."""
    return orjson.dumps(value, default=for_json, option=orjson.OPT_NON_STR_KEYS).decode()


def read_object(event: bytes | str, counters: StreamCounters | LiveCounters) -> dict[str, Any] | None:
    """The JSON object of an event or a frame; None, counted, if it is none."""
    try:
        value = orjson.loads(event)
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        return value
    counters.malformed_events += 1
    return None


def text_in(value: object) -> str:
    """A string as it is, anything else as none."""
    return value if isinstance(value, str) else ""


def id_in(value: object) -> str | None:
    """An id as it is; None where there is none."""
    return value if isinstance(value, str) and value else None


def object_in(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def objects_in(value: object, counters: StreamCounters) -> Iterator[dict[str, Any]]:
    """The objects of a list. What is none of them is counted."""
    if value is None:
        return
    if not isinstance(value, list):
        counters.malformed_events += 1
        return
    for item in value:
        if isinstance(item, dict):
            yield item
        else:
            counters.malformed_events += 1


def count_in(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def failed(who: str, error: object, *, retryable: bool) -> ModelError:
    """The provider said in its answer that it failed."""
    found = object_in(error)
    said = text_in(error) or text_in(found.get("message")) or "without a reason"
    return ModelError(f"{who} broke off.", retryable=retryable, detail=f"{who} broke off: {said[:200]}")


def broke_off(who: str) -> ModelError:
    return ModelError(f"The answer of {who} broke off before its end.", retryable=True)


def unreadable_calls(who: str) -> ModelError:
    return ModelError(f"{who} asked for a call that could not be read.", retryable=True)
