"""Brings a spoken yes or no to the runtime, and reports what became of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from handrail.agents.voice.spoken_notices import unheard_no_notice, unheard_yes_notice
from handrail.agents.voice.state.events_and_effects import (
    DecisionNotRecorded,
    DecisionRecorded,
    DecisionReopened,
    Event,
    RecordDecision,
)
from handrail.contract.errors import ErrorType, HandrailError
from handrail.contract.store import HoldState, StoreUnavailable
from handrail.runtime.core import RuntimeCore

_LOG = logging.getLogger("handrail.agent")
_NOT_KNOWN = "not_known"


class ConfirmationDecisions:
    """Records the spoken decisions of one conversation. The envelope of an approved call comes late, by way of the session."""

    def __init__(self, runtime: RuntimeCore, report: Callable[[Event], None]) -> None:
        self._runtime = runtime
        self._report = report

    async def record(self, decision: RecordDecision) -> None:
        self._report(await (self._approve(decision) if decision.approve else self._decline(decision)))

    async def _approve(self, decision: RecordDecision) -> Event:
        """A refusal leaves the request on the screen."""
        asked = decision.id
        try:
            answer = await self._runtime.approve(asked, token=decision.token, via="voice")
        except HandrailError as error:
            _LOG.error("A spoken yes could not be carried out: %s", error)
            # The store may have recorded it before it went away, so nobody can say that nothing runs.
            if isinstance(error, StoreUnavailable):
                return DecisionNotRecorded(asked, _NOT_KNOWN, unheard_yes_notice())
            return DecisionNotRecorded(asked, "refused")
        failure = answer.error
        if failure is None:
            return DecisionRecorded(asked, declined=False)
        if failure.type is ErrorType.CONFIRMATION_REQUIRED:
            return DecisionReopened(asked)
        # The call may have failed after it was approved, or the approval itself may not have been taken.
        used = await self._was_used(asked)
        if used:
            return DecisionRecorded(asked, declined=False)
        _LOG.info("A spoken approval was not carried out: %s", failure.message)
        if used is None:
            return DecisionNotRecorded(asked, _NOT_KNOWN, unheard_yes_notice())
        if failure.type is ErrorType.STORE_UNAVAILABLE:
            return DecisionNotRecorded(asked, "not_started", failure.message)
        return DecisionNotRecorded(asked, "refused")

    async def _decline(self, decision: RecordDecision) -> Event:
        """A no is reported when it was taken: until then the request may be open, and somebody else may have approved it."""
        asked = decision.id
        try:
            answer = await self._runtime.decline(asked, token=decision.token)
        except HandrailError as error:
            _LOG.error("A spoken no could not be carried out: %s", error)
            return DecisionNotRecorded(asked, _NOT_KNOWN, unheard_no_notice())
        if answer.error is not None and answer.error.type is ErrorType.DECLINED:
            return DecisionRecorded(asked, declined=True)
        return await self._too_late(asked)

    async def _too_late(self, id: str) -> Event:
        """There was nothing more to decline: somebody had approved it, or nobody could any more."""
        try:
            hold = await self._runtime.store.hold_by_id(id)
        except StoreUnavailable:
            return DecisionNotRecorded(id, _NOT_KNOWN, unheard_no_notice())
        if hold is None or hold.state is HoldState.EXPIRED:
            return DecisionNotRecorded(id, "", expired=True)
        return DecisionNotRecorded(id, "replaced" if hold.state is HoldState.SUPERSEDED else "decided")

    async def _was_used(self, id: str) -> bool | None:
        """Whether the runtime used an approval whose answer is an error: then the call itself has failed.

        None: nobody knows, or it may still be used.
        """
        try:
            hold = await self._runtime.store.hold_by_id(id)
        except StoreUnavailable:
            return None
        if hold is not None and hold.state is HoldState.APPROVED:
            return None
        # A claim that the store may not have recorded leaves open whether the call has started.
        if hold is None or hold.state is not HoldState.CONSUMED:
            return False
        return hold.ledger_key not in self._runtime.own_claims.unconfirmed
