"""Executions that this process does not carry out: what the store knows of them, waited for where they still run."""

from __future__ import annotations

from handrail.contract.envelope import ToolResponse
from handrail.contract.ports import Clock
from handrail.contract.store import LedgerRow, LedgerState, Store
from handrail.runtime.answers import Answers
from handrail.runtime.attempt import Attempt
from handrail.runtime.known_calls import Entry
from handrail.runtime.ledger_view import running, settle_from_row
from handrail.runtime.own_claims import OwnClaims

_POLL_SECONDS = 0.05


class LedgerLookup:
    """Looks executions up in the ledger."""

    __slots__ = ("_answers", "_clock", "_own", "_store")

    def __init__(self, store: Store, clock: Clock, answers: Answers, own: OwnClaims) -> None:
        self._store = store
        self._clock = clock
        self._answers = answers
        self._own = own

    async def replay(self, attempt: Attempt, entry: Entry) -> ToolResponse | None:
        """The answer of an execution that the store knows; None if a claim may take it over, or there is none."""
        assert entry.ledger_key is not None
        row = await self.row(entry.ledger_key, attempt.session.limits.wait_seconds)
        if row is None:
            return None
        if row.state is LedgerState.RUNNING:
            return self._answers.refuse(attempt, running(entry.tool), free=True)
        settle_from_row(entry, row)
        attempt.turn.take(row)
        return await self._answers.replay(attempt, entry)

    async def take_ordinal(self, attempt: Attempt, key: str) -> None:
        """An id of an earlier connection, delivered again: it takes its ordinal here too, before an identical call does."""
        row = await self._store.ledger_row(key)
        if row is not None:
            attempt.turn.take(row)

    async def row(self, key: str, seconds: float) -> LedgerRow | None:
        """The row, settled or running after this wait; None if a claim may take it over, or there is none."""
        waited = 0.0
        while True:
            row = await self._store.ledger_row(key)
            if row is None or row.state is not LedgerState.RUNNING:
                return row
            if await self._may_be_abandoned(row):
                return None
            if waited >= seconds:
                return row
            await self._clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS

    async def settle(self, entry: Entry, key: str, seconds: float) -> None:
        """Settle the entry from its row, if that has an outcome within this time."""
        waited = 0.0
        while waited < seconds:
            row = await self._store.ledger_row(key)
            if row is not None and row.state is not LedgerState.RUNNING:
                settle_from_row(entry, row)
                return
            await self._clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS

    async def _may_be_abandoned(self, row: LedgerRow) -> bool:
        """Whether a claim may take it over. The claim itself looks whether its owner lives, or is this process, unconfirmed."""
        if row.hold_id is None and row.key in self._own.unconfirmed:
            return True
        return row.effects != "unsafe" and row.lease_until < await self._store.now()
