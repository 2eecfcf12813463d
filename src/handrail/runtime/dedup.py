"""Step 9 for writing calls: is there an execution with this key already, here or in the store, settled or running?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.ports import Clock
from handrail.contract.store import LedgerRow, LedgerState, Store
from handrail.runtime.answers import Answers, running
from handrail.runtime.attempt import Attempt
from handrail.runtime.confirmation import Confirmations
from handrail.runtime.known_calls import Aliases, Entry, id_in_message, ledger_key
from handrail.runtime.ledger import LedgerLookup, may_try_again, settle_from_row

if TYPE_CHECKING:
    from handrail.runtime.turns import MessageId, Ordinals


class HeldMeanwhile(Exception):
    """The call that was waited for is held now: its request is the answer."""


class Dedup:
    """Finds earlier executions of writing calls."""

    __slots__ = ("_aliases", "_answers", "_clock", "_confirmations", "_lookup", "_store")

    def __init__(
        self,
        store: Store,
        clock: Clock,
        answers: Answers,
        lookup: LedgerLookup,
        aliases: Aliases,
        confirmations: Confirmations,
    ) -> None:
        self._store = store
        self._clock = clock
        self._answers = answers
        self._lookup = lookup
        self._aliases = aliases
        self._confirmations = confirmations

    async def existing_answer(self, attempt: Attempt) -> ToolResponse | None:
        """The answer of an execution with this key, if there is one; otherwise the attempt has its key and ordinal."""
        session, plan, turn, write = attempt.session, attempt.plan, attempt.turn, attempt.write
        assert write is not None
        pair = (plan.tool_id, attempt.digest)
        if write.key:
            # An id that a dead process left: the call goes on where that one stopped.
            write.takeover = await self._store.ledger_row(write.key)
            if write.takeover is not None:
                attempt.ordinal = write.takeover.ordinal
                turn.take(write.takeover)
                return None
        answer = await self._unknown_answer(attempt) if turn.unknown or turn.from_before else None
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
            answer = await self._confirmations.answered_under(attempt, write.key) if session.holds else None
            if answer is not None:
                if answer.error is not None and answer.error.type is ErrorType.IN_PROGRESS:
                    write.taken.pop(attempt.ordinal, None)
                return answer
            may_exist = turn.from_before or write.key in session.writes
            entry = await self._entry(attempt, write.key) if may_exist else None
            if entry is None:
                return None
            if not entry.settled:
                write.taken.pop(attempt.ordinal, None)
                return self._answers.refuse(attempt, running(plan.tool_id), free=True)
            assert entry.response is not None
            if not may_try_again(entry.response[0]):
                await self._aliases.remember(attempt, entry)
                return await self._answers.replay(attempt, entry)

    async def _unknown_answer(self, attempt: Attempt) -> ToolResponse | None:
        """After an unknown outcome no further ordinal is given: that outcome answers, also once it has become known."""
        session, turn = attempt.session, attempt.turn
        pair = (attempt.plan.tool_id, attempt.digest)
        row: LedgerRow | None = None
        key = turn.unknown.get(pair)
        if key is not None:
            row = await self._store.ledger_row(key)
        elif turn.from_before:
            row = await self._store.unknown_like(session.id, turn.number, *pair)
        if row is None:
            return None
        if row.state is LedgerState.UNKNOWN:
            return self._answers.refuse_unknown(attempt, row.key)
        turn.unknown.pop(pair, None)
        entry = Entry(row.tool, attempt.raw_digest)
        settle_from_row(entry, row)
        await self._aliases.remember(attempt, entry)
        return await self._answers.replay(attempt, entry)

    async def _entry(self, attempt: Attempt, key: str) -> Entry | None:
        """The execution with this ledger key, after a wait if it still runs; None if there is none, or it may be taken over."""
        session = attempt.session
        patience = session.limits.wait_seconds
        clock = self._clock
        deadline = clock.monotonic() + patience
        while True:
            entry = session.writes.get(key)
            if entry is None:
                break
            settled = await entry.wait(clock, max(0.0, deadline - clock.monotonic()))
            if not settled and session.writes.get(key) is not entry:
                if entry.hold_id is not None:
                    raise HeldMeanwhile
                continue
            return entry
        if not attempt.turn.from_before:
            return None
        row = await self._lookup.row(key, patience)
        here = session.writes.get(key)
        if row is None or here is not None:
            return here
        entry = Entry.of(attempt.plan.tool_id, attempt.raw_digest, ledger_key=key)
        if row.state is not LedgerState.RUNNING:
            settle_from_row(entry, row)
            session.writes[key] = entry
        return entry


def _may_be_same(known: MessageId | None, name: MessageId | None) -> bool:
    """Whether both ids may be of one message: what gives no id to its messages may have repeated this one."""
    if known is None or name is None or known[1] != name[1]:
        return False
    return known[0] == name[0] or known[0] is None or name[0] is None
