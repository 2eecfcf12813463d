"""A text model as a live one: words in, words out, calls as any live model makes them, and no sound.

So one voice engine serves all models. With a model that neither hears nor speaks, the user's client hears and speaks, or the
user types and reads. This keeps what a live provider keeps for itself: what was said and called, and what is not answered yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from handrail.agents.conversation import Conversation, lost, tokens_of_message
from handrail.agents.host_notices import failure_notice, late_notice, too_many_calls, unfinished_notice
from handrail.agents.policy import AgentPolicy
from handrail.contract.call import Call
from handrail.contract.live import (
    Answer,
    CallsCancelled,
    CallsMade,
    Closed,
    Connected,
    Interrupted,
    LiveConfig,
    LiveCounters,
    LiveError,
    LiveEvent,
    Note,
    OutputTranscript,
    Scheduling,
    TurnEnded,
)
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
)

_LOG = logging.getLogger("handrail.agent")


class TextModelAdapter:
    """A `LiveModel` without sound. `clock` gives the time in seconds since 1970."""

    input_rates: tuple[int, ...] = ()
    output_rate = 0
    changes_tools = True

    def __init__(self, model: Model, *, clock: Callable[[], float], policy: AgentPolicy | None = None) -> None:
        self._model = model
        self._clock = clock
        self._policy = policy or AgentPolicy()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def provider(self) -> str:
        return self._model.provider

    @property
    def context_window(self) -> int | None:
        return self._model.context_window

    def use(self, model: Model) -> None:
        """From the next connection on this model answers; those that are open keep theirs."""
        self._model = model

    async def connect(self, config: LiveConfig) -> TextModelConnection:
        return TextModelConnection(self._model, config, self._clock, self._policy)

    async def close(self) -> None:
        """The text model is its owner's, who may continue with it."""


class TextModelConnection:
    """A `LiveConnection`."""

    def __init__(self, model: Model, config: LiveConfig, clock: Callable[[], float], policy: AgentPolicy) -> None:
        self.counters = LiveCounters(connections=1)
        self._model = model
        self._config = config
        self._clock = clock
        self._policy = policy
        self._memory = Conversation()
        for said in config.history:
            if isinstance(said, Note):
                self._memory.add(HostMessage(said.text))
            elif isinstance(said, Answer):
                answer = ToolMessage(said.call.call_id, said.call.name, said.envelope)
                self._memory.add(AssistantMessage("", (said.call,)), answer)
            elif said.role == "user":
                self._memory.begin(said.text, None)
            else:
                self._memory.add(AssistantMessage(said.text))
        self._events: deque[LiveEvent] = deque([Connected(1)])
        self._arrived = asyncio.Event()
        self._open: dict[int, tuple[Call, ToolMessage]] = {}
        """Calls that wait for their envelope, by their place in all that were made."""
        self._late: dict[int, tuple[Call, ToolMessage]] = {}
        """Those that were taken back: their envelope is only written down."""
        self._made = 0
        self._all_answered = asyncio.Event()
        self._wanted = False
        """Something came that the model should say something about, when it is idle."""
        self._answering: asyncio.Task[None] | None = None
        self._said: list[str] = []
        """What the model has said in the round that runs."""
        self._room: int | None = None
        """What the model's window has left for the conversation, once it was nearly full."""
        self._is_over = False

    # ------------------------------------------------------------------------------------------- for the host

    def send_audio(self, pcm: bytes, rate: int) -> bool:
        raise LiveError("This model does not hear; send words.")

    async def send_text(self, text: str) -> None:
        self._check_open()
        await self._stop()
        self._memory.begin(text, None)
        self._answer()

    async def tell(self, text: str, *, scheduling: Scheduling = "when_idle") -> None:
        self._check_open()
        # Behind what is being said: a message in the middle of an answer would stand between a call and its result.
        self._memory.later.append(HostMessage(text))
        if scheduling == "silent":
            return
        if scheduling == "interrupt":
            await self._stop()
        self._wanted = True
        self._answer()

    async def send_envelopes(self, answers: Sequence[Answer], *, scheduling: Scheduling = "when_idle") -> None:
        self._check_open()
        for answer in answers:
            self._take(answer)
        if not self._open:
            self._all_answered.set()

    async def interrupt(self) -> None:
        self._check_open()
        await self._stop()

    async def truncate(self, played_ms: int) -> None:
        """There is no sound."""

    async def change_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> None:
        self._check_open()
        self._config = replace(self._config, system=system, tools=tools)

    async def leave_out_results(self) -> None:
        """From now on half of what is known fits; for the sake of that, only results are left out."""
        self._room = sum(map(tokens_of_message, self._memory.messages)) // 2

    async def rotate(self) -> None:
        """There is no connection to replace."""

    async def events(self) -> AsyncIterator[LiveEvent]:
        while True:
            while self._events:
                event = self._events.popleft()
                yield event
                if isinstance(event, Closed):
                    return
            self._arrived.clear()
            await self._arrived.wait()

    async def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            task, self._answering = self._answering, None
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            self._tell(Closed("closed"))

    def _check_open(self) -> None:
        if self._is_over:
            raise LiveError("The live session is over; connect again.")

    def _tell(self, event: LiveEvent) -> None:
        self._events.append(event)
        self._arrived.set()

    def _take(self, answer: Answer) -> None:
        """The envelope takes the place that was kept for it; one that has none any more is put into words."""
        for waiting in (self._open, self._late):
            for place, (call, kept) in waiting.items():
                if call.call_id == answer.call.call_id and call.name == answer.call.name:
                    del waiting[place]
                    self._replace(kept, answer)
                    return
        told = {"callId": answer.call.call_id, "toolId": answer.call.name, "envelope": answer.envelope}
        self._memory.later.append(HostMessage(late_notice(told)))

    def _replace(self, kept: ToolMessage, answer: Answer) -> None:
        messages = self._memory.messages
        # From the end, where it nearly always is; by identity, because two calls may have equal placeholders.
        for place in range(len(messages) - 1, -1, -1):
            if messages[place] is kept:
                messages[place] = ToolMessage(answer.call.call_id, answer.call.name, answer.envelope)
                return

    # ------------------------------------------------------------------------------------------- answering

    def _answer(self) -> None:
        if self._answering is None or self._answering.done():
            self._wanted = False
            self._answering = asyncio.get_running_loop().create_task(self._play())

    async def _stop(self) -> None:
        """Cut the answer off, if there is one, and take its calls back."""
        task, self._answering = self._answering, None
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        said, self._said = "".join(self._said), []
        if said.strip():
            # The dots tell the model that it was interrupted there, and that nobody heard the rest.
            self._memory.add(AssistantMessage(f"{said.rstrip()} …"))
        taken_back, self._open = self._open, {}
        # They may run to their end all the same. Their envelopes then take the places that were kept, without a new answer.
        self._late.update(taken_back)
        ids = tuple(call.call_id for call, _ in taken_back.values() if call.call_id)
        if ids:
            self._tell(CallsCancelled(ids))
        self._tell(Interrupted())
        self._tell(TurnEnded("interrupted"))

    async def _play(self) -> None:
        reason, misconfigured = TurnEnded(), False
        try:
            for number in range(1, self._policy.rounds + 1):
                self._memory.tell_later()
                self._wanted = False  # whatever came by now is answered in this round
                # In the last round the model may not call, so that it has to say something.
                if await self._round(number, last=number == self._policy.rounds):
                    break
        except ModelError as error:
            _LOG.warning("The model %s did not answer: %s", self._model.name, error.detail)
            reason, misconfigured = TurnEnded("failed", message=str(error)), error.misconfigured
        except Exception as error:  # noqa: BLE001  # a client may raise anything, and a turn always ends in words
            _LOG.error("The model %s failed", self._model.name, exc_info=error)
            reason = TurnEnded("failed", message="The model failed unexpectedly; the log says why.")
        if reason.reason == "failed":
            words = failure_notice(False, misconfigured=misconfigured)
            self._memory.add(AssistantMessage(words))
            self._tell(OutputTranscript(words, words, True))
        self._tell(reason)
        if self._wanted:  # told while it answered
            self._wanted = False
            self._answering = asyncio.get_running_loop().create_task(self._play())

    async def _round(self, number: int, *, last: bool) -> bool:
        """Ask the model once and have its calls answered; whether the answer is complete."""
        text, calls, raw = await self._ask(allow_calls=not last)
        if calls and not last:
            max_calls = self._policy.calls_per_round
            kept = [lost(call) for call in calls[:max_calls]]
            refused = [ToolMessage(call.call_id, call.name, too_many_calls(max_calls)) for call in calls[max_calls:]]
            self._memory.add(AssistantMessage(text, tuple(calls), raw), *kept, *refused)
            self._all_answered.clear()
            for call, waiting in zip(calls, kept, strict=False):
                self._made += 1
                self._open[self._made] = (call, waiting)
            self._tell(CallsMade(tuple(calls[:max_calls])))
            # Without a limit of its own: the pipeline answers every call within its hard deadline.
            await self._all_answered.wait()
            return False
        if not text.strip() and self._waits():
            return True
        if not text.strip():
            text = unfinished_notice(number)
            self._tell(OutputTranscript(text, text, True))
        self._memory.add(AssistantMessage(text, (), raw if not calls else None))
        return True

    def _waits(self) -> bool:
        """Whether a call waits for the person's word: then the host asks and hears the answer, and a model may be silent."""
        for message in reversed(self._memory.messages):
            if isinstance(message, HostMessage):
                return False
            if isinstance(message, ToolMessage):
                error = message.envelope.get("error")
                return isinstance(error, Mapping) and error.get("type") == "CONFIRMATION_REQUIRED"
        return False

    async def _ask(self, *, allow_calls: bool) -> tuple[str, list[Call], Any]:
        """What the model says, told as it comes; asked again once if it failed before it said anything."""
        request = ModelRequest(
            system=self._config.system,
            messages=tuple(self._memory.sent_within(self._policy.history_tokens, self._room)[0]),
            tools=self._config.tools,
            allow_calls=allow_calls,
            max_output_tokens=self._policy.max_output_tokens,
            session=self._facts(),
        )
        for attempt in range(self._policy.model_retries + 1):
            try:
                return await self._stream(request)
            except ModelError as error:
                said, self._said = "".join(self._said), []
                if said.strip():
                    self._memory.add(AssistantMessage(said))
                # What was said has been spoken already; a second try would say it again.
                if said or not error.retryable or attempt == self._policy.model_retries:
                    raise
        raise AssertionError("a round is asked at least once")

    async def _stream(self, request: ModelRequest) -> tuple[str, list[Call], Any]:
        said = self._said = []
        calls: list[Call] = []
        finished: Finished | None = None
        async with aclosing(self._model.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    said.append(event.text)
                    self._tell(OutputTranscript(event.text, "".join(said)))
                elif isinstance(event, CallMade):
                    calls.append(self._scoped(event.call))
                elif isinstance(event, Usage):
                    self._tell(event)
                else:
                    finished = event
        if finished is None:
            raise ModelError("The model's answer broke off.", retryable=True)
        self._said = []
        return "".join(said), calls, finished.raw

    def _scoped(self, call: Call) -> Call:
        scope = call.id_scope if call.id_scope != "session" else self._model.id_scope
        return call._replace(
            call_id=call.call_id or None, provider=call.provider or self._model.provider, id_scope=scope
        )

    def _facts(self) -> Mapping[str, Any]:
        name = str(self._config.facts.get("time_zone") or "UTC")
        now = datetime.fromtimestamp(self._clock(), ZoneInfo(name)).isoformat(timespec="seconds")
        return {**self._config.facts, "now": now}
