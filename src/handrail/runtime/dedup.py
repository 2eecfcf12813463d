"""Step 9 for writing calls: is there an execution with this key already, here or in the store, settled or running?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, UsageError
from handrail.contract.store import Alias, Hold, LedgerRow, LedgerState, StoreUnavailable
from handrail.runtime.attempt import Attempt
from handrail.runtime.keys import args_digest, id_in_message, ledger_key
from handrail.runtime.ledger_view import may_try_again, running, settle_from_row
from handrail.runtime.replays import Entry

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore
    from handrail.runtime.session import Session
    from handrail.runtime.turn import MessageId, Ordinals, Turn

_POLL_SECONDS = 0.05


class LookAgain(Exception):
    """The call that was waited for is held now: its request is the answer."""


class Dedup:
    """Finds earlier executions of writing calls."""

    __slots__ = ("core", "unstored")

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core
        self.unstored: dict[tuple[str, str], Alias] = {}
        """Session id and call id → what it stands for, where that could not be stored; the housekeeper tries again."""

    async def again(self, attempt: Attempt, known: Entry) -> ToolResponse | None:
        """An id whose execution this process does not carry out: what the store knows of it. None: it may be taken over."""
        assert known.ledger_key is not None
        waited = 0.0
        while True:
            row = await self.core.store.ledger_row(known.ledger_key)
            if row is None or row.state is not LedgerState.RUNNING:
                break
            if await self._may_be_abandoned(row):
                return None
            if waited >= attempt.session.limits.wait_seconds:
                return self.core.answers.refuse(attempt, running(known.tool), free=True)
            await self.core.clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
        if row is None:
            return None
        settle_from_row(known, row)
        attempt.turn.take(row)
        return await self.core.answers.replay(attempt, known)

    async def take_ordinal(self, attempt: Attempt, key: str) -> None:
        """An id of an earlier connection, delivered again: it takes its ordinal here too, before an identical call does."""
        row = await self.core.store.ledger_row(key)
        if row is not None:
            attempt.turn.take(row)

    def take_held(self, session: Session, turn: Turn, hold: Hold) -> None:
        """The same for a call that is held: another that its tool's `dedupeFields` make the same takes the next ordinal."""
        plan = session.plans.find(hold.tool)
        if plan is not None and hold.turn == turn.number:
            digest = args_digest(plan.definition, orjson.loads(hold.args), hold.args.encode())
            turn.ordinals.setdefault((hold.tool, digest), {}).setdefault(hold.ordinal, None)

    async def known(self, attempt: Attempt) -> ToolResponse | None:
        """The answer of an execution with this key, if there is one; otherwise the attempt has its key and ordinal."""
        session, plan, turn, write = attempt.session, attempt.plan, attempt.turn, attempt.write
        assert write is not None
        pair = (plan.tool_id, attempt.digest)
        if write.key:
            # An id that a dead process left: the call goes on where that one stopped.
            write.takeover = await self.core.store.ledger_row(write.key)
            if write.takeover is not None:
                attempt.ordinal = write.takeover.ordinal
                turn.take(write.takeover)
                return None
        answer = await self._met_unknown(attempt)
        if answer is not None:
            return answer
        in_message = id_in_message(attempt.call)
        own = in_message is not None or attempt.key.startswith("provider:")
        taken: Ordinals = turn.ordinals.setdefault(pair, {}) if own else {}
        name = (attempt.call.response_id, in_message) if in_message is not None else None
        # The same call under the same id again, where no id of the message says that this is a new message.
        same = max((number for number, known in taken.items() if _may_be_same(known, name)), default=0)
        attempt.ordinal = 0
        while True:
            if same and not attempt.ordinal:
                attempt.ordinal, write.taken = same, {}  # not its own, so that it does not give it back
            else:
                attempt.ordinal = next(number for number in range(attempt.ordinal + 1, 1 << 31) if number not in taken)
                write.taken = taken
            # Before anything is awaited: an identical call at the same time takes the next.
            write.taken[attempt.ordinal] = name
            write.key = ledger_key(
                session.tenant, session.id, turn.number, plan.tool_id, attempt.digest, attempt.ordinal
            )
            answer = await self.core.confirmations.answered_under(attempt, write.key) if session.holds else None
            if answer is not None:
                if answer.error is not None and answer.error.type is ErrorType.IN_PROGRESS:
                    write.taken.pop(attempt.ordinal, None)
                return answer
            entry = await self._entry(attempt, write.key)
            if entry is None:
                return None
            if not entry.settled:
                write.taken.pop(attempt.ordinal, None)
                return self.core.answers.refuse(attempt, running(plan.tool_id), free=True)
            assert entry.response is not None
            if not may_try_again(entry.response[0]):
                await self.remember(attempt, entry)
                return await self.core.answers.replay(attempt, entry)

    async def _met_unknown(self, attempt: Attempt) -> ToolResponse | None:
        """After an unknown outcome no further ordinal is given: that outcome answers, also once it has become known."""
        session, turn = attempt.session, attempt.turn
        pair = (attempt.plan.tool_id, attempt.digest)
        row: LedgerRow | None = None
        key = turn.unknown.get(pair)
        if key is not None:
            row = await self.core.store.ledger_row(key)
        elif turn.from_before:
            row = await self.core.store.unknown_like(session.id, turn.number, *pair)
        if row is None:
            return None
        if row.state is LedgerState.UNKNOWN:
            return self.core.writing.outcome_unknown(attempt, row.key)
        turn.unknown.pop(pair, None)
        entry = Entry(row.tool, attempt.raw_digest)
        settle_from_row(entry, row)
        await self.remember(attempt, entry)
        return await self.core.answers.replay(attempt, entry)

    async def _entry(self, attempt: Attempt, key: str) -> Entry | None:
        """The execution with this ledger key, after a wait if it still runs; None if there is none, or it may be taken over."""
        session = attempt.session
        patience = session.limits.wait_seconds
        clock = self.core.clock
        deadline = clock.monotonic() + patience
        while True:
            entry = session.writes.get(key)
            if entry is None:
                break
            settled = await entry.wait(clock, max(0.0, deadline - clock.monotonic()))
            if not settled and session.writes.get(key) is not entry:
                if entry.hold_id is not None:
                    raise LookAgain
                continue
            return entry
        if not attempt.turn.from_before:
            return None
        row, waited = await self.core.store.ledger_row(key), 0.0
        while row is not None and row.state is LedgerState.RUNNING and waited < patience:
            if await self._may_be_abandoned(row):
                return None
            await self.core.clock.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
            row = await self.core.store.ledger_row(key)
        here = session.writes.get(key)
        if row is None or here is not None:
            return here
        entry = Entry.of(attempt.plan.tool_id, attempt.raw_digest, ledger_key=key)
        if row.state is not LedgerState.RUNNING:
            settle_from_row(entry, row)
            session.writes[key] = entry
        return entry

    async def _may_be_abandoned(self, row: LedgerRow) -> bool:
        """Whether a claim may take it over; the claim looks whether its owner lives, or is we ourselves, unheard."""
        if row.hold_id is None and row.key in self.core.unconfirmed_claims.ids:
            return True
        return row.effects != "unsafe" and row.lease_until < await self.core.store.now()

    async def remember(self, attempt: Attempt, entry: Entry) -> None:
        """A call under an id of its own that was answered from another execution: the id stands for that one."""
        if not attempt.key.startswith("provider:") or entry.ledger_key is None:
            return
        self.stands_for(attempt, entry)
        await self.remember_id(attempt, entry.ledger_key, entry.hold_id)

    def stands_for(self, attempt: Attempt, entry: Entry) -> None:
        """The id of this call means that execution, though it may be written otherwise: it comes again as it came."""
        if entry.raw_digest not in (attempt.raw_digest, self.core.digest_of(attempt.raw_digest)):
            entry = entry.under(attempt.raw_digest)
        attempt.session.calls_by_id[attempt.key] = entry

    async def remember_id(self, attempt: Attempt, key: str | None, hold_id: str | None) -> None:
        alias = self.core.writing.alias(attempt, key, hold_id)
        if alias is None:
            return
        try:
            await self.core.store.add_alias(attempt.session.id, alias)
        except StoreUnavailable as error:
            # The answer is known and is given; that this id stands for it is kept here until it is stored.
            self.unstored[attempt.session.id, alias.call_id] = alias
            self.core.log.warning("The call id %s could not be stored yet: %s", attempt.call.call_id, error)

    async def store_ids(self) -> None:
        """Store the ids that could not be stored when they were answered."""
        for place, alias in list(self.unstored.items()):
            try:
                await self.core.store.add_alias(place[0], alias)
            except UsageError as error:
                self.core.log.error("The call id %s cannot be stored; it is given up: %s", alias.call_id, error)
            if self.unstored.get(place) is alias:
                del self.unstored[place]


def _may_be_same(known: MessageId | None, name: MessageId | None) -> bool:
    """Whether both ids may be of one message: what gives no id to its messages may have repeated this one."""
    if known is None or name is None or known[1] != name[1]:
        return False
    return known[0] == name[0] or known[0] is None or name[0] is None
