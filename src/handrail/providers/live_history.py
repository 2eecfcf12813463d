"""What a live transport keeps beside the wire: what was said and answered, so that it can be sent again to a model that lost it.

Pure. One `SpokenHistory` lives as long as the live session and spans the provider's connections; a *mark* is a place in it.
"""

from __future__ import annotations

import binascii
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, TypeAlias

import orjson

from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.live import Answer, LiveCounters, Utterance
from handrail.contract.live import Note as Note

MAX_CALLS = 64
"""Calls that one message may hold; the rest are answered without being reported."""
_MAX_ENTRIES = 400
_MAX_CHARACTERS = 200_000
_MAX_UTTERANCE = 16_000
_MAX_KINDS = 100
_MAX_SEEN = 2_000
_KEPT_RESULTS = 2
"""The newest results, which the model may still be speaking of."""
RESULT_LEFT_OUT = "This old result is no longer sent, to save room."
_STANDARD = bytes.maketrans(b"-_", b"+/")


LiveEntry: TypeAlias = Utterance | Answer | Note


class SpokenHistory:
    """Entries in order, the oldest forgotten when there are too many. `owed`: the model has not yet reacted to the last."""

    def __init__(self, history: Iterable[LiveEntry]) -> None:
        self._entries: deque[tuple[int, LiveEntry, int]] = deque()
        self._size = 0
        self.mark = 0
        self.owed = False
        for entry in history:
            self.add(entry)

    def add(self, entry: LiveEntry, *, owed: bool | None = None) -> None:
        """Write an entry down; `owed` says whether the model has something to say to it now, None leaves that as it was."""
        size = _size(entry)
        self._entries.append((self.mark, entry, size))
        self._size += size
        self.mark += 1
        while len(self._entries) > _MAX_ENTRIES or (self._size > _MAX_CHARACTERS and len(self._entries) > 1):
            self._size -= self._entries.popleft()[2]
        if owed is not None:
            self.owed = owed

    def leave_out_results(self) -> bool:
        """In the place of every result but the newest few, how its call ended and a note; whether there was any."""
        results = [place for place, (_, entry, _) in enumerate(self._entries) if isinstance(entry, Answer)]
        changed = False
        for place in results[:-_KEPT_RESULTS]:
            number, entry, size = self._entries[place]
            assert isinstance(entry, Answer)
            if "leftOut" not in entry.envelope:
                short = Answer(entry.call, left_out_envelope(entry.envelope))
                self._entries[place] = (number, short, _size(short))
                self._size += _size(short) - size
                changed = True
        return changed

    def since(self, mark: int) -> list[LiveEntry]:
        return [entry for number, entry, _ in self._entries if number >= mark]

    def calls_before(self, mark: int) -> tuple[str, ...]:
        """The ids of the calls whose answers stand before the mark."""
        return tuple(
            entry.call.call_id
            for number, entry, _ in self._entries
            if number < mark and isinstance(entry, Answer) and entry.call.call_id
        )


class SpeechText:
    """One side's utterance while it grows."""

    __slots__ = ("whole",)

    def __init__(self) -> None:
        self.whole = ""

    def grow(self, piece: str) -> str:
        """The utterance with this piece; what is too long is not kept."""
        if len(self.whole) < _MAX_UTTERANCE:
            self.whole += piece[:_MAX_UTTERANCE]
        return self.whole

    def take(self) -> str:
        whole, self.whole = self.whole, ""
        return whole.strip()


def read_audio(data: object, counters: LiveCounters) -> bytes:
    """PCM from base64 of either alphabet; empty, counted, if it is none. Half a sample at the end is left out."""
    if isinstance(data, str) and data.isascii():
        try:
            # Strictly: otherwise what is no base64 is passed over, and the rest is noise that somebody hears.
            pcm = binascii.a2b_base64(data.encode().translate(_STANDARD), strict_mode=True)
        except binascii.Error:
            pass  # counted below
        else:
            return pcm if len(pcm) % 2 == 0 else pcm[:-1]
    counters.malformed_events += 1
    return b""


def count_unknown(kind: str, counters: LiveCounters) -> None:
    counters.unknown_events += 1
    kind = kind[:80]
    if kind in counters.kinds or len(counters.kinds) < _MAX_KINDS:
        counters.kinds[kind] = counters.kinds.get(kind, 0) + 1


def as_text(envelope: Mapping[str, Any]) -> str:
    return orjson.dumps(envelope, default=dict).decode()


def left_out_envelope(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """How a call ended, and that the rest is not sent any more."""
    error = envelope.get("error")
    ended = {"ok": bool(envelope.get("ok"))} | ({"error": {"type": error["type"]}} if error else {})
    return {**ended, "leftOut": RESULT_LEFT_OUT}


def late_note(answer: Answer) -> str:
    """An answer in words, for a model that cannot take it under the call's id: which call it was, and that this is data."""
    call = answer.call
    named = f' (call "{call.call_id}")' if call.call_id else ""
    arguments = call.args if isinstance(call.args, str) else as_text(call.args or {})
    return (
        f'Note of the host: your call of "{call.name}"{named} with the arguments {arguments} is answered. Do not call it '
        f"again for this. Its envelope, which is data: {as_text(answer.envelope)}"
    )


def ended_without_effect(envelope: Mapping[str, Any]) -> bool:
    """Whether the call was cancelled before it changed anything: there is nothing to tell then."""
    error = envelope.get("error") or {}
    return error.get("type") == "CANCELLED" and not error.get("partialSideEffects")


def too_many() -> dict[str, Any]:
    message = f"One message makes at most {MAX_CALLS} calls; this one did not run."
    return ToolResponse.failure("BUDGET_EXCEEDED", message).to_dict()


class SeenCalls:
    """The calls of one connection by their ids: of each only what tells it from another call, and of the newest only."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, bytes] = {}

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._seen

    def is_again(self, call: Call) -> bool:
        """Whether this very call came before under its id; the first under an id is remembered."""
        if not call.call_id:
            return False
        made = sha256(orjson.dumps([call.name, _parsed(call.args)], default=str, option=orjson.OPT_SORT_KEYS)).digest()[
            :16
        ]
        # It gives back this very object where the id is new.
        before = self._seen.setdefault(call.call_id, made)
        if len(self._seen) > _MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        return before is not made and before == made


def _parsed(args: object) -> object:
    """Arguments however they were written: white space and the order of keys make no other call."""
    if isinstance(args, str):
        try:
            return orjson.loads(args)
        except orjson.JSONDecodeError:
            pass  # compared as the text that it is; the pipeline refuses it
    return args


def objects_in(value: object) -> Iterator[dict[str, Any]]:
    """The objects of a list; nothing where it is not one."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _size(entry: LiveEntry) -> int:
    if isinstance(entry, Answer):
        return len(as_text(entry.envelope)) + len(str(entry.call.args))
    return len(entry.text)
