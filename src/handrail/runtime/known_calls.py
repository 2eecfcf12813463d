"""What makes two calls the same call, and what a session remembers of its calls, so that the same one is answered from the first.

The *call key* names a call within its session: by the provider's id where that is stable, by content otherwise. The *ledger key*
names one execution of a writing tool: the same call issued again under a new id after a reconnect has the same one, two identical
calls that the model really asked for do not. Others choose the texts that keys are joined from, so each form says where one part
ends: no two different calls have one key.

Results of tools that do not write are kept in `Replays`. Writing and held calls are known by their ids (`CallIds`) while their
session lives, which may be hours, so what is held of one shrinks. In its turn it is the whole outcome; afterwards the names under
which the store has it; beyond `MAX_KNOWN` of those, a few bits that say whether the store has to be asked at all.
"""

from __future__ import annotations

import asyncio
import logging
import re
import unicodedata
from collections.abc import Container, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.call import Call
from handrail.contract.definition import ToolDefinition
from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import UsageError
from handrail.contract.intents import Intent
from handrail.contract.ports import Clock
from handrail.contract.store import Alias, Hold, Store, StoreUnavailable
from handrail.runtime.call_attempt import Attempt
from handrail.schema.strict_json import canonical

if TYPE_CHECKING:
    from handrail.runtime.session import Session

_new = tuple.__new__
_LIKE_A_CONNECTION = re.compile(r"[0-9]*:")
STABLE_ID = "provider:"
"""How the key of a call begins that is made of the provider's id, because that outlives its message."""
_KEY = re.compile(STABLE_ID + r"(?::(?=[0-9]*:)|[0-9]+:)?(.*)", re.DOTALL)
_HELD_KEY = re.compile(r"message:[^:]*:(.*)", re.DOTALL)
Settled = tuple[str, bytes, bool, ToolFailure | None, tuple[Intent, ...], Mapping[str, Any], bytes, float, int]
"""A call of a tool that does not write, as it is kept: its tool, its arguments as they came, whether it may be tried again, the
error, intents and meta of its envelope, its data as JSON, when it started and in which turn. A tuple, because every call leaves
one and few are asked for."""
MAX_KNOWN = 256
_BYTES = 16 * 1024


def id_in_message(call: Call) -> str | None:
    """The provider's id where it counts for the calls of one model message; None for any other."""
    return call.call_id if call.id_scope == "message" and call.call_id and is_text(call.call_id) else None


def id_key(call: Call, connection: int) -> str | None:
    """The key by the provider's id; None where that is missing or does not outlive its message.

    An id of a session that begins as a connection's key does gets one more colon, which neither of the others has there.
    """
    _, _, call_id, _, scope, _, _ = call
    if scope != "session" and scope != "connection":
        return None
    if not call_id or not ((type(call_id) is str and call_id.isascii()) or is_text(call_id)):
        return None
    if scope == "connection":
        return f"{STABLE_ID}{connection}:{call_id}"
    # Providers choose the id. One such as "3:x" must not get the key of the id "x" on connection 3.
    separator = ":" if ":" in call_id and _LIKE_A_CONNECTION.match(call_id) else ""
    return STABLE_ID + separator + call_id


def id_of_key(key: str) -> str:
    """The provider's id in a key that was made of one."""
    found = _KEY.fullmatch(key) or _HELD_KEY.fullmatch(key)
    return found[1] if found is not None else key


def is_text(call_id: object) -> bool:
    """Whether an id can be kept: a number, or half a surrogate, cannot, and so is no stable id."""
    if not isinstance(call_id, str):
        return False
    return call_id.isascii() or call_id == call_id.encode(errors="replace").decode()


def hash_key(tool: str, canonical_args: bytes, turn: int) -> str:
    """The key by content, for calls without a stable id."""
    # Put together by hand, because its parts are canonical already; the names stand in their order.
    content = b'{"args":%b,"tool":%b,"turn":%d}' % (canonical_args, orjson.dumps(tool), turn)  # in canonical form
    return f"hash:{turn}:{sha256(content).hexdigest()[:16]}"


def is_stable(alias: Alias) -> bool:
    """Whether calls are found by it; otherwise it is only shown."""
    return alias.call_id.startswith(STABLE_ID)


def call_id_of(hold: Hold) -> str | None:
    """The provider's id of the call, as it came."""
    if hold.call_id is not None or hold.alias is None:
        return hold.call_id
    return id_of_key(hold.alias.call_id)


def key_of(hold: Hold) -> str:
    """The key of the call within its session."""
    if hold.alias is not None and is_stable(hold.alias):
        return hold.alias.call_id
    return hash_key(hold.tool, hold.args.encode(), hold.turn)


def args_digest(definition: ToolDefinition, args: Mapping[str, Any], canonical_args: bytes) -> str:
    """What two writing calls are compared by: their validated arguments, or the tool's `dedupeFields` of them."""
    if definition.dedupe_fields:
        return sha256(canonical({name: args[name] for name in definition.dedupe_fields if name in args})).hexdigest()
    return sha256(canonical_args).hexdigest()


def ledger_key(tenant: str, session: str, turn: int, tool: str, digest: str, ordinal: int) -> str:
    # Texts and small numbers in a list: orjson writes them in canonical form.
    return sha256(orjson.dumps(["call-v1", tenant, session, turn, tool, digest, ordinal])).hexdigest()


def loop_key(canonical_args: bytes) -> bytes:
    """Arguments as the loop detector compares them: ways of writing the same letters count as the same."""
    if canonical_args.isascii():
        return canonical_args
    return unicodedata.normalize("NFC", canonical_args.decode()).encode()


class KnownCall:
    """One remembered call. While it runs, duplicates wait for it; afterwards they get its envelope."""

    # Defaults of the class: every call makes an entry, and most never differ from these.
    ledger_key: str | None = None
    hold_id: str | None = None
    call_id: str | None = None
    retryable = False
    started = 0.0
    turn = 0
    """When it started and in which turn; 0 where another process ran it."""
    unknown = False
    """It was not known what became of it; the store may know more by now."""
    kept = False
    """A task of this process carries it out, or a person is asked about it."""
    told = False
    """Its late envelope was given to the session's events."""
    abandoned = False
    _future: asyncio.Future[None] | None = None

    def __init__(self, tool: str, raw_digest: bytes | str, response: tuple[ToolResponse, bytes] | None = None) -> None:
        self.tool = tool
        self.raw_digest = raw_digest
        self.response = response

    @classmethod
    def of(
        cls, tool: str, raw_digest: bytes | str, *, ledger_key: str | None = None, hold_id: str | None = None
    ) -> KnownCall:
        """A call that the store knows."""
        entry = cls(tool, raw_digest)
        entry.ledger_key, entry.hold_id = ledger_key, hold_id
        return entry

    @classmethod
    def of_settled(cls, settled: Settled) -> KnownCall:
        """A call that was settled at once."""
        tool, raw_digest, retryable, error, intents, meta, raw, started, turn = settled
        entry = cls(tool, raw_digest, (ToolResponse(error is None, None, error, intents, meta), raw))
        entry.retryable, entry.started, entry.turn = retryable, started, turn
        return entry

    def under(self, raw_digest: bytes | str) -> KnownCall:
        """The same execution, asked for in other words. What is not known of it yet is looked up when it is asked for."""
        entry = KnownCall.of(self.tool, raw_digest, ledger_key=self.ledger_key, hold_id=self.hold_id)
        entry.call_id, entry.response, entry.unknown = self.call_id, self.response, self.unknown
        entry.started, entry.turn = self.started, self.turn
        return entry

    def settle(self, response: ToolResponse, raw_data: bytes) -> None:
        """Keep the envelope, and its data as JSON, which is `trimmed` already."""
        # Without the data, whose objects then live only as long as their user.
        self.response = (_new(ToolResponse, (response[0], None, *response[2:])), raw_data)
        self.unknown = False
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def abandon(self) -> None:
        """It will not be settled here; whoever waits looks again."""
        self.abandoned = True
        self.wake()

    async def wait(self, clock: Clock, seconds: float) -> bool:
        """Whether it was settled within this time of the runtime's clock, by which the call that is waited for is timed too."""
        if self.response is None and not self.abandoned:
            if self._future is None or self._future.done():
                self._future = asyncio.get_running_loop().create_future()
            patience = asyncio.ensure_future(clock.sleep(seconds))
            try:
                await asyncio.wait((self._future, patience), return_when=asyncio.FIRST_COMPLETED)
            finally:
                patience.cancel()
        return self.response is not None

    def replay(self, **facts: Any) -> ToolResponse:
        """The envelope again, as fresh data. Its intents stay in it for the model to see; nobody applies them twice."""
        assert self.response is not None
        first, raw = self.response
        # Parsed again for each: whoever changes the data of one answer does not change that of the next.
        data = orjson.loads(raw) if first.ok else None
        return ToolResponse(first.ok, data, first.error, first.intents, {**first.meta, "replayed": True, **facts})

    def wake(self) -> None:
        """Whoever waits looks again."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Replays(dict[str, KnownCall | Settled]):
    """The last results of tools that do not write. In memory only: after a restart they may run again."""

    __slots__ = ("max_entries",)

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self.max_entries = max_entries

    def find(self, key: str) -> KnownCall | None:
        """The call of this key, which runs or was settled; None if it is not kept."""
        known = self.get(key)
        return KnownCall.of_settled(known) if isinstance(known, tuple) else known

    def drop_oldest(self) -> None:
        """Let go of the oldest call that has ended."""
        for key, known in self.items():
            if isinstance(known, tuple) or known.response is not None:
                del self[key]
                return

    def forget(self, key: str, entry: KnownCall) -> None:
        if self.get(key) is entry:
            del self[key]

    def drop_settled(self) -> None:
        """Give the memory back, for a session that has been idle for long. Running calls stay."""
        for key in [
            key for key, known in self.items() if not isinstance(known, KnownCall) or known.response is not None
        ]:
            del self[key]


class CallIds(dict[str, KnownCall]):
    """Entries by id, the newest whole."""

    __slots__ = ("_whole", "forgotten")

    def __init__(self) -> None:
        super().__init__()
        self._whole: dict[str, None] = {}
        self.forgotten: Forgotten | None = None
        """Ids that are to be looked for in the store; None while there are none."""

    def __setitem__(self, key: str, entry: KnownCall) -> None:
        super().__setitem__(key, entry)
        self._whole[key] = None

    def is_forgotten(self, key: str) -> bool:
        """Whether the store may know an id that is not known here."""
        return self.forgotten is not None and key not in self and key in self.forgotten

    def whole(self) -> list[KnownCall]:
        """Those whose outcome, or its lack, is held here."""
        return [self[key] for key in self._whole if key in self]

    def trim(self, needed: Container[KnownCall], unstored: Container[str] = ()) -> None:
        """Let go of outcomes that the store has, and of the oldest ids; what runs, is held or is not stored stays known."""
        for key in list(self._whole):
            entry = self.get(key)
            if entry is not None:
                if entry.response is not None:
                    is_stored = entry.ledger_key is not None or entry.hold_id is not None
                    is_needed = entry.unknown or not is_stored
                else:
                    is_needed = entry.hold_id is None if entry.kept else entry.ledger_key is None
                # Not in the store, or still to come: if it were let go, a repetition would run again.
                if is_needed or entry in needed:
                    continue
            del self._whole[key]
            if entry is not None:
                raw = entry.raw_digest
                # The arguments may be 64 KiB long; of a call that ended their hash is enough to see whether they are the same.
                names = KnownCall(entry.tool, raw if isinstance(raw, str) else sha256(raw).hexdigest())
                names.ledger_key, names.hold_id, names.call_id = entry.ledger_key, entry.hold_id, entry.call_id
                super().__setitem__(key, names)
        if len(self) > MAX_KNOWN:
            self.forgotten = self.forgotten or Forgotten()
            stored = [key for key in self if key not in self._whole and key not in unstored]
            for key in stored[: len(self) - MAX_KNOWN]:
                del self[key]
                self.forgotten.add(key)


class Aliases:
    """Stores what further ids stand for: those of calls that were answered from another execution or request."""

    __slots__ = ("_log", "_store", "unstored")

    def __init__(self, store: Store, log: logging.Logger) -> None:
        self._store = store
        self._log = log
        self.unstored: dict[tuple[str, str], Alias] = {}
        """Session id and call id → what it stands for, where that could not be stored; the housekeeper tries again."""

    async def remember(self, attempt: Attempt, entry: KnownCall) -> None:
        """The id of this call stands for that execution from now on."""
        if not attempt.has_stable_id or entry.ledger_key is None:
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
    if not attempt.has_stable_id:
        in_message = id_in_message(attempt.call)
        if in_message is None or hold_id is None:
            return None
        name = f"message:{hold_id}:{in_message}"  # to be shown; nothing is looked up by it
    raw = sha256(attempt.raw_digest).hexdigest()
    return Alias(call_id=name, tool=attempt.plan.tool_id, raw_digest=raw, ledger_key=key, hold_id=hold_id)


def attach_id(attempt: Attempt, entry: KnownCall) -> None:
    """Let the session find the entry by the id of this call, with the arguments as this call wrote them."""
    if entry.raw_digest not in (attempt.raw_digest, sha256(attempt.raw_digest).hexdigest()):
        entry = entry.under(attempt.raw_digest)
    attempt.session.calls_by_id[attempt.key] = entry


async def known_by_id(session: Session, key: str) -> KnownCall | None:
    """The call that an id stands for, from the store if it is no longer held here."""
    known = session.calls_by_id
    if known.is_forgotten(key):
        for alias in await session.core.store.aliases(session.id):
            if alias.call_id == key and key not in known:
                known[key] = KnownCall.of(
                    alias.tool, alias.raw_digest, ledger_key=alias.ledger_key, hold_id=alias.hold_id
                )
    return known.get(key)


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
