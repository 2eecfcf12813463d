"""One turn of an agent: rounds of asking the model and carrying its calls to the pipeline, told as events.

The loop ends with an answer, with the bound on rounds (in the last one the model may not call), with an error of the model, or
because somebody closed it. However it ends, every call in the conversation has an envelope behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from handrail.agents import events
from handrail.agents.citations import citations_in, cited_by
from handrail.agents.conversation import lost
from handrail.agents.events import AgentEvent
from handrail.agents.host_words import (
    cut_words,
    failed_words,
    late_words,
    refused_words,
    too_many_calls,
    unfinished_words,
)
from handrail.agents.prompts import Prompt
from handrail.agents.tokens import tokens_of_messages
from handrail.contract.call import Call, Connection
from handrail.contract.envelope import ToolResponse
from handrail.contract.events import LateEnvelope, SessionEvent
from handrail.contract.model import (
    AssistantMessage,
    CallMade,
    Finished,
    HostMessage,
    ModelError,
    ModelRequest,
    TextDelta,
    ToolMessage,
    Usage,
    UserMessage,
)
from handrail.runtime.events import Listener
from handrail.runtime.session import Session

if TYPE_CHECKING:
    from handrail.agents.conversation import Conversation
    from handrail.agents.text import TextAgent

_LOG = logging.getLogger("handrail.agent")
_GRACE_SECONDS = 2.0
"""So long a cancelled turn waits for writing calls that have started; they go on afterwards in any case."""
_RETRY_SECONDS = 0.5
_PASSED_ON = frozenset({"progress", "confirmation", "message"})


class Round:
    """What one asking of the model gave."""

    __slots__ = ("calls", "error", "finished", "pieces", "usage")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.calls: list[Call] = []
        self.usage = Usage()
        self.finished: Finished | None = None
        self.error: ModelError | None = None

    @property
    def text(self) -> str:
        """What it said, put together."""
        return "".join(self.pieces)

    @property
    def refused(self) -> bool:
        """Whether the provider refused or filtered the answer: nothing that it asks for is done then."""
        return self.finished is not None and self.finished.reason == "refusal"

    @property
    def may_be_repeated(self) -> bool:
        """Whether it failed in a way that may pass, and nothing of it was shown yet."""
        return self.error is not None and self.error.retryable and not self.pieces


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
        """So many characters the model may still say in this turn."""
        self._evidence: dict[str, dict[str, Any]] = {}
        self._spent = Usage()
        self._ear: Listener | None = None
        self._running: tuple[asyncio.Future[list[ToolResponse]], Sequence[Call], str] | None = None
        """The calls that run, and the name of the message that they came in."""
        self._news = False
        """Something came from the host that the model has not seen yet."""
        self._settled = False
        self._asked = Round()
        self._facts: dict[str, Any] = {}

    async def play(self) -> AsyncGenerator[AgentEvent, None]:
        """The events of the turn, `done` last."""
        queue = self._session.events_queue
        self._ear = queue.attach() if self._agent.listen else None
        try:
            async with aclosing(self._rounds()) as played:
                async for event in played:
                    yield event
        finally:
            try:
                if not self._settled:
                    await self._break_off()
                await self._session.end_turn()
            finally:
                if self._ear is not None:
                    queue.detach(self._ear)

    async def _rounds(self) -> AsyncGenerator[AgentEvent, None]:
        await self._conversation.catch_up(self._session, self._turn)
        prompt = await self._prompt()
        for number in range(1, self._max_rounds + 1):
            self._conversation.tell_later()
            unread = tuple(self._conversation.unread)
            self._news = False
            last = number == self._max_rounds
            asked = self._asked = Round()
            async with aclosing(self._ask(prompt, asked, number, allow_calls=not last)) as told:
                async for event in told:
                    yield event
            if asked.error is not None:
                for event in self._failed(asked, number):
                    yield event
                return
            await self._conversation.read(self._session, unread, self._turn)
            if asked.calls and not last and not asked.refused:
                self._conversation.add(self._said(asked))
                async with aclosing(self._call(asked.calls, number)) as told:
                    async for event in told:
                        yield event
                if self._session.blocked_for() > 0 or not self._session.is_active:
                    for event in self._stopped(number):
                        yield event
                    return
                continue
            for event in self._answered(asked, number):
                yield event
            for event in self._heard():
                yield event
            if not self._news or last or self._room < 0:
                yield self._done(number, _reason(asked, last))
                return

    # ------------------------------------------------------------------------------------------------ asking
    async def _prompt(self) -> Prompt:
        agent, session, conversation = self._agent, self._session, self._conversation
        query = " ".join(m.text for m in conversation.current_turn()[:1] if isinstance(m, UserMessage))
        choice = await agent.offering.choose(session, self._model.provider, query, conversation.offered)
        zone, name = self._zone()
        now = datetime.fromtimestamp(agent.runtime.clock.time(), zone)
        prompt = agent.offering.prompt(session, self._model.provider, choice, now, name)
        if sum(isinstance(message, UserMessage) for message in conversation.messages) <= 1:
            self._count_start(prompt)
        self._facts = {"mode": session.mode, "now": now.isoformat(timespec="seconds"), "time_zone": name}
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

    def _zone(self) -> tuple[ZoneInfo, str]:
        for name in (self._conversation.time_zone, self._agent.policy.time_zone, "UTC"):
            try:
                return ZoneInfo(name), name
            except (ZoneInfoNotFoundError, ValueError, OSError):
                continue
        raise AssertionError("UTC is always known")

    async def _ask(
        self, prompt: Prompt, asked: Round, number: int, *, allow_calls: bool
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask the model once; again if it failed in a way that may pass and nothing of it was shown."""
        messages, left_out = self._conversation.sent_within(self._agent.policy.history_tokens)
        request = ModelRequest(
            system=prompt.text,
            messages=tuple(messages),
            tools=prompt.declarations,
            allow_calls=allow_calls,
            max_output_tokens=self._agent.policy.max_output_tokens,
            session=self._facts,
        )
        self._count_context(prompt, tokens_of_messages(messages))
        for attempt in range(self._agent.policy.model_retries + 1):
            asked.error, asked.calls = None, []
            async with aclosing(self._stream(request, asked)) as told:
                async for event in told:
                    yield event
            if not asked.may_be_repeated or attempt == self._agent.policy.model_retries:
                break
            await self._agent.runtime.clock.sleep(_RETRY_SECONDS)
        self._spent = Usage(
            self._spent.input_tokens + asked.usage.input_tokens, self._spent.output_tokens + asked.usage.output_tokens
        )
        shortened = {"leftOut": left_out} if left_out else {}
        yield AgentEvent("usage", {**_usage(asked.usage), "round": number, **shortened})

    def _count_context(self, prompt: Prompt, history: int) -> None:
        tell = getattr(self._agent.runtime.metrics, "session_context", None)
        if tell is not None:
            tokens = prompt.prompt_tokens + prompt.declaration_tokens + history
            tell(self._session.id, tokens, self._model.context_window)

    async def _stream(self, request: ModelRequest, asked: Round) -> AsyncGenerator[AgentEvent, None]:
        """One request; what it gave is in `asked`. An error of any kind ends it, and what was called is not run then."""
        model = self._model
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
                        asked.calls.append(self._scoped(event.call))
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

    def _scoped(self, call: Call) -> Call:
        """The call under the name and the scope of ids of its provider."""
        model = self._model
        # A transport that knows better of one id, such as one that a server uses again, may narrow its scope.
        scope = call.id_scope if call.id_scope != "session" else model.id_scope
        return call._replace(call_id=call.call_id or None, provider=call.provider or model.provider, id_scope=scope)

    # ----------------------------------------------------------------------------------------------- calling
    async def _call(self, calls: Sequence[Call], number: int) -> AsyncGenerator[AgentEvent, None]:
        """The calls of one message, through the pipeline; their envelopes go into the conversation in full."""
        session, max_calls = self._session, self._agent.policy.calls_per_round
        made = [call._replace(connection=self._connection) for call in calls[:max_calls]]
        left_out = calls[max_calls:]
        session.messages += 1
        message = f"{self._connection}.{session.messages}"
        for call in made:
            yield events.started(session, call, number, message)
        again = self._conversation.unacknowledged
        repeats = [again.known(session, call, self._turn) for call in made]
        running = asyncio.ensure_future(again.call_many(session, made, repeats))
        self._running = running, made, message
        while not running.done():
            await self._wait(running)
            for event in self._heard():
                yield event
        answers = [(call, answer.to_dict()) for call, answer in zip(made, running.result(), strict=True)]
        answers += [(call, too_many_calls(max_calls)) for call in left_out]
        self._running = None
        for call, envelope in answers:
            self._conversation.add(ToolMessage(call.call_id, call.name, envelope))
            for record in citations_in(envelope.get("data")):
                self._evidence.setdefault(record["id"], {**record, "toolId": call.name})
        for event in self._heard():
            yield event
        for call, envelope in answers:
            yield events.ended(session, call, envelope, number, message)

    async def _wait(self, running: asyncio.Future[Any]) -> None:
        """Until the calls are done, or the session tells something."""
        if self._ear is None or self._ear.waiting:
            await asyncio.wait({running}, timeout=None if self._ear is None else 0)
            return
        self._ear.wake.clear()
        waiting = asyncio.ensure_future(self._ear.wake.wait())
        try:
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def _heard(self) -> list[AgentEvent]:
        """What the session told since the last time, for the user; late envelopes also for the model."""
        told: list[AgentEvent] = []
        while self._ear is not None and self._ear.waiting:
            told += self._hear(self._ear.waiting.popleft())
        return told

    def _hear(self, event: SessionEvent) -> Iterable[AgentEvent]:
        if event.type in _PASSED_ON:
            return (AgentEvent(event.type, dict(event.data)),)  # type: ignore[arg-type]
        if event.type != "envelope":
            return ()
        known = len(self._conversation.later)
        told = hear_late(self._conversation, event.data)
        self._news = self._news or (len(self._conversation.later) > known and not event.data.get("silent"))
        return told

    # ------------------------------------------------------------------------------------------------ ending
    def _said(self, asked: Round) -> AssistantMessage:
        raw = asked.finished.raw if asked.finished is not None else None
        return AssistantMessage(asked.text, tuple(asked.calls), raw)

    def _answered(self, asked: Round, number: int) -> Iterable[AgentEvent]:
        """The answer, in the conversation; words of the host where the model had none."""
        finished = asked.finished
        if finished is not None and finished.reason == "length":
            yield from self._say_more(asked, cut_words())
        elif not asked.text.strip():
            yield from self._say_more(asked, refused_words() if asked.refused else unfinished_words(number))
        # Calls of the last round or of a refusal are not run, so the model must not find them in its history either.
        raw = finished.raw if finished is not None and not asked.calls else None
        self._conversation.add(AssistantMessage(asked.text, (), raw))

    def _say_more(self, asked: Round, words: str) -> Iterable[AgentEvent]:
        yield from self._say(asked, f"\n\n{words}" if asked.pieces else words)

    def _failed(self, asked: Round, number: int) -> Iterable[AgentEvent]:
        """The model failed: one error for the host, an apology for the user, and an answer that may be asked for again."""
        assert asked.error is not None
        told = {"message": str(asked.error), "retryable": asked.error.retryable, "where": "model"}
        known = {} if asked.error.detail == told["message"] else {"detail": asked.error.detail}
        log = _LOG.error if asked.error.misconfigured else _LOG.warning
        log(
            "The model %s did not answer in session %s: %s",
            self._model.name,
            self._session.id,
            asked.error.detail,
        )
        yield AgentEvent("error", {**told, **known})
        words = failed_words(bool(asked.pieces), misconfigured=asked.error.misconfigured)
        yield from self._say_more(asked, words)
        self._conversation.add(AssistantMessage(asked.text))
        self._conversation.unfinished = self._message_id
        yield self._done(number, "error")

    def _stopped(self, number: int) -> Iterable[AgentEvent]:
        """A call ended the conversation for now: its farewell is the answer, and the model is not asked again."""
        farewell = _farewell(self._conversation.current_turn())
        asked = Round()
        yield from self._say(asked, farewell)
        self._conversation.add(AssistantMessage(farewell))
        yield self._done(number, "blocked" if self._session.blocked_for() > 0 else "ended")

    def _done(self, rounds: int, reason: str) -> AgentEvent:
        self._conversation.unacknowledged.answered()
        self._settled = True  # whoever closes the turn on hearing this does not cancel it
        shown = "".join(self._shown)
        finished = self._asked.finished
        suggested = {"suggestions": list(finished.suggestions)} if finished is not None and finished.suggestions else {}
        return AgentEvent(
            "done",
            {
                "text": shown,
                "citations": cited_by(shown, self._evidence.values()),
                "rounds": rounds,
                "usage": _usage(self._spent),
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
                conversation.add(AssistantMessage(self._asked.text))
        finally:
            conversation.close_open_calls()
            conversation.unfinished = self._message_id

    async def _leave(self, running: asyncio.Future[list[ToolResponse]], calls: Sequence[Call], message: str) -> None:
        """Stop what reads and wait a moment for what writes; what goes on all the same is told of when it has ended."""
        session, conversation = self._session, self._conversation
        try:
            if not running.done():
                await session.interrupt(connection=self._connection)
                await asyncio.wait({running}, timeout=_GRACE_SECONDS)
        finally:
            if running.done():
                for call, envelope in _outcomes(calls, running):
                    conversation.add(ToolMessage(call.call_id, call.name, envelope))
                    _tell_host(session, call, envelope, message)
            else:
                conversation.add(*(lost(call) for call in calls))
                running.add_done_callback(lambda task: _tell_of(session, conversation, calls, task, message))


def hear_late(conversation: Conversation, told: Mapping[str, Any]) -> Sequence[AgentEvent]:
    """Note a late envelope for the model's next round; the events for the user. Nothing if it was told before."""
    confirmation = told.get("confirmationId")
    if confirmation is not None and not conversation.tell(confirmation):
        return ()
    if not told.get("known"):
        conversation.later.append(HostMessage(late_words(told)))
    card = events.ended_late(told)
    return (card,) if confirmation is None else (events.closed(told), card)


def _tell_of(
    session: Session,
    conversation: Conversation,
    calls: Sequence[Call],
    task: asyncio.Future[list[ToolResponse]],
    message: str,
) -> None:
    """Calls that went on after their turn was cancelled, however they ended: the host is told now, the model when it is
    asked again."""
    for call, envelope in _outcomes(calls, task):
        told = {"callId": call.call_id, "toolId": call.name, "envelope": envelope}
        conversation.later.append(HostMessage(late_words(told)))
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


def _usage(usage: Usage) -> dict[str, int]:
    return {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}


def _reason(asked: Round, last: bool) -> str:
    if asked.finished is not None and asked.finished.reason in ("length", "refusal"):
        return asked.finished.reason
    return "rounds" if last and asked.calls else "stop"


def _farewell(turn: Sequence[Any]) -> str:
    for message in reversed(turn):
        if isinstance(message, ToolMessage) and message.envelope.get("ok"):
            data = message.envelope.get("data")
            words = data.get("farewellMessage") if isinstance(data, dict) else None
            if isinstance(words, str) and words:
                return words
    return "This conversation is paused for now."
