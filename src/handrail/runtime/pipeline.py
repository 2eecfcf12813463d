"""The one flow of a call, from what a model asked for to the envelope that it gets. Nothing reaches a handler around it.

`Pipeline.call` reads as the steps of the contract, in their order. Steps 1 to 12 neither wait nor touch a disk for a tool
that does not write; a writing or held call goes on in `write_path.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, JsonError
from handrail.contract.store import StoreUnavailable
from handrail.runtime.admission import admit, charge, prepare
from handrail.runtime.answers import Answers, StartOver
from handrail.runtime.attempt import Attempt, Refusal
from handrail.runtime.call_ids import known_by_id
from handrail.runtime.context import Context
from handrail.runtime.execution import Execution
from handrail.runtime.hydrate import parse_call, unknown_tool
from handrail.runtime.keys import args_digest, hash_key, id_in_message, id_key
from handrail.runtime.replays import Entry
from handrail.runtime.runner import Started
from handrail.runtime.turn import Turn
from handrail.schema.canonical import canonical
from handrail.schema.strict_json import parse_arguments, parse_plain

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore
    from handrail.runtime.plan import ToolPlan
    from handrail.runtime.session import Session

_PASSING = (ErrorType.TRANSIENT, ErrorType.TIMEOUT, ErrorType.CANCELLED)
"""Outcomes that say nothing about the next try."""


class Pipeline:
    """The pipeline of one runtime."""

    __slots__ = ("answers", "core", "execution")

    def __init__(self, core: RuntimeCore, answers: Answers, execution: Execution) -> None:
        self.core = core
        self.answers = answers
        self.execution = execution

    async def call(self, session: Session, call: Call) -> ToolResponse:
        """The envelope that this call ends in. Every call gets one.

        Calls in which no step has anything to say may take the short way instead; see `shortcut.py`.
        """
        while True:
            try:
                return await self._call(session, call)
            except StartOver:
                continue

    async def _call(self, session: Session, call: Call) -> ToolResponse:
        turn = session.turn or await session.first_turn()
        # 1. Find
        name = call.name
        plan = session.plans.find(name)
        started = perf_counter()  # a tool's first call loads it, which is not the tool's own time
        if plan is None:
            message = unknown_tool(name, session.plans.names())
            return self.answers.refuse_unplanned(
                session, call, Refusal("find", ErrorType.NOT_FOUND, message, rule="name", value=name), started
            )
        attempt = Attempt(session, call, plan, turn, started)
        # 2. Parse
        refusal = self._parse(attempt)
        if refusal is not None:
            return self.answers.refuse(attempt, refusal)
        if plan.meaning is not None and call.provider is not None:
            attempt.args = plan.meaning(call.provider, attempt.args)
        # 3. Replay by id
        key = id_key(call, call.connection or session.connection)
        if key is not None:
            attempt.key = key
            known = session.replays.get(key) or session.calls_by_id.get(key)
            if known is None and session.calls_by_id.is_forgotten(key):
                try:
                    known = await known_by_id(session, key)
                except StoreUnavailable as error:
                    if plan.writes:  # reads go on while the store is away
                        return self.answers.refuse_unrecorded(attempt, error)
            while known is not None:
                answer = await self._again(attempt, known if isinstance(known, Entry) else Entry.of_plain(known))
                if answer is not None:
                    return answer
                left, known = known, session.calls_by_id.get(key)
                if known is left:
                    break  # a dead process left it; otherwise the same id, delivered at once, goes on with it already
        # 4. Session, 5. mode, 6. availability
        refusal = admit(attempt)
        if refusal is not None:
            return self.answers.refuse(attempt, refusal)
        # 7. Validate, 8. clamp
        refusal = prepare(attempt)
        if refusal is not None:
            return self.answers.refuse(attempt, refusal)
        # 9. Key
        needs_person = plan.may_ask and self.core.confirmations.wanted(attempt)
        if plan.writes or needs_person:
            return await self.core.write_path.call(attempt, needs_person)
        if key is None:
            attempt.key = key = hash_key(plan.tool_id, attempt.args, turn.number)
            # An id of its own message is a call of its own: what it reads may have changed since the last one.
            met = session.replays.get(key) if id_in_message(call) is None else None
            if met is not None:
                met = met if isinstance(met, Entry) else Entry.of_plain(met)
                if not met.retryable:
                    return await self._again_by_hash(attempt, met)
        # 10. Rate limit, 11. loop, 12. budget
        refusal = charge(attempt)
        if refusal is not None:
            return self.answers.refuse(attempt, refusal)
        # 15. Run (13 and 14 are for writing and held calls)
        context = self.execution.context(attempt)
        return await self.run_and_settle(attempt, context, self.execution.start(attempt, context))

    async def run_and_settle(self, attempt: Attempt, context: Context, first: Started) -> ToolResponse:
        """Steps 15 and 16 for a handler that was started."""
        replays, key = attempt.session.replays, attempt.key
        entry = replays[key] = Entry(attempt.plan.tool_id, attempt.raw_digest)
        if len(replays) > replays.most:
            replays.drop_oldest()
        try:
            response, raw = await self.execution.run(attempt, context, first)
        except BaseException:
            replays.forget(key, entry)
            entry.abandon()
            self.answers.cut_off(attempt)
            raise
        return self.settle(attempt, response, raw, entry)

    async def call_many(self, session: Session, calls: Sequence[Call]) -> list[ToolResponse]:
        """Several calls of one message: a writing call waits for all before it, and is waited for by all after it."""
        answers: list[ToolResponse] = []
        together: list[Call] = []
        interruptions = session.interruptions
        reused = _ids_used_twice(calls)
        for place, call in enumerate(calls):
            if place in reused:
                answers += await self._together(session, together, interruptions)
                together = []
                answers.append(await self._refuse_id(session, call))
                continue
            plan = session.plans.find(call.name)
            if plan is not None and (plan.writes or plan.always_confirm or plan.confirm_when is not None):
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
            return [await session.take(call) for call in calls]
        return list(await asyncio.gather(*(session.take(call) for call in calls)))

    async def _refuse_id(self, session: Session, call: Call) -> ToolResponse:
        """Another call of the same message has this id: whoever is told an outcome by it could not know of which."""
        if session.turn is None:
            await session.first_turn()
        message = f'The call id "{call.call_id}" was used for another call of the same message.'
        refusal = Refusal("replay", ErrorType.CONFLICT, message, rule="call_id_reused", value=call.call_id)
        return self.answers.refuse_unplanned(session, call, refusal, perf_counter())

    def _cancelled(self, session: Session, call: Call) -> ToolResponse:
        """The user interrupted while calls before this one ran."""
        message = "The call was cancelled before it started, because the user interrupted."
        refusal = Refusal("interrupt", ErrorType.CANCELLED, message, rule="interrupt", retryable=True)
        return self.answers.refuse_unplanned(session, call, refusal, perf_counter(), free=True)

    def _parse(self, attempt: Attempt) -> Refusal | None:
        plain = parse_plain(attempt.call.args)
        if plain is not None:
            attempt.args = plain
            return None
        try:
            attempt.args = parse_arguments(attempt.call.args)
        except JsonError as error:
            return self._mend(attempt, error)
        return None

    def _mend(self, attempt: Attempt, error: JsonError) -> Refusal | None:
        """Arguments that are no JSON: mended once, where the policy allows it, or refused."""
        if attempt.session.policy.repair:
            try:
                attempt.args = parse_call(attempt.call.args, repair=True).args
                attempt.repaired = True
                return None
            except JsonError as second:
                error = second
        details = ({"pointer": error.pointer, "code": error.code, "message": error.message},)
        about_text = error.code == "invalid_json" and not error.message.startswith("Arguments")
        message = f"The arguments are not valid JSON. {error.message}" if about_text else error.message
        return Refusal("parse", ErrorType.VALIDATION, message, rule=error.code, details=details)

    def digest(self, session: Session, plan: ToolPlan, call: Call) -> str | None:
        """What this writing call would be compared by with others, found without making it; None if its arguments are refused."""
        attempt = Attempt(session, call, plan, session.turn or Turn(0, 0.0), 0.0)
        if self._parse(attempt) is not None:
            return None
        if plan.meaning is not None and call.provider is not None:
            attempt.args = plan.meaning(call.provider, attempt.args)
        if prepare(attempt) is not None:
            return None
        return args_digest(plan.definition, attempt.args, attempt.canonical)

    def settle(self, attempt: Attempt, response: ToolResponse, raw: bytes, entry: Entry) -> ToolResponse:
        """Step 16 for a tool that does not write."""
        error = response.error
        entry.retryable = error is not None and error.type in _PASSING and not attempt.key.startswith("provider:")
        answer = self.answers.finish(attempt, response, raw)
        entry.settle(answer, raw)
        if response.intents and error is None:
            self.core.apply_intents(attempt.session, attempt, response.intents)
        return answer

    async def _again(self, attempt: Attempt, known: Entry) -> ToolResponse | None:
        """Step 3: an id that this session has settled, runs or holds. None: a dead process left it, and it may be run."""
        if known.tool != attempt.plan.tool_id or not self._same_arguments(attempt, known):
            message = f'The call id "{attempt.call.call_id}" was used before for another call.'
            return self.answers.refuse(
                attempt,
                Refusal("replay", ErrorType.CONFLICT, message, rule="call_id_reused", value=attempt.call.call_id),
            )
        try:
            if known.hold_id is not None and not known.settled:
                return await self.core.confirmations.again(attempt, known)
            if known.ledger_key is not None and (known.unknown or not (known.settled or known.kept)):
                return await self.core.lookup.replay(attempt, known)
            if known.ledger_key is not None and attempt.turn.from_before:
                await self.core.lookup.take_ordinal(attempt, known.ledger_key)
        except StoreUnavailable as error:
            return self.answers.refuse_unrecorded(attempt, error)
        answer = await self.answers.replay(attempt, known)
        if known.hold_id is not None and known.settled:
            await self.core.confirmations.outcome_told(known.hold_id, attempt.turn.number)
        return answer

    async def _again_by_hash(self, attempt: Attempt, known: Entry) -> ToolResponse:
        """Step 9: no id of its own, and the same content in the same turn. On one connection it counts as a call for loops."""
        for gate in attempt.plan.late[-2:-1]:
            refusal = gate(attempt)
            if refusal is not None:
                return self.answers.refuse(attempt, refusal)
        replayed = attempt.turn.replayed
        key = (attempt.plan.tool_id, attempt.loop_key)
        replayed[key] = replayed.get(key, 0) + 1
        return await self.answers.replay(attempt, known)

    def _same_arguments(self, attempt: Attempt, known: Entry) -> bool:
        raw = canonical(attempt.args)
        return known.raw_digest in (raw, self.core.digest_of(raw))


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
        return call.name == first.name and canonical(parse_arguments(call.args)) == canonical(
            parse_arguments(first.args)
        )
    except JsonError:  # refused for that
        return False
