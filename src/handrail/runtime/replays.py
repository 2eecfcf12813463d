"""What a session remembers of its calls, so that the same call asked for twice is answered from the first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.intents import Intent
from handrail.contract.ports import Clock
from handrail.schema.strict_json import trimmed

Settled = tuple[str, bytes, bool, ToolFailure | None, tuple[Intent, ...], Mapping[str, Any], bytes]
"""A call of a tool that does not write, as it is kept: its tool, its arguments as they came, whether it may be tried again, the
error, intents and meta of its envelope, and its data as JSON. A tuple, because every call leaves one and few are asked for."""


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
    def of_settled(cls, settled: Settled) -> Entry:
        """A call that was settled at once."""
        tool, raw_digest, retryable, error, intents, meta, raw = settled
        entry = cls(tool, raw_digest, (ToolResponse(error is None, None, error, intents, meta), raw))
        entry.retryable = retryable
        return entry

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


class Replays(dict[str, Entry | Settled]):
    """The last results of tools that do not write. In memory only: after a restart they may run again."""

    __slots__ = ("max_entries",)

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self.max_entries = max_entries

    def find(self, key: str) -> Entry | None:
        """The call of this key, which runs or was settled; None if it is not kept."""
        known = self.get(key)
        return Entry.of_settled(known) if isinstance(known, tuple) else known

    def drop_oldest(self) -> None:
        """Let go of the oldest call that has ended."""
        for key, known in self.items():
            if isinstance(known, tuple) or known.settled:
                del self[key]
                return

    def forget(self, key: str, entry: Entry) -> None:
        if self.get(key) is entry:
            del self[key]

    def drop_settled(self) -> None:
        """Give the memory back, for a session that has been idle for long. Running calls stay."""
        for key in [key for key, known in self.items() if not isinstance(known, Entry) or known.settled]:
            del self[key]
