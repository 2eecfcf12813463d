"""The one flow of a call, from what a model asked for to the envelope that it gets. Nothing reaches a handler around it.

`Pipeline.call` reads as the steps of the contract, in their order. Steps 1 to 12 neither wait nor touch a disk for a tool
that does not write; a writing or held call goes on in `writing.py`, a confirmation in `confirm.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from handrail.contract.call import Call
from handrail.contract.envelope import RESPONSE_SCHEMA_VERSION, ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType, JsonError, ToolError
from handrail.contract.intents import Intent
from handrail.contract.store import StoreUnavailable
from handrail.runtime.attempt import Attempt, Refusal
from handrail.runtime.context import Context
from handrail.runtime.gates import budget
from handrail.runtime.hydrate import parse_call, unknown_tool, validate_call
from handrail.runtime.keys import args_digest, hash_key, id_in_message, id_key, loop_key
from handrail.runtime.known_ids import known_by_id
from handrail.runtime.outcome import BadResult, checked_result, failure_of, is_empty, without_retry
from handrail.runtime.replays import Entry
from handrail.runtime.runner import DeadlinePassed, NotStarted, Started
from handrail.runtime.turn import Turn
from handrail.schema.canonical import canonical
from handrail.schema.strict_json import parse_arguments, parse_plain
from handrail.schema.trimmed import trimmed

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore
    from handrail.runtime.plan import ToolPlan
    from handrail.runtime.session import Session

_PASSING = (ErrorType.TRANSIENT, ErrorType.TIMEOUT, ErrorType.CANCELLED)
"""Outcomes that say nothing about the next try."""


class Pipeline:
    """The pipeline of one runtime."""

    __slots__ = ("core",)

    def __init__(self, core: RuntimeCore) -> None:
        self.core = core

    async def call(self, session: Session, call: Call) -> ToolResponse:
        """The envelope that this call ends in. Every call gets one.

        Calls in which no step has anything to say may take the short way instead; see `shortcut.py`.
        """
        turn = session.turn or await session.first_turn()
        # 1. Find
        name = call.name
        plan = session.plans.find(name)
        started = perf_counter()  # a tool's first call loads it, which is not the tool's own time
        if plan is None:
            message = unknown_tool(name, session.plans.names())
            return self._refuse_unknown(
                session, call, Refusal("find", ErrorType.NOT_FOUND, message, rule="name", value=name), started
            )
        attempt = Attempt(session, call, plan, turn, started)
        # 2. Parse
        refusal = self._parse(attempt)
        if refusal is not None:
            return self._refuse(attempt, refusal)
        if plan.meaning is not None and call.provider is not None:
            attempt.args = plan.meaning(call.provider, attempt.args)
        # 3. Replay by id
        key = id_key(call, session.connection)
        if key is not None:
            attempt.key = key
            known = session.replays.get(key) or session.calls_by_id.get(key)
            if known is None and session.calls_by_id.is_forgotten(key):
                try:
                    known = await known_by_id(session, key)
                except StoreUnavailable as error:
                    if plan.writes:  # reads go on while the store is away
                        return self.core.writing.unavailable(attempt, error)
            while known is not None:
                answer = await self._again(attempt, known if isinstance(known, Entry) else Entry.of_plain(known))
                if answer is not None:
                    return answer
                left, known = known, session.calls_by_id.get(key)
                if known is left:
                    break  # a dead process left it; otherwise the same id, delivered at once, goes on with it already
        # 4. Session, 5. mode, 6. availability
        for gate in plan.early:
            refusal = gate(attempt)
            if refusal is not None:
                return self._refuse(attempt, refusal)
        # 7. Validate, 8. clamp
        refusal = self.prepare(attempt)
        if refusal is not None:
            return self._refuse(attempt, refusal)
        # 9. Key
        needs_person = plan.may_ask and self.core.confirmations.wanted(attempt)
        if plan.writes or needs_person:
            return await self.core.writing.call(attempt, needs_person)
        if key is None:
            attempt.key = key = hash_key(plan.tool_id, attempt.args, turn.number)
            # An id of its own message is a call of its own: what it reads may have changed since the last one.
            met = session.replays.get(key) if id_in_message(call) is None else None
            if met is not None:
                met = met if isinstance(met, Entry) else Entry.of_plain(met)
                if not met.retryable:
                    return await self._again_by_hash(attempt, met)
        # 10. Rate limit, 11. loop, 12. budget
        for gate in plan.late:
            refusal = gate(attempt)
            if refusal is not None:
                return self._refuse(attempt, refusal)
        if plan.rate_limit is not None:
            self.charged(attempt)
        session.dirty = True
        # 15. Run (13 and 14 are for writing and held calls)
        context = Context(attempt, self.core.capabilities, key)
        return await self.run_and_settle(attempt, context, self.core.runner.start(attempt, context))

    async def run_and_settle(self, attempt: Attempt, context: Context, first: Started) -> ToolResponse:
        """Steps 15 and 16 for a handler that was started."""
        replays, key = attempt.session.replays, attempt.key
        entry = replays[key] = Entry(attempt.plan.tool_id, attempt.raw_digest)
        if len(replays) > replays.most:
            replays.drop_oldest()
        try:
            response, raw = await self.run(attempt, context, first)
        except BaseException:
            replays.forget(key, entry)
            entry.abandon()
            self._audit_cut_off(attempt)
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
        return self._refuse_unknown(session, call, refusal, perf_counter())

    def _cancelled(self, session: Session, call: Call) -> ToolResponse:
        """The user interrupted while calls before this one ran."""
        message = "The call was cancelled before it started, because the user interrupted."
        refusal = Refusal("interrupt", ErrorType.CANCELLED, message, rule="interrupt", retryable=True)
        return self._refuse_unknown(session, call, refusal, perf_counter(), free=True)

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

    def prepare(self, attempt: Attempt) -> Refusal | None:
        """Steps 7 and 8: validated arguments with defaults, clamped by mode, in canonical form."""
        plan, session = attempt.plan, attempt.session
        raw = attempt.args
        value, defaulted, violations = plan.validator.validate(raw)
        if defaulted:
            attempt.defaulted = defaulted
        if violations and session.policy.repair:
            checked = validate_call(plan.tool, raw, repair=True, validator=plan.validator)
            value, attempt.defaulted, violations = checked.args, checked.defaulted, list(checked.violations)
            attempt.repaired = attempt.repaired or checked.repaired
        if violations:
            message = " ".join(violation.message for violation in violations[:5])
            details = tuple(violation.to_dict() for violation in violations)
            first = violations[0]
            return Refusal(
                "validate", ErrorType.VALIDATION, message, rule=first.keyword, value=first.pointer, details=details
            )
        clamp = plan.clamps.get(session.mode) if plan.clamps else None
        if clamp is not None:
            value, attempt.clamped = clamp(value)
        attempt.args = value
        attempt.canonical = text = trimmed(canonical(value))
        attempt.loop_key = text if text.isascii() else loop_key(text)
        changed = attempt.defaulted or attempt.clamped or attempt.repaired
        attempt.raw_digest = trimmed(canonical(raw)) if changed else text
        return None

    def digest(self, session: Session, plan: ToolPlan, call: Call) -> str | None:
        """What this writing call would be compared by with others, found without making it; None if its arguments are refused."""
        attempt = Attempt(session, call, plan, session.turn or Turn(0, 0.0), 0.0)
        if self._parse(attempt) is not None:
            return None
        if plan.meaning is not None and call.provider is not None:
            attempt.args = plan.meaning(call.provider, attempt.args)
        if self.prepare(attempt) is not None:
            return None
        return args_digest(plan.definition, attempt.args, attempt.canonical)

    def charge(self, attempt: Attempt) -> Refusal | None:
        """Steps 10 to 12."""
        for gate in attempt.plan.late:
            refusal = gate(attempt)
            if refusal is not None:
                return refusal
        self.charged(attempt)
        return None

    def charged(self, attempt: Attempt) -> None:
        """The gates let the call pass; what it used up is written behind."""
        plan, session = attempt.plan, attempt.session
        limit = plan.rate_limit
        if limit is not None and (not plan.writes or limit.scope == "session"):
            self.core.rates.write_behind(session, plan.tool_id, limit, attempt.rate_slot)
        session.counted(attempt.turn)

    async def run(self, attempt: Attempt, context: Context, first: Started | None = None) -> tuple[ToolResponse, bytes]:
        """Step 15: the handler's envelope and its data as JSON. Retried once where policy and tool allow it.

        `first` is what came of starting the handler, where that was done already.
        """
        retries = attempt.session.limits.retries if attempt.plan.definition.idempotent else 0
        attempts = 1
        while True:
            response, raw = await self._run_once(attempt, first or self.core.runner.start(attempt, context))
            error = response.error
            if error is None or attempts > retries or error.type is not ErrorType.TRANSIENT or not error.retryable:
                break
            await self.core.clock.sleep(self.core.jitter() * 0.2)
            attempts += 1
            first = attempt.intents = None
        if attempts > 1:
            response = response.with_meta(attempts=attempts)
        if attempt.intents and response.ok:
            response = response._replace(intents=(*response.intents, *attempt.intents))
        return response, raw

    async def _run_once(self, attempt: Attempt, started: Started) -> tuple[ToolResponse, bytes]:
        plan = attempt.plan
        done, returned = started
        try:
            response, raw = checked_result(returned if done else await returned, plan.tool)
            if response.error is not None and attempt.session.mode == "voice":
                response = response._replace(error=without_retry(response.error))
            return response, raw
        except DeadlinePassed as error:
            message = f'"{plan.tool_id}" did not finish within {plan.timeout * 1000:g} ms.'
            if isinstance(error, NotStarted):
                message = (
                    f'"{plan.tool_id}" could not be started within {plan.timeout * 1000:g} ms: all workers are busy.'
                )
                self.core.log.warning("%s", message)
            unsafe = plan.effects == "unsafe" and not isinstance(error, NotStarted)
            if attempt.write is not None:
                attempt.write.uncertain = unsafe
            return ToolResponse(False, None, ToolFailure(ErrorType.TIMEOUT, message, not unsafe, unsafe)), b""
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not attempt.interrupted or task is None:
                raise
            task.uncancel()
            message = f'"{plan.tool_id}" was cancelled because the user interrupted.'
            return ToolResponse(False, None, ToolFailure(ErrorType.CANCELLED, message, True)), b""
        except Exception as error:  # noqa: BLE001  # an author's code may raise anything
            return self._failed(attempt, error)

    def _failed(self, attempt: Attempt, error: Exception) -> tuple[ToolResponse, bytes]:
        failure = failure_of(error, attempt.plan.definition, voice=attempt.session.mode == "voice")
        if not isinstance(error, ToolError):
            if attempt.write is not None:
                attempt.write.uncertain = not isinstance(error, BadResult)
            self.core.log.error("The handler of %s failed", attempt.plan.tool_id, exc_info=error)
        # A result that cannot be used is not a failed effect: the ledger keeps that it happened.
        meta = {"resultUnavailable": True} if isinstance(error, BadResult) else {}
        return ToolResponse(False, None, failure, (), meta), b""

    def settle(self, attempt: Attempt, response: ToolResponse, raw: bytes, entry: Entry) -> ToolResponse:
        """Step 16 for a tool that does not write."""
        error = response.error
        entry.retryable = error is not None and error.type in _PASSING and not attempt.key.startswith("provider:")
        answer = self.finished(attempt, *response, raw)
        entry.settle(answer, raw)
        if response.intents and error is None:
            self.core.apply_intents(attempt.session, attempt, response.intents)
        return answer

    def finished(
        self,
        attempt: Attempt,
        ok: bool,
        data: Any,
        error: ToolFailure | None,
        intents: tuple[Intent, ...],
        facts: Mapping[str, Any] | None,
        raw: bytes,
    ) -> ToolResponse:
        """The envelope of these parts with the facts about the call; audit line and metrics written."""
        plan, session, core = attempt.plan, attempt.session, self.core
        session.last_used = attempt.started
        duration = (perf_counter() - attempt.started) * 1000
        meta = self.meta(attempt, duration)
        if facts:
            meta = {**facts, **meta}
        if plan.retrieval and error is None and is_empty(data):
            attempt.turn.empties[plan.tool_id] = attempt.turn.empties.get(plan.tool_id, 0) + 1
            session.counted(attempt.turn)
        error_type = None if error is None else error.type.value
        record = core.record_of(attempt, duration, len(raw)) if ok else None
        if attempt.held:
            core.metrics.ran_held(session.id, plan.tool_id, duration, error_type, len(raw))
        else:
            core.metrics.note(record or (session.id, plan.tool_id, duration, error_type, len(raw)))
        if record is not None:
            core.audit.note(record if session.subject is None else (*record, session.subject))
        else:
            core.audit_call("execution", attempt, duration, ok, error_type)
        soft = plan.latency_budget_ms
        if duration > soft or (plan.retrieval and duration > session.limits.retrieval_ms):
            meta["slow"] = core.warn_latency(attempt, duration)
        return ToolResponse(ok, data, error, intents, meta)

    def meta(self, attempt: Attempt, duration: float) -> dict[str, Any]:
        plan = attempt.plan
        meta: dict[str, Any] = plan.meta.copy()
        meta["duration"] = int(duration * 1000) / 1000
        if attempt.defaulted or attempt.clamped or attempt.repaired or plan.unvalidated:
            _tell_changes(attempt, meta)
        limits = attempt.session.limits
        if limits.retrieval_calls is not None or limits.total_calls is not None:
            meta["budget"] = budget.left(limits, attempt.turn)
        return meta

    def context(self, attempt: Attempt, idempotency_key: str | None) -> Context:
        return Context(attempt, self.core.capabilities, idempotency_key or attempt.key)

    async def _again(self, attempt: Attempt, known: Entry) -> ToolResponse | None:
        """Step 3: an id that this session has settled, runs or holds. None: a dead process left it, and it may be run."""
        if known.tool != attempt.plan.tool_id or not self._same_arguments(attempt, known):
            message = f'The call id "{attempt.call.call_id}" was used before for another call.'
            return self._refuse(
                attempt,
                Refusal("replay", ErrorType.CONFLICT, message, rule="call_id_reused", value=attempt.call.call_id),
            )
        try:
            if known.hold_id is not None and not known.settled:
                return await self.core.confirmations.again(attempt, known)
            if known.ledger_key is not None and (known.unknown or not (known.settled or known.kept)):
                return await self.core.earlier.again(attempt, known)
            if known.ledger_key is not None and attempt.turn.from_before:
                await self.core.earlier.take_ordinal(attempt, known.ledger_key)
        except StoreUnavailable as error:
            return self.core.writing.unavailable(attempt, error)
        answer = await self.await_outcome(attempt, known)
        if known.hold_id is not None and known.settled:
            await self.core.confirmations.outcome_told(known.hold_id, attempt.turn.number)
        return answer

    async def _again_by_hash(self, attempt: Attempt, known: Entry) -> ToolResponse:
        """Step 9: no id of its own, and the same content in the same turn. On one connection it counts as a call for loops."""
        for gate in attempt.plan.late[-2:-1]:
            refusal = gate(attempt)
            if refusal is not None:
                return self._refuse(attempt, refusal)
        replayed = attempt.turn.replayed
        key = (attempt.plan.tool_id, attempt.loop_key)
        replayed[key] = replayed.get(key, 0) + 1
        return await self.await_outcome(attempt, known)

    async def await_outcome(self, attempt: Attempt, known: Entry) -> ToolResponse:
        """The envelope of the first; it is waited for a little if it still runs."""
        held = known.hold_id
        if not known.settled and not await known.wait(self.core.clock, attempt.session.limits.wait_seconds):
            if known.abandoned or (known.hold_id is not None and known.hold_id != held):
                return await self.call(attempt.session, attempt.call)  # the first came to nothing, or is held now
            message = f'"{attempt.plan.tool_id}" is still running from an earlier request.'
            return self._refuse(
                attempt,
                Refusal("replay", ErrorType.IN_PROGRESS, message, rule="running", retry_after=1.0, retryable=True),
                free=True,
            )
        first = known.call_id if known.call_id != attempt.call.call_id else None
        answer = known.replay(**({"duplicateOf": first} if first else {}))
        duration = (perf_counter() - attempt.started) * 1000
        self.core.audit_call("replay", attempt, duration, answer.ok, _type(answer), first)
        return answer

    def _same_arguments(self, attempt: Attempt, known: Entry) -> bool:
        raw = canonical(attempt.args)
        return known.raw_digest in (raw, self.core.digest_of(raw))

    def _refuse(self, attempt: Attempt, refusal: Refusal, *, free: bool = False) -> ToolResponse:
        """A refusal envelope. Too many refusals by the first eight steps in a turn are a loop."""
        budget.give_back(attempt)
        turn = attempt.turn
        attempt.session.counted(turn)  # refusals, and identical calls that are refused, count after a restart too
        if not free and refusal.gate in _COUNTED:
            turn.refusals += 1
            if turn.refusals > attempt.session.policy.refusals:
                refusal = _too_many(turn.refusals, attempt.session.policy.refusals, refusal)
        duration = (perf_counter() - attempt.started) * 1000
        error = failure_from(refusal)
        if attempt.held:
            self.core.metrics.refused_held(attempt.plan.tool_id, duration, error.type.value)
        else:
            self.core.metrics.record(attempt.plan.tool_id, duration, False, error.type.value, 0)
        self.core.audit_refusal(attempt, refusal, duration)
        return ToolResponse(False, None, error, (), self.meta(attempt, duration))

    refuse = _refuse

    def _refuse_unknown(
        self, session: Session, call: Call, refusal: Refusal, started: float, *, free: bool = False
    ) -> ToolResponse:
        turn = session.turn
        assert turn is not None
        turn.refusals += not free
        session.counted(turn)
        if not free and turn.refusals > session.policy.refusals:
            refusal = _too_many(turn.refusals, session.policy.refusals, refusal)
        duration = (perf_counter() - started) * 1000
        self.core.audit_unknown(session, call, refusal, duration)
        meta = {
            "toolId": call.name if isinstance(call.name, str) else "",
            "registryVersion": session.snapshot.version,
            "duration": round(duration, 3),
            "responseSchemaVersion": RESPONSE_SCHEMA_VERSION,
        }
        return ToolResponse(False, None, failure_from(refusal), (), meta)

    def _audit_cut_off(self, attempt: Attempt) -> None:
        budget_used = (perf_counter() - attempt.started) * 1000
        self.core.audit_call("execution", attempt, budget_used, False, ErrorType.CANCELLED.value)


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


_COUNTED = frozenset({"find", "parse", "replay", "session", "mode", "availability", "validate"})


def _tell_changes(attempt: Attempt, meta: dict[str, Any]) -> None:
    if attempt.defaulted:
        meta["defaulted"] = list(attempt.defaulted)
    if attempt.clamped:
        meta["clamped"] = list(attempt.clamped)
    if attempt.repaired:
        meta["repaired"] = True
    if attempt.plan.unvalidated:
        meta["unvalidated"] = True


def failure_from(refusal: Refusal) -> ToolFailure:
    return ToolFailure(
        refusal.type,
        refusal.message,
        refusal.retryable,
        False,
        refusal.details,
        refusal.retry_after,
        None,
        refusal.suggestion,
    )


def _too_many(count: int, limit: int, last: Refusal) -> Refusal:
    return Refusal(
        "loop",
        ErrorType.LOOP_DETECTED,
        f"{count} calls were refused in this turn; the last because: {last.message}",
        rule="refusals",
        value=count,
        limit=limit,
        suggestion="Stop calling tools in this turn, and answer the user.",
    )


def _type(response: ToolResponse) -> str | None:
    return None if response.error is None else response.error.type.value
