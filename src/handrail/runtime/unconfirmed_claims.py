"""Claims that the store did not answer, twice: the row may be ours, and the handler has not started.

Nobody else may touch such a row while this process lives, so this process goes on with it, under the same claim id until the
store has answered. A call without a confirmation is gone on with when it is made again. An approved one is carried out by
`approval.py`, until it is given up: a person says no, or the request's time is over. What is given up never starts here, and it
is recorded that nothing ran.
"""

from __future__ import annotations

import asyncio

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.store import (
    Claim,
    ClaimVerdict,
    Finish,
    Hold,
    HoldState,
    LedgerRow,
    LedgerState,
    Store,
)
from handrail.runtime.confirmation_view import declined_answer
from handrail.runtime.own_claims import OwnClaims


class UnconfirmedClaims:
    """The approved calls of one runtime whose claims were not answered."""

    __slots__ = ("_lease_ms", "_own", "_store")

    def __init__(self, store: Store, own: OwnClaims, lease_ms: int) -> None:
        self._store = store
        self._own = own
        self._lease_ms = lease_ms

    def covers(self, hold: Hold) -> bool:
        """Whether the grant was used by a claim of ours that was not answered."""
        return hold.state is HoldState.CONSUMED and hold.ledger_key in self._own.unconfirmed

    def has_claim(self, hold: Hold) -> bool:
        """Whether a claim of ours for it was not answered."""
        return hold.ledger_key in self._own.unconfirmed

    def is_under_way(self, hold: Hold) -> bool:
        """Whether somebody in this process claims or runs it now."""
        return hold.ledger_key in self._own.under_way

    def holds(self) -> list[str]:
        """The confirmations whose claims were not answered."""
        return list(self._own.unconfirmed_holds)

    def forget(self, hold_id: str) -> None:
        """Nothing is left to do for this confirmation."""
        self._own.unconfirmed_holds.discard(hold_id)

    async def decline(self, hold: Hold) -> bool:
        """A person says no to a call that was approved: whether that is in time."""
        if not self.covers(hold):
            return False
        self._own.given_up.setdefault(hold.ledger_key, declined_answer(hold))
        return await self._record_that_nothing_ran(hold)

    async def is_over(self, hold: Hold) -> bool:
        """Whether it is given up, and recorded so; past its time it is not begun any more."""
        key, own = hold.ledger_key, self._own
        late = hold.expires_at <= await self._store.now()
        if key in own.unconfirmed and late:
            message = f'"{hold.tool}" could not be started before the approval expired; nothing was run.'
            failure = ToolFailure(ErrorType.CANCELLED, message, False)
            own.given_up.setdefault(key, ToolResponse(False, None, failure, (), {"toolId": hold.tool}))
        if key in own.given_up:
            await self._record_that_nothing_ran(hold)
        return late or key not in own.unconfirmed

    async def _record_that_nothing_ran(self, hold: Hold) -> bool:
        """In the row that bears our claim id; any other is not ours to report on. Whether it says so now."""
        key, own = hold.ledger_key, self._own
        answer, trying = own.given_up[key], own.under_way.get(key)
        if trying is not None:
            await asyncio.wait((trying,))  # its claim may be answered now; from here on nobody begins another
        row, claim_id = await self._store.ledger_row(key), own.unconfirmed.get(key)
        ours = row is not None and row.state is LedgerState.RUNNING and row.owner == own.owner
        if claim_id is not None and row is not None and ours:
            result = await self._store.claim(_same_claim(row, claim_id, own.owner, self._lease_ms))
            row = result.row or row
            if result.verdict is ClaimVerdict.CLAIMED:
                envelope = orjson.dumps(answer.to_dict()).decode()
                finish = Finish(key=key, fence=result.fence, state=LedgerState.CANCELLED, envelope=envelope)
                row = await self._store.finish(finish)
        own.unconfirmed.pop(key, None)
        own.given_up.pop(key, None)
        outcome = own.unstored.get(key) or row
        return outcome is not None and outcome.state is LedgerState.CANCELLED


def _same_claim(row: LedgerRow, claim_id: str, owner: str, lease_ms: int) -> Claim:
    """The claim that made the row, if its id is this one. The row is there, so that this claims nothing anew."""
    return Claim(
        key=row.key,
        tenant=row.tenant,
        session_id=row.session_id,
        user=row.user,
        turn=row.turn,
        connection=0,
        tool=row.tool,
        tool_hash=row.tool_hash,
        registry_version=row.registry_version,
        args_digest=row.args_digest,
        args=row.args,
        effects=row.effects,
        ordinal=row.ordinal,
        owner=owner,
        lease_ms=lease_ms,
        hold_id=row.hold_id,
        check_connection=False,
        claim_id=claim_id,
    )
