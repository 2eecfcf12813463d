"""The text agent: one turn is model → calls → pipeline → envelopes → model, until there is an answer, told as events.

`TextAgent.run` decides whether a turn takes place at all; a `Loop` plays it. It ends with an answer, with the bound on rounds (in
the last one the model may not call), with an error of the model, or because somebody closed the generator. Closing it cancels
the turn: reading calls are stopped, a writing one that has started is finished, and every call in the conversation has an
envelope behind it, so that the conversation can continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from handrail.agents import events
from handrail.agents.context_watch import ContextWatch
from handrail.agents.conversation import Conversation, lost
from handrail.agents.events import AgentEvent, cited_by
from handrail.agents.host_notices import (
    blocked_notice,
    cut_notice,
    ended_notice,
    failure_notice,
    late_notice,
    moved_notice,
    refusal_notice,
    too_many_calls,
    unfinished_notice,
)
from handrail.agents.policy import AgentPolicy
from handrail.agents.prompts import Prompt, Prompts
from handrail.agents.tool_selection import Picker, ToolSelection, found_tools
from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import UsageError
from handrail.contract.events import LateEnvelope, SessionEvent
from handrail.contract.model import (
    AssistantMessage,
    CallMade,
    Finished,
    HostMessage,
    Model,
    ModelError,
    ModelRequest,
    TextDelta,
    ToolMessage,
    Usage,
    UserMessage,
)
from handrail.contract.offer import FIND_TOOL
from handrail.contract.ports import ChatOutcome
from handrail.runtime.core import RuntimeCore
from handrail.runtime.session import Connection, Listener, Session

_LOG = logging.getLogger("handrail.agent")
MAX_INPUT_CHARACTERS = 32_000
_GRACE_SECONDS = 2.0
"""So long a cancelled turn waits for writing calls that have started; they continue afterwards in any case."""
_RETRY_SECONDS = 0.5
_PASSED_ON = frozenset({"progress", "confirmation", "connection_wanted", "message"})


class TextAgent:
    """One per process: it keeps nothing of a conversation itself.

    `picker(query, definitions, k)` chooses among many tools. With `listen` the agent passes on what the session tells
    while a turn runs (progress, confirmations, messages, late envelopes); a host that listens for itself says False,
    forwards those events, and gives late envelopes to `late`.
    """

    def __init__(
        self,
        runtime: RuntimeCore,
        model: Model,
        *,
        prompts: Prompts | None = None,
        policy: AgentPolicy | None = None,
        picker: Picker | None = None,
        listen: bool = True,
    ) -> None:
        self.runtime = runtime
        self.model = model
        self.policy = policy or AgentPolicy()
        self.prompts = prompts or Prompts.load(guide_tokens=self.policy.guide_tokens)
        self.tool_selection = ToolSelection(self.prompts, self.policy, picker)
        self.listen = listen

    async def run(
        self, session: Session, conversation: Conversation, text: str, *, message_id: str | None = None
    ) -> AsyncGenerator[AgentEvent, None]:
        """One turn. The same `message_id` again keeps its turn: it is answered from the conversation, or continued with."""
        checked_input(text)
        connection = session.connection  # the message came on it; the session may be resumed while this one waits
        async with conversation.lock:
            # Only behind the lock: the session may have ended or moved while this message waited for the one before.
            words, facts = _no_turn(session, connection)
            if words:
                yield AgentEvent("text", {"text": words})
                yield AgentEvent("done", {**_nothing(words, message_id), **facts})
                return
            turn = await connection.begin_turn(message_id)
            begun = {"turn": turn, "messageId": message_id, "sessionId": session.id, "mode": session.mode}
            begun["registryVersion"] = session.snapshot.version
            known = message_id is not None and message_id in conversation.inputs
            answered = conversation.answer_to(message_id) if known else None
            if answered is not None:
                yield AgentEvent("turn", {**begun, "replayed": True})
                yield AgentEvent("text", {"text": answered})
                yield AgentEvent("done", {**_nothing(answered, message_id), "turn": turn, "reason": "replayed"})
                return
            yield AgentEvent("turn", begun)
            if known:
                conversation.begin_again()
            else:
                conversation.begin(text, message_id)
            rounds = self.policy.rounds
            loop = Loop(self, session, conversation, rounds, connection=connection, message_id=message_id, turn=turn)
            async with aclosing(loop.play(text)) as played:
                async for event in played:
                    yield event

    def late(self, session: Session, conversation: Conversation, event: LateEnvelope | Mapping[str, Any]) -> LateAnswer:
        """Tell the model what became of a call that had waited, and let it say so. Await it for all events, or iterate."""
        told = event.data if isinstance(event, LateEnvelope) else event
        return LateAnswer(lambda: self._late(session, conversation, told))

    async def _late(
        self, session: Session, conversation: Conversation, told: Mapping[str, Any]
    ) -> AsyncGenerator[AgentEvent, None]:
        connection = session.connection
        async with conversation.lock:
            heard = _hear_late(conversation, told)
            for event in heard:
                yield event
            if not heard or told.get("silent") or _no_turn(session, connection)[0]:
                return
            turn = session.turn.number if session.turn is not None else 0
            rounds = self.policy.late_rounds
            loop = Loop(self, session, conversation, rounds, connection=connection, message_id=None, turn=turn)
            asked = " ".join(one.text for one in conversation.current_turn()[:1] if isinstance(one, UserMessage))
            async with aclosing(loop.play(asked)) as played:
                async for event in played:
                    yield event


class LateAnswer:
    """The events of a further answer: iterate over them as they come, or await them all."""

    def __init__(self, make: Callable[[], AsyncGenerator[AgentEvent, None]]) -> None:
        self._events = make()

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        return self._events

    def __await__(self) -> Generator[Any, None, list[AgentEvent]]:
        return self._all().__await__()

    async def aclose(self) -> None:
        await self._events.aclose()

    async def _all(self) -> list[AgentEvent]:
        return [event async for event in self._events]


@dataclass(slots=True)
class Round:
    """What one asking of the model gave."""

    pieces: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    finished: Finished | None = None
    error: ModelError | None = None


class Loop:
    """Plays one turn in a session."""

    def __init__(
        self,
        agent: TextAgent,
        session: Session,
        conversation: Conversation,
        rounds: int,
        *,
        connection: Connection,
        message_id: str | None,
        turn: int,
    ) -> None:
        self._agent = agent
        self._model = agent.model
        """The model of this turn: if an operator chooses another meanwhile, it answers from the next turn on."""
        self._session = session
        self._conversation = conversation
        self._max_rounds = rounds
        self._message_id = message_id
        self._turn = turn
        self._connection = connection
        """The one that this turn is played on: if it is replaced meanwhile, the turn's calls are refused."""
        self._shown: list[str] = []
        """Everything that the user was shown as text in this turn, piece by piece."""
        self._room = agent.policy.answer_chars
        """How many characters the model may still say in this turn."""
        self._evidence: dict[str, dict[str, Any]] = {}
        self._spent = {"inputTokens": 0, "outputTokens": 0}
        self._listener: Listener | None = None
        self._running: tuple[asyncio.Future[list[ToolResponse]], Sequence[Call], str] | None = None
        """The calls that run, and the name of the message that they came in."""
        self._news = False
        """Something came from the host that the model has not seen yet."""
        self._settled = False
        self._asked = Round()
        self._facts: dict[str, Any] = {}

    async def play(self, query: str) -> AsyncGenerator[AgentEvent, None]:
        """The events of the turn, `done` last; `query` is what the user asks, by which tools are picked."""
        queue, conversation = self._session.events_queue, self._conversation
        # Before anything is waited for: what the session tells from here on belongs to this turn.
        self._listener = queue.attach() if self._agent.listen else None
        try:
            if conversation.unacknowledged.writes:
                await conversation.catch_up(self._session, self._turn)
            prompt = await self._prompt(query)
            if sum(isinstance(message, UserMessage) for message in conversation.messages) <= 1:
                self._count_start(prompt)
            for number in range(1, self._max_rounds + 1):
                if conversation.later:
                    conversation.tell_later()
                # As it is before the model is asked: what comes while it answers it has not read.
                unread = tuple(conversation.unread)
                self._news = False
                # In the last round it may call nothing: otherwise a turn that only calls would end without words.
                last = number == self._max_rounds
                asked = self._asked = Round()
                async with aclosing(self._ask(prompt, asked, number, allow_calls=not last)) as told:
                    async for event in told:
                        yield event
                if asked.error is not None:
                    for event in self._failed(asked, asked.error, number):
                        yield event
                    return
                if unread:
                    await conversation.read(self._session, unread, self._turn)
                finished = asked.finished or Finished("stop")
                if asked.calls and not last and finished.reason != "refusal":
                    conversation.add(AssistantMessage("".join(asked.pieces), tuple(asked.calls), finished.raw))
                    async with aclosing(self._call(asked.calls, number)) as told:
                        async for event in told:
                            yield event
                    if any(call.name == FIND_TOOL for call in asked.calls):
                        prompt = await self._prompt(query)  # what was found is declared in the next round
                    if self._session.blocked_for() > 0 or not self._session.is_active:
                        for event in self._stopped(number):
                            yield event
                        return
                    continue
                words = ""  # of the host, where the model had none, or not all
                if finished.reason == "length":
                    words = cut_notice()
                elif not "".join(asked.pieces).strip():
                    words = refusal_notice() if finished.reason == "refusal" else unfinished_notice(number)
                for event in self._say_more(asked, words) if words else ():
                    yield event
                # Calls of the last round or of a refusal are not run, so the model must not find them in its history either.
                raw = None if asked.calls else finished.raw
                conversation.add(AssistantMessage("".join(asked.pieces), (), raw))
                if self._listener is not None:
                    for event in self._heard(self._listener):
                        yield event
                if not self._news or last or self._room < 0:
                    reason = "rounds" if last and asked.calls else "stop"
                    yield self._done(number, finished.reason if finished.reason in ("length", "refusal") else reason)
                    return
        finally:
            try:
                if not self._settled:
                    await self._break_off()
                await self._connection.end_turn()
            finally:
                if self._listener is not None:
                    queue.detach(self._listener)

    # ------------------------------------------------------------------------------------------------ asking
    async def _prompt(self, query: str) -> Prompt:
        agent, session, conversation = self._agent, self._session, self._conversation
        for name in (conversation.time_zone, agent.policy.time_zone, "UTC"):
            try:
                zone, time_zone = ZoneInfo(name), name
                break
            except (ZoneInfoNotFoundError, ValueError, OSError):
                continue
        now = datetime.fromtimestamp(agent.runtime.clock.time(), zone)
        prompt = await agent.tool_selection.prompt(
            session, self._model.provider, query, conversation.offered, now, time_zone
        )
        self._facts = {"mode": session.mode, "now": now.isoformat(timespec="seconds"), "time_zone": time_zone}
        self._facts["user"] = session.user or ""
        return prompt

    def _count_start(self, prompt: Prompt) -> None:
        """What a session starts with is counted once, and logged."""
        tell = getattr(self._agent.runtime.metrics, "context", None)
        if tell is not None:
            tell(prompt.prompt_tokens, prompt.declaration_tokens)
        _LOG.info(
            "Session %s starts with %d tokens of prompt and %d of declarations (%d tools)",
            self._session.id,
            prompt.prompt_tokens,
            prompt.declaration_tokens,
            len(prompt.declarations),
        )

    async def _ask(
        self, prompt: Prompt, asked: Round, number: int, *, allow_calls: bool
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask the model once; again if it failed in a way that may pass and nothing of it was shown."""
        policy = self._agent.policy
        watch, fixed = self._watch(), prompt.prompt_tokens + prompt.declaration_tokens
        messages, left_out, history = self._conversation.sent_within(policy.history_tokens, watch.room(fixed))
        request = ModelRequest(
            system=prompt.text,
            messages=tuple(messages),
            tools=prompt.declarations,
            allow_calls=allow_calls,
            max_output_tokens=policy.max_output_tokens,
            session=self._facts,
        )
        for attempt in range(policy.model_retries + 1):
            asking = self._traced(request, asked) if self._agent.runtime.tracing else self._stream(request, asked)
            async with aclosing(asking) as told:
                async for event in told:
                    yield event
            may_pass = asked.error is not None and asked.error.retryable and not asked.pieces
            if not may_pass or attempt == policy.model_retries:
                break
            await self._agent.runtime.clock.sleep(_RETRY_SECONDS)
        alarm = watch.used(fixed + history, asked.usage)
        usage = {"inputTokens": asked.usage.input_tokens, "outputTokens": asked.usage.output_tokens}
        self._spent = {name: self._spent[name] + spent for name, spent in usage.items()}
        shortened = {"leftOut": left_out} if left_out else {}
        full = {"context": alarm} if alarm is not None else {}
        yield AgentEvent("usage", {**usage, "round": number, **shortened, **full})

    def _watch(self) -> ContextWatch:
        """How full the window of this turn's model is."""
        policy, model = self._agent.policy, self._model

        def window() -> int | None:
            return policy.context_window or model.context_window

        watch = self._conversation.context
        if watch is None or watch.window != window():
            watch = ContextWatch(self._session.id, window, self._agent.runtime.metrics)
            self._conversation.context = watch
        return watch

    async def _traced(self, request: ModelRequest, asked: Round) -> AsyncGenerator[AgentEvent, None]:
        """One request as a span under its turn."""
        tracing, turn = self._agent.runtime.tracing, self._session.turn
        assert tracing is not None
        model = self._model
        span = tracing.begin_chat(turn.span if turn is not None else None, model.provider, model.name)
        try:
            async with aclosing(self._stream(request, asked)) as told:
                async for event in told:
                    yield event
        finally:
            reason = asked.finished.reason if asked.finished is not None else None
            error = type(asked.error).__name__ if asked.error is not None else None
            tracing.end_chat(span, ChatOutcome(asked.usage.input_tokens, asked.usage.output_tokens, reason, error))

    async def _stream(self, request: ModelRequest, asked: Round) -> AsyncGenerator[AgentEvent, None]:
        """One request; what it gave is in `asked`. An error of any kind ends it, and what was called is not run then."""
        model = self._model
        asked.error, asked.calls = None, []
        try:
            async with aclosing(model.stream(request)) as stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        for told in self._say(asked, event.text[: self._room]):
                            yield told
                        self._room -= len(event.text)
                        if self._room < 0:
                            asked.calls, asked.finished = [], Finished("length")
                            break
                    elif isinstance(event, CallMade):
                        call = event.call
                        # A transport that knows better of one id, such as one that a server uses again, may narrow its scope.
                        scope = call.id_scope if call.id_scope != "session" else model.id_scope
                        provider = call.provider or model.provider
                        made = call._replace(call_id=call.call_id or None, provider=provider, id_scope=scope)
                        asked.calls.append(made)
                    elif isinstance(event, Usage):
                        asked.usage = event
                    else:
                        asked.finished = event
            if asked.finished is None:
                asked.error = ModelError("The model's answer broke off.", retryable=True)
        except ModelError as error:
            asked.error = error
        except Exception as error:  # noqa: BLE001  # a client may raise anything, and a turn always ends in words
            _LOG.error("The model %s failed", model.name, exc_info=error)
            asked.error = ModelError("The model failed unexpectedly; the log says why.")

    def _say(self, asked: Round, text: str) -> Iterable[AgentEvent]:
        if not text:
            return
        if not asked.pieces and self._shown:
            self._shown.append("\n\n")
            yield AgentEvent("text", {"text": "\n\n"})
        asked.pieces.append(text)
        self._shown.append(text)
        yield AgentEvent("text", {"text": text})

    # ----------------------------------------------------------------------------------------------- calling
    async def _call(self, calls: Sequence[Call], number: int) -> AsyncGenerator[AgentEvent, None]:
        """The calls of one message, through the pipeline; their envelopes go into the conversation in full."""
        session, max_calls = self._session, self._agent.policy.calls_per_round
        made = [call._replace(connection=self._connection) for call in calls[:max_calls]]
        session.messages += 1
        # Ids of some providers count for one message only; cards of later calls under the same id are told apart by this.
        message = f"{self._connection}.{session.messages}"
        cards = [events.started(session, call, number, message) for call in calls]
        for card in cards[:max_calls]:
            yield card
        unacknowledged = self._conversation.unacknowledged
        if unacknowledged.writes:
            repeats = [unacknowledged.known(session, call, self._turn) for call in made]
            running = asyncio.ensure_future(unacknowledged.call_many(session, made, repeats))
        else:
            running = asyncio.ensure_future(session.call_many(made))
        self._running = running, made, message
        if self._listener is None:
            # `wait` and not `await`: whoever closes this turn must not cancel a call that writes.
            await asyncio.wait({running})
        while self._listener is not None and not running.done():
            await self._wait(running, self._listener)
            for event in self._heard(self._listener):
                yield event
        envelopes = [answer.to_dict() for answer in running.result()]
        envelopes += [too_many_calls(max_calls) for _ in calls[max_calls:]]
        self._running = None
        ended = []
        for call, card, envelope in zip(calls, cards, envelopes, strict=True):
            self._conversation.add(ToolMessage(call.call_id, call.name, envelope))
            ended.append(events.ended(session, card, envelope))
            if call.name == FIND_TOOL:
                self._conversation.keep_on_offer(found_tools(envelope))
            for record in ended[-1].data["citations"]:
                self._evidence.setdefault(record["id"], {**record, "toolId": call.name})
        if self._listener is not None:
            for event in self._heard(self._listener):
                yield event
        for card in ended:
            yield card

    async def _wait(self, running: asyncio.Future[Any], listener: Listener) -> None:
        """Until the calls are done, or the session tells something."""
        if listener.waiting:
            await asyncio.wait({running}, timeout=0)
            return
        listener.wake.clear()
        waiting = asyncio.ensure_future(listener.wake.wait())
        try:
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def _heard(self, listener: Listener) -> list[AgentEvent]:
        """What the session told since the last time, for the user; late envelopes also for the model."""
        told: list[AgentEvent] = []
        while listener.waiting:
            told += self._hear(listener.waiting.popleft())
        return told

    def _hear(self, event: SessionEvent) -> Iterable[AgentEvent]:
        if event.type in _PASSED_ON:
            return (AgentEvent(event.type, dict(event.data)),)  # type: ignore[arg-type]
        if event.type != "envelope":
            return ()
        known = len(self._conversation.later)
        told = _hear_late(self._conversation, event.data)
        self._news = self._news or (len(self._conversation.later) > known and not event.data.get("silent"))
        return told

    # ------------------------------------------------------------------------------------------------ ending
    def _say_more(self, asked: Round, words: str) -> Iterable[AgentEvent]:
        yield from self._say(asked, f"\n\n{words}" if asked.pieces else words)

    def _failed(self, asked: Round, error: ModelError, number: int) -> Iterable[AgentEvent]:
        """The model failed: one error for the host, an apology for the user, and an answer that may be asked for again."""
        told = {"message": str(error), "retryable": error.retryable, "where": "model"}
        known = {} if error.detail == told["message"] else {"detail": error.detail}
        log = _LOG.error if error.misconfigured else _LOG.warning
        log("The model %s did not answer in session %s: %s", self._model.name, self._session.id, error.detail)
        yield AgentEvent("error", {**told, **known})
        words = failure_notice(bool(asked.pieces), misconfigured=error.misconfigured)
        yield from self._say_more(asked, words)
        self._conversation.add(AssistantMessage("".join(asked.pieces)))
        self._conversation.unfinished = self._message_id
        yield self._done(number, "error")

    def _stopped(self, number: int) -> Iterable[AgentEvent]:
        """A call ended the conversation for now: its farewell is the answer, and the model is not asked again."""
        farewell = self._conversation.farewell_words() or "This conversation is paused for now."
        asked = Round()
        yield from self._say(asked, farewell)
        self._conversation.add(AssistantMessage(farewell))
        yield self._done(number, "blocked" if self._session.blocked_for() > 0 else "ended")

    def _done(self, rounds: int, reason: str) -> AgentEvent:
        if self._conversation.unacknowledged.writes:
            self._conversation.unacknowledged.answered()
        self._settled = True  # whoever closes the turn on hearing this does not cancel it
        shown = "".join(self._shown)
        finished = self._asked.finished
        suggested = {"suggestions": list(finished.suggestions)} if finished is not None and finished.suggestions else {}
        return AgentEvent(
            "done",
            {
                "text": shown,
                "citations": cited_by(shown, self._evidence.values()) if self._evidence else [],
                "rounds": rounds,
                "usage": self._spent,
                "reason": reason,
                "turn": self._turn,
                "messageId": self._message_id,
                **suggested,
            },
        )

    async def _break_off(self) -> None:
        """Somebody closed the turn, or it failed: reading calls are stopped, and every call gets its envelope."""
        conversation = self._conversation
        running, self._running = self._running, None
        try:
            if running is not None:
                await self._leave(*running)
            elif self._asked.pieces and not isinstance(conversation.messages[-1], AssistantMessage):
                conversation.add(AssistantMessage("".join(self._asked.pieces)))
        finally:
            # Also where the wait above was cut short: providers refuse a history in which a call has no answer.
            conversation.close_open_calls()
            conversation.unfinished = self._message_id

    async def _leave(self, running: asyncio.Future[list[ToolResponse]], calls: Sequence[Call], message: str) -> None:
        """Stop what reads and wait a moment for what writes; what continues all the same is reported when it has ended."""
        session, conversation = self._session, self._conversation
        try:
            if not running.done():
                await self._connection.interrupt()
                await asyncio.wait({running}, timeout=_GRACE_SECONDS)
        finally:
            if running.done():
                for call, envelope in _outcomes(calls, running):
                    conversation.add(ToolMessage(call.call_id, call.name, envelope))
                    _tell_host(session, call, envelope, message)
            else:
                conversation.add(*(lost(call) for call in calls))
                running.add_done_callback(lambda task: _tell_of(session, conversation, calls, task, message))


def _hear_late(conversation: Conversation, told: Mapping[str, Any]) -> Sequence[AgentEvent]:
    """Note a late envelope for the model's next round; the events for the user. Nothing if it was reported before."""
    confirmation = told.get("confirmationId")
    if confirmation is not None and not conversation.tell(confirmation):
        return ()
    if not told.get("known"):
        conversation.later.append(HostMessage(late_notice(told)))
    card = events.ended_late(told)
    return (card,) if confirmation is None else (events.closed(told), card)


def _tell_of(
    session: Session,
    conversation: Conversation,
    calls: Sequence[Call],
    task: asyncio.Future[list[ToolResponse]],
    message: str,
) -> None:
    """Calls that continued after their turn was cancelled, however they ended: the host learns it now, the model when it is
    asked again."""
    for call, envelope in _outcomes(calls, task):
        told = {"callId": call.call_id, "toolId": call.name, "envelope": envelope}
        conversation.later.append(HostMessage(late_notice(told)))
        _tell_host(session, call, envelope, message)


def _outcomes(calls: Sequence[Call], task: asyncio.Future[list[ToolResponse]]) -> list[tuple[Call, Mapping[str, Any]]]:
    """The envelope of each call; of calls that broke down themselves only that their answer is not known."""
    if task.cancelled() or task.exception() is not None:
        return [(call, lost(call).envelope) for call in calls]
    return [(call, answer.to_dict()) for call, answer in zip(calls, task.result(), strict=True)]


def _tell_host(session: Session, call: Call, envelope: Mapping[str, Any], message: str) -> None:
    """The turn that made the call tells nothing any more, so its card is settled by way of the session's events."""
    name = events.shown_id(call, message)
    session.events_queue.emit(LateEnvelope(call_id=name, tool_id=call.name, envelope=envelope, silent=True, known=True))


def checked_input(text: object) -> None:
    """`UsageError` in a sentence if this is nothing that a user can say."""
    if not isinstance(text, str) or not text.strip():
        raise UsageError("A message must be text that is not empty.")
    if len(text) > MAX_INPUT_CHARACTERS:
        raise UsageError(f"A message has at most {MAX_INPUT_CHARACTERS:,} characters; this one has {len(text):,}.")
    if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError("A message must be text; this one holds halves of surrogates.")


def _no_turn(session: Session, connection: Connection) -> tuple[str, dict[str, Any]]:
    """The words for somebody who cannot be answered now, and why; none if a turn can begin."""
    if not session.is_active:
        return ended_notice(), {"reason": "ended"}
    if not connection.is_current:
        return moved_notice(), {"reason": "stale"}
    left = session.blocked_for()
    if left > 0:
        return blocked_notice(left), {"reason": "blocked", "retryAfter": round(left, 3)}
    return "", {}


def _nothing(text: str, message_id: str | None) -> dict[str, Any]:
    """The facts of an answer for which no model was asked."""
    usage = {"inputTokens": 0, "outputTokens": 0}
    return {"text": text, "citations": [], "rounds": 0, "usage": usage, "messageId": message_id}
