"""The one path of a call, from what a model asked for to the envelope that it gets. Nothing reaches a handler around it.

`Pipeline.call` reads as the steps of the contract, in their order. Nothing is awaited for a tool that does not write, unless its
handler waits. A writing or held call leaves at step 9 for `write_path.py`, which asks a person, claims and runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING

from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, JsonError
from handrail.contract.store import StoreUnavailable
from handrail.runtime.call_attempt import Attempt, Refusal, RefusalRule
from handrail.runtime.context import Context
from handrail.runtime.envelopes import Answers, StartOver
from handrail.runtime.execution import Execution, Started
from handrail.runtime.gates import ask_host, charge_limits, condition_wants_person, parse_arguments, validate_and_clamp
from handrail.runtime.known_calls import KnownCall, args_digest, hash_key, id_in_message, id_key, known_by_id
from handrail.runtime.policy import GateName
from handrail.runtime.turns import TurnRecord
from handrail.schema.strict_json import read_arguments

if TYPE_CHECKING:
    from handrail.runtime.claim_and_run import AppliesIntents
    from handrail.runtime.confirmation import Confirmations
    from handrail.runtime.ledger_lookup import LedgerLookup
    from handrail.runtime.plan import ToolPlan
    from handrail.runtime.session import Session
    from handrail.runtime.write_path import WritePath

_PASSING = (ErrorType.TRANSIENT, ErrorType.TIMEOUT, ErrorType.CANCELLED)
"""Outcomes that say nothing about the next try."""


class Pipeline:
    """The pipeline of one runtime."""

    __slots__ = ("_apply_intents", "_confirmations", "_lookup", "_write_path", "answers", "execution")

    def __init__(
        self,
        answers: Answers,
        execution: Execution,
        lookup: LedgerLookup,
        confirmations: Confirmations,
        write_path: WritePath,
        apply_intents: AppliesIntents,
    ) -> None:
        self.answers = answers
        self.execution = execution
        self._lookup = lookup
        self._confirmations = confirmations
        self._write_path = write_path
        self._apply_intents = apply_intents

    async def call(self, session: Session, call: Call, turn: TurnRecord | None = None) -> ToolResponse:
        """The envelope that this call ends in. Every call gets one. `turn` is one that the session is not in: that of a call
        which is a turn of its own."""
        turn = turn or session.turn or await session.first_turn()
        name, _, _, _, _, _, connection = call
        # 1. Find
        # A model may send anything as a name; what is no text is no tool.
        plan = session.plans[name] if type(name) is str else None
        started = perf_counter()  # a tool's first call loads it, which is not the tool's own time
        if plan is None:
            return self._refuse_name(session, call, started, turn)
        connection = connection or session.connection
        attempt = Attempt(session, call, plan, turn, started, connection)
        # 2. Parse
        refusal = parse_arguments(attempt)
        if refusal is not None:
            return self.answers.refuse(attempt, refusal)
        # 3. Replay by id
        key = id_key(call, connection)
        if key is not None:
            attempt.key, attempt.has_stable_id = key, True
            # Three looks in memory, before anything is awaited: nearly every call is new, and must not wait to learn it.
            by_id = session.calls_by_id
            if key in session.replays or key in by_id or (by_id.forgotten is not None and key in by_id.forgotten):
                answer = await self._replay_by_id(attempt)
                if answer is not None:
                    return answer
        # 4. Session, 5. mode, 6. availability
        refusal = plan.admission(attempt)
        if refusal is not None:
            return self.answers.refuse(attempt, refusal)
        # 7. Validate, 8. clamp
        refusal = validate_and_clamp(attempt)
        if refusal is not None:
            return self.answers.refuse(attempt, refusal)
        # 9. Key
        # Whether a person has to approve it (13) is found out here already: a held call leaves for the write path at this step.
        if plan.may_take_write_path:
            asks = plan.always_confirm or (plan.confirm_when is not None and condition_wants_person(attempt))
            if plan.writes or asks:
                # Repaired arguments are a guess about what the model meant; before anything is written a person looks at them.
                return await self._write(attempt, asks or attempt.repaired)
        if key is None:
            answer = await self._replay_by_content(attempt)
            if answer is not None:
                return answer
        # After the replays, so that a repetition is not judged anew; before the limits, so that what a host refuses costs
        # nothing.
        if plan.host_check is not None:
            refusal = ask_host(attempt)
            if refusal is not None:
                return self.answers.refuse(attempt, refusal)
            if attempt.asked_by is not None:
                return await self._write(attempt, needs_person=True)
        # 10. Rate limit, 11. loop, 12. budget
        refusal = charge_limits(attempt)
        if refusal is not None:
            return self.answers.refuse(attempt, refusal)
        # 15. Run (13 and 14 are for writing and held calls)
        # The first step is taken here, without a task: a handler that never waits has ended then, and its call has cost no
        # timer.
        execution = self.execution
        context = Context(attempt, execution.capabilities, attempt.key)
        has_ended, returned = first = execution.start(attempt, context)
        outcome = execution.outcome(attempt, returned) if has_ended else None
        if outcome is None:
            return await self._run(attempt, context, first)
        # 16. Settle
        response, raw = outcome
        answer = self.answers.finish(attempt, response, raw)
        ok, _, error, intents, meta = answer
        # A tuple, because most entries are never asked for again: `Replays.find` makes a `KnownCall` of it for those that are.
        replays = session.replays
        replays[attempt.key] = (
            plan.tool_id, attempt.raw_digest, not ok and _may_pass_later(attempt, answer), error, intents, meta, raw,
            started, turn.number,
        )  # fmt: skip
        if len(replays) > replays.max_entries:
            oldest = next(iter(replays))
            if type(replays[oldest]) is tuple:
                del replays[oldest]
            else:  # it may still run
                replays.drop_oldest()
        if intents and error is None:
            self._apply_intents(session, attempt, intents)
        return answer

    def _refuse_name(self, session: Session, call: Call, started: float, turn: TurnRecord) -> ToolResponse:
        message = session.plans.no_such_tool(call.name)
        refusal = Refusal(GateName.FIND, ErrorType.NOT_FOUND, message, rule="name", value=call.name)
        return self.answers.refuse_unplanned(session, call, refusal, started, turn=turn)

    async def _replay_by_id(self, attempt: Attempt) -> ToolResponse | None:
        """Step 3: what this session has settled, runs or holds under the id; None if it knows nothing, and the call continues."""
        session, key = attempt.session, attempt.key
        settled = session.replays.find(key)
        known = settled or session.calls_by_id.get(key)
        if known is None:
            try:
                known = await known_by_id(session, key)
            except StoreUnavailable as error:
                if attempt.plan.writes:  # reads continue while the store is away
                    return self.answers.refuse_unrecorded(attempt, error)
        # A replay that comes to nothing may leave another entry under the id: that of a duplicate which went ahead meanwhile.
        while known is not None:
            answer = await self._replay(attempt, known)
            if answer is not None:
                return answer
            left, known = known, session.calls_by_id.get(key)
            if known is left:
                break  # a dead process left it; otherwise the same id, delivered at once, continues with it already
        return None

    async def _replay(self, attempt: Attempt, known: KnownCall) -> ToolResponse | None:
        """The answer of a known call; None if a dead process left it, so that it may be run."""
        raw = attempt.raw_digest
        if known.tool != attempt.plan.tool_id or known.raw_digest not in (raw, _digest_of(raw)):
            message = f'The call id "{attempt.call.call_id}" was used before for another call.'
            refusal = Refusal(
                GateName.REPLAY,
                ErrorType.CONFLICT,
                message,
                rule=RefusalRule.CALL_ID_REUSED,
                value=attempt.call.call_id,
            )
            return self.answers.refuse(attempt, refusal)
        try:
            if known.hold_id is not None and known.response is None:
                return await self._confirmations.answer_held(attempt, known)
            if known.ledger_key is not None and (known.unknown or not (known.response is not None or known.kept)):
                return await self._lookup.replay(attempt, known)
            if known.ledger_key is not None and attempt.turn.may_have_stored_calls:
                await self._lookup.take_ordinal(attempt, known)
            answer = await self.answers.replay(attempt, known)
        except StoreUnavailable as error:
            return self.answers.refuse_unrecorded(attempt, error)
        except StartOver:
            # By the class and not `self.call`, which a traced pipeline overrides: the call that starts over keeps its span.
            return await Pipeline.call(self, attempt.session, attempt.call, _own(attempt))
        # From here on the model knows the outcome, so that an identical call in a later turn is a new wish.
        if known.hold_id is not None and known.response is not None:
            await self._confirmations.outcome_delivered(known.hold_id, attempt.turn.number)
        return answer

    async def _replay_by_content(self, attempt: Attempt) -> ToolResponse | None:
        """Step 9 without an id: the same content in the same turn, which counts as a call for loops; None: it is the first."""
        plan, session, turn = attempt.plan, attempt.session, attempt.turn
        attempt.key = hash_key(plan.tool_id, attempt.canonical, turn.number)
        # An id of its own message is a call of its own: what it reads may have changed since the last one.
        known = session.replays.find(attempt.key) if id_in_message(attempt.call) is None else None
        if known is None or known.retryable:
            return None
        refusal = plan.loop(attempt) if plan.loop is not None else None
        if refusal is not None:
            return self.answers.refuse(attempt, refusal)
        same = (plan.tool_id, attempt.loop_key)
        # The loop gate has just counted it. That it was a replay is kept apart, because it is not to count after a reconnect.
        turn.replayed[same] = turn.replayed.get(same, 0) + 1
        try:
            return await self.answers.replay(attempt, known)
        except StartOver:
            # By the class, as above: no second span.
            return await Pipeline.call(self, session, attempt.call, _own(attempt))

    async def _write(self, attempt: Attempt, needs_person: bool) -> ToolResponse:
        """Steps 9 to 16 for a writing or held call."""
        try:
            return await self._write_path.call(attempt, needs_person)
        except StartOver:
            return await Pipeline.call(self, attempt.session, attempt.call, _own(attempt))

    async def _run(self, attempt: Attempt, context: Context, first: Started) -> ToolResponse:
        """Steps 15 and 16 for a handler that waits, or is tried again; duplicates wait for it."""
        replays, key = attempt.session.replays, attempt.key
        # Known before the handler waits: a duplicate that comes meanwhile waits for this one instead of starting another.
        entry = replays[key] = KnownCall(attempt.plan.tool_id, attempt.raw_digest)
        entry.started, entry.turn = attempt.started, attempt.turn.number
        if len(replays) > replays.max_entries:
            replays.drop_oldest()
        try:
            response, raw = await self.execution.run(attempt, context, first)
        except BaseException:
            # Nobody will settle this entry any more. Duplicates that wait for it start over.
            replays.forget(key, entry)
            entry.abandon()
            self.answers.cut_off(attempt)
            raise
        answer = self.answers.finish(attempt, response, raw)
        entry.retryable = _may_pass_later(attempt, answer)
        entry.settle(answer, raw)
        if answer.intents and answer.error is None:
            self._apply_intents(attempt.session, attempt, answer.intents)
        return answer

    async def call_many(self, session: Session, calls: Sequence[Call]) -> list[ToolResponse]:
        """Several calls of one message: a writing call waits for all before it, and is waited for by all after it."""
        answers: list[ToolResponse] = []
        together: list[Call] = []
        interruptions = session.interruptions
        reused = _ids_used_twice(calls)
        for place, call in enumerate(calls):
            # What stands before it in the message is answered first, as if it were a writing call: answers keep the order of
            # calls.
            if place in reused:
                answers += await self._together(session, together, interruptions)
                together = []
                answers.append(await self._refuse_id(session, call))
                continue
            plan = session.plans[call.name] if type(call.name) is str else None
            if plan is not None and plan.may_take_write_path:
                answers += await self._together(session, together, interruptions)
                together = []
                answers += await self._together(session, [call], interruptions)
            else:
                together.append(call)
        return answers + await self._together(session, together, interruptions)

    async def _together(self, session: Session, calls: Sequence[Call], interruptions: int) -> list[ToolResponse]:
        if session.interruptions != interruptions:
            return [self._cancelled(session, call) for call in calls]
        if len(calls) < 2:
            return [await self.call(session, call) for call in calls]
        return list(await asyncio.gather(*(self.call(session, call) for call in calls)))

    async def _refuse_id(self, session: Session, call: Call) -> ToolResponse:
        """Another call of the same message has this id: whoever is told an outcome by it could not know of which."""
        if session.turn is None:
            await session.first_turn()
        message = f'The call id "{call.call_id}" was used for another call of the same message.'
        refusal = Refusal(
            GateName.REPLAY, ErrorType.CONFLICT, message, rule=RefusalRule.CALL_ID_REUSED, value=call.call_id
        )
        return self.answers.refuse_unplanned(session, call, refusal, perf_counter())

    def _cancelled(self, session: Session, call: Call) -> ToolResponse:
        """The user interrupted while calls before this one ran."""
        message = "The call was cancelled before it started, because the user interrupted."
        refusal = Refusal(GateName.INTERRUPT, ErrorType.CANCELLED, message, rule="interrupt", retryable=True)
        return self.answers.refuse_unplanned(session, call, refusal, perf_counter(), free=True)

    def digest(self, session: Session, plan: ToolPlan, call: Call) -> str | None:
        """What this writing call would be compared by with others, found without making it; None if its arguments are refused."""
        attempt = Attempt(session, call, plan, session.turn or TurnRecord(0, 0.0), 0.0)
        if parse_arguments(attempt) is not None or validate_and_clamp(attempt) is not None:
            return None
        return args_digest(plan.definition, attempt.args, attempt.canonical)


def _digest_of(raw: bytes | str) -> str:
    return sha256(raw if isinstance(raw, bytes) else raw.encode()).hexdigest()


def _own(attempt: Attempt) -> TurnRecord | None:
    return attempt.turn if attempt.turn.is_single else None


def _may_pass_later(attempt: Attempt, answer: ToolResponse) -> bool:
    """Whether the same call, met by its content, runs again instead of being told this outcome."""
    return answer.error is not None and answer.error.type in _PASSING and not attempt.has_stable_id


def _ids_used_twice(calls: Sequence[Call]) -> set[int]:
    """The places of calls whose id, which counts for their message, another call before them has, with other arguments."""
    names = [id_in_message(call) for call in calls]
    first: dict[str, int] = {}
    return {
        place
        for place, name in enumerate(names)
        if name is not None and not _is_same(calls[place], calls[first.setdefault(name, place)])
    }


def _is_same(call: Call, first: Call) -> bool:
    if call is first or (call.name == first.name and call.args == first.args):
        return True
    try:
        return call.name == first.name and read_arguments(call.args)[1] == read_arguments(first.args)[1]
    except JsonError:  # refused for that
        return False
