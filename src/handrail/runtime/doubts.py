"""Approved calls whose claim nobody heard of: the grant is used, the row is ours, and the handler has not started.

Nobody else may touch such a row while this process lives, so this process goes on with it: at once when the approver asks
again, else by the housekeeper, until the request's time is over. Then it is recorded that nothing ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.store import Finish, Hold, HoldState, LedgerState, StoreUnavailable

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore


class Doubts:
    """The approved calls of one runtime that wait to be claimed again."""

    __slots__ = ("core", "holds")

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core
        self.holds: set[str] = set()

    def about(self, hold: Hold) -> bool:
        """Whether the grant was used by a claim of ours that was not heard."""
        return hold.state is HoldState.CONSUMED and hold.ledger_key in self.core.writing.doubtful

    async def again(self, hold: Hold) -> ToolResponse:
        """The approver asks again: carried out now, unless the checks refuse it or its time is over."""
        confirmations = self.core.confirmations
        if await self._given_up(hold):
            return await confirmations.carried_out(hold)
        session = await self.core.session_for(hold)
        if session is None:
            return ToolResponse.failure(ErrorType.SESSION_INACTIVE, "The session has ended.")
        attempt, refusal = confirmations.checked_again(session, hold)
        if refusal is not None:
            return confirmations.refused(session, hold, refusal)
        assert attempt is not None
        return await confirmations.carry_out(session, attempt, hold)

    async def settle(self) -> None:
        """What the housekeeper does for those that nobody asks for."""
        for hold_id in list(self.holds):
            hold = await self.core.store.hold_by_id(hold_id)
            if hold is None or not self.about(hold) or await self._given_up(hold):
                self.holds.discard(hold_id)
                continue
            session = await self.core.session_for(hold)
            attempt, _ = self.core.confirmations.checked_again(session, hold) if session is not None else (None, None)
            if session is not None and attempt is not None:
                self.core.spawn(self.core.confirmations.carry_out(session, attempt, hold))

    async def _given_up(self, hold: Hold) -> bool:
        """Past its time it is not begun any more."""
        if hold.expires_at > await self.core.store.now():
            return False
        doubtful = self.core.writing.doubtful
        claim_id = doubtful.pop(hold.ledger_key, None)
        if claim_id is None:
            return True
        try:
            row = await self.core.store.ledger_row(hold.ledger_key)
            if row is not None and row.state is LedgerState.RUNNING and row.owner == self.core.owner:
                message = f'"{hold.tool}" could not be started before the approval expired; nothing was run.'
                answer = ToolResponse(
                    False, None, ToolFailure(ErrorType.CANCELLED, message, False), (), {"toolId": hold.tool}
                )
                envelope = orjson.dumps(answer.to_dict()).decode()
                finish = Finish(key=row.key, fence=row.fence, state=LedgerState.CANCELLED, envelope=envelope)
                await self.core.store.finish(finish)
        except StoreUnavailable:
            doubtful[hold.ledger_key] = claim_id
            raise
        return True
