"""The calls of a session by the provider's id: writing and held ones, which are known for as long as the session lives.

A session may live for hours, so what is held of a call shrinks. In its turn it is the whole outcome; afterwards the names under
which the store has it; beyond `MAX_KNOWN` of those, a few bits that say whether the store has to be asked at all.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from handrail.runtime.replays import Entry

if TYPE_CHECKING:
    from handrail.runtime.session import Session

MAX_KNOWN = 256
_BYTES = 16 * 1024
_HELD_MS = 60_000
"""So long after its time a request that was carried out is still held: clocks differ."""


class CallIds(dict[str, Entry]):
    """Entries by id, the newest whole."""

    __slots__ = ("_whole", "forgotten")

    def __init__(self) -> None:
        super().__init__()
        self._whole: dict[str, None] = {}
        self.forgotten: Forgotten | None = None
        """Ids that are to be looked for in the store; None while there are none."""

    def __setitem__(self, key: str, entry: Entry) -> None:
        super().__setitem__(key, entry)
        self._whole[key] = None

    def is_forgotten(self, key: str) -> bool:
        """Whether the store may know an id that is not known here."""
        return self.forgotten is not None and key not in self and key in self.forgotten

    def whole(self) -> list[Entry]:
        """Those whose outcome, or its lack, is held here."""
        return [self[key] for key in self._whole if key in self]

    def trim(self, needed: Container[Entry], unstored: Container[str] = ()) -> None:
        """Let go of outcomes that the store has, and of the oldest ids; what runs, is held or is not stored stays known."""
        for key in list(self._whole):
            entry = self.get(key)
            if entry is not None and _is_needed(entry, needed):
                continue
            del self._whole[key]
            if entry is not None:
                super().__setitem__(key, _names_of(entry))
        if len(self) > MAX_KNOWN:
            self.forgotten = self.forgotten or Forgotten()
            stored = [key for key in self if key not in self._whole and key not in unstored]
            for key in stored[: len(self) - MAX_KNOWN]:
                del self[key]
                self.forgotten.add(key)


def trim(session: Session) -> None:
    """A turn begins: of those before only that is held which the store does not have."""
    now = session.core.clock.time() * 1000
    session.holds = {
        pair: (hold, entry)
        for pair, (hold, entry) in session.holds.items()
        if not entry.settled or hold.expires_at + _HELD_MS > now
    }
    unstored = session.core.writing.unfinished
    needed = {entry for _, entry in session.holds.values()}
    needed |= {entry for entry in session.calls_by_id.whole() if entry.ledger_key in unstored}
    ids = {call_id for session_id, call_id in session.core.dedup.unstored if session_id == session.id}
    session.calls_by_id.trim(needed, ids)


async def known_by_id(session: Session, key: str) -> Entry | None:
    """The call that an id stands for, from the store if it is no longer held here."""
    known = session.calls_by_id
    if known.is_forgotten(key):
        for alias in await session.core.store.aliases(session.id):
            if alias.call_id == key and key not in known:
                known[key] = Entry.of(alias.tool, alias.raw_digest, ledger_key=alias.ledger_key, hold_id=alias.hold_id)
    return known.get(key)


def _is_needed(entry: Entry, needed: Container[Entry]) -> bool:
    if entry.settled:
        return entry.unknown or entry in needed or (entry.ledger_key is None and entry.hold_id is None)
    return entry in needed or (entry.kept and entry.hold_id is None) or (not entry.kept and entry.ledger_key is None)


def _names_of(entry: Entry) -> Entry:
    raw = entry.raw_digest
    digest = raw if isinstance(raw, str) else sha256(raw).hexdigest()
    names = Entry.of(entry.tool, digest, ledger_key=entry.ledger_key, hold_id=entry.hold_id)
    if entry.call_id is not None:
        names.call_id = entry.call_id
    return names


class Forgotten:
    """A Bloom filter: an id that was added is always in it, one that was not hardly ever. Always of one size."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = bytearray(_BYTES)

    def add(self, key: str) -> None:
        for place in _places(key):
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, key: str) -> bool:
        return all(self._bits[place >> 3] & 1 << (place & 7) for place in _places(key))


def _places(key: str) -> Iterator[int]:
    digest = sha256(key.encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[at : at + 4], "big") % (_BYTES * 8) for at in (0, 4, 8, 12))
