"""Claims that the store did not answer, twice: the row may be ours, and the handler has not started.

Nobody else may touch such a row while this process lives, so this process goes on with it, under the same claim id until the
store has answered. A call without a confirmation is gone on with when it is made again. An approved one is carried out by the
housekeeper, or at once if somebody approves again, until it is given up: a person says no, or the request's time is over.
What is given up never starts here, and it is recorded that nothing ran.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.store import (
    Claim,
    ClaimResult,
    ClaimVerdict,
    Finish,
    Hold,
    HoldState,
    LedgerRow,
    LedgerState,
    StoreUnavailable,
)
from handrail.runtime.confirmation_view import declined_answer

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore

_GRANTED = (HoldState.APPROVED, HoldState.CONSUMED)


class UnconfirmedClaims:
    """The unheard claims of one runtime."""

    __slots__ = ("core", "given_up", "holds", "ids")

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core
        self.ids: dict[str, str] = {}
        """Ledger key → claim id. It stays, and stays the same, until a claim with it is answered."""
        self.holds: set[str] = set()
        """The approved calls among them."""
        self.given_up: dict[str, ToolResponse] = {}
        """Ledger key → what is recorded of it: those of `ids` that must not start any more."""

    async def claimed(self, claim: Claim) -> ClaimResult:
        """Asked a second time where the store did not answer: a claim that was committed unheard is recognised as ours."""
        try:
            result = await self.core.store.claim(claim)
        except StoreUnavailable:
            self.core.crash("between_claims")
            try:
                result = await self.core.store.claim(claim)
            except StoreUnavailable:
                self.ids[claim.key] = claim.claim_id
                if claim.hold_id is not None:
                    self.holds.add(claim.hold_id)
                raise
        self.ids.pop(claim.key, None)
        return result

    def about(self, hold: Hold) -> bool:
        """Whether the grant was used by a claim of ours that was not heard."""
        return hold.state is HoldState.CONSUMED and hold.ledger_key in self.ids

    async def again(self, hold: Hold) -> ToolResponse:
        """The approver asks again: carried out now, unless the checks refuse it or it is given up."""
        confirmations = self.core.confirmations
        if await self._is_over(hold):
            return await confirmations.carried_out(hold)
        session = await self.core.session_for(hold)
        if session is None:
            return ToolResponse.failure(ErrorType.SESSION_INACTIVE, "The session has ended.")
        attempt, refusal = confirmations.checked_again(session, hold)
        if refusal is not None:
            return confirmations.refused(session, hold, refusal)
        assert attempt is not None
        return await confirmations.carry_out(session, attempt, hold)

    async def declined(self, hold: Hold) -> bool:
        """A person says no to a call that was approved: whether that is in time."""
        if not self.about(hold):
            return False
        self.given_up.setdefault(hold.ledger_key, declined_answer(hold))
        return await self._record(hold)

    async def settle(self) -> None:
        """What the housekeeper does for approved calls that nobody asks for."""
        for hold_id in list(self.holds):
            hold = await self.core.store.hold_by_id(hold_id)
            if hold is not None and hold.ledger_key in self.core.writing.under_way:
                continue
            in_doubt = hold is not None and hold.state in _GRANTED and hold.ledger_key in self.ids
            if hold is None or not in_doubt or await self._is_over(hold):
                self.holds.discard(hold_id)
                continue
            session = await self.core.session_for(hold)
            attempt, _ = self.core.confirmations.checked_again(session, hold) if session is not None else (None, None)
            if session is not None and attempt is not None:
                self.core.spawn(self.core.confirmations.carry_out(session, attempt, hold))

    async def _is_over(self, hold: Hold) -> bool:
        """Whether it is given up, and recorded so; past its time it is not begun any more."""
        key = hold.ledger_key
        late = hold.expires_at <= await self.core.store.now()
        if key in self.ids and late:
            message = f'"{hold.tool}" could not be started before the approval expired; nothing was run.'
            failure = ToolFailure(ErrorType.CANCELLED, message, False)
            self.given_up.setdefault(key, ToolResponse(False, None, failure, (), {"toolId": hold.tool}))
        if key in self.given_up:
            await self._record(hold)
        return late or key not in self.ids

    async def _record(self, hold: Hold) -> bool:
        """That nothing ran, in the row that bears our claim id; any other is not ours to tell of. Whether it says so now."""
        key, answer = hold.ledger_key, self.given_up[hold.ledger_key]
        trying = self.core.writing.under_way.get(key)
        if trying is not None:
            await asyncio.wait((trying,))  # its claim may be answered now; from here on nobody begins another
        row, claim_id = await self.core.store.ledger_row(key), self.ids.get(key)
        if (
            claim_id is not None
            and row is not None
            and (row.state, row.owner) == (LedgerState.RUNNING, self.core.owner)
        ):
            result = await self.core.store.claim(_same_claim(row, claim_id, self.core.owner, self.core.policy.lease_ms))
            row = result.row or row
            if result.verdict is ClaimVerdict.CLAIMED:
                envelope = orjson.dumps(answer.to_dict()).decode()
                row = await self.core.store.finish(
                    Finish(key=key, fence=result.fence, state=LedgerState.CANCELLED, envelope=envelope)
                )
        self.ids.pop(key, None)
        self.given_up.pop(key, None)
        outcome = self.core.writing.unfinished.get(key) or row
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
