"""Steps 9 to 16 for a writing or held call: the key, then the limits, then a person or the claim.

key: is there an execution with it already, here or in the store? → the host's gates → rate, loop, budget → confirmation, or
claim → run → settle (`claim_and_run.py`)
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.ports import Clock
from handrail.contract.store import LedgerRow, LedgerState, Store, StoreUnavailable
from handrail.runtime.call_attempt import Attempt, Write
from handrail.runtime.claim_and_run import LedgerClaims, give_back_unstarted
from handrail.runtime.confirmation import Confirmations
from handrail.runtime.envelopes import Answers, declined, running
from handrail.runtime.gates import ask_host, charge_limits, give_back_budget
from handrail.runtime.known_calls import Aliases, KnownCall, args_digest, hash_key, id_in_message, ledger_key
from handrail.runtime.ledger_lookup import LedgerLookup, may_try_again, settle_from_row

if TYPE_CHECKING:
    from handrail.runtime.turns import MessageId, Ordinals, Turns


class HeldMeanwhile(Exception):
    """The call that was waited for is held now: its request is the answer."""


class WritePath:
    """The writing half of the pipeline."""

    __slots__ = ("_aliases", "_answers", "_claims", "_clock", "_confirmations", "_lookup", "_store", "_turns")

    def __init__(
        self,
        store: Store,
        clock: Clock,
        answers: Answers,
        lookup: LedgerLookup,
        aliases: Aliases,
        confirmations: Confirmations,
        claims: LedgerClaims,
        turns: Turns,
    ) -> None:
        self._store = store
        self._clock = clock
        self._answers = answers
        self._lookup = lookup
        self._aliases = aliases
        self._confirmations = confirmations
        self._claims = claims
        self._turns = turns

    async def call(self, attempt: Attempt, needs_person: bool) -> ToolResponse:
        """Steps 9 to 16 for a writing or held call."""
        session, plan = attempt.session, attempt.plan
        attempt.exact = attempt.digest = sha256(attempt.canonical).hexdigest()
        if plan.definition.dedupe_fields:
            attempt.digest = args_digest(plan.definition, attempt.args, attempt.canonical)
        # How often the user had interrupted by now: if that has changed when the handler would start, it does not.
        attempt.write = Write(session.interruptions)
        # A read that a host's gate sends to a person has a key by its content already, which is no id.
        by_id = attempt.key if attempt.has_stable_id else ""
        restored = session.calls_by_id.get(by_id) if by_id else None
        entry = KnownCall(plan.tool_id, attempt.raw_digest)
        entry.call_id, entry.started, entry.turn = attempt.call.call_id, attempt.started, attempt.turn.number
        # The same id as before: the same execution, whatever turn and ordinal a new call would get.
        if restored is not None and restored.ledger_key is not None:
            attempt.write.key = restored.ledger_key
        if by_id:
            # Before anything is awaited: the same id delivered at once a second time must find this one.
            session.calls_by_id[by_id] = entry
        else:
            attempt.key = hash_key(plan.tool_id, attempt.canonical, attempt.turn.number)
        try:
            return await self._answer(attempt, needs_person, entry)
        except StoreUnavailable as error:
            give_back_unstarted(attempt)
            return self._answers.refuse_unrecorded(attempt, error)
        except asyncio.CancelledError:
            if not entry.kept:
                # Cancelled before a task had the call: the handler did not start.
                give_back_unstarted(attempt)
                give_back_budget(attempt)
            raise
        finally:
            if not entry.kept and entry.response is None:
                # Refused, or answered from another: this entry stands for nothing.
                if session.calls_by_id.get(by_id) is entry:
                    del session.calls_by_id[by_id]
                if restored is not None:
                    # The id still stands for the execution that it stood for before.
                    session.calls_by_id.setdefault(by_id, restored)
                if session.writes.get(attempt.write.key) is entry:
                    del session.writes[attempt.write.key]
                entry.abandon()

    async def _answer(self, attempt: Attempt, needs_person: bool, entry: KnownCall) -> ToolResponse:
        session, turn, write = attempt.session, attempt.turn, attempt.write
        assert write is not None
        # Keys name the turn by the store's number, which a turn that began while the store was away does not have yet.
        if not turn.stored:
            await self._turns.store(session, turn)
        # 9. Key: what a request, a person's no, or an earlier execution answers
        pair = (attempt.plan.tool_id, attempt.exact)
        while True:
            held = session.holds.get(pair)
            known = await self._confirmations.answered_from(attempt, *held) if held is not None else None
            if known is not None:
                return known
            if pair in turn.declined:
                return self._answers.refuse(attempt, declined(attempt.plan.tool_id))
            try:
                known = await self._existing_execution(attempt)
                break
            # What was waited for has become a request. Round again: that request answers, or a no does.
            except HeldMeanwhile:
                write.taken.pop(attempt.ordinal, None)
        if known is not None:
            return known
        # From here on an identical call finds this one by its key, and waits for it.
        session.writes[write.key] = entry
        # The host's gates, where the pipeline has not asked them yet; 10. rate limit, 11. loop, 12. budget
        asks_host = attempt.plan.host_check is not None and attempt.asked_by is None
        refusal = ask_host(attempt) if asks_host else None
        # A call that a dead process left has paid there.
        if refusal is None and write.takeover is None:
            refusal = charge_limits(attempt)
        if refusal is not None:
            write.taken.pop(attempt.ordinal, None)
            return self._answers.refuse(attempt, refusal)
        # 13. Confirmation
        if needs_person or attempt.asked_by is not None:
            return await self._confirmations.hold(attempt, entry)
        # 14. Claim, 15. run, 16. settle
        return await self._claims.run(attempt, None, entry)

    async def _existing_execution(self, attempt: Attempt) -> ToolResponse | None:
        """The answer of an execution with this key, if there is one; otherwise the attempt has its key and ordinal."""
        session, plan, turn, write = attempt.session, attempt.plan, attempt.turn, attempt.write
        assert write is not None
        pair = (plan.tool_id, attempt.digest)
        if write.key:
            # An id that a dead process left: the call continues where that one stopped.
            write.takeover = await self._store.ledger_row(write.key)
            if write.takeover is not None:
                attempt.ordinal = write.takeover.ordinal
                turn.take(write.takeover)
                return None
        # Before an ordinal is taken: a further one would be a second execution beside one that may have happened.
        answer = await self._unknown_answer(attempt) if turn.unknown or turn.may_have_stored_calls else None
        if answer is not None:
            return answer
        in_message = id_in_message(attempt.call)
        own = in_message is not None or attempt.has_stable_id
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
            # A request with this key is of a call with other arguments that the tool's `dedupeFields` make the same one. A call
            # with an id of its own takes another key; one that may be a repetition does not.
            for held in [held for held in session.holds.values() if held[0].ledger_key == write.key]:
                answer = answer or await self._confirmations.answered_from(attempt, *held)
            if answer is not None:
                if answer.error is not None and answer.error.type is ErrorType.IN_PROGRESS:
                    write.taken.pop(attempt.ordinal, None)
                return answer
            # A turn that began here, on this connection, has all its executions in memory; the store need not be asked.
            may_exist = turn.may_have_stored_calls or write.key in session.writes
            entry = await self._entry(attempt, write.key) if may_exist else None
            if entry is None:
                return None
            if entry.response is None:
                write.taken.pop(attempt.ordinal, None)
                return self._answers.refuse(attempt, running(plan.tool_id), free=True)
            assert entry.response is not None
            # What failed for now and without effect is no answer: the loop takes the next ordinal, which is a new try.
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
        elif turn.may_have_stored_calls:
            row = await self._store.unknown_like(session.id, turn.number, *pair)
        if row is None:
            return None
        if row.state is LedgerState.UNKNOWN:
            return self._answers.refuse_unknown(attempt, row.key)
        turn.unknown.pop(pair, None)
        entry = KnownCall(row.tool, attempt.raw_digest)
        settle_from_row(entry, row)
        await self._aliases.remember(attempt, entry)
        return await self._answers.replay(attempt, entry)

    async def _entry(self, attempt: Attempt, key: str) -> KnownCall | None:
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
        if not attempt.turn.may_have_stored_calls:
            return None
        # Only a turn from before can have executions that another process began.
        row = await self._lookup.row(key, patience)
        here = session.writes.get(key)
        if row is None or here is not None:
            return here
        entry = KnownCall.of(attempt.plan.tool_id, attempt.raw_digest, ledger_key=key)
        if row.state is not LedgerState.RUNNING:
            settle_from_row(entry, row)
            session.writes[key] = entry
        return entry


def _may_be_same(known: MessageId | None, name: MessageId | None) -> bool:
    """Whether both ids may be of one message: what gives no id to its messages may have repeated this one."""
    if known is None or name is None or known[1] != name[1]:
        return False
    return known[0] == name[0] or known[0] is None or name[0] is None
