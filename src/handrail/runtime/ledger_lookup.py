"""The ledger as this process sees it: what it has claimed itself, and what the store knows of executions that run elsewhere.

`claim_and_run.py` makes claims and carries them out. A claim that the store did not answer, twice, is *unconfirmed*: the row may
be ours, and the handler has not started. Nobody else may touch such a row while this process lives, so this process continues
with it, under the same claim id until the store has answered. A call without a confirmation continues when it is made again. An
approved one is carried out by `approval.py`, until it is given up: a person says no, or the request's time is over. What is given
up never starts here, and it is recorded that nothing ran.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.ports import Clock
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
from handrail.runtime.call_attempt import Attempt
from handrail.runtime.envelopes import Answers, declined_answer, running, unknown_answer
from handrail.runtime.known_calls import KnownCall
from handrail.schema.strict_json import trimmed

PASSING = (ErrorType.TRANSIENT, ErrorType.TIMEOUT, ErrorType.CANCELLED)
"""Outcomes that say nothing about the next try."""
_POLL_SECONDS = 0.05


class OwnClaims:
    """The claims of one runtime, by ledger key, from the wish to run a call until its outcome is stored.

    A value that several parts share. `owner` is the runtime's name in the store.
    """

    __slots__ = ("fences", "given_up", "owner", "unconfirmed", "unconfirmed_holds", "under_way", "unstored")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.under_way: dict[str, asyncio.Task[Any]] = {}
        """The task that claims or runs a call. One at a time in this process, because all of them claim as one owner."""
        self.fences: dict[str, int] = {}
        """The fencing numbers of claims whose handlers run. Their leases are renewed."""
        self.unstored: dict[str, Finish] = {}
        """Outcomes that could not be stored; the housekeeper tries again."""
        self.unconfirmed: dict[str, str] = {}
        """The claim ids of claims that the store did not answer. Each stays the same until a claim with it is answered."""
        self.unconfirmed_holds: set[str] = set()
        """The confirmations among them."""
        self.given_up: dict[str, ToolResponse] = {}
        """Those of `unconfirmed` that must not start any more, and what is recorded of them."""


def settle_from_row(entry: KnownCall, row: LedgerRow) -> None:
    """What a stored outcome says. A body that was evicted is not run again for."""
    entry.ledger_key = row.key
    if row.state is LedgerState.UNKNOWN:
        entry.settle(unknown_answer(row.tool, {"toolId": row.tool}), b"")
        entry.unknown = True
        return
    if row.envelope is None:
        message = f'"{row.tool}" has run, but its result is no longer kept.'
        entry.settle(
            ToolResponse(
                False,
                None,
                ToolFailure(ErrorType.INTERNAL, message, False, row.effects != "none"),
                (),
                {"toolId": row.tool},
            ),
            b"",
        )
        return
    response = ToolResponse.from_dict(orjson.loads(row.envelope))
    entry.settle(response, trimmed(orjson.dumps(response.data)))


def may_try_again(response: ToolResponse) -> bool:
    error = response.error
    return error is not None and error.type in PASSING and not error.partial_side_effects


class LedgerLookup:
    """Looks executions up in the ledger."""

    __slots__ = ("_answers", "_clock", "_own", "_store")

    def __init__(self, store: Store, clock: Clock, answers: Answers, own: OwnClaims) -> None:
        self._store = store
        self._clock = clock
        self._answers = answers
        self._own = own

    async def replay(self, attempt: Attempt, entry: KnownCall) -> ToolResponse | None:
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

    async def take_ordinal(self, attempt: Attempt, entry: KnownCall) -> None:
        """An id of an earlier connection, delivered again: it takes its ordinal here too, before an identical call does."""
        key = entry.ledger_key
        assert key is not None
        row = await self._store.ledger_row(key)
        # Its claim may have been refused meanwhile, which gives the ordinal back: taken after that it would be nobody's, and the
        # same call, made again, would be a second wish.
        if row is not None and entry.ledger_key == key:
            attempt.turn.take(row)

    async def row(self, key: str, seconds: float) -> LedgerRow | None:
        """The row, settled or running after this wait; None if a claim may take it over, or there is none."""
        waited = 0.0
        while True:
            row = await self._store.ledger_row(key)
            if row is None or row.state is not LedgerState.RUNNING:
                return row
            if await self.may_be_taken_over(row):
                return None
            if waited >= seconds:
                return row
            if row.hold_id is None:
                await self._clock.sleep(_POLL_SECONDS)
            else:
                await sleep_unless(self._clock, _POLL_SECONDS, self._store.changed(row.hold_id))
            waited += _POLL_SECONDS

    async def settle(self, entry: KnownCall, key: str, seconds: float) -> None:
        """Settle the entry from its row, if that has an outcome within this time."""
        waited = 0.0
        while waited < seconds:
            row = await self._store.ledger_row(key)
            if row is not None and row.state is not LedgerState.RUNNING:
                settle_from_row(entry, row)
                return
            await self._clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS

    async def may_be_taken_over(self, row: LedgerRow) -> bool:
        """Whether a claim may take it over. The claim itself looks whether its owner lives, or is this process, unconfirmed."""
        if row.hold_id is None and row.key in self._own.unconfirmed:
            return True
        return row.effects != "unsafe" and row.lease_until < await self._store.now()


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


async def sleep_unless(clock: Clock, seconds: float, changed: asyncio.Future[None]) -> None:
    """Wait this long, or until the store says that somebody has changed what is waited for."""
    sleeping = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((sleeping, changed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
        changed.cancel()
