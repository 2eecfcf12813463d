"""Spoken confirmation in a conversation: read the preview, wait for its end, hear the answer, and decide. Pure.

`spoken.ConfirmationQuestions` decides; this reports to it what happened and does what it says. A preview is read when nobody
speaks, by the model (whose transcript must then be the preview) or by the client's own voice. It counts as heard only if the
client itself reports that it was played to its end. Speech began when anybody first noticed it, the sound itself among them: a
provider may report an utterance long after it overlapped ours. The model is never asked what the person meant.

An answer is judged when its speaker has finished: nobody, be it the microphone's level, the client or the provider, has noticed
more speech for `FINISHED_SECONDS`. Whoever continues has not answered, even if the words of what follows have not come yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from handrail.agents.voice.host_port import Abilities
from handrail.agents.voice.spoken import (
    AcceptAnswers,
    AnswerMissed,
    AnswerVerdict,
    ApproveRequest,
    ConfirmationQuestions,
    DeclineRequest,
    MoveToScreen,
    QuestionExpired,
    QuestionStep,
    ReadPreview,
)
from handrail.agents.voice.spoken.questions import GUARD_SECONDS
from handrail.agents.voice.state.events_and_effects import (
    EffectQueue,
    RecogniseAnswer,
    RecordDecision,
    TellClient,
    Timer,
    TimerKind,
)
from handrail.agents.voice.state.speech_output import SpeechOutput, SpokenItem
from handrail.agents.voice.state.turn_detection import (
    PAUSE_SECONDS,
    TurnDetection,
    UserUtterance,
    VoiceActivity,
    VoiceSpan,
)

FINISHED_SECONDS = 1.2
"""How long nothing more may be said after an answer."""
_NOTICE_SECONDS = 0.15
"""How long after its beginning a voice is noticed."""
_TAIL_SECONDS = 0.25
"""The end of a word may sound after a quick transcriber has reported the word."""
_REACTION_SECONDS = 0.7
"""A provider that stops the model for an utterance does so within this time."""
_MAX_WAIT_SECONDS = 5.0
"""For an end of speech that somebody else has to report."""
_MAX_SOUND_SECONDS = 15
_LEAD_SECONDS = 0.2
_TICK_SLACK = 0.05


@dataclass(slots=True)
class PendingAnswer:
    """What was said to a question, until it is known whether its speaker has finished."""

    heard: UserUtterance
    text: str
    started: float
    ended: float
    confidence: float | None
    covers_until: float
    """Sound until then may be of these words."""
    spoke_until: float
    """The last sign of speech."""
    voice_counts_until: float
    """A voice after that is another utterance, which a provider may report later than the level does."""
    is_recognised: bool = True
    """The local recogniser, if there is one, has heard it."""
    local: AnswerVerdict | None = None


class ReadingHost(Protocol):
    """What a confirmation has to know of the conversation around it, and what it asks of it."""

    def is_quiet(self) -> bool:
        """Whether nothing of ours sounds or is to come, nobody speaks, and no end is due: a preview may be read."""
        ...

    def read_aloud(self, text: str) -> SpokenItem | None:
        """Have the preview read; the item if the client's own voice reads it, None if the model does."""
        ...


class SpokenConfirmation:
    """The spoken questions of one conversation."""

    def __init__(
        self,
        effects: EffectQueue,
        speech: SpeechOutput,
        detection: TurnDetection,
        activity: VoiceActivity,
        host: ReadingHost,
        *,
        language: str,
        needs_local: bool,
    ) -> None:
        self._effects = effects
        self._speech = speech
        self._detection = detection
        self._activity = activity
        self._host = host
        self._needs_local = needs_local
        """A local recogniser hears every answer as well."""
        self._questions = ConfirmationQuestions(language=language, needs_local=needs_local)
        self.is_active = False
        """Something was asked in this conversation. Until then nothing that happens matters here."""
        self._next: ReadPreview | None = None
        """What is to be read at the next quiet moment."""
        self._reading: str | None = None
        """The question that the model, or the client's voice, was asked to read."""
        self._item: SpokenItem | None = None
        self._reader: tuple[bool, Abilities] | None = None
        """Whether the model reads, and to whom, as it was when the reading began."""
        self._asking: str = ""
        """The question that is about to accept answers."""
        self._misses: dict[str, int] = {}
        self._answering: dict[str, bool] = {}
        """Answered by voice, with yes or no, and not known yet what the runtime made of it."""
        self._voice_before = False
        """There was another voice since the last words came, or since the question was opened."""
        self._open_since = inf
        self._started_at = self._stopped_at = -inf
        """When speech began, and when the model was stopped for it, by the client's or the provider's last report."""
        self._continues_until = -inf
        """Nothing is read over somebody who continued after an answer: not before then, unless they have finished."""
        self._unjudged: PendingAnswer | None = None
        self._sound = bytearray()
        self._sound_rate = 0
        self._quiet_since: float | None = None
        """Nothing of ours sounds any more, and the questions do not know it yet."""

    @property
    def is_open(self) -> bool:
        """Whether what is heard may matter to a question."""
        return self._questions.open_id is not None

    def waits_for(self, confirmation_id: str) -> bool:
        """Whether another question is read when this one is over, or is being read."""
        return any(each != confirmation_id for each in self._questions.ids)

    def close(self) -> None:
        """The conversation is over: what is open stays open on the screen."""
        self._stop_asking()
        self._forget_answer()
        for each in self._questions.ids:
            self._effects.timers.pop(Timer(TimerKind.QUESTION_EXPIRED, each), None)
            self._report(each, "screen", "ended")

    # ------------------------------------------------------------------------------------------- what happens

    def wanted(self, request: Mapping[str, Any], *, seconds_left: float, turn: int) -> None:
        """The session asks for a person's decision, in this turn."""
        now = self._effects.now
        if not self.is_active:
            self._begin()
        can_be_heard = self._speech.is_voiced or self._speech.abilities.speaks
        channel = str(request["channel"]) if can_be_heard else "screen"
        self._effects.timers[Timer(TimerKind.QUESTION_EXPIRED, str(request["id"]))] = (
            now + max(0.0, seconds_left) + _TICK_SLACK
        )
        was_open = self.is_open
        # Asked before the person's last words were judged, they may be what the new call was made of.
        steps = self._questions.wanted(
            request, str(request["token"]), channel, now, seconds=seconds_left, turn=turn, spoke_at=self._spoke_at()
        )
        if not was_open:
            self._open_since, self._voice_before = now, False
        self._do(steps)

    def _begin(self) -> None:
        """The first question: learn what went before it and may matter to its answer."""
        self.is_active = True
        self._detection.words_came = self.words_came
        if self._detection.began_at is not None:
            self.speech_started(self._detection.began_at)
        playback = self._speech.playback
        if playback.is_playing:
            self._questions.our_audio(True, playback.playing_since)

    def _spoke_at(self) -> float:
        """When the person was last heard, as far as nobody has judged it yet."""
        voice, answer = self._activity.voice, self._unjudged
        return max(
            self._started_at,
            voice.until if voice is not None else -inf,
            answer.spoke_until if answer is not None else -inf,
        )

    def closed(self, confirmation_id: str, declined: bool) -> None:
        """It was answered, here or elsewhere: what came first counts, even where another answer was on its way."""
        self.recorded(confirmation_id, declined)
        if confirmation_id == self._questions.open_id:
            self._stop_asking()
            self._forget_answer()
        if self._next is not None and self._next.id == confirmation_id:
            self._next = None  # nobody is asked about what was decided
        self._do(self._questions.closed(confirmation_id))

    def listener_changed(self) -> None:
        """Another client is on the line: a yes there counts only if the preview was heard there."""
        if self._questions.is_asking:
            self._stop_asking()
        self._do(self._questions.listener_changed(self._effects.now))

    def speech_started(self, at: float) -> None:
        """The client or the provider noticed that the person began to speak."""
        # Questions first: a deadline that has passed expires the question before these words could answer it.
        self._do(self._questions.speech(at, self._effects.now))
        self._started_at = max(self._started_at, at)
        if self._unjudged is not None and at > self._unjudged.ended:
            self._continued(self._unjudged)

    def model_stopped(self) -> None:
        """The provider has stopped the model, because it heard the person."""
        self._stopped_at = self._effects.now
        self.speech_continued()

    def words_came(self, heard: UserUtterance | None) -> None:
        """Words of this utterance, or of one that nobody knows: the answer had more, unless they are of an earlier one."""
        answer = self._unjudged
        if answer is None or (heard is answer.heard and heard.name):
            return
        if heard is None or heard.ended_at is None or heard.ended_at >= answer.started:
            self._continued(answer)

    def speech_continued(self) -> None:
        """The person says more, aloud or in writing."""
        if self._unjudged is not None:
            self._continued(self._unjudged)

    def _continued(self, answer: PendingAnswer) -> None:
        """More was said than these words: they are no answer."""
        self._forget_answer()
        self._continues_until = self._effects.now + _MAX_WAIT_SECONDS
        self._do(self._questions.heard(answer.text, answer.started, answer.ended, answer.confidence, went_on=True))
        self.settled()

    @property
    def awaits_end(self) -> bool:
        """Whether something was answered, and it is not known yet whether its speaker has finished."""
        return self._unjudged is not None

    def listen(self, pcm: bytes, rate: int, now: float, *, is_voice: bool, before: VoiceSpan | None) -> bool:
        """The user's audio, frame by frame; whether a voice in it continues after an answer.

        `is_voice`: a voice is heard in it. `before`: the voice that was heard before. Keeps the sound that the local recogniser
        gets while a question is open.
        """
        answer, voice = self._unjudged, self._activity.voice
        is_new = voice is not before and voice is not None
        if is_new:
            # The words of the voice before have not come: the next ones may be its own.
            self._voice_before |= before is not None and before.until > self._open_since and self.is_open
        if self._needs_local and self.is_open:
            if voice is None or is_new:
                del self._sound[: -2 * int(rate * _LEAD_SECONDS)]
            self._sound_rate = rate
            if len(self._sound) < 2 * rate * _MAX_SOUND_SECONDS:
                self._sound += pcm
        return is_voice and answer is not None and answer.covers_until < now <= answer.voice_counts_until

    def heard(self, heard: UserUtterance) -> None:
        """The words of an utterance are complete."""
        ended = heard.ended_at
        last = self._activity.voice
        is_voice_after = last is not None and ended is not None and last.since > ended
        voice, is_only_voice, sound = (None, False, b"") if is_voice_after else self._take_voice()
        if not self.is_open:
            return
        # A voice that continued behind these words has none of its own yet: the next ones may be its.
        self._voice_before |= voice is not None and _went_beyond(voice, heard)
        starts = [start for start in (heard.started_at, voice.since if voice else None) if start is not None]
        if not starts or ended is None:
            return  # nobody knows whether it began before our own words had ended
        # Words that may be another utterance's, or not all, approve nothing.
        is_own = bool(heard.name) or not is_voice_after
        sure = heard.sure and is_own and (is_only_voice or heard.started_at is not None)
        started, words_at = min(starts), heard.words_at or ended
        is_sounding = voice is not None and self._activity.is_active
        answer = PendingAnswer(
            heard=heard,
            text=heard.text,
            started=started,
            ended=ended,
            confidence=None if sure else 0.0,
            covers_until=ended if heard.name or not is_sounding else words_at + _TAIL_SECONDS,
            spoke_until=max(ended, words_at, voice.until if voice else -inf),
            voice_counts_until=voice.until + FINISHED_SECONDS + _NOTICE_SECONDS if voice else inf,
        )
        if not self._questions.is_answer(started, ended):
            self._do(self._questions.heard(answer.text, started, ended, answer.confidence))
            return
        if self._unjudged is not None:
            self._continued(self._unjudged)
            return
        if is_voice_after or self._detection.is_speaking or self._is_more(heard, voice, started, ended):
            self._continued(answer)
            return
        self._unjudged = answer
        if self._needs_local:
            answer.is_recognised = False
            self._effects.append(RecogniseAnswer(answer, sound, self._sound_rate))
        due = answer.spoke_until + FINISHED_SECONDS + _NOTICE_SECONDS
        self._effects.timers[Timer(TimerKind.ANSWER_JUDGED)] = due

    def _is_more(self, heard: UserUtterance, voice: VoiceSpan | None, started: float, ended: float) -> bool:
        """Whether somebody noticed more speech than these words are of, until now."""
        if self._started_at > ended or self._stopped_at > min(ended, started + _REACTION_SECONDS):
            return True
        if voice is None:
            return False
        if voice.resumed_at is not None or _went_beyond(voice, heard):
            return True
        return not heard.name and voice.seconds > _longest(heard.text)

    def _take_voice(self) -> tuple[VoiceSpan | None, bool, bytes]:
        """The voice that words are of, whether it was the only one, and its sound."""
        voice, self._activity.voice = self._activity.voice, None
        is_only, self._voice_before = not self._voice_before, False
        sound, self._sound = bytes(self._sound) if voice is not None else b"", bytearray()
        return voice, is_only, sound

    def recognised(self, answer: PendingAnswer, verdict: AnswerVerdict | None) -> None:
        """The local recogniser has heard it."""
        answer.local, answer.is_recognised = verdict, True
        if answer is self._unjudged and Timer(TimerKind.ANSWER_JUDGED) not in self._effects.timers:
            self._judge(answer)

    def judge_elapsed(self) -> None:
        """Nothing more was said for long enough after an answer, or after what was none."""
        if self._unjudged is None:
            self.settled()
        elif self._unjudged.is_recognised:  # otherwise it is judged when it is
            self._judge(self._unjudged)

    def _judge(self, answer: PendingAnswer) -> None:
        self._unjudged = None
        steps = self._questions.heard(answer.text, answer.started, answer.ended, answer.confidence, local=answer.local)
        self._do(steps)
        self.settled()

    def _forget_answer(self) -> None:
        self._unjudged = None
        self._effects.timers.pop(Timer(TimerKind.ANSWER_JUDGED), None)

    def settled(self) -> None:
        """What was said is known: what waited for that happens."""
        if self._is_unsettled:
            return
        self._fall_quiet()
        self.consider()

    @property
    def _is_unsettled(self) -> bool:
        return self._unjudged is not None or self._detection.settling is not None or self._awaits_words()

    def _awaits_words(self) -> bool:
        """Whether the words of an answer are still to come: a short sound of ours may end before. Looked at again when it is late
        for them."""
        heard = self._detection.awaited
        if heard is None or heard.started_at is None or heard.ended_at is None:
            return False
        due = heard.ended_at + PAUSE_SECONDS
        if self._effects.now >= due or not self._questions.is_answer(heard.started_at, heard.ended_at):
            return False
        self._effects.timers.setdefault(Timer(TimerKind.ANSWER_JUDGED), due)
        return True

    def our_audio(self, playing: bool) -> None:
        """While it is not known what the person said, it is not known either whether the preview has to be read again."""
        if playing:
            self._quiet_since = None
            self._do(self._questions.our_audio(True, self._effects.now))
            return
        self._quiet_since = self._effects.now
        if not self._is_unsettled:
            self._fall_quiet()

    def _fall_quiet(self) -> None:
        since, self._quiet_since = self._quiet_since, None
        if since is not None:
            self._do(self._questions.our_audio(False, since))

    def item_opened(self, item: SpokenItem) -> None:
        """The model says something: the reading, if it was asked for one."""
        if item.purpose == "preview":
            self._item = item

    def item_over(self, item: SpokenItem) -> None:
        if item is not self._item or self._reading is None:
            return
        self._fall_quiet()
        asked, self._reading, self._item = self._reading, None, None
        # Whoever took over in the middle has not heard it; nor has anybody whose sound was lost on the way.
        is_another = self._reader is None or self._reader[1] != self._speech.abilities
        if item.cut or not item.reported or is_another or item.spoiled:
            self._do(self._questions.preview_cut(asked))
        else:
            said = item.text if self._reader is not None and self._reader[0] else None
            self._do(self._questions.preview_spoken(asked, said, self._effects.now))

    def consider(self) -> None:
        """Something happened after which it may be quiet: read what waits to be read."""
        if self._is_unsettled or not self._host.is_quiet() or self._is_continuing():
            return
        if self._reading is not None and self._item is None:
            lost, self._reading = self._reading, None  # the model was asked, and has ended without reading
            self._do(self._questions.preview_cut(lost))
            return
        if self._next is None or self._reading is not None:
            return
        read, self._next = self._next, None
        self._reading, self._item = read.id, None
        self._reader = self._speech.is_voiced, self._speech.abilities
        self._report(read.id, "reading")
        item = self._host.read_aloud(read.text)
        if item is not None:
            self._item = item
            if item.over:
                self.item_over(item)

    def _is_continuing(self) -> bool:
        """Whether somebody who continued after an answer may still be speaking; looked at again when they have finished."""
        quiet_at = min(self._continues_until, self._activity.heard_at + FINISHED_SECONDS)
        if self._effects.now >= quiet_at:
            self._continues_until = -inf
            return False
        if Timer(TimerKind.ANSWER_JUDGED) not in self._effects.timers:
            self._effects.timers[Timer(TimerKind.ANSWER_JUDGED)] = quiet_at
        return True

    def expiry_elapsed(self, id: str) -> None:
        self._do(self._questions.tick(self._effects.now))
        self._misses.pop(id, None)

    def asking_elapsed(self) -> None:
        """An answer counts from now on."""
        self._report(self._asking, "asking")

    # ------------------------------------------------------------------------------------------- what is done

    def _do(self, steps: Sequence[QuestionStep]) -> None:
        for step in steps:
            match step:
                case ReadPreview():
                    self._next = step
                    self._stop_asking()
                case AcceptAnswers(id):
                    # Reported when an answer counts, so that nobody is invited to speak too soon.
                    self._asking = id
                    self._effects.timers[Timer(TimerKind.ANSWER_OPEN)] = self._effects.now + GUARD_SECONDS
                case AnswerMissed(id, count):
                    self._stop_asking()
                    self._misses[id] = count
                    self._report(id, "missed")
                case MoveToScreen(id, reason):
                    self._drop(id)
                    self._report(id, "screen", reason)
                case QuestionExpired(id):
                    self._drop(id)
                    self._report(id, "expired")
                case ApproveRequest(id, token):
                    self._decide(id, token, approve=True)
                case DeclineRequest(id, token):
                    self._decide(id, token, approve=False)
        if steps:
            self.consider()

    def _stop_asking(self) -> None:
        self._effects.timers.pop(Timer(TimerKind.ANSWER_OPEN), None)

    def _drop(self, id: str) -> None:
        self._stop_asking()
        self._forget_answer()
        if self._next is not None and self._next.id == id:
            self._next = None
        if self._reading == id:
            self._reading = self._item = None

    def _decide(self, id: str, token: str, *, approve: bool) -> None:
        self._drop(id)
        self._answering[id] = approve
        self._effects.append(RecordDecision(id, token, approve))

    def reopened(self, id: str) -> None:
        """The runtime asks anew, with what has changed."""
        self._answering.pop(id, None)

    def not_recorded(self, id: str, reason: str, message: str = "", *, expired: bool = False) -> None:
        """The request stays on the screen, unless its outcome was reported meanwhile; `message` says more about it."""
        if self._answering.pop(id, None) is None:
            return
        self._report(id, "expired" if expired else "screen", reason)
        if message:
            self._effects.append(TellClient("error", {"code": reason, "message": message}))

    def recorded(self, id: str, declined: bool) -> None:
        """The answer was taken. After an approval the call has ended as well, and its envelope says how."""
        approve = self._answering.pop(id, None)
        if approve is None:
            return
        if declined:
            self._report(id, "declined")
        elif approve:
            self._report(id, "approved")
        else:
            self._report(id, "screen", "decided")

    def _report(self, id: str, state: str, reason: str = "") -> None:
        """`reason`: why it is for the screen."""
        told = {"id": id, "state": state, "misses": self._misses.get(id, 0)}
        self._effects.append(TellClient("question", {**told, "reason": reason} if reason else told))


def _went_beyond(voice: VoiceSpan, heard: UserUtterance) -> bool:
    """Whether the voice was heard after all that these words can be of."""
    if heard.name:
        return heard.ended_at is not None and voice.until > heard.ended_at
    words_at = heard.words_at or heard.ended_at
    if words_at is None:
        return False
    return voice.until > words_at + _TAIL_SECONDS or (voice.resumed_at is not None and voice.resumed_at > words_at)


def _longest(text: str) -> float:
    """Seconds that nobody needs to say this, however slowly."""
    return 0.4 + 0.1 * sum(map(str.isalnum, text))
