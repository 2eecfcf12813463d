"""What a session remembers of its calls, so that the same call asked for twice is answered from the first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.envelope import ToolResponse
from handrail.contract.ports import Clock
from handrail.schema.trimmed import trimmed

if TYPE_CHECKING:
    from handrail.runtime.plan import ToolPlan

Plain = tuple["ToolPlan", bytes, tuple[str, ...], float, Mapping[str, Any] | None, bytes]
"""A success with nothing but data: its plan, the arguments in canonical form, the pointers of those that were filled in, its
duration, what else was told, and the data as JSON."""


class Entry:
    """One remembered call. While it runs, duplicates wait for it; afterwards they get its envelope."""

    # Defaults of the class: every call makes an entry, and most never differ from these.
    ledger_key: str | None = None
    hold_id: str | None = None
    call_id: str | None = None
    retryable = False
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
    ) -> Entry:
        """A call that the store knows."""
        entry = cls(tool, raw_digest)
        entry.ledger_key, entry.hold_id = ledger_key, hold_id
        return entry

    @classmethod
    def of_plain(cls, plain: Plain) -> Entry:
        """A call that went as nearly all do."""
        plan, text, defaulted, duration, more, raw = plain
        meta = plain_meta(plan, duration, defaulted, more)
        return cls(plan.tool_id, as_they_came(text, defaulted), (ToolResponse(True, None, None, (), meta), raw))

    def under(self, raw_digest: bytes | str) -> Entry:
        """The same execution, asked for in other words. What is not known of it yet is looked up when it is asked for."""
        entry = Entry.of(self.tool, raw_digest, ledger_key=self.ledger_key, hold_id=self.hold_id)
        entry.call_id, entry.response, entry.unknown = self.call_id, self.response, self.unknown
        return entry

    @property
    def settled(self) -> bool:
        return self.response is not None

    def settle(self, response: ToolResponse, raw_data: bytes) -> None:
        self.response = (response.without_data(), trimmed(raw_data))
        self.unknown = False
        self._wake()

    def abandon(self) -> None:
        """It will not be settled here; whoever waits looks again."""
        self.abandoned = True
        self._wake()

    def held(self, hold_id: str, ledger_key: str) -> None:
        """A person is asked about it; whoever waits looks again, and gets the same request."""
        self.hold_id, self.ledger_key, self.kept = hold_id, ledger_key, True
        self._wake()

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
        data = orjson.loads(raw) if first.ok else None
        return ToolResponse(first.ok, data, first.error, first.intents, {**first.meta, "replayed": True, **facts})

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Replays(dict[str, Entry | Plain]):
    """The last results of tools that do not write. In memory only: after a restart they may run again."""

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def forget(self, key: str, entry: Entry) -> None:
        if self.get(key) is entry:
            del self[key]

    def drop_settled(self) -> None:
        """Give the memory back, for a session that has been idle for long. Running calls stay."""
        for key in [key for key, entry in self.items() if type(entry) is not Entry or entry.settled]:
            del self[key]

    def drop_oldest(self) -> None:
        for key, entry in self.items():
            if type(entry) is not Entry or entry.settled:
                del self[key]
                return


def plain_meta(
    plan: ToolPlan, duration: float, defaulted: tuple[str, ...], more: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the envelope of such a call says about it."""
    meta = plan.meta.copy()
    meta["duration"] = duration
    if defaulted:
        meta["defaulted"] = list(defaulted)
    if more is not None:
        meta.update(more)
    return meta


def as_they_came(text: bytes, defaulted: tuple[str, ...]) -> bytes:
    """Plain arguments in canonical form without what was filled in."""
    if not defaulted:
        return text
    args = orjson.loads(text)
    for token in defaulted:
        del args[token[1:].replace("~1", "/").replace("~0", "~")]
    return orjson.dumps(args, option=orjson.OPT_SORT_KEYS)
