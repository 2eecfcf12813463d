"""Step 13, confirmation: a call that a person must approve is held, and shown on the user's channel.

The model can never approve its own call: the secret goes to the user's channel only, is stored as a hash, and no argument, tool,
tool output or model text leads to an approval. What a person answers is taken by `approval.py`.

What a person is shown is a trusted template and the exact arguments, never a word of the model's own (`render`). Every argument
is shown or counted, whatever would not be seen as what it is is escaped, secrets are masked, cuts are said. A text that could be
taken for another kind of value (`yes`, `nothing`, an empty one) stands in quotation marks.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.call import Call
from handrail.contract.definition import ToolDefinition
from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType, RegistryError
from handrail.contract.events import ConfirmationWanted, LateEnvelope
from handrail.contract.hidden_characters import escaped
from handrail.contract.ports import MetricsPort
from handrail.contract.store import Hold, HoldState, Store, StoreUnavailable
from handrail.runtime.call_attempt import Attempt, Refusal, RefusalRule, Write
from handrail.runtime.envelopes import Answers, AuditTrail, declined, declined_answer, milliseconds_since
from handrail.runtime.execution import Execution
from handrail.runtime.gates import admit, ask_host, give_back_budget, validate_and_clamp
from handrail.runtime.known_calls import (
    Aliases,
    KnownCall,
    alias_of,
    args_digest,
    attach_id,
    call_id_of,
    is_stable,
    key_of,
)
from handrail.runtime.ledger_lookup import LedgerLookup
from handrail.runtime.policy import GateName
from handrail.runtime.statistics import CallStatistics
from handrail.runtime.turns import TurnRecord, pair_of
from handrail.schema.strict_json import read_arguments

if TYPE_CHECKING:
    from handrail.runtime.plan import ToolPlan
    from handrail.runtime.session import Session

_PREVIEW_SECONDS = 5.0
NOT_LOOKED_UP = "Not checked: the current facts, such as clashes or prices, could not be looked up."
"""What a person reads in place of the facts of a `preview` that failed or took too long."""

OPEN = (HoldState.PENDING, HoldState.APPROVED)
REPLACED_MARK = "A newer request has replaced this one. Approve it only if you want both."
"""What a person reads of an open request with `replacedBy`."""
MASK = "•••"
MAX_LINES = 60
"""How many arguments are shown on lines of their own; the rest are counted."""
_ABSENT = "–"
_WORDS = {True: "yes", False: "no", None: "nothing"}
_PLACE = re.compile(r"\{([^{}]*)\}")
# Texts that look like a word for another value, like nothing at all, like a list or an object, or like a quoted text.
_MISTAKABLE = re.compile(
    rf"""{"|".join(_WORDS.values())}|{_ABSENT}|{MASK}|\s*|\s.*|.*\s|\[.*\]|\{{\s*["}}].*|".*""",
    re.DOTALL | re.IGNORECASE,
)
_LONG, _SHORT = 300, 60
_MAX_ITEMS = 100


class Confirmations:
    """The requests for a person's confirmation of one runtime."""

    __slots__ = (
        "_aliases",
        "_answers",
        "_crash",
        "_execution",
        "_log",
        "_lookup",
        "_metrics",
        "_spawn",
        "_store",
        "_trail",
        "_usage",
    )

    def __init__(
        self,
        store: Store,
        answers: Answers,
        execution: Execution,
        lookup: LedgerLookup,
        aliases: Aliases,
        trail: AuditTrail,
        metrics: MetricsPort,
        *,
        log: logging.Logger,
        crash: Callable[[str], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        usage: CallStatistics | None = None,
    ) -> None:
        self._store = store
        self._usage = usage
        self._answers = answers
        self._execution = execution
        self._lookup = lookup
        self._aliases = aliases
        self._trail = trail
        self._metrics = metrics
        self._log = log
        self._crash = crash
        self._spawn = spawn

    async def hold(self, attempt: Attempt, entry: KnownCall) -> ToolResponse:
        """Hold the call, ask the user's channel, and tell the model that it waits."""
        session, plan = attempt.session, attempt.plan
        assert attempt.write is not None
        token = secrets.token_urlsafe(32)
        seconds = session.limits.confirmation_seconds
        # By the store's clock, which all processes share: any of them may have to say whether the time is over.
        expires = await self._store.now() + seconds * 1000
        preview, facts = await self.preview(attempt)
        # Made here and not by the store, so that a request which is stored twice, after a lost answer, is one request.
        hold_id = "conf_" + secrets.token_hex(12)
        new = Hold(
            hold_id=hold_id,
            tenant=session.tenant,
            session_id=session.id,
            user=session.user,
            turn=attempt.turn.number,
            tool=plan.tool_id,
            tool_hash=plan.tool.hash,
            args_digest=attempt.exact,
            args=attempt.canonical.decode(),
            raw_args=attempt.raw_digest.decode(),
            preview=preview,
            channel=plan.definition.confirmation_channel,
            ledger_key=attempt.write.key,
            ordinal=attempt.ordinal,
            expires_at=expires,
            alias=alias_of(attempt, None, hold_id),
            repaired=attempt.repaired,
            call_id=attempt.call.call_id,
        )
        self._crash("before_hold")
        # It may come back with another id: the store keeps one request for the same call, whichever process asked first.
        asked = await self._store.hold(new, token_hash(token), shown_digest(new, facts))
        self._crash("after_hold")
        if session.writes.get(new.ledger_key) is entry:
            del session.writes[new.ledger_key]
        pair = (plan.tool_id, attempt.exact)
        there = session.holds.get(pair)
        if asked.hold_id != new.hold_id:
            give_back_budget(attempt)  # somebody has asked for the same meanwhile, and has paid for it
        else:
            self._metrics.held(plan.metric_name)
            if self._usage is not None:
                self._usage.held(attempt)
        # The entry that others wait on already; a second one for the same request would never be settled.
        if there is not None and there[0].hold_id == asked.hold_id:
            entry = there[1]
        session.holds[pair] = (asked, entry)
        entry.hold_id, entry.ledger_key, entry.kept = asked.hold_id, asked.ledger_key, True
        entry.wake()  # whoever waits gets the same request
        if attempt.has_stable_id:
            attach_id(attempt, entry)
        limit = plan.definition.rate_limit
        if limit is not None and plan.writes and limit.scope == "user":
            # No claim will carry this unit.
            session.rates.write_behind(session, plan.tool_id, limit, attempt.rate_slot)
        if asked.hold_id == new.hold_id:
            shown: dict[str, Any] = {"token": token, "channel": asked.channel, "replaced_by": asked.replaced_by}
            session.events_queue.emit(ConfirmationWanted(**request_of(asked), **shown))
        else:
            await self.announce_again(session, asked)
        self._announce_replaced(session, asked)
        self._trail.audit_hold("confirmation_wanted", session, asked)
        return self._held_answer(attempt, asked)

    async def answer_held(self, attempt: Attempt, entry: KnownCall) -> ToolResponse:
        """The same call, by its id, while it is held, or after its request was closed."""
        hold = await self._store.hold_by_id(entry.hold_id or "")
        if hold is None:
            message = "The request for a confirmation is no longer kept."
            refusal = Refusal(GateName.CONFIRMATION, ErrorType.CONFLICT, message, rule=RefusalRule.EXPIRED)
            return self._answers.refuse(attempt, refusal, free=True)
        if attempt.turn.may_have_stored_calls:
            take_ordinal_of(attempt.session, attempt.turn, hold)
        if hold.state in OPEN:
            return self._held_answer(attempt, hold)
        if hold.state is HoldState.CONSUMED:
            # Carried out, perhaps elsewhere and perhaps just now: its outcome is waited for a little.
            await self._lookup.settle(entry, hold.ledger_key, attempt.session.limits.wait_seconds)
            return await self._replayed(attempt, entry, hold.hold_id)
        if hold.state is HoldState.DECLINED:
            return self._answers.refuse(attempt, declined(hold.tool), free=True)
        failure = closed_answer(hold).error
        assert failure is not None
        refusal = Refusal(GateName.CONFIRMATION, failure.type, failure.message, rule=hold.state.value)
        return self._answers.refuse(attempt, refusal, free=True)

    async def answered_from(self, attempt: Attempt, hold: Hold, entry: KnownCall) -> ToolResponse | None:
        """The answer that an open or carried-out confirmation gives to an identical call; None if it gives none any more."""
        session = attempt.session
        stored = await self._store.hold_by_id(hold.hold_id)
        if stored is not None and stored.state in OPEN:
            await self._same_hold(attempt, stored, entry)
            # The user has asked again since. An older request that stands beside it is shown as replaced.
            if attempt.turn.number > stored.asked_turn:
                await self._store.ask_again(stored.hold_id, attempt.turn.number)
                self._announce_replaced(session, stored)
            return self._held_answer(attempt, stored)
        if (
            stored is not None
            and stored.state is HoldState.CONSUMED
            and stored.expires_at > await self._store.now()
            # The model has known the outcome since an earlier turn: what it asks for now is a new wish.
            and not (stored.told_turn is not None and attempt.turn.number > stored.told_turn)
        ):
            if entry.unknown or not (entry.response is not None or hold.ledger_key in session.writes):
                await self._lookup.settle(entry, hold.ledger_key, session.limits.wait_seconds)
            failure = entry.response[0].error if entry.response is not None else None
            if failure is None or failure.partial_side_effects:
                if entry.response is not None:
                    await self._same_hold(attempt, stored, entry)
                return await self._replayed(attempt, entry, stored.hold_id)
            # It failed without effects, so it was not carried out: a person is asked anew.
        if stored is not None and stored.state is HoldState.DECLINED and entry.response is None:
            self.decline(session, stored, entry)  # by somebody who reached another process
        pair = pair_of(hold)
        # Another request for the same call may have taken its place while the store answered.
        if session.holds.get(pair, (None, None))[1] is entry:
            del session.holds[pair]
        return None

    async def _replayed(self, attempt: Attempt, entry: KnownCall, hold_id: str) -> ToolResponse:
        """The outcome as the answer to a further call: so the model knows it."""
        answer = await self._answers.replay(attempt, entry)
        if entry.response is not None:
            await self.outcome_delivered(hold_id, attempt.turn.number)
        return answer

    async def outcome_delivered(self, hold_id: str, turn: int) -> None:
        """The model was given the outcome in this turn. From the user's next one on an identical call is a new wish."""
        try:
            await self._store.outcome_delivered(hold_id, turn)
        except StoreUnavailable as error:
            # Until the request would have expired, identical calls get the outcome: too careful, and never twice.
            self._log.warning("That the model knows an outcome could not be stored: %s", error)

    async def _same_hold(self, attempt: Attempt, hold: Hold, entry: KnownCall) -> None:
        """Another id for a call that is held, or was: it stands for the same request from now on."""
        if attempt.has_stable_id and attempt.session.calls_by_id.get(attempt.key) is not entry:
            attach_id(attempt, entry)
            key = hold.ledger_key if hold.state is HoldState.CONSUMED else None
            await self._aliases.add(attempt, key, hold.hold_id)

    def decline(self, session: Session, hold: Hold, entry: KnownCall, answer: ToolResponse | None = None) -> None:
        """A person said no: told once, and the answer to identical calls for the rest of the turn."""
        if session.turn is not None:
            session.turn.declined.add(pair_of(hold))
            session.dirty = True
        answer = answer or declined_answer(hold)
        entry.settle(answer, b"")
        self._trail.audit_hold("confirmation_declined", session, hold)
        self.deliver(session, hold, entry, answer)

    def deliver(self, session: Session, hold: Hold, entry: KnownCall, answer: ToolResponse) -> None:
        """The late envelope, once."""
        if not entry.told:
            entry.told = True
            session.events_queue.emit(
                LateEnvelope(
                    call_id=call_id_of(hold),
                    tool_id=hold.tool,
                    envelope=answer.to_dict(),
                    confirmation_id=hold.hold_id,
                )
            )

    async def restore(self, session: Session) -> None:
        """After a resume: open requests go to the user's channel again; those whose tool changed are superseded."""
        stored = await self._store.holds(session.id, (*OPEN, HoldState.CONSUMED, HoldState.DECLINED))
        before, session.holds = session.holds, {}
        for hold in stored:
            pair = pair_of(hold)
            kept = before.get(pair)
            # The same entry, where there is one: calls of the earlier connection may still wait on it.
            known = kept[1] if kept is not None and kept[0].hold_id == hold.hold_id else None
            if hold.state is HoldState.DECLINED:
                self._restore_no(session, hold, known)
                continue
            tool = session.snapshot.get(hold.tool)
            # What the person was shown is not what would run now.
            if hold.state in OPEN and (tool is None or tool.hash != hold.tool_hash):
                await self.supersede(session, hold)
                continue
            raw = hold.alias.raw_digest if hold.alias else ""
            entry = known or KnownCall.of(hold.tool, raw, ledger_key=hold.ledger_key, hold_id=hold.hold_id)
            session.holds[pair] = (hold, entry)
            if hold.alias is not None:
                session.calls_by_id[hold.alias.call_id] = entry
            if hold.state is HoldState.PENDING:
                # Beside the resumption: looking up facts may take seconds, and the model's connection does not wait for them.
                self._spawn(self.announce_again(session, hold))

    def _restore_no(self, session: Session, hold: Hold, known: KnownCall | None) -> None:
        """The turn's counters are written behind, so that a crash just after a no has left them without it."""
        if known is not None and known.response is None:
            self.decline(session, hold, known)  # by somebody who reached another process
        elif session.turn is not None and session.turn.number == hold.turn:
            session.turn.declined.add(pair_of(hold))

    async def supersede(self, session: Session, hold: Hold) -> None:
        await self._store.move_hold(hold.hold_id, HoldState.SUPERSEDED, expected=OPEN)
        session.holds.pop(pair_of(hold), None)
        self._trail.audit_hold("confirmation_superseded", session, hold)

    async def show(self, session: Session, hold: Hold) -> dict[str, Any] | None:
        """An open request for the user's channel, its facts looked up now, with a fresh token; any of its tokens approves, once,
        what was shown with it. None if it was answered meanwhile."""
        return await self.shown(*await self._looked_up(session, hold), hold.preview)

    async def show_all(self, session: Session, *, tokens: bool = True) -> list[dict[str, Any]]:
        """The open requests of a session, in the order in which they were asked for; without `tokens` only to be looked at."""
        holds = await self._store.holds(session.id, (HoldState.PENDING,))
        show = self.show if tokens else self._look_at
        shown = await asyncio.gather(*(show(session, hold) for hold in holds))
        return [{**one, "turn": hold.turn} for one, hold in zip(shown, holds, strict=True) if one is not None]

    async def _look_at(self, session: Session, hold: Hold) -> dict[str, Any] | None:
        looked_up, _ = await self._looked_up(session, hold)
        shown = shown_to_user(looked_up, "")
        return {name: value for name, value in shown.items() if name != "token"}

    async def announce_again(self, session: Session, hold: Hold) -> None:
        self.announce(session, await self.show(session, hold))

    def announce(self, session: Session, shown: Mapping[str, Any] | None) -> None:
        if shown is not None:
            session.events_queue.emit(confirmation_event(shown))

    def _announce_replaced(self, session: Session, newest: Hold) -> None:
        """Whoever still sees an older request of this tool learns that there is a newer one."""
        unanswered = (hold for hold, entry in session.holds.values() if entry.response is None)
        if any(hold.tool == newest.tool and hold.hold_id != newest.hold_id for hold in unanswered):
            self._spawn(self._announce_those_replaced_by(session, newest))

    async def _announce_those_replaced_by(self, session: Session, newest: Hold) -> None:
        for hold in await self._store.holds(session.id, (HoldState.PENDING,)):
            if hold.replaced_by == newest.hold_id:
                await self.announce_again(session, hold)

    async def shown(self, hold: Hold, facts: str, stored: str) -> dict[str, Any] | None:
        """`facts` are the uncut ones of the request; `stored` is the preview that the store has."""
        token = secrets.token_urlsafe(32)
        # Written only if it has changed: most requests are shown again as they were.
        preview = hold.preview if hold.preview != stored else None
        kept = await self._store.add_hold_token(
            hold.hold_id, token_hash(token), shown_digest(hold, facts), preview=preview
        )
        return shown_to_user(hold, token) if kept.state is HoldState.PENDING else None

    async def _looked_up(self, session: Session, hold: Hold) -> tuple[Hold, str]:
        """The request with the facts of this moment, and these uncut. Where the call would be refused now, nothing is looked
        up for it."""
        plan = session.plans[hold.tool]
        if plan is None or not self.has_facts(plan):
            return hold, ""
        attempt = readmit(session, hold)
        if isinstance(attempt, Refusal):
            return hold, ""
        preview, facts = await self.preview(attempt)
        return replace(hold, preview=preview), facts

    def has_facts(self, plan: ToolPlan) -> bool:
        try:
            return plan.tool.handler.preview is not None
        except RegistryError as error:  # it cannot run either, and whoever approves it learns so
            self._log.error("%s", error)
            return False

    async def preview(self, attempt: Attempt) -> tuple[str, str]:
        """The trusted text, with the facts that the tool's own `preview` finds, where it has one; and these uncut."""
        # An author's code, run before anybody has approved anything: it is read-only by contract, has a deadline, and its
        # failure is said to the person.
        hook = (attempt.plan.handler or attempt.plan.tool.handler).preview
        facts: Any = None
        unknown = False
        if hook is not None:
            try:
                seconds = min(_PREVIEW_SECONDS, attempt.plan.timeout)
                facts = await self._execution.call_hook(hook, orjson.loads(attempt.canonical), attempt, seconds)
            except Exception as error:  # noqa: BLE001  # an author's code may raise anything
                self._log.warning(
                    "The preview of %s failed: %s", attempt.plan.tool_id, str(error) or type(error).__name__
                )
                unknown = True
        redact = attempt.plan.redact
        # In the order in which they are stored: whoever is shown the request again must see the same text.
        args = orjson.loads(attempt.canonical)
        masked = args if redact is None else redact(args)
        text = render(attempt.plan.definition, args, facts, masked)
        if unknown:
            return f"{text}\n{NOT_LOOKED_UP}", ""
        return text, "" if facts is None else text_of_facts(facts)

    def _held_answer(self, attempt: Attempt, hold: Hold) -> ToolResponse:
        duration = milliseconds_since(attempt.started)
        message = f'"{hold.tool}" waits for the approval of a person; tell the user what it is about, and do not call it again.'
        failure = ToolFailure(
            ErrorType.CONFIRMATION_REQUIRED,
            message,
            False,
            False,
            (),
            None,
            None,
            None,
            confirmation_request=request_of(hold),
        )
        attempt.charged = False  # a held call keeps its unit
        self._answers.audit_call("held", attempt, duration, failure.type.value)
        return ToolResponse(False, None, failure, (), self._answers.meta(attempt, duration))


def token_hash(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def readmit(session: Session, hold: Hold) -> Attempt | Refusal:
    """The held call as an attempt that may be claimed, or why it may not. Its connection does not matter any more."""
    plan = session.plans[hold.tool]
    if plan is None or plan.tool.hash != hold.tool_hash:
        return _superseded(f'"{hold.tool}" has changed since it was asked for.')
    turn = session.turn or session.enter_turn(hold.turn, perf_counter())
    attempt = Attempt(session, Call(name=hold.tool, args=None, call_id=call_id_of(hold)), plan, turn, perf_counter())
    attempt.held = True
    attempt.args, attempt.raw_digest, attempt.is_plain = read_arguments(hold.raw_args)
    # A gate of the host that wants a person has one now; that it refuses stands.
    refusal = admit(attempt) or validate_and_clamp(attempt) or ask_host(attempt)
    if refusal is not None:
        return refusal
    attempt.digest = args_digest(plan.definition, attempt.args, attempt.canonical)
    attempt.exact = sha256(attempt.canonical).hexdigest()
    # The mode, a clamp or a default may have changed since. The person has approved these arguments and no others.
    if attempt.canonical.decode() != hold.args:
        return _superseded(f'The arguments of "{hold.tool}" would now be others.')
    attempt.ordinal = hold.ordinal
    attempt.write = Write(session.interruptions)
    attempt.key = key_of(hold)
    attempt.has_stable_id = hold.alias is not None and is_stable(hold.alias)
    return attempt


def _superseded(message: str) -> Refusal:
    return Refusal(GateName.CONFIRMATION, ErrorType.CONFLICT, message, rule=RefusalRule.SUPERSEDED)


def request_of(hold: Hold) -> dict[str, Any]:
    """What everyone may see of a held call; the secret is not in it."""
    return {
        "id": hold.hold_id,
        "tool": hold.tool,
        "args": orjson.loads(hold.args),
        "preview": hold.preview,
        "expires_at": hold.expires_at,
    }


def shown_to_user(hold: Hold, token: str) -> dict[str, Any]:
    """What the user's channel is shown of it: the secret, where it may be answered, and the newer request that replaced it."""
    return {**request_of(hold), "token": token, "channel": hold.channel, "replacedBy": hold.replaced_by}


def confirmation_event(shown: Mapping[str, Any]) -> ConfirmationWanted:
    """What `shown_to_user` gives, as an event."""
    named = {name: value for name, value in shown.items() if name != "replacedBy"}
    return ConfirmationWanted(**named, replaced_by=shown["replacedBy"])


def shown_digest(hold: Hold, facts: str) -> str:
    """Stands for what a person sees of it. A token keeps it, so that its approval is for this and nothing else.

    `facts` are those of the tool's own `preview`, uncut: the preview may show only their beginning.
    """
    # Each part is hashed by itself first, so that no text can move from one into the next.
    mark = b"replaced" if hold.replaced_by is not None else b""
    parts = (mark, hold.preview.encode("utf-8", "surrogatepass"), facts.encode("utf-8", "surrogatepass"))
    return sha256(b"\0".join(sha256(part).digest() for part in parts)).hexdigest()


def take_ordinal_of(session: Session, turn: TurnRecord, hold: Hold) -> None:
    """A held call that the model still knows takes its ordinal in its turn, as one that ran does."""
    plan = session.plans[hold.tool]
    if plan is not None and hold.turn == turn.number:
        digest = args_digest(plan.definition, orjson.loads(hold.args), hold.args.encode())
        turn.ordinals.setdefault((hold.tool, digest), {}).setdefault(hold.ordinal, None)


def closed_answer(hold: Hold) -> ToolResponse:
    words = {
        HoldState.EXPIRED: (ErrorType.CONFLICT, "This request has expired; nothing was run."),
        HoldState.DECLINED: (ErrorType.DECLINED, "This request was declined; nothing was run."),
        HoldState.SUPERSEDED: (
            ErrorType.CONFLICT,
            "This request was replaced, because the tool or its arguments changed; nothing was run.",
        ),
    }
    kind, message = words.get(hold.state, (ErrorType.CONFLICT, "This request can no longer be answered."))
    return ToolResponse.failure(kind, message)


def render(
    definition: ToolDefinition, args: Mapping[str, Any], facts: Any = None, masked: Mapping[str, Any] | None = None
) -> str:
    """The text of a confirmation request. `facts` are what the tool's own `preview` found out, shown below; `masked` are the
    arguments as the audit sees them, secrets hidden at any depth."""
    shown = args if masked is None else masked
    properties = definition.parameters.get("properties") or {}
    secret = {name for name, schema in properties.items() if isinstance(schema, Mapping) and schema.get("writeOnly")}
    # Every argument that the template does not name gets a line of its own below: nothing is hidden by leaving it out.
    named: set[str] = set()
    filled: dict[str, str] = {}  # a template may name a long argument many times
    template = definition.preview or f"Run {definition.tool_id}."
    for place in _PLACE.findall(definition.preview or ""):
        if place in filled:
            continue
        name, _, how = (part.strip() for part in place.partition("|"))
        named.add(name)
        if name not in args:
            filled[place] = _ABSENT
        elif name in secret:
            filled[place] = MASK
        elif how == "count":
            filled[place] = _count(args[name])
        else:
            filled[place] = _argument(name, how, args, shown)
    text = _PLACE.sub(lambda match: filled[match[1]], template) if filled else template
    rest = [name for name in args if name not in named]
    lines = [text]
    for name in rest[:MAX_LINES]:
        lines.append(f"{_cut(name, _SHORT)}: {MASK if name in secret else _argument(name, '', args, shown)}")
    if len(rest) > MAX_LINES:
        more = len(rest) - MAX_LINES
        lines.append(f"… and {more} more argument{'' if more == 1 else 's'}")
    if facts is not None:
        lines.append(_cut(text_of_facts(facts), _LONG))
    return "\n".join(lines)


def _argument(name: str, how: str, args: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    value = shown.get(name)
    if isinstance(value, str) and value != args[name]:  # the audit's own mask, not the text of an argument
        return _cut(value, _SHORT)
    if how == "date" and isinstance(value, str):
        return _date(value)
    limit = _SHORT if how == "short" else _LONG
    if isinstance(value, str):
        # Without quotation marks the text "yes" would read like the value, and an empty one like nothing at all.
        return f'"{_cut(value, limit)}"' if _MISTAKABLE.fullmatch(value) else _cut(value, limit)
    if isinstance(value, list) and len(value) > _MAX_ITEMS:
        # No more of them would be seen.
        return f"{_cut(_text(value[:_MAX_ITEMS]), limit)}… and {len(value) - _MAX_ITEMS} more items"
    return _cut(_text(value), limit)


def text_of_facts(facts: Any) -> str:
    """What a tool's own `preview` found out, uncut and not escaped."""
    return facts if isinstance(facts, str) else _text(facts)


def _count(value: Any) -> str:
    return str(len(value)) if isinstance(value, (list, str, dict)) else str(value)


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return _WORDS[value]
    # A comma inside an item would make one look like two.
    if isinstance(value, list) and value and all(_is_plain_item(item) for item in value):
        return ", ".join(map(str, value))
    return orjson.dumps(value, default=str).decode()


def _is_plain_item(item: Any) -> bool:
    if isinstance(item, str):
        return "," not in item and not _MISTAKABLE.fullmatch(item)
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def _date(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return _cut(value, _SHORT)
    return moment.strftime("%A %d %B %Y, %H:%M") + (f" ({moment.strftime('UTC%z')})" if moment.tzinfo else "")


def _cut(text: str, limit: int) -> str:
    """The text, escaped, no more of it than `limit` characters; how much is left out is said."""
    if len(text) <= limit and text.isascii() and text.isprintable() and "\\u{" not in text:
        return text  # as nearly every one is: in it nothing can hide
    # Nothing looks like an escape that is none: the backslash of a literal `\u{` is written out too.
    shown = escaped(text[:limit].replace("\\u{", "\\u{5c}u{"))
    return shown if len(text) <= limit else f"{shown}… ({len(text) - limit} more characters)"
