"""The state of a spoken conversation: one event in, the effects of it out. No sockets, no clock, no tasks.

Events come from the client, the model, the session and the parts that carry effects out; each brings its moment. Every part of
the state has a module of its own and knows the others only by the few questions that it asks of its host. What one part means
for another is decided here, and nowhere else. `VoiceSession` carries the effects out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from handrail.agents import events
from handrail.agents.conversation import Conversation, lost
from handrail.agents.host_notices import late_notice, unfinished_notice
from handrail.agents.voice.host_port import Abilities, Ending, Sound, VoicePolicy, taken_over
from handrail.agents.voice.spoken_notices import blocked_notice, idle_notice, lost_notice, say_exactly
from handrail.agents.voice.state import events_and_effects as happened
from handrail.agents.voice.state.events_and_effects import (
    Effect,
    EffectQueue,
    EndSession,
    Event,
    InterruptCalls,
    InterruptModel,
    RefuseCalls,
    ResumeSession,
    SendUserText,
    StartCalls,
    TakeNewestTools,
    TellClient,
    TellModel,
    TellModelLate,
    Timer,
    TimerKind,
    TruncateModel,
)
from handrail.agents.voice.state.farewell import BLOCKED, Farewell, PlannedEnd
from handrail.agents.voice.state.session_port import SessionPort
from handrail.agents.voice.state.speech_output import Playback, Purpose, SpeechOutput, SpokenItem
from handrail.agents.voice.state.spoken_confirmation import SpokenConfirmation
from handrail.agents.voice.state.turn_detection import TurnDetection, UserUtterance, VoiceActivity
from handrail.agents.voice.state.voice_turns import CallBatch, CallBatches, VoiceTurn, VoiceTurns, too_many_rounds
from handrail.contract.call import Call
from handrail.contract.live import (
    Answer,
    AudioOut,
    CallsCancelled,
    CallsMade,
    Closed,
    Connected,
    Disconnected,
    InputTranscript,
    Interrupted,
    LiveCounters,
    OutputTranscript,
    ProviderWarning,
    TurnEnded,
    UserSpeechEnded,
    UserSpeechStarted,
)
from handrail.contract.model import AssistantMessage, HostMessage

_LOG = logging.getLogger("handrail.agent")


class ConversationActivity(StrEnum):
    """What the conversation is doing, as the client shows it."""

    LISTENING = "listening"
    HEARING = "hearing"
    THINKING = "thinking"
    WORKING = "working"
    SPEAKING = "speaking"
    RECONNECTING = "reconnecting"


class ConversationReducer:
    """The state of one conversation. `play` takes the model's sound at once; `writes` says whether a call's tool writes."""

    def __init__(
        self,
        session: SessionPort,
        conversation: Conversation,
        *,
        policy: VoicePolicy,
        max_rounds: int,
        abilities: Abilities,
        play: Callable[[Sound], None],
        writes: Callable[[Call], bool],
        counters: LiveCounters,
        model_hears: bool,
        model_speaks: bool,
        has_recogniser: bool = False,
    ) -> None:
        self._session = session
        self._writes = writes
        self._conversation = conversation
        self._unacknowledged = conversation.unacknowledged
        self._policy = policy
        self._model_hears = model_hears
        effects = self._effects = EffectQueue()
        self.timers: Mapping[Timer, float] = effects.timers
        """Which timers are set, and when each elapses."""
        self.playback = Playback(effects, policy.playback_seconds, self._item_over, self._playing_changed)
        self.speech = SpeechOutput(
            effects,
            self.playback,
            session,
            counters,
            play,
            self._item_opened,
            abilities=abilities,
            has_model_voice=model_speaks,
        )
        self.turns = VoiceTurns(effects, session, conversation)
        self.detection = TurnDetection(effects, self.turns, self.speech, self)
        self.calls = CallBatches(conversation, writes, max_rounds=max_rounds)
        self.activity = VoiceActivity()
        self.confirmation = SpokenConfirmation(
            effects,
            self.speech,
            self.detection,
            self.activity,
            self,
            language=policy.language,
            needs_local=has_recogniser,
        )
        self.farewell = Farewell(
            effects,
            session,
            conversation,
            self.playback,
            self.detection,
            self.activity,
            self,
            max_seconds=policy.farewell_seconds,
        )
        self.is_over = False
        self.is_generating = False
        """The model has something to say, or to call, that has not ended yet."""
        self.connection = 0
        """The number of the model's connection that is up, or was last."""
        self._is_linked = False
        self._cut_by_us = False
        """The model's answer was broken off because the host had something to be said."""
        self._stopped_answer_continues = False
        """The user stopped an answer that the provider still sends: until its end has come, nothing is of the next one."""
        self._awaits_late_answer = False
        """The model was told something that it should speak about, and has not ended a turn since."""
        self._wants_newest_tools = False
        """They are taken as soon as nobody speaks and nothing runs."""
        self._activity: ConversationActivity | None = None
        self._moved_at = 0.0
        """When anything happened last."""
        self._handlers = self._by_event()

    def _by_event(self) -> dict[type, Callable[[Any], None]]:
        """Who handles which event."""
        return {
            happened.Started: self._start,
            happened.UserTextReceived: self._user_text,
            happened.ClientSpeech: self._client_speech,
            happened.StopPressed: lambda _: self._cut_in(stop_model=True),
            happened.NewestToolsWanted: self._newest_tools_wanted,
            happened.SpeechContinued: lambda _: self.confirmation.speech_continued(),
            happened.SoundPlayed: lambda event: self.playback.played(event.item, event.ms, event.done),
            happened.SoundLost: lambda event: self.playback.lost(event.item),
            happened.TextSpoken: lambda event: self.playback.spoken(event.id, event.completed),
            happened.ClientChanged: self._client_changed,
            happened.SessionNews: self._session_news,
            happened.SessionResumed: self._session_resumed,
            happened.UserTextSending: self._user_text_sending,
            happened.TurnStored: self._turn_stored,
            happened.ModelToldLate: self._late_outcome_delivered,
            happened.CallSlow: self._call_slow,
            happened.CallsEnded: lambda event: self.calls.ended(event.batch, event.answers, self._effects.now),
            happened.CallsReported: lambda _: self._calls_reported(),
            happened.AnswerRecognised: lambda event: self.confirmation.recognised(event.answer, event.verdict),
            happened.DecisionRecorded: lambda event: self.confirmation.recorded(event.id, event.declined),
            happened.DecisionReopened: lambda event: self.confirmation.reopened(event.id),
            happened.DecisionNotRecorded: self._decision_not_recorded,
            happened.EndWanted: lambda event: self._end(event.ending, to_text=event.to_text),
            happened.EndBegun: lambda _: self._close_what_is_open(),
            happened.EndCompleted: lambda _: self._stop_listening(),
            happened.TimerElapsed: self._timer_elapsed,
            OutputTranscript: self._model_words,
            InputTranscript: self.detection.words,
            CallsMade: self._calls_made,
            CallsCancelled: self._calls_cancelled,
            Interrupted: lambda _: self._model_interrupted(),
            TurnEnded: self._model_turn_ended,
            UserSpeechStarted: lambda event: self._user_starts(name=event.item, by_provider=True),
            UserSpeechEnded: self._user_speech_ended,
            Connected: self._connected,
            Disconnected: self._disconnected,
            ProviderWarning: self._provider_warning,
            Closed: self._closed,
        }

    def apply(self, event: Event, now: float) -> list[Effect]:
        """The effects of an event that happened now."""
        self._effects.now = now
        kind = type(event)
        handler = self._handlers.get(kind)
        if handler is not None and (not self.is_over or kind in _AFTER_THE_END):
            handler(event)
            if kind in _MODEL_EVENTS:
                self._moved()
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    def apply_sound(self, event: AudioOut, now: float) -> list[Effect]:
        """As `apply`, for a piece of the model's voice: fifty of them come every second."""
        if self.is_over:
            return []
        self._effects.now = self._moved_at = now
        if not self.is_generating:
            self.is_generating = True
            self._moved()
        self._unacknowledged.reacted()
        self.speech.sound(event)
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    # ------------------------------------------------------------------------------------------- from the client

    def _start(self, event: happened.Started) -> None:
        if event.pending:
            self._send_to_model(event.pending, self.turns.next_input_id(), clears_pending=True)
        self.watch_for_idleness()

    def _user_text(self, event: happened.UserTextReceived) -> None:
        if self.is_generating or self.playback.latest is not None:
            self._cut_in(stop_model=True)
        self._send_to_model(event.text, event.input_id, spoken=event.spoken)

    def _send_to_model(self, text: str, input_id: str, *, spoken: bool = False, clears_pending: bool = False) -> None:
        self.is_generating = True  # before the words are judged: what the model says next answers them
        self.detection.said(text, input_id, spoken=spoken)
        self._effects.append(SendUserText(text, clears_pending))
        self._moved()

    def _user_text_sending(self, event: happened.UserTextSending) -> None:
        # Not before: until here the answer before it may still come, and where it was being spoken, until its end.
        self.speech.muted = self._stopped_answer_continues

    def _client_speech(self, event: happened.ClientSpeech) -> None:
        if event.state == "started":
            self._user_starts(event.ago_seconds)
        else:
            self.detection.client_ended()
        self._moved()

    def _client_changed(self, event: happened.ClientChanged) -> None:
        self.speech.adapt(event.abilities)
        if not event.resumed:
            self.confirmation.listener_changed()

    # ------------------------------------------------------------------------------------------- interruption

    def _user_starts(self, ago_seconds: float = 0.0, name: str = "", *, by_provider: bool = False) -> None:
        """Somebody noticed that the user begins to speak, or began some time ago."""
        at = self.detection.started(ago_seconds, name, by_provider=by_provider)
        if self.confirmation.is_active:
            self.confirmation.speech_started(at)
        if self._is_end_due():
            self.farewell.is_held = True
        if self.is_generating or self.playback.latest is not None or self.calls.running:
            self._cut_in(stop_model=not self._model_hears)

    def _cut_in(self, *, stop_model: bool) -> None:
        """The user speaks, types or presses stop while the model speaks or calls run."""
        is_spoken = self.speech.item is not None
        # First of all: the user must not hear another word, whatever else follows from the interruption.
        heard = self.speech.cut()
        self._end_item()
        # The provider believes that everything it sent was heard, unless we say how much was.
        if heard is not None and heard.sent_ms:
            self._effects.append(TruncateModel(heard.played_ms))
        if stop_model and self.is_generating:
            self.speech.muted = True
            self._stopped_answer_continues = is_spoken
            self._effects.append(InterruptModel())
        if self.calls.interrupt():
            self._effects.append(InterruptCalls())
        if (heard is not None or self.is_generating) and self._session.is_active:
            self._session.state.set("interruptionSent", True)
        turn = self.turns.current
        if turn is not None and not turn.done and (stop_model or turn.has_output):
            self.turns.finish(interrupted=True)
            self.is_generating = False
        elif stop_model:
            self.is_generating = False
        self._settle()

    def _calls_cancelled(self, event: CallsCancelled) -> None:
        """The provider takes these calls back; the others are still wanted."""
        # Then it is an interruption as if the user had spoken; otherwise the other calls still have somebody who wants them.
        if self.calls.are_all_that_runs(event.ids):
            if self.calls.interrupt():
                self._effects.append(InterruptCalls())
        else:
            self.calls.take_back(event.ids)
            self._effects.append(InterruptCalls(tuple(event.ids)))

    def _model_interrupted(self) -> None:
        """The provider has stopped the model: because the user spoke, or because we wanted it."""
        if not self._cut_by_us and self._is_end_due():
            self.farewell.is_held = True  # before the farewell is over by it
        self.speech.cut()
        self._end_item()
        if not self._cut_by_us:
            self.confirmation.model_stopped()
            if self.calls.interrupt():
                self._effects.append(InterruptCalls())
            if self._session.is_active:
                self._session.state.set("interruptionSent", True)

    # ------------------------------------------------------------------------------------------- what the model says

    def _model_words(self, event: OutputTranscript) -> None:
        if not self.is_generating:
            self.is_generating = True
            self._moved()
        self._unacknowledged.reacted()  # the model says something, so it knows the outcomes that it waited for
        self.speech.words(event)

    def _calls_made(self, event: CallsMade) -> None:
        """The model asks for calls. They start in their order, after the turn and the connection that they belong to."""
        self.is_generating = True
        self._stopped_answer_continues = False  # some providers end an answer with its calls, and with nothing else
        self._unacknowledged.reacted()
        turn = self.turns.current
        if not self.calls.count_round(turn):
            self._refuse_calls(event)
            return
        item = self.speech.end_item()
        said = item.text if item is not None else ""
        message = AssistantMessage(said, tuple(event.calls))
        # At once: providers refuse a history in which a call has no answer, and anything may end the conversation in between.
        placeholders = tuple(lost(call, doubtful=self._writes(call)) for call in event.calls)
        self._conversation.add(message, *placeholders)
        if item is not None:
            item.message = message
        number = turn.rounds if turn is not None else 1
        batch = CallBatch(message.calls, placeholders, turn, self.connection, number)
        if not self.calls.running:
            self.calls.busy_since = self._effects.now
        self.calls.running.append(batch)
        self._effects.append(StartCalls(batch))

    def _refuse_calls(self, event: CallsMade) -> None:
        """The model calls without an end: it is answered without being asked to continue, and the turn is over."""
        rounds = self.calls.max_rounds
        self._end_item()
        self._effects.append(RefuseCalls(tuple(Answer(call, too_many_rounds(call, rounds)) for call in event.calls)))
        self.is_generating = False
        if self.calls.has_just_run_out:
            self._effects.append(TellClient("error", {"code": "too_many_rounds", "message": unfinished_notice(rounds)}))
            self.turns.finish(interrupted=False, unclaimed=self.speech.unclaimed)
        elif self.calls.runs_away:  # a provider that asks it to continue whatever it is answered
            self._end(Ending(reason="fault", resumable=True, message=unfinished_notice(rounds)))
        self._settle()

    def _model_turn_ended(self, event: TurnEnded) -> None:
        turn = self.turns.current
        interrupted = event.reason == "interrupted"
        if self._stopped_answer_continues:
            self._end_stopped_answer()
            if turn is not None and not turn.done:
                return  # whatever became of it; this turn is still to be answered
        if interrupted and turn is not None and not turn.has_output and not self._cut_by_us:
            return  # it is the end of an answer to an earlier input; this one's is still to come
        cut_by_us, self._cut_by_us = self._cut_by_us and interrupted, False
        self._awaits_late_answer = False
        self.speech.muted = False
        self._end_item()
        if cut_by_us:
            return
        self.is_generating = False
        if event.reason == "failed":
            self._report_failure(event)
        if interrupted:
            self.turns.finish(interrupted=True)
        else:
            if self._unacknowledged.writes:
                self._unacknowledged.answered()
            self.turns.finish(interrupted=False, unclaimed=self.speech.unclaimed)
        self._settle()

    def _end_stopped_answer(self) -> None:
        """An answer that the user had stopped has ended: what comes next is heard again."""
        self._stopped_answer_continues = self.speech.muted = False
        self._end_item()

    def _report_failure(self, event: TurnEnded) -> None:
        """A provider's code is no sentence for a user: it is added for whoever looks into it."""
        _LOG.warning("The model could not answer: %s", event.detail or event.message)
        error = {"code": "model_failed", "message": event.message or "The model could not answer."}
        self._effects.append(TellClient("error", error | ({"detail": event.detail} if event.detail else {})))

    def _end_item(self) -> None:
        """What the model was saying is complete: it goes into the conversation."""
        item = self.speech.end_item()
        if item is not None and item.message is None:
            text = item.heard_text() if item.cut else item.text
            item.message = self._conversation.say(f"{text} …" if item.cut and text else text)

    def _ask_model(self, words: str, purpose: Purpose) -> None:
        """Have the model say something now, which interrupts whatever it says."""
        self.speech.expect(purpose)
        self._cut_by_us = self.is_generating or self._awaits_late_answer
        self.is_generating = True
        self._effects.append(TellModel(words, "interrupt"))

    # ------------------------------------------------------------------------------------------- whom the model hears

    def _user_speech_ended(self, event: UserSpeechEnded) -> None:
        if event.again and self.detection.is_committed:
            return  # a second end would take it for another utterance, and its words for nobody's
        self.first_words_came()
        self.speech.muted = False
        self.is_generating = True  # before the words are judged: what the model says next answers them
        self.detection.committed(event.item)

    # ------------------------------------------------------------------------------------------- the model's connections

    def _connected(self, event: Connected) -> None:
        self.connection = event.number
        self._is_linked = True
        self._moved()
        self._effects.append(TellClient("link", {"state": "up", "number": event.number}))
        if event.number > 1:
            turn = self.turns.current.number if self.turns.current is not None else 0
            # Before the session is resumed: what the model forgot decides which of its next calls are repetitions.
            self._unacknowledged.connected(event.number, turn, event.restored_calls)
            self._effects.append(ResumeSession(event.restored_calls))
            self._effects.append(TellClient("cue", {"kind": "reconnected", "toolId": None}))

    def _disconnected(self, event: Disconnected) -> None:
        _LOG.info("The live connection is gone: %s", event.reason)
        self._end_item()
        if self._stopped_answer_continues:
            self._end_stopped_answer()
        self.detection.lost()
        self._is_linked = False
        self._moved()
        self._effects.append(TellClient("link", {"state": "lost", "number": self.connection}))

    def _provider_warning(self, event: ProviderWarning) -> None:
        _LOG.warning("The live provider complains (%s): %s", event.code, event.message)

    def _closed(self, event: Closed) -> None:
        _LOG.warning("The live session is %s: %s", event.reason, event.message)
        self._end(Ending(reason="provider_lost", resumable=True, message=event.message or lost_notice()))

    # ------------------------------------------------------------------------------------------- turns and calls

    def _turn_stored(self, event: happened.TurnStored) -> None:
        if event.before is not None:  # it was reported as done before this step, and will not be again
            event.before.items, event.before.evidence = [], {}
        event.turn.number = event.number
        if event.replaced:
            self._end(taken_over())
            return
        self._effects.append(TellClient("turn", {"turn": event.number, "inputId": event.turn.input_id}))

    def _call_slow(self, event: happened.CallSlow) -> None:
        batch = event.batch
        if batch.interrupted:
            return
        self._effects.append(TellClient("cue", {"kind": "slow", "toolId": event.tool}))
        turn, filler = batch.turn, self._policy.filler
        if turn is None or turn.filled or not filler or self.speech.is_voiced or not self.speech.abilities.speaks:
            return
        turn.filled = True
        self._say_aside(filler[turn.number % len(filler)])

    def _calls_reported(self) -> None:
        """A batch of calls was answered."""
        self._moved()
        if not self._session.is_active:
            self._end(Ending(reason="session_ended"))
        elif self._session.blocked_for() > 0:
            closing = self._conversation.farewell_words() or blocked_notice()
            self.farewell.plan(PlannedEnd(reason=BLOCKED, closing=closing))
        else:
            self._settle()

    def _say_aside(self, text: str) -> None:
        """A filler: it is heard as all else is, and is no part of the answer."""
        if text.strip():
            self.speech.say(text, "filler", self.turns.current)

    # ------------------------------------------------------------------------------------------- from the session

    def _session_news(self, news: happened.SessionNews) -> None:
        """What the session reports beside the answers to calls: late results, requests for a person, progress, messages."""
        event = news.event
        data = event.data
        match event.type:
            case "envelope":
                self._late_envelope(data)
            case "confirmation":
                self._effects.append(TellClient(event.type, data))
                left = float(data["expires_at"]) / 1000 - news.wall_time
                self.confirmation.wanted(data, seconds_left=left, turn=self._turn_number())
            case "message" | "connection_wanted":  # for the screen: neither is spoken, and the model hears of neither
                self._effects.append(TellClient(event.type, data))
            case "progress":
                self._effects.append(TellClient(event.type, data))
                if self.speech.abilities.speaks and not self.speech.is_voiced:
                    self._say_aside(str(data.get("text", "")))
            case "intent" if not self.calls.running:  # otherwise its call is still to be answered
                self._calls_reported()
            case _:
                pass

    def _newest_tools_wanted(self, _: happened.NewestToolsWanted) -> None:
        self._wants_newest_tools = True
        self._moved()

    def _session_resumed(self, event: happened.SessionResumed) -> None:
        self.turns.connection = event.connection

    def _late_envelope(self, told: Any) -> None:
        """A call that the model was answered about already has ended: the user sees it, the model is told once."""
        confirmation = told.get("confirmationId")
        silent = bool(told.get("silent"))
        if confirmation is not None:
            # An outcome may be delivered twice, after a reconnect for instance. The model hears of it once.
            if not self._conversation.tell(confirmation):
                return
            # The next question is read at once: what the model said to this one would be cut off by it, or spoil it.
            silent = silent or self.confirmation.waits_for(confirmation)
            closed = events.closed(told)
            self.confirmation.closed(confirmation, closed.data["outcome"] == "declined")
            self._effects.append(TellClient(closed.type, closed.data))
        card = events.ended_late(told)
        self._effects.append(TellClient(card.type, card.data))
        words = late_notice(told)
        if not told.get("known"):
            self._conversation.add(HostMessage(words))
        # Known to the conversation, but not to this model: the call was made before it began to listen.
        self._effects.append(TellModelLate(words, silent, confirmation))
        self._unacknowledged.mark_late_delivered(told.get("callId"), self._turn_number())
        self._calls_reported()

    def _late_outcome_delivered(self, event: happened.ModelToldLate) -> None:
        self._awaits_late_answer = self._awaits_late_answer or not event.silent

    def _turn_number(self) -> int:
        """Of the turn that was stored last; 0 before the first."""
        turn = self._session.turn
        return turn.number if turn is not None else 0

    def turn_of_what_was_said(self) -> int:
        """The newest turn of what the user has said so far; the next one if that is not committed, or not stored."""
        number, begun = self._turn_number(), self.turns.current
        is_to_come = self.detection.is_uncommitted or (begun is not None and begun.number == 0)
        return number + 1 if is_to_come else number

    def _decision_not_recorded(self, event: happened.DecisionNotRecorded) -> None:
        self.confirmation.not_recorded(event.id, event.reason, event.message, expired=event.expired)

    # ------------------------------------------------------------------------------------------- time

    def _timer_elapsed(self, event: happened.TimerElapsed) -> None:
        timer = event.timer
        self._effects.timers.pop(timer, None)
        if timer.kind is TimerKind.ITEM_PLAYED:
            self.playback.elapsed(int(timer.subject))
            return
        if self.is_over:
            return
        match timer.kind:
            case TimerKind.IDLE:
                self._look_for_idleness()
            case TimerKind.WORDS_SETTLED:
                self.detection.settle_elapsed()
            case TimerKind.WORDS_STOPPED:
                self.detection.silence_elapsed()
            case TimerKind.ANSWER_JUDGED:
                self.confirmation.judge_elapsed()
            case TimerKind.ANSWER_OPEN:
                self.confirmation.asking_elapsed()
            case TimerKind.QUESTION_EXPIRED:
                self.confirmation.expiry_elapsed(str(timer.subject))
            case TimerKind.FAREWELL_LATE:
                self.farewell.late_elapsed()
            case TimerKind.FAREWELL_QUIET:
                self.farewell.consider()

    def watch_for_idleness(self) -> None:
        self._moved()
        self._look_for_idleness()

    def _look_for_idleness(self) -> None:
        """A conversation is idle when it has listened for long; whoever does anything is looked at again later."""
        idle = self._policy.idle_seconds
        left = idle - self.quiet_seconds()
        if left <= 0 and self._activity is ConversationActivity.LISTENING:
            self.farewell.plan(PlannedEnd(reason="idle", closing=idle_notice()))
            return
        self._effects.timers[Timer(TimerKind.IDLE)] = self._effects.now + (left if left > 0 else idle)

    def _moved(self) -> None:
        """Something happened: the client hears of it if the conversation does something else now."""
        self._moved_at = self._effects.now
        if self.is_over:
            return
        if not self._is_linked:
            activity = ConversationActivity.RECONNECTING
        elif self.detection.is_speaking:
            activity = ConversationActivity.HEARING
        elif self.playback.is_playing or self.speech.item is not None:
            activity = ConversationActivity.SPEAKING
        elif self.calls.running:
            activity = ConversationActivity.WORKING
        else:
            activity = ConversationActivity.THINKING if self.is_generating else ConversationActivity.LISTENING
        if self._wants_newest_tools and activity is ConversationActivity.LISTENING:
            self._wants_newest_tools = False
            self._effects.append(TakeNewestTools())
        if activity is self._activity:
            return
        self._activity = activity
        if self._session.is_active:
            is_model_busy = activity in (ConversationActivity.THINKING, ConversationActivity.SPEAKING)
            self._session.state.set("isModelGenerating", is_model_busy)
        self._effects.append(TellClient("state", {"state": activity.value}))

    # ------------------------------------------------------------------------------------------- what happens next

    def _settle(self) -> None:
        """It may be quiet now: time for a question that waits, or for the end that is due."""
        if self.confirmation.is_active:
            self.confirmation.consider()
        if not self.is_over and self._is_end_due():
            self.farewell.consider()
        self._moved()

    def _is_end_due(self) -> bool:
        """Whether a tool has asked for the end, or the host has."""
        return self.farewell.own is not None or self._session.state.get("pendingEndVoiceSession") is not None

    def _end(self, ending: Ending, *, to_text: bool = True) -> None:
        """The first who asks decides how it ends."""
        if not self.is_over:
            self.is_over = True
            self._effects.append(EndSession(ending, to_text))

    def _close_what_is_open(self) -> None:
        self.speech.cut()
        self._end_item()
        self.calls.interrupt()
        if self.turns.current is not None and not self.turns.current.done:
            self.turns.finish(interrupted=True)

    def _stop_listening(self) -> None:
        self.confirmation.close()
        self._effects.timers.clear()
        if self._session.is_active:
            self._session.state.set("audioChunkCounter", self.speech.frames)

    # ------------------------------------------------------------------------- for playback and output

    def _item_opened(self, item: SpokenItem) -> None:
        turn = self.turns.current
        if turn is not None and not turn.done:
            turn.claim(item)
            if self._session.is_active:
                self._session.state.set("interruptionSent", False)
        if self.confirmation.is_active:
            self.confirmation.item_opened(item)
        self._moved()

    def _item_over(self, item: SpokenItem) -> None:
        if item.cut and item.message is not None:
            item.message = self._conversation.cut(item.message, item.heard_text())
        if self.confirmation.is_active:
            self.confirmation.item_over(item)
        self._settle()

    def _playing_changed(self, playing: bool) -> None:
        if self.confirmation.is_active:
            self.confirmation.our_audio(playing)
        self._moved()

    # ----------------------------------------------------------------------------- for turn detection (`SpeechObserver`)

    def first_words_came(self) -> None:
        """Where nobody reports the start of speech, the first words are the sign to stop an older answer."""
        playing = self.playback.latest
        if playing is not None and playing.turn is not None:
            self._cut_in(stop_model=False)

    def utterance_committed(self, utterance: UserUtterance, spoke_until: float | None) -> VoiceTurn:
        if self.farewell.due_at is not None:
            started = utterance.started_at
            if started is None and utterance.final:  # it came as text, so it began now at the latest
                started = self._effects.now
            self.farewell.person_spoke(started)
        return self.turns.begin(utterance.input_id, utterance.text, self.speech.item, spoke_until=spoke_until)

    def utterance_complete(self, utterance: UserUtterance) -> None:
        if not self.confirmation.is_active:
            # These words are of the voice that was heard last, unless that began after them.
            voice, ended = self.activity.voice, utterance.ended_at
            if not utterance.typed and voice is not None and (ended is None or voice.since <= ended):
                self.activity.voice = None
        elif utterance.typed:
            self.confirmation.speech_continued()
        else:
            self.confirmation.heard(utterance)

    def words_settled(self) -> None:
        self.confirmation.settled()

    def voice_fell_silent(self) -> None:
        self._settle()

    # ------------------------------------------------- for confirmation and farewell (`ReadingHost`, `FarewellHost`)

    def is_quiet(self) -> bool:
        if self.is_over or self.is_answering() or self.playback.latest is not None:
            return False
        return not self.detection.is_speaking and not self._is_end_due()

    def is_answering(self) -> bool:
        return self.is_generating or any(not batch.interrupted for batch in self.calls.running)

    def has_running_calls(self) -> bool:
        return bool(self.calls.running)

    def quiet_seconds(self) -> float:
        return self._effects.now - self._moved_at

    def said_lately(self, *, with_farewells: bool) -> Sequence[str]:
        turn = self.turns.current
        said = [item.text for item in turn.items] if turn is not None else []
        return said + ([item.text for item in self.playback.of("farewell")] if with_farewells else [])

    def read_aloud(self, text: str) -> SpokenItem | None:
        return self._have_said(text, "preview")

    def say_closing(self, text: str) -> SpokenItem | None:
        return self._have_said(text, "farewell")

    def _have_said(self, text: str, purpose: Purpose) -> SpokenItem | None:
        if self.speech.is_voiced:
            self._ask_model(say_exactly(text), purpose)
            return None
        item = self.speech.say(text, "preview" if purpose == "preview" else "notice", self.turns.current, purpose)
        item.message = self._conversation.say(text)
        return item

    def end_as_planned(self, planned: PlannedEnd) -> None:
        self._end(Ending(reason=planned.reason, closing_message=planned.closing, text_response=planned.text))


_AFTER_THE_END = frozenset(
    {
        happened.SoundPlayed,
        happened.SoundLost,
        happened.TextSpoken,
        happened.ClientChanged,
        happened.UserTextSending,
        happened.TurnStored,
        happened.ModelToldLate,
        happened.CallsEnded,
        happened.DecisionRecorded,
        happened.DecisionReopened,
        happened.EndBegun,
        happened.EndCompleted,
        happened.TimerElapsed,
    }
)
"""What still counts when the conversation is over: what was begun is stored and settled."""
_MODEL_EVENTS = frozenset(
    {
        OutputTranscript,
        InputTranscript,
        CallsMade,
        CallsCancelled,
        Interrupted,
        TurnEnded,
        UserSpeechStarted,
        UserSpeechEnded,
        Connected,
        Disconnected,
        ProviderWarning,
        Closed,
    }
)
