"""What the provider's ids of calls stand for: writing and held calls, which are known for as long as the session lives.

A session may live for hours, so what is held of a call shrinks. In its turn it is the whole outcome; afterwards the names under
which the store has it; beyond `MAX_KNOWN` of those, a few bits that say whether the store has to be asked at all.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from handrail.contract.errors import UsageError
from handrail.contract.store import Alias, Store, StoreUnavailable
from handrail.runtime.attempt import Attempt
from handrail.runtime.keys import held_key, id_in_message
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
    unstored = session.core.own_claims.unstored
    needed = {entry for _, entry in session.holds.values()}
    needed |= {entry for entry in session.calls_by_id.whole() if entry.ledger_key in unstored}
    ids = {call_id for session_id, call_id in session.core.aliases.unstored if session_id == session.id}
    session.calls_by_id.trim(needed, ids)


class Aliases:
    """Stores what further ids stand for: those of calls that were answered from another execution or request."""

    __slots__ = ("_log", "_store", "unstored")

    def __init__(self, store: Store, log: logging.Logger) -> None:
        self._store = store
        self._log = log
        self.unstored: dict[tuple[str, str], Alias] = {}
        """Session id and call id → what it stands for, where that could not be stored; the housekeeper tries again."""

    async def remember(self, attempt: Attempt, entry: Entry) -> None:
        """The id of this call stands for that execution from now on."""
        if not attempt.key.startswith("provider:") or entry.ledger_key is None:
            return
        attach_id(attempt, entry)
        await self.add(attempt, entry.ledger_key, entry.hold_id)

    async def add(self, attempt: Attempt, key: str | None, hold_id: str | None) -> None:
        """Store what the id of this call stands for: a ledger key, or a held call."""
        alias = alias_of(attempt, key, hold_id)
        if alias is None:
            return
        try:
            await self._store.add_alias(attempt.session.id, alias)
        except StoreUnavailable as error:
            # The answer is known and is given; that this id stands for it is kept here until it is stored.
            self.unstored[attempt.session.id, alias.call_id] = alias
            self._log.warning("The call id %s could not be stored yet: %s", attempt.call.call_id, error)

    async def store_unstored(self) -> None:
        """Store the ids that could not be stored when they were answered."""
        for place, alias in list(self.unstored.items()):
            try:
                await self._store.add_alias(place[0], alias)
            except UsageError as error:
                self._log.error("The call id %s cannot be stored; it is given up: %s", alias.call_id, error)
            if self.unstored.get(place) is alias:
                del self.unstored[place]


def alias_of(attempt: Attempt, key: str | None, hold_id: str | None) -> Alias | None:
    """The id of a call with what it stands for, as the store keeps it; None if the id does not outlive its message."""
    name = attempt.key
    if not name.startswith("provider:"):
        in_message = id_in_message(attempt.call)
        if in_message is None or hold_id is None:
            return None
        name = held_key(hold_id, in_message)
    raw = _digest(attempt.raw_digest)
    return Alias(call_id=name, tool=attempt.plan.tool_id, raw_digest=raw, ledger_key=key, hold_id=hold_id)


def attach_id(attempt: Attempt, entry: Entry) -> None:
    """Let the session find the entry by the id of this call, with the arguments as this call wrote them."""
    if entry.raw_digest not in (attempt.raw_digest, _digest(attempt.raw_digest)):
        entry = entry.under(attempt.raw_digest)
    attempt.session.calls_by_id[attempt.key] = entry


def _digest(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else sha256(raw).hexdigest()


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
    names = Entry.of(entry.tool, _digest(entry.raw_digest), ledger_key=entry.ledger_key, hold_id=entry.hold_id)
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
