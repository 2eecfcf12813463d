"""One spoken conversation: takes what the client, the model and the session report, and carries out what follows from it.

`ConversationReducer` decides; this owns what the decisions touch: the connection to the model, the host's listener, timers and
tasks. Sound passes through without waiting for anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from handrail.agents.text import checked_input
from handrail.agents.voice.attached_session import AttachedSession
from handrail.agents.voice.confirmation_decisions import ConfirmationDecisions
from handrail.agents.voice.host_phrases import is_said
from handrail.agents.voice.host_port import Abilities, Ending, SpeechState, VoiceError, VoiceListener, VoicePolicy
from handrail.agents.voice.model_stream import ModelStream
from handrail.agents.voice.ordered_effects import OrderedEffects
from handrail.agents.voice.spoken import Recogniser
from handrail.agents.voice.state.events_and_effects import (
    AnswerRecognised,
    CancelTimer,
    ClientChanged,
    ClientSpeech,
    Effect,
    EndBegun,
    EndCompleted,
    EndSession,
    EndWanted,
    Event,
    RecogniseAnswer,
    RecordDecision,
    SessionNews,
    SetTimer,
    SoundLost,
    SoundPlayed,
    SpeechContinued,
    Started,
    StopPressed,
    TellClient,
    TextSpoken,
    Timer,
    TimerElapsed,
    UserTextReceived,
)
from handrail.agents.voice.state.reducer import ConversationReducer
from handrail.agents.voice.tool_calls import ToolCalls
from handrail.agents.voice.transcript import VoiceTranscript
from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.events import SessionEvent
from handrail.contract.live import AudioOut, LiveConnection, LiveError, LiveEvent, LiveModel
from handrail.runtime.core import RuntimeCore
from handrail.runtime.session import Session

_LOG = logging.getLogger("handrail.agent")
_STORE_SECONDS = 5.0
"""How long the end waits for what must happen in its order: turns to be stored, answers to be sent."""


class VoiceSession:
    """Made by `VoiceAgent.begin`; a `SpokenConversation`."""

    def __init__(
        self,
        runtime: RuntimeCore,
        session: Session,
        transcript: VoiceTranscript,
        listener: VoiceListener,
        connection: LiveConnection,
        *,
        model: LiveModel,
        policy: VoicePolicy,
        max_rounds: int,
        abilities: Abilities,
        recogniser: Recogniser | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._runtime = runtime
        self._model = model
        self._policy = policy
        self._transcript = transcript
        self._listener = listener
        self._recogniser = recogniser
        self.connection = connection
        self.ending: asyncio.Future[Ending] = self._loop.create_future()
        self._attached = AttachedSession(session)
        self.reducer = ConversationReducer(
            self._attached,
            transcript,
            policy=policy,
            max_rounds=max_rounds,
            abilities=abilities,
            play=listener.play,
            counters=connection.counters,
            model_hears=bool(model.input_rates),
            model_speaks=bool(model.output_rate),
            has_recogniser=recogniser is not None,
        )
        self._decisions = ConfirmationDecisions(runtime, self._report)
        calls = ToolCalls(
            self._attached,
            transcript.conversation,
            connection,
            report=self._report,
            tell=listener.tell,
            settled=self.settled,
            connection_number=lambda: self.reducer.connection,
            is_over=lambda: self.reducer.is_over,
        )
        self._ordered = OrderedEffects(
            runtime,
            self._attached,
            transcript,
            connection,
            self.reducer,
            calls,
            report=self._report,
            tell=listener.tell,
            spawn=self._spawn,
            failed=self._effect_failed,
        )
        self._stream = ModelStream(connection, self._take, self._fail)
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._chunks = 0

    def start(self) -> None:
        """Begin to listen to the model, and answer first what was asked for before."""
        self._stream.start()
        self._report(Started(self._attached.get("pendingMessage")))

    # ------------------------------------------------------------------------------------------- facts

    @property
    def session(self) -> Session:
        return self._attached.session

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
            "turn": self._attached.turn_number,
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
        over_ours = reducer.playback.is_playing
        # The only look that a frame gets: it must reach the provider in about a millisecond.
        if reducer.confirmation.listen(pcm, rate, self._loop.time(), over_ours=over_ours):
            self._report(SpeechContinued())
        try:
            return self.connection.send_audio(pcm, rate)
        except LiveError:
            return False

    async def say(self, text: str, *, id: str, spoken: bool = False) -> None:
        """`VoiceError` if these are no words, or this is over. The same id again changes nothing."""
        if self.is_over:
            raise VoiceError("The voice conversation is over.", code="ended")
        try:
            checked_input(text)
        except UsageError as error:
            raise VoiceError(str(error), code="bad_text") from None
        if id not in self._transcript.conversation.inputs:
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

    async def end(self, reason: str = "user_requested") -> None:
        self._report(EndWanted(Ending(reason=reason)))
        await asyncio.shield(self.ending)

    async def close(self) -> None:
        self._report(EndWanted(Ending(reason="closed", resumable=True), to_text=False))
        await asyncio.shield(self.ending)

    # ------------------------------------------------------------------------------------------- events and effects

    def _take(self, event: LiveEvent) -> None:
        """Something of the model."""
        if type(event) is AudioOut:
            effects = self.reducer.apply_sound(event, self._loop.time())
        else:
            effects = self.reducer.apply(event, self._loop.time())
        if effects:
            self._carry_out(effects)

    def _report(self, event: Event) -> None:
        """Something happened: do what follows from it."""
        self._carry_out(self.reducer.apply(event, self._loop.time()))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        # Nothing here reports an event at once, so the effects of two events never mix.
        for effect in effects:
            match effect:
                case TellClient(type, data):
                    self._listener.tell(type, data)
                case SetTimer(timer, at):
                    self._cancel(timer)
                    self._timers[timer] = self._loop.call_at(at, self._elapse, timer)
                case CancelTimer(timer):
                    self._cancel(timer)
                case RecogniseAnswer():
                    self._spawn(self._recognise(effect))
                case RecordDecision():
                    self._spawn(self._decisions.record(effect))
                case EndSession(ending, to_text):
                    self._spawn(self._end(ending, to_text))
                case _:
                    self._ordered.put(effect)

    def _cancel(self, timer: Timer) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _elapse(self, timer: Timer) -> None:
        self._timers.pop(timer, None)
        self._report(TimerElapsed(timer))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Wait until everything that stands in line is done."""
        await self._ordered.empty()

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

    def _effect_failed(self, error: BaseException) -> None:
        if not self.is_over and not isinstance(error, LiveError):  # a live session reports its own end
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        _LOG.error("The voice conversation of session %s ends by a fault", self.session.id, exc_info=error)
        message = "The voice conversation failed in the server. You can go on in writing, or start voice again."
        self._report(EndWanted(Ending(reason="fault", resumable=True, message=message)))

    async def _end(self, ending: Ending, to_text: bool) -> None:
        """Once, in order, and reported last."""
        try:
            await self._leave(ending, to_text)
        except Exception as error:  # noqa: BLE001  # it ends, whatever happens
            _LOG.error("The end of a voice conversation was not clean", exc_info=error)
        finally:
            self._transcript.conversation.lock.release()
            if to_text:
                self._listener.tell("ended", ending.to_dict())
            if not self.ending.done():
                self.ending.set_result(ending)

    async def _leave(self, ending: Ending, to_text: bool) -> None:
        self._report(EndBegun())
        if self.reducer.calls.running:
            await self._attached.connection.interrupt()
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await self.settled()
        except TimeoutError:
            _LOG.warning("A voice conversation ended before all of it was stored")
        # Not before everything was sent: what was answered by then is known to the model.
        self._transcript.conversation.unacknowledged.left()
        await self._let_go()
        session = self.session
        is_current = session.is_current(self._attached.connection)
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
        await self._ordered.close()
        await self._stream.close()
        if self.session.is_active:
            self._attached.set("userAudioChunkCount", self._chunks)

    def _hand_over(self, ending: Ending) -> None:
        """The text chat shows, and its model knows, what was said at the end."""
        transcript = self._transcript
        said = " ".join(message.text for message in transcript.conversation.current_turn() if hasattr(message, "text"))
        if ending.closing_message and not is_said(ending.closing_message, said):
            transcript.say(ending.closing_message)
        if ending.text_response:
            transcript.say(ending.text_response)
