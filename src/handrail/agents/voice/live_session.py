"""One spoken conversation: what the model tells, what the user's client sends, and what the session says, brought together.

Sound passes through without waiting for anything. What must be stored or carried out in its order stands in `order`; calls run in
tasks of their own. The parts: `hearing` (the user), `speaking` (us), `turns`, `calls`, `farewell`; `record` writes it all down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from handrail.agents.text import checked_input
from handrail.agents.voice.activity_state import ActivityState
from handrail.agents.voice.ending import End
from handrail.agents.voice.farewell import Farewell, PlannedEnd
from handrail.agents.voice.host_phrases import idle_words
from handrail.agents.voice.host_port import Abilities, Ending, SpeechState, VoiceError, VoiceListener
from handrail.agents.voice.late_results import LateResults
from handrail.agents.voice.model_stream import ModelStream
from handrail.agents.voice.ordered_steps import OrderedSteps
from handrail.agents.voice.playback import Playback, Purpose, SpokenItem
from handrail.agents.voice.speech_output import SpeechOutput
from handrail.agents.voice.spoken_confirmation import SpokenConfirmation
from handrail.agents.voice.tool_calls import ToolCalls
from handrail.agents.voice.transcript import VoiceTranscript
from handrail.agents.voice.turn_detection import TurnDetection, UserUtterance
from handrail.agents.voice.voice_turns import VoiceTurns
from handrail.contract.errors import UsageError
from handrail.contract.events import SessionEvent
from handrail.contract.live import LiveConnection, LiveError
from handrail.runtime.session import Session

if TYPE_CHECKING:
    from handrail.agents.voice.agent import VoiceAgent

_LOG = logging.getLogger("handrail.agent")


class VoiceSession:
    """Made by `VoiceAgent.begin`; a `SpokenConversation`."""

    def __init__(
        self,
        agent: VoiceAgent,
        session: Session,
        record: VoiceTranscript,
        listener: VoiceListener,
        connection: LiveConnection,
        abilities: Abilities,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.runtime = agent.runtime
        self.policy = agent.policy
        self.max_rounds = agent.agent_policy.rounds + agent.agent_policy.late_rounds
        """Messages with calls in one turn, those after late results included."""
        self.model = agent.model
        self.session = session
        self.attached = session.connection
        """The session's connection that the model's stream is attached by."""
        self.record = record
        self.listener = listener
        self.connection = connection
        self.abilities = abilities
        self.ending: asyncio.Future[Ending] = loop.create_future()
        self.order = OrderedSteps(self._step_failed)
        self.playback = Playback(agent.policy.playback_seconds, self._item_over, self._playing)
        self.speaking = SpeechOutput(self, self.playback)
        self.hearing = TurnDetection(self)
        self.turns = VoiceTurns(self)
        self.calls = ToolCalls(self)
        self.farewell = Farewell(self)
        self.late = LateResults(self)
        self.asking = SpokenConfirmation(self, agent.recogniser, agent.policy.language)
        self.watch = ActivityState(self, idle=agent.policy.idle_seconds, on_idle=self._idle)
        self.is_generating = False
        """The model has something to say, or to call, that has not ended yet."""
        self._items = 0
        self._chunks = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._end = End(self)
        self.stream = ModelStream(self)

    def start(self) -> None:
        """Begin to listen to the model, and answer first what was asked for before."""
        self.stream.start()
        pending = self.session.state.get("pendingMessage")
        if pending:
            self._send_words(pending, self.turns.next_input_id(), clear_pending=True)
        self.watch.start()

    # ------------------------------------------------------------------------------------------- facts

    @property
    def is_over(self) -> bool:
        return self._end.has_begun

    @property
    def is_voiced(self) -> bool:
        """The model's own voice is heard; otherwise its words go to the client's voice."""
        return bool(self.model.output_rate) and self.abilities.sound

    @property
    def input_rates(self) -> tuple[int, ...]:
        return self.model.input_rates

    @property
    def output_rate(self) -> int:
        return self.model.output_rate

    @property
    def sound_dropped(self) -> int:
        return self.connection.counters.dropped_audio_out

    def facts(self) -> dict[str, Any]:
        rates = self.input_rates
        return {
            "sessionId": self.session.id,
            "turn": self.session.turn.number if self.session.turn is not None else 0,
            "mode": self.session.mode,
            "model": self.model.name,
            "provider": self.model.provider,
            "offline": not self.model.output_rate,
            "language": self.policy.language,
            "audio": {"input": {"rate": rates[0] if rates else 0}, "output": {"rate": self.output_rate}},
        }

    # ------------------------------------------------------------------------------------------- from the client

    def hear(self, pcm: bytes, rate: int) -> bool:
        if self.is_over:
            return False
        self._chunks += 1
        self.asking.listen(pcm, rate)
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
        if id in self.record.conversation.inputs:
            return
        if self.is_generating or self.playback.latest is not None:
            self._cut_in(stop_model=True)
        self._send_words(text, id, spoken=spoken)

    def speech(self, state: SpeechState, ago_seconds: float = 0.0) -> None:
        if self.is_over:
            return
        if state == "started":
            self.user_starts(ago_seconds)
        else:
            self.hearing.client_ended()
        self.watch.moved()

    def played(self, item: int, ms: int, done: bool = False) -> None:
        self.playback.played(item, ms, done)

    def sound_lost(self, item: int | None) -> None:
        self.playback.lost(item)

    def spoken(self, id: str, completed: bool) -> None:
        self.playback.spoken(id, completed)

    async def interrupt(self) -> None:
        if not self.is_over:
            self._cut_in(stop_model=True)

    def adapt(self, abilities: Abilities, *, resumed: bool = False) -> None:
        self.abilities = abilities
        if not resumed:
            self.asking.listener_changed()

    def take(self, event: SessionEvent) -> bool:
        return not self.is_over and self.late.take(event)

    async def end(self, reason: str = "user_requested") -> None:
        self.finish(reason)
        await asyncio.shield(self.ending)

    async def close(self) -> None:
        self._end.begin(Ending(reason="closed", resumable=True), to_text=False)
        await asyncio.shield(self.ending)

    def _send_words(self, text: str, input_id: str, *, spoken: bool = False, clear_pending: bool = False) -> None:
        self.is_generating = True  # before the words are judged: what the model says next answers them
        self.hearing.said(text, input_id, spoken=spoken)

        async def send() -> None:
            self.speaking.muted = False  # not before: until here the answer before it may still come
            await self.connection.send_text(text)
            if clear_pending:
                self.session.state.set("pendingMessage", None)
                await self.runtime.save(self.session)

        self.order.put(send)
        self.watch.moved()

    # ------------------------------------------------------------------------------------------- interruptions

    def user_starts(self, ago_seconds: float = 0.0) -> None:
        """Somebody noticed that the user begins to speak, or began so long ago."""
        self.hearing.started(ago_seconds)
        if self.is_generating or self.playback.latest is not None or self.calls.running:
            self._cut_in(stop_model=not self.input_rates)

    def user_speaks(self) -> None:
        """Words of the user came: where nobody reports the start of speech, that is the sign to stop an older answer."""
        playing = self.playback.latest
        if playing is not None and playing.turn is not None:
            self._cut_in(stop_model=False)

    def _cut_in(self, *, stop_model: bool) -> None:
        """The user speaks, types or presses stop while the model speaks or calls run."""
        heard = self.speaking.cut()
        if heard is not None and heard.sent_ms:
            played = heard.played_ms
            self.order.put(lambda: self.connection.truncate(played))
        if stop_model and self.is_generating:
            self.speaking.muted = True
            self.order.put(self.connection.interrupt)
        self.interrupt_calls()
        if heard is not None or self.is_generating:
            self.note_interruption()
        turn = self.turns.current
        if turn is not None and not turn.done and (stop_model or turn.has_output):
            self.turns.finish(interrupted=True)
            self.is_generating = False
        elif stop_model:
            self.is_generating = False
        self.settle()

    def interrupt_calls(self) -> None:
        if self.calls.interrupt():
            self.order.put(self._tell_interruption)

    def take_back(self, ids: Collection[str]) -> None:
        """The provider takes these calls back; the others are still wanted."""
        if not self.calls.are_all_that_runs(ids):
            self.calls.take_back(ids)
            self.order.put(lambda: self.session.interrupt(ids))
        else:
            self.interrupt_calls()

    async def _tell_interruption(self) -> None:
        await self.session.interrupt()

    def note_interruption(self) -> None:
        if self.session.is_active:
            self.session.state.set("interruptionSent", True)

    def _item_over(self, item: SpokenItem) -> None:
        if item.cut and item.message is not None:
            item.message = self.record.cut(item.message, item.heard_text())
        self.asking.item_over(item)
        self.asking.consider()
        self.farewell.consider()
        self.watch.moved()

    def _playing(self, playing: bool) -> None:
        self.asking.our_audio(playing)
        self.watch.moved()

    # ------------------------------------------------------------------------------------------- for the parts

    def next_item(self) -> int:
        self._items += 1
        return self._items

    def opened(self, item: SpokenItem) -> None:
        self.asking.opened(item)
        if item.turn is not None and self.session.is_active:
            self.session.state.set("interruptionSent", False)
        self.watch.moved()

    def end_item(self) -> None:
        """What the model was saying is complete: it goes into the conversation."""
        item = self.speaking.end_item()
        if item is not None:
            self.write_down(item)

    def write_down(self, item: SpokenItem) -> None:
        if item.message is not None:
            return
        text = item.heard_text() if item.cut else item.text
        item.message = self.record.say(f"{text} …" if item.cut and text else text)

    def understood(self, heard: UserUtterance) -> None:
        """The words of an utterance are complete."""
        self.asking.heard(heard)

    def calls_ended(self) -> None:
        """A batch of calls was answered."""
        if self.is_over:
            return
        self.watch.moved()
        session = self.session
        if not session.is_active:
            self.finish("session_ended")
        elif session.blocked_for() > 0:
            self.farewell.want(PlannedEnd(reason="blocked", closing=self.late.parting_words()))
        else:
            self.asking.consider()
            self.farewell.consider()

    def settle(self) -> None:
        """The model has nothing to say at the moment."""
        self.asking.consider()
        self.farewell.consider()
        self.watch.moved()

    def ask_model(self, words: str, purpose: Purpose) -> None:
        """Have the model say something now. Whatever it says is interrupted by it."""
        self.speaking.expect(purpose)
        self.stream.cut_by_us = self.is_generating or self.late.awaits_answer
        self.is_generating = True
        self.order.put(lambda: self.connection.tell(words, scheduling="interrupt"))

    def quiet_for(self) -> float:
        return self.watch.quiet_for()

    def tell(self, type: str, data: Mapping[str, Any]) -> None:
        self.listener.tell(type, data)

    def tell_transcript(
        self, who: Literal["user", "model"], item: int, input_id: str | None, piece: str, whole: str, final: bool
    ) -> None:
        if self.session.state.get("shouldSuppressTranscript"):
            return
        named = {"who": who, "item": item, "inputId": input_id}
        told = {"whole": whole} if final else {}  # not with every piece: together they would grow with its square
        self.tell("transcript", {**named, "text": piece, **told, "final": final})

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------------------------------- the end

    def finish(self, reason: str, message: str = "", *, closing: str | None = None, text: str | None = None) -> None:
        """End the conversation; the session goes back to text."""
        self.leave(Ending(reason=reason, closing_message=closing, text_response=text, message=message))

    def leave(self, ending: Ending) -> None:
        self._end.begin(ending, to_text=True)

    def _idle(self) -> None:
        self.farewell.want(PlannedEnd(reason="idle", closing=idle_words()))

    def _step_failed(self, error: BaseException) -> None:
        if not self.is_over and not isinstance(error, LiveError):  # the end of the live session is told by itself
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        _LOG.error("The voice conversation of session %s ends by a fault", self.session.id, exc_info=error)
        message = "The voice conversation failed in the server. You can go on in writing, or start voice again."
        self.leave(Ending(reason="fault", resumable=True, message=message))

    async def let_go(self) -> None:
        """Everything that listens or waits is stopped; calls that run go on, and settle by themselves."""
        self.watch.close()
        self.farewell.close()
        self.asking.close()
        self.playback.close()
        await self.connection.close()
        await self.order.close()
        await self.stream.close()
        if self.session.is_active:
            self.session.state.set("userAudioChunkCount", self._chunks)
            self.session.state.set("audioChunkCounter", self.speaking.frames)
