"""One spoken conversation: takes what the client, the model and the session report, and carries out what follows from it.

`ConversationReducer` decides; this owns what the decisions touch: the connection to the model, the host's listener, timers and
tasks. Sound passes through without waiting for anything.

The model's events are handled without waiting. But a turn has to be stored before a call of it starts, and the session has to
know a connection before a call that was made on it. So the effects whose order counts stand in one line, and are carried out one
after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, assert_never

from handrail.agents import events
from handrail.agents.conversation import Conversation
from handrail.agents.text_agent import checked_input
from handrail.agents.tool_selection import unwrapped_call
from handrail.agents.unacknowledged_writes import UnacknowledgedWrite, writes
from handrail.agents.voice.confirmation_decisions import ConfirmationDecisions
from handrail.agents.voice.host_port import (
    Abilities,
    Ending,
    SpeechState,
    VoiceError,
    VoiceListener,
    VoicePolicy,
    taken_over,
)
from handrail.agents.voice.live_tool_selection import LiveToolSelection
from handrail.agents.voice.response_spans import ResponseSpans
from handrail.agents.voice.spoken import Recogniser
from handrail.agents.voice.spoken_notices import is_said
from handrail.agents.voice.state.events_and_effects import (
    AnswerRecognised,
    CallsEnded,
    CallSlow,
    CallsReported,
    ClientChanged,
    ClientSpeech,
    Effect,
    EndBegun,
    EndCompleted,
    EndSession,
    EndTurn,
    EndWanted,
    Event,
    InterruptCalls,
    InterruptModel,
    ModelToldLate,
    NewestToolsWanted,
    Ordered,
    RecogniseAnswer,
    RecordDecision,
    RecordWithdrawnEnd,
    RefuseCalls,
    ResumeSession,
    SendUserText,
    SessionNews,
    SessionResumed,
    SoundLost,
    SoundPlayed,
    SpeechContinued,
    StartCalls,
    Started,
    StopPressed,
    StoreTurn,
    TakeNewestTools,
    TellClient,
    TellModel,
    TellModelLate,
    TextSpoken,
    Timer,
    TimerElapsed,
    TruncateModel,
    TurnStored,
    UserTextReceived,
    UserTextSending,
)
from handrail.agents.voice.state.reducer import ConversationReducer
from handrail.agents.voice.state.voice_turns import CallBatch, cancelled_call, failed_call
from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.events import LateEnvelope, SessionEvent
from handrail.contract.live import (
    Answer,
    AudioOut,
    CallsMade,
    DirectDelivery,
    InputTranscript,
    LiveConnection,
    LiveError,
    LiveEvent,
    LiveModel,
    Usage,
)
from handrail.contract.store import StoreUnavailable
from handrail.runtime.call_attempt import ConnectionReplaced
from handrail.runtime.core import RuntimeCore
from handrail.runtime.session import Session

_LOG = logging.getLogger("handrail.agent")
_STORE_SECONDS = 5.0
"""How long the end waits for what must happen in its order: turns to be stored, answers to be sent."""
_RESUME_TRIES = 5
_STUCK_FRAMES = 50
"""A second of frames of 20 ms that were there before."""
_LONGEST_LOOP = 250
"""Frames, five seconds of them: a clip that is no longer is noticed when it begins again."""


class VoiceSession:
    """Made by `VoiceAgent.begin`; a `SpokenConversation`."""

    def __init__(
        self,
        runtime: RuntimeCore,
        session: Session,
        conversation: Conversation,
        listener: VoiceListener,
        connection: LiveConnection,
        *,
        model: LiveModel,
        policy: VoicePolicy,
        max_rounds: int,
        abilities: Abilities,
        offer: LiveToolSelection,
        recogniser: Recogniser | None = None,
    ) -> None:
        self._offer = offer
        self._loop = asyncio.get_running_loop()
        self._runtime = runtime
        self._model = model
        self._policy = policy
        self._conversation = conversation
        self._listener = listener
        self._recogniser = recogniser
        self.connection = connection
        self.ending: asyncio.Future[Ending] = self._loop.create_future()
        self._renewed: asyncio.Future[None] = self._loop.create_future()
        """Done when the session has taken the newest tools that somebody wanted for it last."""
        self.session = session
        self._attached_as = session.connection
        """The session's connection that the model's stream belongs to; calls of an older one are refused."""
        self.reducer = ConversationReducer(
            session,
            conversation,
            policy=policy,
            max_rounds=max_rounds,
            abilities=abilities,
            play=listener.play,
            writes=partial(writes, session),
            counters=connection.counters,
            model_hears=bool(model.input_rates),
            model_speaks=bool(model.output_rate),
            has_recogniser=recogniser is not None,
        )
        self._decisions = ConfirmationDecisions(runtime, self._report)
        self._calls = ToolCalls(
            session,
            conversation,
            connection,
            report=self._report,
            tell=listener.tell,
            settled=self.settled,
            attached_as=lambda: self._attached_as,
            connection_number=lambda: self.reducer.connection,
            is_over=lambda: self.reducer.is_over,
            offer=offer,
        )
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._due: dict[Timer, float] = {}
        """The reducer's timers as they were when the handles were made."""
        self._tasks: set[asyncio.Task[None]] = set()
        tracing = runtime.tracing
        self._responses = ResponseSpans(tracing, model.provider, model.name) if tracing is not None else None
        self._chunks = 0
        self._recent_frames: OrderedDict[int, None] = OrderedDict()
        """Hashes of the newest frames, the oldest first. A plain dictionary looks for its oldest key past all deleted ones."""
        self._repeated_frames = 0
        """How many frames in a row were among them."""
        self._waiting: deque[Ordered] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._worker = self._loop.create_task(self._work())
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen to the model, and answer first what was asked for before."""
        if isinstance(self.connection, DirectDelivery):
            self._loop.call_soon(self.connection.hand_to, self._take)
        else:
            self._reading = self._loop.create_task(self._read())
        self._report(Started(self.session.state.get("pendingMessage")))

    # ------------------------------------------------------------------------------------------- facts

    @property
    def is_over(self) -> bool:
        return self.reducer.is_over

    @property
    def abilities(self) -> Abilities:
        return self.reducer.speech.abilities

    @property
    def input_rates(self) -> tuple[int, ...]:
        return self._model.input_rates

    @property
    def output_rate(self) -> int:
        return self._model.output_rate

    @property
    def sound_dropped(self) -> int:
        return self.connection.counters.dropped_audio_out

    def facts(self) -> dict[str, Any]:
        rates = self.input_rates
        return {
            "sessionId": self.session.id,
            "turn": self.session.turn.number if self.session.turn is not None else 0,
            "mode": self.session.mode,
            "model": self._model.name,
            "provider": self._model.provider,
            "offline": not self.output_rate,
            "language": self._policy.language,
            "audio": {"input": {"rate": rates[0] if rates else 0}, "output": {"rate": self.output_rate}},
        }

    # ------------------------------------------------------------------------------------------- from the client

    def hear(self, pcm: bytes, rate: int) -> bool:
        reducer = self.reducer
        if reducer.is_over:
            return False
        self._chunks += 1
        if (mark := hash(pcm)) in self._recent_frames:
            self._note_repeated_frame(pcm)
        else:
            self._repeated_frames = 0
            self._recent_frames[mark] = None
            if len(self._recent_frames) > _LONGEST_LOOP:
                self._recent_frames.popitem(last=False)
        # The only look that a frame gets: it must reach the provider in about a millisecond.
        activity, asked, now = reducer.activity, reducer.confirmation, self._loop.time()
        before = activity.voice
        is_voice = activity.listen(
            pcm, rate, now, over_ours=reducer.playback.is_playing, may_rise=not asked.is_active or not asked.awaits_end
        )
        if asked.is_active and asked.listen(pcm, rate, now, is_voice=is_voice, before=before):
            self._report(SpeechContinued())
        try:
            return self.connection.send_audio(pcm, rate)
        except LiveError:
            return False

    def _note_repeated_frame(self, pcm: bytes) -> None:
        """The same sound over and over, or a clip in a loop, which no microphone records: a client that is stuck, or an attack.
        Told once for each; silence is no sound."""
        if not pcm.strip(b"\0"):
            return
        self._repeated_frames += 1
        if self._repeated_frames < _STUCK_FRAMES:
            return
        self._repeated_frames = (
            -_LONGEST_LOOP * _STUCK_FRAMES
        )  # not looked at again before it is another sound, or much later
        fingerprint = sha256(pcm).hexdigest()[:16]
        if self.session.state.get("lastAudioFingerprint") == fingerprint:
            return
        self.session.state.set("lastAudioFingerprint", fingerprint)
        _LOG.warning("The client of session %s sends the same sound over and over (%s)", self.session.id, fingerprint)
        message = "Your microphone sends the same sound over and over; check it, or start voice again."
        self._listener.tell("error", {"code": "repeated_audio", "message": message})

    async def say(self, text: str, *, id: str, spoken: bool = False) -> None:
        """`VoiceError` if these are no words, or this is over. The same id again changes nothing."""
        if self.is_over:
            raise VoiceError("The voice conversation is over.", code="ended")
        try:
            checked_input(text)
        except UsageError as error:
            raise VoiceError(str(error), code="bad_text") from None
        if id not in self._conversation.inputs:
            self._report(UserTextReceived(text, id, spoken))

    def speech(self, state: SpeechState, ago_seconds: float = 0.0) -> None:
        self._report(ClientSpeech(state, ago_seconds))

    def played(self, item: int, ms: int, done: bool = False) -> None:
        self._report(SoundPlayed(item, ms, done))

    def sound_lost(self, item: int | None) -> None:
        self._report(SoundLost(item))

    def spoken(self, id: str, completed: bool) -> None:
        self._report(TextSpoken(id, completed))

    async def interrupt(self) -> None:
        self._report(StopPressed())

    def adapt(self, abilities: Abilities, *, resumed: bool = False) -> None:
        self._report(ClientChanged(abilities, resumed))

    def take(self, event: SessionEvent) -> bool:
        if self.is_over:
            return False
        self._report(SessionNews(event, self._runtime.clock.time()))
        return event.type == "envelope"

    async def take_newest_tools(self) -> None:
        if self._renewed.done():
            self._renewed = self._loop.create_future()
        renewed = self._renewed
        self._report(NewestToolsWanted())
        await asyncio.wait((renewed, self.ending), return_when=asyncio.FIRST_COMPLETED)
        if renewed.done():
            renewed.result()

    async def end(self, reason: str = "user_requested") -> None:
        self._report(EndWanted(Ending(reason=reason)))
        await asyncio.shield(self.ending)

    async def close(self) -> None:
        self._report(EndWanted(Ending(reason="closed", resumable=True), to_text=False))
        await asyncio.shield(self.ending)

    # ------------------------------------------------------------------------------------------- events and effects

    def _take(self, event: LiveEvent) -> None:
        """Something of the model."""
        reducer, now = self.reducer, self._loop.time()
        if self._responses is not None:
            turn = reducer.turns.current
            self._responses.see(event, turn.input_id if turn is not None else "")
        try:
            if type(event) is AudioOut:
                self._carry_out(reducer.apply_sound(event, now))
            else:
                self._carry_out(reducer.apply(self._with_own_names(event), now))
        except Exception as error:  # noqa: BLE001  # the user learns that it is over; the connection is not to be torn by it
            self._fail(error)

    def _with_own_names(self, event: LiveEvent) -> LiveEvent:
        """Calls under the names of their tools. What the user said is also heard by the offer of tools."""
        if isinstance(event, CallsMade) and self._offer.through_call:
            return CallsMade(tuple(map(unwrapped_call, event.calls)))
        if isinstance(event, Usage):
            self._count_context(event)
        elif isinstance(event, InputTranscript) and event.final and self._offer.follows:
            self._spawn(self._follow(event.whole))
        return event

    def _count_context(self, usage: Usage) -> None:
        watch = self._conversation.context
        if watch is None or not usage.input_tokens:
            return
        was_alarmed = watch.is_alarmed
        alarm = watch.used(0, usage)
        if alarm is None:
            return
        if not was_alarmed:
            self._listener.tell("context", alarm)
        self._spawn(self._shorten())

    async def _shorten(self) -> None:
        with suppress(LiveError):  # the live session reports its own end
            await self.connection.leave_out_results()

    async def _follow(self, words: str) -> None:
        try:
            await self._offer.choose_for(words)
        except LiveError:
            pass  # the live session reports its own end
        except Exception as error:  # noqa: BLE001  # the tools that it has are better than none
            _LOG.error("The tools of session %s could not be changed", self.session.id, exc_info=error)

    async def _read(self) -> None:
        try:
            async for event in self.connection.events():
                self._take(event)
        except Exception as error:  # noqa: BLE001  # whatever it is, the user learns that it is over
            self._fail(error)

    def _report(self, event: Event) -> None:
        """Something happened: do what follows from it."""
        self._carry_out(self.reducer.apply(event, self._loop.time()))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        # Only lost sound is reported from here at once, and nothing has to be done about it: effects of two events never mix.
        for effect in effects:
            match effect:
                case TellClient(type, data):
                    self._listener.tell(type, data)
                case RecogniseAnswer():
                    self._spawn(self._recognise(effect))
                case RecordDecision():
                    self._spawn(self._decisions.record(effect))
                case EndSession(ending, to_text):
                    self._spawn(self._end(ending, to_text))
                case _:
                    self._waiting.append(effect)
                    self._idle.clear()
                    self._arrived.set()
        due, before = self.reducer.timers, self._due
        if due != before:
            # The reducer only says which timers there are and when they elapse. What changed in that is made so in the loop.
            for timer in [one for one, at in before.items() if due.get(one) != at]:
                self._timers.pop(timer).cancel()
            for timer, at in due.items():
                if timer not in self._timers:
                    self._timers[timer] = self._loop.call_at(at, self._elapse, timer)
            self._due = dict(due)

    def _elapse(self, timer: Timer) -> None:
        del self._timers[timer], self._due[timer]
        self._report(TimerElapsed(timer))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------------------------------- one after the other

    async def settled(self) -> None:
        """Wait until everything that stands in line is done."""
        await self._idle.wait()

    async def _work(self) -> None:
        while True:
            while self._waiting:
                try:
                    await self._carry_out_in_order(self._waiting.popleft())
                except Exception as error:  # noqa: BLE001  # whatever it is, the conversation decides
                    if not self.is_over and not isinstance(error, LiveError):  # a live session reports its own end
                        self._fail(error)
            self._idle.set()
            self._arrived.clear()
            await self._arrived.wait()

    async def _carry_out_in_order(self, effect: Ordered) -> None:
        session, connection = self.session, self.connection
        match effect:
            case StoreTurn(turn, before):
                attached_as = self._attached_as
                number = await attached_as.begin_turn(turn.input_id)
                if self._responses is not None and session.turn is not None:
                    self._responses.stored(turn.input_id, session.turn.span)
                self._report(TurnStored(turn, number, before, replaced=not attached_as.is_current))
            case EndTurn(turn):
                if self._responses is not None:
                    self._responses.stored(turn.input_id, None)
                # Otherwise a later turn has ended it for the runtime.
                if self.reducer.turns.current is turn:
                    await self._attached_as.end_turn()
                self._listener.tell("turn_done", turn.report())
            case SendUserText(text, clears_pending):
                # Before it is sent: the answer may begin while this still waits.
                self._report(UserTextSending())
                if self._offer.follows:
                    await self._follow(text)
                await connection.send_text(text)
                if clears_pending:
                    session.state.set("pendingMessage", None)
                    await self._runtime.save(session)
            case TruncateModel(played_ms):
                await connection.truncate(played_ms)
            case InterruptModel():
                await connection.interrupt()
            case TellModel(text, scheduling):
                await connection.tell(text, scheduling=scheduling)
            case TellModelLate():
                await self._tell_model_late(effect)
            case InterruptCalls(ids):
                await self._attached_as.interrupt(ids)
            case StartCalls(batch):
                # Now, not when they were made: a new connection may have come in between.
                batch.attach(self._attached_as)
                self._spawn(self._calls.run(batch))
            case RefuseCalls(answers):
                await connection.send_envelopes(answers, scheduling="silent")
            case ResumeSession(restored):
                await self._resume_session(restored)
            case TakeNewestTools():
                await self._take_newest_tools()
            case RecordWithdrawnEnd(intent):
                await self._record_withdrawn_end(intent)
            case _:
                assert_never(effect)

    async def _tell_model_late(self, effect: TellModelLate) -> None:
        self._report(ModelToldLate(effect.silent))
        with suppress(LiveError):  # the conversation has it, for whoever continues it
            await self.connection.tell(effect.text, scheduling="silent" if effect.silent else "when_idle")
            if effect.confirmation_id is not None:
                turn = self.reducer.turn_of_what_was_said()
                await self._conversation.read(self.session, (effect.confirmation_id,), turn)

    async def _record_withdrawn_end(self, intent: Mapping[str, Any]) -> None:
        session = self.session
        reason = "The person spoke into the farewell: the end was taken back."
        facts = {**self._runtime.trail.who(session), "intent": intent, "ok": False, "reason": reason}
        self._runtime.trail.note("intent", session, facts)
        await self._runtime.save(session)

    async def _resume_session(self, restored: tuple[str, ...]) -> None:
        """The session continues under the next connection number. No call of the new connection may start before."""
        session, delay = self.session, 0.25
        for attempt in range(1, _RESUME_TRIES + 1):
            try:
                resumed = await self._runtime.resume_session(session.id, token=session.token, restored_calls=restored)
            except StoreUnavailable:
                if attempt == _RESUME_TRIES:
                    raise
                await asyncio.sleep(delay)
                delay *= 2
            except UsageError as error:
                self._report(EndWanted(Ending(reason="session_ended", message=str(error))))
                return
            else:
                if resumed is session:
                    self._attached_as = session.connection
                    self._report(SessionResumed(session.connection))
                else:  # another process has had it meanwhile
                    self._report(EndWanted(taken_over()))
                return

    async def _take_newest_tools(self) -> None:
        renewed, before = self._renewed, self.session.snapshot
        try:
            # The model's own connection is the same, and knows its calls: there is none that it could make again unknowingly.
            await self._resume_session(())
        except StoreUnavailable as error:
            if not renewed.done():
                renewed.set_exception(error)
                renewed.exception()  # whoever wanted it may have stopped to wait
            return
        if self.session.snapshot is not before and not self.is_over:
            await self._offer.renew()
        if not renewed.done():
            renewed.set_result(None)

    # ------------------------------------------------------------------------------------------- the local recogniser

    async def _recognise(self, effect: RecogniseAnswer) -> None:
        verdict = None
        try:
            if effect.pcm and self._recogniser is not None:
                found = await self._recogniser.recognise(effect.pcm, effect.rate)
                verdict = found.verdict if found is not None else None
        except Exception as error:  # noqa: BLE001  # what it cannot hear is no yes
            _LOG.error("The local recogniser failed", exc_info=error)
        self._report(AnswerRecognised(effect.answer, verdict))

    # ------------------------------------------------------------------------------------------- the end

    def _fail(self, error: BaseException) -> None:
        _LOG.error("The voice conversation of session %s ends by a fault", self.session.id, exc_info=error)
        message = "The voice conversation failed in the server. You can continue in writing, or start voice again."
        self._report(EndWanted(Ending(reason="fault", resumable=True, message=message)))

    async def _end(self, ending: Ending, to_text: bool) -> None:
        """Once, in order, and reported last."""
        try:
            await self._leave(ending, to_text)
        except Exception as error:  # noqa: BLE001  # it ends, whatever happens
            _LOG.error("The end of a voice conversation was not clean", exc_info=error)
        finally:
            self._conversation.lock.release()
            if to_text:
                self._listener.tell("ended", ending.to_dict())
            if not self.ending.done():
                self.ending.set_result(ending)

    async def _leave(self, ending: Ending, to_text: bool) -> None:
        self._report(EndBegun())
        if self.reducer.calls.running:
            await self._attached_as.interrupt()
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await self.settled()
        except TimeoutError:
            _LOG.warning("A voice conversation ended before all of it was stored")
        if self._responses is not None:
            self._responses.close()
        # Not before everything was sent: what was answered by then is known to the model.
        self._conversation.unacknowledged.left()
        await self._let_go()
        session = self.session
        # A session that was resumed since is another stream's: its mode and its voice are not ours to change.
        is_current = self._attached_as.is_current
        if is_current or session.is_taken_over:
            session.voice_open = False
        if not to_text:
            return
        self._hand_over(ending)
        if session.is_active and is_current:
            try:
                await session.set_mode("text")
            except HandrailError as error:
                _LOG.warning("The session could not be stored in text mode: %s", error)

    async def _let_go(self) -> None:
        """Everything that listens or waits is stopped; calls that run continue, and settle by themselves."""
        self._report(EndCompleted())
        await self.connection.close()
        # What still stands in line is not done any more.
        stopped = [task for task in (self._worker, self._reading) if task is not None]
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)
        self._waiting.clear()
        self._idle.set()
        if self.session.is_active:
            self.session.state.set("userAudioChunkCount", self._chunks)

    def _hand_over(self, ending: Ending) -> None:
        """The text chat shows, and its model knows, what was said at the end."""
        conversation = self._conversation
        said = " ".join(message.text for message in conversation.current_turn() if hasattr(message, "text"))
        if ending.closing_message and not is_said(ending.closing_message, said):
            conversation.say(ending.closing_message)
        if ending.text_response:
            conversation.say(ending.text_response)


class ToolCalls:
    """Runs the calls of the model beside its voice: starts them at once, answers when they have ended, whatever came between.

    Each message's calls are a batch with a task of its own. The user's interruption stops what reads; what writes and has started
    is finished, and the model learns of it without being made to speak of it. A connection that is lost in between changes
    nothing here: the answer waits for the next one.

    `report` takes what happens, `tell` what the client is to know. `settled` waits until the session knows the model's newest
    connection: `connection_number` counts the model's own, `attached_as` is the session's. `is_over`: the model does not listen
    any more.
    """

    def __init__(
        self,
        session: Session,
        conversation: Conversation,
        connection: LiveConnection,
        *,
        report: Callable[[Event], None],
        tell: Callable[[str, Mapping[str, Any]], None],
        settled: Callable[[], Awaitable[None]],
        attached_as: Callable[[], int],
        connection_number: Callable[[], int],
        is_over: Callable[[], bool],
        offer: LiveToolSelection,
    ) -> None:
        self._offer = offer
        self._session = session
        self._conversation = conversation
        self._unacknowledged = conversation.unacknowledged
        self._connection = connection
        self._report = report
        self._tell = tell
        self._settled = settled
        self._attached_as = attached_as
        self._connection_number = connection_number
        self._is_over = is_over

    async def run(self, batch: CallBatch) -> None:
        session = self._session
        writes: list[UnacknowledgedWrite | None] = [None] * len(batch.calls)
        timers: list[asyncio.TimerHandle] = []
        try:
            repeats, writes = await self._known(batch, session)
            # The look-up and the storing took time; who interrupted meanwhile does not want these calls any more.
            if batch.interrupted:
                envelopes = [cancelled_call(call) for call in batch.calls]
            else:
                for call in batch.calls:
                    event = events.started(session, call, batch.number)
                    self._tell(event.type, event.data)
                    plan = session.plans[call.name] if isinstance(call.name, str) else None
                    if plan is not None:  # calls that take longer than their budget are reported
                        budget = plan.latency_budget_ms
                        if plan.retrieval:
                            budget = min(budget, session.limits.retrieval_ms)
                        slow, loop = CallSlow(batch, call.name), asyncio.get_running_loop()
                        timers.append(loop.call_later(budget / 1000, self._report, slow))
                envelopes = await self._answered(batch, session, repeats, writes)
        except Exception as error:  # noqa: BLE001  # the model always gets an answer
            _LOG.error("The calls of a voice turn failed", exc_info=error)
            envelopes = [failed_call(call) for call in batch.calls]
        finally:
            for timer in timers:
                timer.cancel()
        answers = [Answer(call, envelope) for call, envelope in zip(batch.calls, envelopes, strict=True)]
        self._report(CallsEnded(batch, answers))
        for write, answer in zip(writes, answers, strict=True):
            if write is not None:
                write.outcome = write.outcome or answer.envelope
                if write.ended is not None:
                    write.ended.set()
        # The model first, whose answer the user waits for; the cards on the screen can wait.
        await self._deliver(batch, answers, writes)
        for answer in answers if not self._is_over() else ():
            event = events.ended(session, events.started(session, answer.call, batch.number), answer.envelope)
            self._tell(event.type, event.data)
        self._report(CallsReported())

    async def _known(
        self, batch: CallBatch, session: Session
    ) -> tuple[list[UnacknowledgedWrite | None], list[UnacknowledgedWrite | None]]:
        """For every call the one that it repeats without knowing, and the one that it is itself if it writes anew.

        What writes anew is stored before it starts: should the process end in between, the next one knows to ask the ledger.
        """
        unacknowledged = self._unacknowledged
        turn = session.turn.number if session.turn is not None else 0
        repeats: list[UnacknowledgedWrite | None] = [None] * len(batch.calls)
        if unacknowledged.writes:
            await unacknowledged.look_up(session)
            repeats = [unacknowledged.known(session, call, turn) for call in batch.calls]
        newest = self._connection_number()
        writes = [
            unacknowledged.made(session, call, turn, batch.connection, newest=newest) if repeated is None else None
            for call, repeated in zip(batch.calls, repeats, strict=True)
        ]
        # Before the call starts. After a crash in the middle, the process that continues must know that there was one.
        if self._conversation.keep is not None and any(writes):
            await self._conversation.keep()
        return repeats, writes

    async def _answered(
        self,
        batch: CallBatch,
        session: Session,
        repeats: Sequence[UnacknowledgedWrite | None],
        writes: Sequence[UnacknowledgedWrite | None],
    ) -> list[dict[str, Any]]:
        """Every call's envelope: from the pipeline, or from a call that it repeats without knowing."""
        if any(repeats):
            answers = await self._unacknowledged.call_many(session, batch.calls, repeats)
        else:
            answers = await session.call_many(batch.calls)
        while late := [
            place
            for place, one in enumerate(answers)
            if repeats[place] is None and isinstance(one.error, ConnectionReplaced)
        ]:
            # The session learns of the next connection in the line of ordered effects.
            await self._settled()
            # The model may have made the call again there by itself; then that one answers.
            late = [place for place in late if not self._unacknowledged.is_made_since(writes[place])]
            if not late or not batch.attach(self._attached_as()):
                break
            moved = [writes[place] for place in late]
            # They had not started when their connection was replaced: they start on the next, under their name there.
            self._unacknowledged.moved(session, [write for write in moved if write is not None])
            if self._conversation.keep is not None and any(moved):
                await self._conversation.keep()
            if batch.interrupted:
                break
            started = await session.call_many([batch.calls[place] for place in late])
            for place, answer in zip(late, started, strict=True):
                answers[place] = answer
        return [answer.to_dict() for answer in answers]

    async def _deliver(
        self, batch: CallBatch, answers: Sequence[Answer], writes: Sequence[UnacknowledgedWrite | None]
    ) -> None:
        """To the model; if there is none any more, to whoever continues the session."""
        if not self._is_over():
            try:
                if self._offer.follows:
                    await self._offer.found(answers)
                await self._connection.send_envelopes(
                    answers, scheduling="silent" if batch.interrupted else "when_idle"
                )
            except LiveError:
                pass  # the connection is gone; whoever continues with the session learns of it below
            else:
                turn = self._session.turn
                for write in writes:
                    if write is not None:
                        write.told_turn, write.answered = turn.number if turn is not None else 0, False
                return
        for answer in answers:
            # The conversation has the envelope in its place already, so that only the card is to be settled.
            called, name = answer.call.call_id, answer.call.name
            late = LateEnvelope(call_id=called, tool_id=name, envelope=answer.envelope, silent=True, known=True)
            self._session.events_queue.emit(late)
